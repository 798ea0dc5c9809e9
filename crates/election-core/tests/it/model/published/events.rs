//! What can happen to the published algorithm, and what can go wrong.

use super::system::{Does, Name, System, Way};

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Trouble {
    Crash,
    Freeze,
    /// The connection is lost; the reply to what was asked, too.
    Cut,
    /// Its program writes, and the write may be under way for long.
    Write,
    /// The takeover fails without a report.
    Fails,
    /// The other one is preferred from now on.
    Move,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    See(Name),
    Arrive(Name),
    Answer(Name),
    Stopped(Name),
    Write(Name),
    Link(Name),
    Thaw(Name),
    Start(Name),
    Expire(Name),
    /// The elector's watchdog.
    Timer(Name),
    Trouble(Trouble, Name),
}

impl Event {
    pub(super) const fn member(self) -> Name {
        match self {
            Self::See(m)
            | Self::Arrive(m)
            | Self::Answer(m)
            | Self::Stopped(m)
            | Self::Write(m)
            | Self::Link(m)
            | Self::Thaw(m)
            | Self::Start(m)
            | Self::Expire(m)
            | Self::Timer(m)
            | Self::Trouble(_, m) => m,
        }
    }
}

impl System {
    /// The possible events without a fault; timers last.
    pub(crate) fn next(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (m, member) in self.members.iter().enumerate() {
            let runs = member.up && !member.frozen;
            if member.writes.is_some() {
                events.push(Event::Write(m));
            }
            if member.frozen {
                events.push(Event::Thaw(m));
            }
            if matches!(member.op, Some((_, Way::Sent))) && (member.linked || member.frozen) {
                events.push(Event::Arrive(m));
            }
            if runs && member.linked && matches!(member.op, Some((_, way)) if way != Way::Sent) {
                events.push(Event::Answer(m));
            }
            if runs && member.does == Does::Stops && member.op.is_none() {
                events.push(Event::Stopped(m));
            }
            if runs && !(member.linked && self.lives(m)) {
                events.push(Event::Link(m));
            }
            if runs && member.linked && self.lives(m) && member.seen.as_ref() != Some(&self.view()) {
                events.push(Event::See(m));
            }
        }
        for m in 0..2 {
            let member = &self.members[m];
            let dead = !member.up || member.frozen || !member.linked;
            if dead && self.sessions.values().any(|of| *of == m) {
                events.push(Event::Expire(m));
            }
        }
        // A former process's session, independent of the new one.
        for (session, m) in &self.sessions {
            if self.members[*m].session != *session && !events.contains(&Event::Expire(*m)) {
                events.push(Event::Expire(*m));
            }
        }
        if events.is_empty()
            && let Some(named) = self.elected
            && let Some(elector) = (0..2).find(|m| self.is_elector(*m))
            && self.members[named].job.is_none()
            && self.sessions.values().any(|of| *of == named)
        {
            events.push(Event::Timer(elector));
        }
        events
    }

    /// The same, where the members take turns: what happens next if it is this one's.
    pub(super) fn next_in_turn(&self, turn: Name) -> Option<Event> {
        let events = self.next();
        events.iter().find(|event| event.member() == turn).or(events.first()).copied()
    }

    /// What can go wrong now.
    pub(crate) fn troubles(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for trouble in &self.troubles {
            for (m, member) in self.members.iter().enumerate() {
                let runs = member.up && !member.frozen;
                let can = match trouble {
                    Trouble::Crash | Trouble::Freeze => runs,
                    Trouble::Cut => runs && member.linked,
                    Trouble::Fails => runs && member.job.is_none() && !member.fails,
                    Trouble::Write => runs && member.job.is_some() && member.writes.is_none(),
                    Trouble::Move => m != self.preferred,
                };
                let event = Event::Trouble(*trouble, m);
                if can && !events.contains(&event) {
                    events.push(event);
                }
            }
        }
        for (m, member) in self.members.iter().enumerate() {
            if !member.up {
                events.push(Event::Start(m));
            }
        }
        events
    }
}
