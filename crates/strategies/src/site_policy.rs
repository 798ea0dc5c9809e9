//! The ready-made policy for two sites or more.

use std::{fmt, sync::Arc};

use election_core::{SiteId, record::Cause, strategy::Strategy};
use serde::{Deserialize, Serialize};

use crate::{
    pipeline::Pipeline,
    rules::Rules,
    stages::{
        FailedLast, FewerFailures, Incumbent, OldestBallot, OtherSite, Priority, SameSite, SiteAllowed,
        SiteMinimum, SiteOrder, Software, Spread as SpreadStage, YoungestBallot,
    },
};

/// Which site should lead, and what happens when its leader fails.
///
/// The fields are named as the keys of a configuration are; an absent one has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SitePolicy {
    /// The sites, most preferred first. Members of other sites come after all of them.
    pub sites: Vec<SiteId>,
    /// The sites that no member may lead from, whatever happens.
    pub forbidden_sites: Vec<SiteId>,
    /// A site in which fewer members than this are fit goes behind those that have as many. 0 and 1
    /// ask for nothing.
    pub site_minimum: u32,
    /// Where leadership goes when the leader fails.
    pub on_leader_failure: OnLeaderFailure,
    /// Where leadership moves by itself while the leader is fit.
    pub auto_moves: AutoMoves,
    /// Whether the leaders of several slots are spread over the sites.
    pub spread: Spread,
}

/// Where leadership goes when the leader fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLeaderFailure {
    /// To another site if anybody there can lead, else to the same one: what felled
    /// the leader may have felled its site.
    #[default]
    OtherSite,
    /// To the most preferred site where anybody can lead.
    PreferOrder,
    /// To another member of the same site if there is one that can lead.
    SameSiteFirst,
}

/// Where leadership moves by itself to a member that is better, while the leader is fit. After how long is
/// the engine's to decide (`election_core::Policy::better_after`), not the strategy's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AutoMoves {
    /// Nowhere: it stays until it fails or an operator moves it.
    #[default]
    None,
    /// To a better member of the leader's own site.
    InSite,
    /// To a better member of any site, and so back to the preferred one.
    All,
}

/// Where the leaders of several slots stand. With one slot it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Each where it is best by itself: all of them in the most preferred site, while
    /// that has members enough.
    #[default]
    None,
    /// Over the sites, before any other preference of sites.
    Sites,
}

/// Why a [`SitePolicy`] makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A site stands twice in the order.
    SiteTwice(SiteId),
    /// A site is in the order and forbidden.
    SiteForbidden(SiteId),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SiteTwice(site) => {
                write!(f, "sites: {site:?} stands twice; name each site once, the most preferred first")
            }
            Self::SiteForbidden(site) => {
                write!(f, "forbidden_sites: {site:?} is in sites as well; take it out of one of the two")
            }
        }
    }
}

impl std::error::Error for PolicyError {}

impl SitePolicy {
    /// Looks for settings that make no sense.
    ///
    /// # Errors
    /// When a site is in the order twice, or is in the order and forbidden.
    pub fn check(&self) -> Result<(), PolicyError> {
        for (index, site) in self.sites.iter().enumerate() {
            if self.sites[..index].contains(site) {
                return Err(PolicyError::SiteTwice(site.clone()));
            }
            if self.forbidden_sites.contains(site) {
                return Err(PolicyError::SiteForbidden(site.clone()));
            }
        }
        Ok(())
    }

    /// The strategy that carries this policy out.
    pub fn strategy(&self) -> Arc<dyn Strategy> {
        Arc::new(self.rules())
    }

    /// The same, open to further rules.
    pub fn rules(&self) -> Rules {
        // Without a place for the incumbent: the move is ordered.
        let planned =
            |pipeline: Pipeline| pipeline.compare(self.site_order()).compare(Priority).compare(OldestBallot);
        let usual = |pipeline: Pipeline| {
            pipeline.compare(self.site_order()).compare(Incumbent).compare(Priority).compare(OldestBallot)
        };
        // Who was restarted before goes before who is still to be.
        let stopping = |pipeline: Pipeline| {
            let pipeline = pipeline.compare(self.site_order()).compare(Priority);
            pipeline.compare(Software::default()).compare(YoungestBallot)
        };
        self.rules_over(usual, planned, stopping)
    }

