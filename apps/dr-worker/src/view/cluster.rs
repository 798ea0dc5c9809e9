use std::{collections::BTreeMap, fmt, time::Duration};

use election_admin::record::Absent;
use election_admin::{Layout, Snapshot};
use election_core::{
    Paths,
    config::{MemberId, SiteId},
    internals::{
        explain::{failed_sites, unwell_sites},
        record::{
            AppliedOverlay, Confirmed, Control, Current, Elected, Exclusion, FiledRequest, Health,
            Maintenance, MemberFailure, MemberRecord, Mode, OrderedBy, Outgoing, RecordError, RequestKind,
            RequestState, RoundTrips, SiteFailure, Slot, Status, StoppedJob, StoppedStandby, Target,
        },
    },
    status::{Ballot, Skipped},
    strategy::{SiteTrouble, in_words},
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;
use strategies::other_jobs::OtherJob;

use super::{PlannedStop, ProblemRow, ProcessRow, StandbyRow};
use crate::{schema::Object, wall::moment};

/// An election: its members, leaders, successors and the last decision.
///
/// The fields are in the order of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cluster {
    /// The election's name: the job.
    pub election: String,
    /// The root znode of all elections.
    pub root: String,
    /// The recipe: `elector`, `queue` or `single`.
    pub recipe: &'static str,
    /// The decision's term; without an elector the leader's term; 0 before the first.
    pub term: u64,
    /// The elector.
    #[schemars(with = "Option<String>")]
    pub elector: Option<MemberId>,
    /// Who wrote the decision: a member, or an operator.
    pub decided_by: Option<String>,
    /// Every slot: what was decided of it, and who leads it.
    pub slots: Vec<SlotRow>,
    /// Why the elector decides nothing, if it answered.
    #[schemars(with = "Option<Object>")]
    pub skipped: Option<Skipped>,
    /// The members, oldest ballot first.
    pub members: Vec<Member>,
    /// The members of the last day that do not take part now.
    #[schemars(with = "Vec<Object>")]
    pub absent: Vec<Absent>,
    /// Members that are not elected for a while.
    #[schemars(with = "Vec<Object>")]
    pub exclusions: Vec<Exclusion>,
    /// Failures of members that are remembered, oldest first.
    #[schemars(with = "Vec<Object>")]
    pub failures: Vec<MemberFailure>,
    /// The mode: whether the elector decides on its own.
    #[schemars(with = "String")]
    pub mode: Mode,
    /// The order that the job is stopped: a leader does not run it.
    #[schemars(with = "Option<Object>")]
    pub stopped: Option<StoppedJob>,
    /// Members whose standby is stopped by an operator's order.
    #[schemars(with = "Vec<Object>")]
    pub stopped_standbys: Vec<StoppedStandby>,
    /// Members that are being serviced: they hand over, and are not elected.
    #[schemars(with = "Vec<Object>")]
    pub maintenance: Vec<Maintenance>,
    /// Drained sites: no member there is elected.
    #[schemars(with = "Vec<String>")]
    pub drained: Vec<SiteId>,
    /// Why no member is elected: the election moves to another place, or comes from one.
    pub closed: Option<String>,
    /// The site that an operator prefers to all others.
    #[schemars(with = "Option<String>")]
    pub preferred_site: Option<SiteId>,
    /// The operators' order of sites, if it is not the configured one.
    #[schemars(with = "Vec<String>")]
    pub site_order: Vec<SiteId>,
    /// Terms whose leader stays, by an operator's order.
    pub stay: Vec<u64>,
    /// Moves to another site that an operator has confirmed.
    #[schemars(with = "Vec<Object>")]
    pub confirmed: Vec<Confirmed>,
    /// The author of the latest order, when, and the reason.
    #[schemars(with = "Object")]
    pub latest_order: OrderedBy,
    /// Sites that have failed as a whole: marked by an operator, or reported by most of their members.
    #[schemars(with = "Vec<Object>")]
    pub failed_sites: Vec<SiteTrouble>,
    /// Sites that their members report as failed, but that do not count as failed.
    pub unwell_sites: Vec<UnwellSite>,
    /// Recent failures of sites: leadership does not return to a site that has failed too often.
    #[schemars(with = "Vec<Object>")]
    pub site_failures: Vec<SiteFailure>,
    /// The operators' requests, oldest first.
    pub requests: Vec<OpenRequest>,
    /// The planned stops of the job that are under way, as far as the leaders' workers answered.
    pub planned_stops: Vec<PlannedStop>,
    /// The standbys of the job, as far as their workers answered.
    pub standbys: Vec<StandbyRow>,
    /// The processes of the job on its leaders, if it has several, as far as their workers answered; only in `list`.
    pub processes: Vec<ProcessRow>,
    /// Problems of the election, and the commands that fix them.
    pub problems: Vec<ProblemRow>,
    /// Unreadable znodes.
    #[schemars(with = "Vec<Object>")]
    pub unreadable: Vec<RecordError>,
}

