//! One run of a schedule.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use e2e::JOB;
use robustness::history::{Answer, Call, Event, History, Recorder, Setup};
use robustness::schedule::Schedule;

use crate::faults::Faults;
use crate::stage::Stage;
use crate::watchers::{self, Seen, now};
use crate::witnesses;

/// That of the workers.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// For how many session timeouts a slot may be without an acting leader.
const LEADERLESS_TIMEOUTS: u64 = 5;
/// For the first leader, after the start of everything.
const FIRST_WITHIN: Duration = Duration::from_secs(60);
/// The leader acts for so long at the end.
const AT_THE_END: Duration = Duration::from_secs(3);
/// For workers and jobs after SIGTERM.
const END_WITHIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

/// Runs it, and returns what happened.
pub(crate) async fn run(schedule: &Schedule, dir: &Path) -> anyhow::Result<History> {
    let stage = Stage::start(schedule, dir).await?;
    let recorder = Arc::new(Recorder::create(&dir.join("history/test.jsonl"), "test")?);
    let session_timeout_ms = u64::try_from(SESSION_TIMEOUT.as_millis())?;
    let wall = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let ahead = wall - i64::try_from(now())?;
    let setup = Setup { session_timeout_ms, leaderless_timeouts: LEADERLESS_TIMEOUTS, ahead: Some(ahead) };
    recorder.record(0, Event::Setup(setup))?;
    watchers::canary(&recorder);
    let seen = Seen::default();
    let root = stage.cluster.root().to_owned();
    let mut faults = Faults::new(stage, Arc::clone(&recorder), seen.clone());
    let workers = faults.stage.cluster.workers();
    let members = workers.iter().map(|worker| (worker.id().to_owned(), worker.http())).collect();
    let _asking = watchers::ask(members, &recorder, &seen);
    ensure!(leads(&seen, FIRST_WITHIN).await, "no member has become the leader in {FIRST_WITHIN:?}");
    println!("a leader is READY; faults for {} s", schedule.length_ms / 1000);
    play(schedule, &mut faults).await?;
    faults.end_all().await?;
    // One that hangs fails the run, after all else is kept.
    let mut hung = None;
    while let Some(ended) = faults.commands.join_next().await {
        hung = hung.or(ended.err());
    }
    // Longer than a leader may take, also on a machine that stalls.
    let within = SESSION_TIMEOUT * u32::try_from(LEADERLESS_TIMEOUTS * 2)?;
    if leads(&seen, within).await {
        tokio::time::sleep(AT_THE_END).await;
    }
    recorder.record(now(), Event::Finished)?;
    end(&mut faults, &recorder);
    // The last read: no job writes any more.
    let op = recorder.next_op();
    recorder.record(now(), Event::Invoke { op, call: Call::Read { store: JOB.to_owned() } })?;
    let values = faults.stage.store.values();
    recorder.record(now(), Event::Ok { op, answer: Answer::Values { values } })?;
    faults.stage.keep_logs(dir)?;
    // The servers, too: their logs are complete then.
    drop(faults);
    let history = witnesses::history(dir, &root, JOB, ahead)?;
    hung.map_or(Ok(history), Err).context("a command of an operator")
}

/// Begins and ends each step at its time.
async fn play(schedule: &Schedule, faults: &mut Faults) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut steps = schedule.steps.iter().peekable();
    let mut ends: BTreeMap<(Duration, u64), ()> = BTreeMap::new();
    let length = Duration::from_millis(schedule.length_ms);
    loop {
        let passed = begun.elapsed();
        if let Some(step) = steps.next_if(|step| Duration::from_millis(step.at_ms) <= passed) {
            let fault = faults.begin(&step.act).await?;
            println!(
                "{:7.1} s  {:?}{}",
                passed.as_secs_f32(),
                step.act,
                if fault.is_some() { "" } else { " (at once)" }
            );
            if let Some(fault) = fault {
                ends.insert((begun.elapsed() + Duration::from_millis(step.for_ms), fault), ());
            }
        } else if let Some(due) = ends.first_entry().filter(|due| due.key().0 <= passed) {
            let ((_, fault), ()) = due.remove_entry();
            faults.end(fault).await?;
        } else if steps.peek().is_none() && ends.is_empty() && passed >= length {
            return Ok(());
        } else {
            faults.release_withdrawn()?;
            for ended in faults.restart_ended()? {
                println!("{:7.1} s  {ended}", passed.as_secs_f32());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Waits for an answer 200 that is new.
async fn leads(seen: &Seen, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if seen.leader(LOOK * 10).is_some() {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

/// Ends the workers by SIGTERM, and records what is left.
fn end(faults: &mut Faults, recorder: &Recorder) {
    let deadline = Instant::now() + END_WITHIN;
    let workers = faults.stage.cluster.workers();
    workers.iter().filter(|worker| worker.is_started()).for_each(e2e::Worker::ask_to_end);
    for worker in workers {
        // One that still runs is left.
        let Some(status) = worker.ended_by(deadline) else { continue };
        let (member, code, asked) = (worker.id().to_owned(), status.code(), true);
        let _ = recorder.record(now(), Event::Ended { member, code, asked });
    }
    let tree = faults.stage.cluster.tree().clone();
    while !tree.living().is_empty() && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    for pid in tree.living() {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&line).replace('\0', " ");
        let _ = recorder.record(now(), Event::Left { pid, command });
    }
}
