//! Short constructors of members and rounds, for unit tests of stages and strategies.
//!
//! ```
//! use strategies::{Pipeline, stages::OldestBallot, testing::{View, member, order}};
//!
//! let members = [member("east-1", "east", 1), member("east-2", "east", 2), member("west-1", "west", 3)];
//! let view = View::of(members).after_loss_of("east-1");
//! assert_eq!(
//!     order(&Pipeline::new().compare(OldestBallot), &view),
//!     ["east-2: oldest ballot", "west-1: second oldest ballot"]
//! );
//! ```
//!
//! An invalid argument, such as a name with a space, panics.

use election_core::{
    internals::record::{Record as _, VERSION},
    strategy::{
        Ballot, Cause, Control, Exclusion, Health, MemberId, MemberRecord, Named, Previous, Ranked, Refused,
        Round, SiteId, Strategy, Trouble,
    },
};

/// The time of a [`View`] by default: 2026-11-05T14:30:00Z, a Thursday, in milliseconds since the Unix epoch.
pub const NOW_MS: u64 = 1_793_889_000_000;

/// The data of a [`Round`], owned. By default it is a startup without members, standing orders and failures.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the field of the same name in `Round`")]
pub struct View {
    pub cause: Cause,
    pub unix_ms: u64,
    pub members: Vec<MemberRecord>,
    pub incumbent: Option<Ballot>,
    pub ordered: Option<Ballot>,
    pub accepts_loss: bool,
    pub failed: Option<Previous>,
    pub previous: Option<Previous>,
    pub others: Vec<Named>,
    pub exclusions: Vec<Exclusion>,
    pub trouble: Trouble,
    pub control: Control,
}

impl Default for View {
    fn default() -> Self {
        Self {
            cause: Cause::Startup,
            unix_ms: NOW_MS,
            members: Vec::new(),
            incumbent: None,
            ordered: None,
            accepts_loss: false,
            failed: None,
            previous: None,
            others: Vec::new(),
            exclusions: Vec::new(),
            trouble: Trouble::default(),
            control: Control::default(),
        }
    }
}

impl View {
    /// A startup with these members.
    pub fn of(members: impl IntoIterator<Item = MemberRecord>) -> Self {
        Self { members: members.into_iter().collect(), ..Self::default() }
    }

    /// The same view for another cause.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// The same view while this member leads.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn led_by(self, member: &str) -> Self {
        let leader = self.named(member);
        Self { previous: Some(leader.as_previous()), incumbent: Some(leader.ballot), ..self }
    }

    /// The same view after this member led and was lost.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn after_loss_of(mut self, member: &str) -> Self {
        let lost = self.named(member);
        self.members.retain(|record| record.ballot != lost.ballot);
        let lost = Some(lost.as_previous());
        Self { cause: Cause::LeaderLost, incumbent: None, previous: lost.clone(), failed: lost, ..self }
    }

    fn named(&self, member: &str) -> Named {
        let found = self.members.iter().find(|record| record.member.as_str() == member);
        found.unwrap_or_else(|| panic!("there is no member {member}")).named()
    }

    /// The question to a strategy.
    pub fn round(&self) -> Round<'_> {
        Round::new(self.cause, self.unix_ms, &self.members).with(|round| {
            (round.incumbent, round.ordered) = (self.incumbent.as_ref(), self.ordered.as_ref());
            (round.failed, round.previous) = (self.failed.as_ref(), self.previous.as_ref());
            (round.accepts_loss, round.others) = (self.accepts_loss, &self.others);
            (round.exclusions, round.trouble, round.control) =
                (&self.exclusions, &self.trouble, &self.control);
        })
    }
}

/// The ballot with this number.
pub fn ballot(sequence: u32) -> Ballot {
    valid(Ballot::new(format!("guid-{sequence:010}")))
}

/// A member of a site, with the ballot of this number, without a health check and without attributes.
///
/// # Panics
/// If a name is not valid.
pub fn member(id: &str, site: &str, sequence: u32) -> MemberRecord {
    let (id, site, ballot) = (valid(MemberId::new(id)), valid(SiteId::new(site)), ballot(sequence));
    // From text, so that fields that a record gains later have their defaults here.
    let text = format!(r#"{{"v":{VERSION},"member":"{id}","site":"{site}","ballot":"{ballot}"}}"#);
    valid(MemberRecord::decode("a member of a test", text.as_bytes()))
}

/// A member that is unhealthy for this reason.
///
/// # Panics
/// If a name is not valid.
pub fn unhealthy(id: &str, site: &str, sequence: u32, reason: &str) -> MemberRecord {
    member(id, site, sequence).with(|m| m.health = Health::Unhealthy { reason: reason.to_owned() })
}

/// A member with this priority.
///
/// # Panics
/// If a name is not valid.
pub fn with_priority(id: &str, site: &str, sequence: u32, priority: i64) -> MemberRecord {
    member(id, site, sequence).with(|m| m.priority = priority)
}

/// A member with these attributes in its configuration.
///
/// # Panics
/// If a name is not valid.
pub fn with_attributes<'a>(
    id: &str,
    site: &str,
    sequence: u32,
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> MemberRecord {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let attributes = attributes.into_iter().map(owned).collect();
    member(id, site, sequence).with(|m| m.attributes = attributes)
}

/// A member as the former leader.
///
/// # Panics
/// If a name is not valid.
pub fn previous(id: &str, site: &str, sequence: u32) -> Previous {
    member(id, site, sequence).named().as_previous()
}

/// An exclusion of a ballot until this time, in milliseconds since the Unix epoch.
pub fn exclusion(sequence: u32, until_ms: u64) -> Exclusion {
    Exclusion::new(valid(MemberId::new("east-1")), ballot(sequence), until_ms, "takeover failed".to_owned())
}

/// Sites by their names.
///
/// # Panics
/// If a name is not valid.
pub fn sites<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<SiteId> {
    names.into_iter().map(|name| valid(SiteId::new(name))).collect()
}

/// The candidates that may lead, best first, each as `member: reason; reason`.
pub fn order(strategy: &dyn Strategy, view: &View) -> Vec<String> {
    let line = |r: &Ranked| format!("{}: {}", r.named.member, r.reasons.join("; "));
    strategy.rank(&view.round()).order.iter().map(line).collect()
}

/// The candidates that may not lead, each as `member (stage): reason`.
pub fn refused(strategy: &dyn Strategy, view: &View) -> Vec<String> {
    let line = |r: &Refused| format!("{} ({}): {}", r.named.member, r.stage, r.reason);
    strategy.rank(&view.round()).refused.iter().map(line).collect()
}

fn valid<T, E: std::fmt::Display>(made: Result<T, E>) -> T {
    made.unwrap_or_else(|error| panic!("{error}"))
}
