//! How guards are started.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use boot_time::BootTime;
use tokio::sync::watch;

use super::{
    lock::{StateLock, file_name},
    reporter::Reporter,
};
use crate::{
    capabilities::renounces_privileges,
    config::{Identity, StopSignal},
    guard::{invocation::SELF_EXE, last_will::LastWill, protocol::Launch},
};

/// How guards are started. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Guards {
    pub(super) exe: PathBuf,
    name: Arc<str>,
    withheld: Arc<[String]>,
    pub(super) lock: Option<StateLock>,
    cgroup: Option<PathBuf>,
    pub(super) will: Option<watch::Receiver<Option<LastWill>>>,
    open_files: Option<u64>,
    pub(super) reporter: Arc<dyn Reporter>,
    hung: Arc<Hung>,
}

/// Commands that were left although a process of them has survived SIGKILL. Each channel is closed when its command has ended.
#[derive(Default)]
struct Hung(Mutex<BTreeMap<String, watch::Receiver<()>>>);

impl fmt::Debug for Hung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hung")
    }
}

impl Default for Guards {
    fn default() -> Self {
        Guards {
            exe: SELF_EXE.into(),
            name: "job".into(),
            withheld: Arc::default(),
            lock: None,
            cgroup: None,
            will: None,
            open_files: None,
            reporter: Arc::new(()),
            hung: Arc::default(),
        }
    }
}

impl Guards {
    /// Guards of this program's own image, which calls [`run_if_guard`](crate::run_if_guard), without a lock and without
    /// cgroups.
    pub fn new() -> Guards {
        Guards::default()
    }

    /// Uses another image that calls [`run_if_guard`](crate::run_if_guard): for a process that does not, such as a test.
    #[must_use]
    pub fn exe(mut self, exe: impl Into<PathBuf>) -> Guards {
        self.exe = exe.into();
        self
    }

    /// What the names that others see begin with, by default `job`. With `dr` the guards are `dr-guard` in lists of processes,
    /// all that they start has the variable `DR_RUN`, and entries in the journal have `DR_STREAM`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Guards {
        self.name = name.into();
        self
    }

    /// Variables of this process's environment that no program gets, unless its own sets them.
    #[must_use]
    pub fn withhold(mut self, variables: impl IntoIterator<Item = impl Into<String>>) -> Guards {
        self.withheld = variables.into_iter().map(Into::into).collect();
        self
    }

    /// Each guard holds the lock until no process of its job is left.
    #[must_use]
    pub fn lock(mut self, lock: StateLock) -> Guards {
        self.lock = Some(lock);
        self
    }

    /// Each job gets a cgroup of its own below `dir`, a writable directory of the cgroup v2 hierarchy in which no other
    /// program makes cgroups: [`delegated_cgroup`](crate::delegated_cgroup) finds one.
    #[must_use]
    pub fn cgroup(mut self, dir: impl Into<PathBuf>) -> Guards {
        self.cgroup = Some(dir.into());
        self
    }

    /// Each guard knows the present will of this process, so that the last one can have it carried out if this process dies. It
    /// takes a lock as well ([`Guards::lock`]).
    #[must_use]
    pub fn last_will(mut self, will: watch::Receiver<Option<LastWill>>) -> Guards {
        self.will = Some(will);
        self
    }

    /// The soft limit of open files for programs, if it differs from this process's own.
    #[must_use]
    pub fn open_files(mut self, limit: Option<u64>) -> Guards {
        self.open_files = limit;
        self
    }

    /// Who is told what programs write and do.
    #[must_use]
    pub fn reporter(mut self, reporter: Arc<dyn Reporter>) -> Guards {
        self.reporter = reporter;
        self
    }

    /// Has a command that hangs ended by a task of its own.
    pub(super) fn keep_hung(&self, command: String, ending: impl Future<Output = ()> + Send + 'static) {
        let (hangs, hung) = watch::channel(());
        tokio::spawn(async move {
            ending.await;
            drop(hangs);
        });
        self.hung.0.lock().unwrap_or_else(PoisonError::into_inner).insert(command, hung);
    }

    /// This command, if it hangs.
    pub(super) fn hung(&self, command: &str) -> Option<watch::Receiver<()>> {
        let mut all = self.hung.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, hung| hung.has_changed().is_ok());
        all.get(command).cloned()
    }

    /// Whether jobs get cgroups of their own.
    pub fn have_cgroups(&self) -> bool {
        self.cgroup.is_some()
    }

    /// The cgroup of a job. One name per job, so that the processes that a killed guard left in it are found.
    pub(super) fn cgroup_of(&self, job: &str) -> Option<PathBuf> {
        let dir = self.cgroup.as_ref()?;
        Some(dir.join(format!("job-{}", file_name(job))))
    }

    /// A program that is killed at its end, and inherits its guard's output.
    pub(super) fn launch(
        &self,
        command: &[String],
        env: &BTreeMap<String, String>,
        run_as: Option<Identity>,
        no_new_privileges: Option<bool>,
        until: BootTime,
    ) -> Launch {
        let mut env = env.clone();
        if let Some(identity) = &run_as {
            identity.log_in(&mut env);
        }
        Launch {
            command: command.to_vec(),
            env,
            withheld: self.withheld.to_vec(),
            run_variable: self.run_variable(),
            guard_name: self.guard_name(),
            stop_signal: StopSignal::Kill,
            until: until.into(),
            open_files: self.open_files,
            no_new_privileges: renounces_privileges(no_new_privileges, run_as.is_some()),
            run_as,
            ..Launch::default()
        }
    }

    fn guard_name(&self) -> String {
        format!("{}-guard", self.name)
    }

    /// The variable with the name of the record of a run.
    pub(super) fn run_variable(&self) -> String {
        format!("{}_RUN", self.name.to_uppercase())
    }

    /// The field of the journal with the stream of a line.
    pub(super) fn stream_field(&self) -> String {
        format!("{}_STREAM", self.name.to_uppercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_hung_is_forgotten_once_it_has_ended_also_if_only_others_are_asked_for() {
        let guards = Guards::new();
        let (ended, end) = tokio::sync::oneshot::channel();
        guards.keep_hung("check".to_owned(), async move { end.await.expect("it ends") });
        let mut hung = guards.hung("check").expect("it hangs");
        assert!(guards.hung("another").is_none());
        ended.send(()).expect("it is waited for");
        hung.changed().await.expect_err("it has ended");
        assert!(guards.hung("another").is_none());
        assert!(guards.hung.0.lock().expect("no panic").is_empty());
    }
}
