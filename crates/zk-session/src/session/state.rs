//! The states of a session, as a state machine without I/O: events and times in, states out.
//!
//! ```text
//!              Connected                Silent, Suspended
//!   Inactive ------------> Active  <---------------------->  Paused
//!      ^                     |       Contact (a round trip      |
//!      |                     |       since the connection       |
//!      +---------------------+---------- is back) --------------+
//!        Expired, Dead, or the deadline passed
//!
//!   Close leads from each of them to Closed, which is final.
//! ```
//!
//! The **deadline** of a session is the sending of the last request that was answered, plus the granted timeout: after that
//! the servers may have expired it, whatever the driver reports.

use std::fmt;
use std::time::Duration;

use crate::error::InactiveReason;
use crate::node::Epoch;
use crate::time::BootTime;

/// The state of a session.
/// `Active` means that ZooKeeper answered a moment ago, not that the session is alive now: that is proved by a
/// [`Lease`](crate::Lease).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// Connected, and a quorum has answered over this connection.
    Active {
        /// Which session.
        epoch: Epoch,
    },
    /// The connection is lost, or ZooKeeper does not answer. The session may be alive, and may become active again. A session
    /// that moves to another server is paused until a quorum has answered there, for one round trip as a rule.
    Paused {
        /// Which session.
        epoch: Epoch,
        /// Since when.
        since: BootTime,
    },
    /// There is no session yet, or the last one is over. A new one is being made.
    Inactive {
        /// Why the last one ended.
        reason: InactiveReason,
    },
    /// Closed by this process, or the runtime on which it lived has ended. Final.
    Closed,
}

impl SessionState {
    /// The epoch of the session, if there is one.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Active { epoch } | Self::Paused { epoch, .. } => Some(*epoch),
            Self::Inactive { .. } | Self::Closed => None,
        }
    }

    /// Whether this is [`SessionState::Active`].
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active { .. })
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Active { .. } => "active",
            Self::Paused { .. } => "paused",
            Self::Inactive { .. } => "inactive",
            Self::Closed => "closed",
        })
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A new session was made, and a round trip sent at `contact` was answered on it.
    Connected { epoch: Epoch, granted: Duration, contact: BootTime },
    /// A request sent at `sent` was answered at `answered`.
    Contact { sent: BootTime, answered: BootTime },
    /// A heartbeat was not answered in time.
    Silent,
    /// The connection is lost.
    Suspended,
    /// The connection is back. The next contact shows whether the session is alive.
    Resumed,
    /// The session is over, by the server's answer or for a fault of the driver.
    Ended(InactiveReason),
    /// A new session was refused for the credentials.
    Refused { reason: String },
    /// Nothing but time has passed.
    Tick,
    /// This process closes the session.
    Close,
}

/// When a session is over for this process unless something is answered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    granted: Duration,
    /// When the last request that was answered was sent.
    contact: BootTime,
    /// When that answer came.
    answered: BootTime,
}

impl Deadline {
    pub(crate) fn new(granted: Duration, contact: BootTime) -> Self {
        Self { granted, contact, answered: contact }
    }

    pub(crate) fn at(&self) -> BootTime {
        self.contact + self.granted
    }

    pub(crate) fn has_passed(&self, now: BootTime) -> bool {
        now >= self.at()
    }

    /// A request sent at `sent` was answered at `answered`. An answer that comes past the deadline is too late.
    pub(crate) fn contact(&mut self, sent: BootTime, answered: BootTime) {
        if !self.has_passed(answered) {
            self.contact = self.contact.max(sent);
            self.answered = self.answered.max(answered);
        }
    }

    pub(crate) fn last_contact(&self) -> (BootTime, BootTime) {
        (self.contact, self.answered)
    }
}

#[derive(Debug)]
struct Living {
    deadline: Deadline,
    /// Since when the connection has been up; `None` while it is down. Only a contact later than this makes a paused
    /// session active: an answer may still arrive that was sent before.
    connected_since: Option<BootTime>,
}

