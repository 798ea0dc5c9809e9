//! The input of an engine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Leftovers, Policy, Recipe};
use crate::{
    ids::{Ballot, MemberId, SiteId},
    paths::Paths,
    record::{AppliedOverlay, Contender, ContenderStatus, Health, Record, RecordError, VERSION},
};

/// What a member publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Its unique id.
    pub member: MemberId,
    /// Where it runs.
    pub site: SiteId,
    /// How others can connect to this node.
    pub address: Option<String>,
    /// Where it serves its HTTP endpoints, as a URL such as `https://10.0.0.1:7080`.
    pub http: Option<String>,
    /// Higher is preferred; 0 or less never leads unless an operator names it.
    pub priority: i64,
    /// Free attributes for policies.
    pub attributes: BTreeMap<String, String>,
    /// A fingerprint of the policy and the strategy, to compare the configurations of all members; empty if it is not
    /// published.
    pub policy: String,
    /// Which overlay of its configuration it applies, if there is one.
    pub overlay: Option<AppliedOverlay>,
    /// The software that it runs.
    pub software: String,
    /// Whether it is fit to lead, until [`Event::Health`](super::Event::Health) reports it: [`Health::Unknown`] for a
    /// member that is not to be named before its first check has passed.
    pub health: Health,
}

impl Profile {
    /// A member of the site `default`, without attributes.
    pub fn new(member: MemberId) -> Self {
        Self {
            member,
            site: SiteId::default(),
            address: None,
            http: None,
            priority: 1,
            attributes: BTreeMap::new(),
            policy: String::new(),
            overlay: None,
            software: String::new(),
            health: Health::Unchecked,
        }
    }

    /// This member in that site.
    pub fn in_site(mut self, site: SiteId) -> Self {
        self.site = site;
        self
    }
}

/// The input of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the election keeps its znodes.
    pub paths: Paths,
    /// This member. Elections with the same one can share it.
    pub member: Arc<Profile>,
    /// How the election behaves. Elections with the same one can share it.
    pub policy: Arc<Policy>,
    /// What to do about a former process of this member.
    pub leftovers: Leftovers,
    /// How the leader is determined.
    pub recipe: Recipe,
}

impl Config {
    /// The content of the own znode in a contest.
    pub(crate) fn contender(
        &self,
        status: ContenderStatus,
        ballot: &Ballot,
        granted: Duration,
        since_ms: u64,
        ready_ms: Option<u64>,
        token_base: u64,
    ) -> Result<Vec<u8>, RecordError> {
        let profile = &self.member;
        if !self.recipe.is_native() {
            return Ok(profile.member.as_str().into());
        }
        let record = Contender {
            v: VERSION,
            member: profile.member.clone(),
            site: profile.site.clone(),
            status,
            ballot: matches!(self.recipe, Recipe::Single).then(|| ballot.clone()),
            address: profile.address.clone(),
            http: profile.http.clone(),
            token_base,
            software: profile.software.clone(),
            session_timeout_ms: u64::try_from(granted.as_millis()).unwrap_or(u64::MAX),
            since_ms,
            ready_ms,
        };
        record.encode(&self.paths.leader_znode(0))
    }
}
