//! What is done for a worker that has died, once nothing of its jobs is left.
//!
//! The guard has neither a network nor a runtime. It starts a process that has both, and does not wait for it. The will goes over
//! the socket and over a pipe only, because a command line, an environment and a file could be read by others.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::invocation::{LAST_WILL, SELF_EXE, VERB};
use crate::program::program;

/// What the program that [`run_if_guard_or`](crate::run_if_guard_or) names gets when this process has died and no process of
/// its jobs is left: at most one of its guards, the last one, has it carried out. It is kept secret as far as a process can.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LastWill(Value);

impl LastWill {
    /// A will with this content, of less than 64 KiB, which [`run_if_guard_or`](crate::run_if_guard_or) gets as JSON.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn new(content: &impl Serialize) -> io::Result<Self> {
        Ok(Self(serde_json::to_value(content)?))
    }

    /// Starts the process. It inherits the guard's blocked signals, so a service manager that ends the rest of a failed unit by
    /// SIGTERM does not end it before it is done.
    ///
    /// # Errors
    /// If it can't be started.
    pub(super) fn carry_out(&self) -> io::Result<()> {
        let mut child = Command::new(SELF_EXE)
            .arg0(program())
            .args([VERB, LAST_WILL])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        // A pipe takes so little without waiting for its reader.
        child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&serde_json::to_vec(self)?))
    }
}

impl fmt::Debug for LastWill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastWill").finish_non_exhaustive()
    }
}
