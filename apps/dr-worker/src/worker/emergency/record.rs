//! The records of emergency leaderships on this node. A job with a record is not in an election of this node's worker.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use election_core::internals::record::limits;
use job_guard::own_file;
use serde::{Deserialize, Serialize};

use crate::{config::JobConfig, error::Error, host_fault::HostFault, typed::Typed, wall::moment};

/// An emergency leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) job: String,
    /// The path of its election.
    pub(crate) election: String,
    pub(crate) member: String,
    /// The operator: user and host.
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    /// What the operator has confirmed to be fenced by hand.
    pub(crate) fenced: String,
    #[serde(with = "limits::term")]
    pub(crate) term: u64,
    /// The token of the job.
    #[serde(with = "limits::base")]
    pub(crate) token: u64,
    /// When it began, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub(crate) began_ms: u64,
    /// When it ended; `None` while it runs, and if its end was not seen.
    #[serde(default, with = "limits::ms")]
    pub(crate) ended_ms: Option<u64>,
}

impl Record {
    /// What happened, and its consequence.
    pub(crate) fn sentence(&self) -> String {
        let Self { job, member, by, fenced, token, .. } = self;
        let until = self
            .ended_ms
            .map_or_else(|| "(no end recorded)".to_owned(), |ms| format!("until {}", moment(ms)));
        let reason =
            self.reason.as_ref().map(|reason| format!(", because of {reason:?}")).unwrap_or_default();
        format!(
            "{member} led {job} without ZooKeeper from {} {until} with token {token}, by order of {by}{reason}, who \
             confirmed {fenced:?}: its worker stays out of this election until the record is cleared",
            moment(self.began_ms)
        )
    }

    /// What lets the node rejoin.
    pub(crate) fn commands(&self) -> String {
        let Self { job, token, .. } = self;
        let raise = Typed::verb("raise-token").job(job).arg("--above").arg(token);
        format!("{raise} && {}", Typed::verb("emergency-lead").job(job).arg("--clear"))
    }
}

/// The file of the records, beside the lock, which protects it from other writers.
#[derive(Clone, Debug)]
pub(crate) struct Records(PathBuf);

impl Records {
    pub(crate) fn beside(lock: &Path) -> Self {
        Self(lock.with_extension("emergency.json"))
    }

    /// The records, by job.
    ///
    /// # Errors
    /// If the file can't be read. It then counts as a record of every job.
    pub(crate) fn read(&self) -> Result<BTreeMap<String, Record>, Error> {
        let data = match own_file::read_own(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(Error::on_host("node.state_dir", HostFault::of_user(&self.0, &error))),
            Ok(data) => data,
        };
        serde_json::from_slice(&data).map_err(|error| {
            Error::Failed(format!(
                "the records of emergency leaderships in {} are damaged: {error}; raise the tokens of its jobs above the \
                 newest one that their resources have seen (`dr-worker raise-token --job JOB --above TOKEN`), and \
                 remove the file",
                self.0.display()
            ))
        })
    }

    /// Writes the record of its job. It is on the disk when this returns.
    ///
    /// # Errors
    /// If it can't be written.
    pub(crate) fn put(&self, record: Record) -> Result<(), Error> {
        let mut all = self.read()?;
        all.insert(record.job.clone(), record);
        self.write(&all)
    }

    /// Removes the record of the job.
    ///
    /// # Errors
    /// If it can't be written.
    pub(crate) fn remove(&self, job: &str) -> Result<(), Error> {
        let mut all = self.read()?;
        all.remove(job);
        self.write(&all)
    }

    fn write(&self, all: &BTreeMap<String, Record>) -> Result<(), Error> {
        let written = serde_json::to_vec_pretty(all).map_err(io::Error::from);
        let written = written.and_then(|data| own_file::replace_durably(&self.0, &data));
        written.map_err(|error| Error::Failed(format!("can't write {}: {error}", self.0.display())))
    }

    /// Refuses to take part in the elections of jobs that have a record.
    ///
    /// # Errors
    /// With what to do.
    pub(crate) fn refuse(&self, jobs: &[JobConfig]) -> Result<(), Error> {
        let mut records = self.read()?.into_values();
        let Some(record) = records.find(|record| jobs.iter().any(|job| job.name() == record.job)) else {
            return Ok(());
        };
        Err(Error::NotNow(format!(
            "{}. Once ZooKeeper has a quorum: {}; docs/lost-quorum.md has the steps",
            record.sentence(),
            record.commands()
        )))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    pub(in crate::worker::emergency) fn record(job: &str, token: u64) -> Record {
        Record {
            job: job.to_owned(),
            election: format!("/dr/{job}"),
            member: "east-1".to_owned(),
            by: "ann@east-1".to_owned(),
            reason: Some("west burns".to_owned()),
            fenced: "I have fenced: site west".to_owned(),
            term: 8,
            token,
            began_ms: 1_700_000_000_000,
            ended_ms: None,
        }
    }

    #[test]
    fn records_are_kept_by_job_until_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::beside(&dir.path().join("east-1.lock"));
        assert!(records.read().unwrap().is_empty());
        records.put(record("orders", 5)).unwrap();
        records.put(record("bills", 6)).unwrap();
        records.put(Record { ended_ms: Some(1_700_000_060_000), ..record("orders", 7) }).unwrap();
        let all = records.read().unwrap();
        assert_eq!(all.values().map(|record| record.token).collect::<Vec<_>>(), [6, 7]);
        let sentence = all["orders"].sentence();
        for part in [
            "east-1 led orders",
            "token 7",
            "ann@east-1",
            "west burns",
            "fenced: site west",
            "until 2023-11-14T22:14:20Z",
        ] {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        assert!(all["orders"].commands().contains("raise-token --job orders --above 7"));
        records.remove("orders").unwrap();
        assert_eq!(records.read().unwrap().into_keys().collect::<Vec<_>>(), ["bills"]);
    }

    #[test]
    fn a_damaged_file_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("east-1.lock");
        fs::write(lock.with_extension("emergency.json"), "{").unwrap();
        let error = Records::beside(&lock).refuse(&[]).unwrap_err().to_string();
        assert!(error.contains("east-1.emergency.json") && error.contains("remove the file"), "{error}");
    }
}
