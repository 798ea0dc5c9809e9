//! Closes the session of a dead worker: a process that the worker's last guard starts, and does not wait for.
//!
//! The guard has neither a network nor a runtime. This process has both, and nothing else to do.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use zk_session::{CloseOutcome, ConnectError};

use super::invocation::{CLOSE_SESSION, EXIT_USAGE, SELF_EXE, VERB};
use super::session::WorkerSession;
use crate::{
    config::LogConfig,
    logging::{self, Usual},
    program::program,
};

/// The longest time for the whole: a service manager may wait for this process before it starts the next worker.
const LONGEST: Duration = Duration::from_secs(30);

/// How long the last lines of the log may take.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Starts the process. It inherits the guard's blocked signals, so a service manager that ends the rest of a failed unit by
/// SIGTERM does not end it before it has closed the session.
///
/// # Errors
/// If it can't be started.
pub(super) fn start(session: &WorkerSession) -> io::Result<()> {
    let mut child = Command::new(SELF_EXE)
        .arg0(program())
        .args([VERB, CLOSE_SESSION])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    // A pipe takes so little without waiting for its reader.
    child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&serde_json::to_vec(session)?))
}

/// Reads the session from standard input, and closes it.
pub(super) fn run() -> ExitCode {
    let Ok(session) = serde_json::from_reader::<_, WorkerSession>(io::stdin().lock()) else {
        return ExitCode::from(EXIT_USAGE);
    };
    // Without a log it works as well.
    let _ = logging::init(None, Usual::Daemon, None, LogConfig::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let closed = match runtime {
        Ok(runtime) => runtime.block_on(close(&session)),
        Err(error) => Err(error.to_string()),
    };
    let id = session.ticket().session_id;
    match closed {
        Ok(how) => {
            tracing::info!(session = %id, "the worker has died, and no process of its jobs is left: {how}")
        }
        Err(error) => tracing::warn!(
            session = %id,
            "the worker has died, and its session could not be closed: {error}; it ends by its timeout"
        ),
    }
    logging::flush(LAST_LINES);
    ExitCode::SUCCESS
}

async fn close(session: &WorkerSession) -> Result<&'static str, String> {
    let builder = session.servers().builder().map_err(|error| error.to_string())?;
    let ticket = session.ticket();
    // After its timeout it is over in any case, unless the ensemble has no quorum.
    let within = ticket.timeout.min(LONGEST);
    match builder.close_left_behind(ticket, within).await {
        Ok(CloseOutcome::Acknowledged) => Ok("its session is closed"),
        Ok(_) => Err("the server did not answer in time".to_owned()),
        Err(ConnectError::Expired) => Ok("its session is over already"),
        Err(error) => Err(error.to_string()),
    }
}
