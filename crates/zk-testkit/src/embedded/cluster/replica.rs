//! One of the servers: its view of the znodes, and its link to the one that leads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use zk_proto::{Id, OpCode};

use super::Refusal;
use super::sessions::Sessions;
use crate::embedded::settings::Release;
use crate::embedded::tree::{Tree, Txn, Watches};

#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) tree: Tree,
    pub(super) watches: Watches,
    /// Whether it serves clients, as a part of a quorum.
    pub(super) serving: bool,
    /// While it answers reads without a quorum: the sessions of its clients, which no other server has.
    pub(super) local: Option<Sessions>,
    pub(super) link: ReplicaLink,
    /// How it refuses its clients, if it does.
    pub(super) refuses: Option<Refusal>,
    /// From the leader, in order.
    pub(super) inbox: VecDeque<(Duration, Delivery)>,
    /// To the leader, in order.
    pub(super) outbox: VecDeque<Forward>,
    /// Sessions that were active, with their timeouts, since the last report to the leader.
    pub(super) touched: BTreeMap<i64, u64>,
    /// When they are reported to the leader, by the servers' clock.
    pub(super) report_at: Option<Duration>,
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// The link between a server and the leader, in both directions; the leader's link to itself is always open.
#[derive(Debug, Default)]
pub(super) struct ReplicaLink {
    /// The server does not run.
    pub(super) stopped: bool,
    /// By the servers' clock, since when nothing passes.
    pub(super) cut_since: Option<Duration>,
    /// Whether what is committed waits until it is let through.
    pub(super) held: bool,
    /// How much later what is committed arrives.
    pub(super) lag: Duration,
}

impl ReplicaLink {
    pub(super) fn is_up(&self) -> bool {
        self.cut_since.is_none() && !self.stopped
    }
}

/// Who waits for the answer to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) connection: u64,
    pub(super) xid: i32,
}

/// A message from the leader.
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
    pub(super) fn new(tree: Tree, release: Release) -> Self {
        let watches = Watches::new(release >= Release::V3_9);
        Self { tree, watches, serving: true, ..Self::default() }
    }

    /// It is without a leader: messages under way are dropped.
    pub(super) fn stop(&mut self) {
        self.serving = false;
        self.local = None;
        self.inbox.clear();
        self.outbox.clear();
        self.touched.clear();
        self.report_at = None;
    }

    pub(super) fn serves_reads(&self) -> bool {
        self.serving || self.local.is_some()
    }

    /// When the next delivery is due, if it may pass.
    pub(super) fn next_delivery(&self) -> Option<Duration> {
        let passes = self.link.is_up() && !self.link.held;
        self.inbox.front().filter(|_| passes).map(|(due, _)| *due)
    }

    /// The next delivery whose time has come.
    pub(super) fn take_delivery(&mut self, now: Duration) -> Option<Delivery> {
        self.next_delivery().filter(|due| *due <= now)?;
        self.inbox.pop_front().map(|(_, delivery)| delivery)
    }
}
