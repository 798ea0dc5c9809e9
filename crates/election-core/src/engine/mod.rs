//! The election as a state machine: events in, actions out.
//!
//! ```text
//!   session, lease ──┐                                               ┌──▶ znode operations, watches
//!   what was read  ──┤   handle(now, event)                          ├──▶ prepare, take over, lead, stop
//!   outcomes       ──┼──▶  Candidacy ──── Claim ───▶ OwnLeadership ──┼──▶ until when the work may go on
//!   application    ──┤         └────▶  Core  ◀────────────┘          └──▶ notes for the log
//!   time           ──┘               poll_action() until None
//! ```
//!
//! The engine has no clock, no randomness, no task and no lock. The caller that runs the engine reports each event
//! with its time, and carries out the actions that the engine requests. So the code that runs in production is the
//! code that a simulation runs.
//!
//! - The [core](core::Core) has the state that all parts use: the settings, the session, what was [read](reading),
//!   what this member [is](own), the [operations](ops) under way, and the actions to be taken out. A part borrows the
//!   core and nothing else of the engine.
//! - The [candidacy](candidacy::Candidacy) is how this member comes to lead. Under an elector that is its
//!   [membership](candidacy::elector), and the [elector] while its ballot is the lowest; otherwise it is a
//!   [contest](candidacy::contest), in which a znode of its own becomes the leader znode.
//! - The [leader](leader::OwnLeadership) is the leader's side. A [claim](appointment::Claim) is the only path to it.
//! - The [history] has the leaderships that must still be recorded.
//!
//! Each part is level-triggered: after every event each part checks the whole state again and takes the next step, if
//! none of its own is under way.
//!
//! There are three kinds of methods: [`Engine::handle`] takes an event ([`Engine::reconfigure`] new settings),
//! [`Engine::poll_action`] returns the next action, and the others only read.

mod appointment;
mod candidacy;
mod config;
mod core;
mod elector;
mod explain;
mod fingerprint;
mod history;
mod io;
mod leader;
mod operator;
mod ops;
mod own;
mod policy;
mod reading;
mod recipe;
mod resume;
mod role;
mod tokens;
mod transaction;
mod witnesses;
mod znode;

pub use config::{Config, Profile};
pub use elector::{
    decided::{NoSlot, TakeoverHold, Undecided},
    limit::held_until,
    requests::{NotNow, not_now, slot_of},
    sites::{barred_sites, failed_sites, overrule_site, unwell_sites},
};
pub use explain::{
    Bound, Explanation, NextStep, Obstacle, Proposal, Seen, SlotExplanation, explain,
    simulate::{Played, Prospect, Simulation, simulate},
};
pub use io::{
    Action, AppEvent, Appointment, EndReason, EnteredLeadership, Epoch, Event, Level, Node, Note, NoteKind,
    OpId, Outcome, Reason, Skipped, StopReason, Unrest, Watched, Wish, ZkOp,
};
pub use operator::{
    acknowledge::{Forgotten, Released, acknowledge},
    force::{ForceStep, ForcedFailover, Unforced, decision},
    moves::{ByOperator, move_away, move_in},
};
pub use policy::{Confirm, OnPause, Policy, SiteFailureLimit, TakeoverLimit};
pub use recipe::{Leftovers, QueueFormat, Recipe};
pub use resume::Resumption;
pub use role::Role;
pub use tokens::{MAX_TOKEN_BASE, NoSuchToken, fencing_token, raise_tokens};
pub use transaction::{Transaction, WriteKind, ZnodeWrite};

use std::{collections::VecDeque, sync::Arc, time::Duration};

use self::core::Core;
use crate::{
    ids::Ballot,
    record::{AppliedOverlay, Current, Elected, Health, MAX_SLOTS, MemberRecord},
    time::{Now, Time},
};
use candidacy::Candidacy;
use history::History;
use leader::{Entry, OwnLeadership};
use ops::{Part, Pending};
use znode::{Known, Znode};

/// How late a wakeup may come. If one comes later, the process was frozen, or its machine has too much to do.
const LATE: Duration = Duration::from_secs(1);

/// One member's engine in one election.
#[derive(Clone, Debug)]
pub struct Engine {
    core: Core,
    candidacy: Candidacy,
    leader: OwnLeadership,
    history: History,
}

