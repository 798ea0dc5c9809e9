//! The election as a state machine: events in, actions out.
//!
//! ```text
//!   session, lease ──┐                                   ┌──▶ znode operations, watches
//!   what was read  ──┤   handle(now, event)              ├──▶ prepare, take over, lead, stop
//!   outcomes       ──┼──▶   registration ─ elector ─ office ──┼──▶ until when the work may go on
//!   application    ──┤                                   └──▶ notes for the log
//!   time           ──┘              poll_action() until None
//! ```
//!
//! There is no clock, no randomness, no task and no lock in here: whoever runs
//! the engine says what happened and when, and carries out what it asks for. So
//! the code that runs in production is the code that a simulation runs.
//!
//! Three parts look at one [view](view::View) of the znodes:
//! [registration] stands in the election, the [elector] decides who should lead
//! while its ballot is the lowest, and the [office] is the leader's own side.
//! Each is level-triggered: after every event each one looks at the whole state
//! again and takes the next step, if none of its own is under way.
//!
//! Under a [recipe](Recipe) without an elector, the [contest] stands in the place of
//! the first two: it wins a znode, and hands that to the same office.
//!
//! Methods come in three kinds: [`Engine::handle`] puts something in,
//! [`Engine::poll_action`] takes out what should be done, and the rest only look.

mod acknowledge;
mod chronicle;
mod config;
mod contest;
mod deciding;
mod decision;
mod elector;
mod explain;
#[cfg(test)]
mod explain_tests;
mod fingerprint;
mod fitness;
mod handover;
mod io;
mod limit;
mod looking_on;
mod losses;
mod memory;
mod notebook;
mod office;
mod operator;
mod penalties;
mod phases;
mod policy;
mod reading;
mod recipe;
mod registration;
mod requests;
mod role;
mod rules;
mod session;
mod simulate;
mod sites;
mod standing;
mod succession;
mod suspicion;
mod tokens;
mod verification;
mod view;
mod watchdog;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use acknowledge::{Forgotten, Released, acknowledge};
pub use config::{Config, Profile};
pub use explain::{Bound, Explanation, Obstacle, Proposal, Seen, SlotExplanation, Step, explain};
pub use io::{
    Action, AppEvent, EndReason, Epoch, Event, Grant, Level, Node, Nomination, Note, NoteKind, OpId, Outcome,
    Request, Skipped, StopReason, Watched, Wish,
};
pub use limit::held_until;
pub use operator::{ForceStep, force_step};
pub use policy::{Confirm, OnPause, Policy, TakeoverLimit};
pub use recipe::{QueueFormat, Recipe};
pub use registration::Leftovers;
pub use requests::{not_now, slot_of};
pub use role::Role;
#[cfg(feature = "mutants")]
pub use rules::Rule;
pub use simulate::{Played, Prospect, Simulation, simulate};
pub use sites::{SiteFailureLimit, barred_sites, failed_sites, overrule_site, unwell_sites};
pub use tokens::{MAX_TOKEN_BASE, NoSuchToken, fencing_token, raise_tokens};

use crate::{
    ids::Ballot,
    record::{Current, Elected, GaveUp, Health, MAX_SLOTS, RoundTrips},
    time::{Now, Time},
};
use chronicle::Chronicle;
use contest::Contest;
use deciding::Elector;
use handover::Leaving;
use memory::Memory;
use office::{Office, State};
use registration::Registration;
#[cfg(not(feature = "mutants"))]
use rules::Rule;
use rules::Rules;
use session::SessionView;
use standing::Standing;
use suspicion::Reach;
use verification::Verification;
use view::View;

/// How long to wait before the elector tries again what could not be applied.
const RETRY: Duration = Duration::from_millis(200);

