//! A worker that dies while its host lives: its guard ends the job, then has the session closed, and then the worker may be
//! started again.

use super::{
    Due, Sim,
    host::{Guarded, Link},
};
use crate::zookeeper::Millis;

/// What happens to the job of a dead worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ToGuarded {
    /// It writes to the resource.
    Acts,
    /// No process of it is left.
    Ends,
}

/// How long a guard may take to reach a server.
const CLOSES_WITHIN: Millis = 200;

impl Sim {
    pub(super) fn kill_worker(&mut self, host: usize, restart_after: Millis) {
        let stop_budget = self.settings.stop_budget();
        let takes = self.rng.u64(0..=stop_budget);
        let target = &mut self.hosts[host];
        let Some(process) = target.process.take() else { return };
        target.life += 1;
        target.frozen = None;
        target.backlog.clear();
        let session = process.client.filter(|client| client.link != Link::Over).map(|client| client.session);
        let until = process.job.work_until.map(|until| target.clock.reaches(until));
        target.guarded = Some(Guarded { job: process.job, session, restart_after });
        self.trace.line(self.now, || format!("{}: DIES, its guard lives", self.hosts[host].member));
        // The guard knows the end of the lease.
        let ends = (self.now + takes).min(until.unwrap_or(self.now));
        self.after(0, Due::Guarded(host, ToGuarded::Acts));
        self.at(ends, Due::Guarded(host, ToGuarded::Ends));
    }

    pub(super) fn guarded(&mut self, host: usize, what: ToGuarded) {
        match what {
            ToGuarded::Acts => {
                let job = self.hosts[host].guarded.as_ref().map(|guarded| &guarded.job);
                let Some((slot, token, until)) = job
                    .filter(|job| !job.suspended)
                    .and_then(|job| Some((job.slot, job.token?, job.work_until)))
                else {
                    return;
                };
                if self.writes(host, slot, token, until) {
                    let next = self.rng.u64(50..400);
                    self.after(next, Due::Guarded(host, ToGuarded::Acts));
                }
            }
            ToGuarded::Ends => {
                let Some(Guarded { session, restart_after, .. }) = self.hosts[host].guarded.take() else {
                    return;
                };
                // Some guards are killed as well.
                let lives = self.rng.f64() < 0.8;
                if let Some(session) = session.filter(|_| lives) {
                    let takes = self.rng.u64(1..CLOSES_WITHIN);
                    self.after(takes, Due::Closes(host, session));
                }
                self.restart_later(host, restart_after);
            }
        }
    }

    /// If it reaches no server, nothing is closed, and the session expires.
    pub(super) fn closes(&mut self, host: usize, session: i64) {
        let net = &self.hosts[host].net;
        if self.outage || net.cut || net.minority.is_some() || !self.zk.lives(session) {
            return;
        }
        self.summary.closed_by_guards += 1;
        self.trace
            .line(self.now, || format!("    the guard of {} closes {session:#x}", self.hosts[host].member));
        self.close(session);
    }
}