impl Engine {
    /// A member that has not started yet. Its znodes have `number` in their names: no other engine may have the same on a
    /// session that they share, not even one that has ended.
    pub fn new(mut config: Config, number: u32, now: Now) -> Self {
        let slots = config.policy.slots.clamp(1, MAX_SLOTS);
        if slots != config.policy.slots {
            Arc::make_mut(&mut config.policy).slots = slots;
        }
        if let Some(overlay) = config.member.overlay.clone() {
            Arc::make_mut(&mut config.member).overlay = Some(overlay.bounded());
        }
        let candidacy = Candidacy::of(&config.recipe);
        Self {
            core: Core::new(config, number, now),
            candidacy,
            leader: OwnLeadership::default(),
            history: History::default(),
        }
    }

    // ---- in ----

    /// This member has seen this term and this token in a former process: no decision and no leadership begins below them
    /// unnoticed. Before the first event.
    pub fn begin_above(&mut self, term: u64, token: u64) {
        self.core.reading.memory.began_above(term, token);
    }

    /// The newest fencing token that this member has seen, or the base below all future ones.
    pub fn newest_token(&self) -> u64 {
        self.core.reading.newest_token()
    }

    /// Takes an event. Call [`Engine::poll_action`] afterwards until it returns nothing.
    ///
    /// Time must not go backwards; an earlier `now` counts as the last one.
    pub fn handle(&mut self, now: Now, event: Event) {
        if self.core.ended {
            return;
        }
        let is_late = self.wakeup().is_some_and(|due| due + LATE < now.time);
        let core = &mut self.core;
        core.now = Now { time: core.now.time.max(now.time), unix_ms: now.unix_ms };
        // The clock alone can end a leadership: a process that was frozen checks its deadline before anything else.
        if self.leader.held().is_some() {
            self.leader.advance(core);
        }
        if is_late {
            self.look_again();
        }
        let core = &mut self.core;
        match event {
            Event::SessionStarted { epoch, session_id, granted } => {
                if let Some(former) = core.session_epoch() {
                    self.session_over(former);
                }
                self.core.session_started(epoch, session_id, granted);
                self.candidacy.begin(&mut self.core);
            }
            Event::SessionPaused(epoch) => {
                if core.session_paused(epoch) {
                    self.candidacy.session_paused();
                }
            }
            Event::SessionResumed(epoch) => self.session_resumed(epoch),
            Event::SessionOver(epoch) => self.session_over(epoch),
            Event::Lease { epoch, valid_until } => core.lease(epoch, valid_until),
            Event::Seen { epoch, path, node } => {
                if core.session_of(epoch).is_some() {
                    self.saw(&path, node.as_ref());
                }
            }
            Event::SeenTree { epoch, parent, nodes } => {
                if core.session_of(epoch).is_some() {
                    core.saw_tree(&parent, &nodes);
                }
            }
            Event::Done { op, outcome } => self.done(op, &outcome),
            Event::App(event) => self.leader.app(core, event),
            Event::Health(health) => core.own.health = health.bounded(),
            Event::SiteHealth(health) => core.own.reports.site_health = health.map(Health::bounded),
            Event::RoundTrips(round_trips) => core.own.reports.round_trips = round_trips,
            Event::Measured(measured) => core.own.reports.measured = measured,
            Event::Probed(unanswered) => {
                core.own.reports.reach.told(&unanswered, &core.config.policy, core.now);
            }
            Event::Wish(wish) => self.leader.wish(core, wish),
            Event::Leave { hand_over } => core.leave(hand_over),
            Event::Tick => {}
        }
        self.advance();
    }

    /// Takes over new settings, and decides by them from now on: the policy, the strategy, and this member's addresses,
    /// attributes, priority, fingerprint and overlay. Call [`Engine::poll_action`] afterwards until it returns nothing.
    ///
    /// The rest stays as it was: who this member is, the recipe, and [`Policy::slots`] and [`Policy::on_pause`], which a
    /// leadership that is under way relies on.
    pub fn reconfigure(&mut self, now: Now, mut config: Config) {
        let known = &mut self.core.config;
        let (slots, on_pause) = (known.policy.slots, known.policy.on_pause);
        if (slots, on_pause) != (config.policy.slots, config.policy.on_pause) {
            let policy = Arc::make_mut(&mut config.policy);
            (policy.slots, policy.on_pause) = (slots, on_pause);
        }
        known.policy = config.policy;
        if let (Recipe::Elector(known), Recipe::Elector(strategy)) = (&mut known.recipe, config.recipe) {
            *known = strategy;
        }
        let (member, given) = (Arc::make_mut(&mut known.member), Arc::unwrap_or_clone(config.member));
        (member.address, member.http) = (given.address, given.http);
        member.attributes = given.attributes;
        member.priority = given.priority;
        member.policy = given.policy;
        member.overlay = given.overlay.map(AppliedOverlay::bounded);
        self.handle(now, Event::Tick);
    }

