//! Turns snapshots of all elections into the input of a plan. Pure.

use std::collections::{BTreeMap, BTreeSet};

use election_admin::{Layout, Snapshot};
use election_core::{
    Paths,
    config::{Confirm, MemberId, Policy},
    internals::{
        explain::{barred_sites, failed_sites},
        record::{Cause, Elected, MemberRecord, Mode, Named, Status},
    },
    status::Ballot,
    strategy::{Round, Trouble},
};
use strategies::{
    PolicySpec,
    fair_share::{Election, Node},
    other_jobs::{OtherJob, OtherJobs},
    stages::Share,
};

use crate::view::led;

/// A job whose leadership is counted.
#[derive(Debug)]
pub(super) struct CountedJob {
    pub(super) name: String,
    pub(super) paths: Paths,
    /// Without what is known of other jobs.
    pub(super) who: PolicySpec,
    pub(super) policy: Policy,
    /// Whether its leadership may be moved.
    pub(super) balance: bool,
}

/// Members that an elector has refused lately as the leader of a job, and until when no request is repeated, in
/// milliseconds since the Unix epoch.
pub(super) type RefusedMoves = BTreeMap<(String, MemberId), u64>;

/// The input of a plan.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Every member of any election, with its weight.
    pub(super) nodes: Vec<Node>,
    /// Every leadership. One of several slots is named by job and slot, and does not move.
    pub(super) elections: Vec<Election>,
}

/// Reads the snapshots. Elections without a leader are left out: electing one is the elector's task.
pub(super) fn survey(
    jobs: &[CountedJob],
    snapshots: &BTreeMap<String, Snapshot>,
    refused: &RefusedMoves,
    unix_ms: u64,
) -> Survey {
    let mut survey = Survey::default();
    let others: OtherJobs = snapshots.iter().map(|(job, snapshot)| (job.clone(), led(snapshot))).collect();
    for job in jobs {
        let Some(snapshot) = snapshots.get(&job.name) else { continue };
        for member in &snapshot.members {
            let known = survey.nodes.iter().any(|node| node.member == member.member);
            if !known {
                survey.nodes.push(Node { member: member.member.clone(), weight: Share::weight(member) });
            }
        }
        match snapshot.decided() {
            Some(elected) if snapshot.layout == Layout::Elector => {
                survey.elections.extend(decided(job, snapshot, elected, (refused, &others), unix_ms));
            }
            // Without an elector, leadership can't be moved on request.
            _ => survey.elections.extend(
                snapshot
                    .leader_znode(0)
                    .map(|leader_znode| fixed(job.name.clone(), leader_znode.record.member.clone())),
            ),
        }
    }
    survey
}

fn fixed(name: String, leader: MemberId) -> Election {
    Election { name, leader: Some(leader), fit: None, stays: true }
}

fn decided<'a>(
    job: &'a CountedJob,
    snapshot: &'a Snapshot,
    elected: &'a Elected,
    (refused, others): (&RefusedMoves, &OtherJobs),
    unix_ms: u64,
) -> Vec<Election> {
    let leaders: Vec<_> = elected.leaders().collect();
    if elected.slots.len() > 1 {
        // Two slots of an election must not share a node, which the plan does not know.
        let name = |slot: usize| format!("{}#{slot}", job.name);
        return leaders.iter().map(|(slot, named)| fixed(name(*slot), named.member.clone())).collect();
    }
    let Some((_, leader)) = leaders.first() else { return Vec::new() };
    // As long as it is not known where they are led, the elector moves no leader for them either.
    let is_led = |other: &String| matches!(others.get(other), Some(OtherJob::Led(_)));
    if stays(job, snapshot, &leader.ballot, unix_ms) || !job.who.needs().jobs.iter().all(is_led) {
        return vec![fixed(job.name.clone(), leader.member.clone())];
    }
    let mut fit = peers(job, snapshot, elected, (leader, others), unix_ms);
    fit.retain(|member| !refused.contains_key(&(job.name.clone(), member.clone())));
    let leader = Some(leader.member.clone());
    vec![Election { name: job.name.clone(), leader, fit: Some(fit), stays: false }]
}

/// Whether the leader of a job does not move, whatever the shares are.
fn stays(job: &CountedJob, snapshot: &Snapshot, leader: &Ballot, unix_ms: u64) -> bool {
    let is_ordered =
        snapshot.decided().is_some_and(|elected| snapshot.control.stay.contains(&elected.term_of(0)));
    // Otherwise a change of its leader is under way.
    let is_settled = snapshot.leader_znode(0).map(|znode| &znode.record).is_some_and(|record| {
        let tenure = unix_ms.saturating_sub(record.since_ms);
        let has_led_enough = u128::from(tenure) >= job.policy.min_tenure.as_millis();
        record.ballot == *leader && record.status == Status::Ready && has_led_enough
    });
    !job.balance
        || snapshot.control.mode != Mode::Auto
        || is_ordered
        || snapshot.requests.iter().any(|filed| filed.request.state.is_open())
        || !is_settled
        || snapshot.members.iter().any(|member| member.ballot == *leader && member.holds.is_some())
}

/// The members that are as good as the leader.
fn peers(
    job: &CountedJob,
    snapshot: &Snapshot,
    elected: &Elected,
    (leader, others): (&Named, &OtherJobs),
    unix_ms: u64,
) -> BTreeSet<MemberId> {
    let Named { ballot: leader, site: led_from, .. } = leader;
    // Unlike an operator, the balancer does not move leadership back to a site that has failed too often, and to another site
    // only as the elector does by itself.
    let barred = barred_sites(&job.policy, Some(elected), unix_ms);
    let is_barred = |member: &&MemberRecord| {
        member.ballot != *leader && barred.iter().any(|barred| barred.site == member.site)
    };
    let standing = snapshot.members.iter().filter(|member| member.withdrawn.is_none() && !is_barred(member));
    let standing: Vec<_> = standing.cloned().collect();
    let excluded = |e: &&election_core::internals::record::Exclusion| e.holds_at(unix_ms);
    let exclusions: Vec<_> = elected.exclusions.iter().filter(excluded).cloned().collect();
    // Recent failures of members count only after another failure.
    let failed_sites = failed_sites(&snapshot.members, &snapshot.control, Some(elected));
    let trouble = Trouble::default().with(|trouble| trouble.failed_sites = failed_sites);
    let round = Round::new(Cause::Switchover, unix_ms, &standing).with(|round| {
        (round.incumbent, round.exclusions) = (Some(leader), &exclusions);
        (round.trouble, round.control) = (&trouble, &snapshot.control);
    });
    let mut peers = job.who.clone().seeing(others.clone()).pipeline().peers(&round);
    if job.policy.confirm == Confirm::CrossSite || !job.policy.failback_windows.is_open(unix_ms) {
        peers.retain(|id| standing.iter().any(|one| one.member == *id && one.site == *led_from));
    }
    peers
}

#[cfg(test)]
mod tests;
