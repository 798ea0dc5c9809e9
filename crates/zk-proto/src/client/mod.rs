//! A client's side of the protocol as state machines: bytes and times in, bytes and outcomes out.
//!
//! ```text
//!                 new transport                      bytes, requests, time
//!                       |                                     |
//!                 Handshake ---- Ticket --- Input::Attached --> Connection --> Output: replies, watch events,
//!                       |                                     |                        what became of the session
//!                    Refusal                                  +--> outgoing(): bytes to write
//! ```
//!
//! A [`Handshake`] takes one transport (a TCP or TLS stream) to the point where the session is served on it. A
//! [`Connection`] is the session's side of the wire from then on, over one transport after another: it keeps the session's
//! identity, its watches and the newest change that it has seen.

mod connection;
mod dialogue;
mod handshake;
mod pace;
mod pending_watch;
#[cfg_attr(not(feature = "sasl"), path = "no_sasl.rs")]
mod sasl;
mod ticket;
mod watches;

pub use connection::Connection;
pub use dialogue::{Input, Limits, NotSent, Outcome, Output};
pub use handshake::{Credentials, Handshake, Purpose, Refusal};
#[cfg(feature = "sasl")]
pub use sasl::DigestMd5;
pub use ticket::Ticket;
pub use watches::{WatchId, WatchKind};
