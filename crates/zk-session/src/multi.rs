//! Groups of operations that are done all or none.

use zk_proto::{ErrorCode, OpCode, Reply, Request};

use crate::attempts::{Attempts, Write};
use crate::error::OpError;
use crate::incarnation::Incarnation;
use crate::node::{CreateMode, Stat};
use crate::operations::{any_without, check, observe};

/// One operation of a group for [`Incarnation::multi`]. Each sees what those before it have done.
///
/// There are no sequential creates: their names could not be told after a lost answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultiOp {
    /// The znode exists, and its data has that version if one is given. Changes nothing.
    Check {
        /// Of the znode.
        path: String,
        /// `None`: any.
        version: Option<i32>,
    },
    /// As [`Incarnation::create`].
    Create {
        /// Of the znode.
        path: String,
        /// Its content.
        data: Vec<u8>,
        /// How long it lives.
        mode: CreateMode,
    },
    /// As [`Incarnation::set`].
    Set {
        /// Of the znode.
        path: String,
        /// Its new content.
        data: Vec<u8>,
        /// `None`: any.
        version: Option<i32>,
    },
    /// As [`Incarnation::delete`].
    Delete {
        /// Of the znode.
        path: String,
        /// `None`: any.
        version: Option<i32>,
    },
}

impl MultiOp {
    /// The znode exists, and its data has that version if one is given.
    pub fn check(path: impl Into<String>, version: impl Into<Option<i32>>) -> Self {
        Self::Check { path: path.into(), version: version.into() }
    }

    /// A znode to be created.
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

    fn path_mut(&mut self) -> &mut String {
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
        /// Its metadata; `None` where the server does not tell, as none does up to 3.8, or where the answer was lost
        /// and the znode has changed since. Read it then, if it matters.
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
        (_, other) => return Err(attempts.unexpected(&other)),
    })
}

/// What can be read of a group's outcome after its answer was lost.
enum Evidence {
    /// It was applied, with what can still be told of it.
    Applied(Vec<MultiResult>),
    /// It was not, and after a quorum round trip it never will be.
    NotApplied,
    Unclear,
}