/// One slot. Each of its two parts is the record in ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SlotRow {
    /// Counted from 0.
    pub slot: usize,
    /// What was decided of it; nothing before the first decision, and where the recipe has no elector.
    #[schemars(with = "Option<Object>")]
    pub decision: Option<Slot>,
    /// Who leads it or is taking over, with its fencing token.
    #[schemars(with = "Option<Object>")]
    pub leader: Option<Current>,
}

/// A member of an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Member {
    /// Its id.
    #[schemars(with = "String")]
    pub member: MemberId,
    /// Its site.
    #[schemars(with = "String")]
    pub site: SiteId,
    /// Its role, as read from the znodes.
    pub role: MemberRole,
    /// Its ballot: one incarnation of the member.
    #[schemars(with = "String")]
    pub ballot: Ballot,
    /// The slot that it leads or is elected for.
    pub slot: Option<usize>,
    /// The term that it leads in or is elected in.
    pub term: Option<u64>,
    /// `healthy`, `unchecked`, `unknown`, or the reason why it is not fit.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub health: Health,
    /// The address of the node.
    pub address: Option<String>,
    /// The address of its HTTP endpoints.
    pub http: Option<String>,
    /// Its position in the line of succession: 1 is next; the best of the lines of several slots.
    pub next: Option<usize>,
    /// Whether it is the elector.
    pub elector: bool,
    /// Which overlay of its configuration it applies, and a newer one that it refuses; null without one.
    #[schemars(with = "Option<Object>")]
    pub config: Option<AppliedOverlay>,
    /// Its software and version.
    pub software: String,
    /// Its configured and measured attributes, for policies.
    pub attributes: BTreeMap<String, String>,
    /// Its round trips to others, if a policy uses them.
    #[schemars(with = "Value")]
    pub round_trips: RoundTrips,
}

/// The role of a member, as read from the znodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberRole {
    /// READY.
    Leader,
    /// Elected, and not READY yet.
    TakingOver,
    /// Elected, and it has given this leadership up; no other member is elected yet.
    GaveUp,
    /// Leading, while another member is elected.
    SteppingDown,
    /// Not electable for a while.
    Excluded,
    /// In maintenance, so not electable.
    Maintenance,
    /// Of a drained site, so not electable.
    Drained,
    /// Of a site that has failed, so not electable.
    SiteFailed,
    /// Of an election that moves to another place or comes from one, so not electable.
    Closed,
    /// Ready to take over.
    Standby,
}

impl fmt::Display for MemberRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Leader => "leader",
            Self::TakingOver => "taking-over",
            Self::GaveUp => "gave-up",
            Self::SteppingDown => "stepping-down",
            Self::Excluded => "excluded",
            Self::Maintenance => "maintenance",
            Self::Drained => "drained",
            Self::SiteFailed => "site-failed",
            Self::Closed => "closed",
            Self::Standby => "standby",
        })
    }
}

