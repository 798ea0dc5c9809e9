//! The files of a history.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::line::{Event, Line};
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
    /// What the servers' wall clock shows more than the clock of the history, in nanoseconds; by default as the setup of the
    /// history says.
    pub ahead: Option<i64>,
    /// By how many nanoseconds the servers' times may differ from the others; usually [`History::TOLERANCE`].
    pub tolerance: u64,
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
    #[error("no file there is named {0}")]
    NoFile(&'static str),
    #[error("no line is in it")]
    NoLine,
    #[error("nothing in the logs is about the job {job} below {root}")]
    NoElection { root: String, job: String },
    #[error("the history and the logs have no time in common: how far is the servers' clock ahead?")]
    OtherTime,
}

impl Files {
    /// Reads all of them. Lines of the servers that the history has already, from an earlier reading of the same logs, are not
    /// added.
    ///
    /// # Errors
    /// The first file that can't be read, or is none of a history or of a log; a place without a file or a line; logs that know
    /// nothing of the election, or are about another time.
    pub fn read(&self) -> Result<History, BadFile> {
        let mut lines: Vec<Line> = Vec::new();
        for given in &self.histories {
            let before = lines.len();
            for path in files(given, "*.jsonl", |name| name.ends_with(".jsonl"))? {
                let text = fs::read_to_string(&path).map_err(|why| bad(&path, why))?;
                lines.extend(History::parse(&text).map_err(|why| bad(&path, why))?);
            }
            if lines.len() == before {
                return Err(bad(given, Why::NoLine));
            }
        }
        let mut txns = Vec::new();
        for given in &self.logs {
            for path in files(given, "log.*", |name| name.starts_with("log."))? {
                let bytes = fs::read(&path).map_err(|why| bad(&path, why))?;
                txns.extend(read_log(&bytes).map_err(|why| bad(&path, why))?);
            }
        }
        if let Some(log) = self.logs.first() {
            let setup = lines.iter().find_map(|line| match &line.event {
                Event::Setup(setup) => setup.ahead,
                _ => None,
            });
            let ahead = self.ahead.or(setup).unwrap_or(0);
            let witnessed = Witness::lines(&self.root, &self.job, ahead, txns);
            if witnessed.is_empty() {
                let (root, job) = (self.root.clone(), self.job.clone());
                return Err(bad(log, Why::NoElection { root, job }));
            }
            if !have_time_in_common(&lines, &witnessed) {
                return Err(bad(log, Why::OtherTime));
            }
            let known: BTreeSet<String> = lines.iter().map(|line| line.by.clone()).collect();
            lines.extend(witnessed.into_iter().filter(|line| !known.contains(&line.by)));
        }
        Ok(History::of(lines).tolerating(self.tolerance))
    }
}

/// Whether one begins before the other ends.
fn have_time_in_common(lines: &[Line], witnessed: &[Line]) -> bool {
    let range = |lines: &[Line]| {
        // The setup has no time.
        let times = lines.iter().filter(|line| !matches!(line.event, Event::Setup(_))).map(|line| line.at);
        Some((times.clone().min()?, times.max()?))
    };
    let ranges = range(lines).zip(range(witnessed));
    ranges.is_none_or(|((from, to), (since, until))| from <= until && since <= to)
}

/// The file, or those with such a name of a directory.
fn files(path: &Path, names: &'static str, wanted: fn(&str) -> bool) -> Result<Vec<PathBuf>, BadFile> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(|why| bad(path, why))? {
        let entry = entry.map_err(|why| bad(path, why))?;
        if wanted(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        return Err(bad(path, Why::NoFile(names)));
    }
    Ok(found)
}

fn bad(path: &Path, why: impl Into<Why>) -> BadFile {
    BadFile { path: path.to_owned(), why: why.into() }
}
