//! One of the servers: its view of the znodes, and its link to the one that leads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use zk_proto::{Id, OpCode};

use crate::embedded::tree::{Tree, Txn, Watches};

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) tree: Tree,
    pub(super) watches: Watches,
    /// Whether it serves clients.
    pub(super) serving: bool,
    pub(super) link: Link,
    /// From the leader, in order.
    pub(super) inbox: VecDeque<(Duration, Delivery)>,
    /// To the leader, in order.
    pub(super) outbox: VecDeque<Forward>,
    /// Sessions that were heard of, with their timeouts, since the leader was told last.
    pub(super) touched: BTreeMap<i64, u64>,
    /// By the servers' clock, when the leader is told.
    pub(super) tell_at: Option<Duration>,
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// How what the leader says reaches a follower, and the other way round.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// By the servers' clock, since when nothing passes.
    pub(super) cut_since: Option<Duration>,
    /// Whether what is committed waits until it is let through.
    pub(super) held: bool,
    /// How much later what is committed arrives.
    pub(super) lag: Duration,
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.cut_since.is_none()
    }
}

/// Who waits for the answer to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) connection: u64,
    pub(super) xid: i32,
}

/// What a server hears of its leader.
#[derive(Debug)]
pub(super) enum Delivery {
    Commit {
        txn: Arc<Txn>,
        origin: Option<Origin>,
    },
    /// Whatever was committed before the request is here now.
    Synced {
        origin: Origin,
        path: String,
    },
}

/// What a server passes on to its leader.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) origin: Origin,
    pub(super) session: i64,
    pub(super) what: Ask,
}

#[derive(Debug)]
pub(super) enum Ask {
    Open {
        timeout_ms: u64,
    },
    Reattach {
        timeout_ms: u64,
    },
    /// It is read where it is decided on.
    Write {
        op: OpCode,
        body: Bytes,
        who: Arc<[Id]>,
    },
    Sync {
        path: String,
    },
}

impl Replica {
    pub(super) fn new(tree: Tree) -> Self {
        Self {
            tree,
            watches: Watches::default(),
            serving: true,
            link: Link::default(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            touched: BTreeMap::new(),
            tell_at: None,
            received: 0,
            sent: 0,
        }
    }

    /// It is without a leader: nothing that it was about to say or hear counts.
    pub(super) fn stop(&mut self) {
        self.serving = false;
        self.inbox.clear();
        self.outbox.clear();
        self.touched.clear();
        self.tell_at = None;
    }

    /// The next delivery whose time has come.
    pub(super) fn take_delivery(&mut self, now: Duration, leads: bool) -> Option<Delivery> {
        if !leads && (!self.link.is_up() || self.link.held) {
            return None;
        }
        if self.inbox.front()?.0 > now {
            return None;
        }
        self.inbox.pop_front().map(|(_, delivery)| delivery)
    }
}
