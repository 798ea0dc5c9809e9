//! How the elector's verdicts are carried out: one operation at a time, and what
//! follows from its outcome.

use super::{
    Engine, RETRY,
    elector::{self, Begun, Verdict},
    io::{Level, NoteKind, OpId, Outcome, Request, Skipped},
    recipe::Recipe,
    rules::Rule,
    view::{Known, Meta},
    watchdog::Watchdog,
};
use crate::{
    record::{Elected, Record},
    time::Time,
};

/// What a member keeps while its ballot is the lowest.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Elector {
    pub(super) watchdog: Watchdog,
    pub(super) op: Option<(OpId, Pending)>,
    pub(super) retry_at: Option<Time>,
    /// For which step everything was just read once more.
    pub(super) checked: Option<Grave>,
}

/// A step that can't be taken back, so that what it rests on is read once more before it
/// is taken. Each znode is watched by itself: an elector that was frozen, or cut off for a
/// moment, can see a decision that another member made meanwhile before it sees the place
/// or the members that this was made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Grave {
    /// A request is refused.
    Refusal(String),
    /// Whoever stands in this place is put out of office, while this decision stands.
    Ouster { slot: usize, decision: Option<i32>, place: Option<Meta> },
}

/// What is read once more before a grave step, in this order.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Check {
    Elected,
    /// The place of this slot, and of all after it.
    Place(usize),
    Members,
    /// Where a request is refused: an order that was given before it may be what allows it.
    Control,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum Pending {
    Check(Grave, Check),
    /// Over this version, if there was a decision; and the request that it begins.
    Decision(Box<Elected>, Option<i32>, Option<Begun>),
    /// It could not be written, over this version if that was refused.
    ReadElected(Option<i32>),
    Vacate(usize),
    ReadPlace(usize),
    Answer(String, Box<crate::record::Request>),
    Trim(String),
}

impl Engine {
    pub(super) fn advance_elector(&mut self) {
        if !self.watches_membership() {
            if self.elector.take().is_some() {
                self.view.forget_membership();
                self.skipped = None;
            }
            return;
        }
        if self.elector.is_none() {
            // Nothing read in an earlier time as the elector, or late, counts.
            self.view.forget_membership();
        }
        let elector = self.elector.get_or_insert_with(Elector::default);
        let waits = elector.op.is_some()
            || elector.retry_at.is_some_and(|at| self.now.time < at)
            || self.verification.doubts_decision();
        elector.retry_at = elector.retry_at.filter(|at| self.now.time < *at);
        // A stale elector that is cut off must not decide, queued writes included.
        let leased = self.lease_is_valid() || !self.rules.keep(Rule::ElectorLease);
        let may_act = self.session_is_active()
            && leased
            && (self.registration.is_lowest() || self.acts_for_the_elector());
        let Some(elector) = &mut self.elector else {
            return;
        };
        if waits || !may_act {
            // The next pass is made when the wait is over, or with the next lease.
            elector.watchdog.begin();
            return;
        }
        let Recipe::Elector(strategy) = &self.config.recipe else { return };
        let verdict = elector::pass(
            self.now,
            &self.config.member.member,
            self.config.member.format,
            &self.config.policy,
            &**strategy,
            &self.view,
            &self.memory,
            &mut elector.watchdog,
            self.rules,
        );
        self.carry_out(verdict);
    }

    fn carry_out(&mut self, verdict: Verdict) {
        let paths = self.config.paths.clone();
        // It serves the pass that follows it, and none after that.
        let checked = self.elector.as_mut().and_then(|elector| elector.checked.take());
        if let Some(step) = self.grave(&verdict)
            && checked.as_ref() != Some(&step)
        {
            let request = Request::Get { path: paths.elected() };
            return self.elector_perform(request, Pending::Check(step, Check::Elected));
        }
        let (request, pending) = match verdict {
            Verdict::Wait { reason, sentence, loud } => {
                self.sentence.clone_from(&sentence);
                let level = if loud { Level::Warn } else { Level::Info };
                self.note(level, NoteKind::Skipped(reason), sentence.clone());
                self.skipped = Some(Skipped { reason, sentence });
                return;
            }
            Verdict::Write(elected, version) | Verdict::Depose(_, elected, version) => {
                let path = paths.elected();
                match (elected.encode(&path), version) {
                    (Ok(data), Some(version)) => {
                        let version = self.rules.version(version);
                        let pending = Pending::Decision(elected, Some(version), None);
                        (Request::Set { path, data, version }, pending)
                    }
                    (Ok(data), None) => {
                        let pending = Pending::Decision(elected, None, None);
                        (Request::Create { path, data, ephemeral: false }, pending)
                    }
                    (Err(error), _) => return self.elector_later(&error.to_string()),
                }
            }
            Verdict::Begin(elected, over, begun) => match self.beginning(&elected, over, &begun) {
                Ok(request) => {
                    let over = over.map(|version| self.rules.version(version));
                    (request, Pending::Decision(elected, over, Some(begun)))
                }
                Err(error) => return self.elector_later(&error.to_string()),
            },
            Verdict::Vacate { slot, place: version, decision: unchanged_version } => {
                let (path, unchanged) = (paths.place(slot), paths.elected());
                let request = Request::DeleteWhile { path, version, unchanged, unchanged_version };
                (request, Pending::Vacate(slot))
            }
            Verdict::Answer(name, version, request) | Verdict::Refuse(name, version, request) => {
                let path = paths.request(&name);
                match request.encode(&path) {
                    Ok(data) => (Request::Set { path, data, version }, Pending::Answer(name, request)),
                    Err(error) => return self.elector_later(&error.to_string()),
                }
            }
            Verdict::Trim(name) => {
                (Request::Delete { path: paths.request(&name), version: None }, Pending::Trim(name))
            }
        };
        let request = match request {
            // It replaces nothing.
            Request::Create { .. } => request,
            request => self.as_candidate(request),
        };
        self.elector_perform(request, pending);
    }

