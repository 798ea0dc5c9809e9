//! The course of an evacuation: which step is to begin, what an outcome means, and how it goes on or back. Pure.
//!
//! ```text
//!   waiting ─▶ moving ─▶ done          undo: done, failed ─▶ waiting ─▶ moving ─▶ done
//!      ▲          └────▶ failed                  waiting ─▶ skipped
//!      └── resume ──────────┘       abandon: failed, waiting ─▶ skipped
//! ```
//!
//! How far it is as a whole follows from its steps, so no death can leave the two in disagreement.

use std::{collections::BTreeSet, time::Duration};

use crate::znodes::{Evacuation, EvacuationLeader, EvacuationState as State, EvacuationStep};

/// How far the clock of another member and that of the worker that writes the record may be apart.
pub(super) const SLACK_MS: u64 = 1_000;

/// How much of a reason is kept, in bytes: the record has a limit.
const WHY: usize = 160;

/// What a record may grow by for each of its steps, in bytes.
const GROWTH: usize = 600;

/// How far an evacuation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvacuationPhase {
    /// A step is under way, or is to begin.
    Running,
    /// A step has failed, and nothing is under way.
    Stopped,
    /// Everything is where it should be.
    Done,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// It leads where it should.
    Leads(EvacuationLeader),
    /// The job need not be moved, and why.
    Needless(Option<EvacuationLeader>, String),
    /// The next leader was lost, the job leads where it was, and what became of its request.
    Returned(String),
    /// It has failed, and why.
    Failed(String),
}

/// How often a job whose new leader is lost each time is moved at most before the evacuation stops, and after each order about it.
const MOVES: u64 = 3;

impl Evacuation {
    /// How far it is.
    pub(crate) fn phase(&self) -> EvacuationPhase {
        let any = |state: State| self.steps.iter().any(|step| step.state == state);
        if any(State::Begun) || !self.due().is_empty() {
            EvacuationPhase::Running
        } else if any(State::Failed) || any(State::Waiting) {
            EvacuationPhase::Stopped
        } else {
            EvacuationPhase::Done
        }
    }

    /// The steps that are to begin now. After a failure none is, except where the site is lost: then those that do not follow
    /// what failed.
    pub(crate) fn due(&self) -> Vec<usize> {
        let is_stopped = !self.is_forced() && self.steps.iter().any(|step| step.state == State::Failed);
        let is_done = |job: &String| {
            let step = self.steps.iter().find(|step| step.job == *job);
            step.is_none_or(|step| matches!(step.state, State::Done | State::Skipped))
        };
        let is_due = |step: &EvacuationStep| step.state == State::Waiting && step.after.iter().all(is_done);
        let steps = self.steps.iter().enumerate().filter(|(_, step)| !is_stopped && is_due(step));
        steps.map(|(at, _)| at).collect()
    }

