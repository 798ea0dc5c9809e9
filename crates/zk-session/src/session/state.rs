//! The states of a session, as a state machine without I/O: events and times in, states out.
//!
//! ```text
//!              Connected                 Silent, Lost
//!   Inactive ------------> Active  <---------------------->  Paused
//!      ^                     |       Contact (a round trip      |
//!      |                     |       since the connection       |
//!      +---------------------+---------- is back) --------------+
//!        Ended, or the deadline passed
//!
//!   Closed leads from each of them to the state of that name, which is final.
//! ```
//!
//! The **deadline** of a session is the sending of the last request that was answered, plus the granted timeout: after that
//! the servers may have expired it, whatever the driver reports.

use std::fmt;
use std::time::Duration;

use crate::driver::close::CloseOutcome;
use crate::error::InactiveReason;
use crate::lease::Lease;
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
    Connected { epoch: Epoch, granted: Duration, contact: BootTime, is_resumed: bool },
    /// A request sent at `sent` was answered at `answered`.
    Contact { sent: BootTime, answered: BootTime },
    /// A heartbeat was not answered in time.
    Silent { reason: String },
    /// The connection is lost.
    Lost { reason: String },
    /// The session has a connection again. The next contact shows whether it is alive.
    Ready,
    /// The session is over, by the server's answer or for a fault of the driver.
    Ended(InactiveReason),
    /// It is proved to be alive until then; or no lease is kept.
    Lease(Option<BootTime>),
    /// A new session was refused for the credentials.
    Refused { reason: String },
    /// Nothing but time has passed.
    Tick,
    /// This process begins to close the session: nothing begins on it any more.
    Closing,
    /// This process has closed the session.
    Closed(CloseOutcome),
}

/// A session that is not over.
#[derive(Debug, PartialEq, Eq)]
struct Living {
    granted: Duration,
    /// When the last request was sent that was answered in time.
    contact: BootTime,
    /// Since when the connection has been up; `None` while it is down. Only a contact later than this makes a paused
    /// session active: an answer may still arrive that was sent before.
    connected_since: Option<BootTime>,
    /// How often it has been paused.
    pauses: u64,
    lease: Option<BootTime>,
    is_closing: bool,
}

impl Living {
    /// When it is over for this process unless something is answered before.
    fn deadline(&self) -> BootTime {
        self.contact + self.granted
    }
}

