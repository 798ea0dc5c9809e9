//! The recipe of an election, as its znodes show it.

use zk_session::{Incarnation, OpError, ReadOp, ReadResult};

use super::operations::to_node;
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

    /// The recipe of the present candidates; `None` if there are none.
    pub(crate) fn present(
        paths: &Paths,
        ballots: &[String],
        queue: &[String],
        leader: Option<&Node>,
    ) -> Option<Self> {
        match (ballots.is_empty(), queue.is_empty(), leader) {
            (false, ..) => Some(Self::Elector),
            (_, false, _) => Some(Self::Queue),
            (_, _, leader) => leader.filter(|node| is_contenders(paths, node)).map(|_| Self::Single),
        }
    }

    /// Reads the recipe of the present candidates.
    pub(super) async fn read(session: &Incarnation, paths: &Paths) -> Result<Option<Self>, OpError> {
        let reads = [ReadOp::children(paths.election()), ReadOp::children(paths.queue())];
        let reads = reads.into_iter().chain([ReadOp::get(paths.leader_znode(0))]);
        let mut results = session.multi_read(reads).await?.into_iter();
        let (ballots, queue) = (results.next().map(children), results.next().map(children));
        let leader = results.next().and_then(node);
        Ok(Self::present(paths, &ballots.unwrap_or_default(), &queue.unwrap_or_default(), leader.as_ref()))
    }
}

/// Whether the leader has no elector: the record of a leader under an elector has more fields than that of a contender.
fn is_contenders(paths: &Paths, node: &Node) -> bool {
    let path = paths.leader_znode(0);
    Current::decode(&path, &node.data).is_err() && Contender::decode(&path, &node.data).is_ok()
}

/// The names that a read has found; none if there is no such znode.
pub(crate) fn children(result: ReadResult) -> Vec<String> {
    match result {
        ReadResult::Children(names) => names.unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The znode that a read has found.
pub(crate) fn node(result: ReadResult) -> Option<Node> {
    match result {
        ReadResult::Node(node) => node.map(to_node),
        _ => None,
    }
}
