//! The job of a member: it needs time, and fails as configured.

use election_core::{
    handler::StopReason,
    internals::{AppEvent, EnteredLeadership, Event, Time, record::Cause},
};

use super::{ENDLESS, ToProcess, World, millis_up};
use crate::{Millis, SECOND, account::Move, incident::Job as Task};

/// The duration of the hook `prepare`.
const PREPARES: Millis = 200;
/// The time until a job is ready.
const STARTS: Millis = 2 * SECOND;
/// The time until it has ended.
pub(super) const STOPS: Millis = 500;
/// How long a worker restarts a job that fails at once: three restarts with backoff.
const GIVES_UP: Millis = 3 * SECOND;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Preparing,
    TakingOver,
    Serving,
    Stopping,
    Ended,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Prepared,
    Ready,
    Fails(String),
    Stopped,
    /// Its guard checks the deadline.
    Guard,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) phase: Phase,
    /// Events for an earlier run are ignored.
    pub(super) run: u64,
    pub(super) work_until: Option<Time>,
}

impl Job {
    /// Whether it may write to its resource.
    fn acts(&self) -> bool {
        matches!(self.phase, Phase::TakingOver | Phase::Serving | Phase::Stopping)
    }
}

impl World {
    fn job_later(&mut self, host: usize, delay: Millis, step: Step) {
        let run = self.hosts[host].job.run;
        self.later(host, delay, ToProcess::Job(run, step));
    }

    fn enter(&mut self, host: usize, phase: Phase) {
        let job = &mut self.hosts[host].job;
        job.phase = phase;
        job.run += 1;
    }

    // ---- actions of the engine ----

    pub(super) fn prepare(&mut self, host: usize) {
        self.enter(host, Phase::Preparing);
        self.job_later(host, PREPARES, Step::Prepared);
    }

    pub(super) fn take_over(&mut self, host: usize, entered: &EnteredLeadership) {
        self.enter(host, Phase::TakingOver);
        let acting = self.hosts.iter().filter(|other| other.job.acts()).count();
        if acting > 1 {
            self.account.double();
        }
        self.count_move(host, entered.appointment.cause);
        match self.hosts[host].task.clone() {
            Task::FailsAtStart(why) => self.job_later(host, GIVES_UP, Step::Fails(why)),
            Task::Slow(span) => self.job_later(host, span, Step::Ready),
            Task::Works | Task::FailsAfter(..) => self.job_later(host, STARTS, Step::Ready),
        }
    }

    fn count_move(&mut self, to: usize, cause: Cause) {
        if let Some((from, failed)) = self.former.replace((to, false)) {
            let site = |host: usize| self.position_of_site(host);
            let one = Move {
                at: self.now,
                cause,
                from_site: site(from),
                to_site: site(to),
                former_failed: failed,
                in_vain: !self.hosts[to].is_fit() && self.one_is_fit(),
            };
            self.account.moves.push(one);
        }
    }

    fn position_of_site(&self, host: usize) -> usize {
        let site = &self.hosts[host].site;
        self.rules.sites.iter().position(|one| one == site).unwrap_or(self.rules.sites.len())
    }

    pub(super) fn work_until(&mut self, host: usize, until: Time) {
        self.hosts[host].job.work_until = Some(until);
        self.watch_deadline(host);
    }

    /// The guard of this run checks at the deadline of the work.
    fn watch_deadline(&mut self, host: usize) {
        let until = self.hosts[host].job.work_until.map(millis_up);
        if let Some(at) = until.filter(|at| *at < ENDLESS) {
            self.job_later(host, at.saturating_sub(self.now), Step::Guard);
        }
    }

    pub(super) fn stop(&mut self, host: usize, reason: &StopReason) {
        if self.hosts[host].job.phase == Phase::Serving && !matches!(reason, StopReason::Leaving) {
            self.say_of(host, || format!("stops its job: {}", brief(reason)));
        }
        let failed = !self.hosts[host].is_fit()
            || !matches!(reason, StopReason::NotNamed(_) | StopReason::Removed(_) | StopReason::Leaving);
        self.no_longer_leads(host, failed);
        let delay = if self.hosts[host].job.acts() { STOPS } else { 1 };
        let acts = self.hosts[host].job.acts();
        self.enter(host, if acts { Phase::Stopping } else { Phase::Ended });
        self.job_later(host, delay, Step::Stopped);
        self.watch_deadline(host);
    }

    /// The job there no longer serves.
    pub(super) fn no_longer_leads(&mut self, host: usize, failed: bool) {
        if self.hosts[host].job.phase == Phase::Serving {
            self.account.vacant();
        }
        if let Some((former, has_failed)) = &mut self.former
            && *former == host
        {
            *has_failed |= failed;
        }
    }

    // ---- events of the job ----

    pub(super) fn job_step(&mut self, host: usize, run: u64, step: Step) {
        let job = &mut self.hosts[host].job;
        if job.run != run {
            return;
        }
        match step {
            Step::Prepared => self.feed(host, Event::App(AppEvent::Prepared)),
            Step::Ready => {
                job.phase = Phase::Serving;
                let site = self.position_of_site(host);
                let gap = self.account.ready(site);
                self.say_of(host, || match gap {
                    Some(gap) => format!("serves, after {} without a leader", words(gap)),
                    None => "serves".to_owned(),
                });
                if let Task::FailsAfter(span, why) = self.hosts[host].task.clone() {
                    self.job_later(host, span, Step::Fails(why));
                }
                self.feed(host, Event::App(AppEvent::TakenOver));
            }
            Step::Fails(why) => self.fails(host, why),
            Step::Stopped => {
                *job = Job { run: job.run + 1, ..Job::default() };
                self.feed(host, Event::App(AppEvent::Stopped));
            }
            Step::Guard => {
                if job.acts() && job.work_until.is_some_and(|until| millis_up(until) <= self.now) {
                    self.no_longer_leads(host, true);
                    self.enter(host, Phase::Ended);
                    let why = "ended by its guard".to_owned();
                    self.say_of(host, || why.clone());
                    self.feed(host, Event::App(AppEvent::WorkFailed(why)));
                }
            }
        }
    }

    pub(super) fn fails(&mut self, host: usize, why: String) {
        self.no_longer_leads(host, true);
        let served = self.hosts[host].job.phase == Phase::Serving;
        self.say_of(host, || format!("its job fails: {why}"));
        self.enter(host, Phase::Ended);
        let event = if served { AppEvent::WorkFailed(why) } else { AppEvent::TakeoverFailed(why) };
        self.feed(host, Event::App(event));
    }

    /// Sets the behaviour of the job there. A running job is replaced, and its pending events are ignored.
    pub(super) fn deploy(&mut self, host: usize, task: Task) {
        if self.hosts[host].serves() {
            self.enter(host, Phase::Serving);
            self.watch_deadline(host);
            match task.clone() {
                Task::FailsAtStart(why) => self.job_later(host, GIVES_UP, Step::Fails(why)),
                Task::FailsAfter(span, why) => self.job_later(host, span, Step::Fails(why)),
                Task::Works | Task::Slow(_) => {}
            }
        }
        self.hosts[host].task = task;
    }
}

/// Without the decision, which another line has.
fn brief(reason: &StopReason) -> String {
    match reason {
        StopReason::NotNamed(_) | StopReason::Removed(_) => "another one is to lead".to_owned(),
        other => other.to_string(),
    }
}

/// A duration in a readable form.
pub(crate) fn words(span: Millis) -> String {
    election_core::strategy::in_words(std::time::Duration::from_millis(span))
}
