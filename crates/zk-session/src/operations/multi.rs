//! Groups of operations that are done all or none.

use zk_proto::{ErrorCode, OpCode, Reply, Request};

use crate::error::OpError;
use crate::node::{CreateMode, Node, Stat};
use crate::operations::any_without;
use crate::operations::attempts::{Attempts, Write};
use crate::path::check;
use crate::session::incarnation::Incarnation;

/// One operation of a group for [`Incarnation::multi`]. Each sees what those before it have done.
/// There are no sequential creates: their names could not be found after a lost answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultiOp {
    /// Checks that the znode exists, and that its data has that version if one is given. Changes nothing.
    Check {
        /// Of the znode.
        path: String,
        /// `None`: any.
        version: Option<i32>,
    },
    /// Creates a znode with the access list of the handle on which the group is done.
    Create {
        /// Of the znode.
        path: String,
        /// Its content.
        data: Vec<u8>,
        /// Its kind.
        mode: CreateMode,
    },
    /// Replaces the data of a znode.
    Set {
        /// Of the znode.
        path: String,
        /// Its new content.
        data: Vec<u8>,
        /// `None`: any.
        version: Option<i32>,
    },
    /// Deletes a znode without children.
    Delete {
        /// Of the znode.
        path: String,
        /// `None`: any.
        version: Option<i32>,
    },
}

impl MultiOp {
    /// Checks that the znode exists, and that its data has that version if one is given.
    pub fn check(path: impl Into<String>, version: impl Into<Option<i32>>) -> Self {
        Self::Check { path: path.into(), version: version.into() }
    }

    /// Creates a znode.
    pub fn create(path: impl Into<String>, data: impl Into<Vec<u8>>, mode: CreateMode) -> Self {
        Self::Create { path: path.into(), data: data.into(), mode }
    }

    /// Data to be replaced, only at that version if one is given.
    pub fn set(path: impl Into<String>, data: impl Into<Vec<u8>>, version: impl Into<Option<i32>>) -> Self {
        Self::Set { path: path.into(), data: data.into(), version: version.into() }
    }

    /// A znode to be deleted, only at that version if one is given.
    pub fn delete(path: impl Into<String>, version: impl Into<Option<i32>>) -> Self {
        Self::Delete { path: path.into(), version: version.into() }
    }

    /// The path that it is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }
}

/// What one operation of a group has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultiResult {
    /// The check held.
    Checked,
    /// The znode was created.
    Created {
        /// Its metadata; `None` if the server does not report it, as no server before 3.9 does, or if the answer was lost
        /// and the znode has changed since. Read it then, if needed.
        stat: Option<Stat>,
    },
    /// The data was replaced.
    Set {
        /// The metadata of that moment; `None` where the answer was lost and the znode has changed since.
        stat: Option<Stat>,
    },
    /// The znode was deleted.
    Deleted,
}

fn result(attempts: &Attempts<'_>, op: OpCode, reply: Reply) -> Result<MultiResult, OpError> {
    Ok(match (op, reply) {
        (OpCode::CHECK, _) => MultiResult::Checked,
        (OpCode::DELETE, _) => MultiResult::Deleted,
        (_, Reply::Path(_)) => MultiResult::Created { stat: None },
        (_, Reply::PathAndStat(_, stat)) => {
            MultiResult::Created { stat: Some(stat).filter(|stat| stat.czxid > 0) }
        }
        (_, Reply::Stat(stat)) => MultiResult::Set { stat: Some(stat) },
        (_, other) => return Err(attempts.unexpected(other)),
    })
}

/// That an operation of a group whose answer was lost was certainly not done.
struct NotDone;

