#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use election_admin::{Decision, LeaderZnode, Snapshot};
use election_core::internals::record::Health;
use serde_json::{Value, json};

use super::*;
use crate::config::{OperatorConfig, Sources};

/// 2026-11-05T14:30:00Z, a Thursday: a minute after the leader was READY.
pub(crate) const NOW_MS: u64 = 1_793_889_000_000;

/// The first member leads. The members of a site are named after it.
pub(crate) fn snapshot(names: &[&str]) -> Snapshot {
    let named: Vec<_> = (1..).zip(names).map(|(number, name)| named(name, number)).collect();
    let mut snapshot = Snapshot::default();
    snapshot.members = named
        .iter()
        .map(|member| {
            let mut record = member.clone();
            record["v"] = json!(1);
            serde_json::from_value(record).unwrap()
        })
        .collect();
    snapshot.lowest = Some(snapshot.members[0].ballot.clone());
    let given = json!({ "term": 1, "cause": "startup", "sentence": "", "decided_at_ms": NOW_MS - 60_000 });
    let decision =
        json!({ "v": 1, "term": 1, "decided_by": "", "slots": [{ "named": named[0], "given": given }] });
    let record = serde_json::from_value(decision).unwrap();
    snapshot.elected = Some(Decision { record, version: 1, mzxid: 7 });
    snapshot.leader_znodes = vec![Some(leader_znode(&named[0], 0))];
    snapshot
}

fn named(name: &str, number: u32) -> Value {
    let site = name.split('-').next().unwrap();
    json!({ "member": name, "site": site, "ballot": format!("x-{number:010}") })
}

fn leader_znode(named: &Value, slot: usize) -> LeaderZnode {
    let mut record = named.clone();
    (record["v"], record["term"], record["slot"], record["status"]) =
        (json!(1), json!(1), json!(slot), json!("READY"));
    (record["since_ms"], record["ready_ms"]) = (json!(NOW_MS - 60_000), json!(NOW_MS - 60_000));
    LeaderZnode { record: serde_json::from_value(record).unwrap(), version: 1, czxid: 8 }
}

/// The sentences about a member, in an election of the job orders.
fn judged(member: &str, snapshot: &Snapshot) -> Vec<String> {
    judge(member, &[("orders", snapshot.clone())]).unwrap()
}

fn judge(member: &str, jobs: &[(&str, Snapshot)]) -> Option<Vec<String>> {
    let jobs: Vec<_> = jobs
        .iter()
        .map(|(job, snapshot)| {
            let slots = format!("policy.slots={}", snapshot.leader_znodes.len());
            let sets = vec!["zookeeper.connect=zk1:2181".to_owned(), slots];
            let config = OperatorConfig::load(&Sources { sets, ..Sources::default() }).unwrap();
            let explained = Explained::new(job, snapshot, &config, NOW_MS);
            (Cluster::new("/dr", job, snapshot.clone(), NOW_MS), explained)
        })
        .collect();
    let judged = Restartable::new(&MemberId::new(member).unwrap(), jobs.iter().map(|(c, e)| (c, e)))?;
    assert_eq!(judged.can_restart, judged.reasons.is_empty());
    Some(judged.reasons.into_iter().map(|reason| reason.sentence).collect())
}

const NONE: [&str; 0] = [];

#[test]
fn two_members_in_each_of_two_sites_may_be_restarted_one_by_one() {
    let four = snapshot(&["east-1", "east-2", "west-1", "west-2"]);
    for member in ["east-1", "east-2", "west-1", "west-2"] {
        assert_eq!(judged(member, &four), NONE);
    }
    assert_eq!(judge("north-1", &[("orders", four)]), None);
}

#[test]
fn the_last_candidate_of_a_site_is_needed() {
    let three = snapshot(&["east-1", "east-2", "west-1"]);
    assert_eq!(judged("east-1", &three), NONE);
    assert_eq!(judged("west-1", &three), ["orders: west-1 is the last candidate of site west"]);
    // Others of its site that may not lead do not replace it.
    let mut sick = snapshot(&["east-1", "west-1", "west-2"]);
    sick.members[2].health = Health::Unhealthy { reason: "the disk is full".to_owned() };
    let why = judged("west-1", &sick);
    assert_eq!(
        why,
        ["orders: west-1 is the last candidate of site west (west-2: unhealthy: the disk is full)"]
    );
    // What may not lead is no loss.
    assert_eq!(judged("west-2", &sick), NONE);
    let mut drained = three;
    drained.control.drained = vec![SiteId::new("west").unwrap()];
    assert_eq!(judged("west-1", &drained), NONE);
}

