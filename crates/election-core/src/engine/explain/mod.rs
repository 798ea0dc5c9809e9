//! Why leadership is where it is: what an elector would ask, answer and wait for, from
//! what anybody can read.
//!
//! There is no second opinion in here. The elector's own pass is made over what was read,
//! with a [notebook](super::elector::notebook) that it writes down in what it asks; and made again
//! with one reason to wait after the other left out, to see what it would decide then.
//! What only the elector's memory knows, since when it has seen something, is taken from
//! the times in the records, or said to be unknown ([`Bound`]).

pub(in crate::engine) mod simulate;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    elector::{
        limit::UNLIMITED,
        losses::patience,
        notebook::{Asked, Notebook},
        pass::{Decider, Facts, Verdict},
        watchdog::{Phase, Watchdog},
    },
    policy::{Confirm, Policy},
    reading::view::View,
    rules::Rules,
    znode::{Known, Meta},
};
use crate::{
    calendar::Windows,
    ids::{Ballot, MemberId},
    record::{
        Cause, Control, Current, Elected, FiledRequest, Given, MAX_SLOTS, MemberRecord, Mode, Named,
        RecordError, Slot, Status,
    },
    strategy::{Ranking, Strategy},
    time::{Now, Time, in_words},
};

/// An election under an elector as it was read at one moment.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The living members, lowest ballot first.
    pub members: Vec<MemberRecord>,
    /// The lowest living ballot.
    pub lowest: Option<Ballot>,
    /// The decision.
    pub elected: Option<Elected>,
    /// Who is in office, by slot.
    pub offices: Vec<Option<Current>>,
    /// The standing orders.
    pub control: Control,
    /// The operators' requests by name.
    pub requests: Vec<FiledRequest>,
    /// Records that can't be used.
    pub unreadable: Vec<RecordError>,
}

/// What an elector makes of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// By whose wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Who decides; nobody if no member stands, or the record of the one who does can't be
    /// read.
    pub elector: Option<MemberId>,
    /// What is to be done next.
    pub step: Step,
    /// The lines of succession that are written are not those that an elector with this policy
    /// would write: they are about to be brought up to date, or whoever decides has another
    /// policy.
    pub other_line: bool,
    /// Slot by slot.
    pub slots: Vec<SlotExplanation>,
}

/// What an elector does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether it does anything but wait.
    pub acts: bool,
    /// The word for it; of who waits, the `reason` in the metrics.
    pub reason: &'static str,
    /// The sentence.
    pub sentence: String,
}

/// What an elector makes of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotExplanation {
    /// Counted from 0.
    pub slot: usize,
    /// What is asked about it now.
    pub question: Cause,
    /// Who is named.
    pub named: Option<Named>,
    /// Who is in office, and how far.
    pub in_office: Option<(Named, Status)>,
    /// Everyone who may lead it, best first, and everyone who may not, those included that
    /// are not asked about: who does not stand, or has another slot.
    pub ranking: Ranking,
    /// What would be decided if nothing stood in the way; nothing if it is as it should be.
    pub proposal: Option<Proposal>,
    /// What stands in the way of that, or of knowing it.
    pub obstacles: Vec<Obstacle>,
}

/// A decision that has not been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Who would be named; nobody while the place is being vacated.
    pub named: Option<Named>,
    /// Why.
    pub cause: Cause,
    /// The sentence that the decision would have.
    pub sentence: String,
}

/// Why a decision is not taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The word for it, as in the metrics.
    pub reason: &'static str,
    /// The sentence.
    pub sentence: String,
    /// When it goes by itself, in milliseconds since the Unix epoch; never, if nothing
    /// stands here.
    pub until_ms: Option<u64>,
    /// How well that time is known.
    pub bound: Bound,
}

/// How well a time is known to who has not watched the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It stands in the records.
    Exactly,
    /// Then at the earliest: an elector that took over meanwhile counts from when it did.
    Earliest,
    /// Then at the latest: the elector has counted for a while already.
    Latest,
}

impl Bound {
    /// The words for it, before a time.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exactly => "at",
            Self::Earliest => "not before",
            Self::Latest => "at the latest at",
        }
    }
}

