//! The elector: what it decides, and how its verdicts are carried out. It performs one operation at a time; the
//! outcome determines what follows.
//!
//! An elector writes only while its ballot exists. A late write could hit a decision or a request that was created again
//! after an administrator had deleted the former one. So each change by an elector, and each creation of a leader znode,
//! checks the writer's own ballot in the same transaction. Ballots are deleted with the tree, and a ballot's name is never
//! used again. If the decision alone is deleted, the elector counts its next creation in the version of the ballots' parent,
//! which the same writes check: see [`Elected::generation`].

pub(crate) mod better_after;
mod called_off;
pub(crate) mod decided;
pub(crate) mod decision;
mod leads_on;
pub(crate) mod limit;
pub(crate) mod next_step;
mod not_asked;
pub(crate) mod pass;
mod penalties;
pub(crate) mod phase_timers;
mod phases;
pub(crate) mod requests;
mod restoring;
pub(crate) mod sites;
mod states;
pub(crate) mod succession;
pub(crate) mod suspicion;
pub(crate) mod trace;

use std::{cell::RefCell, sync::Arc};

use super::{
    core::Core,
    io::{Level, NoteKind, Outcome, Skipped, ZkOp},
    ops::{Begun, Check, ElectorOp, IrreversibleStep, Part, Pending},
    recipe::Recipe,
    transaction::{Transaction, ZnodeWrite},
    znode::{Known, Meta},
};
use crate::{
    paths::Paths,
    record::{self, Elected, Record, RecordError},
    time::Time,
};
use next_step::{Act, Verdict, Wait};
use pass::Pass;
use phase_timers::PhaseTimers;

/// The state that a member keeps while it is the elector.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Elector {
    timers: PhaseTimers,
    /// The step for which everything was just read again.
    checked: Option<IrreversibleStep>,
    /// The first decision was to be written with the own leader znode. If that was refused, it is written alone: the
    /// parents of both may be missing, or the view of the leader znode may be old.
    has_named_itself: bool,
    /// A decision was refused that called the next in line in the same transaction.
    calls_apart: bool,
}

impl Elector {
    /// Makes a pass, if this member is the elector and nothing prevents the pass.
    pub(crate) fn advance(this: &mut Option<Box<Self>>, core: &mut Core) {
        if !core.watches_membership() {
            if this.take().is_some() {
                core.ops.give_up_all(Part::Elector);
                core.reading.view.forget_membership();
                core.out.skipped = None;
            }
            return;
        }
        if this.is_none() {
            // What was read in an earlier time as the elector, or what arrives late, does not count.
            core.reading.view.forget_membership();
            core.read_decision_again();
        }
        this.get_or_insert_default().decide(core);
    }

    fn decide(&mut self, core: &mut Core) {
        let free = core.ops.is_free(Part::Elector, core.now.time)
            && !core.reading.rereading.doubts_decision()
            && !core.reading.rereading.doubts_any_leader_znode()
            && !core.own.duty.names_itself;
        // A stale elector that is cut off must not decide, queued writes included.
        let leased = core.lease_is_valid();
        let may_act = core.session_is_active()
            && leased
            && (core.own.ballot.is_lowest() || core.acts_for_the_elector());
        self.timers.begin();
        if !free || !may_act {
            // The next pass is made when the wait ends, or with the next lease.
            return;
        }
        let Recipe::Elector(strategy) = &core.config.recipe else { return };
        let (config, timers) = (&core.config, RefCell::new(std::mem::take(&mut self.timers)));
        let decider = config.member.member.as_str();
        let pass = Pass::new(core.now, decider, &config.policy, &**strategy, &timers);
        let pass = pass.read(&core.reading);
        let verdict = pass.map_or_else(Verdict::from, |pass| pass.verdict());
        self.timers = timers.into_inner();
        self.carry_out(core, verdict);
    }

    /// The connection is lost.
    pub(crate) fn session_paused(&mut self) {
        self.checked = None;
    }

