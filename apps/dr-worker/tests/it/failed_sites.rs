//! Sites that have failed as a whole, on a real ZooKeeper server.

use std::fs;

use crate::support::{
    stage::{Stage, leads, successors},
    until,
};
use serde_json::json;

/// Quick to go back, so that it is told from who may not.
const QUICK: [&str; 3] = ["policy.auto_moves=all", "policy.failback_after=1s", "policy.min_tenure=0s"];

#[test]
fn an_operator_says_that_a_site_has_failed_and_the_second_time_it_is_not_gone_back_to() {
    let stage = Stage::new("/failed-site");
    let east = stage.worker("east-1", "east", &QUICK);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &QUICK);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));

    for times in 1..=2 {
        let failed = stage.operator(&["fail-site", "east", "--reason", "flood", "--yes"]);
        failed.assert(0, &[]);
        assert_eq!(failed.stdout, "orders: mode auto, site east has failed\n");
        until("west-1 leads", || leads(&west) && !leads(&east));
        let list = stage.json(&["list"]);
        assert_eq!(list["slots"][0]["decision"]["given"]["cause"], "site-failed", "{list:#}");
        let sentence = list["slots"][0]["decision"]["given"]["sentence"].as_str().unwrap_or_default();
        assert!(
            sentence.contains("site east of east-1 has failed (declared by ") && sentence.contains("flood")
        );
        assert_eq!(list["failed_sites"][0]["site"], "east", "{list:#}");
        until("the failure is remembered", || {
            stage.json(&["list"])["site_failures"].as_array().is_some_and(|all| all.len() == times)
        });
        let mended = stage.operator(&["fail-site", "east", "--off"]);
        assert_eq!(mended.stdout, "orders: mode auto\n");
        until("it is over", || stage.json(&["list"])["site_failures"][times - 1]["over_at_ms"].is_u64());
        if times == 1 {
            until("east-1 leads again", || leads(&east) && !leads(&west));
        }
    }

    // Who asks why, is told; an acknowledgement lets it back.
    let explained = stage.operator(&["explain"]);
    explained.assert(0, &[]);
    assert!(explained.stdout.contains("site east has failed 2 times"), "{}", explained.stdout);
    until("west-1 leads", || leads(&west));
    let ack = stage.operator(&["ack", "--sites"]);
    assert!(ack.stdout.contains("2 failures of site east"), "{}", ack.stdout);
    until("east-1 leads again", || leads(&east) && !leads(&west));
}

#[test]
fn most_of_its_own_members_say_that_a_site_has_failed() {
    let stage = Stage::new("/unwell-site");
    let uplink = stage.dir.path().join("uplink");
    fs::write(&uplink, "").unwrap();
    let check = format!(
        "node.site_check={{ kind = \"exec\", command = [\"test\", \"-e\", {:?}], interval = \"100ms\", failures = 2 }}",
        uplink.display().to_string()
    );
    let settings = [&QUICK[..], &[&check]].concat();
    let east_1 = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east_1));
    let east_2 = stage.worker("east-2", "east", &settings);
    let west = stage.worker("west-1", "west", &QUICK);
    until("both are in line", || successors(&stage.json(&["list"])) == json!(["west-1", "east-2"]));

    fs::remove_file(&uplink).unwrap();
    until("west-1 leads", || leads(&west) && !leads(&east_1) && !leads(&east_2));
    let list = stage.json(&["list"]);
    assert_eq!(list["slots"][0]["decision"]["given"]["cause"], "site-failed", "{list:#}");
    let why = list["failed_sites"][0]["why"].as_str().unwrap_or_default();
    assert!(why.starts_with("2 of its 2 members say so: the probe ended"), "{list:#}");

    // An operator knows better than they do, until they agree.
    let unfailed = stage.operator(&["fail-site", "east", "--off"]);
    assert!(
        unfailed.stderr.contains("this is ignored until they report it as healthy"),
        "{}",
        unfailed.stderr
    );
    until("a member of east leads again", || leads(&east_1) || leads(&east_2));
    let list = stage.json(&["list"]);
    assert_eq!(list["failed_sites"], json!([]), "{list:#}");
    assert_eq!(list["unwell_sites"][0]["site"], "east", "{list:#}");
    let told = stage.operator(&["list"]).stdout;
    assert!(
        told.contains("site east counts as healthy (cleared by ")
            && told.contains("2 of its 2 members say so"),
        "{told}"
    );

    fs::write(&uplink, "").unwrap();
    until("they agree", || stage.json(&["list"])["unwell_sites"] == json!([]));
    fs::remove_file(&uplink).unwrap();
    until("west-1 leads", || leads(&west) && !leads(&east_1) && !leads(&east_2));
}

#[test]
fn what_fails_in_all_sites_moves_nobody() {
    let stage = Stage::new("/common-cause");
    let shared = stage.dir.path().join("shared");
    fs::write(&shared, "").unwrap();
    let check = format!(
        "node.site_check={{ kind = \"exec\", command = [\"test\", \"-e\", {:?}], interval = \"100ms\", failures = 2 }}",
        shared.display().to_string()
    );
    let settings = [&QUICK[..], &[&check]].concat();
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &settings);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    let drained = stage.operator(&["drain", "west"]);
    drained.assert(0, &[]);
    fs::remove_file(&shared).unwrap();
    until("both say so", || {
        stage.json(&["list"])["unwell_sites"].as_array().is_some_and(|all| all.len() == 2)
    });
    stage.operator(&["drain", "west", "--off"]).assert(0, &[]);
    // Whatever was to come of it would have come with the order.
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    let list = stage.json(&["list"]);
    assert_eq!((&list["term"], &list["failed_sites"]), (&json!(1), &json!([])), "{list:#}");
    until("east-1 leads alone", || leads(&east) && !leads(&west));
    let told = stage.operator(&["list"]).stdout;
    assert!(told.contains("site east counts as healthy, because all sites have failed"), "{told}");
}
