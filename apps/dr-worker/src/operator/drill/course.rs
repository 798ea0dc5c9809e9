//! The course of a drill: what follows from what is read. It has neither clock nor I/O.
//!
//! ```text
//!   Agreeing ─▶ Awaiting ─▶ Staying ─▶ Returning ─▶ MovingBack ─▶ Settling ─▶ over
//!       └───────────┴───────────┴───────────┴────────────┴────────────┴──▶ Restoring ─▶ over: aborted
//! ```
//!
//! Any state can end the drill: a state that does not apply to a mode is passed at once.

mod deviation;

use std::{collections::BTreeMap, time::Duration};

use crate::znodes::{DrillMode, DrillState};
use election_core::{
    config::MemberId,
    internals::record::{RequestState, Target},
    strategy::in_words,
};

use super::{
    script::Script,
    seen::{Decided, Leader, Seen},
    trace::{Trace, event},
};
use crate::{
    commands::drill::{
        checks::target,
        report::{DrillEvent, DrillOutcome, Who},
    },
    typed::Typed,
};

/// How long an abort may take to move the job back.
const RESTORE_WITHIN: Duration = Duration::from_secs(60);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Let the members carry the order out.
    Go,
    /// Request a switchover.
    Move(Target),
    /// Withdraw the request.
    Withdraw,
}

/// A change of leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaderChange {
    pub(super) from: Who,
    pub(super) to: Who,
    pub(super) term: u64,
    pub(super) is_back: bool,
    /// When the request or the fault was.
    pub(super) at: Duration,
    /// When the new leader was seen READY.
    pub(super) ready_at: Duration,
    pub(super) decided: Option<Decided>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The members agree, and begin to probe.
    Agreeing,
    /// The members or the elector carry it out.
    Awaiting,
    /// The new leader serves.
    Staying,
    /// The members that were killed or cut off come back.
    Returning,
    /// The job moves back.
    MovingBack,
    /// The former leader serves again, as the probes are to see.
    Settling,
    /// The drill is aborted, and the job moves back if that is safe.
    Restoring {
        has_asked: bool,
    },
    Over,
}

/// A drill under way.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) script: Script,
    stage: Stage,
    /// When this stage began.
    since: Duration,
    /// Whether the members have agreed, and the drill goes on: something may have happened.
    pub(super) has_begun: bool,
    /// The time whose data each member would have lost, as it was seen last before the drill acted.
    pub(super) lags: BTreeMap<MemberId, Duration>,
    /// The leader that the drill expects.
    leader: Leader,
    result: Option<(DrillOutcome, String)>,
    pub(super) changes: Vec<LeaderChange>,
    /// What has happened, in the order in which it was seen.
    pub(super) events: Vec<DrillEvent>,
    trace: Trace,
}

impl Course {
    pub(super) fn new(script: Script) -> Self {
        let leader = script.from.clone();
        let (stage, since) = (Stage::Agreeing, Duration::ZERO);
        let (changes, events, trace) = (Vec::new(), Vec::new(), Trace::default());
        let (result, has_begun, lags) = (None, false, BTreeMap::new());
        let mut course =
            Self { script, stage, since, has_begun, lags, leader, result, changes, events, trace };
        let script = &course.script;
        let what = format!("began: {}, target {}", script.mode.as_str(), target(&script.to));
        course.note(Duration::ZERO, "drill", what);
        course
    }

    /// The outcome and its sentence, once it is over.
    pub(super) fn result(&self) -> Option<&(DrillOutcome, String)> {
        self.result.as_ref().filter(|_| self.stage == Stage::Over)
    }

    /// What was read `at` this time after the beginning. Returns what is to be done now.
    pub(super) fn see(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        let news = self.trace.news(seen, at, self.script.started_ms);
        self.events.extend(news);
        // After that the lag of a member that has lost its leader grows, or is no longer measured.
        if !self.has_begun {
            self.lags.extend(seen.lags.clone());
        }
        match self.stage {
            Stage::Over => None,
            Stage::Restoring { has_asked } => self.restore(seen, at, has_asked),
            _ => match self.left_plan(seen, at) {
                Some(why) => self.abort(why, seen, at),
                None => self.go_on(seen, at),
            },
        }
    }