    /// Carried out only while the own ballot is there. A version names no life of a znode: once an administrator has
    /// deleted the decision and it was written again, or a request and another one has got its name, a write that
    /// comes late can meet the version that it asks for. The ballots are deleted with that tree, and a ballot's name
    /// never comes again.
    ///
    /// Where the decision alone is deleted, the ballots remain. What the elector has sent before arrives before what it
    /// writes then, for it is one session. The commit of a successor that is on its way meanwhile can still meet
    /// the version that it asks for; members remember the term that it replaced, and the next one is above both.
    pub(super) fn as_candidate(&self, request: Request) -> Request {
        match self.registration.ballot() {
            Some(ballot) => {
                Request::While { there: self.config.paths.ballot(ballot), request: Box::new(request) }
            }
            None => request,
        }
    }

    /// Writes a decision and the request that it begins together. So a request is either begun, or withdrawn or ended
    /// by another write: never both.
    fn beginning(
        &self,
        elected: &Elected,
        over: Option<i32>,
        begun: &Begun,
    ) -> Result<Request, crate::record::RecordError> {
        let path = self.config.paths.elected();
        let data = elected.encode(&path)?;
        let decision = match over {
            Some(version) => Request::Set { path, data, version: self.rules.version(version) },
            None => Request::Create { path, data, ephemeral: false },
        };
        let path = self.config.paths.request(&begun.name);
        let data = begun.request.encode(&path)?;
        Ok(Request::Together { request: Box::new(decision), path, data, version: begun.version })
    }

    fn elector_perform(&mut self, request: Request, pending: Pending) {
        let op = self.perform(request);
        if let (Some(op), Some(elector)) = (op, &mut self.elector) {
            elector.op = Some((op, pending));
        }
    }

    fn elector_later(&mut self, why: &str) {
        self.note(Level::Warn, NoteKind::Trouble, format!("the decision is delayed: {why}"));
        if let Some(elector) = &mut self.elector {
            elector.retry_at = Some(self.now.time + RETRY);
        }
    }

