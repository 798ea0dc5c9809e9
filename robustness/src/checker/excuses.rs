//! When something was broken, and what the documents do not promise then.

use std::collections::BTreeMap;

use crate::history::{Call, Event, Excuse, History};

/// How long a request is valid, in nanoseconds.
const VALID_FOR: u64 = 60_000_000_000;
/// A takeover follows within so many session timeouts.
const TAKEOVER_TIMEOUTS: u64 = 5;

/// A time in which something was broken. An operator's command is a moment.
#[derive(Clone, Debug)]
pub(super) struct Disturbance<'a> {
    pub(super) from: u64,
    /// `u64::MAX` if it was never repaired.
    pub(super) to: u64,
    pub(super) excuses: &'a [Excuse],
    /// The command of an operator.
    pub(super) verb: Option<&'a str>,
    /// The member that a fault hits.
    member: Option<&'a str>,
}

/// All faults and commands of operators.
pub(super) fn disturbances(history: &History) -> Vec<Disturbance<'_>> {
    let mut all: Vec<Disturbance<'_>> = Vec::new();
    let mut open = BTreeMap::new();
    for line in history.lines() {
        let from = line.at;
        match &line.event {
            Event::Fault { fault, member, excuses, .. } => {
                open.insert(*fault, all.len());
                let (to, member) = (u64::MAX, member.as_deref());
                all.push(Disturbance { from, to, excuses, verb: None, member });
            }
            Event::Healed { fault } => {
                if let Some(known) = open.remove(fault) {
                    all[known].to = line.at;
                }
            }
            Event::Invoke { call: Call::Operator { verb, excuses, .. }, .. } => {
                all.push(Disturbance { from, to: from, excuses, verb: Some(verb), member: None });
            }
            _ => {}
        }
    }
    all
}

/// When the machine itself did nothing.
pub(super) fn stalls(history: &History) -> Vec<(u64, u64)> {
    let stall = |event: &Event, at: u64| match event {
        Event::Stall { ms } => Some((at.saturating_sub(ms * 1_000_000), at)),
        _ => None,
    };
    history.lines().iter().filter_map(|line| stall(&line.event, line.at)).collect()
}

impl Disturbance<'_> {
    /// Whether it lasted at some time between these two.
    pub(super) fn is_within(&self, from: u64, to: u64) -> bool {
        self.from <= to && self.to >= from
    }

    pub(super) fn excuses(&self, excuse: Excuse) -> bool {
        self.excuses.contains(&excuse)
    }
}

/// When two may act for a moment.
pub(super) struct Overlaps<'a> {
    all: Vec<Disturbance<'a>>,
    /// The longest moment: a lease is shorter than the session timeout.
    moment: u64,
    /// How long before the successor begins the command was given.
    forced_within: u64,
}

impl<'a> Overlaps<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut all = disturbances(history);
        all.retain(|one| one.excuses(Excuse::Overlap));
        // Without a setup the session timeout is not known.
        let moment = history.setup().map_or(u64::MAX, |setup| setup.session_timeout_ms * 1_000_000);
        let forced_within = moment.saturating_mul(TAKEOVER_TIMEOUTS).saturating_add(VALID_FOR);
        Self { all, moment, forced_within }
    }

    /// Whether this member may have acted until `to`, although another one could act since `from`.
    pub(super) fn excuse(&self, member: &str, from: u64, to: u64) -> bool {
        self.all.iter().filter(|one| one.from <= from).any(|one| match one.verb {
            Some(_) => from - one.from <= self.forced_within && to.saturating_sub(from) <= self.moment,
            // It does not act while it is frozen, and then until its guard ends it.
            None => one.member.is_none_or(|hit| hit == member) && to <= one.to.saturating_add(self.moment),
        })
    }
}
