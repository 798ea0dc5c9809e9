//! The operations on a session, each with the check that finds out its outcome after a lost answer.

pub(crate) mod administration;
pub(crate) mod attempts;
pub(crate) mod multi;
mod subtree;
#[cfg(test)]
mod tests;

use std::time::Duration;

use zk_proto::{Create, ErrorCode, Reply, Request};

use crate::error::{OpError, owned_by};
use crate::node::{Children, CreateMode, Created, Node, Stat};
use crate::operations::attempts::{Attempts, Write, of_kind};
use crate::path::{self, check};
use crate::session::incarnation::Incarnation;
use crate::time::BootTime;

/// How a sequential create finds its znode again after a lost answer: its path is not known beforehand, and creating
/// another one would leave an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// The caller put something unique into the last element of the prefix, which can't be empty: a new sibling that begins
    /// with it is the one.
    Name,
    /// The data is unique: a new sibling with the same prefix and the same data is the one.
    Data,
}

/// Operations. Each ends within the operation timeout.
///
/// # Cancel safety
/// Dropping the future of a write leaves its outcome unknown. Reads can be dropped at any time.
impl Incarnation {
    /// Reads a znode, `None` if there is none.
    /// The server of the connection answers every read. It may lag behind the others; after a
    /// [`barrier`](Self::barrier) it is up to date.
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get(&self, path: &str) -> Result<Option<Node>, OpError> {
        self.observe("get", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            attempts.get(&absolute).await
        })
        .await
    }

    /// Reads the names of a znode's children, `None` if the znode does not exist.
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn children(&self, path: &str) -> Result<Option<Children>, OpError> {
        self.observe("children", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            attempts.children(&absolute).await
        })
        .await
    }

    /// Creates a znode with the access list of the session ([`SessionBuilder::acl`](crate::SessionBuilder::acl)) or of this
    /// handle ([`with_acl`](Self::with_acl)). Its parent must exist.
    ///
    /// After a lost answer, a new ephemeral that this session owns counts as the one created here; a new persistent znode
    /// counts if it has the same data and was never changed, so put something unique into the data if the creator matters.
    /// With any other new znode the outcome is unknown: it may be the one created here, changed since, or may have been
    /// created after that one was deleted. If no znode exists it is created: a second time, if others have deleted the
    /// first one.
    ///
    /// # Errors
    /// [`OpError::NodeExists`] with the owner, [`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`], and
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn create(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
    ) -> Result<Created, OpError> {
        let data = data.as_ref();
        self.observe("create", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            let create = Request::Create(self.to_create(&absolute, data, mode));
            loop {
                match attempts.write(&create).await? {
                    Write::Done(reply) => return self.created(&attempts, reply, mode),
                    Write::Lost => {}
                    Write::Refused(ErrorCode::NODE_EXISTS) => {
                        return self.explain_existing(attempts, path, data, mode).await;
                    }
                    Write::Refused(code) => return Err(attempts.refused_create(&absolute, code)),
                }
            }
        })
        .await
    }

    /// Creates a znode whose name is the last element of `prefix` and a number that grows with each one created under
    /// the same parent.
    ///
    /// After a lost answer the znode is searched by `recovery` before another one is created. One that others have deleted
    /// is not found.
    ///
    /// # Errors
    /// [`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`], [`OpError::NoAuth`], [`OpError::Invalid`],
    /// [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it. A
    /// znode that was created nevertheless can be found by the means of `recovery`.
    pub async fn create_sequential(
        &self,
        prefix: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
        recovery: Recovery,
    ) -> Result<Created, OpError> {
        let data = data.as_ref();
        self.observe("create_sequential", || async move {
            // A number is appended, so a prefix may end with a slash.
            check(&format!("{prefix}0"))?;
            let absolute = self.scope.absolute(prefix);
            let mut attempts = self.attempts(prefix);
            let invalid =
                |reason: &str| OpError::Invalid { path: prefix.to_owned(), reason: reason.to_owned() };
            if recovery == Recovery::Name && prefix.ends_with('/') {
                return Err(invalid("a prefix that ends with a slash gives no name to find the znode by"));
            }
            let create = self.to_create(&absolute, data, mode).sequential();
            let create = create.ok_or_else(|| invalid("ZooKeeper has no sequential containers"))?;
            let create = Request::Create(create);
            loop {
                match attempts.write(&create).await? {
                    Write::Done(reply) => return self.created(&attempts, reply, mode),
                    Write::Refused(code) => return Err(attempts.refused_create(&absolute, code)),
                    Write::Lost => {
                        if let Some(found) =
                            self.find_sequential(&mut attempts, &absolute, data, mode, recovery).await?
                        {
                            return Ok(found);
                        }
                    }
                }
            }
        })
        .await
    }

    /// Creates the persistent znodes above `path`, each that is missing, with no data. `path` itself is not created.
    ///
    /// # Errors
    /// [`OpError::Unknown`], [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, it leaves some of the znodes created, or all; calling it again continues.
    pub async fn create_parents(&self, path: &str) -> Result<(), OpError> {
        self.observe("create_parents", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            // From the inside out: mostly the nearest parent is there, and then that is all.
            let ancestors: Vec<&str> = zk_proto::ancestors(&absolute).filter(|above| *above != "/").collect();
            let mut at = 0;
            let mut descending = false;
            while let Some(parent) = ancestors.get(at) {
                let create = Request::Create(self.to_create(parent, &[], CreateMode::Persistent));
                let mut written = attempts.write(&create).await?;
                // Servers look at the access list above it before they look whether it exists.
                if let Write::Refused(ErrorCode::NO_AUTH) = written
                    && attempts.exists(parent).await?.is_some()
                {
                    written = Write::Refused(ErrorCode::NODE_EXISTS);
                }
                match written {
                    Write::Done(_) | Write::Refused(ErrorCode::NODE_EXISTS) => {
                        if at == 0 {
                            return Ok(());
                        }
                        descending = true;
                        at -= 1;
                    }
                    Write::Refused(ErrorCode::NO_NODE) if !descending && at + 1 < ancestors.len() => at += 1,
                    Write::Refused(code) => return Err(attempts.refused(code)),
                    Write::Lost => {}
                }
            }
            Ok(())
        })
        .await
    }

    /// Replaces the data of a znode; with `version`, only if the data still has that version.
    ///
    /// After a lost answer with a `version`, the same data at the next version of the same znode counts as written by this
    /// operation: of one that the session had seen before, by its `czxid`. Without a `version` the write is repeated: it
    /// may be applied twice, and overwrite what another client wrote in between.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Unknown`], [`OpError::NoAuth`], [`OpError::Invalid`],
    /// [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn set(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: Option<i32>,
    ) -> Result<Stat, OpError> {
        let data = data.as_ref();
        self.observe("set", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            let set = Request::SetData {
                path: absolute.as_str().into(),
                data: Some(data.into()),
                version: any_without(version),
            };
            if let Some(stat) = attempts.write_version(&set).await? {
                return Ok(stat);
            }
            let found = attempts.get(&absolute).await?;
            let now = found.ok_or_else(|| attempts.refused(ErrorCode::NO_NODE))?;
            attempts.explain_version(version, (now.stat.version, now.stat), now.data == data)
        })
        .await
    }

    /// Deletes a znode without children; with `version`, only if its data still has that version.
    ///
    /// After a lost answer the deletion is repeated only on the znode that was read first, never on another one that has
    /// replaced it (data versions start at 0 in every znode, so a version alone does not distinguish them). If it is gone,
    /// an ephemeral of this session counts as deleted by this operation. With any other znode the outcome is unknown:
    /// others may have deleted it.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::NotEmpty`], [`OpError::Unknown`], [`OpError::NoAuth`],
    /// [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), OpError> {
        self.observe("delete", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            // Servers from 3.9 on answer only clients that may read it.
            let meant = match attempts.exists(&absolute).await {
                Err(OpError::NoAuth { .. }) => None,
                found => Some(found?),
            };
            let delete = Request::Delete { path: absolute.as_str().into(), version: any_without(version) };
            loop {
                match attempts.write(&delete).await? {
                    Write::Done(_) => return Ok(()),
                    Write::Refused(code) => return Err(attempts.refused(code)),
                    Write::Lost => {
                        attempts.barrier().await?;
                        let Some(meant) = meant else {
                            return Err(attempts.changed("the znode may not be read".to_owned()));
                        };
                        match (meant, attempts.exists(&absolute).await?) {
                            // Nothing that was sent before had an effect.
                            (Some(meant), Some(now)) if meant.czxid == now.czxid => attempts.in_doubt = false,
                            (Some(meant), _) if meant.is_owned_by(self.session_id()) => return Ok(()),
                            // By which client is not known: two clients could both believe that they deleted it.
                            (_, None) => return Err(attempts.changed("no znode exists now".to_owned())),
                            // What was seen first may have been out of date: this one may be older than the operation.
                            (_, Some(_)) => {
                                return Err(attempts.changed("another znode exists now".to_owned()));
                            }
                        }
                    }
                }
            }
        })
        .await
    }

    /// A quorum round trip, and how long it took: when it returns, everything that was written before it was sent can
    /// be read here. It writes nothing.
    ///
    /// # Errors
    /// [`OpError::Unavailable`], [`OpError::SessionOver`]; [`OpError::Invalid`], with the path, if a znode exists
    /// that prevents the round trip.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn barrier(&self) -> Result<Duration, OpError> {
        self.observe("barrier", || async move {
            let started = BootTime::now();
            self.attempts("/").barrier().await?;
            Ok(BootTime::now().duration_since(started))
        })
        .await
    }

    /// Does an operation, and counts it. A future as an argument would be held twice, before and while it is awaited.
    pub(crate) async fn observe<T, F>(
        &self,
        op: &'static str,
        operation: impl FnOnce() -> F,
    ) -> Result<T, OpError>
    where
        F: Future<Output = Result<T, OpError>>,
    {
        let started = BootTime::now();
        let result = operation().await;
        let outcome = result.as_ref().map_or_else(OpError::outcome, |_| "ok");
        self.inner.settings.instruments.request(op, outcome, BootTime::now().duration_since(started));
        result
    }

    pub(crate) fn to_create<'a>(&self, absolute: &'a str, data: &'a [u8], mode: CreateMode) -> Create<'a> {
        Create::new(absolute, data, &self.scope.entries, mode)
    }

    fn created(&self, attempts: &Attempts<'_>, reply: Reply, mode: CreateMode) -> Result<Created, OpError> {
        let created = of_kind!(reply, Reply::PathAndStat(path, stat) => (path, stat));
        let (absolute, stat) = created.map_err(|other| attempts.unexpected(other))?;
        if !self.is_mine(&stat, mode) {
            return Err(attempts.distrust(format!(
                "a znode created as {mode:?} in session {} belongs to session {:#x}",
                self.session_id(),
                stat.ephemeral_owner
            )));
        }
        Ok(Created { path: self.scope.relative(&absolute), stat })
    }

    pub(crate) fn is_mine(&self, stat: &Stat, mode: CreateMode) -> bool {
        match mode {
            CreateMode::Ephemeral => stat.is_owned_by(self.session_id()),
            _ => stat.ephemeral_owner == 0,
        }
    }

    /// A create was refused because the znode exists: was it created by an earlier attempt of this operation, or by others?
    async fn explain_existing(
        &self,
        mut attempts: Attempts<'_>,
        path: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Created, OpError> {
        let absolute = self.scope.absolute(path);
        let in_doubt = attempts.in_doubt;
        let exists = |owner| OpError::NodeExists { path: path.to_owned(), owner };
        let Node { data: found, stat } = match attempts.get(&absolute).await {
            Ok(Some(node)) => node,
            Ok(None) if in_doubt => return Err(attempts.refused(ErrorCode::NO_NODE)),
            Err(error) if in_doubt => return Err(error),
            // It certainly exists; its owner is not known.
            Ok(None) | Err(_) => {
                self.inner.reliance.refused(&absolute);
                return Err(exists(None));
            }
        };
        let owner = (stat.ephemeral_owner != 0).then_some(stat.ephemeral_owner);
        if !in_doubt || attempts.is_older(&stat) {
            return Err(exists(owner));
        }
        let unchanged = stat.mzxid == stat.czxid;
        let ours = self.is_mine(&stat, mode)
            && match mode {
                // Other data, unchanged since the creation: another task of this session created it.
                CreateMode::Ephemeral => found == data || !unchanged,
                _ => found == data && unchanged,
            };
        if ours {
            return Ok(Created { path: path.to_owned(), stat });
        }
        // Perhaps ours, changed since; perhaps another client's, after ours was deleted.
        Err(attempts.changed(format!("a znode exists{}", owned_by(owner))))
    }

    /// Searches the znode of a sequential create whose answer was lost.
    async fn find_sequential(
        &self,
        attempts: &mut Attempts<'_>,
        absolute_prefix: &str,
        data: &[u8],
        mode: CreateMode,
        recovery: Recovery,
    ) -> Result<Option<Created>, OpError> {
        attempts.barrier().await?;
        let Some((parent, name)) = absolute_prefix.rsplit_once('/') else { return Ok(None) };
        let parent = if parent.is_empty() { "/" } else { parent };
        let siblings = attempts.children(parent).await?;
        let Children { names, .. } = siblings.ok_or_else(|| attempts.refused(ErrorCode::NO_NODE))?;
        // The newest first: with recovery by data there may be many, and the one sought is among the last.
        for candidate in names.iter().rev().filter(|candidate| is_numbered(candidate, name)) {
            let absolute = path::join(parent, candidate);
            let Some(Node { data: found, stat }) = attempts.get(&absolute).await? else { continue };
            let matches = recovery == Recovery::Name || found == data;
            if matches && self.is_mine(&stat, mode) && !attempts.is_older(&stat) {
                return Ok(Some(Created { path: self.scope.relative(&absolute), stat }));
            }
        }
        Ok(None)
    }
}

/// Whether `candidate` is `prefix` and a number as ZooKeeper appends it: ten digits, or a negative number once the
/// counter has overflowed.
fn is_numbered(candidate: &str, prefix: &str) -> bool {
    candidate.strip_prefix(prefix).is_some_and(|number| number.len() >= 10 && number.parse::<i64>().is_ok())
}

/// The protocol's number: -1 is any version.
pub(crate) fn any_without(version: Option<i32>) -> i32 {
    version.unwrap_or(-1)
}
