//! A standby that the next program of this process continues, or the next worker.

use std::{io, os::fd::OwnedFd, sync::Arc};

use election_core::internals::record::StoppedJob;
use job_guard::{HandedRun, JobRun, LeftRun, RunState, WorkTime};
use serde::{Deserialize, Serialize};

use super::{
    super::{described::guards_in, role::RoleFacts},
    Standby,
};
use crate::config::RoleChange;

/// A standby that is stopped for a while.
pub(crate) struct Resting(Arc<Standby>);

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.state.lock().is_over = false;
        self.0.turn();
    }
}

/// What the next program of this process gets of a standby.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedStandby {
    leader: RoleFacts,
    told: RoleFacts,
    led: u64,
    restarts: u64,
    stopped: Option<StoppedJob>,
    /// `None`: a leadership has the job's program, or it is to be started, or is stopped by an order.
    pub(crate) run: Option<RunState>,
}

impl Standby {
    /// Stops the standby for a while, so that another program of this process may begin. Dropped, what is returned has it
    /// started again. No process of it is left when this returns.
    pub(crate) async fn rest(self: &Arc<Self>) -> Resting {
        let resting = Resting(Arc::clone(self));
        self.end(std::future::pending()).await;
        resting
    }

    /// Hands the standby over to the next program of this process.
    ///
    /// # Errors
    /// The reason, if its process is neither ready nor [at rest](Self::rest).
    pub(crate) async fn hand_over(&self) -> Result<(HandedStandby, Option<HandedRun>), String> {
        let (mut handed, run, is_absent) = {
            let state = self.state.lock();
            let (leader, told) = (state.leader.clone(), state.told.clone());
            let (led, restarts, stopped) = (state.led, state.restarts, state.stopped.clone());
            let handed = HandedStandby { leader, told, led, restarts, stopped, run: None };
            let run = state.run.clone().filter(|_| !state.is_over);
            (handed, run, !state.is_kept())
        };
        let run = match run {
            Some(run) => Some(run.hand_over().await.map_err(|why| format!("its standby: {why}"))?),
            None if is_absent => None,
            None => return Err("its standby is being started".to_owned()),
        };
        handed.run = run.as_ref().map(|run| run.state.clone());
        Ok((handed, run))
    }

    /// Continues a standby that the program before this one has handed over, before it is [kept](Self::keep).
    ///
    /// # Errors
    /// If a descriptor can't be used.
    pub(crate) fn adopt(&self, handed: HandedStandby, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let HandedStandby { leader, told, led, restarts, stopped, run } = handed;
        // What runs has read it.
        self.file.read();
        let run = match run {
            Some(run) => {
                let (job, guards) = (self.job(&told), guards_in(&self.guards, &self.env));
                Some(Arc::new(JobRun::adopt(job, WorkTime::unlimited(), guards, run, descriptors)?))
            }
            None => None,
        };
        let mut state = self.state.lock();
        (state.leader, state.told, state.led, state.restarts, state.run) = (leader, told, led, restarts, run);
        state.stopped = stopped;
        drop(state);
        self.turn();
        Ok(())
    }

    /// Continues a standby that has outlived the worker before this one, before it is [kept](Self::keep).
    ///
    /// # Errors
    /// If it can't be used. Its guard stops it then.
    pub(crate) fn continue_with(&self, left: LeftRun) -> io::Result<()> {
        let facts = self.file.read();
        let (job, guards) = (self.job(&facts), guards_in(&self.guards, &self.env));
        let (run, descriptors) = left.into_parts();
        let run = Arc::new(JobRun::adopt(job, WorkTime::unlimited(), guards, run, descriptors)?);
        // Whether a command or a signal has told it is not known, so it is told again. One that is restarted has begun with it.
        let is_told = matches!(self.keys().1.follow, RoleChange::None | RoleChange::Restart);
        let told = if is_told || !facts.names_leader() { facts.clone() } else { RoleFacts::of_standby(None) };
        let mut state = self.state.lock();
        // What ZooKeeper says is no news if it is older.
        (state.leader, state.told, state.run) = (facts, told, Some(run));
        drop(state);
        self.turn();
        Ok(())
    }
}
