//! One run of a plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use boot_time::VirtualTime;
use robustness::checker::Report;
use robustness::history::{Event, History, Setup};
use tokio::time::{Instant, sleep, sleep_until};
use zk_testkit::TestServer;

use crate::faults::Faults;
use crate::member::{SESSION_TIMEOUT, TICK};
use crate::network::Network;
use crate::plan::{Plan, SERVERS};
use crate::trace::Trace;

/// For how many session timeouts a slot may be without an acting leader.
const LEADERLESS_TIMEOUTS: u64 = 5;

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Every byte that passed, and every line of the history; empty unless that was asked for.
    pub trace: String,
    /// What happened.
    pub history: History,
    /// What was found.
    pub report: Report,
    /// What a member met that none should meet.
    pub problems: Vec<String>,
}

/// Runs it, on this thread; with its whole trace, or without, which is faster.
///
/// # Panics
/// If tokio can't make a runtime.
#[must_use]
pub fn run(plan: Plan, with_trace: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a tokio runtime: {error}"));
    fastrand::seed(plan.seed);
    let trace = Arc::new(Trace::new(with_trace));
    runtime.block_on(async {
        let _virtual = VirtualTime::begin();
        play(Arc::new(plan), Arc::clone(&trace)).await;
    });
    drop(runtime);
    let (trace, lines, problems) = trace.take();
    let history = History::of(lines);
    let report = Report::of(&history);
    Outcome { trace, history, report, problems }
}

async fn play(plan: Arc<Plan>, trace: Arc<Trace>) {
    let builder = TestServer::builder().servers(SERVERS).tick_time(TICK);
    let servers = builder.with(|settings| settings.seed = Some(plan.seed)).start_in_memory();
    let servers = servers.unwrap_or_else(|error| panic!("the servers: {error}"));
    let network = Network::new(servers, plan.latency_ms, Arc::clone(&trace));
    let session_timeout_ms = u64::try_from(SESSION_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let setup = Setup { session_timeout_ms, leaderless_timeouts: LEADERLESS_TIMEOUTS, ahead: None };
    trace.record("test", Event::Setup(setup));
    let mut faults = Faults::new(Arc::clone(&plan), Arc::clone(&network), Arc::clone(&trace));
    for member in 0..plan.members {
        faults.join(member).await;
    }
    let begun = Instant::now();
    let at = |ms| begun + Duration::from_millis(ms);
    let mut steps = plan.steps.iter().peekable();
    let mut ends: BTreeSet<(u64, u64)> = BTreeSet::new();
    loop {
        let step = steps.peek().map_or(u64::MAX, |step| step.at_ms);
        let end = ends.first().map_or(u64::MAX, |(at, _)| *at);
        if step.min(end) > plan.length_ms {
            break;
        }
        sleep_until(at(step.min(end))).await;
        if end <= step {
            if let Some((_, fault)) = ends.pop_first() {
                faults.end(fault).await;
            }
        } else if let Some(step) = steps.next()
            && let Some(fault) = faults.begin(step.act).await
        {
            ends.insert((step.at_ms + step.for_ms, fault));
        }
    }
    faults.end_all().await;
    sleep(SESSION_TIMEOUT * u32::try_from(LEADERLESS_TIMEOUTS + 2).unwrap_or(u32::MAX)).await;
    trace.record("test", Event::Finished);
    for member in faults.members.into_iter().flatten() {
        member.leave().await;
    }
    let left = network.servers.sessions().len();
    if left > 0 {
        // The sessions of dead members are over long ago.
        trace.problem(format!("{left} sessions are left"));
    }
}
