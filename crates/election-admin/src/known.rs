//! A record as it was read, and what replaces it.

use std::marker::PhantomData;

use election_core::{
    Paths,
    internals::{
        self, Node, ZnodeWrite,
        record::{Elected, Record, RecordError},
    },
};
use zk_session::{CreateMode, Incarnation, MultiOp, OpError};

/// A record as it was read, and what replaces it.
#[derive(Debug)]
pub struct Known<R> {
    path: String,
    node: Option<Node>,
    record: PhantomData<R>,
}

impl<R: Record> Known<R> {
    /// The record at this path, if there is one.
    pub fn new(path: impl Into<String>, node: Option<Node>) -> Self {
        Self { path: path.into(), node, record: PhantomData }
    }

    /// The znode.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// The record; `None` if there is none.
    ///
    /// # Errors
    /// When it can't be used.
    pub fn record(&self) -> Result<Option<R>, RecordError> {
        self.node.as_ref().map(|node| R::decode(&self.path, &node.data)).transpose()
    }

    /// The record, and the default if there is none.
    ///
    /// # Errors
    /// When it can't be used.
    pub fn record_or_default(&self) -> Result<R, RecordError>
    where
        R: Default,
    {
        Ok(self.record()?.unwrap_or_default())
    }

    /// Creates what is above a record that does not exist.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or refuses.
    pub async fn make_parents(&self, session: &Incarnation) -> Result<(), OpError> {
        match self.node {
            Some(_) => Ok(()),
            None => session.create_parents(&self.path).await,
        }
    }

    /// Writes a record over the one that was read, and over no other.
    ///
    /// # Errors
    /// When it would be too large.
    pub fn replace(&self, record: &R) -> Result<MultiOp, RecordError> {
        let data = record.encode(&self.path)?;
        Ok(match &self.node {
            Some(node) => MultiOp::set(&self.path, data, node.version),
            None => MultiOp::create(&self.path, data, CreateMode::Persistent),
        })
    }
}

/// The decision as it was read, and what replaces it.
#[derive(Debug)]
pub struct KnownDecision {
    paths: Paths,
    known: Known<Elected>,
    generation: i32,
}

impl KnownDecision {
    /// The decision, and the parent of the ballots as it was when the decision was read, or earlier.
    pub fn new(paths: &Paths, parent: Option<&Node>, decision: Option<Node>) -> Self {
        let generation = parent.map_or(0, |parent| parent.version);
        Self { paths: paths.clone(), known: Known::new(paths.elected(), decision), generation }
    }

    /// The znode.
    pub fn node(&self) -> Option<&Node> {
        self.known.node()
    }

    /// The decision; `None` if there is none.
    ///
    /// # Errors
    /// When it can't be used.
    pub fn record(&self) -> Result<Option<Elected>, RecordError> {
        self.known.record()
    }

    /// Creates what is above a decision that does not exist, and the parent of the ballots.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or refuses.
    pub async fn make_parents(&self, session: &Incarnation) -> Result<(), OpError> {
        self.known.make_parents(session).await?;
        session.create_parents(&self.paths.ballot_prefix("")).await
    }

    /// Writes a decision over the one that was read, and over no other.
    ///
    /// # Errors
    /// When it would be too large.
    pub fn replace(&self, next: &mut Elected) -> Result<Vec<MultiOp>, RecordError> {
        let over = self.node().map(|node| node.version);
        let write = ZnodeWrite::decision(&self.paths, next, over, self.generation)?;
        Ok(internals::operations(&write))
    }

    /// Checks that the decision is the one that was read, if there was one.
    pub fn check(&self) -> impl Iterator<Item = MultiOp> {
        let parent = MultiOp::check(self.paths.election(), self.generation);
        let decision = self.node().map(|node| MultiOp::check(self.paths.elected(), node.version));
        decision.into_iter().flat_map(move |decision| [decision, parent.clone()])
    }
}
