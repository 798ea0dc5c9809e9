//! What the line of succession saves when leader and elector are lost together:
//!
//! ```text
//! cargo xtask bench succession [-- [--runs N] [--driver native|zookeeper-async]]
//! ```
//!
//! Four members; the first one leads and is the elector as well. In one half of the runs it
//! alone is lost: the first in line steps in, by a decision that was taken before. In the
//! other half, in turn, the first in line is lost with it: somebody must become the elector
//! and decide. Time runs from the moment at which the ephemerals are gone, as they are when
//! a session expires, until the next leader is READY. Milliseconds of another machine mean
//! little: what counts is the ratio of the two, and of each to one write round trip.
//!
//! A run counts only if the decision says that it came about in the way that is measured.

use std::process::ExitCode;
use std::time::Duration;

use election_core::{
    Election, ElectionConfig, Failure, Handler, Leadership, Policy, StopOrder, TakeoverLimit,
    strategy::{Ranked, Ranking, Round, Strategy},
};
use zk_session::{BootTime, CreateMode, DriverKind, Session};
use zk_testkit::Ensemble;

const TICK: Duration = Duration::from_millis(500);
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// In the order in which they come: the first one leads and is the elector, the second one is
/// the next elector, and the third one is the first in line.
const MEMBERS: [&str; 4] = ["m-1", "m-2", "m-3", "m-4"];
const PREFERENCE: [&str; 4] = ["m-1", "m-3", "m-2", "m-4"];
const ELECTOR: usize = 1;
const FIRST_IN_LINE: usize = 2;
const ROUND_TRIPS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let (runs, driver) = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(64);
        }
    };
    tokio::select! {
        // Dropped, the ensemble ends.
        _ = tokio::signal::ctrl_c() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        () = measure(runs, driver) => ExitCode::SUCCESS,
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(usize, DriverKind), String> {
    let (mut runs, mut driver) = (20, DriverKind::Native);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--runs" => {
                let count = value()?;
                runs = count.parse().map_err(|error| format!("--runs {count}: {error}"))?;
                if runs == 0 {
                    return Err("--runs 0: at least one".to_owned());
                }
            }
            "--driver" => driver = value()?.parse().map_err(|error| format!("--driver: {error}"))?,
            other => return Err(format!("no such option: {other}; there are --runs N and --driver NAME")),
        }
    }
    Ok((runs, driver))
}

async fn measure(runs: usize, driver: DriverKind) {
    let ensemble = Ensemble::builder().servers(3).tick_time(TICK).start().await.expect("three servers");
    let connect = ensemble.connect_string();
    let unit = round_trip(&session(&connect, driver).await).await;
    let (mut succeeded, mut decided) = (Vec::new(), Vec::new());
    for run in 0..runs {
        for (lost, times) in [(1, &mut succeeded), (2, &mut decided)] {
            let took = Party::gather(&connect, driver, &format!("run-{run}-{lost}")).await.lose(lost).await;
            eprintln!("{run}: {lost} lost, READY after {}", ms(took));
            times.push(took);
        }
    }
    let (succession, decision) = (median(&mut succeeded), median(&mut decided));
    let times = |time: Duration| time.as_secs_f64() / unit.as_secs_f64();
    println!("{:52}{:>12}{:>12}{:>16}", "", "median", "max", "write trips");
    let print = |what: &str, all: &[Duration], median: Duration| {
        let max = all.last().copied().unwrap_or_default();
        println!("{what:52}{:>12}{:>12}{:>14.0} x", ms(median), ms(max), times(median));
    };
    print("leader and elector lost: the first in line leads", &succeeded, succession);
    print("  the first in line lost as well: a decision", &decided, decision);
    println!(
        "decided beforehand, the change takes {:.2} of the time that it takes otherwise",
        succession.as_secs_f64() / decision.as_secs_f64()
    );
    println!("one write round trip: {}; {runs} runs each, driver {driver}, three servers", ms(unit));
}

async fn session(connect: &str, driver: DriverKind) -> Session {
    let builder = Session::builder(connect).session_timeout(SESSION_TIMEOUT).tick_time(TICK).driver(driver);
    builder.connect_timeout(PATIENCE).connect().await.expect("a session")
}

