//! The operations on a session, each with the check that tells its outcome after a lost answer.

use std::time::Duration;

use zk_proto::{Create, ErrorCode, Reply, Request};

use crate::attempts::{Attempts, Write};
use crate::error::OpError;
use crate::incarnation::Incarnation;
use crate::node::{Children, CreateMode, Created, Node, Stat};
use crate::time::BootTime;
use crate::{instruments, path};

/// How a sequential create finds its znode again after a lost answer: its path is not known beforehand, and creating
/// another one would leave an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// The caller put something unique into the last element of the prefix: a sibling that begins with it is the one.
    Name,
    /// The data is unique: a sibling with the same prefix and the same data is the one.
    Data,
}

/// Operations. Each ends within the operation timeout.
///
/// # Cancel safety
/// Dropping the future of a write leaves its outcome unknown. Reads can be dropped at any time.
impl Incarnation {
    /// Reads a znode, `None` if there is none.
    ///
    /// Like every read it is answered by the server at hand, which may lag behind the others; after a
    /// [`barrier`](Self::barrier) it is up to date.
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get(&self, path: &str) -> Result<Option<Node>, OpError> {
        observe("get", async {
            check(path)?;
            let absolute = self.inner.absolute(path);
            let mut attempts = Attempts::new(&self.inner, path);
            match attempts.get(&absolute).await? {
                Ok((data, stat)) => Ok(Some(Node::new(data, stat))),
                Err(ErrorCode::NO_NODE) => Ok(None),
                Err(code) => Err(attempts.refused(code)),
            }
        })
        .await
    }

