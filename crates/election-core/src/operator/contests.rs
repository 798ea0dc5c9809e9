//! Reads elections in which a znode alone determines the leader.

use zk_session::OpError;

use super::{
    layout::Layout,
    observer::{LeaderZnode, Observer, Snapshot},
};
use crate::{
    engine::{Node, QueueFormat},
    ids::Ballot,
    paths::Paths,
    record::{Contender, Current, Health, MemberRecord, Record as _, VERSION},
    runtime::{ReadError, operations::to_node},
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
        for (parent, layout) in [(paths.election(), Layout::Elector), (paths.queue(), Layout::Queue)] {
            if self.session().children(&parent).await?.is_some_and(|c| !c.names.is_empty()) {
                return Ok(Some(layout));
            }
        }
        let path = paths.leader_znode(0);
        let single = self.read(&path).await?.is_some_and(|node| {
            // The record of a leader under an elector has more fields than that of a contender.
            Current::decode(&path, &node.data).is_err() && Contender::decode(&path, &node.data).is_ok()
        });
        Ok(single.then_some(Layout::Single))
    }

    /// The recipe of the election, now or last; `None` if there is no election.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn layout(&self, paths: &Paths) -> Result<Option<Layout>, OpError> {
        let standing = self.standing(paths).await?;
        if standing.is_some() {
            return Ok(standing);
        }
        let base = self.session().children(paths.base()).await?.map(|c| c.names).unwrap_or_default();
        let parents = [("election", Layout::Elector), ("queue", Layout::Queue), ("leader", Layout::Single)];
        let found = parents.into_iter().find(|(parent, _)| base.iter().any(|name| name == parent));
        Ok(found.map(|(_, layout)| layout))
    }

    /// Reads an election without an elector: its candidates, in the order of the queue.
    pub(super) async fn contest(&self, paths: &Paths, layout: Layout) -> Result<Snapshot, ReadError> {
        let mut snapshot = Snapshot { layout, ..Snapshot::default() };
        for (index, (path, ballot, node)) in self.holders(paths, layout).await?.into_iter().enumerate() {
            let contender = match Contender::decode(&path, &node.data) {
                Ok(contender) => contender,
                Err(error) => {
                    snapshot.unreadable.push(error);
                    continue;
                }
            };
            if index == 0 {
                let record = contender.to_current(ballot.clone(), node.czxid);
                snapshot.leader_znodes =
                    vec![Some(LeaderZnode { record, version: node.version, czxid: node.czxid })];
            }
            snapshot.members.push(as_member(contender, ballot));
        }
        Ok(snapshot)
    }

    async fn holders(&self, paths: &Paths, layout: Layout) -> Result<Vec<(String, Ballot, Node)>, OpError> {
        if layout != Layout::Queue {
            let path = paths.leader_znode(0);
            let node = self.read(&path).await?;
            let ballot = node.as_ref().and_then(|node| Ballot::of_session(node.owner));
            return Ok(node.zip(ballot).map(|(node, ballot)| (path, ballot, node)).into_iter().collect());
        }
        let names = self.session().children(&paths.queue()).await?.map(|c| c.names).unwrap_or_default();
        let mut holders = Vec::new();
        for name in QueueFormat::Native.order(&names) {
            let path = format!("{}/{name}", paths.queue());
            let node = self.session().get(&path).await?.map(to_node);
            holders.extend(node.zip(Ballot::new(name).ok()).map(|(node, ballot)| (path, ballot, node)));
        }
        Ok(holders)
    }
}

/// The path of the leader znode in an election without an elector.
pub(super) fn leader_znode_of(paths: &Paths, layout: Layout, ballot: &Ballot) -> String {
    match layout {
        Layout::Queue => format!("{}/{ballot}", paths.queue()),
        Layout::Elector | Layout::Single => paths.leader_znode(0),
    }
}

fn as_member(contender: Contender, ballot: Ballot) -> MemberRecord {
    MemberRecord {
        v: VERSION,
        member: contender.member,
        site: contender.site,
        ballot,
        address: contender.address,
        http: contender.http,
        priority: 1,
        attributes: Default::default(),
        measured: Default::default(),
        // An unhealthy member leaves the contest.
        health: Health::Unchecked,
        site_health: None,
        policy: String::new(),
        software: contender.software,
        session_timeout_ms: 0,
        joined_ms: contender.since_ms,
        gave_up: None,
        withdrawn: None,
        leaving: false,
        prepared: None,
        holds: None,
        unreached: Default::default(),
        round_trips: Default::default(),
        remembers: None,
    }
}
