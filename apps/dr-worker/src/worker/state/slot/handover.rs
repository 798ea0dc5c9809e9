//! A job that the next program of this process continues.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use election_core::internals::record::StoppedJob;
use job_guard::{HandedRun, JobRun, Lease, RunState};
use serde::{Deserialize, Serialize};
use zk_session::BootTime;

use super::{Halt, JobSlot};
use crate::worker::job::{JobEnv, guards_in};

/// What crosses of a job that this member leads, to the next program of this process.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::worker) struct HandedSlot {
    env: Option<JobEnv>,
    stopped: Option<StoppedJob>,
    pub(in crate::worker) run: Option<RunState>,
    restarts: u64,
    #[serde(default)]
    started_in: BTreeMap<String, u64>,
}

impl JobSlot {
    /// Hands the job over to the next program of this process, while this member leads it.
    ///
    /// # Errors
    /// The reason, if it is neither ready nor stopped by an operator.
    pub(in crate::worker) async fn hand_over(&self) -> Result<(HandedSlot, Option<HandedRun>), String> {
        let (env, stopped, run, restarts, started_in) = {
            let state = self.state.lock();
            let stopped = match &state.halt {
                Some(Halt::Starting) => return Err("it is being started".to_owned()),
                Some(Halt::Waiting(why)) => return Err(format!("it waits: {why}")),
                Some(Halt::Stopped(order)) => Some(order.clone()),
                None => None,
            };
            (state.env.clone(), stopped, state.run.clone(), state.restarts, state.started_in.clone())
        };
        if run.is_none() != stopped.is_some() {
            return Err("it is being started or stopped".to_owned());
        }
        let handed = match &run {
            Some(run) if !self.has_processes_of(run) => {
                return Err("its processes have changed in the configuration: restart it first".to_owned());
            }
            Some(run) => Some(run.hand_over().await?),
            None => None,
        };
        Ok((HandedSlot { env, stopped, run: None, restarts, started_in }, handed))
    }

    /// Whether the run has the processes of the present configuration.
    fn has_processes_of(&self, run: &JobRun) -> bool {
        let (spec, status) = (self.spec(), run.status());
        let status = status.borrow();
        let running = status.processes.iter().map(|process| &process.name);
        running.eq(spec.processes.iter().map(|process| &process.name))
    }

    /// Continues a job that the program before this one has handed over; its lease ends at `work_until` as far as is known.
    ///
    /// # Errors
    /// If a descriptor can't be used.
    pub(in crate::worker) fn adopt(
        &self,
        handed: HandedSlot,
        descriptors: Vec<OwnedFd>,
        work_until: BootTime,
    ) -> std::io::Result<()> {
        self.arrives();
        if let Some(standby) = &self.standby {
            standby.take();
        }
        if let Some(env) = handed.env {
            self.enter(env);
        }
        let lease = Lease::until(work_until);
        let env = self.env().unwrap_or_else(|| self.env_of_member());
        let run = match handed.run {
            Some(run) => {
                let (job, guards) = (self.described(&self.spec(), &env), guards_in(&self.guards, &env));
                Some(Arc::new(JobRun::adopt(job, &lease, guards, run, descriptors)?))
            }
            None => None,
        };
        let mut state = self.state.lock();
        (state.run, state.restarts, state.started_in) = (run, handed.restarts, handed.started_in);
        state.halt = handed.stopped.map(Halt::Stopped);
        (state.adopted, state.is_past_ready) = (Some(lease), true);
        drop(state);
        self.turns.send_modify(|turns| *turns += 1);
        Ok(())
    }

    /// The terms of the jobs that it comes after when its program was started. They cross to the next program of this process.
    pub(in crate::worker) fn started_in<T>(&self, act: impl FnOnce(&mut BTreeMap<String, u64>) -> T) -> T {
        act(&mut self.state.lock().started_in)
    }

    /// What renews the lease of a run that was handed over; once.
    pub(in crate::worker) fn take_adopted(&self) -> Option<Lease> {
        self.state.lock().adopted.take()
    }

    /// Whether the hook after readiness has run before the handover; once.
    pub(in crate::worker) fn take_past_ready(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_past_ready)
    }
}
