//! A worker with its own stage, the example `own-stage`: the stage decides the leader.

use std::time::Duration;

use e2e::{Cluster, Driver, Setup};

/// Session timeout + 2 s, twice, for a busy machine.
const MOVED_WITHIN: Duration = Duration::from_secs(16);

/// Three workers of one site, of which the host of east-2 is patched at any time.
fn setup() -> Setup {
    let pipeline = vec!["site-order", "patch-window", "incumbent", "oldest-ballot"];
    Setup::new(Driver::Native)
        .program("my-worker")
        .workers(&[("east-1", "east"), ("east-2", "east"), ("east-3", "east")])
        .not_started()
        .set("policy.on_leader_failure", "same-site-first")
        .set("policy.pipeline", pipeline)
        .set_for("east-2", "node.attributes.patch_window", "00:00-24:00")
}

#[tokio::test]
async fn leadership_goes_where_a_stage_of_another_crate_says() {
    let mut cluster = Cluster::of(setup()).await;
    // One after the other, to fix the order of their ballots.
    for id in ["east-1", "east-2", "east-3"] {
        cluster.worker(id).start();
        cluster.settled().await;
    }
    let first = cluster.first_leader().await;
    assert_eq!(first.member, "east-1");
    cluster.acts(first.token).await;

    let operator = cluster.operator().clone();
    let explained = operator.done(&["explain"]).await.stdout;
    assert!(explained.contains("patched at any time"), "{explained}");
    let told = operator.json(&["simulate", "--without", "east-1"]).await;
    assert_eq!(told["slots"][0]["would_lead"]["member"], "east-3", "{told:#}");

    // SIGKILL: its guard, the same program, ends the job.
    cluster.worker("east-1").kill();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    assert_eq!(second.member, "east-3");
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn a_program_without_the_stage_refuses_what_names_it() {
    let cluster = Cluster::of(setup()).await;
    let said = cluster.operator().of("dr-worker").run(&["explain"]).await.with_code(78);
    said.complains_of(&["policy.pipeline[1]: \"patch-window\" is not known; valid: ", "\"site-order\""]);
    cluster.end().await;
}
