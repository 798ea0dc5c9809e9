//! Reads the decision and the leader znodes again where nothing else would.
//!
//! A watch reports each value that differs from the one it reported before. What this member reads itself, or knows
//! from its own writes, can be a value that no watch ever reports: for example a leader znode that was created, and
//! deleted before the watch read it. Nothing would then correct the view. So what differs from the watch's last
//! report is read again, until both agree.
//!
//! While the connection was lost, the ensemble may have been restored from an older copy. Then no read of a znode is
//! ever as new as what is known of it, and the watch may report nothing, since servers compare with what the client
//! has seen. So everything is read once after each reconnect, and the elector decides nothing before it has read the
//! decision.
//!
//! A result of a watch that is older than what is known changes nothing: an own write may have overtaken it. An own
//! read counts regardless of its age, if it was begun after the view learned what it knows: servers answer a
//! session's requests in order, and accept no client that has seen more than they have. So an older answer means that
//! the ensemble returned to an older state.

use std::time::Duration;

use crate::{
    engine::{
        io::Node,
        ops::{Ops, Pending},
        znode::{Meta, Znode},
    },
    slots::Slots,
    time::Time,
};

/// How long a watch may lag before the znode is read without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the watches have reported, and where the view differs from it.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Rereading {
    /// In a contest there is none.
    decision: Option<Box<Report>>,
    /// By slot.
    leader_znodes: Slots<Report>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Report {
    /// Creation and last change in the watch's last report; `None` before its first report.
    report: Option<Option<(i64, i64)>>,
    due: Option<Time>,
    /// It was not read since the connection was lost.
    doubted: bool,
}

impl Rereading {
    fn of(&mut self, znode: Znode) -> &mut Report {
        let slot = match znode {
            Znode::Decision => return self.decision.get_or_insert_default(),
            Znode::Leader(slot) => slot,
        };
        self.leader_znodes.grow(slot + 1);
        &mut self.leader_znodes[slot]
    }

    fn all(&self) -> impl Iterator<Item = (Znode, &Report)> {
        let leader_znodes =
            self.leader_znodes.iter().enumerate().map(|(slot, report)| (Znode::Leader(slot), report));
        let decision = self.decision.iter().map(|report| (Znode::Decision, &**report));
        decision.chain(leader_znodes)
    }

    /// What must be read again, and when. Leaves out what is being read already for another reason.
    fn to_read(&self, ops: &Ops) -> impl Iterator<Item = (Znode, Time)> {
        let waits = |(znode, report): (Znode, &Report)| {
            let under_way = ops.has(&Pending::Reread(znode)) || (report.doubted && ops.reads(znode));
            Some((znode, report.due?)).filter(|_| !under_way)
        };
        self.all().filter_map(waits)
    }

    /// What must be read again by now.
    pub(crate) fn due(&self, ops: &Ops, now: Time) -> Vec<Znode> {
        self.to_read(ops).filter(|(_, due)| *due <= now).map(|(znode, _)| znode).collect()
    }

    /// When the next read is due.
    pub(crate) fn wake(&self, ops: &Ops) -> Option<Time> {
        self.to_read(ops).map(|(_, due)| due).min()
    }

    /// Records that this znode may have changed since it was last read.
    pub(crate) fn doubt(&mut self, znode: Znode, now: Time) {
        let report = self.of(znode);
        report.doubted = true;
        report.due = Some(now);
    }

    /// Records that the read has begun.
    pub(crate) fn begun(&mut self, znode: Znode) {
        self.of(znode).due = None;
    }

    /// Records that the znode was read.
    pub(crate) fn is_read(&mut self, znode: Znode) {
        self.of(znode).doubted = false;
    }

    /// Whether the decision may be one that the ensemble does not contain any more.
    pub(crate) fn doubts_decision(&self) -> bool {
        self.decision.as_ref().is_some_and(|report| report.doubted)
    }

    /// Whether the leader znode of `slot` may have changed by now.
    pub(crate) fn doubts_leader_znode(&self, slot: usize) -> bool {
        self.leader_znodes.get(slot).is_some_and(|report| report.doubted)
    }

    pub(crate) fn doubts_any_leader_znode(&self) -> bool {
        self.leader_znodes.iter().any(|report| report.doubted)
    }

    pub(crate) fn watch_told(&mut self, znode: Znode, node: Option<&Node>) {
        self.of(znode).report = Some(node.map(|n| (n.czxid, n.mzxid)));
    }

    /// The view has changed, or has been confirmed.
    pub(crate) fn compare(&mut self, znode: Znode, known: Option<Meta>, ops: &Ops, now: Time) {
        let report = self.of(znode);
        let agrees = report.report.is_none_or(|report| report == known.map(|m| (m.czxid, m.mzxid)));
        if agrees && !report.doubted {
            report.due = None;
        } else if report.due.is_none() && !ops.has(&Pending::Reread(znode)) {
            report.due = Some(now + PATIENCE);
        }
    }

    /// The leader znodes from this slot on are not watched any more.
    pub(crate) fn forget(&mut self, from: usize) {
        self.leader_znodes.truncate(from);
    }
}
