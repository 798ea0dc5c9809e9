//! Ctrl-C and SIGTERM.

use std::fmt;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// The signal that ended the chore.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ended {
    Interrupt,
    Terminate,
}

impl Ended {
    /// 128 and the signal's number, as shells give it.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Interrupt => ExitCode::from(130),
            Self::Terminate => ExitCode::from(143),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "interrupted",
            Self::Terminate => "terminated",
        })
    }
}

/// Waits for one of the two signals. From the first call on neither ends this process, so that it can clean up.
pub(crate) async fn any() -> anyhow::Result<Ended> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    tokio::select! {
        _ = interrupt.recv() => Ok(Ended::Interrupt),
        _ = terminate.recv() => Ok(Ended::Terminate),
    }
}
