//! The small part of an election, of one moment: by one request.

use zk_session::{Incarnation, OpError, ReadOp, ReadResult};

use super::layout::Layout;
use crate::{
    engine::Node,
    paths::Paths,
    record::{Contender, Current, Record as _},
    runtime::operations::to_node,
};

/// The names in an election, and the znodes that there is one of.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// The names of the parts that exist.
    parts: Vec<String>,
    pub(super) ballots: Vec<String>,
    pub(super) queue: Vec<String>,
    pub(super) nodes: Vec<String>,
    pub(super) requests: Vec<String>,
    /// The leader znode of the first slot.
    pub(super) leader: Option<Node>,
    pub(super) elected: Option<Node>,
    pub(super) control: Option<Node>,
    pub(super) breadcrumbs: Option<Node>,
    pub(super) tokens: Option<Node>,
}

impl Outline {
    /// Reads it. All is absent if there is no such election.
    pub(super) async fn read(session: &Incarnation, paths: &Paths) -> Result<Self, OpError> {
        let names =
            [paths.base().to_owned(), paths.election(), paths.queue(), paths.nodes(), paths.requests()];
        let znodes =
            [paths.leader_znode(0), paths.elected(), paths.control(), paths.breadcrumbs(), paths.tokens()];
        let reads = names.map(ReadOp::children).into_iter().chain(znodes.map(ReadOp::get));
        let mut results = session.multi_read(reads).await?.into_iter();
        let mut names = || results.next().map(children).unwrap_or_default();
        let (parts, ballots, queue, nodes, requests) = (names(), names(), names(), names(), names());
        let mut znode = || results.next().and_then(node);
        let (leader, elected, control) = (znode(), znode(), znode());
        let (breadcrumbs, tokens) = (znode(), znode());
        Ok(Self { parts, ballots, queue, nodes, requests, leader, elected, control, breadcrumbs, tokens })
    }

    /// The recipe of the present candidates; `None` if there are no candidates.
    pub(super) fn standing(&self, paths: &Paths) -> Option<Layout> {
        match (self.ballots.is_empty(), self.queue.is_empty(), &self.leader) {
            (false, ..) => Some(Layout::Elector),
            (_, false, _) => Some(Layout::Queue),
            (_, _, leader) => {
                leader.as_ref().filter(|node| is_contenders(paths, node)).map(|_| Layout::Single)
            }
        }
    }

    /// The recipe, now or last; `None` if there is no election.
    pub(super) fn layout(&self, paths: &Paths) -> Option<Layout> {
        // The tokens can be raised before the first member joins.
        let decided = self.elected.is_some().then_some(Layout::Elector);
        self.standing(paths).or(decided).or_else(|| Layout::last_of(&self.parts))
    }
}

impl Layout {
    /// The recipe of an election that has these parts, if it is one.
    pub(super) fn last_of(parts: &[String]) -> Option<Self> {
        let parents = [("election", Self::Elector), ("queue", Self::Queue), ("leader", Self::Single)];
        let found = parents.into_iter().find(|(parent, _)| parts.iter().any(|name| name == parent));
        found.map(|(_, layout)| layout)
    }
}

/// Whether the leader has no elector: the record of a leader under an elector has more fields than that of a contender.
fn is_contenders(paths: &Paths, node: &Node) -> bool {
    let path = paths.leader_znode(0);
    Current::decode(&path, &node.data).is_err() && Contender::decode(&path, &node.data).is_ok()
}

/// The names that a read has found; none if there is no such znode.
pub(super) fn children(result: ReadResult) -> Vec<String> {
    match result {
        ReadResult::Children(names) => names.unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The znode that a read has found.
pub(super) fn node(result: ReadResult) -> Option<Node> {
    match result {
        ReadResult::Node(node) => node.map(to_node),
        _ => None,
    }
}
