use std::time::Duration;

use election_admin::{Decision, LeaderZnode};
use election_core::{
    Paths,
    config::{Policy, SiteId},
    internals::{
        calendar::Windows,
        record::{
            Control, Current, FiledRequest, Outgoing, Record as _, RequestKind, RequestRef, Slot, Target,
        },
    },
    status::Ballot,
};
use serde_json::json;
use strategies::{FairShare, PolicySpec, spec::Inputs};

use super::*;

const NOW_MS: u64 = 1_793_889_000_000;
const MINUTE_MS: u64 = 60_000;

fn job(name: &str) -> CountedJob {
    let sites = ["east", "west"].map(|site| SiteId::new(site).unwrap());
    CountedJob {
        name: name.to_owned(),
        paths: Paths::new("/dr", name).unwrap(),
        who: PolicySpec::for_sites(sites),
        policy: Policy::default().with(|policy| policy.min_tenure = Duration::from_secs(60)),
        balance: true,
    }
}

/// An election of east-1, east-2 and west-1, which east-1 has led for an hour.
fn standing() -> Snapshot {
    let ballot = |number: u32| format!("guid-{number:010}");
    let member = |(number, (id, site)): (u32, (&str, &str))| {
        let record = json!({ "v": 1, "member": id, "site": site, "ballot": ballot(number) });
        MemberRecord::decode("/member", record.to_string().as_bytes()).unwrap()
    };
    let members = [("east-1", "east"), ("east-2", "east"), ("west-1", "west")];
    let named = json!({ "member": "east-1", "ballot": ballot(1), "site": "east" });
    let since = NOW_MS - 60 * MINUTE_MS;
    let elected = json!({
        "v": 1, "term": 1, "decided_by": "east-1",
        "slots": [{
            "named": named, "given": { "term": 1, "cause": "startup", "sentence": "", "decided_at_ms": since },
        }],
    });
    let current = json!({
        "v": 1, "member": "east-1", "ballot": ballot(1), "site": "east", "term": 1, "status": "READY",
        "since_ms": since,
    });
    let leader_znode = LeaderZnode {
        record: Current::decode("/current", current.to_string().as_bytes()).unwrap(),
        version: 1,
        czxid: 7,
    };
    let elected = Elected::decode("/elected", elected.to_string().as_bytes()).unwrap();
    let mut snapshot = Snapshot::default();
    snapshot.layout = Layout::Elector;
    snapshot.members = (1..).zip(members).map(member).collect();
    snapshot.lowest = Some(Ballot::new(ballot(1)).unwrap());
    snapshot.elected = Some(Decision { record: elected, version: 0, mzxid: 7 });
    snapshot.leader_znodes = vec![Some(leader_znode)];
    snapshot
}

fn seen(snapshot: Snapshot) -> Election {
    let snapshots = BTreeMap::from([("orders".to_owned(), snapshot)]);
    let mut survey = survey(&[job("orders")], &snapshots, &RefusedMoves::new(), NOW_MS);
    assert_eq!(survey.elections.len(), 1, "{survey:?}");
    survey.elections.remove(0)
}

fn ids(members: &[&str]) -> BTreeSet<MemberId> {
    members.iter().map(|id| MemberId::new(*id).unwrap()).collect()
}

fn seen_by(change: impl FnOnce(&mut CountedJob), others: &[(&str, Snapshot)]) -> Election {
    let mut job = job("orders");
    change(&mut job);
    let mut snapshots = BTreeMap::from([("orders".to_owned(), standing())]);
    snapshots.extend(others.iter().map(|(name, snapshot)| ((*name).to_owned(), snapshot.clone())));
    survey(&[job], &snapshots, &RefusedMoves::new(), NOW_MS).elections.remove(0)
}

