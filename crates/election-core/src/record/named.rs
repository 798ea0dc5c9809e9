use serde::{Deserialize, Serialize};

use crate::ids::{Ballot, MemberId, SiteId};

/// A named member, by its ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Its id.
    pub member: MemberId,
    /// Its incarnation.
    pub ballot: Ballot,
    /// Its site.
    pub site: SiteId,
}

/// The previous leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Previous {
    /// Its id.
    pub member: MemberId,
    /// Its incarnation.
    pub ballot: Ballot,
    /// Its site.
    pub site: SiteId,
}

impl Named {
    /// This member as the previous leader.
    pub fn as_previous(&self) -> Previous {
        Previous { member: self.member.clone(), ballot: self.ballot.clone(), site: self.site.clone() }
    }
}
