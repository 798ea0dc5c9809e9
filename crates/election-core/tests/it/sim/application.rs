//! What jobs and their guards do, and what they may not.

use election_core::{
    handler::StopReason,
    internals::{AppEvent, EnteredLeadership, Event, Time},
};

use super::{
    Due, Sim, ToWorker,
    host::Link,
    job::{JobDue, Phase},
    keeps,
};
use crate::{
    invariants::{
        at_most_one, fit_when_named, no_zombie, planned_stops_have_time, suspended_work_rests,
        work_ends_in_time,
    },
    zookeeper::Millis,
};

impl Sim {
    fn job(&mut self, host: usize) -> Option<&mut super::job::Job> {
        self.hosts[host].process.as_mut().map(|p| &mut p.job)
    }

    fn job_later(&mut self, host: usize, delay: Millis, what: JobDue) {
        let life = self.hosts[host].life;
        let run = self.job(host).map_or(0, |j| j.run);
        self.after(delay, Due::Job(host, life, run, what));
    }

    fn tell(&mut self, host: usize, event: AppEvent) {
        self.tell_worker(host, 1, ToWorker::Event(Event::App(event)));
    }

    fn chance(&mut self, likely: f64) -> bool {
        !self.is_calm() && self.rng.f64() < likely
    }

    // ---- what the engine asks for ----

    pub(super) fn prepare(&mut self, host: usize) {
        let app = self.settings.app;
        let hangs = self.chance(app.hangs);
        let fails = self.chance(app.prepare_fails);
        let takes = self.rng.u64(1..=app.prepare);
        let Some(job) = self.job(host) else { return };
        if job.phase != Phase::Idle {
            let phase = job.phase;
            return self.require(Err(format!("one life: host {host} is to prepare while it is {phase:?}")));
        }
        job.phase = Phase::Preparing;
        job.run += 1;
        if !hangs {
            self.job_later(host, takes, if fails { JobDue::PrepareFails } else { JobDue::Prepared });
        }
    }

    pub(super) fn take_over(&mut self, host: usize, entered: &EnteredLeadership) {
        self.summary.leaderships += 1;
        let app = self.settings.app;
        let hangs = self.chance(app.hangs);
        let fails = self.chance(app.take_over_fails);
        let takes = self.rng.u64(1..=app.take_over);
        let claims = self.rng.u64(0..20);
        let token = entered.fencing_token;
        let life = self.hosts[host].life;
        if let Some(process) = self.hosts[host].process.as_ref().filter(|_| !self.has_elector()) {
            let verdict = fit_when_named::leads(self.hosts[host].member.as_str(), process.engine.health());
            self.require(verdict);
        }
        let Some(job) = self.job(host) else { return };
        job.phase = Phase::TakingOver;
        job.suspended = false;
        job.token = Some(token);
        let slot = entered.appointment.slot;
        job.slot = slot;
        job.given = Some((entered.appointment.term, entered.ballot.clone()));
        self.summary.other_slots += u64::from(slot > 0);
        let promised = self.settings.exclusive && !self.is_deposed(token);
        self.know_base(entered);
        let verdict = self.checks.fencing(slot).granted(promised, host, life, token);
        self.require(verdict);
        let verdict = self.checks.raised.granted(entered.appointment.term, token);
        self.require(verdict);
        self.check_alone(host);
        self.promote_standby(host);
        self.job_later(host, claims, JobDue::Acts);
        if !hangs {
            let failed = JobDue::TakeoverFails("as the dice say".to_owned());
            self.job_later(host, takes, if fails { failed } else { JobDue::TakenOver });
        }
    }

    pub(super) fn ask_before_move(&mut self, host: usize) {
        let app = self.settings.app;
        let calls_off = self.chance(app.calls_off);
        let takes = self.rng.u64(1..3000);
        self.job_later(host, takes, JobDue::Consents(!calls_off));
    }

    pub(super) fn work_until(&mut self, host: usize, until: Time) {
        let Some(job) = self.job(host) else { return };
        job.work_until = Some(until);
        self.guard_again(host);
    }

    /// The guard looks at the clock when the deadline is reached.
    pub(super) fn guard_again(&mut self, host: usize) {
        let Some((run, until)) = self.job(host).and_then(|job| Some((job.run, job.work_until?))) else {
            return;
        };
        let at = self.hosts[host].clock.reaches(until);
        if at < u64::MAX / 4 {
            let life = self.hosts[host].life;
            self.at(at, Due::Job(host, life, run, JobDue::Guard));
        }
    }

    pub(super) fn suspend(&mut self, host: usize, suspended: bool) {
        if let Some(job) = self.job(host) {
            job.suspended = suspended;
        }
    }

