use election_core::strategy::{Ground, MemberRecord, Round};

use serde::{Deserialize, Deserializer};

use super::said_by;
use crate::{
    stage::{Comparison, Filter, Stage, Standing},
    types::parsed,
    words,
};

/// By version: the newest or the oldest first. As a filter it refuses versions older than a given one.
/// Use `newest` while members are upgraded one by one: leadership moves at most once, to an upgraded member. `oldest`
/// keeps leadership from a new version as long as another is there. A version that is missing or cannot be parsed is
/// last in both cases, and is older than any.
/// The version is the last word of the software that the member reports (`worker 1.4.0`), or of an attribute: one to
/// three numbers separated by dots. `1.4.0-rc1` is older than `1.4.0`; two such versions are equal. The part after a
/// `+` is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Software {
    first: FirstVersion,
    attribute: Option<String>,
    at_least: Option<Version>,
}

/// Which version goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FirstVersion {
    /// The highest.
    #[default]
    Newest,
    /// The lowest.
    Oldest,
}

/// A version as it is compared: higher is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(i64);

impl Version {
    /// Parses a version: `1`, `1.4`, `v1.4.0`, `1.4.0-rc1`, `1.4.0+build`. `None` for another text, or if a number has
    /// more than six digits (1,048,575 is the highest).
    pub fn parse(text: &str) -> Option<Self> {
        const DIGITS: u32 = 20;
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next()?;
        let (numbers, is_release) = match text.split_once('-') {
            Some((numbers, _)) => (numbers, false),
            None => (text, true),
        };
        let mut parts = [0_i64; 3];
        for (index, number) in numbers.split('.').enumerate() {
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            let number = number.parse().ok().filter(|number| digits && *number < 1 << DIGITS)?;
            *parts.get_mut(index)? = number;
        }
        let packed = parts.iter().fold(0, |packed, part| (packed << DIGITS) | part);
        Some(Self((packed << 1) | i64::from(is_release)))
    }
}

impl Stage for Software {
    const NAME: &'static str = "software";
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parsed(from, "a version such as \"1.4.0\": one to three numbers separated by dots", Self::parse)
    }
}

impl Software {
    /// This version first, by the software that the members report.
    pub fn first(first: FirstVersion) -> Self {
        Self { first, ..Self::default() }
    }

    /// By this attribute instead, such as the version of the job.
    #[must_use]
    pub fn by(self, attribute: impl Into<String>) -> Self {
        Self { attribute: Some(attribute.into()), ..self }
    }

    /// As a filter, refuses versions older than this.
    #[must_use]
    pub fn at_least(self, version: Version) -> Self {
        Self { at_least: Some(version), ..self }
    }

    /// Whether it is a filter as well.
    pub(crate) fn refuses(&self) -> bool {
        self.at_least.is_some()
    }

    fn text<'a>(&self, candidate: &'a MemberRecord) -> &'a str {
        let text = match &self.attribute {
            Some(attribute) => candidate.attributes.get(attribute).map_or("", String::as_str),
            None => &candidate.software,
        };
        text.split_whitespace().last().unwrap_or("")
    }

    fn version(&self, candidate: &MemberRecord) -> Option<Version> {
        Version::parse(self.text(candidate))
    }

    fn words(&self, candidate: &MemberRecord) -> String {
        let what = self.attribute.as_deref().unwrap_or("version");
        // One phrase among others that are joined by commas.
        match words::quote(self.text(candidate)).replace(',', "") {
            none if none.is_empty() => format!("no {what}"),
            text if self.version(candidate).is_none() => format!("{what} {text:?} cannot be parsed"),
            text => format!("{what} {text}"),
        }
    }
}

impl Filter for Software {
    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        let wanted = self.at_least?;
        match self.version(candidate) {
            Some(version) if version >= wanted => None,
            Some(_) => Some(format!("{} is too old", self.words(candidate))),
            None => Some(format!("{}: it may be too old", self.words(candidate))),
        }
    }

    fn ground(&self, candidate: &MemberRecord) -> Ground {
        self.attribute.as_ref().map_or(Ground::Order, |attribute| said_by(candidate, attribute))
    }
}

impl Comparison for Software {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        match (self.version(candidate), self.first) {
            (None, _) => i64::MAX,
            (Some(Version(number)), FirstVersion::Newest) => -number,
            (Some(Version(number)), FirstVersion::Oldest) => number,
        }
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        let words = self.words(candidate);
        match self.first {
            FirstVersion::Newest if standing.is_best() => format!("newest: {words}"),
            FirstVersion::Oldest if standing.is_best() => format!("oldest: {words}"),
            _ => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, member, order, with_attributes},
    };

    fn running(id: &str, sequence: u32, software: &str) -> MemberRecord {
        member(id, "east", sequence).with(|m| software.clone_into(&mut m.software))
    }

    #[test]
    fn versions_in_ascending_order() {
        let ascending =
            ["0.0.1", "0.1", "0.9.0", "0.10.0-rc1", "0.10.0", "1", "1.0.1", "v2.0+build.7", "1048575"];
        let read = ascending.map(|text| Version::parse(text).unwrap());
        assert!(read.is_sorted_by(|a, b| a < b), "{read:?}");
        assert_eq!(Version::parse("1"), Version::parse("v1.0.0+x-y"));
        assert_eq!(Version::parse("1.0-a"), Version::parse("1.0.0-b"));
        for bad in
            ["", "v", "1.", ".1", "1.2.3.4", "a.b", "-1", "+1", "1.2.x", "1048576", "99999999999999999999"]
        {
            assert_eq!(Version::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_newest_or_the_oldest_goes_first_and_what_cannot_be_read_last() {
        let view = View::of([
            running("a", 1, "worker 0.9.0"),
            running("b", 2, "worker 0.10.0"),
            running("c", 3, ""),
            running("d", 4, "built by hand, today"),
        ]);
        assert_eq!(
            order(&Pipeline::new().compare(Software::first(FirstVersion::Newest)), &view),
            [
                "b: newest: version 0.10.0",
                "a: version 0.9.0",
                "c: no version; first by member id",
                "d: version \"today\" cannot be parsed; second by member id",
            ]
        );
        let oldest = order(&Pipeline::new().compare(Software::first(FirstVersion::Oldest)), &view);
        assert_eq!(oldest[..2], ["a: oldest: version 0.9.0", "b: version 0.10.0"]);
        assert!(oldest[3].contains("cannot be parsed"), "{oldest:?}");
    }

    #[test]
    fn what_is_too_old_is_put_out_and_what_may_be() {
        let stage = Software::default().at_least(Version::parse("1.4").unwrap());
        let refuse = |software: &str| stage.refuse(&running("a", 1, software), &View::default().round());
        for new in ["job 1.4", "1.4.1", "2"] {
            assert_eq!(refuse(new), None, "{new}");
        }
        assert_eq!(refuse("job 1.4-rc1").as_deref(), Some("version 1.4-rc1 is too old"));
        assert_eq!(refuse("").as_deref(), Some("no version: it may be too old"));
        let no_limit = Software::default().refuse(&running("a", 1, ""), &View::default().round());
        assert_eq!(no_limit, None);
    }

    #[test]
    fn an_attribute_can_hold_the_version() {
        let view = View::of([
            with_attributes("a", "east", 1, [("schema", "7")]),
            with_attributes("b", "east", 2, [("schema", "12")]),
        ]);
        assert_eq!(
            order(&Pipeline::new().compare(Software::default().by("schema")), &view),
            ["b: newest: schema 12", "a: schema 7"]
        );
    }
}
