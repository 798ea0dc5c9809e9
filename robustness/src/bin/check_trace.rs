//! Checks the history of a deployment.
//!
//! It is a program of its own and no verb of `dr-worker`: what is checked does not bring its checker, and one history can
//! have lines of several versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use robustness::checker::Report;
use robustness::history::{History, Line, Witness, read_log};

const USAGE: &str = "\
Usage: check-trace [--job JOB --root ROOT --ahead NANOSECONDS --log PATH...] HISTORY...

Check the history of a deployment: print 'held', or the lines that break a promise.

Arguments:
  HISTORY...  Files of JSON lines, or directories of *.jsonl

Options:
  --log PATH     Transaction log of a ZooKeeper server, or a directory of log.*;
                 repeatable
  --root ROOT    Parent znode of the election in these logs [default: /dr]
  --job JOB      Job [default: orders]
  --ahead NANOSECONDS
                 What the servers' wall clock shows more than the clock of the
                 history [default: 0]

Exit code 0 if every promise was kept, 1 if one was broken, 64 if the input can't
be used.";

struct Input {
    histories: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    root: String,
    job: String,
    ahead: u64,
}

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)).and_then(|input| history(&input)) {
        Ok(history) => {
            let report = Report::of(&history);
            print!("{}", report.text(&history));
            ExitCode::from(u8::from(!report.held()))
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(64)
        }
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Input, String> {
    let (root, job) = ("/dr".to_owned(), "orders".to_owned());
    let mut input = Input { histories: Vec::new(), logs: Vec::new(), root, job, ahead: 0 };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--log" => input.logs.push(value()?.into()),
            "--root" => input.root = value()?,
            "--job" => input.job = value()?,
            "--ahead" => input.ahead = value()?.parse().map_err(|error| format!("--ahead: {error}"))?,
            option if option.starts_with('-') => return Err(USAGE.to_owned()),
            _ => input.histories.push(word.into()),
        }
    }
    if input.histories.is_empty() { Err(USAGE.to_owned()) } else { Ok(input) }
}

fn history(input: &Input) -> Result<History, String> {
    let mut lines: Vec<Line> = Vec::new();
    for path in files(&input.histories, |name| name.ends_with(".jsonl"))? {
        let text = fs::read_to_string(&path).map_err(|error| named(&path, error))?;
        lines.extend(History::parse(&text).map_err(|error| named(&path, error))?);
    }
    let mut txns = Vec::new();
    for path in files(&input.logs, |name| name.starts_with("log."))? {
        let bytes = fs::read(&path).map_err(|error| named(&path, error))?;
        txns.extend(read_log(&bytes).map_err(|error| named(&path, error))?);
    }
    lines.extend(Witness::lines(&input.root, &input.job, input.ahead, txns));
    Ok(History::of(lines))
}

/// The files, and of directories those with such a name.
fn files(paths: &[PathBuf], wanted: fn(&str) -> bool) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        for entry in fs::read_dir(path).map_err(|error| named(path, error))?.flatten() {
            if wanted(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn named(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
