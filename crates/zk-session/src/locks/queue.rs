//! Who holds a lock, by the names of all contenders. Pure.

/// What a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// To hold it with other readers.
    Read,
    /// To hold it against all.
    Write,
}

impl Access {
    /// How its names begin.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "lock",
        }
    }
}

/// What is next for a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Its znode does not exist.
    Gone,
    /// It holds the lock.
    Holds,
    /// The end of any of these: until then it does not hold the lock.
    After(Vec<String>),
}

/// What is next for `own` among all, where `permits` hold it at a time.
pub(super) fn next(own: &str, all: &[String], access: Access, permits: usize) -> Next {
    let Some(number) = number(own).filter(|_| all.iter().any(|name| name == own)) else { return Next::Gone };
    let blocks = |name: &&String| access == Access::Write || name.starts_with(Access::Write.word());
    let before = all.iter().filter(blocks).filter_map(|name| Some((self::number(name)?, name)));
    let mut before: Vec<_> = before.filter(|(other, _)| *other < number).collect();
    before.sort_unstable();
    if before.len() < permits {
        return Next::Holds;
    }
    // The last one before it, or those that hold the lock.
    let ahead = if permits == 1 { &before[before.len() - 1..] } else { &before[..permits] };
    Next::After(ahead.iter().map(|(_, name)| (*name).clone()).collect())
}

/// The number at the end of a name.
fn number(name: &str) -> Option<u64> {
    name.rsplit('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_waits_for_the_last_one_before_it_that_blocks() {
        let all = names(&["lock-b-0000000002", "lock-a-0000000001", "other", "lock-c-0000000010"]);
        let after = |name: &str| Next::After(names(&[name]));
        assert_eq!(next("lock-a-0000000001", &all, Access::Write, 1), Next::Holds);
        assert_eq!(next("lock-c-0000000010", &all, Access::Write, 1), after("lock-b-0000000002"));
        assert_eq!(next("lock-d-0000000011", &all, Access::Write, 1), Next::Gone);
    }

    #[test]
    fn readers_pass_readers_and_wait_for_earlier_writers() {
        let all =
            names(&["read-a-0000000001", "read-b-0000000002", "lock-c-0000000003", "read-d-0000000004"]);
        assert_eq!(next("read-b-0000000002", &all, Access::Read, 1), Next::Holds);
        let after = |name: &str| Next::After(names(&[name]));
        assert_eq!(next("lock-c-0000000003", &all, Access::Write, 1), after("read-b-0000000002"));
        assert_eq!(next("read-d-0000000004", &all, Access::Read, 1), after("lock-c-0000000003"));
    }

    #[test]
    fn a_semaphore_admits_as_many_as_it_has_permits() {
        let all = names(&["lock-a-0000000001", "lock-b-0000000002", "lock-c-0000000003"]);
        assert_eq!(next("lock-b-0000000002", &all, Access::Write, 2), Next::Holds);
        let after = Next::After(names(&["lock-a-0000000001", "lock-b-0000000002"]));
        assert_eq!(next("lock-c-0000000003", &all, Access::Write, 2), after);
        assert_eq!(
            next("lock-d-0000000004", &[&all[..], &names(&["lock-d-0000000004"])].concat(), Access::Write, 2),
            after
        );
    }
}
