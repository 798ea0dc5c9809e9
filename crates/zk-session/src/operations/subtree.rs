//! Deleting a znode with everything below it.

use zk_proto::{ErrorCode, Request};

use crate::error::{OpError, UnknownCause};
use crate::operations::attempts::Write;
use crate::path::{check, join};
use crate::session::incarnation::Incarnation;
use crate::time::BootTime;

/// How often the children of one znode are deleted before the operation gives up because others keep creating them.
const ROUNDS: u32 = 16;

/// The outcome of the deletion of one znode.
enum Step {
    Gone,
    HasChildren,
    /// The tree that was to be deleted is gone; another one may have replaced it.
    TreeGone,
}

impl Incarnation {
    /// Deletes a znode and everything below it.
    ///
    /// This is no transaction: the znodes are deleted one by one, the lowest first, and others may see a part of the
    /// tree. Znodes that are created below meanwhile are deleted, too. When it returns `Ok`, the tree that existed when
    /// the operation began is gone, possibly deleted by others. A new tree at the same path is not deleted, as far as
    /// that can be detected: between a read and a deletion others may act. A deletion whose answer was lost is
    /// repeated, and only while the same tree exists.
    ///
    /// Each step, not the whole, is bounded by the operation timeout. A timeout that was set by
    /// [`with_timeout`](Self::with_timeout) bounds the whole.
    ///
    /// # Errors
    /// [`OpError::NoNode`] if the znode does not exist, [`OpError::NotEmpty`] if others create znodes as fast as
    /// these are deleted, [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    /// With the cause [`UnknownCause::Partly`] some of the tree is gone and some is left; calling it again continues.
    ///
    /// # Cancel safety
    /// Dropping the future leaves a part of the tree.
    pub async fn delete_recursive(&self, path: &str) -> Result<(), OpError> {
        self.observe("delete_recursive", || async move {
            check(path)?;
            if path == "/" {
                let reason = "the root can't be deleted".to_owned();
                return Err(OpError::Invalid { path: path.to_owned(), reason });
            }
            let mut deleted = 0;
            let bounded = Self { bound: self.bound.of_steps(BootTime::now()), ..self.clone() };
            bounded.delete_tree(path, &mut deleted).await.map_err(|error| match deleted {
                0 => error,
                _ => OpError::Unknown {
                    path: path.to_owned(),
                    cause: UnknownCause::Partly { deleted, error: Box::new(error) },
                },
            })
        })
        .await
    }

    async fn delete_tree(&self, path: &str, deleted: &mut u64) -> Result<(), OpError> {
        let root = self.scope.absolute(path);
        // The server of the connection may lag behind the others, and not have the tree yet, or only an earlier one.
        self.attempts(path).barrier().await?;
        let Some(meant) = self.life_of(path, &root).await? else {
            return Err(OpError::NoNode { path: path.to_owned() });
        };
        // What is to be deleted, each below the ones before it or beside them; and how often it had children.
        let mut ahead = vec![(root.clone(), 0)];
        while let Some((at, rounds)) = ahead.last_mut() {
            let (at, rounds_so_far) = (at.clone(), *rounds);
            *rounds += 1;
            if at == root && self.life_of(path, &root).await? != Some(meant) {
                return Ok(());
            }
            match self.delete_one(&at, &root, meant, deleted).await? {
                Step::Gone => drop(ahead.pop()),
                Step::TreeGone => return Ok(()),
                Step::HasChildren if rounds_so_far >= ROUNDS => {
                    return Err(OpError::NotEmpty { path: self.scope.relative(&at) });
                }
                Step::HasChildren => {
                    let path = self.scope.relative(&at);
                    let children = self.attempts(&path).children(&at).await?.unwrap_or_default();
                    ahead.extend(children.names.iter().map(|name| (join(&at, name), 0)));
                }
            }
        }
        Ok(())
    }

    async fn delete_one(&self, at: &str, root: &str, meant: i64, deleted: &mut u64) -> Result<Step, OpError> {
        let path = self.scope.relative(at);
        let mut attempts = self.attempts(&path);
        let delete = Request::Delete { path: at.into(), version: -1 };
        loop {
            match attempts.write(&delete).await? {
                Write::Done(_) => {
                    *deleted += 1;
                    return Ok(Step::Gone);
                }
                Write::Refused(ErrorCode::NO_NODE) => {
                    *deleted += u64::from(attempts.in_doubt);
                    return Ok(Step::Gone);
                }
                Write::Refused(ErrorCode::NOT_EMPTY) => return Ok(Step::HasChildren),
                Write::Refused(code) => return Err(attempts.refused(code)),
                Write::Lost => {
                    attempts.barrier().await?;
                    if attempts.exists(root).await?.map(|stat| stat.czxid) != Some(meant) {
                        return Ok(Step::TreeGone);
                    }
                }
            }
        }
    }

    /// Which life of a znode this is, by its `czxid`; `None` if it does not exist.
    async fn life_of(&self, path: &str, absolute: &str) -> Result<Option<i64>, OpError> {
        Ok(self.attempts(path).exists(absolute).await?.map(|stat| stat.czxid))
    }
}