    pub(super) fn elector_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        let Some(elector) = &mut self.elector else {
            return false;
        };
        let Some((_, pending)) = elector.op.take_if(|(known, _)| *known == op) else {
            return false;
        };
        match (pending, outcome) {
            (Pending::Decision(elected, _, begun), Outcome::Changed { version, mzxid }) => {
                let czxid = self.view.elected.meta().map_or(0, |m| m.czxid);
                self.decided(*elected, Meta { version: *version, czxid, mzxid: *mzxid, owner: 0 });
                self.has_begun(begun, *mzxid);
            }
            (Pending::Decision(elected, _, begun), Outcome::Created { czxid, .. }) => {
                self.decided(*elected, Meta { version: 0, czxid: *czxid, mzxid: *czxid, owner: 0 });
                self.has_begun(begun, *czxid);
            }
            // Lost the race, or an unknown outcome: read, then look again.
            (
                Pending::Decision(_, over, _),
                Outcome::Stale | Outcome::Exists | Outcome::Missing | Outcome::Unknown(_),
            ) => {
                let refused = over.filter(|_| *outcome == Outcome::Stale);
                self.elector_perform(
                    Request::Get { path: self.config.paths.elected() },
                    Pending::ReadElected(refused),
                );
            }
            (Pending::Check(step, check), outcome) => self.checked(step, check, outcome),
            (Pending::ReadElected(refused), Outcome::Got(node)) => {
                if refused.is_some() && refused == node.as_ref().map(|node| node.version) {
                    self.registration.list_ballots();
                    self.elector_later("it could not be written over one that has not changed");
                }
                self.see_elected(node.as_ref());
            }
            (
                Pending::Vacate(slot),
                Outcome::Ok | Outcome::Missing | Outcome::Stale | Outcome::Unknown(_),
            ) => {
                if *outcome == Outcome::Stale {
                    self.registration.list_ballots();
                }
                self.elector_perform(
                    Request::Get { path: self.config.paths.place(slot) },
                    Pending::ReadPlace(slot),
                );
            }
            (Pending::ReadPlace(slot), Outcome::Got(node)) => {
                self.see_place(slot, node.as_ref());
                self.office_saw_place(slot, node.as_ref());
            }
            // Known before the watch brings it.
            (Pending::Answer(name, request), Outcome::Changed { version, mzxid }) => {
                self.view.answered(&name, *request, *version, *mzxid);
            }
            (Pending::Trim(name), Outcome::Ok | Outcome::Missing) => self.view.trimmed(&name),
            (_, outcome) => {
                let why = format!("{outcome:?}");
                self.elector_later(&why);
            }
        }
        true
    }

    /// What there is to check before this verdict is carried out.
    fn grave(&self, verdict: &Verdict) -> Option<Grave> {
        let ouster = |slot: usize, decision: Option<i32>| {
            Some(Grave::Ouster { slot, decision, place: self.view.place(slot).meta() })
        };
        match verdict {
            Verdict::Refuse(name, ..) => Some(Grave::Refusal(name.clone())),
            Verdict::Depose(slot, _, decision) => ouster(*slot, *decision),
            Verdict::Vacate { slot, decision, .. } => ouster(*slot, Some(*decision)),
            _ => None,
        }
    }

    /// One reading of those before a grave step. What differs from the view goes into it,
    /// and the next pass may find that there is no reason for the step.
    fn checked(&mut self, step: Grave, check: Check, outcome: &Outcome) {
        let paths = self.config.paths.clone();
        match (check, outcome) {
            (Check::Elected, Outcome::Got(node)) => {
                self.see_elected(node.as_ref());
                let request = Request::Get { path: paths.place(0) };
                self.elector_perform(request, Pending::Check(step, Check::Place(0)));
            }
            (Check::Place(slot), Outcome::Got(node)) => {
                self.see_place(slot, node.as_ref());
                self.office_saw_place(slot, node.as_ref());
                let (request, check) = match slot + 1 {
                    next if next < self.slots_watched() => {
                        (Request::Get { path: paths.place(next) }, Check::Place(next))
                    }
                    _ => (Request::Children { path: paths.nodes() }, Check::Members),
                };
                self.elector_perform(request, Pending::Check(step, check));
            }
            (Check::Members, Outcome::Names(names)) => {
                let same = names.len() == self.view.member_nodes.len()
                    && names.iter().all(|name| self.view.member_nodes.contains(name));
                match (&mut self.elector, &step) {
                    (Some(_), Grave::Refusal(_)) if same => {
                        let request = Request::Get { path: paths.control() };
                        self.elector_perform(request, Pending::Check(step, Check::Control));
                    }
                    (Some(elector), Grave::Ouster { .. }) if same => elector.checked = Some(step),
                    // The watch is about to tell.
                    _ => self.elector_later("the membership has changed and is being read"),
                }
            }
            (Check::Control, Outcome::Got(node)) => {
                self.view.control = Known::read(&paths.control(), node.as_ref());
                if let Some(elector) = &mut self.elector {
                    elector.checked = Some(step);
                }
            }
            (_, outcome) => {
                let why = format!("{outcome:?}");
                self.elector_later(&why);
            }
        }
    }

    /// What was written together with a decision is known before the watch brings it.
    fn has_begun(&mut self, begun: Option<Begun>, mzxid: i64) {
        if let Some(Begun { name, version, request }) = begun {
            self.view.answered(&name, *request, version + 1, mzxid);
        }
    }

    fn decided(&mut self, elected: Elected, meta: Meta) {
        let news = self.view.elected.record().is_none_or(|known| known.term != elected.term);
        if news {
            let text = match self.memory.has(elected.term) {
                true => format!(
                    "the decision was missing, and is written again: term {}: {}",
                    elected.term, elected.sentence
                ),
                false => format!("term {}: {}", elected.term, elected.sentence),
            };
            self.sentence.clone_from(&text);
            self.skipped = None;
            self.note(Level::Info, NoteKind::Decided, text);
        }
        // A watch may have been quicker, and have read what came after it already.
        if self.view.elected.meta().is_none_or(|known| known.mzxid <= meta.mzxid) {
            self.know_elected(Known::Present(elected, meta));
        }
    }
}
