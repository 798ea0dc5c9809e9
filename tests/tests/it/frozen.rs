//! Processes that are frozen beyond the end of their session.

use std::time::Duration;

use e2e::{Cluster, Driver, SOON, Setup, freeze_pid, is_there, thaw_pid, wait_for, when_gone};

e2e::with_both_drivers!(
    the_guard_of_a_frozen_worker_ends_the_job_before_its_successor_begins,
    the_store_refuses_every_late_booking_of_a_leader_that_was_frozen_with_its_job,
);

async fn the_guard_of_a_frozen_worker_ends_the_job_before_its_successor_begins(driver: Driver) {
    // A job that must be killed: the guard then uses the whole time.
    let setup = Setup::new(driver).job_options(&["--ignore-term", "--offspring"]);
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    let pids = cluster.acts(first.token).await.pids;

    cluster.worker(&first.member).freeze();
    let gone = when_gone(pids);
    let second = cluster.successor_of(&first, SOON).await;
    let begun = cluster.acts(second.token).await.from;
    wait_for("the end of the frozen worker's job", SOON, async || {
        if gone.is_finished() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
    let gone = gone.join().unwrap();
    println!("{driver}: gone {:?} before the next one began", begun.duration_since(gone));
    assert!(gone < begun, "the old job was there for {:?} after that", gone.duration_since(begun));
    assert!(cluster.journal().acting(first.token).unwrap().was_asked, "it was not even asked first");
    cluster.journal().assert_one_at_a_time();

    // The resumed worker does not lead, starts no job, and is a candidate again.
    cluster.worker(&first.member).thaw();
    cluster.standing_by(3).await;
    assert_eq!(cluster.leader().await.unwrap(), second);
    cluster.journal().assert_one_at_a_time();
    assert_eq!(cluster.journal().actings().len(), 2);
    cluster.end().await;
}

async fn the_store_refuses_every_late_booking_of_a_leader_that_was_frozen_with_its_job(driver: Driver) {
    const ORDERS: u32 = 600;
    let mut cluster = Cluster::of(Setup::new(driver).ledger(ORDERS, Duration::from_millis(6))).await;
    let first = cluster.settled().await;
    wait_for("the first bookings", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["booked"].as_u64() > Some(10) { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;

    let job = first.pid.unwrap();
    let guards = cluster.worker(&first.member).guards();
    cluster.worker(&first.member).freeze();
    guards.iter().for_each(|guard| freeze_pid(*guard));
    freeze_pid(job);
    // Frozen inside its transaction it would block all others until it resumes, and prove nothing.
    while cluster.ledger().is_locked().await {
        thaw_pid(job);
        tokio::time::sleep(Duration::from_millis(3)).await;
        freeze_pid(job);
    }

    let second = cluster.successor_of(&first, SOON).await;
    wait_for("the successor's claim at the store", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["token"] == second.token { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;

    // The job resumes before the processes that would end it, and continues to book.
    thaw_pid(job);
    wait_for("a late booking, refused", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["refused"]["bookings"].as_u64() > Some(0) { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    guards.iter().for_each(|guard| thaw_pid(*guard));
    cluster.worker(&first.member).thaw();
    cluster.standing_by(3).await;
    assert!(!is_there(job));
    assert_eq!(cluster.leader().await.unwrap(), second);

    wait_for("every order booked", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["booked"] == ORDERS { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    let check = cluster.ledger().check().await;
    assert_eq!(check["ok"], true, "{check:#}");
    assert_eq!((&check["late_accepted"], &check["refused"]["bookings"]), (&0.into(), &1.into()), "{check:#}");
    cluster.end().await;
}
