//! The last ballots of this state directory's worker. They distinguish its own znodes from those of another process
//! that has the same id by mistake.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use election_core::{
    internals::record::{MemberRecord, Record as _},
    status::{Ballot, ElectionStatus},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, task::spawn_blocking};

use job_guard::own_file;

/// The file with the ballots. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    path: PathBuf,
    last: Arc<Mutex<Remembered>>,
    /// Held while the file is written, so that no older content is written last.
    writing: Arc<Mutex<()>>,
    /// Whether no process of the last worker is left; otherwise the ballots prove nothing.
    pub(super) is_gone: bool,
}

/// What the file has.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    /// Where the worker ran. That nothing of it is left here proves nothing if the disk was another machine's: it may run on there.
    machine: Option<String>,
    /// By the path of the member's znode.
    ballots: BTreeMap<String, String>,
}

/// The id of this machine; of this boot where it has none, as in many containers.
fn machine() -> Option<String> {
    let read =
        |path| fs::read_to_string(path).ok().map(|id| id.trim().to_owned()).filter(|id| id.len() >= 32);
    read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/random/boot_id"))
}

impl Memory {
    /// The memory beside the lock, which also protects the file from other writers. An unreadable file counts as empty:
    /// that costs time, not safety.
    pub(super) fn beside(lock: &Path, is_gone: bool) -> Self {
        let path = lock.with_extension("ballots.json");
        let machine = machine();
        let last = own_file::read_own(&path).ok().and_then(|data| serde_json::from_slice(&data).ok());
        let last = last.filter(|last: &Remembered| machine.is_some() && last.machine == machine);
        let last = last.unwrap_or(Remembered { machine, ballots: BTreeMap::new() });
        Self { path, last: Arc::new(Mutex::new(last)), writing: Arc::default(), is_gone }
    }

    /// Whether the last worker of this directory made the record at `znode`, and no process of it is left.
    pub(super) fn made(&self, znode: &str, data: &[u8]) -> bool {
        MemberRecord::decode(znode, data).is_ok_and(|record| self.holds(znode, &record.ballot))
    }

    /// Whether that was the last ballot of this directory's worker, and no process of it is left.
    pub(super) fn holds(&self, znode: &str, ballot: &Ballot) -> bool {
        let last = self.last.lock();
        self.is_gone && last.ballots.get(znode).is_some_and(|known| known == ballot.as_str())
    }

    /// The last ballot of this directory's worker for the member's znode, if no process of that worker is left.
    pub(super) fn proved(&self, znode: &str) -> Option<String> {
        let last = self.last.lock();
        last.ballots.get(znode).filter(|_| self.is_gone).cloned()
    }

    /// Saves each ballot that this worker gets for the member's znode.
    pub(super) async fn keep(self, znode: String, mut status: watch::Receiver<ElectionStatus>) {
        let mut last = None;
        loop {
            let ballot = status.borrow_and_update().ballot.clone();
            if let Some(ballot) = ballot.filter(|b| last.as_ref() != Some(b)) {
                let (memory, of, is) = (self.clone(), znode.clone(), ballot.clone());
                // A disk that hangs must not hold up a thread of the runtime.
                let saved = spawn_blocking(move || memory.remember(&of, is.as_str())).await;
                if let Err(error) = saved.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    let path = self.path.display();
                    tracing::warn!(%path, %error, "can't save the ballot; after a crash this worker waits one session timeout");
                }
                last = Some(ballot);
            }
            if status.changed().await.is_err() {
                return;
            }
        }
    }

    fn remember(&self, znode: &str, ballot: &str) -> io::Result<()> {
        let _only = self.writing.lock();
        let content = {
            let mut last = self.last.lock();
            last.ballots.insert(znode.to_owned(), ballot.to_owned());
            serde_json::to_vec(&*last)?
        };
        own_file::replace(&self.path, &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ballot: &str) -> Vec<u8> {
        format!(r#"{{"v":1,"member":"east-1","site":"east","ballot":"{ballot}"}}"#).into_bytes()
    }

    #[test]
    fn only_what_this_directory_made_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("east-1.dc.lock");
        let znode = "/dr/orders/nodes/east-1";
        let memory = Memory::beside(&lock, true);
        assert!(!memory.made(znode, &record("a-0000000001")));
        memory.remember(znode, "a-0000000001").unwrap();
        let after_crash = Memory::beside(&lock, true);
        assert_eq!(after_crash.proved(znode).as_deref(), Some("a-0000000001"));
        assert_eq!(Memory::beside(&lock, false).proved(znode), None, "its job may live");
        assert!(after_crash.made(znode, &record("a-0000000001")));
        assert!(!after_crash.made(znode, &record("b-0000000001")));
        assert!(!after_crash.made("/dr/bills/nodes/east-1", &record("a-0000000001")));
        assert!(!after_crash.made(znode, b"garbage"));
        assert!(!Memory::beside(&lock, false).made(znode, &record("a-0000000001")), "its job may live");
        let file = lock.with_extension("ballots.json");
        let mut of_another: Remembered = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        of_another.machine = Some("another".to_owned());
        fs::write(&file, serde_json::to_vec(&of_another).unwrap()).unwrap();
        assert!(
            !Memory::beside(&lock, true).made(znode, &record("a-0000000001")),
            "the disk was another machine's"
        );
    }

    #[test]
    fn a_broken_memory_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("m.lock");
        fs::write(lock.with_extension("ballots.json"), "{").unwrap();
        assert!(!Memory::beside(&lock, true).made("/x", &record("a-0000000001")));
    }
}