    /// When the next pass is due, unless an operation is under way.
    pub(crate) fn wake(&self, core: &Core) -> Option<Time> {
        self.timers.wake().filter(|_| !core.ops.is_busy(Part::Elector))
    }

    fn carry_out(&mut self, core: &mut Core, verdict: Verdict) {
        let act = match verdict {
            Verdict::Act(Act::Write(first, None))
                if !self.has_named_itself && core.first_claim(&first).is_some() =>
            {
                (self.has_named_itself, self.checked) = (true, None);
                core.out.first_decision = Some(first);
                return;
            }
            Verdict::Act(act) => act,
            Verdict::Wait(Wait { reason, sentence, loud, .. }) => {
                self.checked = None;
                let before = core.out.skipped.as_ref().map(|skipped| &*skipped.sentence);
                let is_reported = before == Some(&sentence) || *core.out.sentence == *sentence;
                let level = if loud && !is_reported { Level::Warn } else { Level::Info };
                core.note(level, NoteKind::Skipped(reason), sentence.clone());
                core.out.skipped = Some(Arc::new(Skipped { reason, sentence }));
                return;
            }
        };
        // The check is valid for the pass that follows it, and for no later pass.
        let checked = self.checked.take();
        if let Some(step) = irreversible_step(core, &act)
            && checked.as_ref() != Some(&step)
        {
            let request = ZkOp::Get(core.config.paths.elected());
            return perform(core, request, ElectorOp::Check(step, Check::Elected));
        }
        let (request, pending) = match request_of(core, act) {
            Ok(request) => request,
            Err(error) => return core.delayed(Part::Elector, error),
        };
        let mut request = core.as_candidate(request);
        if let ElectorOp::Decision(elected, ..) = &pending {
            request = core.calling(elected, self.calls_apart, request);
        }
        perform(core, request, pending);
    }

    /// The slot whose leader znode was read, if it was.
    #[must_use]
    pub(crate) fn done(&mut self, core: &mut Core, op: ElectorOp, outcome: &Outcome) -> Option<usize> {
        match (op, outcome) {
            (ElectorOp::Decision(elected, _, begun), Outcome::Changed { version, mzxid }) => {
                let czxid = core.reading.view.elected.meta().map_or(0, |m| m.czxid);
                decided(core, *elected, begun, Meta { version: *version, czxid, mzxid: *mzxid, owner: 0 });
                if std::mem::take(&mut self.calls_apart) {
                    core.call();
                }
            }
            (ElectorOp::Decision(elected, _, begun), Outcome::Created { czxid, version, .. }) => {
                let was_deleted = core.reading.memory.decision.is_some();
                let meta = Meta { version: *version, czxid: *czxid, mzxid: *czxid, owner: 0 };
                decided(core, *elected, begun, meta);
                if was_deleted {
                    core.call();
                }
            }
            // The race was lost, or the outcome is unknown: read, then make another pass.
            (
                ElectorOp::Decision(_, over, _),
                Outcome::Stale | Outcome::Exists | Outcome::Missing | Outcome::Unknown(_),
            ) => {
                let refused = (!matches!(outcome, Outcome::Unknown(_))).then_some(over);
                core.reading.generation_read = None;
                perform(core, ZkOp::Get(core.config.paths.elected()), ElectorOp::ReadElected(refused));
            }
            (ElectorOp::Check(step, check), outcome) => return self.checked(core, step, check, outcome),
            (ElectorOp::ReadElected(refused), Outcome::Got(node)) => {
                let is_the_same = refused == Some(node.as_ref().map(|node| node.version));
                // The own ballot may be gone, or that of a member to be called, which the next pass may know. Or the server of
                // the session shows another decision than the quorum has, or none. Or the decision was deleted, and is there
                // again.
                let is_refused_again = is_the_same && std::mem::replace(&mut self.calls_apart, true);
                core.see_elected(node.as_ref());
                if is_refused_again {
                    core.own.ballot.must_be_listed = true;
                    core.delayed(Part::Elector, "it could not be written over one that has not changed");
                }
                if is_refused_again || is_the_same && node.is_none() {
                    perform(core, ZkOp::Get(core.config.paths.election()), ElectorOp::ReadGeneration);
                }
            }
            (ElectorOp::ReadGeneration, Outcome::Got(parent)) => {
                core.learn_generation(parent.as_ref());
            }
            (
                ElectorOp::Vacate(slot),
                Outcome::Ok | Outcome::Missing | Outcome::Stale | Outcome::Unknown(_),
            ) => {
                if *outcome == Outcome::Stale {
                    core.own.ballot.must_be_listed = true;
                    core.reading.generation_read = None;
                    perform(core, ZkOp::Get(core.config.paths.election()), ElectorOp::ReadGeneration);
                }
                perform(core, ZkOp::Get(core.config.paths.leader_znode(slot)), ElectorOp::ReadLeader(slot));
            }
            (ElectorOp::ReadLeader(slot), Outcome::Got(node)) => {
                core.see_leader_znode(slot, node.as_ref());
                return Some(slot);
            }
            // The outcome is known before the watch reports it.
            (ElectorOp::Answer(name, request), Outcome::Changed { version, mzxid }) => {
                core.reading.view.electors_mut().answered(&name, *request, *version, *mzxid);
            }
            (ElectorOp::Trim(name), Outcome::Ok | Outcome::Missing) => {
                core.reading.view.electors_mut().trimmed(&name)
            }
            (_, outcome) => core.delayed(Part::Elector, outcome),
        }
        None
    }

