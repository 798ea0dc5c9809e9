//! A process that is stopped by SIGSTOP for longer than its session lasts, and then woken.
//!
//! The process is this test binary, run once more with the test `worker` alone.

use std::process::Stdio;
use std::time::Duration;

use crate::common::{Bed, TIMEOUT, soon};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use zk_session::{BootTime, CreateMode, DriverKind, OpError, Recovery, sleep_until};
use zk_testkit::Op;

const ADDRESS: &str = "ZK_SESSION_TEST_ADDRESS";
const DRIVER: &str = "ZK_SESSION_TEST_DRIVER";

on_each_server!(a_frozen_process_finds_its_session_over_before_it_does_anything);

/// Writes as long as its lease is valid, and prints the time of each write that it was allowed.
#[test]
fn worker() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let driver: DriverKind = std::env::var(DRIVER).unwrap().parse().unwrap();
    // One thread: what runs first after the freeze is decided by this crate, not by the scheduler's luck.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = crate::common::builder(driver, address.parse().unwrap()).connect().await.unwrap();
        let keeper = session.keep_lease();
        let first = session.active().await.unwrap();
        let mut leases = keeper.subscribe();
        leases.wait_for(Option::is_some).await.unwrap();
        println!("ready {}", first.session_id().0);
        loop {
            let now = BootTime::now();
            if keeper.lease().is_some_and(|lease| lease.epoch == first.epoch() && lease.is_valid_at(now)) {
                println!("acts {}", now.as_duration().as_nanos());
            }
            match first.create_sequential("/write-", "", CreateMode::Persistent, Recovery::Data).await {
                Ok(_) => {}
                Err(error) => {
                    println!("over {} {error:?}", error == OpError::SessionOver);
                    break;
                }
            }
        }
        let next = session.active().await.unwrap();
        println!("next {}", next.session_id().0);
        sleep_until(BootTime::now() + Duration::from_secs(60)).await;
    });
}

/// The freeze can hit the moment between the look at the clock and the write, which no program can rule out (the session
/// is over on the server by then, and takes nothing). It does so in one of many runs; a request that is written without
/// a look leaves in each.
async fn a_frozen_process_finds_its_session_over_before_it_does_anything(driver: DriverKind) {
    for _ in 0..3 {
        if frozen_in_mid_work(driver).await == 0 {
            return;
        }
    }
    panic!("each time a request left after the freeze");
}

/// Answers how many requests left after the freeze.
async fn frozen_in_mid_work(driver: DriverKind) -> u64 {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let mut worker = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "frozen::worker", "--nocapture"])
        .env(ADDRESS, bed.proxy.addr().to_string())
        .env(DRIVER, driver.to_string())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = worker.id().unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    let mut line = async || soon("a line of the worker", lines.next_line()).await.unwrap().unwrap();
    while !line().await.contains("ready") {}
    while !line().await.contains("acts") {}

    zk_testkit::freeze(pid).unwrap();
    sleep_until(BootTime::now() + TIMEOUT + Duration::from_secs(2)).await;
    observer.barrier().await.unwrap();
    let written = observer.children("/").await.unwrap().unwrap().names.len();
    let sent = bed.proxy.seen(Op::Create);
    let woken = BootTime::now();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT).unwrap();

    let over = loop {
        let line = line().await;
        if let Some(time) = line.strip_prefix("acts ") {
            let acted = BootTime::from_duration(Duration::from_nanos(time.parse().unwrap()));
            assert!(acted < woken, "it acted {:?} after it was woken", acted.duration_since(woken));
        } else if line.starts_with("over") {
            break line;
        }
    };
    // The write under way when it was frozen may be unknown; either way it is the session's end that is reported.
    assert!(over.contains("SessionOver"), "{over}");
    assert!(line().await.starts_with("next"));
    let left = bed.proxy.seen(Op::Create) - sent;
    observer.barrier().await.unwrap();
    let now = observer.children("/").await.unwrap().unwrap().names.len();
    assert_eq!(now, written, "nothing was written after the freeze");
    worker.kill().await.unwrap();
    left
}
