//! Moves of leadership before the end of a lost worker's session, and cases in which none may happen.

use std::time::Duration;

use e2e::{Cluster, Driver, Leader, SOON, Setup, Worker, own_ensemble, wait_for};
use zk_session::BootTime;
use zk_testkit::Network;

e2e::with_both_drivers!(
    a_lost_worker_is_replaced_before_its_session_ends,
    where_the_job_is_not_fenced_the_session_ends_first,
    the_late_writes_of_a_host_that_was_cut_off_are_refused,
    a_host_that_is_lost_with_its_zookeeper_server_is_replaced_before_its_session_ends,
    a_leader_that_one_site_alone_does_not_reach_stays,
);

/// The longest timeout that these servers grant, so that a wait for it shows.
const SESSION: &str = "10s";
/// A limit for a busy machine; the znodes prove the claim, not the time.
const MOVED_WITHIN: Duration = Duration::from_secs(40);

fn setup(driver: Driver) -> Setup {
    Setup::new(driver)
        .workers(&[("east-1", "east"), ("east-2", "east"), ("west-1", "west")])
        .set("zookeeper.session_timeout", SESSION)
        .set("policy.fast_failover", true)
        .set("policy.suspect_after", "400ms")
}

/// Waits until each member can be a witness: it has measured its round trips to all others, so it knows their records
/// and they have answered it.
async fn all_probe_each_other(cluster: &mut Cluster) {
    let ids: Vec<_> = cluster.workers().iter().map(|worker| worker.id().to_owned()).collect();
    for worker in cluster.workers() {
        wait_for("round trips to all others", SOON, async || {
            let (_, text) = worker.get("/metrics").await.ok_or("no answer")?;
            let measured = |id: &str| {
                let peer = format!("peer=\"{id}\"");
                text.lines().any(|line| line.starts_with("dr_peer_rtt_seconds{") && line.contains(&peer))
            };
            match ids.iter().find(|id| *id != worker.id() && !measured(id)) {
                None => Ok(()),
                Some(id) => Err(format!("{} has not measured {id}", worker.id())),
            }
        })
        .await;
    }
}