/// Why a member is absent and since when, such as `not connected for 3s, since 2026-11-28T08:12:04Z`.
pub fn absence(absent: &Absent, unix_ms: u64) -> String {
    let why = if absent.stopped { "stopped" } else { "not connected" };
    let Some(since_ms) = absent.since_ms else { return why.to_owned() };
    let since = moment(since_ms);
    // The time is from another machine's clock, which may be ahead of this one.
    match unix_ms.checked_sub(since_ms).map(|ms| in_words(Duration::from_millis(ms))) {
        Some(age) if absent.stopped => format!("{why} {age} ago, at {since}"),
        Some(age) => format!("{why} for {age}, since {since}"),
        None => format!("{why} since {since}"),
    }
}

/// A sentence about this member if it was one within the last day, and does not take part now.
pub(crate) fn is_absent(member: &MemberId, snapshot: &Snapshot, unix_ms: u64) -> Option<String> {
    let absent = snapshot.absent.iter().find(|absent| absent.member == *member)?;
    Some(format!("{member} is absent: {}", absence(absent, unix_ms)))
}

/// An operator's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OpenRequest {
    /// The name of its znode.
    pub id: String,
    /// The kind of request.
    #[schemars(with = "String")]
    pub kind: RequestKind,
    /// The target: a member, a site, or any.
    #[schemars(with = "Value")]
    pub to: Target,
    /// The leader to replace.
    #[schemars(with = "Value")]
    pub from: Outgoing,
    /// Whether to replace a leader that does not stop.
    pub force: bool,
    /// Whether to do that without the leader's stop budget.
    pub now: bool,
    /// The operator's reason.
    pub reason: Option<String>,
    /// Whether a loss is accepted.
    pub accept_loss: bool,
    /// The operator who asked.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// How long it is valid before it is begun, in milliseconds from when an elector first reads it.
    pub valid_for_ms: u64,
    /// Its progress or outcome.
    #[schemars(with = "Object")]
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
            now: request.now,
            accept_loss: request.accept_loss,
            reason: request.reason,
            by: request.by,
            created_ms: request.created_ms,
            valid_for_ms: request.valid_for_ms,
            outcome: request.state,
        }
    }
}

/// A site that its members report as failed, but that does not count as failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnwellSite {
    /// Which.
    #[schemars(with = "String")]
    pub site: SiteId,
    /// Why its members report that.
    pub why: String,
    /// The operator who cleared the mark; none if all sites are reported as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overruled: Option<String>,
}

impl UnwellSite {
    fn new(SiteTrouble { site, why, .. }: SiteTrouble, elected: Option<&Elected>) -> Self {
        let open = elected
            .iter()
            .flat_map(|e| &e.site_failures)
            .find(|known| known.over_at_ms.is_none() && known.site == site);
        Self { overruled: open.and_then(|open| open.overruled.clone()), site, why }
    }

    /// A sentence for operators.
    pub fn sentence(&self) -> String {
        let Self { site, why, overruled } = self;
        match overruled {
            Some(by) => format!("site {site} counts as healthy (cleared by {by}), though {why}"),
            None => format!("site {site} counts as healthy, because all sites have failed, though {why}"),
        }
    }
}