    fn go_on(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        match self.stage {
            Stage::Agreeing => self.agree(seen, at),
            Stage::Awaiting => self.wait(seen, at),
            Stage::Staying if at - self.since >= self.script.stay => {
                self.enter(Stage::Returning, at);
                self.go_on(seen, at)
            }
            Stage::Returning => self.return_all(seen, at),
            Stage::MovingBack => self.move_back(seen, at),
            Stage::Settling if at - self.since >= self.script.stay => {
                self.end(self.passed(), at);
                None
            }
            Stage::Staying | Stage::Settling | Stage::Restoring { .. } | Stage::Over => None,
        }
    }

    fn enter(&mut self, stage: Stage, at: Duration) {
        (self.stage, self.since) = (stage, at);
    }

    fn agree(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        if self.silent(seen).next().is_some() || at < self.script.baseline {
            return None;
        }
        self.has_begun = true;
        self.enter(Stage::Awaiting, at);
        let (what, act) = match (self.script.mode, self.script.to.clone()) {
            (DrillMode::Switchover, to) => {
                (format!("requests a switchover to {}", target(&to)), Act::Move(to))
            }
            _ => ("lets the members begin".to_owned(), Act::Go),
        };
        self.note(at, "drill", what);
        Some(act)
    }

    /// The members that have not answered yet.
    fn silent<'a>(&'a self, seen: &'a Seen) -> impl Iterator<Item = &'a MemberId> {
        self.script.carriers.iter().filter(|member| seen.answer(member).is_none())
    }

    /// Waits for what the order brings about.
    fn wait(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        if self.script.mode.spares_leader() {
            return self.wait_beside_leader(seen, at);
        }
        let leader = seen.leader.as_ref().filter(|leader| leader.is_ready)?;
        if leader.term > self.leader.term {
            self.took_over(leader, seen, at, false);
            self.enter(Stage::Staying, at);
            return self.go_on(seen, at);
        }
        let is_ready = |member| seen.has_reached(member, DrillState::Ready);
        if self.script.mode == DrillMode::KillJob && self.script.carriers.iter().all(is_ready) {
            self.enter(Stage::Staying, at);
        }
        None
    }

    fn wait_beside_leader(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        let member = self.script.carriers.first()?.clone();
        let answer = seen.answer(&member)?;
        let took = |from, to| {
            let (from, to) = (answer.step(from)?, answer.step(to)?);
            Some(in_words(Duration::from_millis(to.after_ms.saturating_sub(from.after_ms))))
        };
        if answer.step(DrillState::Ended).is_some() {
            let leader = &self.leader.who;
            let result = match took(DrillState::Started, DrillState::Ready) {
                Some(took) if self.script.mode == DrillMode::KillStandby => (
                    DrillOutcome::Passed,
                    format!(
                        "the standby of {member} was killed, and ready again after {took}; {leader} leads on"
                    ),
                ),
                Some(took) => (
                    DrillOutcome::Passed,
                    format!(
                        "{member} started the job without a token; it was ready after {took}, and was stopped"
                    ),
                ),
                None => (DrillOutcome::Failed, format!("{member} started the job, but it was not ready")),
            };
            self.end(result, at);
        }
        None
    }

    fn took_over(&mut self, leader: &Leader, seen: &Seen, at: Duration, is_back: bool) {
        let begun = self.changes.last().map_or(Duration::ZERO, |change| change.ready_at);
        self.changes.push(LeaderChange {
            from: self.leader.who.clone(),
            to: leader.who.clone(),
            term: leader.term,
            is_back,
            at: if is_back { self.since } else { self.fault_at(seen).unwrap_or(self.since).max(begun) },
            ready_at: at,
            decided: seen.decision.clone().filter(|decided| decided.term == leader.term),
        });
        self.leader = leader.clone();
    }

    /// When the fault happened, by the first member that reports it.
    fn fault_at(&self, seen: &Seen) -> Option<Duration> {
        if self.script.mode == DrillMode::Switchover {
            return None;
        }
        let answers = seen.answers.iter().filter(|answer| self.script.carriers.contains(&answer.member));
        let started =
            answers.filter_map(|answer| Some(answer.unix_ms(answer.step(DrillState::Started)?.after_ms)));
        started.min().map(|unix_ms| self.after(unix_ms))
    }

    fn after(&self, unix_ms: u64) -> Duration {
        Duration::from_millis(unix_ms.saturating_sub(self.script.started_ms))
    }

