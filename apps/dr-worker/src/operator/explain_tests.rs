//! The examples of docs/explain.md are what is printed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use election_admin::{Decision, LeaderZnode, Snapshot};
use election_core::{
    internals::record::Elected,
    status::{Reason, Skipped},
};
use serde_json::json;

use super::{explain, simulate};
use crate::{
    config::{OperatorConfig, Sources},
    view::{Explained, Simulated, WhatIf},
};

/// 2026-11-05T14:30:00Z.
const NOW_MS: u64 = 1_793_889_000_000;
const MINUTE: u64 = 60_000;

/// west-1 leads for twenty minutes, since east was lost; east has come back.
fn after_an_outage() -> Snapshot {
    let ballot = |number: u32| format!("x-{number:010}");
    let named = |member: &str, site: &str, number| json!({ "member": member, "site": site, "ballot": ballot(number) });
    let member = |member: &str, site: &str, number| {
        let mut record = named(member, site, number);
        record["v"] = json!(1);
        record
    };
    let mut sick = member("east-2", "east", 8);
    sick["health"] = json!({ "state": "unhealthy", "reason": "the disk is full" });
    let members =
        [member("west-1", "west", 3), member("west-2", "west", 4), member("east-1", "east", 7), sick];
    let elected: Elected = serde_json::from_value(json!({
        "v": 1, "term": 2, "decided_by": "west-1",
        "slots": [{
            "named": named("west-1", "west", 3),
            "given": {
                "term": 2, "cause": "leader-lost", "decided_at_ms": NOW_MS - 20 * MINUTE,
                "sentence": "the leader znode of east-1 is gone: west-1 of site west leads, being first in line",
                "previous": named("east-1", "east", 1),
            },
            "succession": [named("east-1", "east", 7), named("west-2", "west", 4)],
            "attempts": [NOW_MS - 20 * MINUTE],
        }],
    }))
    .unwrap();
    let mut leader_znode = named("west-1", "west", 3);
    (leader_znode["v"], leader_znode["term"], leader_znode["status"]) = (json!(1), json!(2), json!("READY"));
    (leader_znode["since_ms"], leader_znode["ready_ms"]) =
        (json!(NOW_MS - 20 * MINUTE), json!(NOW_MS - 20 * MINUTE));
    let record = serde_json::from_value(leader_znode).unwrap();
    let members: Vec<_> = members.into_iter().map(|m| serde_json::from_value(m).unwrap()).collect();
    let mut snapshot = Snapshot::default();
    snapshot.lowest = Some(serde_json::from_value(json!(ballot(3))).unwrap());
    snapshot.members = members;
    snapshot.elected = Some(Decision { record: elected, version: 1, mzxid: 7 });
    snapshot.leader_znodes = vec![Some(LeaderZnode { record, version: 1, czxid: 1 })];
    snapshot
}

fn policies(more: &[&str]) -> OperatorConfig {
    let sets = [
        "zookeeper.connect=zk1:2181",
        "policy.sites=[\"east\", \"west\"]",
        "policy.auto_moves=all",
        "policy.failback_after=10m",
    ];
    let sets = sets.iter().chain(more).map(|set| (*set).to_owned()).collect();
    OperatorConfig::load(&Sources { sets, ..Sources::default() }).unwrap()
}

fn plain(text: &str) -> String {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The output of this command in the guide.
#[track_caller]
fn assert_in_guide(command: &str, text: &str) {
    let expected = format!("```console\n$ {command}\n{}\n```", plain(text));
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explain.md")).unwrap();
    assert!(guide.contains(&expected), "docs/explain.md should have:\n{expected}");
}

fn imagine(what_if: WhatIf, more: &[&str]) -> Simulated {
    let (now, then) = (policies(&[]), policies(more));
    Simulated::new("orders", &after_an_outage(), what_if, &now, &then, NOW_MS)
}

#[test]
fn the_example_of_explain_is_what_is_printed() {
    let mut explained = Explained::new("orders", &after_an_outage(), &policies(&[]), NOW_MS);
    assert!(!explained.other_line);
    explained.skipped = Some(Skipped {
        reason: Reason::BetterAfter,
        sentence: explained.next.sentence.replace("14:40", "14:38"),
    });
    assert_in_guide("dr-worker explain", &explain::describe(&explained));
}

#[test]
fn the_examples_of_simulate_are_what_is_printed() {
    let west = WhatIf { without_sites: vec!["west".parse().unwrap()], ..WhatIf::default() };
    let lost = imagine(west, &[]);
    assert_in_guide("dr-worker simulate --without-site west", &simulate::describe(&lost));
    let set = "policy.auto_moves=none";
    let stays = imagine(WhatIf { set: vec![set.to_owned()], ..WhatIf::default() }, &[set]);
    assert_in_guide("dr-worker simulate --set policy.auto_moves=none", &simulate::describe(&stays));
    let spare = WhatIf { without: vec!["west-2".parse().unwrap()], ..WhatIf::default() };
    assert_in_guide("dr-worker simulate --without west-2", &simulate::describe(&imagine(spare, &[])));
}
