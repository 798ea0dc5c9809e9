//! The newest fencing token of a job that this node has seen. It is kept in the state directory, for the time when
//! ZooKeeper does not answer, and for a worker that starts: the election continues above it.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use election_core::{
    config::{MemberId, SiteId},
    internals::record::limits,
    status::ElectionStatus,
};
use job_guard::{file_name, own_file};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, watch},
    task::spawn_blocking,
};

use crate::wall::unix_ms;

/// A change of leadership changes several records within moments: they are written once.
const SETTLES: Duration = Duration::from_millis(500);

/// A worker of thousands of jobs writes one file at a time, so that the others of its threads are free.
static WRITING: Semaphore = Semaphore::const_new(1);

/// What a node has seen of a job's leaderships.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Newest {
    /// The latest term.
    #[serde(with = "limits::term")]
    pub(crate) term: u64,
    /// The newest token: of a leader, or the base below all future ones.
    #[serde(with = "limits::base")]
    pub(crate) token: u64,
    /// The leader with the newest token of these.
    #[serde(default)]
    pub(crate) leader: Option<SeenLeader>,
    /// When this was written, in milliseconds since the Unix epoch.
    #[serde(default, with = "limits::ms")]
    pub(crate) at_ms: u64,
}

/// A member that was seen as the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenLeader {
    pub(crate) member: MemberId,
    pub(crate) site: SiteId,
}

impl Newest {
    /// What this status shows.
    fn of(status: &ElectionStatus) -> Self {
        let newest = status.leaders.iter().flatten().max_by_key(|leader| leader.fencing_token);
        let term = status.elected.as_ref().map_or(0, |elected| elected.term);
        Self {
            term: term.max(status.term),
            token: status.newest_token,
            leader: newest
                .map(|leader| SeenLeader { member: leader.member.clone(), site: leader.site.clone() }),
            at_ms: 0,
        }
    }

    /// The higher of both, and the leader of the later one.
    #[must_use]
    fn and(self, later: Self) -> Self {
        Self {
            term: self.term.max(later.term),
            token: self.token.max(later.token),
            leader: later.leader.or(self.leader),
            at_ms: self.at_ms,
        }
    }

    /// A token of which the elections do not know.
    pub(crate) fn given(term: u64, token: u64) -> Self {
        Self { term, token, ..Self::default() }
    }
}

/// The file of a job beside the lock.
#[derive(Clone, Debug)]
pub(crate) struct NewestFile(PathBuf);

