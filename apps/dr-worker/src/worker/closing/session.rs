//! The worker's ZooKeeper session, as its last will has it.

use serde::{Deserialize, Serialize};
use zk_session::Ticket;

use crate::connect::Servers;

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

    pub(super) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Auth, Scheme, ZooKeeperTls};
    use std::time::Duration;
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
        assert_eq!(*again.ticket(), Ticket { last_zxid: 0, ..ticket.clone() });
        let shown = format!("{session:?}");
        assert!(!shown.contains("password") && !shown.contains("100, 101"), "{shown}");
        // A server that ends its sessions with their connections.
        let brief = Ticket { password: vec![0; 16], ..ticket };
        assert_eq!(WorkerSession::new(brief, &servers), None);
    }
}
