//! The settings of sites of a policy: from code, and as text.

use election_core::strategy::SiteId;

use serde_json::{Map, Value};

use super::PolicySpec;
use crate::{
    site_policy::{AutoMoves, BelowSiteMinimum, OnLeaderFailure, SlotSpread},
    stages::Minimum,
};

impl PolicySpec {
    /// The usual policy for these sites, the most preferred first. Members of other sites come after all of them.
    pub fn for_sites(sites: impl IntoIterator<Item = SiteId>) -> Self {
        let mut policy = Self::default();
        policy.sites.sites = sites.into_iter().collect();
        policy
    }

    /// No member of these sites may lead.
    #[must_use]
    pub fn with_forbidden_sites(mut self, sites: impl IntoIterator<Item = SiteId>) -> Self {
        self.sites.forbidden_sites = sites.into_iter().collect();
        self
    }

    /// A site with fewer fit members than this goes after the sites that have as many. 1 by default: no minimum.
    #[must_use]
    pub fn with_site_minimum(mut self, members: u32) -> Self {
        self.sites.site_minimum = Minimum::All(members);
        self
    }

    /// The same with a number for each of these sites; 1 in all others.
    #[must_use]
    pub fn with_site_minimums(mut self, members: impl IntoIterator<Item = (SiteId, u32)>) -> Self {
        self.sites.site_minimum = Minimum::Each(members.into_iter().collect());
        self
    }

    /// Sets whether members of a site below its minimum are elected at all.
    #[must_use]
    pub fn with_below_site_minimum(mut self, below: BelowSiteMinimum) -> Self {
        self.sites.below_site_minimum = below;
        self
    }

    /// Sets the member that follows a leader that failed.
    #[must_use]
    pub fn with_on_leader_failure(mut self, on_leader_failure: OnLeaderFailure) -> Self {
        self.sites.on_leader_failure = on_leader_failure;
        self
    }

    /// Sets the automatic moves of leadership.
    #[must_use]
    pub fn with_auto_moves(mut self, auto_moves: AutoMoves) -> Self {
        self.sites.auto_moves = auto_moves;
        self
    }

    /// Sets whether the leaders of several slots are spread over the sites.
    #[must_use]
    pub fn with_spread(mut self, spread: SlotSpread) -> Self {
        self.sites.spread = spread;
        self
    }

    /// The sites, the most preferred first.
    pub fn sites(&self) -> &[SiteId] {
        &self.sites.sites
    }

    /// The sites in which no member may lead.
    pub fn forbidden_sites(&self) -> &[SiteId] {
        &self.sites.forbidden_sites
    }

    /// The number of fit members that is enough in a site.
    pub fn site_minimum(&self) -> &Minimum {
        &self.sites.site_minimum
    }

    /// Whether members of a site below its minimum are elected at all.
    pub fn below_site_minimum(&self) -> BelowSiteMinimum {
        self.sites.below_site_minimum
    }

    /// The member that follows a leader that failed.
    pub fn on_leader_failure(&self) -> OnLeaderFailure {
        self.sites.on_leader_failure
    }

    /// Whether the leaders of several slots are spread over the sites.
    pub fn spread(&self) -> SlotSpread {
        self.sites.spread
    }

    /// The automatic moves of leadership.
    pub fn auto_moves(&self) -> AutoMoves {
        self.sites.auto_moves
    }

    /// The settings of sites as text would have them, each with its key: what is not set has its default.
    pub fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(&self.sites) {
            Ok(Value::Object(settings)) => settings,
            _ => Map::new(),
        }
    }
}
