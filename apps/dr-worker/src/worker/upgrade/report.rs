//! The outcome of an upgrade, in a file beside the lock.

use std::{
    io,
    path::{Path, PathBuf},
};

use election_core::internals::record::limits;
use serde::{Deserialize, Serialize};

use job_guard::own_file;

/// How far an upgrade has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Progress {
    /// It is under way.
    Begun,
    /// The new program works.
    Done,
    /// The old program goes on, and may succeed later.
    NotNow,
    /// The old program goes on: the new one can't continue.
    Refused,
    /// The old program goes on: the new one refuses the configuration.
    BadConfiguration,
    /// The new program runs, and has lost something.
    Failed,
}

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpgradeReport {
    /// Grows with each attempt.
    #[serde(with = "limits::ms")]
    pub(crate) attempt: u64,
    pub(crate) progress: Progress,
    /// What has happened, and why.
    pub(crate) message: String,
    /// The versions before and after.
    pub(crate) from: String,
    pub(crate) to: String,
    /// The leaderships that have continued.
    pub(crate) jobs: Vec<Continued>,
}

/// A leadership that has continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Continued {
    pub(crate) job: String,
    #[serde(with = "limits::term")]
    pub(crate) term: u64,
    #[serde(with = "limits::token")]
    pub(crate) fencing_token: u64,
}

fn beside(lock: &Path) -> PathBuf {
    lock.with_extension("upgrade.json")
}

impl UpgradeReport {
    /// The last upgrade of the worker that has this lock. An unreadable report counts as none.
    pub(crate) fn read(lock: &Path) -> Option<UpgradeReport> {
        serde_json::from_slice(&own_file::read_own(&beside(lock)).ok()?).ok()
    }

    /// Replaces the report of this worker's last upgrade.
    ///
    /// # Errors
    /// If the directory can't be written.
    pub(crate) fn write(&self, lock: &Path) -> io::Result<()> {
        own_file::replace(&beside(lock), &serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_report_is_read_and_garbage_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("east-1.lock");
        assert_eq!(UpgradeReport::read(&lock), None);
        let jobs = vec![Continued { job: "orders".to_owned(), term: 3, fencing_token: 1 << 40 }];
        let report = UpgradeReport {
            attempt: 7,
            progress: Progress::Done,
            message: String::new(),
            from: "1.0.0".to_owned(),
            to: "1.1.0".to_owned(),
            jobs,
        };
        report.write(&lock).unwrap();
        assert_eq!(UpgradeReport::read(&lock), Some(report));
        fs::write(dir.path().join("east-1.upgrade.json"), "{").unwrap();
        assert_eq!(UpgradeReport::read(&lock), None);
    }
}