    pub(super) fn stop(&mut self, host: usize, reason: &StopReason) {
        let suspended = self.job(host).is_some_and(|job| job.suspended);
        let budget = if suspended { self.settings.kill_budget() } else { self.settings.stop_budget() };
        let time = self.hosts[host].clock.time(self.now);
        let patience = if reason.is_urgent() { budget * 9 / 10 } else { self.settings.app.stop };
        let takes = self.rng.u64(0..=patience.max(1));
        let now = self.now;
        let frozen_lately = self.frozen_lately(host);
        let Some(job) = self.job(host) else { return };
        if matches!(reason, StopReason::LeaseEnds)
            && let Some(until) = job.work_until.filter(|_| job.token.is_some())
        {
            let left = u64::try_from(until.since(time).as_millis()).unwrap_or(u64::MAX);
            let verdict = work_ends_in_time::asked(host, left, budget, frozen_lately);
            self.require(verdict);
        }
        if self.has_elector() && matches!(reason, StopReason::NotNamed(_) | StopReason::Removed(_)) {
            self.check_undisturbed(host);
        }
        if let (StopReason::LeaseEnds, Some(process)) = (reason, &self.hosts[host].process)
            && process.job.phase == Phase::Stopping
        {
            self.require(planned_stops_have_time::hastened(host, process.keeps_lease));
        }
        let lasts = self.settings.timeout;
        let Some(job) = self.job(host) else { return };
        let at = match job.phase {
            // It has answered already; the two have crossed.
            Phase::Idle => return,
            Phase::Ended => now + 1,
            // A second, more urgent order.
            Phase::Stopping => job.stopped_at.unwrap_or(now).min(now + takes),
            _ => now + takes,
        };
        job.phase = Phase::Stopping;
        job.stopped_at = Some(at);
        job.stops_long = at > now + lasts && !reason.is_urgent();
        job.run += 1;
        let run = job.run;
        let life = self.hosts[host].life;
        self.at(at, Due::Job(host, life, run, JobDue::Stopped));
        self.job_later(host, 1, JobDue::Acts);
        self.guard_again(host);
    }

    // ---- what happens in the job ----

    pub(super) fn job_due(&mut self, host: usize, run: u64, what: JobDue) {
        let Some(job) = self.job(host) else { return };
        // The guard acts by the clock, independent of other events.
        if job.run != run && !matches!(what, JobDue::Guard) {
            return;
        }
        match (job.phase, what) {
            (Phase::Preparing, JobDue::Prepared) => self.tell(host, AppEvent::Prepared),
            (Phase::Preparing, JobDue::PrepareFails) => {
                self.tell(host, AppEvent::PrepareFailed("as the dice say".to_owned()));
            }
            (Phase::TakingOver, JobDue::TakenOver) => {
                // It serves, whether READY can be written soon or not.
                job.phase = Phase::Serving;
                self.tell(host, AppEvent::TakenOver);
                if self.chance(self.settings.app.work_ends) {
                    let after = self.rng.u64(1..15_000);
                    self.job_later(host, after, JobDue::WorkEnds("as the dice say".to_owned()));
                }
            }
            (Phase::TakingOver, JobDue::TakeoverFails(why)) => {
                self.tell(host, AppEvent::TakeoverFailed(why));
            }
            (Phase::TakingOver | Phase::Serving, JobDue::WorkEnds(why)) => {
                job.phase = Phase::Ended;
                job.token = None;
                self.job_later(host, no_zombie::NOTICED_WITHIN, JobDue::LongEnded);
                self.tell(host, AppEvent::WorkFailed(why));
            }
            (Phase::Serving, JobDue::Consents(true)) => self.tell(host, AppEvent::MoveAccepted),
            (Phase::Serving, JobDue::Consents(false)) => {
                self.summary.called_off += 1;
                self.tell(host, AppEvent::MoveDeclined("as the dice say".to_owned()));
            }
            (phase, JobDue::LongEnded) => {
                let asked = phase != Phase::Ended || self.frozen_lately(host);
                self.require(no_zombie::check(host, asked));
            }
            (_, JobDue::Acts) => self.job_acts(host),
            (Phase::Stopping, JobDue::Stopped) => {
                let (has_led, stops_long) = (job.given.is_some(), job.stops_long && job.token.is_some());
                *job = super::job::Job { run: job.run + 1, work_until: None, ..Default::default() };
                self.summary.long_stops += u64::from(stops_long);
                self.tell(host, AppEvent::Stopped);
                if has_led {
                    self.start_standby(host);
                }
            }
            (_, JobDue::Guard) => self.guard(host),
            _ => {}
        }
    }

    /// The job writes to the resource. Whether that accepts it.
    pub(super) fn writes(&mut self, host: usize, slot: usize, token: u64, until: Option<Time>) -> bool {
        let time = self.hosts[host].clock.time(self.now);
        let valid = until.is_some_and(|until| time < until);
        if valid {
            self.check_alone(host);
        }
        let promised = self.settings.exclusive && valid && !self.is_deposed(token);
        self.writes_under(host, slot, token, promised)
    }

