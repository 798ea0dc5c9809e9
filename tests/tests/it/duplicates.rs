//! A second process with the same id.

use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, SOON, Setup};

e2e::with_both_drivers!(
    a_second_worker_with_the_same_id_and_state_directory_is_refused_at_once,
    a_second_worker_with_the_same_id_elsewhere_is_refused_and_the_first_leads_on,
    a_worker_that_was_killed_is_back_without_waiting_for_its_session,
);

const TWO: [(&str, &str); 2] = [("east-1", "east"), ("west-1", "west")];

async fn a_second_worker_with_the_same_id_and_state_directory_is_refused_at_once(driver: Driver) {
    let mut cluster = Cluster::of(Setup::new(driver).workers(&TWO)).await;
    let leader = cluster.settled().await;
    let pid = cluster.worker("east-1").pid().to_string();
    let said =
        cluster.as_worker("east-1").run(&["--set", "http.listen=127.0.0.1:0", "run"]).await.with_code(75);
    said.complains_of(&["node.id", "east-1.lock", &format!("process {pid}")]);
    untouched(cluster, leader).await;
}

async fn a_second_worker_with_the_same_id_elsewhere_is_refused_and_the_first_leads_on(driver: Driver) {
    let mut cluster = Cluster::of(Setup::new(driver).workers(&TWO)).await;
    let leader = cluster.settled().await;
    let elsewhere = format!("node.state_dir={}", cluster.dir().join("elsewhere").display());
    let options = ["--set", "http.listen=127.0.0.1:0", "--set", &elsewhere, "run"];
    let said = cluster.as_worker("east-1").run(&options).await.with_code(75);
    said.complains_of(&["node.id", "east-1", "nodes/east-1"]);
    untouched(cluster, leader).await;
}

async fn untouched(mut cluster: Cluster, leader: e2e::Leader) {
    assert_eq!(leader.member, "east-1");
    cluster.standing_by(1).await;
    assert_eq!(cluster.leader().await.unwrap(), leader);
    let actings = cluster.journal().actings();
    assert_eq!((actings.len(), actings[0].mains.len()), (1, 1), "{actings:?}");
    cluster.end().await;
}

async fn a_worker_that_was_killed_is_back_without_waiting_for_its_session(driver: Driver) {
    // The session is so long that a wait for its end would show.
    let setup = Setup::new(driver).workers(&[("east-1", "east")]).set("zookeeper.session_timeout", "10s");
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    let killed = Instant::now();
    cluster.worker("east-1").kill();
    cluster.worker("east-1").start();
    let second = cluster.successor_of(&first, SOON).await;
    let took = killed.elapsed();
    println!("{driver}: leads again {took:?} after SIGKILL");
    cluster.acts(second.token).await;
    // Its lock has proved that no process of the former one lived, so its znodes were removed.
    assert!(took < Duration::from_secs(9), "it waited for the old session: {took:?}");
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
