use std::collections::BTreeMap;

use election_core::{
    config::{MemberId, SiteId},
    internals::record::{Record, VERSION, limits},
};
use serde::{Deserialize, Serialize};

/// The members that take part, and those that have left or were lost within the last day, in `roster`. It is for operators:
/// no decision uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Roster {
    /// Format version.
    pub v: u32,
    /// The members by id: at most 128, the absent ones first.
    #[serde(default)]
    pub members: BTreeMap<MemberId, Listed>,
}

/// A member of the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its site.
    pub site: SiteId,
    /// Its absence, if it does not take part. It does not count while the member has a record in `nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absence>,
}

/// Since when a member is absent, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// When it stopped, by its own clock, or when the elector noticed its loss, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub since_ms: u64,
    /// Whether it stopped by itself. Otherwise its session has ended.
    #[serde(default)]
    pub stopped: bool,
}

/// A member of the last day that does not take part now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// Its id.
    pub member: MemberId,
    /// Its site.
    pub site: SiteId,
    /// Since when, in milliseconds since the Unix epoch; `None` until an elector has noticed it.
    pub since_ms: Option<u64>,
    /// Whether it stopped by itself. Otherwise it is not connected.
    pub stopped: bool,
}

impl Default for Roster {
    fn default() -> Self {
        Self { v: VERSION, members: BTreeMap::new() }
    }
}

impl Record for Roster {
    const MENDED_BY: &str = "the elector's worker writes it again";

    fn version(&self) -> u32 {
        self.v
    }
}

impl Roster {
    /// How long an absent member is listed, in milliseconds.
    const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

    /// How many members a record has room for.
    const MOST: usize = 128;

    /// The members that are listed and are not among those `present`.
    pub(crate) fn absent(&self, present: &[String], now_ms: u64) -> Vec<Absent> {
        let others = self.members.iter().filter(|(member, _)| !is_among(member, present));
        let recent = others.filter(|(_, listed)| listed.is_recent(now_ms));
        let absent = recent.map(|(member, Listed { site, absent })| Absent {
            member: member.clone(),
            site: site.clone(),
            since_ms: absent.map(|absent| absent.since_ms),
            stopped: absent.is_some_and(|absent| absent.stopped),
        });
        absent.collect()
    }

    /// Of those that are `present`, the ones whose site is not known, because they are new or have returned.
    pub(crate) fn newcomers(&self, present: &[String]) -> Vec<String> {
        let is_known = |name: &&String| {
            let listed = self.members.iter().find(|(member, _)| member.as_str() == name.as_str());
            listed.is_some_and(|(_, listed)| listed.absent.is_none())
        };
        present.iter().filter(|name| !is_known(name)).cloned().collect()
    }

    /// Lists the newcomers with their sites, and marks those as absent that are not `present` any more.
    pub(crate) fn update(
        &mut self,
        present: &[String],
        newcomers: impl IntoIterator<Item = (MemberId, SiteId)>,
        now_ms: u64,
    ) {
        for (member, site) in newcomers {
            self.members.insert(member, Listed { site, absent: None });
        }
        for (member, listed) in &mut self.members {
            if !is_among(member, present) {
                listed.absent.get_or_insert(Absence { since_ms: now_ms, stopped: false });
            }
        }
        self.trim(now_ms);
    }

    /// A member has stopped.
    pub(crate) fn sign_off(&mut self, member: MemberId, site: SiteId, now_ms: u64) {
        let absent = Some(Absence { since_ms: now_ms, stopped: true });
        self.members.insert(member, Listed { site, absent });
        self.trim(now_ms);
    }

    /// Forgets who has been absent for long, and what a record has no room for: half of it is for members that are present.
    fn trim(&mut self, now_ms: u64) {
        self.members.retain(|_, listed| listed.is_recent(now_ms));
        while self.members.len() > Self::MOST {
            let absent = self.members.iter().filter_map(|(member, listed)| Some((listed.absent?, member)));
            let surplus = match absent.clone().count() > Self::MOST / 2 {
                true => absent.min_by_key(|(absent, _)| absent.since_ms).map(|(_, member)| member),
                false => self.members.iter().rfind(|(_, listed)| listed.absent.is_none()).map(|(m, _)| m),
            };
            match surplus.cloned() {
                Some(surplus) => self.members.remove(&surplus),
                None => return,
            };
        }
    }
}

