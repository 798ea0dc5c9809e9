//! Outages of ZooKeeper, partial and complete.

use std::time::Duration;

use e2e::{Cluster, Driver, SOON, Setup, is_there, own_ensemble, wait_for};
use zk_session::BootTime;

e2e::with_both_drivers!(
    restarting_each_server_in_turn_moves_no_leadership,
    without_zookeeper_the_leader_stops_by_its_lease_and_comes_back_with_it,
);

/// The timeout of the sessions, unless it is set.
const SESSION: Duration = Duration::from_secs(6);

/// A returning server can need ten seconds to rejoin its ensemble.
const HEALED: Duration = Duration::from_secs(40);

async fn restarting_each_server_in_turn_moves_no_leadership(driver: Driver) {
    let ensemble = own_ensemble(|builder| builder).await;
    // A change of the servers' leader takes a second or two, and must fit into the lease.
    let setup = Setup::new(driver).set("zookeeper.session_timeout", "10s");
    let mut cluster = Cluster::on(ensemble, setup).await;
    let leader = cluster.settled().await;
    cluster.acts(leader.token).await;

    for server in 0..3 {
        let mode = cluster.ensemble().mode(server).await;
        cluster.ensemble().stop(server).await.unwrap();
        serving(&mut cluster, 2).await;
        assert_eq!(cluster.leader().await.unwrap(), leader, "without server {server} ({mode:?})");
        cluster.ensemble().start_server(server).await.unwrap();
        cluster.ensemble().wait_serving(HEALED).await.unwrap();
        serving(&mut cluster, 3).await;
        assert_eq!(cluster.leader().await.unwrap(), leader, "after server {server} ({mode:?})");
    }

    // Same term, token and process, and the process never stopped acting.
    cluster.standing_by(3).await;
    assert_eq!(cluster.leader().await.unwrap(), leader);
    let actings = cluster.journal().actings();
    assert_eq!(actings.len(), 1, "{actings:?}");
    assert_eq!(actings[0].mains.len(), 1, "{actings:?}");
    assert!(!actings[0].was_asked, "{actings:?}");
    // Leadership can still be moved: the watches have survived too.
    cluster.operator().done(&["switchover", "--to-site", "west", "--wait"]).await;
    let second = cluster.successor_of(&leader, SOON).await;
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// Waits until that many servers serve and every worker is connected to one of them.
async fn serving(cluster: &mut Cluster, servers: usize) {
    wait_for(&format!("{servers} servers, and workers that are connected"), HEALED, async || {
        let mut modes = Vec::new();
        for server in 0..3 {
            modes.extend(cluster.ensemble().mode(server).await);
        }
        let statuses = cluster.statuses().await;
        let active = statuses.iter().filter(|(_, status)| status["session"] == "active").count();
        if modes.len() == servers && active == 4 {
            Ok(())
        } else {
            Err(format!("{modes:?}, {active} active"))
        }
    })
    .await;
}

async fn without_zookeeper_the_leader_stops_by_its_lease_and_comes_back_with_it(driver: Driver) {
    let ensemble = own_ensemble(|builder| builder).await;
    let mut cluster = Cluster::on(ensemble, Setup::new(driver).set("zookeeper.connect_timeout", "2s")).await;
    let first = cluster.settled().await;
    let job = cluster.acts(first.token).await.pids;

    let began = BootTime::now();
    for server in 0..3 {
        cluster.ensemble().kill(server).await.unwrap();
    }
    let killed = BootTime::now();
    wait_for("the end of leadership", SOON, async || match cluster.leader().await {
        Ok(leader) => Err(format!("{leader:?}")),
        Err(_) => Ok(()),
    })
    .await;
    // The leader has given up leadership, and its job has not ended yet.
    wait_for("the end of the leader's job", SOON, async || {
        if job.iter().any(|pid| is_there(*pid)) { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .await;
    let acting = cluster.journal().acting(first.token).unwrap();
    let [longest, shortest] = [began, killed].map(|since| acting.to.duration_since(since));
    println!("{driver}: acted on for {shortest:?} without ZooKeeper");
    // The servers would have permitted another leader after the session timeout, not before. The lease is renewed each quarter of it.
    assert!(shortest < SESSION, "beyond its lease: {shortest:?}");
    assert!(longest > SESSION / 4, "it works on while its lease lasts: {longest:?}");
    assert!(acting.was_asked);

    // The workers keep running and report the state; the operator's commands end in time.
    for worker in cluster.workers() {
        let codes = (worker.code("/leader").await, worker.code("/liveness").await);
        assert_eq!(codes, (Some(503), Some(200)), "/leader and /liveness of {}", worker.id());
        assert_eq!(worker.code("/readiness").await, Some(503), "/readiness of {}", worker.id());
    }
    let asked = BootTime::now();
    cluster.operator().run(&["list"]).await.with_code(69).complains_of(&["127.0.0.1"]);
    let took = BootTime::now().duration_since(asked);
    assert!(took < SOON, "connect_timeout is 2 s, and it took {took:?}");

    for server in 0..3 {
        cluster.ensemble().start_server(server).await.unwrap();
    }
    cluster.ensemble().wait_serving(HEALED).await.unwrap();
    let second = cluster.successor_of(&first, Duration::from_secs(90)).await;
    cluster.acts(second.token).await;
    cluster.standing_by(3).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
