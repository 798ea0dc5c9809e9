//! A worker that dies on a living host costs the time to end its job, and not the session timeout.

use e2e::{Cluster, Driver, JOB, SOON, Setup, wait_for};
use zk_session::BootTime;

e2e::with_both_drivers!(
    with_an_elector_the_job_moves_at_once,
    in_a_queue_the_job_moves_at_once,
    with_a_single_znode_the_job_moves_at_once,
);

async fn with_an_elector_the_job_moves_at_once(driver: Driver) {
    the_job_moves_at_once(driver, "elector").await;
}

async fn in_a_queue_the_job_moves_at_once(driver: Driver) {
    the_job_moves_at_once(driver, "queue").await;
}

async fn with_a_single_znode_the_job_moves_at_once(driver: Driver) {
    the_job_moves_at_once(driver, "single").await;
}

async fn the_job_moves_at_once(driver: Driver, recipe: &str) {
    let setup = Setup::new(driver)
        .workers(&[("east-1", "east"), ("west-1", "west")])
        .set("job.orders.recipe", recipe)
        .set("zookeeper.session_timeout", "10s");
    let mut cluster = Cluster::of(setup).await;
    let old = cluster.settled().await;
    cluster.acts(old.token).await;
    let killed = BootTime::now();
    cluster.worker(&old.member).kill();
    let new = cluster.successor_of(&old, SOON).await;
    let acting = cluster.acts(new.token).await;
    let after = acting.from.duration_since(killed);
    assert_ne!(new.member, old.member);
    wait_for(
        "the guard's word that it has closed the session, which had not ended by itself",
        SOON,
        async || {
            let log = cluster.worker(&old.member).log_text();
            if log.contains("left: its session is closed") { Ok(()) } else { Err(log) }
        },
    )
    .await;
    println!("{driver}, {recipe}: the next job of {JOB} acted {after:?} after SIGKILL");
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
