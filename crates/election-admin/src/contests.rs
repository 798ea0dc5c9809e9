//! Reads elections in which a znode alone determines the leader.

use zk_session::OpError;

use crate::{
    observer::{LeaderZnode, Observer, Snapshot, usable},
    outline::Outline,
};
use election_core::{
    Paths,
    config::QueueFormat,
    internals::{
        Layout, Node, ReadError, get_all,
        record::{Contender, Record as _, TokenBase},
    },
};

impl Observer {
    /// The recipe of the election's present candidates; `None` if there are no candidates.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn standing(&self, paths: &Paths) -> Result<Option<Layout>, OpError> {
        Ok(Outline::read(self.session(), paths).await?.standing(paths))
    }

    /// The recipe of the election, now or last; `None` if there is no election.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn layout(&self, paths: &Paths) -> Result<Option<Layout>, OpError> {
        Ok(Outline::read(self.session(), paths).await?.layout(paths))
    }

    /// Reads an election without an elector: its candidates, in the order of the queue.
    pub(crate) async fn contest(
        &self,
        paths: &Paths,
        layout: Layout,
        outline: Outline,
    ) -> Result<Snapshot, ReadError> {
        let mut snapshot = Snapshot { layout, ..Snapshot::default() };
        let unreadable = &mut snapshot.unreadable;
        if let Some(node) = &outline.tokens {
            snapshot.tokens = usable(TokenBase::decode(&paths.tokens(), &node.data), unreadable);
        }
        for (index, (path, node)) in self.holders(paths, layout, outline).await?.into_iter().enumerate() {
            let Some(contender) = usable(Contender::decode(&path, &node.data), unreadable) else { continue };
            let Some(ballot) = contender.ballot_at(&path) else { continue };
            if index == 0 {
                let record = contender.to_current(ballot.clone(), node.czxid);
                snapshot.leader_znodes =
                    vec![Some(LeaderZnode { record, version: node.version, czxid: node.czxid })];
            }
            snapshot.members.push(contender.into_member(ballot));
        }
        Ok(snapshot)
    }

    async fn holders(
        &self,
        paths: &Paths,
        layout: Layout,
        outline: Outline,
    ) -> Result<Vec<(String, Node)>, OpError> {
        if layout != Layout::Queue {
            return Ok(outline.leader.map(|node| (paths.leader_znode(0), node)).into_iter().collect());
        }
        let names = QueueFormat::Native.order(&outline.queue).into_iter().map(str::to_owned).collect();
        let holders = get_all(self.session(), &paths.queue(), names).await?.into_iter();
        Ok(holders.map(|(name, node)| (format!("{}/{name}", paths.queue()), node)).collect())
    }
}
