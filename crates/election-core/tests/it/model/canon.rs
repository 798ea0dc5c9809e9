//! When two states are equal: a hash that omits what no part of the system can distinguish.
//!
//! Times are relative to the present, and all times that are further back than any timeout are equal. Transactions are
//! replaced by their order, because they are only compared. Operations are numbered from the first on. The engine's own
//! `Hash` writes each of the three in a distinct form.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The first transaction. A number from here to [`WALL`] is a transaction.
pub(crate) const FIRST_ZXID: i64 = 1 << 32;

/// A larger number is a wall-clock time.
const WALL: u64 = 1 << 40;

/// What distinguishes a state from another.
#[derive(Debug)]
pub(crate) struct Canon {
    now: i128,
    span: i128,
    bytes: Vec<u8>,
    zxids: Vec<(usize, u64)>,
    ops: Vec<i128>,
}

impl Canon {
    /// At `now`; what lies more than `span` back or ahead is as good as `span`. Both in
    /// nanoseconds.
    pub(crate) fn new(now: u128, span: u128) -> Self {
        let signed = |n: u128| i128::try_from(n).unwrap_or(i128::MAX);
        Self {
            now: signed(now),
            span: signed(span),
            bytes: Vec::with_capacity(1 << 14),
            zxids: Vec::new(),
            ops: Vec::new(),
        }
    }

    /// The next part belongs to another process: its operations are its own.
    pub(crate) fn part(&mut self) {
        self.ops.clear();
    }

    pub(crate) fn fingerprint(mut self) -> u64 {
        let mut order: Vec<u64> = self.zxids.iter().map(|(_, zxid)| *zxid).collect();
        order.sort_unstable();
        order.dedup();
        for (at, zxid) in &self.zxids {
            let rank = order.partition_point(|known| known < zxid) as u64;
            self.bytes[*at..*at + 8].copy_from_slice(&rank.to_le_bytes());
        }
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        hasher.finish()
    }

    fn zxid(&mut self, zxid: u64) {
        self.bytes.push(b'z');
        self.zxids.push((self.bytes.len(), zxid));
        self.bytes.extend([0; 8]);
    }
}

impl Hasher for Canon {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn write_u64(&mut self, n: u64) {
        if n >= FIRST_ZXID.unsigned_abs() && n < WALL {
            // A fencing token is a transaction.
            self.zxid(n);
        } else {
            self.write(&n.to_le_bytes());
        }
    }

    fn write_i64(&mut self, n: i64) {
        if n >= FIRST_ZXID { self.zxid(n.unsigned_abs()) } else { self.write(&n.to_le_bytes()) }
    }

    fn write_u128(&mut self, moment: u128) {
        let moment = i128::try_from(moment).unwrap_or(i128::MAX);
        let relative = moment.saturating_sub(self.now).clamp(-self.span, self.span);
        self.write(&relative.to_le_bytes());
    }

    fn write_i128(&mut self, op: i128) {
        let known = self.ops.iter().position(|known| *known == op);
        let at = known.unwrap_or_else(|| {
            self.ops.push(op);
            self.ops.len() - 1
        });
        self.write(&[b'o', u8::try_from(at).unwrap_or(u8::MAX)]);
    }

    fn finish(&self) -> u64 {
        unreachable!("the order of the transactions is known at the end: call fingerprint()")
    }
}
