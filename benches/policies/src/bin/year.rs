//! Prints the tables of `docs/weeks.md`: the defaults beside their alternatives, over years generated from seeds.
//!
//! `cargo run --release -p policy-world [-- YEARS | --write]`; `--write` writes them into the document.

use std::{fs, path::Path, process::ExitCode};

use policy_world::year;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let done = match argument.as_deref() {
        None => year::tables(year::YEARS).map(|tables| print!("{tables}")),
        Some("--write") => year::tables(year::YEARS).and_then(|tables| write(&tables)),
        Some(years) => match years.parse() {
            Ok(years) if years > 0 => year::tables(years).map(|tables| print!("{tables}")),
            _ => Err(format!("{years}: a number of years from 1 on is wanted, or --write")),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(tables: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/weeks.md");
    let of = |error| format!("{}: {error}", path.display());
    let document = fs::read_to_string(&path).map_err(of)?;
    fs::write(&path, year::written_into(&document, tables)?).map_err(of)
}