/// The state, and what decides about the next one.
#[derive(Debug)]
pub(crate) struct Machine {
    state: SessionState,
    living: Option<Living>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { state: SessionState::Inactive { reason: InactiveReason::NotYetConnected }, living: None }
    }

    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// When the living session is over unless something is answered before.
    pub(crate) fn deadline(&self) -> Option<BootTime> {
        self.living.as_ref().map(|living| living.deadline.at())
    }

    /// Handles an event, and returns whether the state has changed.
    /// The deadline comes first: events that queued up while the process was frozen past it do not bring the session back,
    /// not even an answer to a request that was sent in time.
    pub(crate) fn handle(&mut self, now: BootTime, event: Event) -> bool {
        let before = self.state.clone();
        if let (Some(living), Event::Contact { sent, answered }) = (&mut self.living, &event) {
            living.deadline.contact(*sent, *answered);
        }
        if self.living.as_ref().is_some_and(|living| living.deadline.has_passed(now)) {
            self.end(InactiveReason::DeadlinePassed);
        }
        match event {
            Event::Connected { epoch, granted, contact } => {
                let deadline = Deadline::new(granted, contact);
                if self.state != SessionState::Closed && !deadline.has_passed(now) {
                    self.living = Some(Living { deadline, connected_since: Some(contact) });
                    self.state = SessionState::Active { epoch };
                }
            }
            Event::Contact { sent, .. } => self.resume(sent),
            Event::Silent => self.pause(now),
            Event::Suspended => {
                if let Some(living) = &mut self.living {
                    living.connected_since = None;
                }
                self.pause(now);
            }
            Event::Resumed => {
                if let Some(living) = &mut self.living {
                    living.connected_since = Some(now);
                }
            }
            Event::Ended(reason) => self.end(reason),
            Event::Refused { reason } => {
                if let SessionState::Inactive { reason: known } = &mut self.state {
                    *known = InactiveReason::AuthFailed { reason };
                }
            }
            Event::Tick => {}
            Event::Close => {
                self.living = None;
                self.state = SessionState::Closed;
            }
        }
        self.state != before
    }

    fn resume(&mut self, sent: BootTime) {
        if let (Some(living), SessionState::Paused { epoch, since }) = (&self.living, &self.state)
            && living.connected_since.is_some_and(|connected| sent >= connected)
            && sent >= *since
        {
            self.state = SessionState::Active { epoch: *epoch };
        }
    }

    fn pause(&mut self, now: BootTime) {
        if let SessionState::Active { epoch } = self.state {
            self.state = SessionState::Paused { epoch, since: now };
        }
    }

    fn end(&mut self, reason: InactiveReason) {
        if self.living.take().is_some() {
            self.state = SessionState::Inactive { reason };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANTED: Duration = Duration::from_secs(10);
    const EPOCH: Epoch = Epoch(3);

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    fn contact(sent: u64, answered: u64) -> Event {
        Event::Contact { sent: at(sent), answered: at(answered) }
    }

    fn active() -> Machine {
        let mut machine = Machine::new();
        assert!(machine.handle(at(1), Event::Connected { epoch: EPOCH, granted: GRANTED, contact: at(0) }));
        assert!(machine.state().is_active());
        machine
    }

    fn expired() -> Event {
        Event::Ended(InactiveReason::Expired)
    }

    fn inactive(reason: InactiveReason) -> SessionState {
        SessionState::Inactive { reason }
    }

    #[test]
    fn a_lost_connection_pauses_and_its_return_alone_does_not_resume() {
        let mut machine = active();
        assert!(machine.handle(at(100), Event::Suspended));
        assert_eq!(machine.state(), &SessionState::Paused { epoch: EPOCH, since: at(100) });
        assert!(!machine.handle(at(200), Event::Resumed));
        assert!(machine.handle(at(210), contact(205, 210)));
        assert_eq!(machine.state(), &SessionState::Active { epoch: EPOCH });
    }

    #[test]
    fn an_answer_from_before_the_cut_does_not_resume() {
        let mut machine = active();
        machine.handle(at(100), Event::Suspended);
        assert!(!machine.handle(at(101), contact(99, 101)));
        machine.handle(at(200), Event::Resumed);
        assert!(!machine.handle(at(201), contact(150, 201)));
    }

    #[test]
    fn silence_pauses_and_a_later_answer_resumes() {
        let mut machine = active();
        assert!(machine.handle(at(3000), Event::Silent));
        assert!(!machine.handle(at(3001), contact(1000, 3001)));
        assert!(machine.handle(at(3100), contact(3050, 3100)));
    }

    #[test]
    fn the_deadline_counts_from_the_sending_of_the_last_answered_request() {
        let mut machine = active();
        machine.handle(at(4000), contact(2000, 4000));
        assert_eq!(machine.deadline(), Some(at(12_000)));
        assert!(!machine.handle(at(11_999), Event::Tick));
        assert!(machine.handle(at(12_000), Event::Tick));
        assert_eq!(machine.state(), &inactive(InactiveReason::DeadlinePassed));
        assert_eq!(machine.deadline(), None);
    }

    #[test]
    fn what_queued_up_while_frozen_does_not_bring_the_session_back() {
        for event in [Event::Resumed, Event::Suspended, Event::Silent, contact(9000, 20_000)] {
            let mut machine = active();
            assert!(machine.handle(at(20_000), event));
            assert_eq!(machine.state(), &inactive(InactiveReason::DeadlinePassed));
        }
    }

    #[test]
    fn an_answer_that_came_in_time_counts_even_if_it_is_told_late() {
        let mut machine = active();
        assert!(!machine.handle(at(10_500), contact(9000, 9001)));
        assert_eq!(machine.deadline(), Some(at(19_000)));
    }

    #[test]
    fn an_ended_session_stays_ended_and_keeps_its_first_reason() {
        let mut machine = active();
        assert!(machine.handle(at(5), expired()));
        let failed = Event::Ended(InactiveReason::DriverFailed { reason: "x".into() });
        for event in [Event::Resumed, contact(6, 6), failed, Event::Tick] {
            assert!(!machine.handle(at(7), event));
        }
        assert_eq!(machine.state(), &inactive(InactiveReason::Expired));
    }

    #[test]
    fn refused_credentials_are_the_reason_for_as_long_as_there_is_no_session() {
        let refused = || Event::Refused { reason: "z".into() };
        let mut machine = active();
        assert!(!machine.handle(at(4), refused()), "of no meaning for a living session");
        machine.handle(at(5), expired());
        assert!(machine.handle(at(6), refused()));
        assert_eq!(machine.state(), &inactive(InactiveReason::AuthFailed { reason: "z".into() }));
        assert!(!machine.handle(at(7), refused()), "told once");
        machine.handle(at(8), Event::Connected { epoch: Epoch(4), granted: GRANTED, contact: at(8) });
        assert!(machine.state().is_active());
        machine.handle(at(9), Event::Close);
        assert!(!machine.handle(at(10), refused()));
    }

    #[test]
    fn a_session_that_took_longer_to_make_than_it_lasts_is_none() {
        let mut machine = Machine::new();
        assert!(
            !machine.handle(at(10_000), Event::Connected { epoch: EPOCH, granted: GRANTED, contact: at(0) })
        );
        assert_eq!(machine.deadline(), None);
    }

    #[test]
    fn closed_is_final() {
        let mut machine = active();
        assert!(machine.handle(at(5), Event::Close));
        let connected = Event::Connected { epoch: Epoch(4), granted: GRANTED, contact: at(6) };
        for event in [connected, Event::Resumed, expired(), Event::Close] {
            assert!(!machine.handle(at(7), event));
        }
        assert_eq!(machine.state(), &SessionState::Closed);
    }
}
