//! `upgrade`: the worker of this node executes the program that is on the disk now, its jobs running on.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use job_guard::{StateLock, is_alive, lock_path};
use nix::{sys::signal::kill, unistd::Pid};
use serde_json::json;

use super::output::{self, Output};
use crate::{
    config::{NodeConfig, Sources},
    error::Error,
    signals::UPGRADE,
    worker::upgrade::report::{Progress, UpgradeReport},
};

/// The longest time for the whole: the answer of the new program, the wait for rest, and the proof of a lease.
const WITHIN: Duration = Duration::from_secs(60);

/// How long a worker may take to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// `upgrade`
pub(super) fn run(sources: &Sources, how: Output) -> Result<(), Error> {
    let (id, state_dir, _) = NodeConfig::load_local(sources)?;
    let lock = lock_path(&state_dir, id.as_str());
    let holder = StateLock::holder(&state_dir, id.as_str()).map_err(|error| {
        Error::Failed(format!("can't read {}: {error}; run this as the worker's user", lock.display()))
    })?;
    let Some(pid) = holder else {
        return Err(Error::Failed(format!(
            "no worker of {id} runs on this node, according to {}",
            lock.display()
        )));
    };
    if !handles_the_signal(pid) {
        return Err(Error::Failed(format!(
            "process {pid} holds the lock of {id}, but is not a worker that can be upgraded in place: restart it"
        )));
    }
    // One that is under way does what is asked, and the worker may hear no more until it is over.
    let last = UpgradeReport::read(&lock).map_or(0, |report| match report.progress {
        Progress::Begun => report.attempt.saturating_sub(1),
        _ => report.attempt,
    });
    kill(Pid::from_raw(pid), UPGRADE).map_err(|error| {
        Error::Failed(format!(
            "can't send {UPGRADE} to process {pid}: {error}; run this as the worker's user"
        ))
    })?;
    let report = outcome(pid, || UpgradeReport::read(&lock).filter(|report| report.attempt > last))?;
    match report.progress {
        Progress::Done => print(pid, &report, how),
        Progress::NotNow => Err(Error::NotNow(format!("not upgraded: {}", report.message))),
        Progress::BadConfiguration => Err(Error::Setting {
            key: "configuration",
            message: format!("not upgraded, the new program refuses it: {}", report.message),
        }),
        Progress::Begun | Progress::Refused => {
            Err(Error::Failed(format!("not upgraded: {}", report.message)))
        }
        Progress::Failed => Err(Error::Failed(format!("upgraded, but {}", report.message))),
    }
}

/// Whether the process handles the signal, which ends others, or has it wait while it executes a program.
fn handles_the_signal(pid: i32) -> bool {
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let has_it = |set: &str| {
        let set = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default();
        u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & (1 << (UPGRADE as i32 - 1)) != 0)
    };
    has_it("SigCgt:") || has_it("SigBlk:")
}

/// Waits for the outcome.
fn outcome(pid: i32, read: impl Fn() -> Option<UpgradeReport>) -> Result<UpgradeReport, Error> {
    let began = Instant::now();
    loop {
        let report = read();
        match &report {
            Some(report) if report.progress != Progress::Begun => return Ok(report.clone()),
            None if began.elapsed() >= BEGINS_WITHIN => {
                return Err(Error::Failed(format!(
                    "process {pid} did not begin within {BEGINS_WITHIN:?}; see its log"
                )));
            }
            _ => {}
        }
        // A dead one may not be reaped yet.
        if !is_alive(pid) {
            return Err(Error::Failed(format!(
                "process {pid} has ended during the upgrade; its guards end the jobs, see its log"
            )));
        }
        if began.elapsed() >= WITHIN {
            return Err(Error::Failed(format!(
                "the new program in process {pid} did not report within {WITHIN:?}; its guards end the jobs before their \
                 leases end, see its log"
            )));
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn print(pid: i32, report: &UpgradeReport, how: Output) -> Result<(), Error> {
    if how == Output::Json {
        return output::print_json(&json!({
            "pid": pid, "from": report.from, "to": report.to, "jobs": report.jobs,
        }));
    }
    output::print(format_args!("process {pid} upgraded in place: {} to {}", report.from, report.to))?;
    for continued in &report.jobs {
        let (job, term, token) = (&continued.job, continued.term, continued.fencing_token);
        output::print(format_args!("  {job}: leads on, term {term} and fencing token {token} unchanged"))?;
    }
    Ok(())
}
