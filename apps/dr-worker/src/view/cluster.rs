use std::{collections::BTreeMap, fmt};

use election_core::{
    Ballot, MemberId, Paths, SiteId, Skipped,
    explain::{failed_sites, unwell_sites},
    operator::{Layout, Snapshot},
    record::{
        Cause, Confirmed, Control, Current, Elected, Exclusion, Failure, FiledRequest, Health, MemberRecord,
        Mode, Outgoing, RecordError, RequestKind, RequestState, RoundTrips, SiteFailure, Slot, Status,
        Target,
    },
    strategy::SiteTrouble,
};
use serde::{Serialize, Serializer};

use super::ProblemRow;

/// An election as it stands: who takes part, who leads, who is next and why.
///
/// The order of the fields is the order in the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// The election, which is the job's name.
    pub election: String,
    /// The znode that it lies under.
    pub root: String,
    /// By which recipe the leader is found: `elector`, `queue` or `single`.
    pub recipe: &'static str,
    /// The decision's term, without an elector that of who is in leader_znode; 0 before the first.
    pub term: u64,
    /// Who decides.
    pub elector: Option<MemberId>,
    /// Who is in leader_znode for the first slot, which mostly is the only one.
    pub leader: Option<Leader>,
    /// The decision; of several slots, what it says of the first.
    pub elected: Option<Standing>,
    /// Every slot: what was decided of it, and who is in leader_znode.
    pub slots: Vec<SlotRow>,
    /// What the elector says of what it does not decide, if it could be asked.
    pub skipped: Option<Skipped>,
    /// Everyone who takes part, oldest ballot first.
    pub members: Vec<Member>,
    /// Whether the elector decides on its own.
    pub mode: Mode,
    /// Sites that nobody is to lead from.
    pub drained: Vec<SiteId>,
    /// The site that an operator prefers to the order of sites.
    pub preferred_site: Option<SiteId>,
    /// The operators' order of sites, if it is not the configured one.
    pub site_order: Vec<SiteId>,
    /// Terms whose leader an operator told to stay.
    pub stay: Vec<u64>,
    /// Moves to another site that an operator has confirmed.
    pub confirmed: Vec<Confirmed>,
    /// Sites that have failed as a whole: by an operator's word, or by most of their members'.
    pub failed_sites: Vec<FailedSite>,
    /// Sites that have failed as their members say, and that don't count as failed.
    pub unwell_sites: Vec<UnwellSite>,
    /// When sites have failed lately: one that has too often is not gone back to.
    pub site_failures: Vec<SiteFailure>,
    /// The operators' requests that are kept, oldest first.
    pub requests: Vec<OpenRequest>,
    /// What is wrong with the election, and the commands that mend it.
    pub problems: Vec<ProblemRow>,
    /// Znodes that can't be used.
    pub unreadable: Vec<Unreadable>,
}

/// Who is in leader_znode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leader {
    /// Its id.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// The term that it leads in.
    pub term: u64,
    /// PROGRESS or READY.
    pub status: Status,
    /// The fencing token of its leadership.
    pub fencing_token: Option<u64>,
    /// When it came into leader_znode, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it became READY.
    pub ready_ms: Option<u64>,
    /// Where its work can be reached.
    pub endpoint: Option<String>,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotRow {
    /// Counted from 0.
    pub slot: usize,
    /// Who should lead; nobody while the place is vacated or nobody can.
    pub member: Option<MemberId>,
    /// Where it stands.
    pub site: Option<SiteId>,
    /// The term in which the slot was decided.
    pub term: u64,
    /// Why.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who follows if the leader vanishes, first in line first.
    pub succession: Vec<MemberId>,
    /// The operator's request that was carried out.
    pub request: Option<String>,
    /// Who is in leader_znode.
    pub leader: Option<Leader>,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Who should lead; nobody while the place is vacated or nobody can.
    pub member: Option<MemberId>,
    /// Where it stands.
    pub site: Option<SiteId>,
    /// Which incarnation of it.
    pub ballot: Option<Ballot>,
    /// The term.
    pub term: u64,
    /// Why the term began.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who decided.
    pub decided_by: String,
    /// When, in milliseconds since the Unix epoch.
    pub decided_at_ms: u64,
    /// Who follows if the leader vanishes, first in line first.
    pub succession: Vec<MemberId>,
    /// Who may not be named for a while.
    pub exclusions: Vec<Exclusion>,
    /// Which members have failed lately, oldest first.
    pub failures: Vec<Failure>,
    /// The operator's request that the term carries out.
    pub request: Option<String>,
}

