//! A client's side of the protocol as state machines: bytes and times in, bytes and outcomes out.
//!
//! ```text
//!                 new transport                      bytes, requests, time
//!                       |                                     |
//!                 Handshake ---- Grant ---- Input::Attached --> Connection --> Output: replies, watch events,
//!                       |                                     |                        what became of the session
//!                    Refusal                                  +--> outgoing(): bytes to write
//! ```
//!
//! A [`Handshake`] takes one transport (a TCP or TLS stream) to the point where the session is served on it. A
//! [`Connection`] is the session's side of the wire from then on, over one transport after another: it keeps the session's
//! identity, its watches and the newest change that it has seen.

mod connection;
mod handshake;
mod pace;
#[cfg(feature = "sasl")]
mod sasl;
mod watches;

pub use connection::{Connection, Input, Limits, NotSent, Outcome, Output};
pub use handshake::{Credentials, Grant, Handshake, Purpose, Refusal, Ticket};
#[cfg(feature = "sasl")]
pub use sasl::DigestMd5;
pub use watches::{WatchId, WatchKind};
