//! A program and all that it starts, ended together.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;

/// Between SIGINT and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// A program in its own process group, to which its children belong. Dropping it ends the group, with SIGINT first, so
/// that cargo can end its children.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    ended: bool,
}

impl Group {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, ended: false })
    }

    /// Waits until the program has ended.
    pub(crate) async fn status(mut self) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_status()? {
                return Ok(status);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// If the program has ended.
    pub(crate) fn try_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("cannot wait for a child")?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// Dropping it waits for the end.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Fails if the group is gone already.
            let _ = killpg(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.interrupt();
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                self.signal(Signal::SIGKILL);
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The processor time of the processes that have been waited for, in seconds.
pub(crate) fn processor_time() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the processor time")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}
