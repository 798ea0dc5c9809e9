//! Operations beside those on znodes and their data: access lists, counts, identities, groups of reads, the ensemble's
//! own configuration.

use zk_proto::{AclEntry as Wire, ErrorCode, Id, Reply, Request};

use crate::acl::{AccessList, AclEntry};
use crate::error::OpError;
use crate::node::{Children, Node, Stat};
use crate::operations::any_without;
use crate::operations::attempts::{Write, of_kind};
use crate::path::check;
use crate::session::incarnation::Incarnation;

/// One read of a group for [`Incarnation::multi_read`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOp {
    /// Data and metadata of a znode.
    Get {
        /// Of the znode.
        path: String,
    },
    /// The names of a znode's children.
    Children {
        /// Of the znode.
        path: String,
    },
}

impl ReadOp {
    /// Reads data and metadata of a znode.
    pub fn get(path: impl Into<String>) -> Self {
        Self::Get { path: path.into() }
    }

    /// Reads the names of a znode's children.
    pub fn children(path: impl Into<String>) -> Self {
        Self::Children { path: path.into() }
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Get { path } | Self::Children { path } => path,
        }
    }
}

/// What one read of a group found; `None` where the znode does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadResult {
    /// Of [`ReadOp::Get`].
    Node(Option<Node>),
    /// Of [`ReadOp::Children`]: the names, sorted.
    Children(Option<Vec<String>>),
}

/// A change of the ensemble for [`Incarnation::reconfig`], as ZooKeeper's `reconfig` command has it: either servers that
/// join and leave, or all members at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconfiguration {
    /// `server.4=host:2888:3888;2181`, separated by commas.
    pub joining: Option<String>,
    /// Numbers of servers, separated by commas.
    pub leaving: Option<String>,
    /// All servers, one per line, instead of the other two.
    pub members: Option<String>,
    /// Only if the configuration still has this version.
    pub version: Option<i64>,
}

