use election_core::strategy::{Ground, MemberRecord, Round, SiteId};

use crate::stage::{Filter, Stage};

/// Refuses the members of sites that the policy forbids: for example where the job has no licence, or where its data
/// must not be.
#[derive(Clone, Debug, Default)]
pub struct SiteAllowed {
    forbidden: Vec<SiteId>,
}

impl Stage for SiteAllowed {
    const NAME: &'static str = "site-allowed";
}

impl SiteAllowed {
    /// All sites but these.
    pub fn except(forbidden: impl IntoIterator<Item = SiteId>) -> Self {
        Self { forbidden: forbidden.into_iter().collect() }
    }
}

impl Filter for SiteAllowed {
    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        let site = &candidate.site;
        let forbidden = self.forbidden.contains(site);
        forbidden.then(|| format!("the policy forbids site {site} (forbidden_sites)"))
    }

    fn ground(&self, _: &MemberRecord) -> Ground {
        Ground::Order
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::{Cause, Strategy as _};

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, sites},
    };

    #[test]
    fn nobody_leads_from_a_forbidden_site_not_even_by_an_operators_order() {
        let strategy = Pipeline::new().filter(SiteAllowed::except(sites(["west", "north"])));
        for cause in Cause::ALL {
            let mut view = View::of([member("west-1", "west", 1), member("east-1", "east", 2)]);
            (view.cause, view.incumbent, view.ordered) = (cause, Some(ballot(1)), Some(ballot(1)));
            let ranking = strategy.rank(&view.round());
            let refused = ranking.refusal(&ballot(1)).unwrap();
            assert_eq!(refused.reason, "the policy forbids site west (forbidden_sites)", "{cause}");
            assert_eq!((refused.stage.as_str(), refused.ground), ("site-allowed", Ground::Order));
            assert_eq!(ranking.first().unwrap().named.member.as_str(), "east-1", "{cause}");
        }
    }
}