/// So far ahead that no deadline of a process comes near it.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// One member's engine in one election.
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    rules: Rules,
    now: Now,
    actions: VecDeque<Action>,
    next_op: u64,
    session: Option<SessionView>,
    view: View,
    memory: Memory,
    health: Health,
    site_health: Option<Health>,
    measured: BTreeMap<String, String>,
    round_trips: RoundTrips,
    reach: Reach,
    gave_up: Option<GaveUp>,
    standing: Standing,
    joined_ms: u64,
    registration: Registration,
    /// The session that its record was last written on.
    registered_as: Option<i64>,
    /// In the place of registration and elector, where a znode alone settles who leads.
    contest: Contest,
    /// The data that a write of the own record under way carries.
    node_written: Option<Vec<u8>>,
    elector: Option<Elector>,
    verification: Verification,
    office: Office,
    announce_later: bool,
    history: Chronicle,
    leaving: Leaving,
    ended: bool,
    keeps_lease: bool,
    /// What the guard of the work was told last.
    told_until: Option<Time>,
    watched: Vec<Watched>,
    /// Who was told of last, by slot.
    leaders: Vec<Option<Current>>,
    last_note: Option<(NoteKind, String)>,
    /// Why this member, as the elector, decides nothing.
    skipped: Option<Skipped>,
    sentence: String,
}

impl Engine {
    /// A member that has not begun yet.
    pub fn new(mut config: Config, now: Now) -> Self {
        config.policy.slots = config.policy.slots.clamp(1, MAX_SLOTS);
        let health = config.member.health.clone().bounded();
        Self {
            config,
            rules: Rules::default(),
            now,
            actions: VecDeque::new(),
            next_op: 0,
            session: None,
            view: View::default(),
            memory: Memory::default(),
            health,
            site_health: None,
            measured: BTreeMap::new(),
            round_trips: RoundTrips::default(),
            reach: Reach::default(),
            gave_up: None,
            standing: Standing::default(),
            joined_ms: now.unix_ms,
            registration: Registration::default(),
            registered_as: None,
            contest: Contest::default(),
            node_written: None,
            elector: None,
            verification: Verification::default(),
            office: Office::default(),
            announce_later: false,
            history: Chronicle::default(),
            leaving: Leaving::No,
            ended: false,
            keeps_lease: false,
            told_until: None,
            watched: Vec::new(),
            leaders: Vec::new(),
            last_note: None,
            skipped: None,
            sentence: String::new(),
        }
    }

    // ---- in ----

    /// Something happened. Follow it with [`Engine::poll_action`] until that is empty.
    ///
    /// Time must not go backwards; an earlier `now` counts as the last one.
    pub fn handle(&mut self, now: Now, event: Event) {
        if self.ended {
            return;
        }
        self.now = Now { time: self.now.time.max(now.time), unix_ms: now.unix_ms };
        // A process that was frozen learns of its deadline before anything else.
        if self.rules.keep(Rule::DeadlineFirst) {
            self.check_deadline();
        }
        let membership = matches!(event, Event::SeenTree { .. });
        match event {
            Event::SessionStarted { epoch, session_id, granted } => {
                self.session_started(epoch, session_id, granted)
            }
            Event::SessionPaused { epoch } => self.session_paused(epoch),
            Event::SessionResumed { epoch } => {
                let now = self.now.time;
                if let Some(session) = self.session_of(epoch) {
                    session.paused_since = None;
                    self.registration.session_resumed(now);
                    self.doubt_all();
                    self.watch_membership_anew();
                    self.contest_resumed();
                    self.tell_work_until();
                }
            }
            Event::SessionOver { epoch } => self.session_over(epoch),
            Event::Lease { epoch, valid_until } => self.lease(epoch, valid_until),
            Event::Seen { epoch, path, node } => {
                if self.session_of(epoch).is_some() {
                    self.saw(&path, node.as_ref());
                }
            }
            Event::SeenTree { epoch, parent, nodes } => {
                if self.session_of(epoch).is_some() {
                    self.saw_tree(&parent, &nodes);
                }
            }
            Event::Done { op, outcome } => self.done(op, &outcome),
            Event::App(event) => self.office_app(event),
            Event::Health(health) => self.health = health.bounded(),
            Event::SiteHealth(health) => self.site_health = health.map(Health::bounded),
            Event::RoundTrips(round_trips) => self.round_trips = round_trips,
            Event::Measured(measured) => self.measured = measured,
            Event::Probed { unanswered } => {
                self.reach.told(&unanswered, &self.config.policy, self.now);
            }
            Event::Wish(wish) => self.wish(wish),
            Event::Leave { hand_over } => self.leave(hand_over),
            Event::Tick => {}
        }
        self.advance(membership || self.rules.keep(Rule::LevelTriggered));
    }

