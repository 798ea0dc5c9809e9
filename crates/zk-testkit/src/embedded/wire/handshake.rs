//! The first frame of either side.

use super::{Malformed, Reader, Writer};

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectRequest {
    pub(crate) last_zxid_seen: i64,
    pub(crate) timeout_ms: i32,
    /// 0 for a new session.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    /// Clients before 3.4 send no such flag, and are sent none.
    pub(crate) read_only: Option<bool>,
}

impl ConnectRequest {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let _protocol = reader.int()?;
        Ok(Self {
            last_zxid_seen: reader.long()?,
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.buffer()?.unwrap_or_default(),
            read_only: reader.bool().ok(),
        })
    }
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectResponse {
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: [u8; 16],
    pub(crate) with_read_only: bool,
}

impl ConnectResponse {
    /// There is no such session, or no longer.
    pub(crate) fn refusal(with_read_only: bool) -> Self {
        Self { timeout_ms: 0, session: 0, password: [0; 16], with_read_only }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut writer = Writer::frame();
        writer.int(0);
        writer.int(self.timeout_ms);
        writer.long(self.session);
        writer.buffer(Some(&self.password));
        if self.with_read_only {
            writer.bool(false);
        }
        writer.finish()
    }
}
