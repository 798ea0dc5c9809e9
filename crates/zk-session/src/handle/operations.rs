//! The operations of a session, each on the present ZooKeeper session.

use std::time::Duration;

use crate::acl::{AccessList, AclEntry, Id};
use crate::error::OpError;
use crate::handle::session::Session;
use crate::node::{Children, CreateMode, Created, Node, Stat};
use crate::operations::Recovery;
use crate::operations::administration::{ReadOp, ReadResult, Reconfiguration};
use crate::operations::multi::{MultiOp, MultiResult};
use crate::session::incarnation::Incarnation;

/// Operations on the present session. Each waits for it to be active no longer than the operation timeout, and is
/// then the operation of the same name of that [`Incarnation`], which has the details.
impl Session {
    /// The session for an operation.
    pub(crate) async fn on(&self, op: &'static str, path: &str) -> Result<Incarnation, OpError> {
        Ok(self.view.scoped(self.view.shared.current(op, path, self.bound).await?))
    }

    /// Reads a znode, `None` if there is none. The server that answers may lag behind the others; after a
    /// [`barrier`](Self::barrier) it is up to date.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn get(&self, path: &str) -> Result<Option<Node>, OpError> {
        self.on("get", path).await?.get(path).await
    }

    /// The metadata of a znode, `None` if there is none.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, OpError> {
        self.on("exists", path).await?.exists(path).await
    }

    /// Reads the names of a znode's children, `None` if the znode does not exist.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn children(&self, path: &str) -> Result<Option<Children>, OpError> {
        self.on("children", path).await?.children(path).await
    }

    /// Creates a znode with the access list of the session ([`SessionBuilder::acl`](crate::SessionBuilder::acl)) or of this handle
    /// ([`with_acl`](Self::with_acl)). Its parent must exist.
    ///
    /// # Errors
    /// [`OpError::NodeExists`] with the owner, [`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn create(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
    ) -> Result<Created, OpError> {
        self.on("create", path).await?.create(path, data, mode).await
    }

    /// Creates a znode whose name is the last element of `prefix` and a number that grows with each one created under the
    /// same parent. After a lost answer the znode is found again by `recovery`.
    ///
    /// # Errors
    /// [`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn create_sequential(
        &self,
        prefix: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
        recovery: Recovery,
    ) -> Result<Created, OpError> {
        self.on("create_sequential", prefix).await?.create_sequential(prefix, data, mode, recovery).await
    }

    /// Creates the persistent znodes above `path`, each that is missing, with no data. `path` itself is not created.
    ///
    /// # Errors
    /// [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, some of it may have been done; calling it again continues.
    pub async fn create_parents(&self, path: &str) -> Result<(), OpError> {
        self.on("create_parents", path).await?.create_parents(path).await
    }

    /// Replaces the data of a znode; with `version`, only if the data still has that version.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn set(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: Option<i32>,
    ) -> Result<Stat, OpError> {
        self.on("set", path).await?.set(path, data, version).await
    }

    /// Deletes a znode without children; with `version`, only if its data still has that version.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::NotEmpty`], [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), OpError> {
        self.on("delete", path).await?.delete(path, version).await
    }

    /// Deletes a znode and everything below it, znode by znode. Each step is bounded by the operation timeout, a
    /// [`timeout`](Self::with_timeout) of the caller bounds the whole.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::NotEmpty`] if others create znodes as fast as these are deleted,
    /// [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, some of it may have been done; calling it again continues.
    pub async fn delete_recursive(&self, path: &str) -> Result<(), OpError> {
        self.on("delete_recursive", path).await?.delete_recursive(path).await
    }

    /// Does all of the operations or none, in this order, as one change of ZooKeeper.
    ///
    /// # Errors
    /// Of the operation that was refused, with its path: [`OpError::NodeExists`], [`OpError::NoNode`],
    /// [`OpError::BadVersion`], [`OpError::NotEmpty`]; [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn multi(&self, ops: impl IntoIterator<Item = MultiOp>) -> Result<Vec<MultiResult>, OpError> {
        self.on("multi", "/").await?.multi(ops).await
    }

    /// Several reads by one request, of one moment (servers from 3.6 on). A znode that does not exist is no error.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn multi_read(
        &self,
        reads: impl IntoIterator<Item = ReadOp>,
    ) -> Result<Vec<ReadResult>, OpError> {
        self.on("multi_read", "/").await?.multi_read(reads).await
    }

    /// The access list of a znode.
    ///
    /// # Errors
    /// [`OpError::NoNode`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn acl(&self, path: &str) -> Result<AccessList, OpError> {
        self.on("acl", path).await?.acl(path).await
    }

    /// Replaces the access list of a znode; with `version`, only if the list still has that version.
    ///
    /// # Errors
    /// [`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn set_acl(
        &self,
        path: &str,
        entries: &[AclEntry],
        version: Option<i32>,
    ) -> Result<Stat, OpError> {
        self.on("set_acl", path).await?.set_acl(path, entries, version).await
    }

    /// The paths of this session's ephemerals that begin with `prefix` (servers from 3.6 on).
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ephemerals(&self, prefix: &str) -> Result<Vec<String>, OpError> {
        self.on("ephemerals", prefix).await?.ephemerals(prefix).await
    }

    /// How many znodes there are below one, at any depth (servers from 3.6 on).
    ///
    /// # Errors
    /// [`OpError::NoNode`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn count_below(&self, path: &str) -> Result<u32, OpError> {
        self.on("count_below", path).await?.count_below(path).await
    }

    /// The identities that the servers have verified for this session (servers from 3.7 on).
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn whoami(&self) -> Result<Vec<Id>, OpError> {
        self.on("whoami", "/").await?.whoami().await
    }

    /// Makes the server that answers catch up with the ensemble's leader. It is no quorum round trip;
    /// [`barrier`](Self::barrier) is one.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn sync(&self, path: &str) -> Result<(), OpError> {
        self.on("sync", path).await?.sync(path).await
    }

    /// Changes the members of the ensemble, and returns the new configuration. It is sent once.
    ///
    /// # Errors
    /// [`OpError::BadVersion`], [`OpError::Unknown`].
    ///
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it.
    pub async fn reconfig(&self, change: &Reconfiguration) -> Result<Node, OpError> {
        self.on("reconfig", "/zookeeper/config").await?.reconfig(change).await
    }

    /// A quorum round trip, and how long it took: when it returns, everything that was written before it was sent can be
    /// read. It writes nothing.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] if there was no active session or no connection in time, [`OpError::SessionOver`],
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn barrier(&self) -> Result<Duration, OpError> {
        self.on("barrier", "/").await?.barrier().await
    }
}
