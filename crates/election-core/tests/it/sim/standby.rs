//! Members that are fit only with a ready standby, and report that as a worker does. The leader's program is the standby that
//! was promoted; where that has ended, another one is started.

use election_core::internals::{
    Event,
    record::{Current, Health, Status},
};

use super::{Sim, ToWorker};

impl Sim {
    /// A standby is started: the first one, or in place of one that has ended. The member is fit once it is ready.
    pub(super) fn start_standby(&mut self, host: usize) {
        let Some(longest) = self.settings.app.standby else { return };
        let takes = self.rng.u64(1..=longest);
        // It has the leader's program.
        let idle = self.hosts[host].process.as_mut().filter(|process| process.job.given.is_none());
        let Some(process) = idle else { return };
        process.standby += 1;
        let standby = process.standby;
        self.summary.standbys += 1;
        self.health(host, Health::Unhealthy { reason: "its standby is starting".to_owned() });
        self.tell_worker(host, 1 + takes, ToWorker::StandbyReady(standby));
    }

    pub(super) fn standby_ready(&mut self, host: usize, standby: u64) {
        if self.hosts[host].process.as_ref().is_some_and(|process| process.standby == standby) {
            self.feed(host, Event::Health(Health::Healthy));
        }
    }

    /// It becomes the leader's program, ready or not: then that is started without it.
    pub(super) fn promote_standby(&mut self, host: usize) {
        if let Some(process) =
            self.hosts[host].process.as_mut().filter(|_| self.settings.app.standby.is_some())
        {
            process.standby += 1;
            self.health(host, Health::Healthy);
        }
    }

    /// Another leader is READY: some standbys are started again to follow it.
    pub(super) fn follow(&mut self, host: usize, leader: Option<&Current>) {
        let other = leader
            .filter(|leader| leader.status == Status::Ready && leader.member != self.hosts[host].member);
        if other.is_some() && self.settings.app.standby.is_some() && self.rng.bool() {
            self.start_standby(host);
        }
    }
}