    /// Reads the names of a znode's children, `None` if the znode does not exist.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn children(&self, path: &str) -> Result<Option<Children>, OpError> {
        observe("children", async {
            check(path)?;
            let absolute = self.inner.absolute(path);
            let mut attempts = Attempts::new(&self.inner, path);
            match attempts.children(&absolute).await? {
                Ok((names, stat)) => Ok(Some(Children::new(names, stat))),
                Err(ErrorCode::NO_NODE) => Ok(None),
                Err(code) => Err(attempts.refused(code)),
            }
        })
        .await
    }

    /// Creates a znode with the access list of the session ([`SessionBuilder::acl`](crate::SessionBuilder::acl)). Its parent
    /// must exist.
    ///
    /// After a lost answer, an ephemeral that this session owns counts as the one created here; a persistent znode
    /// counts if it has the same data and was never changed, so put something unique into the data where it matters who
    /// created it. Where none stands there it is created: a second time, if others have deleted the first one meanwhile.
    ///
    /// # Errors
    /// [`OpError::NodeExists`] with the owner, [`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`], and
    /// those of [`get`](Self::get).
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
        observe("create", async {
            check(path)?;
            let absolute = self.inner.absolute(path);
            let mut attempts = Attempts::new(&self.inner, path);
            let create = Request::Create(self.to_create(path, &absolute, data, mode, false)?);
            loop {
                match attempts.write(&create).await? {
                    Write::Done(reply) => return self.created(&attempts, reply, mode),
                    Write::Lost => {}
                    Write::Refused(ErrorCode::NODE_EXISTS) => {
                        return self.explain_existing(attempts, path, data, mode).await;
                    }
                    Write::Refused(code) => return Err(attempts.refused(code)),
                }
            }
        })
        .await
    }

    /// Creates a znode whose name is the last element of `prefix` and a number that grows with each one created under
    /// the same parent.
    ///
    /// After a lost answer the znode is looked for by `recovery` before another one is created; one that others have
    /// deleted meanwhile is not found.
    ///
    /// # Errors
    /// As for [`create`](Self::create), without `NodeExists`.
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it. A znode
    /// that was created nevertheless is to be found by what `recovery` goes by.
    pub async fn create_sequential(
        &self,
        prefix: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
        recovery: Recovery,
    ) -> Result<Created, OpError> {
        let data = data.as_ref();
        observe("create_sequential", async {
            // A number is appended, so a prefix may end with a slash.
            check(&format!("{prefix}0"))?;
            let absolute = self.inner.absolute(prefix);
            let mut attempts = Attempts::new(&self.inner, prefix);
            let create = Request::Create(self.to_create(prefix, &absolute, data, mode, true)?);
            loop {
                match attempts.write(&create).await? {
                    Write::Done(reply) => return self.created(&attempts, reply, mode),
                    Write::Refused(code) => return Err(attempts.refused(code)),
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
    /// As for [`create`](Self::create), without `NodeExists` and `NoNode`.
    ///
    /// # Cancel safety
    /// Dropped before it has answered, it leaves some of the znodes created, or all; calling it again goes on.
    pub async fn create_parents(&self, path: &str) -> Result<(), OpError> {
        observe("create_parents", async {
            check(path)?;
            let absolute = self.inner.absolute(path);
            let ancestors: Vec<&str> = path::ancestors(&absolute).collect();
            let mut attempts = Attempts::new(&self.inner, path);
            // From the inside out: mostly the nearest parent is there, and then that is all.
            let mut next = ancestors.len();
            let mut descending = false;
            while next > 0 {
                let parent = ancestors[next - 1];
                let create =
                    Request::Create(self.to_create(path, parent, &[], CreateMode::Persistent, false)?);
                match attempts.write(&create).await? {
                    Write::Done(_) | Write::Refused(ErrorCode::NODE_EXISTS) => {
                        descending = true;
                        next += 1;
                        if next > ancestors.len() {
                            return Ok(());
                        }
                    }
                    Write::Refused(ErrorCode::NO_NODE) if !descending && next > 1 => next -= 1,
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
    /// After a lost answer with a `version`, the same data at the next version counts as written here. Without a
    /// `version` the write is repeated: it may then be applied twice, over what somebody else wrote in between.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Unknown`], and those of [`get`](Self::get).
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
        observe("set", async {
            check(path)?;
            let absolute = self.inner.absolute(path);
            let mut attempts = Attempts::new(&self.inner, path);
            let set = Request::SetData {
                path: absolute.as_str().into(),
                data: Some(data.into()),
                version: any_without(version),
            };
            loop {
                match attempts.write(&set).await? {
                    Write::Done(reply) => return attempts.stat(reply),
                    Write::Lost => {}
                    Write::Refused(ErrorCode::BAD_VERSION) if attempts.in_doubt() => {
                        return self.explain_version(attempts, path, data, version).await;
                    }
                    Write::Refused(code) => return Err(attempts.refused(code)),
                }
            }
        })
        .await
    }

    /// Deletes a znode without children; with `version`, only if its data still has that version.
    ///
    /// After a lost answer the deletion is repeated only on the znode that was seen there at first, never on another that
    /// stands in its place by now (data versions start at 0 in every znode, so a version alone does not tell them apart).
    /// Then an ephemeral of this session counts as deleted. Of any other znode the outcome is unknown: the server at hand
    /// may lag behind the others, and the one that stands there may have stood there before.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::NotEmpty`], [`OpError::Unknown`], and those of
    /// [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), OpError> {
        observe("delete", async {
            check(path)?;
            let absolute = self.inner.absolute(path);
            let mut attempts = Attempts::new(&self.inner, path);
            // Servers from 3.9 on tell only those who may read it.
            let meant = attempts.exists_if_readable(&absolute).await?;
            let delete = Request::Delete { path: absolute.as_str().into(), version: any_without(version) };
            loop {
                match attempts.write(&delete).await? {
                    Write::Done(_) => return Ok(()),
                    Write::Refused(ErrorCode::NO_NODE) if attempts.in_doubt() => return Ok(()),
                    Write::Refused(code) => return Err(attempts.refused(code)),
                    Write::Lost => {
                        attempts.barrier().await?;
                        let Some(meant) = meant else {
                            return Err(attempts.changed("what stands there may not be read".to_owned()));
                        };
                        match (meant, attempts.exists(&absolute).await?) {
                            (_, None) => return Ok(()),
                            (Some(meant), Some(now)) if meant.czxid == now.czxid => {}
                            (Some(meant), Some(_)) if meant.is_owned_by(self.session_id()) => return Ok(()),
                            // What was seen first may have been out of date: this one may be older than the operation.
                            (Some(_), Some(_)) => {
                                return Err(attempts.changed("another znode stands there".to_owned()));
                            }
                            (None, Some(_)) => {
                                return Err(attempts.changed("a znode stands there".to_owned()));
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
    /// [`OpError::Unavailable`], [`OpError::SessionOver`]; [`OpError::Invalid`] where a znode stands in the way of the
    /// round trip, with its path.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn barrier(&self) -> Result<Duration, OpError> {
        observe("barrier", async {
            let started = BootTime::now();
            Attempts::new(&self.inner, "/").barrier().await?;
            Ok(BootTime::now().duration_since(started))
        })
        .await
    }

    pub(crate) fn to_create<'a>(
        &self,
        path: &str,
        absolute: &'a str,
        data: &'a [u8],
        mode: CreateMode,
        sequential: bool,
    ) -> Result<Create<'a>, OpError> {
        let acl = self.inner.acl().entries();
        let mode = mode.on_wire(sequential).ok_or_else(|| OpError::Invalid {
            path: path.to_owned(),
            reason: "ZooKeeper has no sequential containers".to_owned(),
        })?;
        Ok(Create::new(absolute, data, acl, mode))
    }

    fn created(&self, attempts: &Attempts<'_>, reply: Reply, mode: CreateMode) -> Result<Created, OpError> {
        let (absolute, stat) = match reply {
            Reply::PathAndStat(path, stat) => (path, stat),
            other => return Err(attempts.unexpected(&other)),
        };
        if !self.is_mine(&stat, mode) {
            return Err(attempts.distrust(format!(
                "a znode created as {mode:?} in session {} belongs to session {:#x}",
                self.session_id(),
                stat.ephemeral_owner
            )));
        }
        Ok(Created { path: self.inner.relative(&absolute), stat })
    }

    pub(crate) fn is_mine(&self, stat: &Stat, mode: CreateMode) -> bool {
        match mode {
            CreateMode::Ephemeral => stat.is_owned_by(self.session_id()),
            _ => stat.ephemeral_owner == 0,
        }
    }

    /// A create was refused because the znode is there: by an earlier attempt of this very operation, or by others?
    async fn explain_existing(
        &self,
        mut attempts: Attempts<'_>,
        path: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Created, OpError> {
        let absolute = self.inner.absolute(path);
        let in_doubt = attempts.in_doubt();
        let exists = |owner| OpError::NodeExists { path: path.to_owned(), owner };
        let (found, stat) = match attempts.get(&absolute).await {
            Ok(Ok(found)) => found,
            Ok(Err(code)) if in_doubt => return Err(attempts.refused(code)),
            Err(error) if in_doubt => return Err(error),
            // That it exists is certain; whose it is remains open.
            Ok(Err(_)) | Err(_) => return Err(exists(None)),
        };
        let unchanged = stat.mzxid == stat.czxid;
        let ours = self.is_mine(&stat, mode)
            && match mode {
                // Data that nobody has changed and that is not ours was created by another task of this session.
                CreateMode::Ephemeral => found == data || !unchanged,
                _ => found == data && unchanged,
            };
        if in_doubt && ours {
            return Ok(Created { path: path.to_owned(), stat });
        }
        Err(exists((stat.ephemeral_owner != 0).then_some(stat.ephemeral_owner)))
    }

    /// A set was refused for its version after an earlier attempt whose answer was lost: was it that one?
    async fn explain_version(
        &self,
        mut attempts: Attempts<'_>,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<Stat, OpError> {
        let absolute = self.inner.absolute(path);
        let (found, stat) = attempts.get(&absolute).await?.map_err(|code| attempts.refused(code))?;
        let next = version.map(|version| version.wrapping_add(1));
        match (next == Some(stat.version), found == data) {
            (true, true) => Ok(stat),
            (true, false) => Err(OpError::BadVersion { path: path.to_owned() }),
            (false, _) => Err(attempts.changed(format!("the data has version {} by now", stat.version))),
        }
    }

    /// Looks for the znode of a sequential create whose answer was lost.
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
        let (names, _) = attempts.children(parent).await?.map_err(|code| attempts.refused(code))?;
        let mut candidates: Vec<&str> =
            names.iter().map(String::as_str).filter(|candidate| is_numbered(candidate, name)).collect();
        // The newest first: with recovery by data there may be many, and the one sought is among the last.
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        for candidate in candidates {
            let absolute = path::join(parent, candidate);
            let (found, stat) = match attempts.get(&absolute).await? {
                Ok(found) => found,
                Err(ErrorCode::NO_NODE) => continue,
                Err(code) => return Err(attempts.refused(code)),
            };
            let matches = match recovery {
                Recovery::Name => true,
                Recovery::Data => found == data,
            };
            if matches && self.is_mine(&stat, mode) {
                return Ok(Some(Created { path: self.inner.relative(&absolute), stat }));
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

/// As the protocol has it: -1 is any version.
pub(crate) fn any_without(version: Option<i32>) -> i32 {
    version.unwrap_or(-1)
}

pub(crate) fn check(path: &str) -> Result<(), OpError> {
    path::check(path).map_err(|reason| OpError::Invalid { path: path.to_owned(), reason })
}

pub(crate) async fn observe<T>(
    op: &'static str,
    operation: impl Future<Output = Result<T, OpError>>,
) -> Result<T, OpError> {
    let started = BootTime::now();
    let result = operation.await;
    let outcome = result.as_ref().map_or_else(OpError::outcome, |_| "ok");
    instruments::request(op, outcome, BootTime::now().duration_since(started));
    result
}

#[cfg(test)]
mod tests;
