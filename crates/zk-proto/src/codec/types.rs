//! The types of requests and replies.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::wire::record;

/// ZooKeeper's id of a session, as in [`Stat::ephemeral_owner`]. Printed in hexadecimal, as ZooKeeper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

record! {
/// The metadata of a znode.
///
/// A zxid numbers ZooKeeper's changes in their order, over the whole ensemble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stat {
    /// The zxid of the change that created the znode: no two znodes, and no two lives of one path, share it.
    pub czxid: i64,
    /// The zxid of the last change of the data.
    pub mzxid: i64,
    /// When it was created, by the server's wall clock, in milliseconds since 1970.
    pub ctime_ms: i64,
    /// When the data was last changed, by the server's wall clock, in milliseconds since 1970.
    pub mtime_ms: i64,
    /// Changes of the data since the znode was created: 0 in every new znode.
    pub version: i32,
    /// Changes of the set of children.
    pub cversion: i32,
    /// Changes of the access list.
    pub aversion: i32,
    /// The [`SessionId`] that an ephemeral znode belongs to, 0 for a persistent one.
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
    /// The zxid of the last change of the set of children.
    pub pzxid: i64,
}
}

impl Stat {
    /// Whether this is an ephemeral znode of that session.
    #[must_use]
    pub fn is_owned_by(&self, session: SessionId) -> bool {
        self.ephemeral_owner != 0 && self.ephemeral_owner == session.0
    }
}

/// The bits of an access list's permissions.
pub mod permission {
    /// Read the data and the names of the children.
    pub const READ: i32 = 1;
    /// Replace the data.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// Replace the access list.
    pub const ADMIN: i32 = 16;
    /// All of them.
    pub const ALL: i32 = 31;
}

record! {
/// An identity: a scheme of authentication, and an id within it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// `world`, `auth`, `digest`, `ip`, `x509`, `sasl`, or one of the server's own.
    pub scheme: String,
    /// The id, in the form of the scheme.
    pub id: String,
}
}

impl Id {
    /// An identity.
    pub fn new(scheme: impl Into<String>, id: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), id: id.into() }
    }
}

record! {
/// One entry of an access list, as a server returns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The bits of [`permission`].
    pub permissions: i32,
    /// The identity that has them.
    pub id: Id,
}
}

record! {
/// One entry of an access list, as a client sends it. A server accepts no null scheme; an id may be null if the scheme does
/// not use it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry<'a> {
    /// The bits of [`permission`].
    pub permissions: i32,
    /// The scheme of authentication: see [`Id::scheme`].
    pub scheme: Option<Cow<'a, str>>,
    /// The id within the scheme.
    pub id: Option<Cow<'a, str>>,
}
}

impl AclEntry<'static> {
    /// A constant entry.
    #[must_use]
    pub const fn new(permissions: i32, scheme: &'static str, id: &'static str) -> Self {
        Self { permissions, scheme: Some(Cow::Borrowed(scheme)), id: Some(Cow::Borrowed(id)) }
    }
}

impl<'a> From<&'a Acl> for AclEntry<'a> {
    fn from(acl: &'a Acl) -> Self {
        let Id { scheme, id } = &acl.id;
        Self { permissions: acl.permissions, scheme: Some(scheme.into()), id: Some(id.into()) }
    }
}

/// How long a znode exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CreateMode {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted or the session that created it ends.
    Ephemeral,
    /// Until it is deleted, or some time after its last child is (servers check every minute). One that never had a child
    /// stays. Servers support it from 3.5 on.
    Container,
    /// Until it is deleted, or has had neither children nor a change for that time, in milliseconds and up to 34 years.
    /// Servers allow it if `zookeeper.extendedTypesEnabled` is set.
    Ttl(Duration),
}