async fn all_take_part(cluster: &mut Cluster) {
    let workers = cluster.workers().len();
    wait_for("all members", SOON, async || {
        let names = cluster.znodes().await.children("orders/nodes").await.unwrap_or_default();
        if names.len() == workers { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

async fn a_lost_worker_is_replaced_before_its_session_ends(driver: Driver) {
    let mut cluster = Cluster::of(setup(driver)).await;
    let first = cluster.settled().await;
    all_probe_each_other(&mut cluster).await;
    let lost = BootTime::now();
    cluster.worker(&first.member).kill_with_guards();
    let second = replaced_in_time(&mut cluster, &first, lost).await;
    assert!(second.token > first.token);
    assert_eq!(second.site, "west");
    let new = cluster.worker(&second.member);
    assert_eq!(new.counted("dr_transition_phase_seconds_count", "phase=\"detect\"").await, 1);
    cluster.acts(second.token).await;
    // The suspected member returns as another incarnation, which is fit.
    cluster.worker(&first.member).start();
    cluster.standing_by(2).await;
    assert_eq!(cluster.leader().await.expect("a leader").token, second.token);
    cluster.end().await;
}

async fn where_the_job_is_not_fenced_the_session_ends_first(driver: Driver) {
    let mut cluster = Cluster::of(setup(driver).set("job.orders.fenced", false)).await;
    let first = cluster.settled().await;
    all_take_part(&mut cluster).await;
    cluster.worker(&first.member).kill_with_guards();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    let elected = cluster.znodes().await.decision("orders").await;
    assert_eq!(elected["cause"], "leader-lost", "{elected:#}");
    assert!(second.token > first.token);
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// The leader that follows one who was lost at this time. It is named by suspicion, before the session of the lost one ends.
async fn replaced_in_time(cluster: &mut Cluster, first: &Leader, lost: BootTime) -> Leader {
    let second = cluster.successor_of(first, MOVED_WITHIN).await;
    println!("{} leads {:?} after the loss", second.member, BootTime::now().duration_since(lost));
    let node = format!("orders/nodes/{}", first.member);
    assert!(
        cluster.znodes().await.get(&node).await.is_some(),
        "the session of {} had ended, so this was no fast failover",
        first.member
    );
    let elected = cluster.znodes().await.decision("orders").await;
    assert_eq!(elected["cause"], "suspected", "{elected:#}");
    second
}

/// Two workers a site, each on its own host.
async fn on_hosts(setup: Setup) -> Cluster {
    let ensemble = own_ensemble(|builder| builder.in_namespaces(true)).await;
    let all = [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")];
    Cluster::on(ensemble, setup.workers(&all).on_hosts()).await
}

const ORDERS: u32 = 1500;

async fn the_late_writes_of_a_host_that_was_cut_off_are_refused(driver: Driver) {
    if !Network::available_or_skip() {
        return;
    }
    // The suspected member is the same incarnation when it returns; it must be a candidate again soon.
    let setup = setup(driver).ledger(ORDERS, Duration::from_millis(5)).set("policy.exclusion", "1s");
    let mut cluster = on_hosts(setup).await;
    let first = cluster.settled().await;
    all_probe_each_other(&mut cluster).await;
    wait_for("bookings", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["booked"].as_u64() > Some(10) { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    let lost = BootTime::now();
    cluster.worker(&first.member).cut_off();
    let second = replaced_in_time(&mut cluster, &first, lost).await;

    // The old job can still reach the store, and knows nothing of the move.
    wait_for("a late booking, refused", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["refused"]["bookings"].as_u64() > Some(0) { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    cluster.worker(&first.member).plug_in();
    cluster.standing_by(3).await;
    assert_eq!(cluster.leader().await.expect("a leader").token, second.token);
    // Each of them waits for the disk.
    let mut booked = 0;
    while booked < u64::from(ORDERS) {
        booked = wait_for("more orders", SOON, async || {
            let progress = cluster.ledger().progress().await;
            progress["booked"].as_u64().filter(|now| *now > booked).ok_or_else(|| progress.to_string())
        })
        .await;
    }
    let check = cluster.ledger().check().await;
    assert_eq!((&check["ok"], &check["late_accepted"]), (&true.into(), &0.into()), "{check:#}");
    cluster.end().await;
}

async fn a_host_that_is_lost_with_its_zookeeper_server_is_replaced_before_its_session_ends(driver: Driver) {
    const SERVER: usize = 2;
    if !Network::available_or_skip() {
        return;
    }
    let ensemble = own_ensemble(|builder| builder.in_namespaces(true)).await;
    // Witnesses of both sites are left.
    let all = [("east-1", "east"), ("east-2", "east"), ("west-1", "west")];
    let setup = setup(driver)
        .workers(&all)
        // The suspected member must be a candidate again soon.
        .set("policy.exclusion", "1s")
        .set("node.priority", 1)
        .set_for("east-1", "node.priority", 9)
        .on_hosts()
        .beside_server("east-1", SERVER)
        .not_started();
    let mut cluster = Cluster::on(ensemble, setup).await;
    // While the servers elect another leader, the workers would lose their leases.
    cluster.let_server_lead(SERVER, false).await;
    cluster.workers().iter_mut().for_each(Worker::start);
    let mut first = cluster.settled().await;
    all_probe_each_other(&mut cluster).await;
    // The first decision does not wait for all members of a site.
    if first.member != "east-1" {
        cluster.operator().done(&["switchover", "--to", "east-1", "--wait"]).await;
        first = cluster.successor_of(&first, MOVED_WITHIN).await;
    }
    assert_eq!(first.member, "east-1");
    // The witnesses have to leave that server before they can report anything.
    cluster.gather_sessions(SERVER).await;
    assert_eq!(cluster.leader().await.expect("a leader"), first);
    let lost = BootTime::now();
    cluster.worker(&first.member).cut_off();
    let second = replaced_in_time(&mut cluster, &first, lost).await;
    // Both return.
    cluster.worker(&first.member).plug_in();
    cluster.standing_by(2).await;
    assert_eq!(cluster.leader().await.expect("a leader").token, second.token);
    cluster.end().await;
}

/// The number of a worker's failed probes.
async fn missed(cluster: &mut Cluster, id: &str) -> u64 {
    cluster.worker(id).counted("dr_probes_total", "outcome=\"missed\"").await
}

/// Four times the number of probes that detect a loss.
const ROUNDS: u64 = 4 * 4;

async fn a_leader_that_one_site_alone_does_not_reach_stays(driver: Driver) {
    if !Network::available_or_skip() {
        return;
    }
    let mut cluster = on_hosts(setup(driver)).await;
    let first = cluster.settled().await;
    all_probe_each_other(&mut cluster).await;
    let workers = cluster.workers();
    let leader = workers.iter().find(|worker| worker.id() == first.member).unwrap();
    let others: Vec<_> = workers.iter().filter(|worker| worker.site() != first.site).collect();
    others.iter().for_each(|other| leader.cut_off_from(other));
    let others: Vec<_> = others.into_iter().map(|other| other.id().to_owned()).collect();
    for id in others {
        let node = format!("orders/nodes/{id}");
        wait_for(&format!("{id} to say that it does not reach the leader"), SOON, async || {
            let record = cluster.znodes().await.json(&node).await;
            let lost = record["unreached"].as_array().map_or(0, Vec::len);
            if lost == 1 { Ok(()) } else { Err(format!("{record:#}")) }
        })
        .await;
        let before = missed(&mut cluster, &id).await;
        wait_for(&format!("more probes of {id} in vain"), SOON, async || {
            let now = missed(&mut cluster, &id).await;
            if now >= before + ROUNDS { Ok(()) } else { Err(format!("{before}, then {now}")) }
        })
        .await;
    }
    assert_eq!(cluster.leader().await.expect("a leader"), first);
    cluster.journal().assert_never_moved();
    cluster.end().await;
}
