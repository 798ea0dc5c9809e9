//! Many jobs, spread over the nodes that can lead them.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::{Cluster, Driver, JOB, SOON, Setup, Wait, wait_for};

e2e::with_both_drivers!(leaderships_come_out_even_whoever_comes_or_goes);

/// The jobs beside the usual one.
const MORE: [&str; 5] = ["bills", "claims", "dunning", "errands", "freight"];

/// The time for two sessions that end one after the other, and a few rounds of the balancer.
const LONG: Duration = Duration::from_secs(90);

/// Waits until each leads that many jobs.
async fn shares(cluster: &mut Cluster, wanted: &[(&str, usize)]) {
    let wanted: BTreeMap<_, _> = wanted.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect();
    wait_for(&format!("{wanted:?}"), LONG, async || {
        let mut led = BTreeMap::new();
        for job in MORE.iter().chain([&JOB]) {
            *led.entry(cluster.leader_of(job).await?.member).or_default() += 1;
        }
        if led == wanted { Ok(()) } else { Err(format!("{led:?}")) }
    })
    .await;
}

/// The number of moves that a worker has requested.
async fn asked(cluster: &mut Cluster, id: &str) -> Wait<u64> {
    let (_, text) = cluster.worker(id).get("/metrics").await.ok_or("no metrics")?;
    let counted =
        |line: &&str| line.starts_with("dr_balance_moves_total") && line.contains("outcome=\"asked\"");
    let counts = text.lines().filter(counted).filter_map(|line| line.rsplit_once(' '));
    Ok(counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum())
}

/// One worker leads six jobs until others join. Then each of its site leads two, in the fewest moves or one more, and
/// none goes to the other site. The worker is killed, and with it the balancer: the two others lead three each.
async fn leaderships_come_out_even_whoever_comes_or_goes(driver: Driver) {
    let workers = [("east-1", "east"), ("east-2", "east"), ("east-3", "east"), ("west-1", "west")];
    let mut setup = Setup::new(driver)
        .workers(&workers)
        .not_started()
        .set("policy.balance", true)
        .set("policy.on_leader_failure", "same-site-first")
        .set("policy.min_tenure", "0s")
        .set("balance.interval", "300ms");
    for job in MORE {
        setup = setup.set(&format!("job.{job}.command"), vec!["sleep", "3600"]);
        setup = setup.set(&format!("job.{job}.stop_timeout"), "1s");
    }
    let mut cluster = Cluster::of(setup).await;
    cluster.worker("east-1").start();
    shares(&mut cluster, &[("east-1", 6)]).await;
    for (id, _) in &workers[1..] {
        cluster.worker(id).start();
    }
    shares(&mut cluster, &[("east-1", 2), ("east-2", 2), ("east-3", 2)]).await;
    // They join one by one: if east-1 had given three to the first already, one of these moved again.
    let moves = asked(&mut cluster, "east-1").await.unwrap();
    assert!((4..=5).contains(&moves), "{moves} moves");

    // The requester and the reason.
    let mut said = Vec::new();
    for job in MORE.iter().chain([&JOB]) {
        let list = cluster.operator().json(&["list", "--job", job]).await;
        for request in list["requests"].as_array().unwrap() {
            said.push(format!("{} {}", request["by"], request["reason"]));
        }
    }
    assert_eq!(said.len() as u64, moves, "{said:?}");
    for said in &said {
        assert!(said.contains("balancer on east-1") && said.contains("fair share: east-1 leads"), "{said}");
    }

    cluster.worker("east-1").kill();
    shares(&mut cluster, &[("east-2", 3), ("east-3", 3)]).await;
    wait_for("a leader that acts", SOON, async || {
        let leader = cluster.leader().await?;
        cluster.acts(leader.token).await;
        Ok(())
    })
    .await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