    /// What the settings but the order of sites say, before these orders: the usual one, the one where it
    /// is the incumbent that is to go or to stay, and the one where it is because it shuts down.
    pub(crate) fn rules_over(
        &self,
        usual: impl Fn(Pipeline) -> Pipeline,
        planned: impl Fn(Pipeline) -> Pipeline,
        stopping: impl Fn(Pipeline) -> Pipeline,
    ) -> Rules {
        let better = match self.auto_moves {
            // Nobody is ever better than the incumbent.
            AutoMoves::None => planned(self.sites_first(self.fit().compare(Incumbent))),
            AutoMoves::InSite => usual(self.sites_first(self.fit().compare(SameSite))),
            // A better site is; a higher priority or an older ballot is not.
            AutoMoves::All => usual(self.sites_first(self.fit())),
        };
        Rules::new(usual(self.sites_first(self.fit())))
            .when(Cause::ALL.into_iter().filter(|cause| cause.is_failure()), usual(self.after_failure()))
            .when([Cause::Switchover, Cause::Resigned], planned(self.sites_first(self.fit())))
            // A restart for an upgrade is no reason to change the site.
            .when([Cause::LeaderShutdown], stopping(self.sites_first(self.fit()).compare(SameSite)))
            // Nor is one of all members: whose the job was has its data.
            .when([Cause::Startup], usual(self.sites_first(self.fit()).compare(SameSite)))
            .when([Cause::BetterCandidate], better)
    }

    /// What puts candidates out in every pipeline.
    pub(crate) fn fit(&self) -> Pipeline {
        let pipeline = Pipeline::new();
        match self.forbidden_sites.as_slice() {
            [] => pipeline,
            forbidden => pipeline.filter(SiteAllowed::except(forbidden.iter().cloned())),
        }
    }

    pub(crate) fn enough_first(&self, pipeline: Pipeline) -> Pipeline {
        match self.site_minimum {
            0 | 1 => pipeline,
            least => pipeline.compare(SiteMinimum::new(least, self.site_order())),
        }
    }

    /// What prefers sites to others before any order of them.
    fn sites_first(&self, pipeline: Pipeline) -> Pipeline {
        let pipeline = self.enough_first(pipeline);
        match self.spread {
            Spread::None => pipeline,
            Spread::Sites => pipeline.compare(SpreadStage::new(self.sites.iter().cloned())),
        }
    }

    pub(crate) fn site_order(&self) -> SiteOrder {
        SiteOrder::new(self.sites.iter().cloned()).without(self.forbidden_sites.iter().cloned())
    }