/// What an elector with this policy and strategy makes of what was `seen`, at `unix_ms` of
/// the wall clock. Who decides is whoever has the lowest ballot, whoever asks.
///
/// Pure: the same answer to the same question.
pub fn explain(seen: &Seen, policy: &Policy, strategy: &dyn Strategy, unix_ms: u64) -> Explanation {
    Looker::new(seen, policy, strategy, unix_ms).explain()
}

/// Why nothing is decided of an election that nobody takes part in.
const NO_MEMBER: &str = "nobody decides: no member is there";

fn no_elector(sentence: &str) -> Step {
    Step { acts: false, reason: "no-elector", sentence: sentence.to_owned() }
}

/// Whoever looks at an election with an elector's eyes.
pub(in crate::engine) struct Looker<'a> {
    pub(in crate::engine) seen: &'a Seen,
    policy: &'a Policy,
    strategy: &'a dyn Strategy,
    now: Now,
    elector: Option<&'a MemberRecord>,
}

/// One more reason to wait left out, each time; or what has been seen so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Without {
    Memory,
    Nothing,
    Waits,
    Holds,
    Limit,
}

/// What a look at one slot has come to.
struct Looked {
    verdict: Verdict,
    asked: Vec<Asked>,
    waited: Vec<(&'static str, Duration)>,
    wake: Option<Time>,
}

impl<'a> Looker<'a> {
    pub(in crate::engine) fn new(
        seen: &'a Seen,
        policy: &'a Policy,
        strategy: &'a dyn Strategy,
        unix_ms: u64,
    ) -> Self {
        let elector = seen.members.iter().find(|m| seen.lowest.as_ref() == Some(&m.ballot));
        // A steady clock that began with the wall clock.
        let now = Now::new(Time::from_millis(unix_ms), unix_ms);
        Self { seen, policy, strategy, now, elector }
    }

    /// The elector's verdict over everything; nobody decides if nobody stands.
    pub(in crate::engine) fn verdict(&self) -> Option<Verdict> {
        self.elector?;
        let (view, notebook) = (self.seen.view(self.policy), Notebook::default());
        let facts = self.facts(self.policy, &view, &notebook);
        Some(facts.map_or_else(|wait| wait, |facts| facts.pass(&mut self.memory())))
    }

    fn explain(&self) -> Explanation {
        let step = match (self.elector, self.verdict()) {
            (_, Some(verdict)) => self.step(verdict),
            (None, None) if self.seen.lowest.is_some() && !self.seen.members.is_empty() => {
                no_elector("nobody decides: the one with the lowest ballot has no record that can be read")
            }
            (_, None) => no_elector(NO_MEMBER),
        };
        let slots = match step.reason {
            "unreadable" => Vec::new(),
            _ => (0..self.slots()).map(|slot| self.slot(slot, &step)).collect(),
        };
        let elector = self.elector.map(|m| m.member.clone());
        Explanation { unix_ms: self.now.unix_ms, elector, step, other_line: self.other_line(), slots }
    }

    fn other_line(&self) -> bool {
        let (view, notebook) = (self.seen.view(self.policy), Notebook::default());
        let (Some(elected), Ok(facts)) = (&self.seen.elected, self.facts(self.policy, &view, &notebook))
        else {
            return false;
        };
        // While a place is taken, or not yet, the lines are left as the decision had them.
        let serves = |(slot, named): (usize, &Named)| {
            self.office(slot).is_some_and(|c| c.ballot == named.ballot && c.status == Status::Ready)
        };
        let kept = self.elector.is_some() && elected.leaders().all(serves);
        kept && facts.question(0, self.now.unix_ms).refresh(elected).is_some()
    }

    /// Those that there are, and those that there are to be.
    fn slots(&self) -> usize {
        let known = self.seen.elected.as_ref().map_or(0, |e| e.slots.len());
        known.max(self.policy.slots.clamp(1, MAX_SLOTS))
    }

