//! Inputs and outputs of a [`Connection`](super::Connection).

use std::time::Duration;

use bytes::BytesMut;

use super::ticket::Ticket;
use super::watches::{WatchId, WatchKind};
use crate::codec::{ErrorCode, Reply, Request};

/// The limits of a connection: sizes of messages, and patience with the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request, without its length. A server closes the connection over a longer one, with all requests under
    /// way: its `jute.maxbuffer`, 1,048,575 by default.
    pub request: usize,
    /// Bytes of a message of the server, without its length. A read that is answered by more ends as [`Outcome::TooLarge`];
    /// any other longer message ends the connection.
    pub reply: usize,
    /// By when [`Connection::suspects`](super::Connection::suspects) a server that has become silent, at an eighth less than
    /// this. It is pinged four times within it, so that an idle session notices it in time. `None`: within three tenths of
    /// the session timeout.
    ///
    /// A server that usually takes longer to answer is given its usual time. So is one that may wait for a quorum, while a
    /// write is under way: its usual time, and at least a twentieth of the session timeout.
    pub suspect_after: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: 0xf_ffff, reply: 16 << 20, suspect_after: None }
    }
}

/// An event for the connection. `T` is the caller's tag of a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input<'a, T> {
    /// A handshake for this session has been granted, on a transport that replaces the last one.
    Attached(Ticket),
    /// Bytes have arrived. Whole frames are taken out.
    Received(&'a mut BytesMut),
    /// That many bytes of [`Connection::outgoing`](super::Connection::outgoing) have been written to the transport.
    Written(usize),
    /// The transport has failed.
    Lost(String),
    /// A request is to be sent.
    Request {
        /// The request.
        request: &'a Request<'a>,
        /// The watch that a successful reply arms; the request must ask for one.
        watch: Option<WatchId>,
        /// Whether it is a heartbeat: the time of its answer decides [`Connection::suspects`](super::Connection::suspects).
        heartbeat: bool,
        /// The caller's tag, returned with the outcome.
        tag: T,
    },
    /// The caller has given up that watch.
    Forget(WatchId),
    /// The session is to be closed. Nothing else is sent after that.
    Close(T),
    /// Nothing but time has passed.
    Tick,
}

/// An output of the connection. Callers must act on each: there will be no other kind without a new major version.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// A request has ended. Requests end in the order of sending.
    Ended {
        /// The tag of the request.
        tag: T,
        /// How it ended.
        outcome: Outcome,
    },
    /// A watch saw something. A one-shot watch is no longer armed.
    Watch {
        /// The watch.
        id: WatchId,
        /// The event.
        kind: WatchKind,
        /// The path of the znode.
        path: String,
    },
    /// On the transport that was attached each watch is armed again or has fired.
    Ready,
    /// The transport is lost, or its server does not serve the session, as far as it knows: attach the session to another
    /// one. The requests under way have ended.
    Lost {
        /// The reason.
        reason: String,
    },
    /// The session is closed, as requested. The last output.
    Closed,
}

/// How a request ended. These are all the ways that there are.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has answered.
    Answered(Result<Reply, ErrorCode>),
    /// No byte of it was written: it had no effect and never will.
    NotSent(NotSent),
    /// It may have been applied, or may be applied later, as long as the session lives.
    PerhapsApplied(String),
    /// A read was answered by more than [`Limits::reply`] bytes, which are dropped. Its watch is not armed.
    TooLarge {
        /// The size of the answer.
        size: usize,
        /// The limit.
        limit: usize,
    },
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// There is no transport, or it was lost before the request was written.
    #[error("there is no connection: {0}")]
    Disconnected(String),
    /// The session is being closed.
    #[error("the session is being closed")]
    Closing,
    /// Longer than [`Limits::request`]. The server would close the connection over it.
    #[error("the request has {size} bytes, more than the servers accept ({limit}, jute.maxbuffer)")]
    TooLarge {
        /// The size of the request.
        size: usize,
        /// The limit of the servers.
        limit: usize,
    },
}