    /// Takes the result of one read before an irreversible step. What differs from the view is put into the view, and
    /// the next pass may find no reason for the step. Returns the slot whose leader znode was read.
    fn checked(
        &mut self,
        core: &mut Core,
        step: IrreversibleStep,
        check: Check,
        outcome: &Outcome,
    ) -> Option<usize> {
        let paths = core.config.paths.clone();
        match (check, outcome) {
            (Check::Elected, Outcome::Got(node)) => {
                core.see_elected(node.as_ref());
                let request = ZkOp::Get(paths.leader_znode(0));
                perform(core, request, ElectorOp::Check(step, Check::Leader(0)));
            }
            (Check::Leader(slot), Outcome::Got(node)) => {
                core.see_leader_znode(slot, node.as_ref());
                let (request, check) = match slot + 1 {
                    next if next < core.slots_watched() => {
                        (ZkOp::Get(paths.leader_znode(next)), Check::Leader(next))
                    }
                    _ => (ZkOp::Children(paths.nodes()), Check::Members),
                };
                perform(core, request, ElectorOp::Check(step, check));
                return Some(slot);
            }
            (Check::Members, Outcome::Names(names)) => {
                let same = core.reading.view.electors().has_members(names);
                match step {
                    IrreversibleStep::Refusal(_) if same => {
                        let request = ZkOp::Get(paths.control());
                        let check = Check::Control(core.reading.view.electors().control.meta());
                        perform(core, request, ElectorOp::Check(step, check));
                    }
                    IrreversibleStep::ForcedRemoval { .. } if same => self.checked = Some(step),
                    // The watch is about to report it.
                    _ => core.delayed(Part::Elector, "the membership has changed and is being read"),
                }
            }
            (Check::Control(known), Outcome::Got(node))
                if core.reading.view.electors().control.meta() == known =>
            {
                core.reading.view.electors_mut().control = Known::read(&paths.control(), node.as_ref());
                self.checked = Some(step);
            }
            // The watch has reported it during this read, whose result can be older.
            (Check::Control(_), Outcome::Got(_)) => {
                core.delayed(Part::Elector, "the standing orders have changed during the decision");
            }
            (_, outcome) => core.delayed(Part::Elector, outcome),
        }
        None
    }
}

fn perform(core: &mut Core, request: impl Into<ZkOp>, op: ElectorOp) {
    core.perform(request, Pending::Elector(op));
}

