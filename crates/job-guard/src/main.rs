//! `job-guard SECONDS COMMAND...`: runs a command as timeout(1) does, and leaves nothing of it behind 5.3 s after SECONDS.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use job_guard::{
    Exit, Guards, Job, JobRun, KILL_RESERVE, Lease, Reporter, RestartPolicy, RunEnd, Stream, adopt_guards,
    adopt_orphans,
};

/// The time was over, as timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// This program has failed, or was not called as it has to be.
const FAILED: u8 = 125;

/// Between the stop signal and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    if let Some(ended) = job_guard::run_if_guard() {
        return ended;
    }
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|text| Duration::try_from_secs_f64(text.parse().ok()?).ok());
    let command: Vec<String> = args.collect();
    let (Some(lasting), false) = (seconds, command.is_empty()) else {
        eprintln!("usage: job-guard SECONDS COMMAND [ARGUMENT]...");
        eprintln!("COMMAND gets SIGTERM after SECONDS. No process of it is left 5.3 s after that.");
        return ExitCode::from(FAILED);
    };
    // What the program has started that this one replaces: no orphans.
    let children = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    let children = children.unwrap_or_default();
    adopt_guards(children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()));
    // Before a guard can be killed.
    let runtime =
        adopt_orphans().and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
    match runtime {
        Ok(runtime) => runtime.block_on(run(lasting, command)),
        Err(error) => {
            eprintln!("job-guard: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// The exit code of the command, as a shell has it, or of its failure.
async fn run(lasting: Duration, command: Vec<String>) -> ExitCode {
    let job = Job {
        stop_timeout: STOP_TIMEOUT,
        restart: RestartPolicy { max: 0, ..RestartPolicy::default() },
        ..Job::new("command", command)
    };
    let lease = Lease::lasting(lasting.saturating_add(STOP_TIMEOUT + KILL_RESERVE));
    let run = JobRun::start(job, &lease, Guards::new().reporter(Arc::new(Terminal)));
    let end = run.finished().await;
    if let RunEnd::LeaseEnded { .. } = end {
        return ExitCode::from(TIMED_OUT);
    }
    let code = match run.stop(lease.ends()).await.exit {
        Some(Exit::Code(code)) => code,
        Some(Exit::Signal(number)) => 128 + number,
        None => {
            eprintln!("job-guard: {end}");
            FAILED.into()
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}

/// The output of the command, where it would have written it.
#[derive(Debug)]
struct Terminal;

impl Reporter for Terminal {
    fn line(&self, _: &str, stream: Stream, line: &str) {
        match stream {
            Stream::Stdout => println!("{line}"),
            Stream::Stderr => eprintln!("{line}"),
        }
    }

    fn lines_dropped(&self, _: &str, lines: u64) {
        eprintln!("job-guard: {lines} lines of output were dropped");
    }
}