/// The median of one write after the other.
async fn round_trip(session: &Session) -> Duration {
    session.create("/round-trip", Vec::new(), CreateMode::Persistent).await.expect("a znode");
    let mut all = Vec::with_capacity(ROUND_TRIPS);
    for number in 0..ROUND_TRIPS {
        let begun = BootTime::now();
        session.set("/round-trip", number.to_string(), None).await.expect("a write");
        all.push(BootTime::now().duration_since(begun));
    }
    median(&mut all)
}

fn median(all: &mut [Duration]) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Members of one election, the first of which leads.
struct Party {
    members: Vec<(Session, Election)>,
}

impl Party {
    async fn gather(connect: &str, driver: DriverKind, name: &str) -> Self {
        let mut members = Vec::new();
        for member in MEMBERS {
            let session = session(connect, driver).await;
            let policy = Policy::default().with(|policy| {
                policy.stop_budget = Some(Duration::from_millis(500));
                policy.max_takeovers = TakeoverLimit { count: 1000, within: Duration::from_secs(60) };
            });
            let config = ElectionConfig::elector(&format!("/bench/{name}"), member, Preferred)
                .expect("a configuration")
                .policy(policy);
            let election = Election::join(session.clone(), config, Instantly);
            // One after the other, so that the first one has the lowest ballot.
            until(&election, |status| status.ballot.is_some()).await;
            members.push((session, election));
        }
        let (_, first) = &members[0];
        until(first, |status| {
            let line = status.elected.as_ref().map_or(0, |elected| elected.line_of(0).len());
            status.leads_now() && status.is_elector && line == MEMBERS.len() - 1
        })
        .await;
        for (_, other) in &members[1..] {
            // Who hasn't seen the leader in office doesn't step in.
            until(other, |status| status.leaders[0].as_ref().is_some_and(|c| c.ready_ms.is_some())).await;
            until(other, |status| status.elected.as_ref().is_some_and(|e| e.line_of(0).len() == 3)).await;
        }
        // Proving a lease takes a heartbeat and a tick, which the first in line has behind it.
        until(&members[FIRST_IN_LINE].1, |status| {
            status.work_until.is_some_and(|until| BootTime::now() < until)
        })
        .await;
        Self { members }
    }

    /// Loses the first so many at once; answers how long it takes until somebody is READY.
    async fn lose(mut self, count: usize) -> Duration {
        // Whoever is left, by their places at first; the later ones are taken out first.
        let (lost, next): (&[usize], _) = match count {
            1 => (&[0], FIRST_IN_LINE - 1),
            _ => (&[FIRST_IN_LINE, 0], ELECTOR - 1),
        };
        let lost: Vec<_> = lost.iter().map(|place| self.members.remove(*place)).collect();
        let closing = lost.iter().map(|(session, _)| {
            let session = session.clone();
            tokio::spawn(async move { session.close(PATIENCE).await })
        });
        for closed in closing.collect::<Vec<_>>() {
            closed.await.expect("a session closes");
        }
        let gone = BootTime::now();
        let (_, next) = &self.members[next];
        let status = until(next, |status| status.leads_now()).await;
        let took = BootTime::now().duration_since(gone);
        let elected = status.elected.expect("a decision");
        // Its own commit, or the word of the elector who found it in office.
        let sentence = elected.sentence();
        assert_eq!(sentence.contains("in line"), count == 1, "{sentence}");
        drop(lost);
        for (session, election) in self.members {
            election.leave().await;
            session.close(PATIENCE).await;
        }
        took
    }
}

async fn until(
    election: &Election,
    mut condition: impl FnMut(&election_core::ElectionStatus) -> bool,
) -> election_core::ElectionStatus {
    let mut status = election.status();
    let found = tokio::time::timeout(PATIENCE, status.wait_for(|status| condition(status))).await;
    found.expect("in time").expect("the election goes on").clone()
}

/// A job that takes no time.
struct Instantly;

impl Handler for Instantly {
    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {}
}

/// By the order that is preferred.
#[derive(Debug)]
struct Preferred;

impl Strategy for Preferred {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut order: Vec<_> = round.candidates.iter().map(|m| Ranked::new(m.named(), Vec::new())).collect();
        order.sort_by_key(|r| PREFERENCE.iter().position(|name| *name == r.named.member.as_str()));
        Ranking::new(order, Vec::new())
    }
}
