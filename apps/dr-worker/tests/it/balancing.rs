//! The balancer, and what the policy of a job allows.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{Running, stage::Stage, until};

/// Hours that do not begin for a long time.
fn later() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let hour = (now / 3600 + 12) % 24;
    format!("[\"{hour:02}:10-{hour:02}:50\"]")
}

/// Of three jobs it moves the one that may move, though it would move another one first.
#[test]
fn outside_of_its_failback_windows_a_job_is_not_moved_to_another_site_for_even_shares() {
    let stage = Stage::new("/balance-windows");
    let windows = ["bills", "errands"].map(|job| format!("job.{job}.policy.failback_windows={}", later()));
    let settings = [
        "policy.sites=[]",
        "policy.balance=true",
        "policy.min_tenure=0s",
        "balance.interval=300ms",
        "job.bills.command=[\"sleep\", \"600\"]",
        "job.bills.stop_timeout=1s",
        "job.errands.command=[\"sleep\", \"600\"]",
        "job.errands.stop_timeout=1s",
        &windows[0],
        &windows[1],
    ];
    let leads = |worker: &Running, job: &str| worker.code(&format!("/leader?job={job}")) == 200;
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads all", || ["bills", "errands", "orders"].iter().all(|job| leads(&east, job)));
    let west = stage.worker("west-1", "west", &settings);
    until("west-1 leads one", || leads(&west, "orders"));
    for job in ["bills", "errands"] {
        assert!(leads(&east, job), "{job}");
        assert_eq!(stage.json(&["list", "--job", job])["requests"], json!([]), "{job}");
    }
}
