//! The heartbeats of members that keep a lease, and what those prove: the rules of `zk-session`.

use std::time::Duration;

use election_core::internals::{Event, Time};

use super::{Crowd, Due, EPOCH, TICK, TIMEOUT, server::Message};
use crate::zookeeper::Millis;

/// Between two heartbeats, or two probes.
const INTERVAL: Millis = TIMEOUT / 4;
/// How much sooner a lease ends than the session can.
const MARGIN: Millis = 100;

/// The lease of a member's session.
#[derive(Debug, Default)]
pub(super) struct Lease {
    pub(super) keeps: bool,
    /// Counts how often keeping it has begun or ended: a heartbeat that was due before is not.
    turn: u64,
    /// The latest moment at which the session is proved to have been alive.
    alive: Time,
    /// When each was sent and acknowledged.
    heartbeats: Vec<(Time, Time)>,
}

impl Lease {
    /// A session that was made now has a lease at once.
    pub(super) fn begin(&mut self, now: Time) {
        self.alive = now;
    }

    /// What is answered a tick before a heartbeat is sent has reached the ensemble's leader. Probes are not simulated one
    /// by one: the last one that a heartbeat proves is older by a tick and a heartbeat interval at the most.
    fn acknowledged(&mut self, sent: Time, now: Time) {
        let tick = Duration::from_millis(TICK);
        let probe = Duration::from_millis(TICK + INTERVAL);
        let proved = self.heartbeats.iter().filter(|(_, at)| *at + tick <= sent).map(|(sent, _)| *sent).max();
        let probed = Time::from_origin(sent.since_origin().saturating_sub(probe));
        self.alive = self.alive.max(probed).max(proved.unwrap_or(Time::ZERO));
        self.heartbeats.push((sent, now));
        if self.heartbeats.len() > 8 {
            self.heartbeats.remove(0);
        }
    }

    fn valid_until(&self) -> Time {
        self.alive + Duration::from_millis(TIMEOUT - MARGIN)
    }
}

impl Crowd {
    pub(super) fn keep_lease(&mut self, member: usize, keeps: bool) {
        let lease = &mut self.members[member].lease;
        lease.keeps = keeps;
        lease.turn += 1;
        if keeps {
            self.after(1, member, Due::Leased);
            self.heartbeat(member);
        }
    }

    pub(super) fn heartbeat_due(&mut self, member: usize, turn: u64) {
        let lease = &self.members[member].lease;
        if lease.keeps && lease.turn == turn {
            self.heartbeat(member);
        }
    }

    fn heartbeat(&mut self, member: usize) {
        let sent = self.clock().time;
        let lease = &self.members[member].lease;
        let turn = lease.turn;
        self.send(member, Message::Heartbeat(sent));
        self.after(INTERVAL, member, Due::Heartbeat(turn));
    }

    pub(super) fn acknowledged(&mut self, member: usize, sent: Time) {
        let now = self.clock().time;
        self.members[member].lease.acknowledged(sent, now);
        self.leased(member);
    }

    /// Reports the lease, if one is kept and proved.
    pub(super) fn leased(&mut self, member: usize) {
        let lease = &self.members[member].lease;
        let valid_until = lease.valid_until();
        if lease.keeps && self.clock().time < valid_until {
            self.feed(member, Event::Lease { epoch: EPOCH, valid_until });
        }
    }
}
