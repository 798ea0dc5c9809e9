//! The embedded server and Apache ZooKeeper, side by side: random programs of requests by
//! several clients must see the same of both: every reply, every error, every field of
//! a stat but the times, every event, and in the same order.
//!
//! `ZK_TESTKIT_DIFFERENTIAL_SECONDS` sets for how long programs are drawn (default 20),
//! `ZK_TESTKIT_SEED` replays those of a run that failed.

mod edges;
mod program;
mod run;

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use zk_testkit::{Ensemble, Release, TestServer};

/// Nothing ends by itself while programs run: when it does is another matter.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// Who may do everything, and what Apache ZooKeeper makes of it.
const SUPER_USER: &str = "super:test";
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
/// From one address.
const MOST_CONNECTIONS: usize = 100;

struct Both {
    apache: SocketAddr,
    ours: SocketAddr,
    _runtime: tokio::runtime::Runtime,
    _ensemble: Ensemble,
    _server: TestServer,
}

fn both(tick: Duration) -> Both {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ensemble = runtime
        .block_on(
            Ensemble::builder()
                .servers(1)
                .tick_time(tick)
                .setting("4lw.commands.whitelist", "*")
                .setting("maxClientCnxns", MOST_CONNECTIONS.to_string())
                .jvm_flag(format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"))
                .with(|settings| {
                    settings.ttl_nodes = true;
                    settings.container_check = Some(NEVER);
                })
                .start(),
        )
        .unwrap();
    let apache = ensemble.addresses()[0];
    let server = TestServer::builder().tick_time(tick).with(|settings| {
        settings.release = if is_3_9(apache) { Release::V3_9 } else { Release::V3_8 };
        settings.container_check = NEVER;
        settings.max_connections = MOST_CONNECTIONS;
        settings.super_user = Some(SUPER_USER.into());
    });
    let server = runtime.block_on(server.start()).unwrap();
    Both { apache, ours: server.addresses()[0], _runtime: runtime, _ensemble: ensemble, _server: server }
}

/// Which of the two releases it is.
fn is_3_9(address: SocketAddr) -> bool {
    crate::wire::word(address, "srvr").unwrap().contains("version: 3.9")
}

fn seed() -> u64 {
    match std::env::var("ZK_TESTKIT_SEED") {
        Ok(seed) => seed.parse().expect("ZK_TESTKIT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    }
}

fn seconds() -> u64 {
    match std::env::var("ZK_TESTKIT_DIFFERENTIAL_SECONDS") {
        Ok(seconds) => seconds.parse().expect("ZK_TESTKIT_DIFFERENTIAL_SECONDS is a number"),
        Err(_) => 20,
    }
}

/// Some programs, the same for the same seed.
fn runner(seed: u64) -> TestRunner {
    println!("ZK_TESTKIT_SEED={seed} replays what follows");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let config = Config { cases: 50, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn random_programs_see_the_same() {
    let both = both(Duration::from_secs(2));
    let mut seed = seed();
    let until = Instant::now() + Duration::from_secs(seconds());
    let (programs, steps) = (Cell::new(0_u32), Cell::new(0));
    let failed = Cell::new(false);
    let compare = |mut program: Vec<program::Step>| {
        // Once they have differed, what programs share differs: smaller ones do without it.
        if failed.get() {
            program.retain(|step| !step.reaches_out());
        }
        programs.set(programs.get() + 1);
        steps.set(steps.get() + program.len());
        let root = format!("/p{}", programs.get());
        let theirs = run::run(both.apache, &root, &program);
        let ours = run::run(both.ours, &root, &program);
        match first_difference(&theirs, &ours) {
            None => Ok(()),
            Some(difference) => {
                if !failed.replace(true) {
                    println!("the first difference, {difference}");
                }
                Err(TestCaseError::fail(difference))
            }
        }
    };
    let mut outcome = Ok(());
    while Instant::now() < until {
        outcome = runner(seed).run(&program::program(), compare);
        if outcome.is_err() {
            break;
        }
        seed = seed.wrapping_add(1);
    }
    println!("{} programs, {} steps", programs.get(), steps.get());
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, program)) => {
            let steps: Vec<String> = program.iter().map(|step| format!("{step:?}")).collect();
            panic!("with ZK_TESTKIT_SEED={seed}: {reason}\nthe program:\n{}", steps.join("\n"))
        }
        Err(other) => panic!("with ZK_TESTKIT_SEED={seed}: {other}"),
    }
}

/// The line that differs, with what led to it.
fn first_difference(theirs: &[String], ours: &[String]) -> Option<String> {
    let at = theirs.iter().zip(ours).position(|(theirs, ours)| theirs != ours);
    let at = at.or_else(|| (theirs.len() != ours.len()).then(|| theirs.len().min(ours.len())))?;
    let nothing = "(nothing)".to_owned();
    let step = theirs[..at].iter().rposition(|line| line.starts_with("step")).unwrap_or(0);
    Some(format!(
        "after\n{}\nApache ZooKeeper: {}\nthe test server:  {}",
        theirs[step..at].join("\n"),
        theirs.get(at).unwrap_or(&nothing),
        ours.get(at).unwrap_or(&nothing),
    ))
}
