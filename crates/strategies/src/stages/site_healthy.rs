use election_core::strategy::{Cause, MemberRecord, Round};

use crate::stage::{Filter, Stage};

/// Refuses members of a site that has failed as a whole, or too often recently for leadership to return.
/// A leader in a site of the second kind stays: it does not return there. A move to it that an operator orders is
/// allowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteHealthy;

impl Stage for SiteHealthy {
    const NAME: &'static str = "site-healthy";
}

impl Filter for SiteHealthy {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        let site = &candidate.site;
        if let Some(failed) = round.trouble.failed_sites.iter().find(|failed| failed.site == *site) {
            return Some(format!("site {site} has failed ({})", failed.why));
        }
        let stays = round.incumbent == Some(&candidate.ballot);
        let asked = matches!(round.cause, Cause::Switchover | Cause::Failover);
        let barred = round.trouble.barred_sites.iter().find(|barred| barred.site == *site)?;
        (!stays && !asked).then(|| format!("site {site} has failed {}", barred.why))
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::SiteTrouble;

    use super::*;
    use crate::testing::{View, ballot, member};

    fn refusal(view: &View) -> Option<String> {
        SiteHealthy.refuse(&member("east-1", "east", 1), &view.round())
    }

    fn east(why: &str) -> Vec<SiteTrouble> {
        vec![SiteTrouble::new("east".parse().unwrap(), why)]
    }

    #[test]
    fn nobody_leads_from_a_site_that_has_failed() {
        for cause in Cause::ALL {
            let mut view = View { cause, incumbent: Some(ballot(1)), ..View::default() };
            view.trouble.failed_sites = east("no power");
            assert_eq!(refusal(&view).as_deref(), Some("site east has failed (no power)"), "{cause}");
            view.trouble.failed_sites[0].site = "west".parse().unwrap();
            assert_eq!(refusal(&view), None, "{cause}");
        }
    }

    #[test]
    fn a_site_that_fails_again_and_again_is_gone_back_to_at_an_operators_word_alone() {
        for cause in Cause::ALL {
            let mut view = View { cause, ..View::default() };
            view.trouble.barred_sites = east("2 times");
            let expected = match cause {
                Cause::Switchover | Cause::Failover => None,
                _ => Some("site east has failed 2 times"),
            };
            assert_eq!(refusal(&view).as_deref(), expected, "{cause}");
            // It is there already.
            view.incumbent = Some(ballot(1));
            assert_eq!(refusal(&view), None, "{cause}");
        }
    }
}
