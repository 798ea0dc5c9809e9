//! Closes the session of a dead worker: its last will, which a process of its own carries out.
//!
//! Otherwise the other members wait for the session's timeout, because over the network a dead worker looks like one that is cut
//! off.

mod session;

use std::process::ExitCode as ProcessExit;
use std::time::Duration;

use zk_session::{CloseOutcome, ConnectError};

pub(crate) use session::WorkerSession;

use crate::{
    config::LogConfig,
    error::ExitCode,
    logging::{self, Usual},
};

/// The longest time for the whole: a service manager may wait for this process before it starts the next worker.
const LONGEST: Duration = Duration::from_secs(30);

/// How long the last lines of the log may take.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Closes the session that is described.
pub(crate) fn run(session: &[u8]) -> ProcessExit {
    let Ok(session) = serde_json::from_slice::<WorkerSession>(session) else {
        return ExitCode::Usage.into();
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
    ProcessExit::SUCCESS
}

async fn close(session: &WorkerSession) -> Result<&'static str, String> {
    let builder = session.servers().builder().map_err(|error| error.to_string())?;
    let ticket = session.ticket().clone();
    // After its timeout it is over in any case, unless the ensemble has no quorum.
    let within = ticket.timeout.min(LONGEST);
    match builder.close_left_behind(ticket, within).await {
        Ok(CloseOutcome::Acknowledged) => Ok("its session is closed"),
        Ok(_) => Err("the server did not answer in time".to_owned()),
        Err(ConnectError::Expired) => Ok("its session is over already"),
        Err(error) => Err(error.to_string()),
    }
}
