//! The small part of an election, of one moment: by one request.

use zk_session::{Incarnation, OpError, ReadOp};

pub(crate) use election_core::internals::{children, node};
use election_core::{
    Paths,
    internals::{Layout, Node},
};

/// The names in an election, and the znodes that there is one of.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// The names of the parts that exist.
    parts: Vec<String>,
    pub(crate) ballots: Vec<String>,
    pub(crate) queue: Vec<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) requests: Vec<String>,
    /// The leader znode of the first slot.
    pub(crate) leader: Option<Node>,
    pub(crate) elected: Option<Node>,
    pub(crate) control: Option<Node>,
    pub(crate) breadcrumbs: Option<Node>,
    pub(crate) tokens: Option<Node>,
    pub(crate) roster: Option<Node>,
    /// The parent of the ballots.
    pub(crate) election: Option<Node>,
}

impl Outline {
    /// Reads it. All is absent if there is no such election.
    pub(crate) async fn read(session: &Incarnation, paths: &Paths) -> Result<Self, OpError> {
        let names =
            [paths.base().to_owned(), paths.election(), paths.queue(), paths.nodes(), paths.requests()];
        let znodes = [
            paths.leader_znode(0),
            paths.elected(),
            paths.control(),
            paths.breadcrumbs(),
            paths.tokens(),
            paths.roster(),
            paths.election(),
        ];
        let reads = names.map(ReadOp::children).into_iter().chain(znodes.map(ReadOp::get));
        let mut results = session.multi_read(reads).await?.into_iter();
        let mut next = || results.next();
        let names = |result: Option<_>| result.map(children).unwrap_or_default();
        let znode = |result: Option<_>| result.and_then(node);
        Ok(Self {
            parts: names(next()),
            ballots: names(next()),
            queue: names(next()),
            nodes: names(next()),
            requests: names(next()),
            leader: znode(next()),
            elected: znode(next()),
            control: znode(next()),
            breadcrumbs: znode(next()),
            tokens: znode(next()),
            roster: znode(next()),
            election: znode(next()),
        })
    }

    /// The recipe of the present candidates; `None` if there are no candidates.
    pub(crate) fn standing(&self, paths: &Paths) -> Option<Layout> {
        Layout::present(paths, &self.ballots, &self.queue, self.leader.as_ref()).next()
    }

    /// The recipe, now or last; `None` if there is no election.
    pub(crate) fn layout(&self, paths: &Paths) -> Option<Layout> {
        // The tokens can be raised before the first member joins.
        let decided = self.elected.is_some().then_some(Layout::Elector);
        self.standing(paths).or(decided).or_else(|| last_of(&self.parts))
    }
}

/// The recipe of an election that has these parts, if it is one.
pub(crate) fn last_of(parts: &[String]) -> Option<Layout> {
    let parents = [("election", Layout::Elector), ("queue", Layout::Queue), ("leader", Layout::Single)];
    let found = parents.into_iter().find(|(parent, _)| parts.iter().any(|name| name == parent));
    found.map(|(_, layout)| layout)
}
