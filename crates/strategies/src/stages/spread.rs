use election_core::strategy::{MemberRecord, Round, SiteId};

use super::is_closed;
use crate::stage::{Comparison, Stage, Standing};

/// Leaders spread over the sites: sites with fewer leaders of other slots go first.
///
/// With one slot there are no others, and all sites are equal.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    sites: Vec<SiteId>,
}

impl Stage for Spread {
    const NAME: &'static str = "spread";
}

impl Spread {
    /// Over these sites and any other. The first decision is worth waiting for while an open one of these sites has
    /// neither a leader nor a member that can lead.
    pub fn new(sites: impl IntoIterator<Item = SiteId>) -> Self {
        Self { sites: sites.into_iter().collect() }
    }

    fn others(site: &SiteId, round: &Round<'_>) -> usize {
        round.others.iter().filter(|other| other.site == *site).count()
    }
}

impl Comparison for Spread {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::try_from(Self::others(&candidate.site, round)).unwrap_or(i64::MAX)
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let site = &candidate.site;
        match Self::others(site, round) {
            0 => format!("no other leader in site {site}"),
            1 => format!("one other leader in site {site}"),
            count => format!("{count} other leaders in site {site}"),
        }
    }

    fn speaks_when_tied(&self, _: &MemberRecord, round: &Round<'_>) -> bool {
        !round.others.is_empty()
    }

    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let is_free = |site: &SiteId| Self::others(site, round) == 0;
        if round.others.is_empty() || electable.iter().any(|candidate| is_free(&candidate.site)) {
            return None;
        }
        let site = self.sites.iter().find(|site| is_free(site) && !is_closed(site, round))?;
        Some(format!("site {site} has no leader, and none of its members can lead yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, member, order, sites},
    };

    fn view(others: &[(&str, &str)]) -> View {
        let others = others.iter().map(|(id, site)| member(id, site, 9).named()).collect();
        View { others, ..View::of([member("e-1", "east", 1), member("w-1", "west", 2)]) }
    }

    #[test]
    fn the_site_with_fewer_leaders_goes_first() {
        let spread = Pipeline::new().compare(Spread::default());
        assert_eq!(
            order(&spread, &view(&[("e-2", "east")])),
            ["w-1: no other leader in site west", "e-1: one other leader in site east"]
        );
        assert_eq!(
            order(&spread, &view(&[("e-2", "east"), ("w-2", "west"), ("w-3", "west")])),
            ["e-1: one other leader in site east", "w-1: 2 other leaders in site west"]
        );
    }

    #[test]
    fn with_one_slot_nothing_is_said_of_it() {
        let spread = Pipeline::new().compare(Spread::default());
        assert_eq!(order(&spread, &view(&[])), ["e-1: first by member id", "w-1: second by member id"]);
    }

    #[test]
    fn a_site_without_a_leader_is_worth_waiting_for_while_it_has_no_members() {
        use election_core::strategy::Strategy as _;
        let spread = Pipeline::new().compare(Spread::new(sites(["east", "west", "north"])));
        let waits = |view: &View| spread.rank(&view.round()).worth_waiting;
        assert_eq!(waits(&view(&[])), None);
        assert_eq!(waits(&view(&[("e-2", "east")])), None, "west has a member");
        let both = [("e-2", "east"), ("w-2", "west")];
        let why = "site north has no leader, and none of its members can lead yet";
        assert_eq!(waits(&view(&both)).as_deref(), Some(why));
        let mut drained = view(&both);
        drained.control.drained = sites(["north"]);
        assert_eq!(waits(&drained), None);
        assert_eq!(waits(&view(&[both[0], both[1], ("n-1", "north")])), None, "each has one");
    }
}
