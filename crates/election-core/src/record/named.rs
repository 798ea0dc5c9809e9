use serde::{Deserialize, Serialize};

use crate::ids::{Ballot, MemberId, SiteId};

/// A member that is named, by its ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Its id.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stands.
    pub site: SiteId,
}

/// The leader before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Previous {
    /// Its id.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stood.
    pub site: SiteId,
}

impl Named {
    /// This member as the one that led before.
    pub fn as_previous(&self) -> Previous {
        Previous { member: self.member.clone(), ballot: self.ballot.clone(), site: self.site.clone() }
    }
}