impl Incarnation {
    /// Does all of the operations or none, in this order, as one change of ZooKeeper. An empty group is done at once.
    ///
    /// After a lost answer the group counts as done where one of its creates or versioned sets can be seen to be done
    /// (with the same signs as for [`create`](Self::create) and [`set`](Self::set)), for then all of it is. It is sent
    /// again only where its first versioned set can be seen not to be done, on the znode that stood there at first, or
    /// where it consists of checks alone. Otherwise the outcome is unknown: deletions and unconditional sets leave no
    /// sign of who made them, and an absent znode does not tell whether it has ever been there.
    ///
    /// A group with a versioned set costs one read more, which is how that znode is known again.
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
        observe("multi", self.multi_unobserved(&ops)).await
    }

    async fn multi_unobserved(&self, ops: &[MultiOp]) -> Result<Vec<MultiResult>, OpError> {
        let Some(first) = ops.first() else { return Ok(Vec::new()) };
        for op in ops {
            check(op.path())?;
        }
        let absolute: Vec<MultiOp> = ops
            .iter()
            .map(|op| {
                let mut op = op.clone();
                *op.path_mut() = self.inner.absolute(op.path());
                op
            })
            .collect();
        let parts: Result<Vec<_>, OpError> = absolute.iter().map(|op| self.part(op)).collect();
        let request = Request::Multi(parts?);
        // Errors that concern no single operation name the first.
        let mut attempts = Attempts::new(&self.inner, first.path());
        let witness = self.find_witness(&mut attempts, &absolute).await?;
        loop {
            match attempts.write(&request).await? {
                Write::Done(Reply::Multi(replies)) if replies.len() == ops.len() => {
                    let mut results = Vec::with_capacity(replies.len());
                    for ((op, reply), meant) in replies.into_iter().zip(ops) {
                        match reply {
                            Ok(reply) => results.push(result(&attempts, op, reply)?),
                            // Another one was refused, ahead of it or behind it.
                            Err(ErrorCode::OK | ErrorCode::RUNTIME_INCONSISTENCY) => {}
                            Err(code) => return Err(attempts.refused_at(meant.path(), code)),
                        }
                    }
                    return Ok(results);
                }
                Write::Done(other) => return Err(attempts.unexpected(&other)),
                Write::Refused(code) => return Err(attempts.refused(code)),
                Write::Lost => {
                    attempts.barrier().await?;
                    match self.evidence(&mut attempts, &absolute, witness).await? {
                        Evidence::Applied(results) => return Ok(results),
                        // Whatever was sent before has come to nothing.
                        Evidence::NotApplied => attempts.clear_doubt(),
                        Evidence::Unclear => {
                            let now = "what stands there now does not tell whether the group was applied";
                            return Err(attempts.changed(now.to_owned()));
                        }
                    }
                }
            }
        }
    }

    fn part<'a>(&self, op: &'a MultiOp) -> Result<Request<'a>, OpError> {
        Ok(match op {
            MultiOp::Check { path, version } => {
                Request::Check { path: path.into(), version: any_without(*version) }
            }
            MultiOp::Create { path, data, mode } => {
                Request::Create(self.to_create(path, path, data, *mode, false)?)
            }
            MultiOp::Set { path, data, version } => {
                let version = any_without(*version);
                Request::SetData { path: path.into(), data: Some(data.into()), version }
            }
            MultiOp::Delete { path, version } => {
                Request::Delete { path: path.into(), version: any_without(*version) }
            }
        })
    }

    /// The versioned set that can tell later that the group was not done, and the `czxid` of its znode: within one life
    /// of a znode a version never comes back.
    async fn find_witness(
        &self,
        attempts: &mut Attempts<'_>,
        ops: &[MultiOp],
    ) -> Result<Option<(usize, i64)>, OpError> {
        let versioned = |op: &MultiOp| matches!(op, MultiOp::Set { version: Some(_), .. });
        let Some(at) = (0..ops.len()).find(|&at| versioned(&ops[at]) && is_alone(ops, at)) else {
            return Ok(None);
        };
        Ok(attempts.exists_if_readable(ops[at].path()).await?.flatten().map(|stat| (at, stat.czxid)))
    }

    /// Reads what the operations of a group would have left behind.
    async fn evidence(
        &self,
        attempts: &mut Attempts<'_>,
        ops: &[MultiOp],
        witness: Option<(usize, i64)>,
    ) -> Result<Evidence, OpError> {
        let changes = ops.iter().filter(|op| !matches!(op, MultiOp::Check { .. })).count();
        if changes == 0 {
            return Ok(Evidence::NotApplied);
        }
        let (mut applied, mut not_applied) = (false, false);
        let mut results = Vec::with_capacity(ops.len());
        for (at, op) in ops.iter().enumerate() {
            let (path, data) = match op {
                MultiOp::Check { .. } => {
                    results.push(MultiResult::Checked);
                    continue;
                }
                MultiOp::Delete { .. } => {
                    results.push(MultiResult::Deleted);
                    continue;
                }
                MultiOp::Create { path, data, .. } | MultiOp::Set { path, data, .. } => (path, data),
            };
            let found = match attempts.get(path).await? {
                Ok(found) => Some(found),
                Err(ErrorCode::NO_NODE) => None,
                Err(code) => return Err(attempts.refused(code)),
            };
            let found = found.filter(|_| is_alone(ops, at));
            let same_data = found.as_ref().is_some_and(|(found, _)| found == data);
            let stat = found.map(|(_, stat)| stat);
            match op {
                MultiOp::Create { mode, .. } => {
                    let stat = stat
                        .filter(|stat| same_data && stat.mzxid == stat.czxid && self.is_mine(stat, *mode));
                    applied |= stat.is_some();
                    results.push(MultiResult::Created { stat });
                }
                MultiOp::Set { version: Some(version), .. } => {
                    let next = version.wrapping_add(1);
                    if let (Some(stat), Some((of, czxid))) = (stat, witness)
                        && (of, czxid) == (at, stat.czxid)
                    {
                        // Untouched, or somebody else was faster.
                        not_applied |= stat.version == *version || (stat.version == next && !same_data);
                    }
                    let stat = stat.filter(|stat| same_data && stat.version == next);
                    applied |= stat.is_some();
                    results.push(MultiResult::Set { stat });
                }
                _ => results.push(MultiResult::Set { stat: None }),
            }
        }
        Ok(match (applied, not_applied) {
            (true, false) => Evidence::Applied(results),
            (false, true) => Evidence::NotApplied,
            // Signs of both: somebody else has been at work there.
            (true, true) | (false, false) => Evidence::Unclear,
        })
    }
}

/// Whether no other operation of the group is about the same znode, which would blur the signs of this one.
fn is_alone(ops: &[MultiOp], at: usize) -> bool {
    ops.iter().enumerate().all(|(other, op)| other == at || op.path() != ops[at].path())
}