#[test]
fn it_goes_by_the_leader_of_another_job() {
    let beside = |place: &str, strength: &str| {
        let text = json!({ "pipeline": [{ "stage": "with-job", "job": "db", "place": place, "strength": strength }] });
        let text = text.as_object().unwrap().clone();
        move |job: &mut CountedJob| job.who = PolicySpec::read(&text, Inputs::ALL).unwrap()
    };
    let fit =
        |place, strength, others: &[(&str, Snapshot)]| seen_by(beside(place, strength), others).fit.unwrap();
    // It is led by east-1.
    let db = [("db", standing())];
    assert_eq!(fit("member", "prefer", &db), ids(&["east-1"]));
    assert_eq!(fit("site", "prefer", &db), ids(&["east-1", "east-2"]));
    assert_eq!(fit("site", "require", &db), ids(&["east-1", "east-2"]));
    // The elector is about to move it.
    assert_eq!(fit("member", "apart", &db), ids(&[]));
    assert!(seen_by(beside("site", "prefer"), &[]).stays, "it is not known where db is led");
}

#[test]
fn to_another_site_it_moves_only_as_the_elector_would() {
    let anywhere = |job: &mut CountedJob| job.who = PolicySpec::default();
    assert_eq!(seen_by(anywhere, &[]).fit.unwrap(), ids(&["east-1", "east-2", "west-1"]));
    let confirmed = |job: &mut CountedJob| {
        anywhere(job);
        job.policy.confirm = Confirm::CrossSite;
    };
    assert_eq!(seen_by(confirmed, &[]).fit.unwrap(), ids(&["east-1", "east-2"]));
    // It is Thursday, 14:30.
    for (window, fit) in [
        ("Thu 14:00-15:00", &["east-1", "east-2", "west-1"][..]),
        ("Thu 15:00-16:00", &["east-1", "east-2"][..]),
    ] {
        let within = |job: &mut CountedJob| {
            anywhere(job);
            job.policy.failback_windows = Windows::read(&[window]).unwrap();
        };
        assert_eq!(seen_by(within, &[]).fit.unwrap(), ids(fit), "{window}");
    }
    let mut snapshot = standing();
    snapshot.control.stay = vec![1];
    assert!(seen(snapshot).stays, "an operator has ordered it");
}

#[test]
fn it_can_move_within_its_site() {
    let election = seen(standing());
    assert_eq!(election.leader, MemberId::new("east-1").ok());
    assert_eq!(election.fit, Some(ids(&["east-1", "east-2"])));
    assert!(!election.stays);
}

#[test]
fn whom_the_elector_refused_is_not_asked_for_again() {
    let snapshots = BTreeMap::from([("orders".to_owned(), standing())]);
    let refused =
        RefusedMoves::from([(("orders".to_owned(), MemberId::new("east-2").unwrap()), NOW_MS + MINUTE_MS)]);
    let survey = survey(&[job("orders")], &snapshots, &refused, NOW_MS);
    assert_eq!(survey.elections[0].fit, Some(ids(&["east-1"])));
}

#[test]
fn it_stays_while_anything_speaks_against_a_move() {
    type Change = fn(&mut Snapshot);
    let changes: [(&str, Change); 7] = [
        ("manual", |s| s.control = Control::default().with(|control| control.mode = Mode::Manual)),
        ("an open request", |s| {
            let request = election_admin::new_request(
                RequestKind::Switchover,
                Outgoing::Only,
                Target::Any,
                false,
                None,
                "me".to_owned(),
            );
            let which = RequestRef { czxid: 1, name: "r-1".to_owned() };
            s.requests.push(FiledRequest { which, request });
        }),
        ("no leader znode", |s| s.leader_znodes = vec![None]),
        ("not ready", |s| s.leader_znodes[0].as_mut().unwrap().record.status = Status::Progress),
        ("another leader", |s| {
            s.leader_znodes[0].as_mut().unwrap().record.ballot = Ballot::new("guid-0000000002").unwrap();
        }),
        ("holds", |s| s.members[0].holds = Some("a backup runs".to_owned())),
        ("tenure", |s| s.leader_znodes[0].as_mut().unwrap().record.since_ms = NOW_MS - MINUTE_MS / 2),
    ];
    for (why, change) in changes {
        let mut snapshot = standing();
        change(&mut snapshot);
        let election = seen(snapshot);
        assert!(election.stays, "{why}");
        // It counts all the same.
        assert_eq!(election.leader, MemberId::new("east-1").ok(), "{why}");
    }
}