/// One who takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its id.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// What it is doing, as far as the znodes tell.
    pub role: MemberRole,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// The slot that it leads, or is named for.
    pub slot: Option<usize>,
    /// The term that it leads in, or is named in.
    pub term: Option<u64>,
    /// `healthy`, where a check or the program has found so; `unchecked`, `unknown` or why not.
    #[serde(serialize_with = "as_text")]
    pub health: Health,
    /// How others reach the node.
    pub address: Option<String>,
    /// Where its HTTP endpoints are.
    pub http: Option<String>,
    /// Its place in the line of succession: 1 is next; the best of the lines of several slots.
    pub next: Option<usize>,
    /// Whether it is the elector.
    pub elector: bool,
    /// What it runs.
    pub software: String,
    /// What it is configured with and what its job's command measures, for policies.
    pub attributes: BTreeMap<String, String>,
    /// How far away others are from it, where a policy goes by that.
    pub round_trips: RoundTrips,
}

/// What a member is doing, as far as the znodes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberRole {
    /// READY.
    Leader,
    /// In leader_znode and not READY yet, or named and not yet in leader_znode.
    TakingOver,
    /// In leader_znode, and another one is named.
    SteppingDown,
    /// Not to be named for a while.
    Excluded,
    /// Ready to take over.
    Standby,
}

impl fmt::Display for MemberRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Leader => "leader",
            Self::TakingOver => "taking-over",
            Self::SteppingDown => "stepping-down",
            Self::Excluded => "excluded",
            Self::Standby => "standby",
        })
    }
}

/// An operator's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenRequest {
    /// The name of its znode.
    pub id: String,
    /// What was asked for.
    pub kind: RequestKind,
    /// Who or where should lead then.
    pub to: Target,
    /// Which leader it is about.
    pub from: Outgoing,
    /// Whether leadership is to be taken from a leader that won't let go.
    pub force: bool,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Whether a loss is accepted.
    pub accept_loss: bool,
    /// Who asked.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// How long it may be begun, in milliseconds from when an elector first reads it.
    pub valid_for_ms: u64,
    /// How far it is.
    pub outcome: RequestState,
}

impl OpenRequest {
    fn new(FiledRequest { which, request }: FiledRequest) -> Self {
        Self {
            id: which.name,
            kind: request.kind,
            to: request.to,
            from: request.from,
            force: request.force,
            accept_loss: request.accept_loss,
            reason: request.reason,
            by: request.by,
            created_ms: request.created_ms,
            valid_for_ms: request.valid_for_ms,
            outcome: request.state,
        }
    }
}

/// A site of which its members say that it has failed, and which doesn't count as failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnwellSite {
    /// Which.
    pub site: SiteId,
    /// Why, in words.
    pub why: String,
    /// The operator who said that it has not; nobody did where all sites say so of themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overruled: Option<String>,
}

impl UnwellSite {
    fn new(SiteTrouble { site, why }: SiteTrouble, elected: Option<&Elected>) -> Self {
        let open =
            elected.iter().flat_map(|e| &e.site_failures).find(|known| !known.over && known.site == site);
        Self { overruled: open.and_then(|open| open.overruled.clone()), site, why }
    }

    /// What an operator is to know of it.
    pub fn words(&self) -> String {
        let Self { site, why, overruled } = self;
        match overruled {
            Some(by) => format!("site {site} counts as well by {by}, though {why}"),
            None => format!("site {site} counts as well, for no site is better off, though {why}"),
        }
    }
}

/// A site that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedSite {
    /// Which.
    pub site: SiteId,
    /// In words.
    pub why: String,
}

/// A znode that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its path.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

impl From<RecordError> for Unreadable {
    fn from(error: RecordError) -> Self {
        Self { path: error.path, why: error.why }
    }
}

