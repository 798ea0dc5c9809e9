//! The order of candidates by their sites, unless a policy has a pipeline or a strategy of its own.

use std::{collections::BTreeMap, fmt};

use election_core::strategy::{Cause, SiteId};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    pipeline::Pipeline,
    stages::{
        FailedLast, FewerFailures, Incumbent, Minimum, OtherSite, SameSite, SiteAllowed, SiteMinimum,
        SiteOrder, Spread as SpreadStage,
    },
    types::distinct,
};

/// The settings of sites of a [`PolicySpec`](crate::PolicySpec).
// All keys of a policy. Those that are not written are read with what they name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SitePolicy {
    /// The sites, the most preferred first. Members of other sites come after all of them.
    #[serde(deserialize_with = "distinct")]
    pub sites: Vec<SiteId>,
    /// No member of these sites may lead.
    #[serde(deserialize_with = "distinct")]
    pub forbidden_sites: Vec<SiteId>,
    /// A site with fewer fit members than this goes after the sites that have as many. 1 in all sites by default: no
    /// minimum.
    pub site_minimum: Minimum,
    /// Whether members of a site below its minimum are elected at all.
    pub below_site_minimum: BelowSiteMinimum,
    /// The member that follows a leader that failed.
    pub on_leader_failure: OnLeaderFailure,
    /// The automatic moves of leadership.
    pub auto_moves: AutoMoves,
    /// Whether the leaders of several slots are spread over the sites.
    pub spread: SlotSpread,
    #[serde(skip_serializing)]
    pub(crate) pipelines: BTreeMap<String, Value>,
    #[serde(skip_serializing)]
    pub(crate) pipeline: Option<Value>,
    #[serde(skip_serializing)]
    pub(crate) rules: Vec<Value>,
    #[serde(skip_serializing)]
    pub(crate) strategy: Option<Value>,
}

/// The members of a site with fewer fit members than its `site_minimum`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BelowSiteMinimum {
    /// They go after those of the sites with enough.
    #[default]
    Last,
    /// None of them is elected. One that leads already stays.
    Never,
}

/// The member that follows a leader that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnLeaderFailure {
    /// A member of another site, if one can lead, else of the same site: the cause of the failure can affect the whole
    /// site.
    #[default]
    OtherSite,
    /// A member of the most preferred site in which one can lead.
    PreferOrder,
    /// Another member of the same site, if one can lead.
    SameSiteFirst,
}

/// Automatic moves of leadership to a better member while the leader is fit. The engine decides how long the other
/// member must have been better (`election_core::config::Policy::better_after`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AutoMoves {
    /// None: leadership stays until the leader fails or an operator moves it.
    #[default]
    None,
    /// To a better member of the leader's own site.
    InSite,
    /// To a better member of any site, and so back to the preferred one.
    All,
}

/// Its word in a policy as text.
impl fmt::Display for AutoMoves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The sites of the leaders of several slots. With one slot it has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SlotSpread {
    /// Each leader is where it is best: all of them in the most preferred site while that has enough members.
    #[default]
    None,
    /// The leaders are spread over the sites, before any other preference of sites.
    Sites,
}

impl SitePolicy {
    /// The pipelines that carry this policy out: these settings before these orders, the usual one, that of a move in which the incumbent goes or stays
    /// regardless of its rank, and that of a leader that shuts down.
    pub(crate) fn pipeline(
        &self,
        usual: impl Fn(Pipeline) -> Pipeline,
        planned: impl Fn(Pipeline) -> Pipeline,
        stopping: impl Fn(Pipeline) -> Pipeline,
    ) -> Pipeline {
        let better = match self.auto_moves {
            // No other member is ever better than the incumbent.
            AutoMoves::None => planned(self.sites_first(self.fit().compare(Incumbent))),
            AutoMoves::InSite => usual(self.sites_first(self.fit().compare(SameSite))),
            // A better site is a reason to move; a higher priority or an older ballot is not.
            AutoMoves::All => usual(self.sites_first(self.fit())),
        };
        usual(self.sites_first(self.fit()))
            .when(Cause::ALL.into_iter().filter(|cause| cause.is_failure()), usual(self.after_failure()))
            .when([Cause::Switchover, Cause::Resigned], planned(self.sites_first(self.fit())))
            // A restart for an upgrade is no reason to change the site.
            .when([Cause::LeaderShutdown], stopping(self.sites_first(self.fit()).compare(SameSite)))
            // Nor is a restart of all members: the former leader has the job's data.
            .when([Cause::Startup], usual(self.sites_first(self.fit()).compare(SameSite)))
            .when([Cause::BetterCandidate], better)
    }