impl Listed {
    fn is_recent(&self, now_ms: u64) -> bool {
        self.absent.is_none_or(|absent| now_ms.saturating_sub(absent.since_ms) < Roster::KEPT_MS)
    }
}

fn is_among(member: &MemberId, present: &[String]) -> bool {
    present.iter().any(|name| name == member.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = Roster::KEPT_MS;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    fn looked(roster: &mut Roster, present: &[&str], now_ms: u64) {
        let present = names(present);
        let new = roster.newcomers(&present);
        let sites = new.iter().map(|name| (name.parse().unwrap(), "east".parse().unwrap()));
        roster.update(&present, sites, now_ms);
    }

    fn absent(roster: &Roster, present: &[&str], now_ms: u64) -> Vec<(String, Option<u64>, bool)> {
        let absent = roster.absent(&names(present), now_ms).into_iter();
        absent.map(|absent| (absent.member.to_string(), absent.since_ms, absent.stopped)).collect()
    }

    #[test]
    fn who_vanishes_is_absent_for_a_day_from_when_it_was_noticed() {
        let mut roster = Roster::default();
        looked(&mut roster, &["a", "b", "c"], 10);
        assert_eq!(absent(&roster, &["a", "b", "c"], 20), []);
        assert_eq!(absent(&roster, &["a", "c"], 20), [("b".to_owned(), None, false)], "not noticed yet");
        looked(&mut roster, &["a", "c"], 30);
        looked(&mut roster, &["a"], 40);
        let both = [("b".to_owned(), Some(30), false), ("c".to_owned(), Some(40), false)];
        assert_eq!(absent(&roster, &["a"], 50), both);
        assert_eq!(absent(&roster, &["a"], 35 + DAY), both[1..]);
        // Who has returned is not absent, and its next absence begins anew.
        looked(&mut roster, &["a", "b"], 60);
        assert_eq!(absent(&roster, &["a"], 70), [("b".to_owned(), None, false), both[1].clone()]);
        looked(&mut roster, &["a"], 60 + DAY);
        assert_eq!(absent(&roster, &["a"], 60 + DAY), [("b".to_owned(), Some(60 + DAY), false)]);
        assert_eq!(roster.members.len(), 2, "c is forgotten: {roster:?}");
    }

    #[test]
    fn who_stops_says_so_before_or_after_it_is_noticed() {
        let mut roster = Roster::default();
        looked(&mut roster, &["a", "b"], 10);
        roster.sign_off("b".parse().unwrap(), "east".parse().unwrap(), 20);
        looked(&mut roster, &["a"], 30);
        assert_eq!(absent(&roster, &["a"], 40), [("b".to_owned(), Some(20), true)]);
        looked(&mut roster, &["a", "b"], 50);
        looked(&mut roster, &["a"], 60);
        roster.sign_off("b".parse().unwrap(), "east".parse().unwrap(), 55);
        assert_eq!(absent(&roster, &["a"], 70), [("b".to_owned(), Some(55), true)]);
    }

    #[test]
    fn a_look_that_shows_nothing_new_changes_nothing_even_among_a_thousand_members() {
        let all: Vec<_> = (0..1000).map(|n| format!("{n:0>120}")).collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let mut roster = Roster::default();
        looked(&mut roster, &all, 10);
        let before = roster.clone();
        looked(&mut roster, &all, 20);
        assert_eq!(roster, before);
        // Half of those that are listed vanish, and more.
        looked(&mut roster, &all[100..], 30);
        assert_eq!(absent(&roster, &all[100..], 40).len(), Roster::MOST / 2);
        roster.encode("/roster").unwrap();
        let before = roster.clone();
        looked(&mut roster, &all[100..], 50);
        assert_eq!(roster, before);
    }
}
