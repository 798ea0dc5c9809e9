//! Leaderships whose leader znode was taken from a member that may be alive, by a decision of that kind or by an
//! administrator. Until the holder learns of it, it may act beside the next leader, and the resource refuses it.

use std::collections::{BTreeMap, BTreeSet};

use election_core::internals::{
    EnteredLeadership, Node,
    record::{AdminRequest, Elected, MAX_SLOTS, TokenBase},
};

use super::Sim;
use crate::zookeeper::Millis;

#[derive(Debug)]
pub(crate) struct Deposed {
    /// Every base of the tokens so far.
    bases: BTreeSet<u64>,
    /// By the czxid of the leader znode, until when its holder may not know.
    until: BTreeMap<u64, Millis>,
    /// The newest token, and until when the same holds of it and all before it.
    before: (u64, Millis),
}

impl Default for Deposed {
    fn default() -> Self {
        Self { bases: BTreeSet::from([0]), until: BTreeMap::new(), before: (0, 0) }
    }
}

impl Deposed {
    pub(super) fn has_base(&mut self, base: u64) {
        self.bases.insert(base);
    }
}

impl Sim {
    /// The slowest watch, behind the slowest server, of a session that is renewed meanwhile; and the stop.
    fn known_by(&self) -> Millis {
        self.now + 2 * self.settings.timeout + 25_000
    }

    /// The ensemble has lost what it acknowledged: leader znodes, or that they were deleted.
    pub(super) fn depose_all(&mut self) {
        let newest = u64::try_from(self.zk.zxid()).unwrap_or(0) + self.deposed.bases.last().unwrap_or(&0);
        // The one before this may have lost a newer one, whose holder need not know of it yet.
        let (former, until) = self.deposed.before;
        let newest = if self.now < until { newest.max(former) } else { newest };
        self.deposed.before = (newest, self.known_by());
    }

    /// This leader znode is taken from its holder, which may not have computed its token yet.
    pub(super) fn depose(&mut self, place: &Node) {
        let until = self.known_by();
        self.deposed.until.insert(u64::try_from(place.czxid).unwrap_or(0), until);
    }

    /// Without an elector a base has a znode.
    pub(super) fn know_raised(&mut self) {
        let base = self.read::<TokenBase>(&self.paths.tokens()).map(|(base, _)| base.token_base);
        self.deposed.bases.extend(base);
    }

    /// Without an elector the base is in no decision.
    pub(super) fn know_base(&mut self, entered: &EnteredLeadership) {
        let place = self.zk.get(&self.ballot_path(&entered.ballot)).filter(|_| !self.has_elector());
        let czxid = place.and_then(|place| u64::try_from(place.czxid).ok());
        self.deposed.bases.extend(czxid.and_then(|czxid| entered.fencing_token.checked_sub(czxid)));
    }

    /// Whether the holder of this token may not know yet that it was deposed.
    pub(super) fn is_deposed(&self, token: u64) -> bool {
        let (newest, all_until) = self.deposed.before;
        // It depends on the base by which it acquired leadership, not on the present one.
        let czxids = self.deposed.bases.iter().filter_map(|base| token.checked_sub(*base));
        let until = czxids.filter_map(|czxid| self.deposed.until.get(&czxid)).max().copied().unwrap_or(0);
        self.now < until || (token <= newest && self.now < all_until)
    }

    /// An administrator takes leader znodes from their holders.
    pub(super) fn depose_where(&mut self, taken: impl Fn(&str, &Node) -> bool) {
        let places: Vec<_> = match self.queue() {
            Some(parent) => {
                let queue = self.zk.tree_at(&parent, self.zk.zxid());
                queue.into_iter().map(|(name, node)| (format!("{parent}/{name}"), node)).collect()
            }
            None => (0..MAX_SLOTS)
                .filter_map(|slot| {
                    let path = self.paths.leader_znode(slot);
                    Some((path.clone(), self.zk.get(&path)?.clone()))
                })
                .collect(),
        };
        for (_, place) in places.iter().filter(|(path, place)| taken(path, place)) {
            self.depose(place);
        }
    }

    /// The decision that carries out a forced request takes the leader znode of its slot.
    pub(super) fn depose_by_force(&mut self, elected: &Elected) {
        self.deposed.has_base(elected.token_base);
        let request = elected.latest().and_then(|given| given.request.as_ref());
        let Some(slot) = request.and_then(|request| elected.slot_for(request)) else { return };
        let path = request.map(|request| self.paths.request(&request.name)).unwrap_or_default();
        let is_forced = self.read::<AdminRequest>(&path).is_some_and(|(request, _)| request.force);
        if let Some(place) = self.zk.get(&self.paths.leader_znode(slot)).filter(|_| is_forced).cloned() {
            self.depose(&place);
        }
    }
}