    fn slot(&self, slot: usize, step: &Step) -> SlotExplanation {
        let mut obstacles = Vec::new();
        if step.reason == "no-elector" || step.reason == "observe" {
            let Step { reason, sentence, .. } = step.clone();
            obstacles.push(Obstacle { reason, sentence, until_ms: None, bound: Bound::Exactly });
        }
        if self.seen.control.mode == Mode::Manual
            && let Verdict::Wait { reason: "manual", sentence, .. } =
                self.look(slot, Without::Nothing, Mode::Manual).verdict
        {
            obstacles.push(Obstacle { reason: "manual", sentence, until_ms: None, bound: Bound::Exactly });
        }
        let (mut asked, mut proposal, mut waits) = (Vec::new(), None, Vec::new());
        // A step that is overdue by the records need not be so for an elector that has begun since.
        let begun_now = self.look(slot, Without::Memory, Mode::Auto).verdict;
        for without in [Without::Nothing, Without::Waits, Without::Holds, Without::Limit] {
            let Looked { verdict, asked: questions, waited, wake } = self.look(slot, without, Mode::Auto);
            asked = questions;
            waits.extend(waited.iter().map(|(reason, _)| *reason));
            self.note_waits(slot, &asked, &waited, &mut obstacles);
            match verdict {
                Verdict::Wait { reason: "steady", .. } => {}
                Verdict::Wait { reason, sentence, .. } => {
                    let until_ms = wake.map(|at| self.wall(at));
                    let obstacle = Obstacle { reason, sentence, until_ms, bound: bound_of(reason) };
                    match obstacles.iter_mut().find(|o| o.reason == reason) {
                        // The less else is waited for, the more it is about this alone.
                        Some(known) if !waits.contains(&reason) => *known = obstacle,
                        Some(_) => {}
                        None => obstacles.push(obstacle),
                    }
                }
                verdict => {
                    if let Verdict::Wait { reason: reason @ ("acquire" | "takeover"), sentence, .. } =
                        begun_now
                    {
                        let until_ms = Some(self.now.unix_ms);
                        obstacles.push(Obstacle { reason, sentence, until_ms, bound: Bound::Earliest });
                    }
                    proposal = self.proposal(slot, verdict);
                    break;
                }
            }
        }
        if proposal.as_ref().is_some_and(|p| p.cause != Cause::BetterCandidate) {
            // It would be decided without regard to what a better candidate waits for.
            obstacles.retain(|o| !waits.contains(&o.reason));
        }
        let about = |a: &&Asked| proposal.as_ref().is_none_or(|p: &Proposal| p.cause == a.cause);
        let asked = asked.iter().rfind(about).or(asked.first()).cloned();
        let Asked { cause, ranking, .. } =
            asked.unwrap_or_else(|| self.would_ask(slot, proposal.as_ref().and_then(|p| p.named.as_ref())));
        let elected = self.seen.elected.as_ref();
        SlotExplanation {
            slot,
            question: cause,
            named: elected.and_then(|e| e.named(slot)).cloned(),
            in_office: self.office(slot).map(|c| (c.named(), c.status)),
            ranking,
            proposal,
            obstacles,
        }
    }

    /// What an elector makes of one slot that need not wait for this or that.
    fn look(&self, slot: usize, without: Without, mode: Mode) -> Looked {
        let mut view = self.seen.view(self.policy);
        if let Known::Present(control, _) = &mut view.control {
            control.mode = mode;
        }
        let mut policy = self.policy.clone();
        let mut watchdog = if without == Without::Memory { Watchdog::default() } else { self.memory() };
        let notebook = Notebook::default();
        if without >= Without::Waits {
            policy.failback_windows = Windows::default();
            // Who is better must be known for it to have been better for long.
            if let Ok(facts) = self.facts(&policy, &view, &notebook) {
                facts.look_at_either(slot, &mut watchdog);
            }
            notebook.take_asked();
            notebook.take_waits();
            watchdog.wait_no_longer();
        }
        if without >= Without::Holds {
            view.members.iter_mut().flatten().for_each(|m| m.holds = None);
            if let Known::Present(control, _) = &mut view.control {
                control.stay.clear();
            }
            policy.confirm = Confirm::Never;
        }
        if without >= Without::Limit {
            policy.max_takeovers.count = UNLIMITED;
        }
        watchdog.begin();
        let verdict = match self.facts(&policy, &view, &notebook) {
            Ok(facts) => facts.look_at_either(slot, &mut watchdog),
            Err(wait) => wait,
        };
        let mut asked = notebook.take_asked();
        asked.retain(|a| a.slot == slot);
        Looked { verdict, asked, waited: notebook.take_waits(), wake: watchdog.wake() }
    }