#[test]
fn a_leader_needs_a_member_that_follows_it() {
    let mut closed = snapshot(&["east-1", "west-1"]);
    closed.control.drained = vec![SiteId::new("west").unwrap()];
    assert_eq!(
        judged("east-1", &closed),
        [
            "orders: east-1 of site east leads, and no other member may lead (west-1: site west is drained)",
            "orders: east-1 is the last candidate of site east",
        ]
    );
    // What is stopped can't be lost, but the site has no other candidate.
    closed.control = closed
        .control
        .with(|control| control.stopped = serde_json::from_value(json!({ "by": "ann@desk" })).unwrap());
    assert_eq!(judged("east-1", &closed), ["orders: east-1 is the last candidate of site east"]);
}

#[test]
fn a_mode_without_automatic_moves_keeps_only_the_leader() {
    let mut pair = snapshot(&["east-1", "east-2", "west-1", "west-2"]);
    for (mode, name) in [(Mode::Manual, "manual"), (Mode::Observe, "observe")] {
        pair.control.mode = mode;
        let leads = "orders: east-1 of site east leads, and the mode is";
        assert_eq!(judged("east-1", &pair), [format!("{leads} {name}: no other leader would be elected")]);
        assert_eq!(judged("west-1", &pair), NONE);
    }
}

#[test]
fn nothing_is_taken_down_during_a_move() {
    let mut moving = snapshot(&["east-1", "east-2", "west-1", "west-2"]);
    let znode = moving.leader_znodes[0].as_mut().unwrap();
    znode.record.status = Status::Progress;
    assert_eq!(judged("west-2", &moving), ["orders: east-1 of site east is taking over"]);
    moving.leader_znodes[0].as_mut().unwrap().record.status = Status::Ready;
    let decision = moving.elected.as_mut().unwrap();
    decision.record.slots[0].named = serde_json::from_value(named("west-1", 3)).unwrap();
    assert_eq!(judged("west-2", &moving), ["orders: east-1 of site east hands over to west-1 of site west"]);
    moving.leader_znodes[0] = None;
    assert_eq!(judged("west-2", &moving), ["orders: no member leads at the moment"]);

    let mut asked = snapshot(&["east-1", "east-2", "west-1", "west-2"]);
    let request = json!({
        "which": { "czxid": 9, "name": "r-0000000004" },
        "request": {
            "v": 1, "id": "1", "kind": "restart", "by": "ann@desk", "created_ms": 1,
            "state": { "state": "pending" },
        },
    });
    let (which, request) = (request["which"].clone(), request["request"].clone());
    asked.requests = vec![election_core::internals::record::FiledRequest {
        which: serde_json::from_value(which).unwrap(),
        request: serde_json::from_value(request).unwrap(),
    }];
    assert_eq!(judged("west-2", &asked), ["orders: request r-0000000004, a restart, is open"]);
}

#[test]
fn each_of_several_jobs_counts() {
    let orders = snapshot(&["east-1", "east-2", "west-1", "west-2"]);
    let bills = snapshot(&["west-1", "east-1"]);
    let why = judge("east-1", &[("orders", orders.clone()), ("bills", bills.clone())]).unwrap();
    assert_eq!(why, ["bills: east-1 is the last candidate of site east"]);
    // It is no member of the other job.
    assert_eq!(judge("east-2", &[("orders", orders), ("bills", bills)]), Some(Vec::new()));
}

/// The leader of one slot can't follow that of another.
#[test]
fn a_leader_of_another_slot_does_not_follow() {
    let mut two = snapshot(&["east-1", "east-2"]);
    let decision = &mut two.elected.as_mut().unwrap().record;
    let mut second = decision.slots[0].clone();
    second.named = serde_json::from_value(named("east-2", 2)).unwrap();
    decision.slots.push(second);
    two.leader_znodes.push(Some(leader_znode(&named("east-2", 2), 1)));
    assert_eq!(
        judged("east-1", &two),
        ["orders: east-1 of site east leads, and no other member may lead (east-2: it leads)"]
    );
    two.members.push(
        serde_json::from_value(
            json!({ "v": 1, "member": "west-1", "site": "west", "ballot": "x-0000000003" }),
        )
        .unwrap(),
    );
    assert_eq!(judged("east-1", &two), NONE);
}