impl Cluster {
    /// What a snapshot of the election says, at `unix_ms`.
    pub fn new(root: &str, election: &str, snapshot: Snapshot, unix_ms: u64) -> Self {
        let elector = snapshot.elector().cloned();
        let elected = snapshot.decided();
        let leader_znodes: Vec<_> = snapshot
            .leader_znodes
            .iter()
            .map(|leader_znode| leader_znode.as_ref().map(|leader_znode| &leader_znode.record))
            .collect();
        let first = leader_znodes.first().copied().flatten();
        let current_leader =
            first.filter(|_| snapshot.layout != Layout::Elector).map_or(0, |leader_znode| leader_znode.term);
        let term = elected.map_or(current_leader, |e| e.term);
        let slots = elected.into_iter().flat_map(|e| e.slots.iter().enumerate());
        let slots = slots.map(|(slot, decided)| slot_of(slot, decided, leader_of(&snapshot, slot))).collect();
        let mut members: Vec<_> = snapshot
            .members
            .iter()
            .map(|member| {
                let role = role_of(&member.ballot, elected, &leader_znodes, unix_ms);
                let slot = place_of(&member.ballot, elected, &leader_znodes);
                let term = slot.map(|slot| elected.map_or(term, |e| e.term_of(slot)));
                member_of(member, role, slot.zip(term), elected, snapshot.lowest.as_ref())
            })
            .collect();
        if snapshot.layout == Layout::Queue {
            // They follow in the order in which they stand.
            let waiting = members.iter_mut().filter(|m: &&mut Member| m.role == MemberRole::Standby);
            waiting.zip(1..).for_each(|(member, place)| member.next = Some(place));
        }
        let failed_sites = failed_sites(&snapshot.members, &snapshot.control, elected);
        let failed_sites: Vec<_> =
            failed_sites.into_iter().map(|f| FailedSite { site: f.site, why: f.why }).collect();
        let unwell_sites = unwell_sites(&snapshot.members)
            .into_iter()
            .filter(|unwell| failed_sites.iter().all(|failed| failed.site != unwell.site))
            .map(|unwell| UnwellSite::new(unwell, elected))
            .collect();
        let site_failures = elected.map(|e| e.site_failures.clone()).unwrap_or_default();
        let Control { mode, drained, preferred_site, site_order, stay, confirmed, .. } =
            snapshot.control.clone();
        Self {
            election: election.to_owned(),
            root: root.to_owned(),
            recipe: snapshot.layout.as_str(),
            term,
            elector,
            leader: leader_of(&snapshot, 0),
            elected: elected.map(standing_of),
            slots,
            skipped: None,
            members,
            mode,
            drained,
            failed_sites,
            unwell_sites,
            site_failures,
            preferred_site,
            site_order,
            stay,
            confirmed,
            requests: snapshot.requests.into_iter().map(OpenRequest::new).collect(),
            problems: Vec::new(),
            unreadable: snapshot.unreadable.into_iter().map(Unreadable::from).collect(),
        }
    }

    /// Whether there is anything to show but what can't be read.
    pub fn is_blank(&self) -> bool {
        self.members.is_empty() && self.elected.is_none() && self.leader.is_none()
    }

    /// Where the election lies.
    pub fn base(&self) -> String {
        Paths::new(&self.root, &self.election)
            .map_or_else(|_| format!("{}/{}", self.root, self.election), |paths| paths.base().to_owned())
    }
}

fn leader_of(snapshot: &Snapshot, slot: usize) -> Option<Leader> {
    let current = &snapshot.leader_znode(slot)?.record;
    Some(Leader {
        member: current.member.clone(),
        site: current.site.clone(),
        ballot: current.ballot.clone(),
        term: current.term,
        status: current.status,
        fencing_token: snapshot.fencing_token(slot),
        since_ms: current.since_ms,
        ready_ms: current.ready_ms,
        endpoint: current.endpoint.clone(),
    })
}

fn slot_of(slot: usize, decided: &Slot, leader: Option<Leader>) -> SlotRow {
    let Slot { named, given, succession, .. } = decided;
    SlotRow {
        slot,
        member: named.as_ref().map(|n| n.member.clone()),
        site: named.as_ref().map(|n| n.site.clone()),
        term: given.term,
        cause: given.cause,
        sentence: given.sentence.clone(),
        succession: succession.iter().map(|n| n.member.clone()).collect(),
        request: given.request.as_ref().map(|which| which.name.clone()),
        leader,
    }
}

/// The slot that a member is in leader_znode or named for: the place comes first, for a member
/// lets go of one before it takes another.
fn place_of(ballot: &Ballot, elected: Option<&Elected>, leader_znodes: &[Option<&Current>]) -> Option<usize> {
    let holds = leader_znodes
        .iter()
        .position(|leader_znode| leader_znode.is_some_and(|current| current.ballot == *ballot));
    holds.or_else(|| elected?.slot_of(ballot))
}

fn role_of(
    ballot: &Ballot,
    elected: Option<&Elected>,
    leader_znodes: &[Option<&Current>],
    unix_ms: u64,
) -> MemberRole {
    let slot = place_of(ballot, elected, leader_znodes);
    let named = slot.is_some() && elected.and_then(|e| e.slot_of(ballot)) == slot;
    let leader_znode = slot.and_then(|slot| leader_znodes.get(slot).copied().flatten());
    match leader_znode.filter(|current| current.ballot == *ballot) {
        Some(current) => {
            // A successor goes into leader_znode for the term that it is about to write.
            let successor = elected.is_none_or(|e| slot.is_some_and(|slot| current.term > e.term_of(slot)));
            match current.status {
                _ if !named && !successor => MemberRole::SteppingDown,
                Status::Ready => MemberRole::Leader,
                Status::Progress => MemberRole::TakingOver,
            }
        }
        None if named => MemberRole::TakingOver,
        None if elected.is_some_and(|e| e.excluded(ballot, unix_ms).is_some()) => MemberRole::Excluded,
        None => MemberRole::Standby,
    }
}

