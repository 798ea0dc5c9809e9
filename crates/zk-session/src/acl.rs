//! Access lists of the znodes that a session creates.

use zk_proto::AclEntry as Wire;
pub use zk_proto::{Acl as AclEntry, Id, permission};

use crate::node::Stat;

/// The access list of a znode. From [`Incarnation::acl`](crate::Incarnation::acl).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessList {
    /// The permissions by identity.
    pub entries: Vec<AclEntry>,
    /// The metadata of the znode, whose `aversion` counts the changes of the list.
    pub stat: Stat,
}

/// The access list of every znode that a session creates: by the create operations, as parents, as held ephemerals.
///
/// A list is given to a znode when it is created. Existing znodes keep theirs, including parents. ZooKeeper inherits
/// nothing: a client that may not read a parent may still read its children.
///
/// "Creator" is every identity that the servers have verified for the session when it creates the znode: the credentials of
/// [`SessionBuilder::auth`](crate::SessionBuilder::auth), the user of
/// [`sasl_digest`](crate::SessionBuilder::sasl_digest), the subject of the client certificate of
/// [`tls`](crate::SessionBuilder::tls) where the servers authenticate by it. Processes that share znodes need the same
/// credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Acl {
    /// Any client has all permissions.
    #[default]
    Open,
    /// The creator has all permissions, other clients have none. ZooKeeper shows the existence of a znode and its metadata
    /// to every client.
    CreatorAll,
    /// The creator has all permissions, any client may read the data and the names of the children.
    CreatorAllWorldRead,
}

impl Acl {
    /// As it is sent.
    pub(crate) const fn entries(self) -> &'static [Wire<'static>] {
        const CREATOR: Wire<'static> = Wire::new(permission::ALL, "auth", "");
        match self {
            Self::Open => const { &[Wire::new(permission::ALL, "world", "anyone")] },
            Self::CreatorAll => const { &[CREATOR] },
            Self::CreatorAllWorldRead => const { &[CREATOR, Wire::new(permission::READ, "world", "anyone")] },
        }
    }
}