impl Incarnation {
    /// The metadata of a znode, `None` if there is none. Servers before 3.9 require no permission for it, later ones the
    /// permission to read.
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, OpError> {
        self.observe("exists", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            attempts.exists(&absolute).await
        })
        .await
    }

    /// Makes the server of the connection catch up with the ensemble's leader: what is read next is not older than what the
    /// leader had when it was asked. It writes nothing and is no quorum round trip: a deposed leader that has not noticed
    /// it yet answers it, too. [`barrier`](Self::barrier) is a quorum round trip.
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn sync(&self, path: &str) -> Result<(), OpError> {
        let take = |reply| of_kind!(reply, Reply::Path(_) => ());
        self.ask("sync", path, |path| Request::Sync { path }, take).await
    }

    /// The access list of a znode. Clients that may not change it get it without the hashes of passwords.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn acl(&self, path: &str) -> Result<AccessList, OpError> {
        let take = |reply| of_kind!(reply, Reply::Acl(entries, stat) => AccessList { entries, stat });
        self.ask("acl", path, |path| Request::GetAcl { path }, take).await
    }

    /// Replaces the access list of a znode; with `version`, only if the list still has that version
    /// ([`Stat::aversion`](crate::Stat)).
    ///
    /// After a lost answer it is repeated without a `version`. With one, the same list at the next version of the same
    /// znode counts as written by this operation, as for [`set`](Self::set).
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Invalid`] for an entry that the servers do not accept,
    /// [`OpError::Unknown`], [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn set_acl(
        &self,
        path: &str,
        entries: &[AclEntry],
        version: Option<i32>,
    ) -> Result<Stat, OpError> {
        self.observe("set_acl", || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            let request = Request::SetAcl {
                path: absolute.as_str().into(),
                acl: entries.iter().map(Wire::from).collect(),
                version: any_without(version),
            };
            if let Some(stat) = attempts.write_version(&request).await? {
                return Ok(stat);
            }
            // With the same attempts: a refused read does not prove that nothing was written.
            match attempts.read(&Request::GetAcl { path: absolute.as_str().into() }).await? {
                Ok(Reply::Acl(now, stat)) => {
                    attempts.explain_version(version, (stat.aversion, stat), now == entries)
                }
                Ok(other) => Err(attempts.unexpected(other)),
                Err(code) => Err(attempts.refused(code)),
            }
        })
        .await
    }

    /// The paths of this session's ephemerals that begin with `prefix` (servers from 3.6 on).
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`]. Servers that do not
    /// know the request answer [`OpError::Invalid`], and close the connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ephemerals(&self, prefix: &str) -> Result<Vec<String>, OpError> {
        let request = |absolute| Request::GetEphemerals { prefix: Some(absolute) };
        let take = |reply| of_kind!(reply, Reply::Names(paths) => paths);
        let mut paths = self.ask("ephemerals", prefix, request, take).await?;
        paths.sort_unstable();
        // The servers compare prefixes of paths, so some may be outside of the root.
        Ok(paths.iter().filter_map(|absolute| self.scope.below_root(absolute)).collect())
    }

    /// How many znodes there are below one, at any depth (servers from 3.6 on).
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    /// Servers that do not know the request answer [`OpError::Invalid`], and close the connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn count_below(&self, path: &str) -> Result<u32, OpError> {
        let take = |reply| of_kind!(reply, Reply::Int(count @ 0..) => count.unsigned_abs());
        self.ask("count_below", path, |path| Request::GetAllChildrenNumber { path }, take).await
    }

    /// The identities that the servers have verified for this session: its address and those of its credentials (servers
    /// from 3.7 on).
    ///
    /// # Errors
    /// [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`]. Servers that do not
    /// know the request answer [`OpError::Invalid`], and close the connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn whoami(&self) -> Result<Vec<Id>, OpError> {
        let take = |reply| of_kind!(reply, Reply::Identities(ids) => ids);
        self.ask("whoami", "/", |_| Request::WhoAmI, take).await
    }

    /// Several reads by one request, of one moment (servers from 3.6 on). A znode that does not exist is no error.
    ///
    /// # Errors
    /// With the path of the read that was refused: [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`],
    /// [`OpError::SessionOver`]. Servers that do not know the request answer [`OpError::Invalid`], and close the
    /// connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn multi_read(
        &self,
        reads: impl IntoIterator<Item = ReadOp>,
    ) -> Result<Vec<ReadResult>, OpError> {
        let reads: Vec<ReadOp> = reads.into_iter().collect();
        self.observe("multi_read", || async move {
            let Some(first) = reads.first() else { return Ok(Vec::new()) };
            reads.iter().try_for_each(|read| check(read.path()))?;
            let parts = reads.iter().map(|read| {
                let absolute = self.scope.absolute(read.path()).into();
                match read {
                    ReadOp::Get { .. } => Request::GetData { path: absolute, watch: false },
                    ReadOp::Children { .. } => {
                        Request::GetChildren { path: absolute, watch: false, with_stat: false }
                    }
                }
            });
            let request = Request::MultiRead(parts.collect());
            let mut attempts = self.attempts(first.path());
            let replies = match attempts.read(&request).await? {
                Ok(Reply::Multi(replies)) if replies.len() == reads.len() => replies,
                Ok(other) => return Err(attempts.unexpected(other)),
                Err(code) => return Err(attempts.refused(code)),
            };
            let results = replies.into_iter().zip(&reads).map(|((_, reply), read)| {
                Ok(match (reply, read) {
                    (Ok(Reply::Data(data, stat)), _) => {
                        ReadResult::Node(Some(Node::new(data.as_deref().unwrap_or_default(), stat)))
                    }
                    (Ok(Reply::Names(names)), _) => {
                        ReadResult::Children(Some(Children::new(names, Stat::default()).names))
                    }
                    (Err(ErrorCode::NO_NODE), ReadOp::Get { .. }) => ReadResult::Node(None),
                    (Err(ErrorCode::NO_NODE), ReadOp::Children { .. }) => ReadResult::Children(None),
                    (Err(code), read) => return Err(attempts.refused_at(read.path(), code)),
                    (Ok(other), _) => return Err(attempts.unexpected(other)),
                })
            });
            results.collect()
        })
        .await
    }

    /// Changes the members of the ensemble, and returns the new configuration. The servers allow it if `reconfigEnabled` is
    /// set, to clients that may write `/zookeeper/config`. It is sent once: after a lost answer, read the configuration to
    /// find out the outcome.
    ///
    /// # Errors
    /// [`OpError::Invalid`] also if it is not allowed or inconsistent, [`OpError::BadVersion`],
    /// [`OpError::Unknown`], [`OpError::NoAuth`], [`OpError::Invalid`], [`OpError::Unavailable`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown.
    pub async fn reconfig(&self, change: &Reconfiguration) -> Result<Node, OpError> {
        self.observe("reconfig", || async move {
            let text = |text: &'_ Option<String>| text.clone().map(Into::into);
            let request = Request::Reconfig {
                joining: text(&change.joining),
                leaving: text(&change.leaving),
                members: text(&change.members),
                version: change.version.unwrap_or(-1),
            };
            let mut attempts = self.attempts("/zookeeper/config");
            match attempts.write(&request).await? {
                Write::Done(reply) => attempts.node(reply),
                Write::Refused(code) => Err(attempts.refused(code)),
                Write::Lost => Err(attempts.changed("the configuration may have been changed".to_owned())),
            }
        })
        .await
    }

    /// A request about one path that changes nothing.
    async fn ask<T>(
        &self,
        op: &'static str,
        path: &str,
        request: impl FnOnce(std::borrow::Cow<'static, str>) -> Request<'static>,
        take: impl FnOnce(Reply) -> Result<T, Reply>,
    ) -> Result<T, OpError> {
        self.observe(op, || async move {
            let (absolute, mut attempts) = self.begin(path)?;
            match attempts.read(&request(absolute.into())).await? {
                Ok(reply) => take(reply).map_err(|reply| attempts.unexpected(reply)),
                Err(code) => Err(attempts.refused(code)),
            }
        })
        .await
    }
}