impl Cluster {
    /// Describes a snapshot of the election at `unix_ms`.
    pub fn new(root: &str, election: &str, snapshot: Snapshot, unix_ms: u64) -> Self {
        let elector = snapshot.elector().cloned();
        let elected = snapshot.decided();
        let leaders: Vec<_> =
            snapshot.leader_znodes.iter().map(|znode| znode.as_ref().map(|znode| &znode.record)).collect();
        let first = leaders.first().copied().flatten();
        let without_elector =
            first.filter(|_| snapshot.layout != Layout::Elector).map_or(0, |leader| leader.term);
        let term = elected.map_or(without_elector, |e| e.term);
        let slots = (0..leaders.len().max(elected.map_or(0, |e| e.slots.len())))
            .map(|slot| SlotRow {
                slot,
                decision: elected.and_then(|e| e.slots.get(slot).cloned()),
                leader: leader_of(&snapshot, slot),
            })
            .collect();
        let closed = snapshot.control.closed();
        let failed_sites = failed_sites(&snapshot.members, &snapshot.control, elected);
        let members = members_of(&snapshot, &leaders, &failed_sites, term, unix_ms);
        let unwell_sites = unwell_sites(&snapshot.members)
            .into_iter()
            .filter(|unwell| failed_sites.iter().all(|failed| failed.site != unwell.site))
            .map(|unwell| UnwellSite::new(unwell, elected))
            .collect();
        let site_failures = elected.map(|e| e.site_failures.clone()).unwrap_or_default();
        let Control {
            mode,
            stopped,
            stopped_standbys,
            maintenance,
            drained,
            preferred_site,
            site_order,
            mut stay,
            mut confirmed,
            changed_by: by,
            changed_at_ms: at_ms,
            changed_reason: reason,
            ..
        } = snapshot.control.clone();
        let latest_order = OrderedBy { reason, by, at_ms };
        // They end with the next change of leader.
        let leads = |term| elected.is_some_and(|e| e.leaders().any(|(slot, _)| e.term_of(slot) == term));
        stay.retain(|term| leads(*term));
        confirmed.retain(|confirmed| leads(confirmed.term));
        let exclusions = elected.iter().flat_map(|e| &e.exclusions).filter(|e| e.holds_at(unix_ms));
        let exclusions = exclusions.cloned().collect();
        Self {
            election: election.to_owned(),
            root: root.to_owned(),
            recipe: snapshot.layout.as_str(),
            term,
            elector,
            decided_by: elected.map(|e| e.decided_by.clone()),
            slots,
            members,
            absent: snapshot.absent.clone(),
            exclusions,
            failures: elected.map(|e| e.failures.clone()).unwrap_or_default(),
            mode,
            stopped,
            stopped_standbys,
            maintenance,
            drained,
            closed,
            failed_sites,
            unwell_sites,
            site_failures,
            preferred_site,
            site_order,
            stay,
            confirmed,
            latest_order,
            requests: snapshot.requests.into_iter().map(OpenRequest::new).collect(),
            unreadable: snapshot.unreadable,
            // What the znodes don't have.
            ..Self::default()
        }
    }

    /// The orders that hold until the next change of leader, as text.
    pub fn passing_orders(&self) -> Vec<String> {
        let leader = |term| {
            let decisions = self.slots.iter().filter_map(|slot| slot.decision.as_ref());
            let named =
                decisions.filter(|slot| slot.given.term == term).filter_map(|slot| slot.named.as_ref());
            named.map(|named| named.member.to_string()).collect::<Vec<_>>().join(" and ")
        };
        let stays = self.stay.iter().map(|term| format!("{} stays in term {term}", leader(*term)));
        let confirmed = self.confirmed.iter().map(|Confirmed { term, site, .. }| {
            format!("a move of {} to site {site} is confirmed in term {term}", leader(*term))
        });
        stays.chain(confirmed).collect()
    }

    /// Whether there is anything to show but what can't be read.
    pub fn is_blank(&self) -> bool {
        self.members.is_empty() && self.slots.iter().all(|s| s.decision.is_none() && s.leader.is_none())
    }

    /// Where the election lies.
    pub fn base(&self) -> String {
        Paths::new(&self.root, &self.election)
            .map_or_else(|_| format!("{}/{}", self.root, self.election), |paths| paths.base().to_owned())
    }
}

/// The members, each with its role. `term` is that of a leader without an elector.
fn members_of(
    snapshot: &Snapshot,
    leaders: &[Option<&Current>],
    failed_sites: &[SiteTrouble],
    term: u64,
    unix_ms: u64,
) -> Vec<Member> {
    let elected = snapshot.decided();
    let mut members: Vec<_> = snapshot
        .members
        .iter()
        .map(|member| {
            let role = match role_of(&member.ballot, elected, leaders, unix_ms) {
                MemberRole::Standby => waiting(member, &snapshot.control, failed_sites),
                MemberRole::TakingOver if has_given_up(member, elected, leaders) => MemberRole::GaveUp,
                other => other,
            };
            let slot = place_of(&member.ballot, elected, leaders);
            let term = slot.map(|slot| elected.map_or(term, |e| e.term_of(slot)));
            member_of(member, role, slot.zip(term), elected, snapshot.lowest.as_ref())
        })
        .collect();
    if snapshot.layout == Layout::Queue {
        // They follow in the order of the queue.
        let waiting = members.iter_mut().filter(|m: &&mut Member| m.role == MemberRole::Standby);
        waiting.zip(1..).for_each(|(member, place)| member.next = Some(place));
    }
    members
}