    /// Waits until the members that were killed or cut off are back.
    fn return_all(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        let Script { mode, carriers, from, .. } = &self.script;
        let leave = matches!(mode, DrillMode::KillWorker | DrillMode::CutSite);
        let is_away = |member: &&MemberId| {
            !seen.has_reached(member, DrillState::Ended) || !seen.members.contains(*member)
        };
        if leave && carriers.iter().any(|member| is_away(&member)) {
            return None;
        }
        if !self.script.back || self.leader.who.member == from.who.member {
            self.end(self.passed(), at);
            return None;
        }
        let member = from.who.member.clone();
        // It has just come back.
        if !seen.members.contains(&member) {
            return None;
        }
        self.enter(Stage::MovingBack, at);
        self.note(at, "drill", format!("requests the switchover back to {member}"));
        Some(Act::Move(Target::Member(member)))
    }

    fn move_back(&mut self, seen: &Seen, at: Duration) -> Option<Act> {
        let leader = seen.leader.as_ref().filter(|leader| leader.is_ready)?;
        if leader.term > self.leader.term {
            self.took_over(leader, seen, at, true);
            self.enter(Stage::Settling, at);
        }
        None
    }

    fn passed(&self) -> (DrillOutcome, String) {
        let before = &self.script.from.who;
        let sentence = match (&self.changes[..], self.script.mode) {
            ([], _) => format!("{before} restarted the job, and leads on"),
            ([first], _) => format!("{} took over from {before}", first.to),
            ([first, ..], _) => format!("{} took over from {before}, and the job was moved back", first.to),
        };
        (DrillOutcome::Passed, sentence)
    }

    fn end(&mut self, (outcome, sentence): (DrillOutcome, String), at: Duration) {
        self.note(at, "drill", format!("{outcome}: {sentence}"));
        self.result = Some((outcome, sentence));
        self.enter(Stage::Over, at);
    }

    fn abort(&mut self, why: String, seen: &Seen, at: Duration) -> Option<Act> {
        self.note(at, "drill", format!("aborts: {why}"));
        self.result = Some((DrillOutcome::Aborted, why));
        self.enter(Stage::Restoring { has_asked: false }, at);
        self.restore(seen, at, false)
    }

    /// Withdraws what is pending, and moves the job back if that was the plan and nothing is against it.
    fn restore(&mut self, seen: &Seen, at: Duration, has_asked: bool) -> Option<Act> {
        let before = self.script.from.who.member.clone();
        let is_hasty = seen.signals.len() > 1 || at - self.since >= RESTORE_WITHIN;
        match (&seen.request, &seen.leader) {
            _ if is_hasty => {}
            (Some(RequestState::Pending), _) if !has_asked => return Some(Act::Withdraw),
            (Some(RequestState::Pending | RequestState::Accepted { .. }), _) => return None,
            (_, Some(leader)) if leader.who.member == before => {}
            _ if has_asked => {}
            (_, Some(leader)) if self.may_restore(seen) && leader.is_ready => {
                self.note(at, "drill", format!("requests the switchover back to {before}"));
                self.stage = Stage::Restoring { has_asked: true };
                return Some(Act::Move(Target::Member(before)));
            }
            // Another member is about to lead.
            (_, leader)
                if self.may_restore(seen) && leader.as_ref().is_none_or(|leader| !leader.is_ready) =>
            {
                return None;
            }
            _ => {}
        }
        let (_, why) = self.result.take().unwrap_or((DrillOutcome::Aborted, String::new()));
        let job = match &seen.leader {
            // By the term: an interruption can come with the first look at another leader.
            Some(leader) if leader.who.member == before && leader.term == self.script.from.term => {
                match self.has_begun && self.script.mode.harms_leader() {
                    true => format!("{before} still leads, and the members may have begun"),
                    false => "nothing was moved".to_owned(),
                }
            }
            Some(leader) if leader.who.member == before => format!("{before} leads again"),
            Some(leader) => {
                let back = Typed::verb("switchover").job(&self.script.job).arg("--to").arg(&before);
                format!("{} leads; `{back}` moves the job back", leader.who)
            }
            None => "no member leads at the moment".to_owned(),
        };
        self.end((DrillOutcome::Aborted, format!("{why}; {job}")), at);
        None
    }

    fn may_restore(&self, seen: &Seen) -> bool {
        self.script.back
            && seen.is_conducted
            && seen.obstacle.is_none()
            && seen.members.contains(&self.script.from.who.member)
    }

    fn note(&mut self, at: Duration, who: &str, what: String) {
        self.events.push(event(at, who, what));
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
pub(super) mod tests;