    /// Switches one rule off, for a test that shows what goes wrong without it.
    #[cfg(feature = "mutants")]
    pub fn without(mut self, rule: Rule) -> Self {
        self.rules.drop(rule);
        self
    }

    // ---- out ----

    /// The next thing that should happen.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    // ---- to look at ----

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn wakeup(&self) -> Option<Time> {
        if self.ended {
            return None;
        }
        let elector = self.elector.as_ref();
        let held = self.office.held().is_some();
        let stop_at = match if held { self.work_until() } else { self.lease_ends_first() } {
            Some(until) if self.office.heeds_lease_end() => Some(until - self.stop_budget()),
            _ => None,
        };
        // What needs the session waits for its events while it is paused or over.
        let active = self.session_is_active();
        [
            self.registration.retry_at().filter(|_| active),
            self.office.retry_at(),
            self.contest_wake(),
            self.history.retry_at(),
            self.verification.due().filter(|_| active),
            self.hands_over_until().filter(|until| *until > self.now.time),
            elector.and_then(|e| e.retry_at),
            elector.filter(|e| e.op.is_none()).and_then(|e| e.watchdog.wake()),
            stop_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether a new session may be made: nothing that led, or was about to, on
    /// the former one is still running. Else one process could hold two lives.
    pub fn is_clear(&self) -> bool {
        !self.office.is_working() || matches!(self.config.policy.on_pause, OnPause::Keep { .. })
    }

    /// How the election behaves.
    pub fn policy(&self) -> &Policy {
        &self.config.policy
    }

    /// Its ballot, once it stands in the election.
    pub fn ballot(&self) -> Option<Ballot> {
        if self.is_contest() { self.contest_ballot() } else { self.registration.ballot().cloned() }
    }

    /// Whether its ballot is the lowest.
    pub fn is_elector(&self) -> bool {
        self.registration.is_lowest()
    }

    /// The decision as last read.
    pub fn elected(&self) -> Option<&Elected> {
        self.view.elected.record()
    }

    /// Who is in office as last read, by slot; at least as many as there are slots.
    pub fn in_office(&self) -> impl Iterator<Item = Option<&Current>> {
        (0..self.slots_watched()).map(|slot| self.view.place(slot).record())
    }

    /// The slot that this member leads, or is on its way to or from.
    pub fn slot(&self) -> Option<usize> {
        (!self.office_is_idle()).then_some(self.office.slot)
    }

    /// The fencing token of the leadership that is held.
    pub fn fencing_token(&self) -> Option<u64> {
        match &self.office.state {
            State::Stopping(stopping) => stopping.token,
            _ => self.office.held().map(|held| held.grant.fencing_token),
        }
    }

    /// Whether this member is fit to lead, by its last report.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What is being done, or why nothing is, in words.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Why this member, as the elector, decides nothing now.
    pub fn skipped(&self) -> Option<&Skipped> {
        self.skipped.as_ref()
    }

    // ---- taking the next steps ----

    fn done(&mut self, op: OpId, outcome: &Outcome) {
        self.read_ended(op, outcome);
        let _ = self.registration_done(op, outcome)
            || self.contest_done(op, outcome)
            || self.office_done(op, outcome)
            || self.verification_done(op, outcome)
            || self.elector_done(op, outcome)
            || self.history_done(op, outcome);
    }

    /// `decides`: whether the elector makes a pass.
    fn advance(&mut self, decides: bool) {
        self.advance_standing();
        self.advance_registration();
        self.advance_contest();
        self.advance_office();
        self.announce_again();
        if self.leaving.is_asked() {
            // What the office has just let go of may have been the last thing held.
            self.advance_registration();
        }
        // The office may have let go, or have entered another stage.
        self.advance_contest();
        self.advance_verification();
        if decides {
            self.advance_elector();
        }
        self.advance_history();
        self.hasten_at_lease_end();
        self.settle_watches();
        self.settle_lease();
        let is_gone = self.office_is_idle() && self.registration.is_gone() && self.contest.is_gone();
        // A leader znode of this member can be back with an older copy of the ensemble.
        if self.leaving.is_asked() && is_gone && !self.verification.doubts_any_place() {
            self.end(EndReason::Left);
        }
    }

    /// Members, requests and orders are read once more. Their watches may report nothing: where a znode went back with an
    /// older copy of the ensemble, its last change is none that the servers take for news.
    fn watch_membership_anew(&mut self) {
        let Some(epoch) = self.session_epoch().filter(|_| self.elector.is_some()) else { return };
        self.view.forget_membership();
        let paths = &self.config.paths;
        let anew =
            [Watched::Node(paths.control()), Watched::Tree(paths.nodes()), Watched::Tree(paths.requests())];
        self.watched.retain(|watched| !anew.contains(watched));
        self.actions.push_back(Action::Watch { epoch, set: self.watched.clone() });
    }

    fn settle_watches(&mut self) {
        let Some(epoch) = self.session_epoch() else {
            return;
        };
        let slots = self.slots_watched();
        self.forget_slots(slots);
        let paths = &self.config.paths;
        let mut watched = self.registration.watched(self);
        if self.registration.ballot().is_some() {
            watched.push(Watched::Node(paths.elected()));
            watched.extend((0..slots).map(|slot| Watched::Node(paths.place(slot))));
        }
        if self.watches_membership() {
            watched.push(Watched::Node(paths.control()));
            watched.push(Watched::Tree(paths.nodes()));
            watched.push(Watched::Tree(paths.requests()));
        }
        watched.extend(self.contest_watched());
        watched.extend(self.record_of_next_leader().map(Watched::Node));
        if watched != self.watched {
            self.watched.clone_from(&watched);
            self.actions.push_back(Action::Watch { epoch, set: watched });
        }
    }

    /// Whoever may have to act soon keeps the lease warm: proving it takes a beat
    /// and a tick, which a takeover would otherwise wait for.
    fn settle_lease(&mut self) {
        let first_in_line = match (self.registration.ballot(), self.view.elected.record()) {
            (Some(ballot), Some(elected)) => {
                (0..elected.slots.len()).any(|slot| elected.place_in_line(slot, ballot) == Some(0))
            }
            _ => false,
        };
        let contends = self.is_contest() && self.contest_keeps_lease();
        // Where suspicion decides, nobody knows beforehand who acts.
        let anyone = self.config.policy.may_suspect() && self.registration.ballot().is_some();
        let acts = self.office.wants_lease() || self.registration.is_lowest();
        let wants = acts || first_in_line || contends || anyone;
        if wants != self.keeps_lease {
            self.keeps_lease = wants;
            self.actions.push_back(Action::KeepLease(wants));
        }
    }

    // ---- helpers of all parts ----

    fn perform(&mut self, request: Request) -> Option<OpId> {
        if !self.session_is_active() {
            return None;
        }
        let op = OpId(self.next_op);
        self.next_op += 1;
        if let Request::Get { path } = &request {
            self.reads(op, path);
        }
        self.actions.push_back(Action::Perform { op, epoch: self.epoch(), request });
        Some(op)
    }

    fn note(&mut self, level: Level, kind: NoteKind, text: String) {
        if !matches!(kind, NoteKind::Skipped(_)) {
            self.sentence.clone_from(&text);
        }
        // Level-triggered parts say the same again and again.
        let same = self.last_note.as_ref().is_some_and(|(k, t)| *k == kind && *t == text);
        if !same {
            self.last_note = Some((kind, text.clone()));
            self.actions.push_back(Action::Note(Note { level, kind, text }));
        }
    }
}
