//! One client's connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use zk_proto::{Id, RequestHeader};

use crate::embedded::tree::HashOrder;
use crate::proxy::MatchedFault;

#[derive(Debug)]
pub(super) struct Connection {
    /// The index of the server.
    pub(super) at: usize,
    pub(super) peer: SocketAddr,
    /// Bytes that are no whole frame yet, or must wait.
    pub(super) input: BytesMut,
    pub(super) stage: Stage,
    identities: HashOrder<Id>,
    who: Arc<[Id]>,
    /// Requests that have been read and not been begun.
    pub(super) queue: VecDeque<Queued>,
    /// How many of its requests wait to be put into another order.
    pub(super) collected: usize,
    /// A request that has been begun is not answered yet.
    pub(super) waiting: bool,
    /// Output that is not released yet, with the time of its release.
    pub(super) output: VecDeque<(Duration, Output)>,
    /// The number of bytes for the client that are not written yet.
    pub(super) unsent: usize,
    /// Nothing passes in either direction.
    pub(super) black_hole: bool,
    /// What the client sends is kept back.
    pub(super) requests_held: bool,
    /// Nothing more is sent to this client.
    pub(super) unanswered: bool,
    /// Replies come so much later.
    pub(super) delay: Duration,
    /// A fault that waits for the reply to a request.
    pub(super) fault: Option<MatchedFault>,
    /// The client has hung up, and yet some of what it sent is to arrive.
    pub(super) peer_gone: bool,
    pub(super) received: u64,
    pub(super) sent: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Handshake,
    Joining {
        session: i64,
        timeout_ms: u64,
        with_read_only: bool,
    },
    Open {
        session: i64,
        timeout_ms: u64,
    },
    /// Closed after the pending output.
    Over,
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) header: RequestHeader,
    pub(super) body: Bytes,
    /// Who the client was when it asked.
    pub(super) who: Arc<[Id]>,
}

/// What is to be done to a connection.
#[derive(Debug)]
pub(crate) enum Output {
    Send(Bytes),
    Close(Ending),
}

impl Output {
    pub(super) fn frame(encode: impl FnOnce(&mut BytesMut)) -> Self {
        let mut frame = BytesMut::new();
        encode(&mut frame);
        Self::Send(frame.freeze())
    }
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After the pending output.
    Orderly,
    /// As a network or a crash does.
    Reset,
}

impl Connection {
    pub(super) fn new(at: usize, peer: SocketAddr) -> Self {
        let mut connection = Self {
            at,
            peer,
            input: BytesMut::new(),
            stage: Stage::Handshake,
            identities: HashOrder::with_capacity(16),
            who: Arc::new([]),
            queue: VecDeque::new(),
            collected: 0,
            waiting: false,
            output: VecDeque::new(),
            unsent: 0,
            black_hole: false,
            requests_held: false,
            unanswered: false,
            delay: Duration::ZERO,
            fault: None,
            peer_gone: false,
            received: 0,
            sent: 0,
        };
        connection.identify(Id::new("ip", peer.ip().to_string()));
        connection
    }

    pub(super) fn who(&self) -> Arc<[Id]> {
        Arc::clone(&self.who)
    }

    pub(super) fn identify(&mut self, id: Id) {
        if self.identities.insert(id) {
            self.who = self.identities.iter().cloned().collect();
        }
    }

    pub(super) fn session(&self) -> Option<i64> {
        match self.stage {
            Stage::Open { session, .. } => Some(session),
            Stage::Handshake | Stage::Joining { .. } | Stage::Over => None,
        }
    }

    /// Whether what the client sends is to be looked at now.
    pub(super) fn reads(&self) -> bool {
        !self.black_hole && !self.requests_held && !matches!(self.stage, Stage::Over | Stage::Joining { .. })
    }
}
