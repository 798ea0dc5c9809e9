//! `can-restart` and `/can-restart` on real workers: what they permit costs no job and no site its last candidate.

use crate::support::{
    Running,
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn reasons(worker: &Running) -> Vec<String> {
    let body: Value = serde_json::from_str(&worker.http("GET", "/can-restart").1).expect("JSON");
    let reasons = body["reasons"].as_array().cloned().unwrap_or_default();
    reasons.iter().map(|reason| reason["sentence"].as_str().unwrap_or_default().to_owned()).collect()
}

fn in_line(stage: &Stage, count: usize) -> bool {
    successors(&stage.json(&["list"])).as_array().is_some_and(|line| line.len() == count)
}

/// Two workers in each of two sites are restarted one after the other, each when it may be.
#[test]
fn a_rolling_restart_asks_before_each_step() {
    let stage = Stage::new("/rolling");
    let ids = [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")];
    let mut workers: Vec<_> = ids.iter().map(|(id, site)| stage.worker(id, site, &[])).collect();
    for at in 0..ids.len() {
        let (id, site) = ids[at];
        until("it may be taken down", || stage.operator(&["can-restart", id]).code == Some(0));
        assert_eq!(workers[at].code("/can-restart"), 200);
        workers[at].signal(Signal::SIGTERM);
        assert!(workers[at].ended().success());
        // Its neighbour is the last one of the site now, whatever becomes of the leader.
        let neighbour = at ^ 1;
        let last = format!("orders: {} is the last candidate of site {site}", ids[neighbour].0);
        until("its neighbour is needed", || reasons(&workers[neighbour]).contains(&last));
        assert_eq!(workers[neighbour].code("/can-restart"), 503);
        stage.operator(&["can-restart", ids[neighbour].0]).assert(75, &["may not be taken down now", &last]);
        workers[at] = stage.worker(id, site, &[]);
        until("it is in line", || in_line(&stage, 3));
    }
}

#[test]
fn what_would_be_lost_is_named() {
    let stage = Stage::new("/needed");
    let jobs = ["job.bills.command=[\"/bin/sh\",\"-c\",\"sleep 1000\"]", "job.bills.stop_timeout=1s"];
    let east = stage.worker("east-1", "east", &jobs);
    until("east-1 leads", || east.code("/leader?job=orders") == 200 && east.code("/leader?job=bills") == 200);
    let alone = stage.operator(&["can-restart", "east-1"]);
    for job in ["bills", "orders"] {
        let leads = format!("{job}: east-1 of site east leads, and no other member may lead");
        alone.assert(75, &[&leads, &format!("{job}: east-1 is the last candidate of site east")]);
    }
    let second = stage.worker("east-2", "east", &[]);
    until("it is in line", || successors(&stage.json(&["list", "--job", "orders"])) == json!(["east-2"]));
    // It takes part in one of the two jobs.
    assert_eq!(reasons(&second), [""; 0]);
    assert!(reasons(&east).iter().all(|why| why.starts_with("bills: ")) && reasons(&east).len() == 2);
    // By default it is the worker on this node that is asked about.
    let own = stage.operator(&["can-restart", "--set", "node.id=east-2"]);
    assert_eq!(own.assert(0, &[]).stdout, "east-2 may be taken down now\n");
    let told = stage.json(&["can-restart", "east-2"]);
    assert_eq!(told, json!({ "member": "east-2", "can_restart": true, "reasons": [] }));
    stage.operator(&["can-restart", "north-1"]).assert(64, &["unknown member north-1"]);

    stage.operator(&["pause", "--job", "orders"]).assert(0, &[]);
    let manual = "orders: east-1 of site east leads, and the mode is manual";
    stage.operator(&["can-restart", "east-1"]).assert(75, &[manual]);
    assert_eq!(second.code("/can-restart"), 200);
}

/// A member that its check reports as unfit is no successor, and no loss.
#[test]
fn an_unhealthy_member_does_not_count() {
    let stage = Stage::new("/unfit");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let sick = "job.orders.fitness={kind=\"exec\",command=[\"/bin/false\"],interval=\"500ms\",timeout=\"500ms\",failures=1}";
    let west = stage.worker("west-1", "west", &[sick]);
    let why = "no other member may lead (west-1: ";
    until("the check has failed", || {
        reasons(&east).iter().any(|reason| reason.contains(why) && reason.contains("fitness: "))
    });
    assert_eq!(west.code("/can-restart"), 200);
}

/// A leader that is serviced hands over first; its restarts are no failures, and it stays out until the order ends.
#[test]
fn a_member_in_maintenance_hands_over_and_stays_out() {
    let stage = Stage::new("/maintenance");
    // No quiet time of the policy holds it up.
    let slow = ["policy.failback_after=1h", "policy.min_tenure=1h"];
    let mut east = stage.worker("east-1", "east", &slow);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &slow);
    until("west-1 is in line", || in_line(&stage, 1));
    stage.operator(&["maintenance", "esat-1"]).assert(64, &["unknown member esat-1", "east-1, west-1"]);

    let on = stage.operator(&["maintenance", "east-1", "--reason", "new disk"]);
    assert_eq!(on.assert(0, &[]).stdout, "orders: mode auto, east-1 is in maintenance (new disk)\n");
    until("west-1 leads", || leads(&west) && !leads(&east));
    let list = stage.json(&["list"]);
    assert_eq!(list["slots"][0]["decision"]["given"]["cause"], "standing-order");
    let order = &list["maintenance"][0];
    assert_eq!(
        (&order["member"], &order["site"], &order["reason"]),
        (&json!("east-1"), &json!("east"), &json!("new disk"))
    );
    assert!(stage.operator(&["list"]).stdout.contains("east-1 is in maintenance (new disk)"));
    let explained = stage.operator(&["explain"]).stdout;
    assert!(explained.contains("it is in maintenance: new disk"), "{explained}");
    // It is no candidate, so nothing is lost with it, and no elector names it.
    until("it may be taken down", || stage.operator(&["can-restart", "east-1"]).code == Some(0));
    stage
        .operator(&["switchover", "--to", "east-1", "--wait"])
        .assert(1, &["it is in maintenance: new disk"]);
    stage.operator(&["failover", "--to", "east-1", "--wait"]).assert(1, &["it is in maintenance: new disk"]);

    east.kill_with_guards();
    until("it is gone", || stage.json(&["list"])["members"].as_array().is_some_and(|all| all.len() == 1));
    let east = stage.worker("east-1", "east", &slow);
    until("it is back", || east.code("/standby") == 200);
    let list = stage.json(&["list"]);
    assert_eq!(successors(&list), json!([]));
    for empty in ["failures", "site_failures", "failed_sites", "exclusions"] {
        assert_eq!(list[empty], json!([]), "{empty}");
    }
    let again = stage.json(&["maintenance", "east-1"]);
    assert_eq!((&again["changed"], &again["maintenance"][0]["reason"]), (&json!(false), &json!("new disk")));
    assert_eq!(stage.operator(&["maintenance", "east-1", "--off"]).stdout, "orders: mode auto\n");
    until("east-1 is in line", || successors(&stage.json(&["list"])) == json!(["east-1"]));
    until("west-1 leads", || leads(&west));
}

/// Nothing else may lead: it stays, and its loss as the leader is an expected one.
#[test]
fn the_loss_of_a_leader_in_maintenance_is_no_failure() {
    let stage = Stage::new("/maintenance-alone");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let sick = "job.orders.fitness={kind=\"exec\",command=[\"/bin/false\"],interval=\"500ms\",timeout=\"500ms\",failures=1}";
    let west = stage.worker("west-1", "west", &[sick]);
    until("west-1 is unfit", || {
        stage.json(&["list"])["members"][1]["health"]
            .as_str()
            .is_some_and(|health| health.contains("fitness"))
    });
    stage.operator(&["maintenance", "east-1"]).assert(0, &[]);
    until("the elector says so", || {
        stage
            .operator(&["explain"])
            .stdout
            .contains("east-1 leads on though it may not (it is in maintenance)")
    });
    east.kill_with_guards();
    until("west-1 decides", || stage.json(&["list"])["elector"] == "west-1");
    let north = stage.worker("east-2", "east", &[]);
    until("east-2 leads", || leads(&north));
    let list = stage.json(&["list"]);
    assert_eq!(list["slots"][0]["decision"]["given"]["cause"], "leader-shutdown");
    assert_eq!((&list["failures"], &list["site_failures"]), (&json!([]), &json!([])));
    drop(west);
}