    /// Whether an order to begin that other one asks for what is under way.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let what = |plan: &Self| (plan.site.clone(), plan.to_site.clone(), plan.force, plan.now);
        let jobs = |plan: &Self| {
            let moving = plan.steps.iter().filter(|step| step.state != State::Skipped);
            moving.map(|step| step.job.clone()).collect::<BTreeSet<_>>()
        };
        !self.undo && what(self) == what(other) && jobs(self) == jobs(other)
    }

    /// Takes over what a move back needs of the evacuation before this one, if that was of the same site: who led each job
    /// there, and what was drained. Returns whether that one has moved a job that has not returned.
    pub(crate) fn inherit(&mut self, before: &Self) -> bool {
        let mut is_away = false;
        for old in before.left().filter(|_| before.site == self.site) {
            let Some(step) = self.steps.iter_mut().find(|step| step.job == old.job) else {
                let EvacuationStep { from, leader, tries, drained, .. } = old.clone();
                let skipped = EvacuationStep::new(&old.job, old.after.clone());
                let state = State::Skipped;
                self.steps.push(EvacuationStep { from, leader, tries, drained, state, ..skipped });
                is_away = true;
                continue;
            };
            step.drained = old.drained;
            if step.from.as_ref().is_none_or(|from| from.site != before.site) {
                step.from.clone_from(&old.from);
                is_away = true;
            }
        }
        is_away
    }

    /// The steps that `--undo` would move back: a move of them was begun, or the site drained for them.
    fn left(&self) -> impl Iterator<Item = &EvacuationStep> {
        let undo = self.undo;
        let is_back = move |step: &EvacuationStep| undo && step.back && step.state == State::Done;
        self.steps.iter().filter(move |step| step.is_touched() && !is_back(step))
    }

    /// Whether an evacuation of another site in its place would take a move back from the operator that was not given up.
    pub(crate) fn may_be_undone(&self) -> bool {
        !self.abandoned && self.left().next().is_some()
    }

    /// This one, which is under way, made a forced one by the order to begin that other one; `None` if that is no such order.
    /// What has begun begins again: a forced failover goes before a switchover that is open.
    pub(crate) fn forced_by(&self, other: &Self) -> Option<Self> {
        let reason = other.reason.clone().or_else(|| self.reason.clone());
        let by = other.by.clone();
        let mut forced = Self { force: other.force, now: other.now, by, reason, ..self.clone() };
        let is_more = (other.force, other.now) > (self.force, self.now);
        if self.phase() != EvacuationPhase::Running || !is_more || !forced.is_same_as(other) {
            return None;
        }
        let is_left = |step: &&mut EvacuationStep| matches!(step.state, State::Begun | State::Failed);
        forced.steps.iter_mut().filter(is_left).for_each(EvacuationStep::begin_again);
        Some(forced)
    }

    /// Whether jobs are moved by force. A move back never is: the site is there again.
    pub(crate) fn is_forced(&self) -> bool {
        self.force && !self.undo
    }

    /// The name of the request that the next move of a step files. No other request has it.
    pub(crate) fn request_of(&self, at: usize) -> String {
        let tries = self.steps.get(at).map_or(0, |step| step.tries);
        format!("r-{:013}{at:03}{tries:03}", self.at_ms)
    }

    /// A step whose request is being filed, after the decision of this term.
    pub(crate) fn begin(&mut self, at: usize, term: Option<u64>, unix_ms: u64) {
        let (request, back) = (self.request_of(at), self.undo);
        let Some(step) = self.steps.get_mut(at) else { return };
        step.state = State::Begun;
        step.tries += 1;
        step.back = back;
        step.request = Some(request);
        step.term = term;
        step.begun_ms = Some(unix_ms);
        (step.ended_ms, step.leader, step.why) = (None, None, None);
    }

    /// The outcome of a step. One of a move away is not the end if the evacuation has been turned back meanwhile, and none is
    /// where the job is moved again.
    pub(crate) fn settle(&mut self, at: usize, outcome: StepOutcome, unix_ms: u64) {
        let undo = self.undo;
        let Some(step) = self.steps.get_mut(at) else { return };
        let is_turned = undo && !step.back;
        let since = step.tries.saturating_sub(step.tries_before);
        let is_again = matches!(outcome, StepOutcome::Returned(_)) && !since.is_multiple_of(MOVES);
        if step.state == State::Begun && (is_turned || is_again) {
            step.state = State::Waiting;
            return;
        }
        step.back = undo;
        step.ended_ms = Some(unix_ms);
        (step.state, step.leader, step.why) = match outcome {
            StepOutcome::Leads(leader) => (State::Done, Some(leader), None),
            StepOutcome::Needless(leader, why) => (State::Done, leader, Some(why)),
            StepOutcome::Returned(why) | StepOutcome::Failed(why) => (State::Failed, None, Some(why)),
        };
        if let Some(why) = &mut step.why {
            election_core::internals::text::shorten(why, WHY);
        }
    }

    /// Begins again what has failed.
    ///
    /// # Errors
    /// Why there is nothing to resume.
    pub(crate) fn resume(&mut self) -> Result<(), String> {
        self.stopped()?;
        let failed = self.steps.iter_mut().filter(|step| step.state == State::Failed);
        failed.for_each(EvacuationStep::begin_again);
        Ok(())
    }

    /// Gives up what has failed, what has not begun and the move back: everything stays where it is.
    ///
    /// # Errors
    /// Why there is nothing to give up.
    pub(crate) fn abandon(&mut self) -> Result<(), String> {
        if self.phase() != EvacuationPhase::Done || !self.may_be_undone() {
            self.stopped()?;
        }
        self.abandoned = true;
        let is_left = |step: &&mut EvacuationStep| matches!(step.state, State::Waiting | State::Failed);
        self.steps.iter_mut().filter(is_left).for_each(|step| step.state = State::Skipped);
        Ok(())
    }

    fn stopped(&self) -> Result<(), String> {
        match self.phase() {
            EvacuationPhase::Running => Err("it is under way".to_owned()),
            EvacuationPhase::Done => Err("it is done".to_owned()),
            EvacuationPhase::Stopped => Ok(()),
        }
    }

    /// Turns it back: what was moved returns, in the same order; what has not begun stays.
    ///
    /// # Errors
    /// Why that changes nothing.
    pub(crate) fn turn_back(&mut self) -> Result<(), String> {
        if self.undo && !self.is_given_up() {
            return Err("it is undone already".to_owned());
        }
        (self.undo, self.abandoned) = (true, false);
        for step in &mut self.steps {
            step.tries_before = step.tries;
            step.state = match step.state {
                State::Begun => State::Begun,
                State::Waiting | State::Skipped if !step.is_touched() => State::Skipped,
                _ => State::Waiting,
            };
        }
        Ok(())
    }

    /// Whether a job was left where it is, that was moved or whose site is drained.
    pub(crate) fn is_given_up(&self) -> bool {
        self.phase() == EvacuationPhase::Done
            && self.steps.iter().any(|step| step.state == State::Skipped && step.is_touched())
    }

    /// How long it has taken, or took.
    pub(crate) fn took(&self, unix_ms: u64) -> Duration {
        let steps = || self.steps.iter().filter(|step| step.back == self.undo);
        let begun = steps().filter_map(|step| step.begun_ms).min();
        let ended = steps().filter_map(|step| step.ended_ms).max();
        let ended = if self.phase() == EvacuationPhase::Running { Some(unix_ms) } else { ended };
        Duration::from_millis(ended.zip(begun).map_or(0, |(ended, begun)| ended.saturating_sub(begun)))
    }

    /// The most bytes that its record can have before its end, if it has this many now.
    pub(crate) fn largest(&self, bytes: usize) -> usize {
        bytes + self.steps.len() * GROWTH
    }
}

impl EvacuationStep {
    /// Whether its request is filed, and its outcome is not known.
    pub(crate) fn request_is_open(&self) -> bool {
        self.state == State::Begun
    }

    /// As if no move of it had been begun.
    fn begin_again(&mut self) {
        (self.state, self.tries_before) = (State::Waiting, self.tries);
    }

    /// Whether a move of it was begun, or the site drained for it.
    pub(crate) fn is_touched(&self) -> bool {
        self.tries > 0 || self.drained
    }

    /// Whether the job is out of the site.
    pub(crate) fn is_away(&self) -> bool {
        self.state == State::Done && !self.back
    }

    /// How long its last move took.
    pub(crate) fn took(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.ended_ms?.saturating_sub(self.begun_ms?)))
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
