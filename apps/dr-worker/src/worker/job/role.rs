//! What a program of a job with a standby is told about its role.

use std::{borrow::Cow, collections::BTreeMap, fs, io, path::PathBuf};

use election_core::{
    config::{MemberId, SiteId},
    internals::record::{Current, Status},
    status::Leader,
};
use job_guard::own_file;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{
    env::{self, JobEnv},
    error::JobError,
};
use crate::config::STANDBY_VARIABLES;

/// What a program of the job is told about its role, as `DR_LEADERSHIP_FILE` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RoleFacts {
    role: Cow<'static, str>,
    pub(super) term: u64,
    /// Only the leader has one.
    token: Option<u64>,
    leader: Option<String>,
    address: Option<String>,
    site: Option<String>,
}

/// A leader as the other members see it.
#[derive(Clone, Debug)]
pub(crate) struct SeenLeader {
    pub(crate) member: MemberId,
    pub(crate) site: SiteId,
    pub(crate) address: Option<String>,
    pub(crate) term: u64,
    /// Known once it is READY.
    pub(crate) fencing_token: Option<u64>,
    pub(crate) is_ready: bool,
}

impl From<&Current> for SeenLeader {
    fn from(current: &Current) -> Self {
        let Current { member, site, endpoint, term, fencing_token, status, .. } = current.clone();
        Self { member, site, address: endpoint, term, fencing_token, is_ready: status == Status::Ready }
    }
}

impl From<&Leader> for SeenLeader {
    fn from(leader: &Leader) -> Self {
        let Leader { member, site, endpoint, term, fencing_token, .. } = leader.clone();
        Self { member, site, address: endpoint, term, fencing_token: Some(fencing_token), is_ready: true }
    }
}

impl RoleFacts {
    /// A standby of this leader; of none before the first one is known.
    pub(super) fn of_standby(leader: Option<&SeenLeader>) -> Self {
        Self {
            role: "standby".into(),
            term: leader.map_or(0, |leader| leader.term),
            token: None,
            leader: leader.map(|leader| leader.member.to_string()),
            address: leader.and_then(|leader| leader.address.clone()),
            site: leader.map(|leader| leader.site.to_string()),
        }
    }

    /// This member leads, and has this address.
    pub(super) fn of_leader(env: &JobEnv, address: &str) -> Self {
        Self {
            role: "leader".into(),
            term: env.term,
            token: Some(env.fencing_token),
            leader: Some(env.member.clone()),
            address: Some(address.to_owned()),
            site: Some(env.site.clone()),
        }
    }

    /// A standby after the leadership of that term, whose successor is not known yet.
    pub(super) fn after(term: u64) -> Self {
        Self { term, ..Self::of_standby(None) }
    }

    /// Whether it names who leads.
    pub(super) fn names_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// The variables, on top of these.
    pub(super) fn over(&self, mut all: BTreeMap<String, String>, file: &str) -> BTreeMap<String, String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let values = [
            self.role.clone().into_owned(),
            text(&self.leader),
            text(&self.address),
            text(&self.site),
            file.to_owned(),
        ];
        all.extend(env::variables(STANDBY_VARIABLES, values));
        all.insert("DR_TERM".to_owned(), self.term.to_string());
        if self.token.is_none() {
            all.remove("DR_FENCING_TOKEN");
        }
        all
    }
}

/// `DR_LEADERSHIP_FILE`: what a running program reads, since it gets no new environment.
#[derive(Debug)]
pub(super) struct LeadershipFile {
    job: String,
    path: PathBuf,
    /// The term that it has.
    written: Mutex<u64>,
}

impl LeadershipFile {
    pub(super) fn new(job: &str, path: PathBuf) -> Self {
        Self { job: job.to_owned(), path, written: Mutex::new(0) }
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        self.path.to_string_lossy()
    }

    /// What the standby that runs was told, or was about to be told. From now on nothing older is written. Before the first write.
    pub(super) fn read(&self) -> RoleFacts {
        let read = || serde_json::from_slice(&fs::read(&self.path).ok()?).ok();
        let facts: RoleFacts = read().unwrap_or_else(|| RoleFacts::of_standby(None));
        if let Ok(mut written) = self.written.try_lock() {
            *written = facts.term;
        }
        // A leadership has ended, and its successor was not written.
        if facts.token.is_some() { RoleFacts::after(facts.term) } else { facts }
    }

    /// Replaces it as a whole. That of a standby stays if it has a newer term. The term of a leadership may be older than that of
    /// a leader of another slot.
    ///
    /// # Errors
    /// Why it can't be written.
    pub(super) async fn write(&self, facts: &RoleFacts) -> Result<(), JobError> {
        let mut written = self.written.lock().await;
        if facts.token.is_none() && facts.term < *written {
            return Ok(());
        }
        let (path, content) = (self.path.clone(), serde_json::to_vec(facts).unwrap_or_default());
        let replaced = tokio::task::spawn_blocking(move || own_file::replace_for_all(&path, &content)).await;
        if let Err(error) = replaced.unwrap_or_else(|error| Err(io::Error::other(error))) {
            let why = format!("can't write {}: {error}", self.path.display());
            return Err(JobError::NotTold { job: self.job.clone(), why });
        }
        *written = facts.term;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_of_a_leader_is_replaced_and_that_of_a_standby_gets_no_older() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("later");
        let file = LeadershipFile::new("orders", place.join("file"));
        let leader = JobEnv { term: 7, fencing_token: 70, ..JobEnv::default() };
        let leader = RoleFacts::of_leader(&leader, "here");
        assert!(file.write(&RoleFacts::after(8)).await.is_err(), "there is no directory");
        fs::create_dir(&place).expect("a directory");
        let read = || -> RoleFacts {
            serde_json::from_slice(&fs::read(place.join("file")).expect("the file")).expect("JSON")
        };
        let other_slot = RoleFacts::after(8);
        for (written, is) in [
            (&other_slot, &other_slot),
            (&RoleFacts::after(6), &other_slot),
            (&leader, &leader),
            (&RoleFacts::after(6), &leader),
            (&RoleFacts::after(7), &RoleFacts::after(7)),
        ] {
            file.write(written).await.expect("written");
            assert_eq!(read(), *is);
        }
    }
}
