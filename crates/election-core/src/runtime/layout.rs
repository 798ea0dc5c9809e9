//! The recipe of an election, as its znodes show it.

use zk_session::{Incarnation, OpError, ReadOp, ReadResult};

use super::to_node;
use crate::{
    engine::{Node, Recipe},
    paths::Paths,
    record::{Contender, Current, Record as _},
};

/// The recipe of an election, as its znodes show it. The members have it from their configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// The member with the lowest ballot decides.
    #[default]
    Elector,
    /// The first in the queue leads.
    Queue,
    /// The member that created the only znode leads. Waiting members have no znode.
    Single,
}

impl Layout {
    /// The recipe's name in configuration and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elector => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
        }
    }

    /// The layout of a recipe; `None` for a queue in a foreign format.
    pub(super) fn of(recipe: &Recipe) -> Option<Self> {
        match recipe {
            Recipe::Elector(_) => Some(Self::Elector),
            Recipe::Queue(_) if recipe.is_native() => Some(Self::Queue),
            Recipe::Queue(_) => None,
            Recipe::Single => Some(Self::Single),
        }
    }

    /// The recipes of the present candidates.
    pub fn present(
        paths: &Paths,
        ballots: &[String],
        queue: &[String],
        leader: Option<&Node>,
    ) -> impl Iterator<Item = Self> {
        let elector = (!ballots.is_empty()).then_some(Self::Elector);
        let queue = (!queue.is_empty()).then_some(Self::Queue);
        let single = leader.filter(|node| is_contenders(paths, node)).map(|_| Self::Single);
        [elector, queue, single].into_iter().flatten()
    }

    /// Reads whether there are candidates of another recipe, and which it is.
    pub(super) async fn other(
        session: &Incarnation,
        paths: &Paths,
        own: Self,
    ) -> Result<Option<Self>, OpError> {
        let reads = [ReadOp::children(paths.election()), ReadOp::children(paths.queue())];
        let reads = reads.into_iter().chain([ReadOp::get(paths.leader_znode(0))]);
        let mut results = session.multi_read(reads).await?.into_iter();
        let mut names = || results.next().map(children).unwrap_or_default();
        let (ballots, queue) = (names(), names());
        let leader = results.next().and_then(node);
        Ok(Self::present(paths, &ballots, &queue, leader.as_ref()).find(|present| *present != own))
    }
}

/// Whether the leader has no elector: the record of a leader under an elector has more fields than that of a contender.
fn is_contenders(paths: &Paths, node: &Node) -> bool {
    let path = paths.leader_znode(0);
    Current::decode(&path, &node.data).is_err() && Contender::decode(&path, &node.data).is_ok()
}

/// The names that a read has found; none if there is no such znode.
pub fn children(result: ReadResult) -> Vec<String> {
    match result {
        ReadResult::Children(names) => names.unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The znode that a read has found.
pub fn node(result: ReadResult) -> Option<Node> {
    match result {
        ReadResult::Node(node) => node.map(to_node),
        _ => None,
    }
}
