//! `can-restart` and `/can-restart` on real workers: what they permit costs no job and no site its last candidate.

mod support;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{
    Running,
    stage::{Stage, leads, successors},
    until,
};

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
    stage.operator(&["can-restart", "north-1"]).assert(1, &["north-1 is no member of any job"]);

    stage.operator(&["pause", "--job", "orders"]).assert(0, &[]);
    let manual = "orders: east-1 of site east leads, and the mode is manual";
    stage.operator(&["can-restart", "east-1"]).assert(75, &[manual]);
    assert_eq!(second.code("/can-restart"), 200);
}

/// A member that a check finds unfit follows nobody, and is no loss.
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
