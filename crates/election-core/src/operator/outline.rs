//! The small part of an election, of one moment: by one request.

use zk_session::{Incarnation, OpError, ReadOp};

pub(super) use crate::runtime::layout::{children, node};
use crate::{engine::Node, paths::Paths, runtime::layout::Layout};

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
    pub(super) roster: Option<Node>,
}

impl Outline {
    /// Reads it. All is absent if there is no such election.
    pub(super) async fn read(session: &Incarnation, paths: &Paths) -> Result<Self, OpError> {
        let names =
            [paths.base().to_owned(), paths.election(), paths.queue(), paths.nodes(), paths.requests()];
        let znodes = [
            paths.leader_znode(0),
            paths.elected(),
            paths.control(),
            paths.breadcrumbs(),
            paths.tokens(),
            paths.roster(),
        ];
        let reads = names.map(ReadOp::children).into_iter().chain(znodes.map(ReadOp::get));
        let mut results = session.multi_read(reads).await?.into_iter();
        let mut names = || results.next().map(children).unwrap_or_default();
        let (parts, ballots, queue, nodes, requests) = (names(), names(), names(), names(), names());
        let mut znode = || results.next().and_then(node);
        let (leader, elected, control) = (znode(), znode(), znode());
        let (breadcrumbs, tokens, roster) = (znode(), znode(), znode());
        Ok(Self {
            parts,
            ballots,
            queue,
            nodes,
            requests,
            leader,
            elected,
            control,
            breadcrumbs,
            tokens,
            roster,
        })
    }

    /// The recipe of the present candidates; `None` if there are no candidates.
    pub(super) fn standing(&self, paths: &Paths) -> Option<Layout> {
        Layout::present(paths, &self.ballots, &self.queue, self.leader.as_ref())
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
