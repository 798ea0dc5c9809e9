//! Access lists of the znodes that a session creates.

use std::borrow::Cow;
use std::sync::Arc;

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

/// The access list of every znode that is created with it: by the create operations, as parents, as held ephemerals, as
/// contenders of a lock. Of a whole session by [`SessionBuilder::acl`](crate::SessionBuilder::acl), of single creations by
/// [`Session::with_acl`](crate::Session::with_acl).
///
/// A list is given to a znode when it is created. Existing znodes keep theirs, including parents. ZooKeeper inherits
/// nothing: a client that may not read a parent may still read its children.
///
/// "Creator" is every identity that the servers have verified for the session when it creates the znode: the credentials of
/// [`SessionBuilder::auth`](crate::SessionBuilder::auth), the user of
/// [`sasl_digest`](crate::SessionBuilder::sasl_digest), the subject of the client certificate of
/// [`tls`](crate::SessionBuilder::tls) where the servers authenticate by it. Processes that share znodes need the same
/// credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
    /// These entries. The servers refuse an empty list, an unknown scheme, and the scheme `auth` for a session without
    /// credentials: [`OpError::Invalid`](crate::OpError::Invalid).
    ///
    /// ```
    /// use zk_session::{Acl, AclEntry, Id, permission};
    ///
    /// let team = AclEntry { permissions: permission::ALL, id: Id::new("digest", "team:Zk+B2kCpjxXV3I6vS2pQG7A9XAc=") };
    /// let anyone = AclEntry { permissions: permission::READ, id: Id::new("world", "anyone") };
    /// let acl = Acl::Entries([team, anyone].into());
    /// # drop(acl);
    /// ```
    Entries(Arc<[AclEntry]>),
}

impl Acl {
    /// As it is sent.
    pub(crate) fn entries(&self) -> Cow<'static, [Wire<'static>]> {
        const CREATOR: Wire<'static> = Wire::new(permission::ALL, "auth", "");
        Cow::Borrowed(match self {
            Self::Open => const { &[Wire::new(permission::ALL, "world", "anyone")] },
            Self::CreatorAll => const { &[CREATOR] },
            Self::CreatorAllWorldRead => const { &[CREATOR, Wire::new(permission::READ, "world", "anyone")] },
            Self::Entries(entries) => return entries.iter().cloned().map(owned).collect(),
        })
    }

    /// Whether it gives something to the creator, whom the servers have to know.
    pub(crate) fn names_creator(&self) -> bool {
        self.entries().iter().any(|entry| entry.scheme.as_deref() == Some("auth"))
    }
}

fn owned(AclEntry { permissions, id: Id { scheme, id } }: AclEntry) -> Wire<'static> {
    Wire { permissions, scheme: Some(scheme.into()), id: Some(id.into()) }
}