    /// What goes before the order of a round after a failure.
    fn after_failure(&self) -> Pipeline {
        let pipeline = if self.site_minimum > 1 || self.spread == Spread::Sites {
            // It is not the one that failed, though it be the last of its site.
            self.sites_first(self.fit().compare(FailedLast))
        } else {
            self.fit()
        };
        match self.on_leader_failure {
            // The failed one is among the last by its site already.
            OnLeaderFailure::OtherSite => {
                pipeline.compare(OtherSite).compare(FailedLast).compare(FewerFailures)
            }
            OnLeaderFailure::PreferOrder => pipeline.compare(FailedLast).compare(FewerFailures),
            OnLeaderFailure::SameSiteFirst => {
                pipeline.compare(FailedLast).compare(SameSite).compare(FewerFailures)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sites;

    #[test]
    fn reads_the_keys_of_a_configuration() {
        let policy: SitePolicy = toml::from_str(
            "sites = ['east', 'west']\non_leader_failure = 'same-site-first'\nauto_moves = 'in-site'\nspread = 'sites'",
        )
        .unwrap();
        assert_eq!(
            policy,
            SitePolicy {
                sites: sites(["east", "west"]),
                on_leader_failure: OnLeaderFailure::SameSiteFirst,
                auto_moves: AutoMoves::InSite,
                spread: Spread::Sites,
                ..SitePolicy::default()
            }
        );
        assert_eq!(toml::from_str::<SitePolicy>("").unwrap(), SitePolicy::default());
        let error = toml::from_str::<SitePolicy>("auto_moves = 'sometimes'").unwrap_err();
        assert!(error.to_string().contains("in-site"), "{error}");
    }

    #[test]
    fn a_site_named_twice_is_an_error_that_names_it() {
        let mut policy = SitePolicy { sites: sites(["east", "west"]), ..SitePolicy::default() };
        assert_eq!(policy.check(), Ok(()));
        policy.sites.extend(sites(["east"]));
        let error = policy.check().unwrap_err();
        assert!(error.to_string().contains("\"east\" stands twice"), "{error}");
    }

    #[test]
    fn a_site_in_the_order_and_forbidden_is_an_error_that_says_what_to_do() {
        let order = sites(["east", "west"]);
        let policy = SitePolicy { sites: order, forbidden_sites: sites(["west"]), ..SitePolicy::default() };
        let error = policy.check().unwrap_err().to_string();
        assert_eq!(error, "forbidden_sites: \"west\" is in sites as well; take it out of one of the two");
        let elsewhere = SitePolicy { forbidden_sites: sites(["north"]), ..policy };
        assert_eq!(elsewhere.check(), Ok(()));
    }

    #[test]
    fn forbidden_sites_and_the_site_minimum_are_part_of_every_pipeline() {
        for auto_moves in [AutoMoves::None, AutoMoves::InSite, AutoMoves::All] {
            let policy = SitePolicy {
                sites: sites(["east", "west"]),
                forbidden_sites: sites(["north"]),
                site_minimum: 2,
                auto_moves,
                ..SitePolicy::default()
            };
            let rules = policy.rules();
            for cause in Cause::ALL {
                let stages: Vec<_> = rules.pipeline(cause).stages().collect();
                let ahead = match cause {
                    // What failed or is to stay is told apart before.
                    _ if cause.is_failure() => "site-allowed failed-last site-minimum",
                    Cause::BetterCandidate if auto_moves == AutoMoves::None => {
                        "site-allowed incumbent site-minimum"
                    }
                    Cause::BetterCandidate if auto_moves == AutoMoves::InSite => {
                        "site-allowed same-site site-minimum"
                    }
                    _ => "site-allowed site-minimum",
                };
                let all = stages.join(" ");
                let ahead = format!("healthy priority not-excluded site-healthy site-open {ahead} ");
                assert!(all.starts_with(&ahead), "{cause}: {all}");
            }
        }
    }

    #[test]
    fn each_cause_has_its_pipeline() {
        let fit = "healthy priority not-excluded site-healthy site-open";
        let rules = |on_leader_failure, auto_moves| {
            let sites = sites(["east", "west"]);
            SitePolicy { sites, on_leader_failure, auto_moves, ..SitePolicy::default() }.rules()
        };
        for on_failure in
            [OnLeaderFailure::OtherSite, OnLeaderFailure::PreferOrder, OnLeaderFailure::SameSiteFirst]
        {
            for auto_moves in [AutoMoves::None, AutoMoves::InSite, AutoMoves::All] {
                for cause in Cause::ALL {
                    let pipeline = match (cause, on_failure, auto_moves) {
                        (Cause::Startup, ..) => "same-site site-order incumbent priority oldest-ballot",
                        (
                            Cause::MemberJoined
                            | Cause::TokensRaised
                            | Cause::SlotsChanged
                            | Cause::StandingOrder,
                            ..,
                        )
                        | (Cause::BetterCandidate, _, AutoMoves::All) => {
                            "site-order incumbent priority oldest-ballot"
                        }
                        (Cause::BetterCandidate, _, AutoMoves::None) => {
                            "incumbent site-order priority oldest-ballot"
                        }
                        (Cause::BetterCandidate, _, AutoMoves::InSite) => {
                            "same-site site-order incumbent priority oldest-ballot"
                        }
                        (Cause::Switchover | Cause::Resigned, ..) => "site-order priority oldest-ballot",
                        (Cause::LeaderShutdown, ..) => {
                            "same-site site-order priority software youngest-ballot"
                        }
                        (_, OnLeaderFailure::OtherSite, _) => {
                            "other-site failed-last fewer-failures site-order incumbent priority oldest-ballot"
                        }
                        (_, OnLeaderFailure::PreferOrder, _) => {
                            "failed-last fewer-failures site-order incumbent priority oldest-ballot"
                        }
                        (_, OnLeaderFailure::SameSiteFirst, _) => {
                            "failed-last same-site fewer-failures site-order incumbent priority oldest-ballot"
                        }
                    };
                    let rules = rules(on_failure, auto_moves);
                    let stages: Vec<_> = rules.pipeline(cause).stages().collect();
                    let expected = format!("{fit} {pipeline} member-id");
                    assert_eq!(stages.join(" "), expected, "{cause} {on_failure:?}");
                }
            }
        }
    }
    #[test]
    fn spreading_goes_before_every_other_preference_of_sites() {
        let of = |auto_moves| SitePolicy {
            sites: sites(["east", "west"]),
            auto_moves,
            spread: Spread::Sites,
            ..SitePolicy::default()
        };
        let ahead = |auto_moves, cause| {
            let rules = of(auto_moves).rules();
            let stages = rules.pipeline(cause).stages().skip_while(|stage| *stage != "site-open").skip(1);
            stages.take(3).collect::<Vec<_>>().join(" ")
        };
        for auto_moves in [AutoMoves::None, AutoMoves::InSite, AutoMoves::All] {
            for cause in Cause::ALL {
                let expected = match (cause, auto_moves) {
                    // A leader that is to stay is not moved for the sake of spreading either.
                    (Cause::BetterCandidate, AutoMoves::None) => "incumbent spread site-order",
                    (Cause::BetterCandidate, AutoMoves::InSite) => "same-site spread site-order",
                    _ if cause.is_failure() => "failed-last spread other-site",
                    (Cause::Switchover | Cause::Resigned, _) => "spread site-order priority",
                    (Cause::LeaderShutdown | Cause::Startup, _) => "spread same-site site-order",
                    _ => "spread site-order incumbent",
                };
                assert_eq!(ahead(auto_moves, cause), expected, "{cause} {auto_moves:?}");
            }
        }
    }
}
