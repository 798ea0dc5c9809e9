//! The settings of sites of a policy: from code, and as text.

use election_core::SiteId;

use super::{PolicySpec, value::Value};
use crate::site_policy::{AutoMoves, OnLeaderFailure, Spread};

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
        self.sites.site_minimum = members;
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
    pub fn with_spread(mut self, spread: Spread) -> Self {
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

    /// The number of fit members below which a site goes after others.
    pub fn site_minimum(&self) -> u32 {
        self.sites.site_minimum
    }

    /// The member that follows a leader that failed.
    pub fn on_leader_failure(&self) -> OnLeaderFailure {
        self.sites.on_leader_failure
    }

    /// Whether the leaders of several slots are spread over the sites.
    pub fn spread(&self) -> Spread {
        self.sites.spread
    }

    /// The automatic moves of leadership.
    pub fn auto_moves(&self) -> AutoMoves {
        self.sites.auto_moves
    }

    /// The settings of sites as text would have them, each with its key: what is not set has its default.
    pub fn settings(&self) -> [(&'static str, Value); 6] {
        let text = |text: &str| Value::Text(text.to_owned());
        let list = |sites: &[SiteId]| Value::List(sites.iter().map(|site| text(site.as_str())).collect());
        let sites = &self.sites;
        [
            ("sites", list(&sites.sites)),
            ("forbidden_sites", list(&sites.forbidden_sites)),
            ("site_minimum", Value::Whole(sites.site_minimum.into())),
            ("on_leader_failure", text(sites.on_leader_failure.as_str())),
            ("auto_moves", text(sites.auto_moves.as_str())),
            ("spread", text(sites.spread.as_str())),
        ]
    }
}