    /// A write, of which is `promised` or not that no other member has led since.
    pub(super) fn writes_under(&mut self, host: usize, slot: usize, token: u64, promised: bool) -> bool {
        let checks_tokens = !self.resource.has_forgotten(slot, token);
        let accepted = self.resource.write(slot, token);
        let verdict = if accepted {
            self.checks.fencing(slot).accepted(promised || checks_tokens, host, token)
        } else if self.is_lost(token) {
            Ok(())
        } else {
            self.checks.fencing(slot).refused(promised, host, token)
        };
        self.require(verdict);
        accepted
    }

    fn check_undisturbed(&mut self, host: usize) {
        let Some(job) = self.job(host).cloned() else { return };
        if let (Some(_), Some((term, ballot))) = (job.token, &job.given) {
            let own = self.hosts[host].process.as_ref().and_then(|p| p.engine.ballot());
            let verdict = self.checks.slots.stops(job.slot, *term, ballot, own.as_ref());
            self.require(verdict);
        }
    }

    fn job_acts(&mut self, host: usize) {
        let Some((slot, Some(token))) = self.job(host).map(|j| (j.slot, j.token)) else {
            return;
        };
        let (until, suspended) = self.job(host).map_or((None, false), |j| (j.work_until, j.suspended));
        if suspended {
            return self.job_later(host, 50, JobDue::Acts);
        }
        // A stop that has begun has its time, also in a pause.
        let is_stopping = self.job(host).is_some_and(|j| j.phase == Phase::Stopping);
        let excused = is_stopping || self.frozen_lately(host);
        if let Some(process) = &self.hosts[host].process {
            let is_paused = process.client.as_ref().is_some_and(|client| client.link == Link::Paused);
            // Policies of members differ while they are being changed.
            let verdict = suspended_work_rests::acts(process.engine.policy(), host, is_paused, excused);
            self.require(verdict);
        }
        if !self.writes(host, slot, token, until) {
            let why = "the resource refuses the token".to_owned();
            match self.job(host).map(|j| j.phase) {
                Some(Phase::TakingOver) => self.job_later(host, 1, JobDue::TakeoverFails(why)),
                Some(Phase::Serving) => self.job_later(host, 1, JobDue::WorkEnds(why)),
                _ => {}
            }
            return;
        }
        let next = self.rng.u64(100..800);
        self.job_later(host, next, JobDue::Acts);
    }

    /// All others that act at this moment. A job acts until it has ended or its guard has ended it, unless its machine
    /// is frozen.
    pub(super) fn check_alone(&mut self, host: usize) {
        let acting = |h: usize| {
            let other = &self.hosts[h];
            if other.frozen.is_some_and(|f| f.whole) {
                return None;
            }
            let guarded = other.guarded.as_ref().map(|guarded| &guarded.job);
            let job = other.process.as_ref().map(|process| &process.job).or(guarded)?;
            job.token.map(|token| (job.slot, (h, token)))
        };
        let Some((slot, me)) = acting(host) else { return };
        // The exception is a leader that was deposed, as long as it does not know.
        let deposed = |other: u64| self.is_deposed(other.min(me.1));
        let others = (0..self.hosts.len()).filter(|h| *h != host).filter_map(acting);
        let others = others.filter(|(other, _)| *other == slot).map(|(_, acting)| acting);
        let others = others.filter(|(_, token)| !deposed(*token));
        let verdict = at_most_one::check(self.settings.exclusive, me, others);
        self.require(verdict);
    }

    /// The guard ends a job that runs past its deadline.
    fn guard(&mut self, host: usize) {
        let time = self.hosts[host].clock.time(self.now);
        let frozen_lately = self.frozen_lately(host);
        let keeps = keeps(&self.settings);
        let Some(job) = self.job(host) else { return };
        if job.work_until.is_none_or(|until| time < until) || job.token.is_none() {
            return;
        }
        job.token = None;
        self.summary.guard_kills += 1;
        self.trace.line(self.now, || format!("{}: the guard ends the job", self.hosts[host].member));
        let Some(job) = self.job(host) else { return };
        if job.phase == Phase::Stopping {
            job.stopped_at = Some(0);
            self.job_later(host, 1, JobDue::Stopped);
        } else {
            job.phase = Phase::Ended;
            job.run += 1;
            self.require(work_ends_in_time::killed(host, frozen_lately || keeps));
            self.tell(host, AppEvent::WorkFailed("ended by its guard".to_owned()));
        }
    }

    fn frozen_lately(&self, host: usize) -> bool {
        let target = &self.hosts[host];
        let budget = self.settings.stop_budget();
        target.frozen.is_some()
            || target.process.as_ref().is_some_and(|p| p.thawed_at + budget + 5 > self.now && p.thawed_at > 0)
    }
}