fn leader_of(snapshot: &Snapshot, slot: usize) -> Option<Current> {
    let mut leader = snapshot.leader_znode(slot)?.record.clone();
    leader.fencing_token = snapshot.fencing_token(slot);
    Some(leader)
}

/// The slot that a member leads or is elected for. The leader znode has priority, because a member releases one before
/// it creates another.
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

/// Whether the leadership that this member is elected for is over, by its own record.
fn has_given_up(
    member: &MemberRecord,
    elected: Option<&Elected>,
    leader_znodes: &[Option<&Current>],
) -> bool {
    let holds = leader_znodes.iter().flatten().any(|current| current.ballot == member.ballot);
    let term = elected.and_then(|e| Some(e.term_of(e.slot_of(&member.ballot)?)));
    !holds && member.gave_up.as_ref().is_some_and(|gave_up| Some(gave_up.term) == term)
}

/// The role of a member that could follow, were it not for an order or the state of its site.
fn waiting(member: &MemberRecord, control: &Control, failed: &[SiteTrouble]) -> MemberRole {
    if control.serviced(&member.member).is_some() {
        MemberRole::Maintenance
    } else if control.drained.contains(&member.site) {
        MemberRole::Drained
    } else if failed.iter().any(|failed| failed.site == member.site) {
        MemberRole::SiteFailed
    } else if control.is_closed() {
        MemberRole::Closed
    } else {
        MemberRole::Standby
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
        // One that has withdrawn is no candidate either.
        health: member
            .withdrawn
            .clone()
            .map_or_else(|| member.health.clone(), |reason| Health::Unhealthy { reason }),
        address: member.address.clone(),
        http: member.http.clone(),
        next: next.map(|place| place + 1),
        elector: lowest == Some(&member.ballot),
        config: member.config.clone(),
        software: member.software.clone(),
        attributes: member.attributes.clone(),
        round_trips: member.round_trips.clone(),
    }
}

fn as_text<S: Serializer>(health: &Health, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(health)
}

/// Where a job is led.
pub(crate) fn led(snapshot: &Snapshot) -> OtherJob {
    let leaders = snapshot.leader_znodes.iter().flatten().map(|leader| &leader.record);
    OtherJob::of(Some(&snapshot.control), snapshot.decided(), leaders)
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

    /// As while the election is on hold.
    #[test]
    fn a_member_that_has_given_its_leadership_up_does_not_take_over() {
        let member = |gave_up| {
            let text = json!({
                "v": 1, "member": "b", "ballot": B, "site": "east",
                "gave_up": { "term": gave_up, "cause": "work-failed", "reason": "exit code 1", "at_ms": 5 },
            });
            serde_json::from_value::<MemberRecord>(text).unwrap()
        };
        let named = elected(2, B, &[]);
        assert!(has_given_up(&member(2), Some(&named), &[None]));
        assert!(!has_given_up(&member(1), Some(&named), &[None]), "it is to lead again");
        assert!(!has_given_up(&member(2), Some(&named), &[Some(&current(2, B, "READY"))]), "not yet");
    }

    #[test]
    fn the_age_of_an_absence_is_shown_where_the_clocks_allow_it() {
        let absent = |since_ms, stopped| Absent {
            member: "m".parse().unwrap(),
            site: "east".parse().unwrap(),
            since_ms,
            stopped,
        };
        for (absent, text) in [
            (absent(Some(1000), false), "not connected for 3s, since 1970-01-01T00:00:01Z"),
            (absent(Some(1000), true), "stopped 3s ago, at 1970-01-01T00:00:01Z"),
            (absent(Some(5000), false), "not connected since 1970-01-01T00:00:05Z"),
            (absent(None, false), "not connected"),
        ] {
            assert_eq!(absence(&absent, 4000), text);
        }
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
