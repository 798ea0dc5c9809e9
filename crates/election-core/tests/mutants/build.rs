//! Copies the sources of election-core, and gives the copy a switch for each rule of `mutations.rs`.

#[path = "mutations.rs"]
mod mutations;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

const SOURCES: &str = "../../src";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-changed=mutations.rs");
    let copy = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // A file that has moved would be there twice.
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    copy_all(Path::new(SOURCES), &copy)?;
    let (files, wrong) = mutations::mutated(Path::new(SOURCES));
    for (file, text) in files {
        fs::write(copy.join(file), text)?;
    }
    for wrong in wrong {
        println!("cargo::error={wrong}");
    }
    // An included file has no attributes of a crate.
    let root = fs::read_to_string(copy.join("lib.rs"))?;
    let items =
        root.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#![")).collect::<Vec<_>>();
    fs::write(copy.join("lib.rs"), items.join("\n"))
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = (entry?.path(), to);
        let to = to.join(entry.file_name().unwrap_or_default());
        if entry.is_dir() { copy_all(&entry, &to)? } else { fs::copy(&entry, &to).map(drop)? }
    }
    Ok(())
}
