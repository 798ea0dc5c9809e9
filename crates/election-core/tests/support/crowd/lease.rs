//! The heartbeats of members that keep a lease, and what those prove: the rules of `zk-session`.

use std::time::Duration;

use election_core::internals::{Event, Time};

use super::{Crowd, Due, EPOCH, TICK, TIMEOUT, server::Message};
use crate::zookeeper::Millis;

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

    /// What is acknowledged a tick before a heartbeat is sent has reached the ensemble's leader.
    fn acknowledged(&mut self, sent: Time, now: Time) {
        let tick = Duration::from_millis(TICK);
        let proved = self.heartbeats.iter().filter(|(_, at)| *at + tick <= sent).map(|(sent, _)| *sent).max();
        self.alive = self.alive.max(proved.unwrap_or(Time::ZERO));
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
        // What gives a lease again where one has run out: two heartbeats, a tick apart.
        let interval = if lease.valid_until() <= sent { TICK + TICK / 4 } else { TIMEOUT / 4 };
        let turn = lease.turn;
        self.send(member, Message::Heartbeat(sent));
        self.after(interval, member, Due::Heartbeat(turn));
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