/// Writes a [decision](ZnodeWrite::decision); and in the same transaction the new state of the request that it begins, with its
/// name and the version that it must have. So a request is either begun, or withdrawn or ended by another write: never both.
pub(crate) fn writing(
    paths: &Paths,
    elected: &mut Elected,
    over: Option<i32>,
    generation: i32,
    begun: Option<(&str, &record::AdminRequest, i32)>,
) -> Result<Transaction, RecordError> {
    let decision = ZnodeWrite::decision(paths, elected, over, generation)?;
    let Some((name, begun, version)) = begun else { return Ok(decision) };
    let path = paths.request(name);
    let data = begun.encode(&path)?;
    Ok(decision.and(ZnodeWrite::set(path, data, version)))
}

/// The request that carries out this act, and its purpose.
fn request_of(core: &Core, act: Act) -> Result<(Transaction, ElectorOp), RecordError> {
    let (paths, generation) = (&core.config.paths, core.reading.generation());
    Ok(match act {
        Act::Write(mut elected, over) | Act::Depose(_, mut elected, over) => {
            let request = writing(paths, &mut elected, over, generation, None)?;
            (request, ElectorOp::Decision(elected, over, None))
        }
        Act::Begin(mut elected, over, begun) => {
            let request = (&*begun.name, &*begun.request, begun.version);
            let request = writing(paths, &mut elected, over, generation, Some(request))?;
            (request, ElectorOp::Decision(elected, over, Some(begun)))
        }
        Act::CallOff(leads, mut elected, over) => {
            let request = writing(paths, &mut elected, Some(over), generation, None)?;
            let request = request.only_while(paths.leader_znode(leads.slot), leads.leader);
            let request = request.only_while(paths.node(&leads.member), leads.version);
            (request, ElectorOp::Decision(elected, Some(over), None))
        }
        Act::Vacate { slot, leader: version, decision: unchanged_version } => {
            let delete = Transaction::from(ZnodeWrite::delete(paths.leader_znode(slot), version));
            (delete.only_while_decided(paths, unchanged_version, generation), ElectorOp::Vacate(slot))
        }
        Act::Answer(name, version, request) | Act::Refuse(name, version, request) => {
            let path = paths.request(&name);
            let data = request.encode(&path)?;
            (ZnodeWrite::set(path, data, version).into(), ElectorOp::Answer(name, request))
        }
        Act::Trim(name) => (ZnodeWrite::delete(paths.request(&name), None).into(), ElectorOp::Trim(name)),
    })
}

/// What to check before this act.
fn irreversible_step(core: &Core, act: &Act) -> Option<IrreversibleStep> {
    let (slot, decision) = match act {
        Act::Refuse(name, ..) => return Some(IrreversibleStep::Refusal(name.clone())),
        Act::Depose(slot, _, decision) => (*slot, *decision),
        Act::Vacate { slot, decision, .. } => (*slot, Some(*decision)),
        _ => return None,
    };
    let leader = core.reading.view.leader(slot).meta();
    Some(IrreversibleStep::ForcedRemoval { slot, decision, leader })
}

fn decided(core: &mut Core, elected: Elected, begun: Option<Begun>, meta: Meta) {
    let news = core.reading.view.elected.record().is_none_or(|known| known.term != elected.term);
    if news {
        let again = core.reading.memory.has(elected.term);
        let missing = if again { "the decision was missing, and is written again: " } else { "" };
        let text = format!("{missing}term {}: {}", elected.term, elected.sentence());
        core.out.skipped = None;
        core.note(Level::Info, NoteKind::Decided, text);
    }
    // A watch may have been quicker, and have read a later state already.
    if core.reading.view.elected.meta().is_none_or(|known| known.mzxid <= meta.mzxid) {
        core.know_elected(Known::Present(elected.into(), meta));
    }
    // What was written together with a decision is known before the watch reports it.
    if let Some(Begun { name, version, request }) = begun {
        core.reading.view.electors_mut().answered(&name, *request, version.saturating_add(1), meta.mzxid);
    }
}