/// The state, and what decides about the next one.
#[derive(Debug)]
pub(crate) struct Machine {
    state: SessionState,
    living: Option<Living>,
    /// What has made the session active or paused.
    cause: String,
    /// Once it was closed.
    outcome: Option<CloseOutcome>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let state = SessionState::Inactive { reason: InactiveReason::NotYetConnected };
        Self { state, living: None, cause: String::new(), outcome: None }
    }

    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// When the living session is over unless something is answered before.
    pub(crate) fn deadline(&self) -> Option<BootTime> {
        self.living.as_ref().map(Living::deadline)
    }

    /// How often that session has been paused, while it lives.
    pub(crate) fn pauses_of(&self, epoch: Epoch) -> u64 {
        let living = self.living.as_ref().filter(|_| self.state.epoch() == Some(epoch));
        living.map_or(0, |living| living.pauses)
    }

    /// Why it is in that state: a sentence for the log.
    pub(crate) fn cause(&self) -> String {
        match &self.state {
            SessionState::Active { .. } | SessionState::Paused { .. } => self.cause.clone(),
            SessionState::Inactive { reason } => reason.to_string(),
            SessionState::Closed => "closed by this process".to_owned(),
        }
    }

    pub(crate) fn outcome(&self) -> Option<CloseOutcome> {
        self.outcome
    }

    /// The session on which something may begin: one that is neither over nor being closed.
    pub(crate) fn usable(&self, now: BootTime) -> Option<Epoch> {
        let living = self.living.as_ref().filter(|living| !living.is_closing && now < living.deadline());
        living.and_then(|_| self.state.epoch())
    }

    /// The same, if requests may be sent now.
    pub(crate) fn open(&self, now: BootTime) -> Option<Epoch> {
        self.usable(now).filter(|_| self.state.is_active())
    }

    /// Of the living session, as long as it is not being closed.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let valid_until = self.living.as_ref().filter(|living| !living.is_closing)?.lease?;
        Some(Lease::new(self.state.epoch()?, valid_until))
    }

    /// Handles an event, and returns whether anything has changed but the deadline.
    /// The deadline comes first: events that queued up while the process was frozen past it do not bring the session back,
    /// not even an answer to a request that was sent in time.
    pub(crate) fn handle(&mut self, now: BootTime, event: Event) -> bool {
        let known = |machine: &Self| {
            (machine.state.clone(), machine.lease(), machine.living.as_ref().map(|living| living.is_closing))
        };
        let before = known(self);
        if let (Some(living), Event::Contact { sent, answered }) = (&mut self.living, &event)
            && *answered < living.deadline()
        {
            living.contact = living.contact.max(*sent);
        }
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.end(InactiveReason::DeadlinePassed);
        }
        match (event, &mut self.living) {
            (Event::Connected { epoch, granted, contact, is_resumed }, _)
                if self.state != SessionState::Closed && now < contact + granted =>
            {
                self.living = Some(Living {
                    granted,
                    contact,
                    connected_since: Some(contact),
                    pauses: 0,
                    lease: None,
                    is_closing: false,
                });
                self.state = SessionState::Active { epoch };
                let made = if is_resumed { "the session was resumed" } else { "a new session was made" };
                self.cause = made.to_owned();
            }
            (Event::Contact { sent, .. }, Some(living)) => {
                if let SessionState::Paused { epoch, since } = self.state
                    && living.connected_since.is_some_and(|connected| sent >= connected)
                    && sent >= since
                {
                    self.state = SessionState::Active { epoch };
                    self.cause = "ZooKeeper answers again".to_owned();
                }
            }
            (Event::Silent { reason }, _) => self.pause(now, format!("a heartbeat failed: {reason}")),
            (Event::Lost { reason }, Some(living)) => {
                living.connected_since = None;
                self.pause(now, format!("the connection was lost: {reason}"));
            }
            (Event::Ready, Some(living)) => living.connected_since = Some(now),
            (Event::Ended(reason), _) => self.end(reason),
            (Event::Lease(until), Some(living)) => living.lease = until,
            (Event::Closing, Some(living)) => living.is_closing = true,
            (Event::Refused { reason }, None) => {
                if let SessionState::Inactive { reason: known } = &mut self.state {
                    *known = InactiveReason::AuthFailed { reason };
                }
            }
            (Event::Closed(outcome), _) => {
                self.living = None;
                self.outcome.get_or_insert(outcome);
                self.state = SessionState::Closed;
            }
            _ => {}
        }
        known(self) != before
    }

    fn pause(&mut self, now: BootTime, cause: String) {
        if let (SessionState::Active { epoch }, Some(living)) = (&self.state, &mut self.living) {
            living.pauses += 1;
            self.state = SessionState::Paused { epoch: *epoch, since: now };
            self.cause = cause;
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

    fn connected(epoch: Epoch, contact: BootTime) -> Event {
        Event::Connected { epoch, granted: GRANTED, contact, is_resumed: false }
    }

    fn lost() -> Event {
        Event::Lost { reason: "reset".to_owned() }
    }

    fn silent() -> Event {
        Event::Silent { reason: "no answer".to_owned() }
    }

    fn active() -> Machine {
        let mut machine = Machine::new();
        assert!(machine.handle(at(1), connected(EPOCH, at(0))));
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
        assert!(machine.handle(at(100), lost()));
        assert_eq!(machine.state(), &SessionState::Paused { epoch: EPOCH, since: at(100) });
        assert!(!machine.handle(at(200), Event::Ready));
        assert!(machine.handle(at(210), contact(205, 210)));
        assert_eq!(machine.state(), &SessionState::Active { epoch: EPOCH });
    }

    #[test]
    fn an_answer_from_before_the_cut_does_not_resume() {
        let mut machine = active();
        machine.handle(at(100), lost());
        assert!(!machine.handle(at(101), contact(99, 101)));
        machine.handle(at(200), Event::Ready);
        assert!(!machine.handle(at(201), contact(150, 201)));
    }

    #[test]
    fn silence_pauses_and_a_later_answer_resumes() {
        let mut machine = active();
        assert!(machine.handle(at(3000), silent()));
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
        for event in [Event::Ready, lost(), silent(), contact(9000, 20_000)] {
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
        for event in [Event::Ready, contact(6, 6), failed, Event::Tick] {
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
        machine.handle(at(8), connected(Epoch(4), at(8)));
        assert!(machine.state().is_active());
        machine.handle(at(9), Event::Closed(CloseOutcome::Acknowledged));
        assert!(!machine.handle(at(10), refused()));
    }

    #[test]
    fn a_session_that_took_longer_to_make_than_it_lasts_is_none() {
        let mut machine = Machine::new();
        assert!(!machine.handle(at(10_000), connected(EPOCH, at(0))));
        assert_eq!(machine.deadline(), None);
    }

    #[test]
    fn closed_is_final() {
        let mut machine = active();
        assert!(machine.handle(at(5), Event::Closed(CloseOutcome::Acknowledged)));
        let connected = connected(Epoch(4), at(6));
        for event in [connected, Event::Ready, expired(), Event::Closed(CloseOutcome::Acknowledged)] {
            assert!(!machine.handle(at(7), event));
        }
        assert_eq!(machine.state(), &SessionState::Closed);
    }
}
