//! What it takes to go on with a session elsewhere.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "serde")]
use crate::codec::PASSWORD_LEN;
use crate::codec::SessionId;

/// Resumes a session on another transport, or in another process. Any process that has it can act as the session.
///
/// With the feature `serde` it can be stored and sent: keep it secret there, too. What is read is checked, and refused if no
/// server can have granted it.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(Serialize, Deserialize),
    serde(into = "StoredTicket", try_from = "StoredTicket")
)]
pub struct Ticket {
    /// ZooKeeper's id of the session.
    pub session_id: SessionId,
    /// The password of the session.
    pub password: Vec<u8>,
    /// The granted session timeout, which may differ from the requested one.
    pub timeout: Duration,
    /// The newest change that the session has seen. A server that is behind it does not accept the session.
    pub last_zxid: i64,
}

impl Ticket {
    /// Whether the session can be resumed on another transport. ClickHouse Keeper ends a session with its connection,
    /// and gives it a password of zeros, which no ZooKeeper does.
    #[must_use]
    pub fn outlives_its_connection(&self) -> bool {
        self.password.iter().any(|byte| *byte != 0)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("session_id", &format_args!("{}", self.session_id))
            .field("timeout", &self.timeout)
            .field("last_zxid", &self.last_zxid)
            .finish_non_exhaustive()
    }
}

/// A [`Ticket`], read and not checked yet.
#[cfg(feature = "serde")]
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTicket {
    session_id: i64,
    password: Vec<u8>,
    timeout_ms: i32,
    last_zxid: i64,
}

#[cfg(feature = "serde")]
impl From<Ticket> for StoredTicket {
    fn from(Ticket { session_id, password, timeout, last_zxid }: Ticket) -> Self {
        // Servers grant no longer one.
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        Self { session_id: session_id.0, password, timeout_ms, last_zxid }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<StoredTicket> for Ticket {
    type Error = String;

    fn try_from(read: StoredTicket) -> Result<Self, String> {
        let StoredTicket { session_id, password, timeout_ms, last_zxid } = read;
        let timeout = u64::try_from(timeout_ms).ok().filter(|timeout| *timeout > 0);
        let timeout = timeout.ok_or_else(|| format!("timeout_ms is {timeout_ms}: it must be at least 1"))?;
        if session_id == 0 {
            return Err("session_id is 0, which is no session".to_owned());
        }
        if password.len() != PASSWORD_LEN {
            return Err(format!("the password has {} bytes instead of {PASSWORD_LEN}", password.len()));
        }
        if last_zxid < 0 {
            return Err(format!("last_zxid is {last_zxid}: it must not be negative"));
        }
        let (session_id, timeout) = (SessionId(session_id), Duration::from_millis(timeout));
        Ok(Self { session_id, password, timeout, last_zxid })
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again_and_anything_else_is_refused() {
        let password: Vec<u8> = (100..116).collect();
        let ticket =
            Ticket { session_id: SessionId(-7), password, timeout: Duration::from_secs(4), last_zxid: 99 };
        let text = serde_json::to_string(&ticket).unwrap();
        assert_eq!(serde_json::from_str::<Ticket>(&text).unwrap(), ticket);
        for (there, wrong, named) in [
            ("-7", "0", "session_id"),
            ("[100,", "[", "password has 15 bytes"),
            ("[100,", "[100,100,", "password has 17 bytes"),
            ("4000", "0", "timeout_ms"),
            ("4000", "-1", "timeout_ms"),
            ("4000", "4294967296", "4294967296"),
            ("99", "-99", "last_zxid"),
            ("last_zxid", "zxid", "unknown field"),
        ] {
            let spoiled = text.replacen(there, wrong, 1);
            let error = serde_json::from_str::<Ticket>(&spoiled).unwrap_err().to_string();
            assert!(error.contains(named), "{spoiled}: {error}");
            assert!(!error.contains("101"), "no part of the password: {error}");
        }
        assert!(serde_json::from_str::<Ticket>(&text[..text.len() - 1]).is_err(), "cut short");
    }
}