impl NewestFile {
    pub(crate) fn beside(lock: &Path, job: &str) -> Self {
        Self(lock.with_extension("tokens").join(format!("{}.json", file_name(job))))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What is kept; `None` if nothing is.
    ///
    /// # Errors
    /// If the file can't be read, or is no such file.
    pub(crate) fn read(&self) -> io::Result<Option<Newest>> {
        match own_file::read_own(&self.0) {
            Ok(data) => Ok(Some(serde_json::from_slice(&data)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is kept, for a worker that starts. A file that can't be used is reported, however the reading fails.
    pub(crate) async fn floor(&self, job: &str) -> Newest {
        let file = self.clone();
        let read = spawn_blocking(move || file.read()).await;
        read.unwrap_or_else(|panic| Err(panic.into())).unwrap_or_else(|error| {
            let path = self.0.display();
            tracing::warn!(
                job,
                %path,
                %error,
                "the newest fencing token can't be read; if no other worker has seen it, and the ensemble was restored or \
                 replaced, raise the tokens (`dr-worker raise-token --job JOB --above TOKEN`)"
            );
            None
        })
        .unwrap_or_default()
    }

    /// Adds what was seen. The file is on the disk when this returns.
    ///
    /// # Errors
    /// If it can't be read or written.
    pub(crate) fn add(&self, seen: Newest) -> io::Result<()> {
        let kept = match self.read() {
            // It was reported when the worker started. It is kept, since it may have a newer token than this member knows.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
                fs::rename(&self.0, self.0.with_extension("damaged"))?;
                None
            }
            // What could not be read may be higher.
            read => read?,
        };
        let next = kept.clone().unwrap_or_default().and(seen);
        if kept.as_ref() == Some(&next) {
            return Ok(());
        }
        self.0.parent().map_or(Ok(()), own_file::create_dir)?;
        own_file::replace_durably(&self.0, &serde_json::to_vec(&Newest { at_ms: unix_ms(), ..next })?)
    }
}

/// Keeps what the election's status shows, until the election ends.
pub(crate) async fn keep(file: NewestFile, job: String, mut status: watch::Receiver<ElectionStatus>) {
    let (mut written, mut is_failing) = (Newest::default(), false);
    loop {
        let seen = written.clone().and(Newest::of(&status.borrow_and_update()));
        if seen != written {
            let _alone = WRITING.acquire().await;
            let to = file.clone();
            let saved = seen.clone();
            let added = tokio::task::spawn_blocking(move || to.add(saved)).await;
            match added.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
                Ok(()) => (written, is_failing) = (seen, false),
                // It is tried again with the next change of the status.
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let path = file.path().display();
                        tracing::warn!(job, %path, %error, "can't save the newest fencing token, which `emergency-lead` would need");
                    }
                }
            }
        }
        if status.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(SETTLES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(term: u64, token: u64, leader: Option<&str>) -> Newest {
        let seen = |id: &str| SeenLeader { member: id.parse().unwrap(), site: "east".parse().unwrap() };
        Newest { term, token, leader: leader.map(seen), at_ms: 0 }
    }

    #[test]
    fn what_was_seen_only_grows_and_survives() {
        let dir = tempfile::tempdir().unwrap();
        let file = NewestFile::beside(&dir.path().join("east-1.lock"), "a/b");
        assert_eq!(file.read().unwrap(), None);
        file.add(seen(3, 70, Some("east-1"))).unwrap();
        file.add(seen(2, 90, None)).unwrap();
        let kept = file.read().unwrap().unwrap();
        assert_eq!((kept.term, kept.token), (3, 90));
        assert_eq!(kept.leader, seen(0, 0, Some("east-1")).leader);
        assert!(kept.at_ms > 0);
        // Nothing new is not written.
        file.add(seen(3, 80, Some("east-1"))).unwrap();
        assert_eq!(file.read().unwrap(), Some(kept));
        assert_eq!(NewestFile::beside(&dir.path().join("east-1.lock"), "other").read().unwrap(), None);
    }

    #[tokio::test]
    async fn numbers_that_no_worker_has_written_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = NewestFile::beside(&dir.path().join("m.lock"), "orders");
        file.add(seen(limits::MAX_TOKEN, limits::MAX_TOKEN_BASE, None)).unwrap();
        let kept = fs::read_to_string(file.path()).unwrap();
        assert!(file.read().is_ok());
        for (number, limit) in [("term", limits::MAX_TOKEN), ("token", limits::MAX_TOKEN_BASE)] {
            for too_large in [limit + 1, u64::MAX] {
                let number = format!("\"{number}\":");
                let damaged = kept.replace(&format!("{number}{limit}"), &format!("{number}{too_large}"));
                assert_ne!(damaged, kept);
                fs::write(file.path(), damaged).unwrap();
                assert!(file.read().is_err(), "{number}{too_large}");
                assert_eq!(file.floor("orders").await, Newest::default());
            }
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = NewestFile::beside(&dir.path().join("m.lock"), "orders");
        file.add(seen(1, 1, None)).unwrap();
        fs::write(file.path(), "{").unwrap();
        assert!(file.read().is_err());
        file.add(seen(2, 5, None)).unwrap();
        assert_eq!(file.read().unwrap().unwrap().token, 5);
        assert_eq!(fs::read_to_string(file.path().with_extension("damaged")).unwrap(), "{");
        // One that can't be read at all is not replaced.
        fs::remove_file(file.path()).unwrap();
        fs::create_dir(file.path()).unwrap();
        assert!(file.add(seen(3, 6, None)).is_err() && file.path().is_dir());
    }
}
