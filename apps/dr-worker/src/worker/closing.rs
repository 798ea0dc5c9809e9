//! Closes the session of a dead worker: its last will, which a process of its own carries out.
//!
//! Otherwise the other members wait for the session's timeout, because over the network a dead worker looks like one that is cut
//! off.

use std::process::ExitCode as ProcessExit;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_session::{CloseOutcome, ConnectError, Ticket};

use crate::{
    config::LogConfig,
    connect::Servers,
    error::ExitCode,
    logging::{self, Usual},
};

/// The longest time for the whole: a service manager may wait for this process before it starts the next worker.
const LONGEST: Duration = Duration::from_secs(30);

/// How long the last lines of the log may take.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A session, and how to reach it. Any process that has it can act as the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerSession {
    ticket: Ticket,
    servers: Servers,
}

impl WorkerSession {
    /// `None` for a session that ends with its connection.
    pub(crate) fn new(ticket: Ticket, servers: &Servers) -> Option<WorkerSession> {
        // Nothing is read on it, so a server that is behind may take it.
        let ticket = Ticket { last_zxid: 0, ..ticket };
        ticket.outlives_its_connection().then(|| WorkerSession { ticket, servers: servers.clone() })
    }
}

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
    let id = session.ticket.session_id;
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
    let builder = session.servers.builder().map_err(|error| error.to_string())?;
    let ticket = session.ticket.clone();
    // After its timeout it is over in any case, unless the ensemble has no quorum.
    let within = ticket.timeout.min(LONGEST);
    match builder.close_left_behind(ticket, within).await {
        Ok(CloseOutcome::Acknowledged) => Ok("its session is closed"),
        Ok(_) => Err("the server did not answer in time".to_owned()),
        Err(ConnectError::Expired) => Ok("its session is over already"),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Auth, Scheme, ZooKeeperTls};
    use zk_session::SessionId;

    #[test]
    fn it_survives_the_way_to_the_guard_and_shows_no_password() {
        let servers = Servers::example(
            Some(Auth { scheme: Scheme::Sasl, credentials_file: "/etc/dr/credentials".into() }),
            Some(ZooKeeperTls { ca_file: "/ca.pem".into(), cert_file: None, key_file: None }),
        );
        let password: Vec<u8> = (100..116).collect();
        let ticket =
            Ticket { session_id: SessionId(-7), password, timeout: Duration::from_secs(4), last_zxid: 99 };
        let session = WorkerSession::new(ticket.clone(), &servers).expect("it outlives its connection");
        let text = serde_json::to_string(&session).expect("JSON");
        let again: WorkerSession = serde_json::from_str(&text).expect("the same");
        assert_eq!(again, session);
        assert_eq!(again.ticket, Ticket { last_zxid: 0, ..ticket.clone() });
        let shown = format!("{session:?}");
        assert!(!shown.contains("password") && !shown.contains("100, 101"), "{shown}");
        // A server that ends its sessions with their connections.
        let brief = Ticket { password: vec![0; 16], ..ticket };
        assert_eq!(WorkerSession::new(brief, &servers), None);
    }
}