    /// The filters of every pipeline.
    pub(crate) fn fit(&self) -> Pipeline {
        let pipeline = Pipeline::new();
        let pipeline = match self.forbidden_sites.as_slice() {
            [] => pipeline,
            forbidden => pipeline.filter(SiteAllowed::except(forbidden.iter().cloned())),
        };
        match self.below_site_minimum {
            BelowSiteMinimum::Never if !self.site_minimum.is_none() => pipeline.filter(self.enough()),
            _ => pipeline,
        }
    }

    fn enough(&self) -> SiteMinimum {
        SiteMinimum::new(self.site_minimum.clone(), self.site_order())
    }

    /// Whether `sites` or `forbidden_sites` name this site.
    pub(crate) fn names(&self, site: &str) -> bool {
        self.sites.iter().chain(&self.forbidden_sites).any(|known| known.as_str() == site)
    }

    pub(crate) fn enough_first(&self, pipeline: Pipeline) -> Pipeline {
        if self.site_minimum.is_none() { pipeline } else { pipeline.compare(self.enough()) }
    }

    /// The preferences of sites before any order of them.
    fn sites_first(&self, pipeline: Pipeline) -> Pipeline {
        let pipeline = self.enough_first(pipeline);
        match self.spread {
            SlotSpread::None => pipeline,
            SlotSpread::Sites => pipeline.compare(SpreadStage::new(self.sites.iter().cloned())),
        }
    }

    pub(crate) fn site_order(&self) -> SiteOrder {
        SiteOrder::new(self.sites.iter().cloned()).without(self.forbidden_sites.iter().cloned())
    }

    /// The stages before the order of a round after a failure.
    fn after_failure(&self) -> Pipeline {
        let pipeline = if !self.site_minimum.is_none() || self.spread == SlotSpread::Sites {
            // Not the member that failed, even if it is the last of its site.
            self.sites_first(self.fit().compare(FailedLast))
        } else {
            self.fit()
        };
        match self.on_leader_failure {
            // Its site puts the failed member among the last already.
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
    use crate::{PolicySpec, testing::sites};

    fn pipeline(policy: SitePolicy) -> Pipeline {
        PolicySpec::default().with(|set| *set = policy).pipeline()
    }

    #[test]
    fn forbidden_sites_and_the_site_minimum_are_part_of_every_pipeline() {
        let all = [AutoMoves::None, AutoMoves::InSite, AutoMoves::All];
        let below = [(BelowSiteMinimum::Last, ""), (BelowSiteMinimum::Never, " site-minimum")];
        for (auto_moves, (below_site_minimum, filter)) in
            all.into_iter().flat_map(|moves| below.map(|below| (moves, below)))
        {
            let policy = SitePolicy {
                sites: sites(["east", "west"]),
                forbidden_sites: sites(["north"]),
                site_minimum: Minimum::All(2),
                below_site_minimum,
                auto_moves,
                ..SitePolicy::default()
            };
            let pipeline = pipeline(policy);
            for cause in Cause::ALL {
                let stages: Vec<_> = pipeline.for_cause(cause).stages().collect();
                let ahead = match cause {
                    // The failed or staying member has its rank before.
                    _ if cause.is_failure() => "failed-last site-minimum",
                    Cause::BetterCandidate if auto_moves == AutoMoves::None => "incumbent site-minimum",
                    Cause::BetterCandidate if auto_moves == AutoMoves::InSite => "same-site site-minimum",
                    _ => "site-minimum",
                };
                let all = stages.join(" ");
                let fit = "healthy priority not-excluded site-healthy site-open site-allowed";
                let ahead = format!("{fit}{filter} {ahead} ");
                assert!(all.starts_with(&ahead), "{cause}: {all}");
            }
        }
    }

    #[test]
    fn each_cause_has_its_pipeline() {
        let fit = "healthy priority not-excluded site-healthy site-open";
        let policy = |on_leader_failure, auto_moves| {
            let sites = sites(["east", "west"]);
            pipeline(SitePolicy { sites, on_leader_failure, auto_moves, ..SitePolicy::default() })
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
                        // Nobody is chosen.
                        (Cause::CalledOff, ..) => "site-order incumbent priority oldest-ballot",
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
                    let policy = policy(on_failure, auto_moves);
                    let stages: Vec<_> = policy.for_cause(cause).stages().collect();
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
            spread: SlotSpread::Sites,
            ..SitePolicy::default()
        };
        let ahead = |auto_moves, cause| {
            let pipeline = pipeline(of(auto_moves));
            let stages = pipeline.for_cause(cause).stages().skip_while(|stage| *stage != "site-open").skip(1);
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
