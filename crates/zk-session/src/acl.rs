//! Who may do what with the znodes that a session creates.

use zk_proto::AclEntry as Wire;
pub use zk_proto::{Acl as AclEntry, Id, permission};

use crate::node::Stat;

/// The access list of a znode. From [`Incarnation::acl`](crate::Incarnation::acl).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    /// Who may do what.
    pub entries: Vec<AclEntry>,
    /// The metadata of the znode, whose `aversion` counts the changes of the list.
    pub stat: Stat,
}

/// The access list of every znode that a session creates: by the create operations, as parents, as held ephemerals.
///
/// A list is given to a znode when it is created. Znodes that exist keep theirs, parents that were there before
/// included. ZooKeeper inherits nothing: that a parent can't be read keeps nobody from reading its children.
///
/// "Creator" is every identity that the session has proved when it creates the znode: the credentials of
/// [`SessionBuilder::auth`](crate::SessionBuilder::auth), the user of
/// [`sasl_digest`](crate::SessionBuilder::sasl_digest), the subject of the client certificate of
/// [`tls`](crate::SessionBuilder::tls) where the servers authenticate by it. Processes that share znodes need the same
/// credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Acl {
    /// Anybody who reaches the servers may do anything.
    #[default]
    Open,
    /// The creator may do anything, nobody else anything but see that the znode exists and what its metadata is:
    /// ZooKeeper shows those to everybody.
    CreatorAll,
    /// The creator may do anything, anybody may read the data and the names of the children.
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
