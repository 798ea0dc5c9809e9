//! The connect request and response.

use std::fmt;

use bytes::BytesMut;

use super::wire::{Field as _, Malformed, Reader, Writer};

/// The length of the passwords that servers give out.
pub const PASSWORD_LEN: usize = 16;

/// The first message of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The newest change that the client has seen. A server that has not seen it yet refuses the client.
    pub last_zxid: i64,
    /// The requested session timeout in milliseconds.
    pub timeout_ms: i32,
    /// The id of the session; 0 for a new one.
    pub session_id: i64,
    /// The password of the session.
    pub password: Vec<u8>,
    /// Whether the client accepts a server without a quorum. Clients before 3.4 do not send it.
    pub read_only: Option<bool>,
}

/// The server's answer to a [`ConnectRequest`].
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectResponse {
    /// The granted session timeout in milliseconds; 0 or less if the session does not exist.
    pub timeout_ms: i32,
    /// The id of the session; 0 if it does not exist.
    pub session_id: i64,
    /// The password for resuming the session on another connection.
    pub password: Vec<u8>,
    /// Whether the server has no quorum. Servers do not send it to clients that did not send theirs.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// Whether the session does not exist, or has expired.
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
            /// [`Malformed`], also for an unknown version of the protocol.
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

// Servers accept any version number; there is only one.
handshake!(ConnectRequest, checked: false { last_zxid, timeout_ms, session_id });
handshake!(ConnectResponse, checked: true { timeout_ms, session_id });
