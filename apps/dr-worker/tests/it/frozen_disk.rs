//! The disk of the state directory hangs. Nothing waits for it before it has reported.

use std::path::Path;

use crate::support::{
    frozen::Disk,
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::Value as Json;

#[test]
fn a_leader_that_ends_or_hands_over_does_not_wait_for_its_disk() {
    let Some(disk) = Disk::new() else { return };
    let stage = Stage::new("/frozen-leader");
    let east = stage.worker("east-1", "east", &[&on(&disk)]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let _thaw = Thaw(&disk);
    disk.freeze();
    east.signal(Signal::SIGHUP);
    let is_done = |line: &str| {
        line.starts_with("dr_config_reloads_total") && line.contains("done") && line.ends_with(" 1")
    };
    until("the reload is done", || east.http("GET", "/metrics").1.lines().any(is_done));
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    assert!(disk.thaw());
    until("east-1 is next in line", || successors(&stage.json(&["list"]))[0] == "east-1");
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    disk.freeze();
    east.signal(Signal::SIGTERM);
    until("west-1 leads again", || leads(&west));
}

#[test]
fn a_member_whose_disk_hangs_gives_leadership_on() {
    let Some(disk) = Disk::new() else { return };
    let stage = Stage::new("/frozen-standby");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&on(&disk)]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let _thaw = Thaw(&disk);
    disk.freeze();
    let refused = stage.operator(&["switchover", "--to", "west-1", "--wait"]);
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
    until("east-1 leads again", || leads(&east));
    let (list, hangs) = (stage.json(&["list"]), format!("the disk of {}", shown(&disk.path().join("state"))));
    assert!(list["exclusions"][0]["reason"].as_str().is_some_and(|why| why.contains(&hangs)), "{list:#}");
    until("west-1 is not ready", || west.code("/readiness") == 503);
    assert!(west.http("GET", "/readiness").1.contains(&shown(disk.path())));
    let list = stage.json(&["list"]);
    let named = |problem: &Json| {
        problem["kind"] == "starts-no-job"
            && problem["sentence"] == format!("west-1: {hangs} hangs: it has not answered within 3s")
    };
    assert!(list["problems"].as_array().is_some_and(|all| all.iter().any(named)), "{list:#}");
    let cluster: Json = serde_json::from_str(&east.http("GET", "/cluster").1).expect("JSON");
    assert!(cluster["problems"].as_array().is_some_and(|all| all.iter().any(named)), "{cluster:#}");
    let findings = stage.operator(&["doctor", "--output", "json"]).stdout;
    assert!(findings.contains("member-state-dir") && findings.contains(&hangs), "{findings}");
    assert!(disk.thaw());
    until("west-1 is ready", || west.code("/readiness") == 200);
}

#[test]
fn a_check_that_its_disk_holds_up_has_failed() {
    let Some(disk) = Disk::new() else { return };
    let stage = Stage::new("/frozen-check");
    let liveness = "job.orders.liveness={ kind = \"exec\", command = [\"true\"], interval = \"1s\", timeout = \"1s\", failures = 2 }";
    let east = stage.worker("east-1", "east", &[&on(&disk), liveness, "job.orders.restart.max=0"]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let _thaw = Thaw(&disk);
    disk.freeze();
    until("west-1 leads", || leads(&west));
    let metrics = east.http("GET", "/metrics").1;
    let failures = metrics.lines().find(|line| line.starts_with("dr_liveness_failures_total"));
    assert!(failures.is_some_and(|line| !line.ends_with(" 0")), "{failures:?}");
}

/// The setting of a worker that keeps its state there.
fn on(disk: &Disk) -> String {
    format!("node.state_dir={}", disk.path().join("state").display())
}

/// Thaws the disk before the workers are waited for, which can't end before.
struct Thaw<'a>(&'a Disk);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
