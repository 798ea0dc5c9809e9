//! The files of a history.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::line::Line;
use super::read::{BadLine, History};
use super::txn_log::{BadLog, read_log};
use super::witness::Witness;

/// Where a history is, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Files of JSON lines, or directories of `*.jsonl`.
    pub histories: Vec<PathBuf>,
    /// Transaction logs of ZooKeeper servers, or directories of `log.*`.
    pub logs: Vec<PathBuf>,
    /// The parent znode of the election.
    pub root: String,
    /// The job.
    pub job: String,
    /// What the servers' wall clock shows more than the clock of the history, in nanoseconds.
    pub ahead: u64,
}

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct BadFile {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Line(#[from] BadLine),
    #[error(transparent)]
    Log(#[from] BadLog),
}

impl Files {
    /// Reads all of them.
    ///
    /// # Errors
    /// The first file that can't be read, or is none of a history or of a log.
    pub fn read(&self) -> Result<History, BadFile> {
        let mut lines: Vec<Line> = Vec::new();
        for path in files(&self.histories, |name| name.ends_with(".jsonl"))? {
            let text = fs::read_to_string(&path).map_err(|why| bad(&path, why))?;
            lines.extend(History::parse(&text).map_err(|why| bad(&path, why))?);
        }
        let mut txns = Vec::new();
        for path in files(&self.logs, |name| name.starts_with("log."))? {
            let bytes = fs::read(&path).map_err(|why| bad(&path, why))?;
            txns.extend(read_log(&bytes).map_err(|why| bad(&path, why))?);
        }
        lines.extend(Witness::lines(&self.root, &self.job, self.ahead, txns));
        Ok(History::of(lines))
    }
}

/// The files, and of directories those with such a name.
fn files(paths: &[PathBuf], wanted: fn(&str) -> bool) -> Result<Vec<PathBuf>, BadFile> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        for entry in fs::read_dir(path).map_err(|why| bad(path, why))? {
            let entry = entry.map_err(|why| bad(path, why))?;
            if wanted(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn bad(path: &Path, why: impl Into<Why>) -> BadFile {
    BadFile { path: path.to_owned(), why: why.into() }
}