#[test]
fn without_a_leader_it_is_the_electors_business() {
    let mut snapshot = standing();
    snapshot.elected.as_mut().unwrap().record.slots[0].named = None;
    let snapshots = BTreeMap::from([("orders".to_owned(), snapshot)]);
    let survey = survey(&[job("orders")], &snapshots, &RefusedMoves::new(), NOW_MS);
    assert_eq!(survey.elections, []);
    assert_eq!(survey.nodes.len(), 3);
}

#[test]
fn who_does_not_stand_or_is_excluded_gets_nothing() {
    let mut snapshot = standing();
    snapshot.members[1].withdrawn = Some("it is being replaced".to_owned());
    assert_eq!(seen(snapshot).fit, Some(ids(&["east-1"])));

    let mut snapshot = standing();
    let exclusion = json!({
        "member": "east-2", "ballot": "guid-0000000002", "until_ms": NOW_MS + 1, "reason": "it failed",
    });
    let exclusion = serde_json::from_value(exclusion).unwrap();
    snapshot.elected.as_mut().unwrap().record.exclusions = vec![exclusion];
    assert_eq!(seen(snapshot.clone()).fit, Some(ids(&["east-1"])));
    snapshot.elected.as_mut().unwrap().record.exclusions[0].until_ms = NOW_MS;
    assert_eq!(seen(snapshot).fit, Some(ids(&["east-1", "east-2"])));
}

#[test]
fn a_queue_counts_and_stays() {
    let mut snapshot = standing();
    snapshot.layout = Layout::Queue;
    snapshot.elected = None;
    let election = seen(snapshot);
    assert_eq!((election.leader, election.stays), (MemberId::new("east-1").ok(), true));
}

#[test]
fn several_slots_count_and_stay() {
    let mut snapshot = standing();
    let elected = &mut snapshot.elected.as_mut().unwrap().record;
    let second = snapshot.members[2].named();
    let given = elected.slots[0].given.clone();
    elected.slots.push(Slot::new(Some(second), given));
    let snapshots = BTreeMap::from([("orders".to_owned(), snapshot)]);
    let survey = survey(&[job("orders")], &snapshots, &RefusedMoves::new(), NOW_MS);
    let names: Vec<_> = survey.elections.iter().map(|e| (e.name.as_str(), e.stays)).collect();
    assert_eq!(names, [("orders#0", true), ("orders#1", true)]);
}

#[test]
fn three_jobs_on_one_node_become_two_and_one() {
    let jobs = ["a", "b", "c"].map(job);
    let mut snapshots: BTreeMap<_, _> = jobs.iter().map(|job| (job.name.clone(), standing())).collect();
    let first = survey(&jobs, &snapshots, &RefusedMoves::new(), NOW_MS);
    let plan = FairShare { at_most: 5 }.plan(&first.nodes, &first.elections);
    let moves: Vec<_> = plan.moves.iter().map(|m| (m.election.as_str(), m.to.as_str())).collect();
    assert_eq!(moves, [("a", "east-2")], "west is another site: {plan:?}");

    // Once it has moved, nothing more does.
    let moved = snapshots.get_mut("a").unwrap();
    let (named, elected) = (moved.members[1].named(), &mut moved.elected.as_mut().unwrap().record);
    let leader_znode = &mut moved.leader_znodes[0].as_mut().unwrap().record;
    (leader_znode.member, leader_znode.ballot) = (named.member.clone(), named.ballot.clone());
    elected.slots[0].named = Some(named);
    let then = survey(&jobs, &snapshots, &RefusedMoves::new(), NOW_MS);
    assert_eq!(FairShare { at_most: 5 }.plan(&then.nodes, &then.elections).moves, []);
}