impl Incarnation {
    /// Does all of the operations or none, in this order, as one change of ZooKeeper. An empty group is done at once.
    ///
    /// After a lost answer the group counts as done where it has created an ephemeral (with the same signs as for
    /// [`create`](Self::create)), or where all its changes are visible, by one change of ZooKeeper, and concern more than
    /// one znode: others may write the same data to one. It is sent again only if it can be seen not to be done, because a
    /// znode that it was to delete, or to set at a version, still exists unchanged or as another client has set it, or if
    /// it consists of checks alone. Otherwise the outcome is unknown.
    ///
    /// # Errors
    /// With the path of the operation that was refused; no other was done then. Those of [`create`](Self::create),
    /// [`set`](Self::set) and [`delete`](Self::delete), [`OpError::NoNode`] and [`OpError::BadVersion`] for a check,
    /// [`OpError::Invalid`] for groups beyond [`SessionBuilder::max_request`](crate::SessionBuilder::max_request).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub async fn multi(&self, ops: impl IntoIterator<Item = MultiOp>) -> Result<Vec<MultiResult>, OpError> {
        let ops: Vec<MultiOp> = ops.into_iter().collect();
        self.observe("multi", || self.multi_unobserved(&ops)).await
    }

    async fn multi_unobserved(&self, ops: &[MultiOp]) -> Result<Vec<MultiResult>, OpError> {
        let Some(first) = ops.first() else { return Ok(Vec::new()) };
        ops.iter().try_for_each(|op| check(op.path()))?;
        let paths: Vec<String> = ops.iter().map(|op| self.scope.absolute(op.path())).collect();
        let parts = ops.iter().zip(&paths).map(|(op, path)| self.part(op, path));
        let request = Request::Multi(parts.collect());
        // Errors that concern no single operation name the first.
        let mut attempts = self.attempts(first.path());
        loop {
            match attempts.write(&request).await? {
                Write::Done(Reply::Multi(replies)) if replies.len() == ops.len() => {
                    let mut results = Vec::with_capacity(replies.len());
                    for (((op, reply), meant), absolute) in replies.into_iter().zip(ops).zip(&paths) {
                        match reply {
                            Ok(reply) => {
                                if let MultiOp::Create { mode: CreateMode::Ephemeral, .. } = meant {
                                    self.inner.reliance.created(absolute, attempts.seen);
                                }
                                results.push(result(&attempts, op, reply)?);
                            }
                            // Another one was refused, ahead of it or behind it.
                            Err(ErrorCode::OK | ErrorCode::RUNTIME_INCONSISTENCY) => {}
                            Err(code) => return Err(attempts.refused_at(meant.path(), code)),
                        }
                    }
                    return Ok(results);
                }
                Write::Done(other) => return Err(attempts.unexpected(other)),
                Write::Refused(code) => return Err(attempts.refused(code)),
                Write::Lost => {
                    attempts.barrier().await?;
                    match self.evidence(&mut attempts, ops).await? {
                        Some(results) => return Ok(results),
                        // Nothing that was sent before had an effect.
                        None => attempts.in_doubt = false,
                    }
                }
            }
        }
    }

    fn part<'a>(&self, op: &'a MultiOp, absolute: &'a str) -> Request<'a> {
        let path = absolute.into();
        match op {
            MultiOp::Check { version, .. } => Request::Check { path, version: any_without(*version) },
            MultiOp::Create { data, mode, .. } => Request::Create(self.to_create(absolute, data, *mode)),
            MultiOp::Set { data, version, .. } => {
                Request::SetData { path, data: Some(data.into()), version: any_without(*version) }
            }
            MultiOp::Delete { version, .. } => Request::Delete { path, version: any_without(*version) },
        }
    }

    /// Reads what the operations of a group would have changed: their results as far as they can still be read if they were
    /// done, `None` if they were not and, after a quorum round trip, never will be.
    async fn evidence(
        &self,
        attempts: &mut Attempts<'_>,
        ops: &[MultiOp],
    ) -> Result<Option<Vec<MultiResult>>, OpError> {
        // By which change of ZooKeeper each was done, where it looks as if it was.
        let (mut certain, mut signs) = (None, Vec::with_capacity(ops.len()));
        let mut results = Vec::with_capacity(ops.len());
        for (at, op) in ops.iter().enumerate() {
            if let MultiOp::Check { .. } = op {
                results.push(MultiResult::Checked);
                continue;
            }
            let absolute = self.scope.absolute(op.path());
            let found = attempts.get(&absolute).await?;
            let sign = match (op, &found) {
                _ if !is_alone(ops, at) => None,
                (_, Some(node)) => match self.sign(op, node, attempts.is_older(&node.stat)) {
                    Ok(sign) => sign,
                    Err(NotDone) => return Ok(None),
                },
                (MultiOp::Delete { .. }, None) => {
                    let parent = zk_proto::ancestors(&absolute).next().unwrap_or("/");
                    attempts.exists(parent).await?.map(|parent| parent.pzxid)
                }
                (_, None) => None,
            };
            signs.push(sign);
            let stat = found.map(|node| node.stat);
            results.push(match op {
                MultiOp::Create { mode, .. } => {
                    certain = certain.or(sign.filter(|_| *mode == CreateMode::Ephemeral));
                    MultiResult::Created { stat }
                }
                MultiOp::Set { .. } => MultiResult::Set { stat },
                MultiOp::Check { .. } | MultiOp::Delete { .. } => MultiResult::Deleted,
            });
        }
        let change = match (certain, &signs[..]) {
            (_, []) => return Ok(None),
            (Some(change), _) => change,
            (None, [Some(change), others @ ..])
                if !others.is_empty() && others.iter().all(|other| *other == Some(*change)) =>
            {
                *change
            }
            _ => {
                let now = "the znodes do not show whether the group was applied";
                return Err(attempts.changed(now.to_owned()));
            }
        };
        for result in &mut results {
            if let MultiResult::Created { stat } | MultiResult::Set { stat } = result {
                *stat = stat.filter(|stat| stat.mzxid == change);
            }
        }
        Ok(Some(results))
    }

    /// What a znode shows of an operation of a group. Within one life of a znode a version never comes back.
    fn sign(&self, op: &MultiOp, found: &Node, is_older: bool) -> Result<Option<i64>, NotDone> {
        let Node { data: there, stat } = found;
        match op {
            MultiOp::Create { .. } | MultiOp::Delete { .. } if is_older => Err(NotDone),
            MultiOp::Set { version: Some(version), .. } if is_older && stat.version == *version => {
                Err(NotDone)
            }
            MultiOp::Set { data, version, .. }
                if is_older && version.is_none_or(|version| stat.version == version.wrapping_add(1)) =>
            {
                match version {
                    // Another client was faster.
                    Some(_) if there != data => Err(NotDone),
                    _ => Ok((there == data).then_some(stat.mzxid)),
                }
            }
            MultiOp::Create { data, mode, .. } => {
                let ours = there == data && stat.mzxid == stat.czxid && self.is_mine(stat, *mode);
                Ok(ours.then_some(stat.czxid))
            }
            _ => Ok(None),
        }
    }
}

/// Whether no other operation of the group concerns the same znode, which would hide the effect of this one.
fn is_alone(ops: &[MultiOp], at: usize) -> bool {
    ops.iter().enumerate().all(|(other, op)| other == at || op.path() != ops[at].path())
}
