//! The published algorithm, unchanged: an elector that writes whom it elects when the membership changes, a leader that
//! stops when it is no longer elected, and a candidate that waits until the leader's znode is deleted and creates its
//! own.
//!
//! Two members, A and B. The one with the lowest ballot is the elector.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    events::{Event, Trouble},
    rules::Remedy,
};

pub(crate) type Name = usize;
pub(crate) const MEMBERS: [&str; 2] = ["A", "B"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) name: Name,
    session: u8,
    token: u8,
}

/// What a member has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    elected: Option<Name>,
    current: Option<Place>,
    members: BTreeMap<u8, Name>,
    preferred: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Create,
    Delete,
    Elect(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Sent,
    Created(u8),
    Exists,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Does {
    Nothing,
    Leads,
    Stops,
    Deletes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(super) linked: bool,
    fresh: bool,
    pub(super) fails: bool,
    pub(super) session: u8,
    pub(super) seen: Option<Seen>,
    passed: Option<(BTreeMap<u8, Name>, Name)>,
    pub(super) does: Does,
    pub(crate) op: Option<(Op, Way)>,
    /// The token that its program acts with.
    pub(crate) job: Option<u8>,
    /// A write is on its way to the resource.
    pub(super) writes: Option<u8>,
    /// In the elector's memory.
    excluded: BTreeSet<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct System {
    pub(crate) elected: Option<Name>,
    pub(crate) current: Option<Place>,
    pub(super) sessions: BTreeMap<u8, Name>,
    pub(super) preferred: Name,
    next: u8,
    pub(crate) members: [Member; 2],
    /// The highest token that the resource was shown; of a write; of a reader.
    shown: u8,
    written: u8,
    read_by: u8,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) broken: Option<&'static str>,
}

pub(crate) const AT_MOST_ONE: &str = "two programs act at once";
pub(crate) const OLD_WRITE: &str = "the resource takes an older leader's write after a newer one's";
pub(crate) const LATE_WRITE: &str = "the resource takes an older leader's write after a newer one has read";
pub(crate) const NOBODY: &str = "nobody leads, however long one waits";

impl System {
    pub(crate) fn new(preferred: Name, troubles: &[Trouble]) -> Self {
        let member = Member {
            up: false,
            frozen: false,
            linked: false,
            fresh: false,
            fails: false,
            session: 0,
            seen: None,
            passed: None,
            does: Does::Nothing,
            op: None,
            job: None,
            writes: None,
            excluded: BTreeSet::new(),
        };
        let mut system = Self {
            elected: None,
            current: None,
            sessions: BTreeMap::new(),
            preferred,
            next: 1,
            members: [member.clone(), member],
            shown: 0,
            written: 0,
            read_by: 0,
            troubles: troubles.to_vec(),
            broken: None,
        };
        system.begin(0);
        system.begin(1);
        system
    }

    fn draw(&mut self) -> u8 {
        self.next += 1;
        self.next
    }

    /// A process begins.
    fn begin(&mut self, m: Name) {
        let session = self.draw();
        self.sessions.insert(session, m);
        let member = &mut self.members[m];
        let job = member.job.take();
        *member = Member {
            up: true,
            linked: true,
            fresh: true,
            session,
            job,
            frozen: false,
            fails: false,
            seen: None,
            passed: None,
            does: Does::Nothing,
            op: None,
            writes: member.writes,
            excluded: BTreeSet::new(),
        };
    }

    pub(super) fn view(&self) -> Seen {
        Seen {
            elected: self.elected,
            current: self.current,
            members: self.sessions.clone(),
            preferred: self.preferred,
        }
    }

    pub(super) fn lives(&self, m: Name) -> bool {
        self.sessions.contains_key(&self.members[m].session)
    }

    pub(super) fn is_elector(&self, m: Name) -> bool {
        self.sessions.first_key_value().is_some_and(|(session, _)| *session == self.members[m].session)
    }

    pub(crate) fn take(&mut self, has: &dyn Fn(Remedy) -> bool, event: Event) {
        match event {
            Event::See(m) => {
                self.members[m].seen = Some(self.view());
                self.react(has, m);
            }
            Event::Arrive(m) => self.arrive(has, m),
            Event::Answer(m) => self.answer(has, m),
            Event::Stopped(m) => {
                let member = &mut self.members[m];
                member.job = None;
                member.does = Does::Deletes;
                member.op = Some((Op::Delete, Way::Sent));
            }
            Event::Write(m) => self.write(has, m),
            Event::Link(m) => self.link(has, m),
            Event::Thaw(m) => {
                self.members[m].frozen = false;
                if has(Remedy::DeadlineFirst) && !self.lives(m) {
                    self.kill(m);
                }
            }
            Event::Start(m) => self.begin(m),
            Event::Expire(m) => self.expire(has, m),
            Event::Timer(m) => self.watchdog(has, m),
            Event::Trouble(trouble, m) => self.trouble(has, trouble, m),
        }
        let acts = |m: &Member| m.job.is_some() && !m.frozen;
        if self.members.iter().all(acts) {
            self.broken = self.broken.or(Some(AT_MOST_ONE));
        }
    }

    fn kill(&mut self, m: Name) {
        let member = &mut self.members[m];
        (member.job, member.op, member.does) = (None, None, Does::Nothing);
    }

    /// What a member does about what it has read.
    fn react(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        let Some(seen) = self.members[m].seen.clone() else { return };
        let elects = seen.members.first_key_value().is_some_and(|(s, _)| *s == self.members[m].session);
        let member = &mut self.members[m];
        let fresh = std::mem::take(&mut member.fresh);
        if member.op.is_some() {
            return;
        }
        let me = seen.elected == Some(m);
        match member.does {
            Does::Leads if !me => member.does = Does::Stops,
            Does::Nothing if me => match seen.current {
                None => return member.op = Some((Op::Create, Way::Sent)),
                Some(place) if place.session == member.session && has(Remedy::Adopt) => {
                    return self.lead(has, m, place.token);
                }
                Some(place) if fresh && place.name == m && !has(Remedy::Incarnation) => {
                    return self.lead(has, m, place.token);
                }
                Some(_) => {}
            },
            // It leads, and stops when another member is elected.
            Does::Nothing if seen.current.is_some_and(|p| p.session == member.session) => {
                member.does = Does::Deletes;
                return member.op = Some((Op::Delete, Way::Sent));
            }
            _ => {}
        }
        if elects {
            self.elect(has, m, &seen);
        }
    }

    /// The elector's pass.
    fn elect(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name, seen: &Seen) {
        let pass = (seen.members.clone(), seen.preferred);
        let member = &mut self.members[m];
        let changed = member.passed.as_ref() != Some(&pass);
        member.passed = Some(pass);
        if !changed && !has(Remedy::LevelTriggered) {
            return;
        }
        let order = [seen.preferred, 1 - seen.preferred];
        let there = |n: &Name| seen.members.values().any(|of| of == n);
        let mut best = order.iter().find(|n| there(n) && !member.excluded.contains(n));
        if best.is_none() && has(Remedy::LastCandidate) {
            member.excluded.clear();
            best = order.iter().find(|n| there(n));
        }
        let compared = match has(Remedy::CompareWithDecision) {
            true => seen.elected,
            false => seen.current.map(|place| place.name),
        };
        if let Some(best) = best.filter(|best| compared != Some(**best)) {
            member.op = Some((Op::Elect(*best), Way::Sent));
        }
    }

    fn watchdog(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        let Some(named) = self.elected else { return };
        self.members[m].excluded.insert(named);
        self.members[named].fails = false;
        self.members[m].passed = None;
        let Some(seen) = self.members[m].seen.clone() else { return };
        if self.members[m].op.is_none() {
            self.elect(has, m, &seen);
        }
    }

    fn arrive(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        let session = self.members[m].session;
        let Some((op, Way::Sent)) = self.members[m].op else { return };
        if !self.sessions.contains_key(&session) {
            return self.members[m].op = None;
        }
        let way = match op {
            Op::Create if self.current.is_some() => Way::Exists,
            Op::Create => {
                let token = self.draw();
                self.current = Some(Place { name: m, session, token });
                Way::Created(token)
            }
            Op::Delete => {
                let own = self.current.is_some_and(|place| place.session == session);
                if own || !has(Remedy::OwnerDeletes) {
                    self.current = None;
                }
                Way::Done
            }
            Op::Elect(named) => {
                self.elected = Some(named);
                Way::Done
            }
        };
        self.members[m].op = Some((op, way));
    }

    fn answer(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        match self.members[m].op.take() {
            Some((Op::Create, Way::Created(token))) => self.lead(has, m, token),
            Some((Op::Delete, _)) => self.members[m].does = Does::Nothing,
            _ => {}
        }
        // It looks again at what has become of it.
        self.members[m].seen = None;
    }

    fn lead(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name, token: u8) {
        if self.members[m].fails {
            return;
        }
        if has(Remedy::Tokens) && token < self.shown {
            return;
        }
        let member = &mut self.members[m];
        member.does = Does::Leads;
        member.job = Some(token);
        member.writes = Some(token);
        if has(Remedy::Claim) {
            self.shown = self.shown.max(token);
        }
        self.read_by = self.read_by.max(token);
    }

    /// A write arrives at the resource.
    fn write(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        let Some(token) = self.members[m].writes.take() else { return };
        if has(Remedy::Tokens) && token < self.shown {
            return;
        }
        if token < self.written {
            self.broken = self.broken.or(Some(OLD_WRITE));
        } else if token < self.read_by {
            self.broken = self.broken.or(Some(LATE_WRITE));
        }
        self.shown = self.shown.max(token);
        self.written = self.written.max(token);
    }

    fn link(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        if self.lives(m) {
            self.members[m].linked = true;
            // What was under way is tried again; a pass is not.
            self.members[m].op = match self.members[m].op {
                Some((op @ (Op::Create | Op::Delete), _)) => Some((op, Way::Sent)),
                _ => None,
            };
            return self.react(has, m);
        }
        let session = self.draw();
        self.sessions.insert(session, m);
        let member = &mut self.members[m];
        (member.session, member.linked, member.seen, member.passed, member.op) =
            (session, true, None, None, None);
        if matches!(member.does, Does::Deletes) || (member.does == Does::Stops && member.job.is_none()) {
            member.does = Does::Nothing;
        }
    }

    fn expire(&mut self, has: &dyn Fn(Remedy) -> bool, m: Name) {
        let now = self.members[m].session;
        let of = |s: &(&u8, &Name)| *s.1 == m;
        let former = self.sessions.iter().find(|s| of(s) && *s.0 != now).map(|(s, _)| *s);
        let session = former.unwrap_or(now);
        let member = &self.members[m];
        let stopping = member.does == Does::Stops;
        let in_time = has(Remedy::Deadline) && (!stopping || has(Remedy::StopBudget));
        if session == now && member.up && !member.frozen && in_time {
            self.kill(m);
        }
        self.sessions.remove(&session);
        if self.current.is_some_and(|place| place.session == session) && has(Remedy::Ephemeral) {
            self.current = None;
        }
    }

    fn trouble(&mut self, has: &dyn Fn(Remedy) -> bool, trouble: Trouble, m: Name) {
        if let Some(at) = self.troubles.iter().position(|t| *t == trouble) {
            self.troubles.remove(at);
        }
        let member = &mut self.members[m];
        match trouble {
            Trouble::Crash => {
                (member.up, member.linked, member.op, member.does) = (false, false, None, Does::Nothing);
                if has(Remedy::Guard) {
                    member.job = None;
                }
            }
            Trouble::Freeze => member.frozen = true,
            Trouble::Cut => member.linked = false,
            Trouble::Write => member.writes = member.job,
            Trouble::Fails => member.fails = true,
            Trouble::Move => self.preferred = m,
        }
    }

    /// Whether there is a leader after all possible events have happened.
    pub(crate) fn ends_well(&self, has: &dyn Fn(Remedy) -> bool) -> bool {
        let path = self.when_nothing_goes_wrong(has, 300);
        let last = path.last().map_or(self, |(_, last)| last);
        last.next().is_empty() && (0..2).any(|m| last.members[m].job.is_some() && last.elected == Some(m))
    }

    /// What happens then, up to `most` events. The members take turns, so that none waits for ever.
    pub(crate) fn when_nothing_goes_wrong(
        &self,
        has: &dyn Fn(Remedy) -> bool,
        most: usize,
    ) -> Vec<(Event, Self)> {
        let mut calm = self.clone();
        let mut path = Vec::new();
        let mut turn = 0;
        while path.len() < most
            && let Some(event) = calm.next_in_turn(turn)
        {
            turn = 1 - event.member();
            calm.take(has, event);
            path.push((event, calm.clone()));
        }
        path
    }
}
