//! The names of a queue's znodes, and their order: each format has its own rule, since all candidates in one queue
//! must agree.
//!
//! A session is no identity: members of one election can share one, as Curator's and kazoo's latches do. So the name of an
//! ephemeral sequential znode contains the session, the member's fingerprint, the number of its incarnation in its process,
//! and the attempt. A leader znode has that name in its record, or is known by its czxid. An engine adopts and deletes no
//! other znode, even if its session owns it. What one process hands over, one engine of the next continues.

use super::QueueFormat;
use crate::{
    ids::{Ballot, MemberId},
    paths::Paths,
};

/// The text before the number in a name of Curator's `LeaderLatch`.
const LATCH: &str = "latch-";
/// The text before the number in a name of kazoo's `Lock`, and so of its `Election`.
const LOCK: &str = "__lock__";

/// One incarnation of a member, on one session. The session alone does not distinguish it: other members of the election
/// can share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incarnation {
    pub(crate) session: i64,
    /// The fingerprint of the member's id.
    pub(crate) member: u32,
    /// No other engine of this session has the same.
    pub(crate) number: u32,
}

impl Incarnation {
    /// The name of an attempt whose znode has a fixed name.
    pub(crate) fn ballot(self, attempt: u32) -> Option<Ballot> {
        Ballot::new(format!("{}{:010}", QueueFormat::Native.stem(self, attempt), 0)).ok()
    }

    /// Whether this incarnation has drawn the ballot, on this or another session.
    pub(crate) fn has_drawn(self, ballot: &Ballot) -> bool {
        let Self { member, number, .. } = self;
        ballot.as_str().get(17..).is_some_and(|rest| rest.starts_with(&format!(".{member:08x}{number:08x}.")))
    }

    /// Whether this is the name of a znode of the same member in a queue, by the fingerprint of its id. Other formats have
    /// none.
    pub(crate) fn may_be_same_member(self, name: &str) -> bool {
        name.get(17..).is_some_and(|rest| rest.starts_with(&format!(".{:08x}", self.member)))
    }
}

/// The fingerprint of a member's id in names (FNV-1a).
pub(crate) fn fingerprint(member: &MemberId) -> u32 {
    member.as_str().bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl QueueFormat {
    /// The znode whose children are the queue.
    pub(crate) fn parent(self, paths: &Paths) -> String {
        match self {
            Self::Native => paths.queue(),
            Self::LeaderLatch | Self::KazooElection => paths.base().to_owned(),
        }
    }

    /// The text to which ZooKeeper appends its number, for the `attempt`-th znode of an incarnation. Each attempt has
    /// another one, so that a lost reply for one attempt is never mistaken for another's.
    pub(crate) fn stem(self, of: Incarnation, attempt: u32) -> String {
        let own = self.incarnation_stem(of);
        match self {
            Self::Native => format!("{own}{attempt}-"),
            Self::LeaderLatch => format!("{own}{attempt:08x}-{LATCH}"),
            Self::KazooElection => format!("{own}{attempt:08x}{LOCK}"),
        }
    }

    /// The prefix of the names of all znodes of an incarnation.
    pub(crate) fn incarnation_stem(self, of: Incarnation) -> String {
        let Incarnation { session, member, number } = of;
        let id = format!("{session:016x}{number:08x}");
        match self {
            Self::Native => format!("s{session:016x}.{member:08x}{number:08x}."),
            Self::LeaderLatch => {
                format!("_c_{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
            }
            Self::KazooElection => id,
        }
    }

    /// The names that are in the queue, the first one first.
    pub fn order(self, names: &[String]) -> Vec<&str> {
        match self {
            Self::Native => sorted(names, |name| Ballot::new(name).ok()),
            // Curator counts every child, and compares the text after the last "latch-".
            Self::LeaderLatch => {
                sorted(names, |name| Some(name.rfind(LATCH).map_or(name, |at| &name[at + LATCH.len()..])))
            }
            // kazoo leaves out names that do not end like a lock, and compares the numbers as text.
            Self::KazooElection => sorted(names, lock_number),
        }
    }
}

/// The names that have a key, in the order of their keys.
fn sorted<'n, K: Ord>(names: &'n [String], key: impl Fn(&'n str) -> Option<K>) -> Vec<&'n str> {
    let mut keyed: Vec<_> = names.iter().filter_map(|name| Some((key(name)?, name.as_str()))).collect();
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    keyed.into_iter().map(|(_, name)| name).collect()
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

    const SOME: Incarnation =
        Incarnation { session: 0x0123_4567_89ab_cdef, member: 0xfeed_beef, number: 0xcafe_0001 };

    #[test]
    fn a_name_is_in_its_queue_and_known_as_the_incarnations() {
        let others = [
            Incarnation { session: SOME.session + 1, ..SOME },
            Incarnation { number: SOME.number + 1, ..SOME },
        ];
        for format in ALL {
            let name = format!("{}0000000007", format.stem(SOME, 3));
            assert_eq!(order(format, &[&name]), [name.as_str()], "{format:?}");
            assert!(name.starts_with(&format.incarnation_stem(SOME)), "{name}");
            for other in others {
                assert!(!name.starts_with(&format.incarnation_stem(other)), "{name}");
            }
            assert_eq!(Ballot::new(name.clone()).unwrap().sequence(), 7, "{name}");
        }
    }

    #[test]
    fn a_ballot_names_its_member_and_its_incarnation() {
        let ballot = SOME.ballot(3).unwrap();
        assert_eq!(ballot.as_str(), "s0123456789abcdef.feedbeefcafe0001.3-0000000000");
        let [elsewhere, anew] =
            [Incarnation { session: 7, ..SOME }, Incarnation { number: SOME.number + 1, ..SOME }];
        assert!(SOME.has_drawn(&ballot) && elsewhere.has_drawn(&ballot) && !anew.has_drawn(&ballot));
        assert!(anew.may_be_same_member(ballot.as_str()));
        let other = Incarnation { member: SOME.member + 1, ..SOME };
        assert!(!other.may_be_same_member(ballot.as_str()) && !other.has_drawn(&ballot));
        let [east, west] = ["east-1", "west-1"].map(|id| fingerprint(&MemberId::new(id).unwrap()));
        assert_ne!(east, west);
    }

    #[test]
    fn a_latch_is_named_as_curator_names_it() {
        let stem = QueueFormat::LeaderLatch.stem(SOME, 2);
        assert_eq!(stem, "_c_01234567-89ab-cdef-cafe-000100000002-latch-");
    }

    #[test]
    fn a_lock_is_named_as_kazoo_names_it() {
        let stem = QueueFormat::KazooElection.stem(SOME, 2);
        assert_eq!(stem, "0123456789abcdefcafe000100000002__lock__");
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