    fn facts<'b>(
        &'b self,
        policy: &'b Policy,
        view: &'b View,
        notebook: &'b Notebook,
    ) -> Result<Facts<'b>, Verdict> {
        // It has its id in what it writes, and nothing else depends on who it is.
        let me = self.elector.or(self.seen.members.first());
        let Some(me) = me else {
            return Err(Verdict::Wait { reason: "no-elector", sentence: NO_MEMBER.to_owned(), loud: true });
        };
        let decider = Decider {
            now: self.now,
            me: &me.member,
            policy,
            strategy: self.strategy,
            rules: Rules::default(),
        };
        Facts::of(decider, view, None, Some(notebook))
    }

    /// What an elector remembers that has seen everything of which the records tell when it
    /// was.
    fn memory(&self) -> Watchdog {
        let mut watchdog = Watchdog::default();
        let Some(elected) = &self.seen.elected else { return watchdog };
        for (slot, named) in elected.leaders() {
            let Given { term, decided_at_ms, .. } = elected.slots[slot].given;
            let (phase, since) = match self.office(slot) {
                None => (Phase::Acquire, decided_at_ms),
                Some(c) if c.ballot != named.ballot || c.term != term => (Phase::Release, decided_at_ms),
                Some(c) if c.status == Status::Progress => (Phase::Takeover, c.since_ms),
                Some(c) => (Phase::Serving, c.ready_ms.unwrap_or(c.since_ms)),
            };
            watchdog.assume(slot, term, phase, Time::from_millis(since).min(self.now.time));
        }
        watchdog
    }

    /// The question that would be asked next of a slot of which nothing is asked now, once
    /// whoever is named, or about to be, leads.
    fn would_ask(&self, slot: usize, about_to_be: Option<&Named>) -> Asked {
        let (view, notebook) = (self.seen.view(self.policy), Notebook::default());
        if let Ok(facts) = self.facts(self.policy, &view, &notebook) {
            let question = facts.question(slot, self.now.unix_ms);
            let elected = self.seen.elected.as_ref();
            match about_to_be.or_else(|| elected?.named(slot)) {
                Some(named) => drop(question.rank_elective(&named.ballot)),
                None => {
                    let cause =
                        elected.and_then(|e| e.given(slot)).map_or(Cause::Startup, |given| given.cause);
                    drop(question.decide(cause, "", None, None));
                }
            }
        }
        let asked = notebook.take_asked().pop();
        let cause = self.seen.elected.as_ref().map_or(Cause::Startup, |_| Cause::LeaderLost);
        asked.unwrap_or(Asked { slot, cause, ranking: Ranking::default() })
    }

    fn note_waits(
        &self,
        slot: usize,
        asked: &[Asked],
        waited: &[(&'static str, Duration)],
        obstacles: &mut Vec<Obstacle>,
    ) {
        let leader = self.seen.elected.as_ref().and_then(|e| e.named(slot));
        let leader = leader.map_or_else(String::new, |n| n.member.to_string());
        let better = asked.last().and_then(|a| a.ranking.first());
        let patience = match (better, &self.seen.elected) {
            (Some(better), Some(elected)) => {
                patience(self.policy, elected, &better.named.site, self.now.unix_ms)
            }
            _ => self.policy.better_after,
        };
        let better = better.map_or_else(String::new, |r| r.named.member.to_string());
        for (reason, wait) in waited {
            if obstacles.iter().any(|o| o.reason == *reason) {
                continue;
            }
            let policy = self.policy;
            let sentence = match *reason {
                "better-after" => format!(
                    "{better} must have been better than {leader} for {} without a break; since when it has been, \
                     only the elector knows",
                    in_words(patience)
                ),
                "min-tenure" => format!("{leader} leads for {} at least", in_words(policy.min_tenure)),
                "failback-window" => format!(
                    "leadership moves by itself to another site only within failback_windows ({})",
                    policy.failback_windows.texts().collect::<Vec<_>>().join("; ")
                ),
                other => format!("{other} is not over"),
            };
            let until_ms = Some(self.wall(self.now.time + *wait));
            obstacles.push(Obstacle { reason, sentence, until_ms, bound: bound_of(reason) });
        }
    }

    fn proposal(&self, slot: usize, verdict: Verdict) -> Option<Proposal> {
        let elected = self.seen.elected.as_ref();
        match verdict {
            Verdict::Write(next, _) | Verdict::Depose(_, next, _) | Verdict::Begin(next, ..) => {
                let Slot { named, given, .. } = next.slots.into_iter().nth(slot)?;
                Some(Proposal { named, cause: given.cause, sentence: given.sentence })
            }
            Verdict::Vacate { slot, .. } => {
                let holder = self.office(slot).map_or("its holder", |c| c.member.as_str());
                let cause = elected.and_then(|e| e.given(slot)).map_or(Cause::Failover, |given| given.cause);
                let sentence = format!("the place is taken from {holder}, and the next is named then");
                Some(Proposal { named: None, cause, sentence })
            }
            _ => None,
        }
    }

    fn step(&self, verdict: Verdict) -> Step {
        let acts = |reason, sentence: String| Step { acts: true, reason, sentence };
        match verdict {
            Verdict::Wait { reason, sentence, .. } => Step { acts: false, reason, sentence },
            Verdict::Write(next, _) | Verdict::Depose(_, next, _) | Verdict::Begin(next, ..) => {
                acts("decides", format!("term {}: {}", next.term, next.sentence()))
            }
            Verdict::Vacate { slot, .. } => {
                let sentence = self.proposal(slot, verdict).map(|p| p.sentence);
                acts("vacates", sentence.unwrap_or_default())
            }
            Verdict::Answer(name, _, request) | Verdict::Refuse(name, _, request) => {
                acts("answers", format!("request {name}, {}: {}", request.kind.as_str(), request.state))
            }
            Verdict::Trim(name) => acts("trims", format!("request {name} ended long ago, and is removed")),
        }
    }

    fn office(&self, slot: usize) -> Option<&'a Current> {
        self.seen.offices.get(slot)?.as_ref()
    }

    fn wall(&self, at: Time) -> u64 {
        let ahead = at.since(self.now.time).as_millis();
        self.now.unix_ms.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX))
    }
}