    // ---- out ----

    /// The next action to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        let actions = &mut self.core.out.actions;
        let next = actions.pop_front();
        if next.is_none() {
            // An idle election holds no memory for it.
            *actions = VecDeque::new();
        }
        next
    }

    // ---- reading the state ----

    /// When [`Event::Tick`] is due, if there is no event before.
    pub fn wakeup(&self) -> Option<Time> {
        let core = &self.core;
        if core.ended {
            return None;
        }
        let stop_at = if self.leader.held().is_some() {
            core.must_stop_at()
        } else {
            core.lease_ends_first().map(|until| until - core.stop_budget())
        };
        let stop_at = stop_at.filter(|_| self.leader.state().heeds_lease_end());
        // Steps that need the session wait for its events while it is paused or over.
        let active = core.session_is_active();
        [
            core.ops.wake().filter(|_| active),
            self.candidacy.wake(core),
            self.leader.wake().filter(|_| active),
            core.reading.rereading.wake(&core.ops).filter(|_| active),
            core.hands_over_until().filter(|until| *until > core.now.time),
            stop_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether a new session may be created: nothing that led, or was about to lead, on the former session still
    /// runs. Otherwise one process could act under two sessions.
    pub fn is_clear(&self) -> bool {
        !self.core.own.duty.is_working || matches!(self.policy().on_pause, OnPause::Keep { .. })
    }

    /// Whether any work of the application runs.
    #[cfg(feature = "runtime")]
    pub(crate) fn is_working(&self) -> bool {
        self.core.own.duty.is_working
    }

    /// The settings, as they are now.
    #[cfg(feature = "runtime")]
    pub(crate) fn config(&self) -> &Config {
        &self.core.config
    }

    /// Whether it is a member of the election, and does not know yet whether its ballot is the lowest. The elector watches
    /// the whole election instead of single znodes.
    pub fn looks_for_its_rank(&self) -> bool {
        let own = &self.core.own.ballot;
        own.name.is_some() && !own.is_ranked && own.before.is_none()
    }

    /// How the election behaves.
    pub fn policy(&self) -> &Policy {
        &self.core.config.policy
    }

    /// Until when the work of a leader may continue.
    pub fn work_until(&self) -> Option<Time> {
        self.core.work_until()
    }

    /// Its ballot, once it is in the election.
    pub fn ballot(&self) -> Option<Ballot> {
        self.candidacy.ballot(&self.core)
    }

    /// Whether its ballot is the lowest.
    pub fn is_elector(&self) -> bool {
        self.core.own.ballot.is_lowest()
    }

    /// The decision as last read.
    pub fn elected(&self) -> Option<&Elected> {
        self.core.reading.view.elected.record()
    }

    /// The latest decision that it has seen, while the decision in ZooKeeper is missing or older.
    pub fn remembers(&self) -> Option<crate::record::Remembered> {
        self.core.remembers()
    }

    /// What was last read of the decision and of the leader znodes, by slot, to be kept.
    #[cfg(feature = "runtime")]
    pub(crate) fn records(&self) -> (Option<Arc<Elected>>, crate::slots::Slots<Option<Arc<Current>>>) {
        let view = &self.core.reading.view;
        let leaders = (0..self.core.slots_watched()).map(|slot| view.leader(slot).shared().cloned());
        (view.elected.shared().cloned(), leaders.collect())
    }

    /// The leader znodes as last read, by slot; at least as many as there are slots.
    pub fn leaders(&self) -> impl Iterator<Item = Option<&Current>> {
        (0..self.core.slots_watched()).map(|slot| self.core.reading.view.leader(slot).record())
    }

    /// The slot that this member leads, is acquiring, or is releasing.
    pub fn slot(&self) -> Option<usize> {
        self.core.own.duty.slot
    }

    /// The fencing token of the leadership that is held.
    pub fn fencing_token(&self) -> Option<u64> {
        self.leader.fencing_token()
    }

    /// Whether this member is fit to lead, according to its last report.
    pub fn health(&self) -> &Health {
        &self.core.own.health
    }

    /// What is being done, or why nothing is, in words.
    pub fn sentence(&self) -> &Arc<str> {
        &self.core.out.sentence
    }

    /// Why this member, as the elector, decides nothing now.
    pub fn skipped(&self) -> Option<&Arc<Skipped>> {
        self.core.out.skipped.as_ref()
    }

    /// Whether this member is passive: other members lead, and it is neither named nor the first in a line, nor does it
    /// decide. The decision and the leader znodes have no effect on it then, and may be read later, or not at all. A member
    /// further behind in a line acts only once a decision has named it, or has made it the first. That sets its ballot,
    /// which it watches.
    ///
    /// Nothing depends on the age of what was read: a watch can lag for other reasons as well. Read without delay as
    /// soon as this is false.
    pub fn is_passive(&self) -> bool {
        let core = &self.core;
        let own = &core.own.ballot;
        let (Some(ballot), Some(elected)) = (&own.name, self.elected()) else { return false };
        // While no member is named, any member may be named next.
        let others = |slot| {
            elected.named(slot).is_some_and(|named| named.ballot != *ballot)
                && elected.place_in_line(slot, ballot) != Some(0)
        };
        // A decision that this member must know has set its ballot: a successor's a moment later, any other in the same
        // transaction.
        let is_read = core.reading.view.elected.meta().is_some_and(|known| known.mzxid >= own.called_at);
        !own.is_lowest()
            && self.leader.is_idle()
            && is_read
            // It reports what it remembers until it has seen a later decision.
            && core.remembers().is_none()
            && (0..elected.slots.len()).all(others)
            && !core.watches_membership()
            && !core.own.leaving.is_asked()
    }

    /// Whether it takes over: from the request that creates the leader znode until READY is announced. What it need not know
    /// for that is better read afterwards.
    pub fn is_taking_over(&self) -> bool {
        self.leader.is_taking_over()
    }

    /// Whether this znode contains who leads: the decision, or a leader znode.
    pub fn reports_leaders(&self, watched: &Watched) -> bool {
        let paths = &self.core.config.paths;
        matches!(watched, Watched::Node(path) if **path == *paths.elected() || paths.slot_of(path).is_some())
    }

    // ---- what happens, where it concerns several parts ----

    fn session_resumed(&mut self, epoch: Epoch) {
        let core = &mut self.core;
        if !core.session_resumed(epoch) {
            return;
        }
        self.candidacy.session_resumed(core);
        core.doubt_all();
        self.watch_anew();
        self.core.tell_work_until();
    }

    /// This process did not run when a deadline was due, so what has changed since may not have been reported yet: it is read
    /// again before a deadline is acted upon.
    fn look_again(&mut self) {
        if self.core.session_is_active() {
            self.candidacy.look_again();
            self.core.doubt_all();
            self.watch_anew();
        }
    }

    fn session_over(&mut self, epoch: Epoch) {
        let core = &mut self.core;
        if core.session_over(epoch) {
            self.candidacy.session_over(core);
            self.leader.session_over(core);
            core.tell_work_until();
            core.forget_reading();
        }
    }

    fn saw(&mut self, path: &str, node: Option<&Node>) {
        let core = &mut self.core;
        let paths = &core.config.paths;
        if core.is_contest() {
            self.candidacy.saw(core, &mut self.leader, path, node);
        } else if path == paths.elected() {
            core.reading.rereading.watch_told(Znode::Decision, node);
            core.see_elected(node);
            core.compare_view(Znode::Decision);
        } else if let Some(slot) = paths.slot_of(path) {
            if slot < core.slots_watched() {
                self.leader.watch_told(core, slot, node);
            }
        } else if path == paths.control() {
            core.reading.view.electors_mut().control = Known::read(path, node);
        } else if core.record_of_next_leader().as_deref() == Some(path) {
            if let Known::Present(record, _) = Known::<MemberRecord>::read(path, node) {
                core.saw_next_leader(&record);
            }
        } else {
            self.candidacy.saw(core, &mut self.leader, path, node);
        }
    }

    fn done(&mut self, op: OpId, outcome: &Outcome) {
        let (core, leader) = (&mut self.core, &mut self.leader);
        let Some((pending, reads)) = core.ops.end(op) else { return };
        if let Outcome::OtherRecipe(recipe) = outcome {
            return core.end(EndReason::OtherRecipe(recipe));
        }
        let node = || if let Outcome::Got(node) = outcome { node.as_ref() } else { None };
        if let Some(slot) = reads.and_then(|(znode, known)| core.read_ended(znode, known, outcome)) {
            leader.saw_leader_znode(core, slot, node());
        }
        let seen = match (pending, &mut self.candidacy) {
            (Pending::Candidacy, candidacy) => return candidacy.done(core, leader, outcome),
            (Pending::Elector(op), Candidacy::Elector(membership)) => {
                membership.elector.as_mut().and_then(|elector| elector.done(core, op, outcome))
            }
            (Pending::Leader(op), _) => return leader.done(core, op, outcome),
            (Pending::History(op), _) => return self.history.done(core, op, outcome),
            // The watch reports the outcome.
            (Pending::Tokens, _) => return core.retry(Part::Tokens),
            (Pending::Reread(znode), _) => core.reread_done(znode, outcome),
            (Pending::Elector(_) | Pending::GivenUp, _) => None,
        };
        if let Some(slot) = seen {
            leader.saw_leader_znode(core, slot, node());
        }
    }

    // ---- taking the next steps ----

    fn advance(&mut self) {
        let (core, leader) = (&mut self.core, &mut self.leader);
        leader.refuse_while_withdrawn(core);
        self.candidacy.advance(core, leader);
        leader.advance(core);
        leader.announce_again(core);
        // The leader may have released the last thing that it held, or have entered another stage.
        if core.is_contest() || core.own.leaving.is_asked() {
            self.candidacy.advance(core, leader);
        }
        core.advance_rereading();
        self.candidacy.decide(core);
        if let Some(first) = core.out.first_decision.take() {
            leader.claim_first(core, first);
        }
        match leader.to_record.take() {
            Some(Entry::Due(entry)) => self.history.push(*entry),
            Some(Entry::Written { entries }) => self.history.written(core, entries),
            None => {}
        }
        self.history.advance(core);
        leader.hasten_at_lease_end(core);
        self.settle_watches();
        self.settle_lease();
        self.leader.settle_suspension(&mut self.core);
        let core = &mut self.core;
        let is_gone = self.leader.is_idle() && self.candidacy.is_gone();
        // A leader znode of this member can return with an older copy of the ensemble.
        if core.own.leaving.is_asked() && is_gone && !core.reading.rereading.doubts_any_leader_znode() {
            core.end(self.candidacy.end(core));
        }
    }

    /// Watches the predecessor anew, and the elector members, requests and orders. The old watches may report nothing:
    /// if a znode returned to an older state with an older copy of the ensemble, the servers do not regard its last
    /// change as new; and a predecessor that was reported gone, was listed again from the copy, and has gone since is
    /// no news to its watch.
    fn watch_anew(&mut self) {
        let core = &mut self.core;
        let Some(epoch) = core.session_epoch() else { return };
        let mut anew: Vec<_> = self.candidacy.predecessor(core).map(Watched::node).into_iter().collect();
        anew.push(Watched::node(core.config.paths.tokens()));
        if let Candidacy::Elector(membership) = &self.candidacy
            && membership.elector.is_some()
        {
            core.reading.view.forget_membership();
            let paths = &core.config.paths;
            anew.push(Watched::node(paths.control()));
            anew.extend([paths.nodes(), paths.requests()].map(Watched::tree));
        }
        if !core.out.watched.iter().any(|watched| anew.contains(watched)) {
            return;
        }
        core.out.watched.retain(|watched| !anew.contains(watched));
        core.out.push(Action::Watch { epoch, set: core.out.watched.clone() });
    }

    fn settle_watches(&mut self) {
        let core = &mut self.core;
        let Some(epoch) = core.session_epoch() else { return };
        let slots = core.slots_watched();
        core.forget_slots(slots);
        let paths = &core.config.paths;
        let mut watched = self.candidacy.watched(core);
        if core.own.ballot.name.is_some() {
            watched.push(Watched::node(paths.elected()));
            watched.extend((0..slots).map(|slot| Watched::node(paths.leader_znode(slot))));
        }
        if core.watches_membership() {
            watched.push(Watched::node(paths.control()));
            watched.push(Watched::tree(paths.nodes()));
            watched.push(Watched::tree(paths.requests()));
        }
        watched.extend(core.record_of_next_leader().map(Watched::node));
        if watched != core.out.watched {
            core.out.watched.clone_from(&watched);
            core.out.push(Action::Watch { epoch, set: watched });
        }
    }

    /// Keeps the lease renewed for a member that acts, or is the first to act if the leader vanishes. Every other member
    /// has a lease one heartbeat after it begins to act, while it acquires leadership.
    fn settle_lease(&mut self) {
        let core = &mut self.core;
        let own = &core.own.ballot;
        let decided = own.name.as_ref().zip(core.reading.view.elected.record());
        let is_next = decided.is_some_and(|(ballot, elected)| elected.is_next(ballot));
        let decides = own.is_lowest() || core.acts_for_the_elector();
        let acts = core.own.duty.wants_lease || decides;
        let wants = acts || is_next || self.candidacy.keeps_lease();
        if wants != core.out.keeps_lease {
            core.out.keeps_lease = wants;
            core.out.push(Action::KeepLease(wants));
        }
    }
}
