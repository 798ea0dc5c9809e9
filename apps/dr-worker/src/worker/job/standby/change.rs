//! The changes of role of a running program: promote and demote.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use job_guard::{Deadline, Job, JobRun, KILL_RESERVE, OneShot, ProcessState, WorkTime};
use zk_session::BootTime;

use super::{
    super::{described::beside, env::JobEnv, error::JobError},
    Standby, StandbyState,
};
use crate::config::{JobSpec, RoleChange};

impl Standby {
    /// Makes the leader's program of what was [taken](Self::take). `Ok(false)`: no process of it is left, and the job's own
    /// command is to be started.
    ///
    /// # Errors
    /// Why it was not promoted. It is to be stopped then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the program is to be stopped; promote is killed, and [`gone`](Self::gone) waits for its end.
    pub(crate) async fn promote(
        &self,
        run: &JobRun,
        env: &JobEnv,
        job: Job,
        time: WorkTime,
        by: Deadline,
    ) -> Result<bool, JobError> {
        self.commands.gone().await;
        let (spec, standby) = self.keys();
        let process = run.status().borrow().clone();
        let runs = matches!(process.state, ProcessState::Starting | ProcessState::Running);
        // One that is only about to be started has nothing to promote.
        let runs = runs && process.pid.is_some();
        if standby.promote == RoleChange::Restart || !runs {
            run.stop(BootTime::now() + standby.stop_timeout + KILL_RESERVE).await;
            self.announce(env).await?;
            return Ok(false);
        }
        run.forget_ready().await;
        self.armed(run.arm(job, time).await)?;
        self.announce(env).await?;
        match standby.promote {
            RoleChange::Signal(signal) => run.signal(signal).await,
            RoleChange::Exec { command, timeout } => {
                let all = self.leader_env(env, env.over(&spec.env));
                let promoted = self.change(spec, "promote", (command, timeout), all, Some(by));
                self.while_it_runs(run, process.pid, promoted).await?;
            }
            RoleChange::None | RoleChange::Restart => {}
        }
        run.probe().await;
        Ok(true)
    }

    /// Makes a standby of the leader's program, if demote is a command, and keeps it. `Ok(false)`: it is to be stopped.
    ///
    /// # Errors
    /// Why it is no standby. It is to be stopped then.
    ///
    /// # Cancel safety
    /// As [`promote`](Self::promote).
    pub(crate) async fn demote(
        &self,
        run: &Arc<JobRun>,
        env: &JobEnv,
        by: Deadline,
    ) -> Result<bool, JobError> {
        let (spec, standby) = self.keys();
        let RoleChange::Exec { command, timeout } = standby.demote else { return Ok(false) };
        let ends = |state: &StandbyState| state.is_over || state.stopped.is_some();
        if ends(&self.state.lock()) {
            return Ok(false);
        }
        let all = self.leader_env(env, env.over(&spec.env));
        let pid = run.status().borrow().pid;
        run.forget_ready().await;
        let demoted = self.change(spec, "demote", (command, timeout), all, Some(by));
        self.while_it_runs(run, pid, demoted).await?;
        let facts = self.after_leading();
        self.armed(run.arm(self.job(&facts), WorkTime::unlimited()).await)?;
        run.probe().await;
        let mut state = self.state.lock();
        (state.run, state.told) = (Some(Arc::clone(run)), facts);
        Ok(true)
    }

    /// What a change of the role of this process comes to: it fails if the process ends meanwhile.
    async fn while_it_runs(
        &self,
        run: &JobRun,
        pid: Option<u32>,
        change: impl Future<Output = Result<(), JobError>>,
    ) -> Result<(), JobError> {
        let mut now = run.status();
        tokio::select! {
            changed = change => changed,
            _ = now.wait_for(|now| now.pid != pid) => self.armed(Err("it has ended meanwhile".to_owned())),
        }
    }

    fn armed(&self, armed: Result<(), String>) -> Result<(), JobError> {
        armed.map_err(|why| JobError::NotArmed { job: self.env.job.clone(), why })
    }

    pub(super) async fn change(
        &self,
        spec: Arc<JobSpec>,
        name: &'static str,
        (command, timeout): (Vec<String>, Duration),
        env: BTreeMap<String, String>,
        by: Option<Deadline>,
    ) -> Result<(), JobError> {
        let beside = beside(&spec, name, spec.run_as.clone(), env);
        let command = OneShot { command, timeout, by, logs_errors: true, ..beside };
        self.commands.run_change(spec, name, command, self.guards.clone()).await
    }
}
