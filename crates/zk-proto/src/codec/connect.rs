//! The first frame of either side.

use std::fmt;

use bytes::BytesMut;

use super::wire::{Field as _, Malformed, Reader, Writer};

/// The length of the passwords that servers give out.
pub const PASSWORD_LEN: usize = 16;

/// What a client sends first.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// A server that has not seen this change yet refuses the client.
    pub last_zxid: i64,
    /// Asked for, in milliseconds.
    pub timeout_ms: i32,
    /// 0 for a new session.
    pub session_id: i64,
    /// Of the session.
    pub password: Vec<u8>,
    /// Whether a server without a quorum would do. Clients before 3.4 do not say.
    pub read_only: Option<bool>,
}

/// A server's answer to it.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Granted, in milliseconds; 0 or less where there is no such session.
    pub timeout_ms: i32,
    /// 0 where there is no such session.
    pub session_id: i64,
    /// For taking the session to another connection.
    pub password: Vec<u8>,
    /// Whether the server has no quorum. Servers do not say it to clients that did not say it either.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// There is no such session, or no longer.
    #[must_use]
    pub fn refusal(with_read_only: bool) -> Self {
        let read_only = with_read_only.then_some(false);
        Self { timeout_ms: 0, session_id: 0, password: vec![0; PASSWORD_LEN], read_only }
    }
}

/// Both are alike but for their fields, of which the password is not printed, and the last may be missing.
macro_rules! handshake {
    ($name:ident, checked: $checked:literal { $($field:ident),* }) => {
        impl $name {
            /// Reads a frame without its length.
            ///
            /// # Errors
            /// [`Malformed`], also for a version of the protocol that is not known.
            pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
                let mut reader = Reader::new(frame);
                if reader.next::<i32>()? != 0 && $checked {
                    return Err(Malformed("a handshake of an unknown protocol version"));
                }
                $(let $field = reader.next()?;)*
                let password = reader.buffer()?.unwrap_or_default().to_vec();
                Ok(Self { $($field,)* password, read_only: reader.next().ok() })
            }

            /// Appends the frame.
            pub fn encode(&self, out: &mut BytesMut) {
                Writer::frame(out, |writer| {
                    0_i32.write(writer);
                    $(self.$field.write(writer);)*
                    writer.buffer(Some(&self.password));
                    if let Some(read_only) = self.read_only {
                        read_only.write(writer);
                    }
                });
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                $(shown.field(stringify!($field), &self.$field);)*
                shown.field("read_only", &self.read_only).finish_non_exhaustive()
            }
        }
    };
}

// Servers take any version, and speak the one that there is.
handshake!(ConnectRequest, checked: false { last_zxid, timeout_ms, session_id });
handshake!(ConnectResponse, checked: true { timeout_ms, session_id });
