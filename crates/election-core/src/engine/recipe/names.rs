//! The names of a queue's znodes, and their order: each format has its own rule, since all candidates in one queue
//! must agree.

use super::QueueFormat;
use crate::{ids::Ballot, paths::Paths};

/// The text before the number in a name of Curator's `LeaderLatch`.
const LATCH: &str = "latch-";
/// The text before the number in a name of kazoo's `Lock`, and so of its `Election`.
const LOCK: &str = "__lock__";

impl Ballot {
    /// The name of an incarnation whose leader znode has a fixed name: made from its session.
    pub(crate) fn of_session(session: i64) -> Option<Self> {
        Self::new(format!("s{session:016x}-{:010}", 0)).ok()
    }
}

impl QueueFormat {
    /// The znode whose children are the queue.
    pub(crate) fn parent(self, paths: &Paths) -> String {
        match self {
            Self::Native => paths.queue(),
            Self::LeaderLatch | Self::KazooElection => paths.base().to_owned(),
        }
    }

    /// The text to which ZooKeeper appends its number, for the `attempt`-th znode of a session. Each attempt has
    /// another one, so that a lost reply for one attempt is never mistaken for another's.
    pub(in crate::engine) fn stem(self, session: i64, attempt: u32) -> String {
        let guid = format!("{session:016x}{attempt:016x}");
        match self {
            Self::Native => format!("{}{attempt}-", self.session_stem(session)),
            Self::LeaderLatch => format!(
                "_c_{}-{}-{}-{}-{}-{LATCH}",
                &guid[..8],
                &guid[8..12],
                &guid[12..16],
                &guid[16..20],
                &guid[20..]
            ),
            Self::KazooElection => format!("{guid}{LOCK}"),
        }
    }

    /// The prefix of the names of all znodes of a session.
    pub(in crate::engine) fn session_stem(self, session: i64) -> String {
        let id = format!("{session:016x}");
        match self {
            Self::Native => format!("s{id}."),
            Self::LeaderLatch => format!("_c_{}-{}-{}-", &id[..8], &id[8..12], &id[12..]),
            Self::KazooElection => id,
        }
    }

    /// The names that are in the queue, the first one first.
    pub(crate) fn order(self, names: &[String]) -> Vec<&str> {
        let names = names.iter().map(String::as_str);
        match self {
            Self::Native => {
                let mut ballots: Vec<_> =
                    names.filter_map(|name| Some((Ballot::new(name).ok()?, name))).collect();
                ballots.sort_by(|(a, _), (b, _)| a.cmp(b));
                ballots.into_iter().map(|(_, name)| name).collect()
            }
            // Curator counts every child, and compares the text after the last "latch-".
            Self::LeaderLatch => {
                let mut all: Vec<_> = names.collect();
                all.sort_by_key(|name| name.rfind(LATCH).map_or(*name, |at| &name[at + LATCH.len()..]));
                all
            }
            // kazoo leaves out names that do not end like a lock, and compares the numbers as text.
            Self::KazooElection => {
                let mut locks: Vec<_> = names.filter_map(|name| Some((lock_number(name)?, name))).collect();
                locks.sort_by_key(|(number, _)| *number);
                locks.into_iter().map(|(_, name)| name).collect()
            }
        }
    }
}

/// The number of a kazoo lock: ten digits, and a sign once the counter has wrapped.
fn lock_number(name: &str) -> Option<&str> {
    let number = &name[name.rfind(LOCK)? + LOCK.len()..];
    let digits = number.strip_prefix('-').unwrap_or(number);
    (digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [QueueFormat; 3] = [QueueFormat::Native, QueueFormat::LeaderLatch, QueueFormat::KazooElection];

    fn order(format: QueueFormat, names: &[&str]) -> Vec<String> {
        let names: Vec<_> = names.iter().map(|n| (*n).to_owned()).collect();
        format.order(&names).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_own_name_stands_in_its_own_queue_and_is_known_as_the_sessions() {
        for format in ALL {
            let name = format!("{}0000000007", format.stem(0x1000_0000_0000_00ab, 3));
            assert_eq!(order(format, &[&name]), [name.as_str()], "{format:?}");
            assert!(name.starts_with(&format.session_stem(0x1000_0000_0000_00ab)), "{name}");
            assert!(!name.starts_with(&format.session_stem(0x1000_0000_0000_00ac)), "{name}");
            assert_eq!(Ballot::new(name.clone()).unwrap().sequence(), 7, "{name}");
        }
    }

    #[test]
    fn a_latch_is_named_as_curator_names_it() {
        let stem = QueueFormat::LeaderLatch.stem(0x0123_4567_89ab_cdef, 2);
        assert_eq!(stem, "_c_01234567-89ab-cdef-0000-000000000002-latch-");
    }

    #[test]
    fn a_lock_is_named_as_kazoo_names_it() {
        let stem = QueueFormat::KazooElection.stem(0x0123_4567_89ab_cdef, 2);
        assert_eq!(stem, "0123456789abcdef0000000000000002__lock__");
    }

    #[test]
    fn guids_do_not_decide() {
        let latches = ["_c_f-latch-0000000002", "_c_a-latch-0000000010", "_c_c-latch-0000000001"];
        assert_eq!(order(QueueFormat::LeaderLatch, &latches), [latches[2], latches[0], latches[1]]);
        let locks = ["f__lock__0000000002", "a__lock__0000000010", "c__lock__0000000001"];
        assert_eq!(order(QueueFormat::KazooElection, &locks), [locks[2], locks[0], locks[1]]);
    }

    #[test]
    fn curator_counts_every_child_and_kazoo_only_locks() {
        let with_stranger = ["_c_a-latch-0000000003", "0-oops"];
        assert_eq!(order(QueueFormat::LeaderLatch, &with_stranger), ["0-oops", "_c_a-latch-0000000003"]);
        let names = ["a__lock__0000000003", "0-oops", "b__rlock__0000000001", "c__lock__12"];
        assert_eq!(order(QueueFormat::KazooElection, &names), ["a__lock__0000000003"]);
    }
}
