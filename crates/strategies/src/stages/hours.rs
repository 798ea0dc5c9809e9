use std::collections::BTreeMap;

use election_core::strategy::{MemberRecord, Round, SiteId, Windows, utc};

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::stage::{Comparison, Stage, Standing};
use crate::types::one_or_more;

/// Sites within their hours go before those outside of them: leadership that follows the sun.
/// The time is the clock of the elector ([`Round::unix_ms`]), in UTC. Within the hours of several sites, or of none,
/// the next stages decide. A site without hours is never within them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a table such as { sites = { east = [\"Mon-Fri 06:00-18:00\"] } }, in UTC")]
pub struct Hours {
    #[serde(deserialize_with = "read_hours")]
    sites: BTreeMap<SiteId, Windows>,
}

fn read_hours<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<SiteId, Windows>, D::Error> {
    #[derive(Deserialize)]
    struct Texts(#[serde(deserialize_with = "read_windows")] Windows);

    fn read_windows<'de, D: Deserializer<'de>>(from: D) -> Result<Windows, D::Error> {
        Windows::read(&one_or_more::<_, String>(from)?).map_err(D::Error::custom)
    }

    let sites = BTreeMap::<SiteId, Texts>::deserialize(from)?;
    if sites.is_empty() {
        return Err(D::Error::custom("it is empty; name at least one site"));
    }
    Ok(sites.into_iter().map(|(site, texts)| (site, texts.0)).collect())
}

impl Stage for Hours {
    const NAME: &'static str = "hours";
}

impl Hours {
    /// These hours of these sites; [`Windows`] without any mean all hours.
    pub fn of(sites: impl IntoIterator<Item = (SiteId, Windows)>) -> Self {
        Self { sites: sites.into_iter().collect() }
    }

    fn is_open(&self, site: &SiteId, round: &Round<'_>) -> bool {
        self.sites.get(site).is_some_and(|hours| hours.is_open(round.unix_ms))
    }
}

impl Comparison for Hours {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(!self.is_open(&candidate.site, round))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let site = &candidate.site;
        let Some(hours) = self.sites.get(site) else { return format!("site {site} has no hours") };
        let words = if hours.is_open(round.unix_ms) { "within" } else { "outside of" };
        match hours.changes_after(round.unix_ms) {
            Some(change) => format!("site {site} is {words} its hours until {}", utc(change)),
            None => format!("site {site} is {words} its hours"),
        }
    }

    /// The time of the change matters even if all candidates are in one site.
    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        self.is_open(&candidate.site, round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{NOW_MS, View, member, order},
    };

    const HOUR_MS: u64 = 3_600_000;

    fn hours(sites: &[(&str, &[&str])]) -> Pipeline {
        let read = |(site, texts): &(&str, &[&str])| (site.parse().unwrap(), Windows::read(texts).unwrap());
        Pipeline::new().compare(Hours::of(sites.iter().map(read)))
    }

    fn at(unix_ms: u64) -> View {
        let members = [member("e-1", "east", 1), member("w-1", "west", 2), member("x-1", "lab", 3)];
        View { unix_ms, ..View::of(members) }
    }

    #[test]
    fn the_site_within_its_hours_goes_first() {
        // It is a Thursday, 14:30.
        let sun = hours(&[("east", &["Mon-Fri 06:00-18:00"]), ("west", &["18:00-06:00"])]);
        assert_eq!(
            order(&sun, &at(NOW_MS)),
            [
                "e-1: site east is within its hours until 2026-11-05T18:00:00Z",
                "w-1: site west is outside of its hours until 2026-11-05T18:00:00Z; first by member id",
                "x-1: site lab has no hours; second by member id",
            ]
        );
        let evening = NOW_MS + 7 * HOUR_MS / 2;
        assert_eq!(order(&sun, &at(evening - 1))[0], order(&sun, &at(NOW_MS))[0]);
        assert_eq!(
            order(&sun, &at(evening))[..2],
            [
                "w-1: site west is within its hours until 2026-11-06T06:00:00Z",
                "e-1: site east is outside of its hours until 2026-11-06T06:00:00Z; first by member id",
            ]
        );
    }

    #[test]
    fn within_the_hours_of_all_or_of_none_others_decide() {
        let both = hours(&[("east", &["Sat 06:00-18:00"]), ("west", &["Sat 06:00-18:00"])]);
        assert_eq!(order(&both, &at(NOW_MS))[0], "e-1: first by member id");
        let always = hours(&[("west", &["00:00-24:00"])]);
        assert_eq!(order(&always, &at(NOW_MS))[0], "w-1: site west is within its hours");
    }
}
