//! Jobs that rest while ZooKeeper is away: `on_pause = "freeze"`.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{Cluster, Driver, JOB, SOON, Setup, is_there, own_ensemble, state_of, wait_for, when_gone};
use zk_session::BootTime;
use zk_testkit::Network;

/// Long enough for servers to start on a busy machine within the lease.
const LONG: Duration = Duration::from_secs(40);

fn setup(driver: Driver) -> Setup {
    Setup::new(driver).set("policy.on_pause", "freeze").job_options(&["--offspring"])
}

/// Waits until all of these are stopped.
async fn are_stopped(pids: &BTreeSet<u32>) {
    wait_for("processes of the job that are all stopped", SOON, async || {
        let states: Vec<_> = pids.iter().map(|pid| state_of(*pid)).collect();
        // One of them was forked on the way and has ended.
        let stopped = states.iter().filter(|state| **state == Some('T')).count();
        let running = states.iter().flatten().filter(|state| !['T', 'Z', 'X'].contains(state)).count();
        if stopped > 1 && running == 0 { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
}

/// The job of a leadership acts now, and not only before.
async fn acts_on(cluster: &Cluster, token: u64) {
    let since = BootTime::now();
    wait_for("new stamps of the job", SOON, async || {
        let acting = cluster.journal().acting(token).ok_or("none")?;
        if acting.to > since { Ok(()) } else { Err(format!("the last one: {:?}", acting.to)) }
    })
    .await;
}

/// Nothing of the job acts for a while, which shows only with time: a slow machine makes no failure of it.
async fn rests(cluster: &Cluster, token: u64) {
    let last = cluster.journal().acting(token).unwrap().to;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cluster.journal().acting(token).unwrap().to, last, "it acts while it is stopped");
}

e2e::with_both_drivers!(
    a_job_that_is_cut_off_for_less_than_its_lease_rests_and_continues_under_the_same_token,
    a_job_that_stays_cut_off_is_killed_before_its_successor_begins,
    the_job_of_a_frozen_worker_rests_and_is_killed_before_its_successor_begins,
    a_restart_of_all_servers_within_the_lease_changes_nothing,
);

async fn a_job_that_is_cut_off_for_less_than_its_lease_rests_and_continues_under_the_same_token(
    driver: Driver,
) {
    if !Network::available_or_skip() {
        return;
    }
    let longest = Duration::from_secs(60);
    let ensemble =
        own_ensemble(|servers| servers.in_namespaces(true).session_timeouts(Duration::from_secs(1), longest))
            .await;
    let setup = setup(driver).on_hosts().set("zookeeper.session_timeout", "20s");
    let mut cluster = Cluster::on(ensemble, setup).await;
    let leader = cluster.settled().await;
    let pids = cluster.acts(leader.token).await.pids;

    cluster.worker(&leader.member).cut_off();
    are_stopped(&pids).await;
    rests(&cluster, leader.token).await;
    cluster.worker(&leader.member).plug_in();
    acts_on(&cluster, leader.token).await;
    let same = wait_for("the same leader", SOON, async || cluster.leader().await).await;
    assert_eq!(same, leader, "another term, token, process or restart");
    let status = cluster.worker(&leader.member).status().await.unwrap();
    assert_eq!(status["jobs"][JOB]["process"]["state"], "running", "{status:#}");
    let actings = cluster.journal().actings();
    assert!(actings.len() == 1 && !actings[0].was_asked, "{actings:?}");
    cluster.end().await;
}

async fn a_job_that_stays_cut_off_is_killed_before_its_successor_begins(driver: Driver) {
    if !Network::available_or_skip() {
        return;
    }
    let ensemble = own_ensemble(|servers| servers.in_namespaces(true)).await;
    let setup = setup(driver).on_hosts().set("zookeeper.session_timeout", "8s");
    let mut cluster = Cluster::on(ensemble, setup).await;
    let first = cluster.settled().await;
    let pids = cluster.acts(first.token).await.pids;

    cluster.worker(&first.member).cut_off();
    are_stopped(&pids).await;
    let second = cluster.successor_of(&first, SOON).await;
    let begun = cluster.acts(second.token).await.from;
    let left: Vec<_> = pids.iter().filter(|pid| is_there(**pid)).collect();
    assert!(left.is_empty(), "left of the first job: {left:?}");
    let first_acting = cluster.journal().acting(first.token).unwrap();
    println!("{driver}: rested for {:?} before the next one began", begun.duration_since(first_acting.to));
    assert!(!first_acting.was_asked, "a stopped job can't be asked");
    cluster.journal().assert_one_at_a_time();

    cluster.worker(&first.member).plug_in();
    cluster.standing_by(3).await;
    assert_eq!(cluster.leader().await.unwrap(), second);
    cluster.end().await;
}

async fn the_job_of_a_frozen_worker_rests_and_is_killed_before_its_successor_begins(driver: Driver) {
    let mut cluster = Cluster::of(setup(driver).set("zookeeper.session_timeout", "8s")).await;
    let first = cluster.settled().await;
    let pids = cluster.acts(first.token).await.pids;

    cluster.worker(&first.member).freeze();
    are_stopped(&pids).await;
    let gone = when_gone(pids);
    let second = cluster.successor_of(&first, SOON).await;
    let begun = cluster.acts(second.token).await.from;
    let gone = gone.join().unwrap();
    assert!(gone < begun, "the old job was there for {:?} after that", gone.duration_since(begun));
    assert!(!cluster.journal().acting(first.token).unwrap().was_asked);
    cluster.worker(&first.member).thaw();
    cluster.standing_by(3).await;
    cluster.journal().assert_one_at_a_time();
    assert_eq!(cluster.leader().await.unwrap(), second);
    cluster.end().await;
}

async fn a_restart_of_all_servers_within_the_lease_changes_nothing(driver: Driver) {
    let longest = Duration::from_secs(120);
    let ensemble = own_ensemble(|servers| servers.session_timeouts(Duration::from_secs(1), longest)).await;
    let setup = setup(driver).set("zookeeper.session_timeout", "60s");
    let mut cluster = Cluster::on(ensemble, setup).await;
    let leader = cluster.settled().await;
    let pids = cluster.acts(leader.token).await.pids;

    for server in 0..3 {
        cluster.ensemble().kill(server).await.unwrap();
    }
    are_stopped(&pids).await;
    wait_for("a status that shows it", SOON, async || {
        let worker = cluster.worker(&leader.member);
        let status = worker.status().await.ok_or("no status")?;
        let shown = &status["jobs"][JOB]["process"]["state"];
        let counted = worker.counted("dr_process_state", "state=\"frozen\"").await;
        match (shown.as_str(), counted, worker.code("/leader").await, worker.code("/liveness").await) {
            (Some("frozen"), 1, Some(503), Some(200)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    rests(&cluster, leader.token).await;
    for server in 0..3 {
        cluster.ensemble().start_server(server).await.unwrap();
    }
    cluster.ensemble().wait_serving(LONG).await.unwrap();
    acts_on(&cluster, leader.token).await;
    cluster.standing_by(3).await;
    assert_eq!(cluster.leader().await.unwrap(), leader, "another term, token, process or restart");
    assert_eq!(cluster.worker(&leader.member).code("/leader").await, Some(200));
    // A planned move is as orderly as ever.
    cluster.operator().done(&["switchover", "--to-site", "west", "--wait"]).await;
    assert!(cluster.journal().acting(leader.token).unwrap().was_asked);
    let second = cluster.successor_of(&leader, SOON).await;
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
