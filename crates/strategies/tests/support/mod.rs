//! Members, rounds and rankings in few words; for the stages' own tests, the
//! transcripts and the property tests alike.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

use election_core::{
    Ballot, MemberId, SiteId,
    record::{Cause, Control, Exclusion, Health, MemberRecord, Named, Previous, VERSION},
    strategy::{Round, Strategy, Trouble},
};

/// 2026-11-05T14:30:00Z.
pub const NOW_MS: u64 = 1_793_889_000_000;

/// What a [`Round`] borrows from.
#[derive(Clone, Debug)]
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
    pub fn of(members: impl IntoIterator<Item = MemberRecord>) -> Self {
        Self { members: members.into_iter().collect(), ..Self::default() }
    }

    pub fn round(&self) -> Round<'_> {
        Round {
            cause: self.cause,
            unix_ms: self.unix_ms,
            candidates: &self.members,
            incumbent: self.incumbent.as_ref(),
            ordered: self.ordered.as_ref(),
            accepts_loss: self.accepts_loss,
            failed: self.failed.as_ref(),
            previous: self.previous.as_ref(),
            others: &self.others,
            exclusions: &self.exclusions,
            trouble: &self.trouble,
            control: &self.control,
        }
    }
}

pub fn ballot(sequence: u32) -> Ballot {
    Ballot::new(format!("guid-{sequence:010}")).unwrap()
}

/// From text, so that fields that a record gains later have their defaults here.
pub fn member(id: &str, site: &str, sequence: u32) -> MemberRecord {
    let ballot = ballot(sequence);
    let text = format!("v = {VERSION}\nmember = '{id}'\nsite = '{site}'\nballot = '{ballot}'");
    toml::from_str(&text).unwrap()
}

pub fn unhealthy(id: &str, site: &str, sequence: u32, reason: &str) -> MemberRecord {
    MemberRecord { health: Health::Unhealthy { reason: reason.to_owned() }, ..member(id, site, sequence) }
}

pub fn with_priority(id: &str, site: &str, sequence: u32, priority: i64) -> MemberRecord {
    MemberRecord { priority, ..member(id, site, sequence) }
}

pub fn with_attributes<'a>(
    id: &str,
    site: &str,
    sequence: u32,
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> MemberRecord {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let attributes = attributes.into_iter().map(owned).collect();
    MemberRecord { attributes, ..member(id, site, sequence) }
}

pub fn previous(id: &str, site: &str, sequence: u32) -> Previous {
    member(id, site, sequence).named().as_previous()
}

pub fn exclusion(sequence: u32, until_ms: u64) -> Exclusion {
    Exclusion {
        member: MemberId::new("east-1").unwrap(),
        ballot: ballot(sequence),
        since_ms: 0,
        until_ms,
        reason: "takeover failed".to_owned(),
    }
}

pub fn sites<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<SiteId> {
    let site = |name| SiteId::new(name).unwrap();
    names.into_iter().map(site).collect()
}

/// One line per ranked member, best first: `member: reason; reason`.
pub fn order(strategy: &dyn Strategy, view: &View) -> Vec<String> {
    let ranking = strategy.rank(&view.round());
    let line = |r: &election_core::strategy::Ranked| format!("{}: {}", r.named.member, r.reasons.join("; "));
    ranking.order.iter().map(line).collect()
}