/// How well the end of a wait is known to who has not watched it from its beginning.
fn bound_of(reason: &str) -> Bound {
    match reason {
        "better-after" | "startup-wait" => Bound::Latest,
        "min-tenure" | "acquire" | "release" | "takeover" => Bound::Earliest,
        _ => Bound::Exactly,
    }
}

impl Facts<'_> {
    /// What is to be done about a slot, whether it has been decided already or is to be.
    fn look_at_either(&self, slot: usize, watchdog: &mut Watchdog) -> Verdict {
        match self.elected {
            None => self.first(watchdog),
            Some((elected, meta)) if slot < elected.slots.len() => {
                self.look_at(slot, elected, meta, watchdog)
            }
            Some((elected, meta)) => self.resize(elected, meta, watchdog),
        }
    }
}

impl Seen {
    /// The same as an elector keeps it.
    pub(in crate::engine) fn view(&self, policy: &Policy) -> View {
        // As new as can be.
        const ANY: Meta = Meta { version: 0, czxid: 0, mzxid: i64::MAX, owner: 0 };
        let unreadable = |end: &str| self.unreadable.iter().find(|error| error.path.ends_with(end)).cloned();
        let mut view = View::default();
        view.elected = match (&self.elected, unreadable("/leader/elected")) {
            (_, Some(error)) => Known::Unreadable(error, ANY),
            (Some(elected), None) => Known::Present(elected.clone(), ANY),
            (None, None) => Known::Absent,
        };
        view.control = match unreadable("/control") {
            Some(error) => Known::Unreadable(error, ANY),
            None => Known::Present(self.control.clone(), ANY),
        };
        view.members = Some(self.members.clone());
        view.requests = Some(self.requests.iter().map(|filed| (filed.clone(), ANY)).collect());
        view.unreadable.clone_from(&self.unreadable);
        let known = self.elected.as_ref().map_or(0, |e| e.slots.len()).max(self.offices.len());
        for slot in 0..known.max(policy.slots.clamp(1, MAX_SLOTS)) {
            let end =
                if slot == 0 { "/leader/current".to_owned() } else { format!("/leader/current-{slot}") };
            let place = match (self.offices.get(slot).cloned().flatten(), unreadable(&end)) {
                (_, Some(error)) => Known::Unreadable(error, ANY),
                (Some(current), None) => Known::Present(current, ANY),
                (None, None) => Known::Absent,
            };
            view.see_place(slot, place, None);
        }
        view
    }
}
