//! A simple strategy: sites in order, another site than the one that failed, the incumbent before others of its site,
//! oldest ballot.

use std::{cmp::Reverse, collections::BTreeMap};

use election_core::{
    config::SiteId,
    internals::record::{Cause, Health, MemberRecord},
    strategy::{Ground, Ranked, Ranking, Refused, Round, SiteTrouble, Strategy},
};

/// Sites in the order of preference.
#[derive(Clone, Debug)]
pub(crate) struct SiteOrder(pub(crate) Vec<SiteId>);

/// Leaders spread over the sites before anything else.
#[derive(Clone, Debug)]
pub(crate) struct Spread(pub(crate) SiteOrder);

impl Strategy for Spread {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut ranking = self.0.rank(round);
        let others = |site: &SiteId| round.others.iter().filter(|n| n.site == *site).count();
        ranking.order.sort_by_key(|ranked| others(&ranked.named.site));
        ranking
    }
}

/// The highest weight first, then the shortest round trip to ZooKeeper.
#[derive(Clone, Debug)]
pub(crate) struct Weighed(pub(crate) SiteOrder);

impl Strategy for Weighed {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut ranking = self.0.rank(round);
        let worth = |ranked: &Ranked| {
            let member = round.candidates.iter().find(|c| c.ballot == ranked.named.ballot)?;
            let weight = member.attributes.get("weight").and_then(|weight| weight.parse::<u32>().ok());
            Some((Reverse(weight), member.round_trips.zookeeper.unwrap_or(u32::MAX)))
        };
        ranking.order.sort_by_key(worth);
        ranking
    }

    fn holds_back(&self, attributes: &BTreeMap<String, String>, _: Cause) -> Option<String> {
        attributes.get("weight").filter(|weight| *weight == "0").map(|_| "it has no weight".to_owned())
    }
}

impl SiteOrder {
    fn refusal(round: &Round<'_>, member: &MemberRecord) -> Option<(&'static str, String)> {
        match &member.health {
            Health::Unhealthy { reason } => return Some(("healthy", reason.clone())),
            Health::Unknown if round.incumbent != Some(&member.ballot) => {
                return Some(("healthy", "not known yet".to_owned()));
            }
            Health::Unknown | Health::Unchecked | Health::Healthy => {}
        }
        if let Some(e) =
            round.exclusions.iter().find(|e| e.ballot == member.ballot && e.until_ms > round.unix_ms)
        {
            return Some(("excluded", e.reason.clone()));
        }
        let trouble = |of: &[SiteTrouble]| {
            of.iter().find(|t| t.site == member.site).map(|t| format!("site {} has failed {}", t.site, t.why))
        };
        if let Some(why) = trouble(&round.trouble.failed_sites) {
            return Some(("site-healthy", why));
        }
        let stays = round.incumbent == Some(&member.ballot);
        let asked = matches!(round.cause, Cause::Switchover | Cause::Failover);
        if let Some(why) = trouble(&round.trouble.barred_sites).filter(|_| !stays && !asked) {
            return Some(("site-healthy", why));
        }
        if round.control.drained.contains(&member.site) {
            return Some(("open", format!("site {} is drained", member.site)));
        }
        None
    }

    fn place_of(&self, round: &Round<'_>, site: &SiteId) -> usize {
        if round.control.preferred_site.as_ref() == Some(site) {
            return 0;
        }
        self.0.iter().position(|s| s == site).map_or(usize::MAX, |at| at + 1)
    }
}

impl Strategy for SiteOrder {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut ranking = Ranking::default();
        let mut fit = Vec::new();
        for member in round.candidates {
            match Self::refusal(round, member) {
                None => fit.push(member),
                Some((stage, reason)) => {
                    let ground = if stage == "open" { Ground::Order } else { Ground::State };
                    ranking.refused.push(Refused::new(member.named(), stage, reason).on(ground));
                }
            }
        }
        // If all had left, the last leaders go first.
        let last = round.previous.filter(|_| round.cause == Cause::Startup);
        fit.sort_by_key(|member| {
            let failed_site = round.failed.is_some_and(|failed| failed.site == member.site);
            let incumbent = round.incumbent == Some(&member.ballot);
            let elsewhere = last.is_some_and(|last| last.site != member.site);
            (failed_site, elsewhere, self.place_of(round, &member.site), !incumbent, member.ballot.clone())
        });
        let best = fit.first().map(|m| match last {
            Some(last) if last.site == m.site => 0,
            _ => self.place_of(round, &m.site) + usize::from(last.is_some()),
        });
        if round.cause == Cause::Startup && best.is_some_and(|place| place > 1) {
            ranking.worth_waiting = Some("nobody of the preferred site is here yet".to_owned());
        }
        ranking.order =
            fit.into_iter().map(|m| Ranked::new(m.named(), vec![format!("site {}", m.site)])).collect();
        ranking
    }
}