fn member_of(
    member: &MemberRecord,
    role: MemberRole,
    slot_and_term: Option<(usize, u64)>,
    elected: Option<&Elected>,
    lowest: Option<&Ballot>,
) -> Member {
    let lines = elected.into_iter().flat_map(|e| (0..e.slots.len()).map(move |slot| (e, slot)));
    let next = lines.filter_map(|(e, slot)| e.place_in_line(slot, &member.ballot)).min();
    Member {
        member: member.member.clone(),
        site: member.site.clone(),
        role,
        ballot: member.ballot.clone(),
        slot: slot_and_term.map(|(slot, _)| slot),
        term: slot_and_term.map(|(_, term)| term),
        health: member.health.clone(),
        address: member.address.clone(),
        http: member.http.clone(),
        next: next.map(|place| place + 1),
        elector: lowest == Some(&member.ballot),
        software: member.software.clone(),
        attributes: member.attributes.clone(),
        round_trips: member.round_trips.clone(),
    }
}

fn as_text<S: Serializer>(health: &Health, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(health)
}

fn standing_of(elected: &Elected) -> Standing {
    let named = elected.named(0);
    Standing {
        member: named.map(|n| n.member.clone()),
        site: named.map(|n| n.site.clone()),
        ballot: named.map(|n| n.ballot.clone()),
        term: elected.term,
        cause: elected.cause(),
        sentence: elected.sentence(),
        decided_by: elected.decided_by.clone(),
        decided_at_ms: elected.given(0).map_or(0, |given| given.decided_at_ms),
        succession: elected.line_of(0).iter().map(|n| n.member.clone()).collect(),
        exclusions: elected.exclusions.clone(),
        failures: elected.failures.clone(),
        request: elected.latest().and_then(|given| given.request.as_ref()).map(|which| which.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "a-0000000001";
    const B: &str = "b-0000000002";

    fn elected(term: u64, named: &str, excluded: &[&str]) -> Elected {
        let exclusions: Vec<_> = excluded
            .iter()
            .map(|ballot| json!({ "member": "m", "ballot": ballot, "until_ms": 100, "reason": "it failed" }))
            .collect();
        serde_json::from_value(json!({
            "v": 1, "term": term, "exclusions": exclusions, "decided_by": "",
            "slots": [{
                "named": { "member": "m", "ballot": named, "site": "east" },
                "given": { "term": term, "cause": "startup", "sentence": "", "decided_at_ms": 0 },
            }],
        }))
        .unwrap()
    }

    fn current(term: u64, ballot: &str, status: &str) -> Current {
        serde_json::from_value(json!({
            "v": 1, "member": "m", "ballot": ballot, "site": "east", "term": term, "status": status, "since_ms": 0,
        }))
        .unwrap()
    }

    fn role(ballot: &str, elected: Option<&Elected>, leader_znode: Option<&Current>) -> MemberRole {
        role_of(&Ballot::new(ballot).unwrap(), elected, &[leader_znode], 50)
    }

    #[test]
    fn the_roles_of_a_planned_move() {
        let first = elected(1, A, &[]);
        let named = elected(2, B, &[]);
        let leader_znode = current(1, A, "READY");
        assert_eq!(role(A, Some(&first), Some(&leader_znode)), MemberRole::Leader);
        assert_eq!(role(B, Some(&first), Some(&leader_znode)), MemberRole::Standby);
        assert_eq!(role(A, Some(&named), Some(&leader_znode)), MemberRole::SteppingDown);
        assert_eq!(role(B, Some(&named), Some(&leader_znode)), MemberRole::TakingOver);
        let leader_znode = current(2, B, "PROGRESS");
        assert_eq!(role(A, Some(&named), Some(&leader_znode)), MemberRole::Standby);
        assert_eq!(role(B, Some(&named), Some(&leader_znode)), MemberRole::TakingOver);
    }

    #[test]
    fn a_successor_that_has_not_written_its_term_yet_does_not_step_down() {
        let leader_znode = current(2, B, "PROGRESS");
        assert_eq!(role(B, Some(&elected(1, A, &[])), Some(&leader_znode)), MemberRole::TakingOver);
    }

    #[test]
    fn an_exclusion_counts_until_its_end() {
        let with = elected(2, B, &[A]);
        assert_eq!(role(A, Some(&with), None), MemberRole::Excluded);
        assert_eq!(role_of(&Ballot::new(A).unwrap(), Some(&with), &[None], 100), MemberRole::Standby);
        assert_eq!(role(A, None, None), MemberRole::Standby);
    }
}
