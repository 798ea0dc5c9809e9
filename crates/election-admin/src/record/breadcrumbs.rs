use election_core::{
    config::{MemberId, SiteId},
    internals::{
        record::{Record, VERSION, is_default, limits},
        text,
    },
    status::Ballot,
};
use serde::{Deserialize, Serialize};

/// The leaderships whose work has begun and is not known to have ended, in `breadcrumbs`. A leader adds itself before its
/// work begins, and removes itself when all of it has ended. So what a leader leaves that vanishes is still here when
/// another one takes over, who has the former leader fenced and removes it. Only applications that fence write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Breadcrumbs {
    /// Format version.
    pub v: u32,
    /// At most one of each member and slot: who is fenced, is fenced with all earlier work.
    #[serde(default)]
    pub leaderships: Vec<Breadcrumb>,
}

/// A leadership whose work may still run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Breadcrumb {
    /// The leader.
    pub member: MemberId,
    /// Its incarnation, if the recipe shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ballot: Option<Ballot>,
    /// Its site.
    pub site: SiteId,
    /// The address at which others reach its node.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    pub address: Option<String>,
    /// The slot that it led.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::slot")]
    pub slot: usize,
    /// The term.
    #[serde(with = "limits::term")]
    pub term: u64,
    /// The fencing token, which identifies the leadership.
    #[serde(with = "limits::token")]
    pub fencing_token: u64,
    /// When its work began, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub since_ms: u64,
}

impl Record for Breadcrumbs {
    const MENDED_BY: &str = "confirm that all former leaders are off, which replaces it";

    fn version(&self) -> u32 {
        self.v
    }
}

impl Default for Breadcrumbs {
    fn default() -> Self {
        Self { v: VERSION, leaderships: Vec::new() }
    }
}

impl Breadcrumbs {
    /// The former leaders of `slot` that must be fenced before `me` begins its work there, oldest first.
    ///
    /// A member is never fenced by itself. What it has left behind has ended: its earlier work in this process, because
    /// it begins nothing before that has ended, and that of an earlier process, because it has proved so at its start.
    pub fn to_fence<'a>(&'a self, slot: usize, me: &'a MemberId) -> impl Iterator<Item = &'a Breadcrumb> {
        self.leaderships.iter().filter(move |left| left.slot == slot && left.member != *me)
    }

    /// The work of this leadership is about to begin. What the same member has left in any slot has ended.
    pub fn enter(&mut self, leadership: Breadcrumb) {
        self.leaderships.retain(|left| left.member != leadership.member);
        self.leaderships.push(leadership);
    }

    /// The work of this leadership has ended, or its leader was fenced.
    pub fn remove(&mut self, member: &MemberId, fencing_token: u64) {
        self.leaderships.retain(|left| left.member != *member || left.fencing_token != fencing_token);
    }

    /// The work of these leaderships has ended. Returns those that were still here.
    pub(crate) fn take(&mut self, ended: &[Breadcrumb]) -> Vec<Breadcrumb> {
        let has_ended = |left: &mut Breadcrumb| {
            ended.iter().any(|e| (&e.member, e.fencing_token) == (&left.member, left.fencing_token))
        };
        self.leaderships.extract_if(.., has_ended).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(member: &str, slot: usize, fencing_token: u64) -> Breadcrumb {
        Breadcrumb {
            member: member.parse().unwrap(),
            ballot: None,
            site: "east".parse().unwrap(),
            address: None,
            slot,
            term: fencing_token,
            fencing_token,
            since_ms: 0,
        }
    }

    fn to_fence(breadcrumbs: &Breadcrumbs, slot: usize, me: &str) -> Vec<(String, u64)> {
        let me = me.parse().unwrap();
        breadcrumbs.to_fence(slot, &me).map(|left| (left.member.to_string(), left.fencing_token)).collect()
    }

    #[test]
    fn who_was_not_fenced_stays_until_it_is() {
        let mut left = Breadcrumbs::default();
        left.enter(led("a", 0, 1));
        // b does not fence a: its configuration takes the risk. Then b vanishes as well.
        left.enter(led("b", 0, 2));
        let both = [("a".to_owned(), 1), ("b".to_owned(), 2)];
        assert_eq!(to_fence(&left, 0, "c"), both);
        left.remove(&"a".parse().unwrap(), 1);
        assert_eq!(to_fence(&left, 0, "c"), both[1..]);
        // A late answer about an earlier leadership of b.
        left.remove(&"b".parse().unwrap(), 1);
        assert_eq!(to_fence(&left, 0, "c"), both[1..]);
        assert_eq!(to_fence(&left, 1, "c"), []);
        // It is back, and leads: what it had left has ended.
        left.enter(led("b", 0, 3));
        left.remove(&"b".parse().unwrap(), 3);
        assert_eq!(left, Breadcrumbs::default());
    }

    #[test]
    fn nothing_is_taken_that_was_entered_later() {
        let mut left = Breadcrumbs::default();
        left.enter(led("a", 0, 1));
        left.enter(led("b", 0, 2));
        let confirmed = left.leaderships.clone();
        left.enter(led("b", 0, 3));
        left.enter(led("c", 0, 4));
        assert_eq!(left.take(&confirmed), [led("a", 0, 1)]);
        assert_eq!(left.leaderships, [led("b", 0, 3), led("c", 0, 4)]);
    }

    /// Whatever happens, everyone whose work began, and neither ended nor was fenced, is fenced by the next leader.
    #[test]
    fn no_one_is_forgotten_and_no_one_fenced_without_need() {
        const MEMBERS: [&str; 3] = ["a", "b", "c"];
        for seed in 0..2000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut left = Breadcrumbs::default();
            // By slot: the leader; and all members whose work may run there.
            let (mut leader, mut works) = ([None::<usize>; 2], [[None::<u64>; 3]; 2]);
            for token in 1..60 {
                let (slot, me) = (rng.usize(..2), rng.usize(..3));
                match leader[slot] {
                    // The leader leaves cleanly, or vanishes.
                    Some(former) => {
                        leader[slot] = None;
                        if rng.bool()
                            && let Some(token) = works[slot][former].take()
                        {
                            left.remove(&MEMBERS[former].parse().unwrap(), token);
                        }
                    }
                    None if leader.contains(&Some(me)) => {}
                    None => {
                        let others = (0..3).filter(|m| *m != me);
                        let others = others.filter_map(|m| Some((MEMBERS[m].to_owned(), works[slot][m]?)));
                        let expected: Vec<_> = others.collect();
                        let mut found = to_fence(&left, slot, MEMBERS[me]);
                        found.sort();
                        assert_eq!(found, expected, "seed {seed}, token {token}");
                        // Some are fenced; it takes over in any case, or not.
                        for (member, token) in found {
                            if rng.bool() {
                                left.remove(&member.parse().unwrap(), token);
                                let at = MEMBERS.iter().position(|m| *m == member).unwrap();
                                works[slot][at] = None;
                            }
                        }
                        if rng.u8(..4) > 0 {
                            // What it had left has ended.
                            works.iter_mut().for_each(|slot| slot[me] = None);
                            left.enter(led(MEMBERS[me], slot, token));
                            works[slot][me] = Some(token);
                            leader[slot] = Some(me);
                        }
                    }
                }
                let unique: std::collections::BTreeSet<_> =
                    left.leaderships.iter().map(|l| (&l.member, l.slot)).collect();
                assert_eq!(unique.len(), left.leaderships.len(), "seed {seed}");
            }
        }
    }
}
