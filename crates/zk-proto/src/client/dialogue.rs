//! What goes into a [`Connection`](super::Connection) and what comes out of it.

use bytes::BytesMut;

use super::handshake::Ticket;
use super::watches::{WatchId, WatchKind};
use crate::codec::{ErrorCode, Reply, Request};

/// What is accepted and sent at the most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request, without its length. A server closes the connection over a longer one, with everything that is
    /// under way on it: its `jute.maxbuffer`, 1,048,575 by default.
    pub request: usize,
    /// Bytes of a reply, without its length. Whoever sends more is taken for something that is no ZooKeeper.
    pub reply: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: 0xf_ffff, reply: 16 << 20 }
    }
}

/// What happens to the connection. `T` is whatever the caller knows a request by.
#[derive(Debug)]
pub enum Input<'a, T> {
    /// A handshake for this session has been granted, on a transport that takes the place of the one before.
    Attached(Ticket),
    /// Bytes have arrived. Whole frames are taken out.
    Received(&'a mut BytesMut),
    /// So many bytes of [`Connection::outgoing`](super::Connection::outgoing) have been written to the transport.
    Written(usize),
    /// The transport has failed.
    Lost(String),
    /// A request is to be sent.
    Request {
        /// What is asked for.
        request: &'a Request<'a>,
        /// The watch that a successful reply arms; the request must ask for one.
        watch: Option<WatchId>,
        /// Whether it is sent to learn how the server does: the time that its answer takes is what [`Connection::suspects`](super::Connection::suspects)
        /// goes by.
        heartbeat: bool,
        /// By which its outcome is known.
        tag: T,
    },
    /// Nobody waits for that watch any more.
    Forget(WatchId),
    /// The session is to be closed. Nothing else is sent after that.
    Close(T),
    /// Nothing but time has passed.
    Tick,
}

/// What the connection has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// A request has ended. In the order in which they were sent.
    Ended {
        /// Of the request.
        tag: T,
        /// How.
        outcome: Outcome,
    },
    /// A watch saw something. A one-shot watch is no longer armed.
    Watch {
        /// Which.
        id: WatchId,
        /// What it saw.
        kind: WatchKind,
        /// Where.
        path: String,
    },
    /// On the transport that was attached each watch is armed again or has fired.
    Ready,
    /// The transport is of no more use, and the session is to be taken to another. What was under way has ended.
    Lost {
        /// Why.
        reason: String,
    },
    /// The server says that the session has expired. Nothing follows.
    Expired,
    /// The session is closed, as it was asked to be. Nothing follows.
    Closed,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has answered.
    Answered(Result<Reply, ErrorCode>),
    /// Nothing of it was written: it had no effect and never will.
    NotSent(NotSent),
    /// It may have been applied, or may be applied later, as long as the session lives.
    PerhapsApplied(String),
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// There is no transport, or it was lost before the request was written.
    #[error("there is no connection: {0}")]
    Disconnected(String),
    /// The session is being closed.
    #[error("the session is being closed")]
    Closing,
    /// Longer than [`Limits::request`]. It would cost everybody on the session the connection.
    #[error("the request takes {size} bytes, and servers take no more than {limit} (jute.maxbuffer)")]
    TooLarge {
        /// Of the request.
        size: usize,
        /// Of the server.
        limit: usize,
    },
}
