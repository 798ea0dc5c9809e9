//! Runs test programs side by side.

use std::ffi::OsStr;
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::output::{Case, Output};
use super::timings::Spent;
use super::totals::Totals;
use crate::cargo;
use crate::group::{self, Group};

const LOOK: Duration = Duration::from_millis(50);

/// Between two reports about the programs that run.
const REPORTS: Duration = Duration::from_secs(60);

/// How a program runs beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// So many of its tests at a time. Most tests wait.
    Threads(usize),
    /// One test at a time, beside no program but those that compute.
    Alone,
    /// At the lowest priority, so that it takes no time from tests that measure time.
    Computes,
}

/// The programs that are not as the others, in the order of their start: the longest first.
const MANNERS: [(&str, &str, Manner); 10] = [
    // Its tests leave orphans that the worker of another test can't distinguish from its own, and measure time.
    ("job-guard", "alone", Manner::Alone),
    // The model checker and thousands of elections in virtual time.
    ("election-mutants", "it", Manner::Computes),
    ("election-core", "it", Manner::Computes),
    // Three servers and four workers each.
    ("e2e", "it", Manner::Threads(2)),
    ("dr-worker", "it", Manner::Threads(2)),
    ("zk-session", "it", Manner::Threads(2)),
    ("zk-testkit", "it", Manner::Threads(2)),
    // One program for all packages, which compiles.
    ("", "doctests", Manner::Threads(2)),
    // They measure their process.
    ("zk-session", "alone", Manner::Threads(1)),
    ("zk-testkit", "alone", Manner::Threads(1)),
];

/// Two thousand elections at a time leave the sessions time for their heartbeats.
const OTHERS: Manner = Manner::Threads(2);

impl Manner {
    /// A command for a program.
    pub(super) fn command(self, program: &OsStr) -> Command {
        if self != Self::Computes {
            return cargo::program(program);
        }
        let mut command = cargo::program("nice");
        command.args(["-n", "19"]).arg(program);
        command
    }

    /// How many of its tests run at a time, of so many in all.
    pub(super) fn threads(self, all: usize) -> usize {
        match self {
            Self::Threads(threads) => threads.min(all),
            Self::Alone => 1,
            Self::Computes => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// A program that is to run.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) manner: Manner,
    pub(super) command: Command,
}

/// A program that has ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) name: String,
    pub(super) has_succeeded: bool,
    pub(super) totals: Totals,
    pub(super) cases: Vec<Case>,
}

/// The place of a program in the order of starts, and how it runs.
pub(super) fn manner(package: &str, program: &str) -> (usize, Manner) {
    let row = MANNERS.iter().position(|(its_package, name, _)| *its_package == package && *name == program);
    row.map_or((MANNERS.len(), OTHERS), |place| (place, MANNERS[place].2))
}

/// A program of which no test ends for this long is ended; one that computes on a busy machine, for three times as long.
pub(super) fn patience(is_full: bool) -> Duration {
    Duration::from_secs(60 * if is_full { 40 } else { 10 })
}

/// Runs all of them, with so many tests at a time beside those that compute. Shows the output of those that fail, or, if
/// wanted, all output. Dropping the future ends all.
///
/// # Errors
/// A program can't be started.
pub(super) async fn run(
    tasks: Vec<Task>,
    threads: usize,
    patience: Duration,
    shows_all: bool,
) -> anyhow::Result<Vec<Done>> {
    let (mut waiting, mut running, mut done) = (tasks, Running(Vec::new()), Vec::new());
    let mut reported = Instant::now();
    while !(waiting.is_empty() && running.0.is_empty()) {
        for task in std::mem::take(&mut waiting) {
            if running.has_room_for(task.manner, threads) {
                running.0.push(Program::start(task)?);
            } else {
                waiting.push(task);
            }
        }
        tokio::time::sleep(LOOK).await;
        for mut program in std::mem::take(&mut running.0) {
            if program.has_ended(patience)? {
                done.push(program.done(shows_all));
            } else {
                running.0.push(program);
            }
        }
        if reported.elapsed() > REPORTS {
            reported = Instant::now();
            eprintln!("{running}");
        }
    }
    Ok(done)
}

struct Running(Vec<Program>);

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tests =
            |program: &Program| format!("{} ({} tests ended)", program.name, program.output.cases().len());
        write!(f, "running: {}", self.0.iter().map(tests).collect::<Vec<_>>().join(", "))
    }
}

impl Running {
    fn has_room_for(&self, manner: Manner, threads: usize) -> bool {
        let room = |manner: Manner| match manner {
            Manner::Computes => 0,
            Manner::Alone => threads,
            Manner::Threads(_) => manner.threads(threads),
        };
        let taken: usize = self.0.iter().map(|program| room(program.manner)).sum();
        room(manner) + taken <= threads
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.iter().for_each(|program| program.group.interrupt());
    }
}

/// A program that runs.
struct Program {
    name: String,
    manner: Manner,
    group: Group,
    output: Output,
    begin: Instant,
    /// When a test ended last.
    last: Instant,
    /// Its processor time, and whether it has succeeded.
    end: Option<(f64, bool)>,
}

impl Program {
    fn start(mut task: Task) -> anyhow::Result<Self> {
        let output = Output::of(&mut task.command).context("cannot make a temporary file")?;
        let (group, begin) = (Group::start(&mut task.command)?, Instant::now());
        Ok(Self { name: task.name, manner: task.manner, group, output, begin, last: begin, end: None })
    }

    fn has_ended(&mut self, patience: Duration) -> anyhow::Result<bool> {
        // Nothing else is waited for meanwhile.
        let before = group::processor_time()?;
        let status = self.group.try_status()?;
        if let Some(status) = status {
            self.end = Some((group::processor_time()? - before, status.success()));
        }
        for case in self.output.read()? {
            self.last = Instant::now();
            if case.has_failed {
                eprintln!("{}: {}: FAILED", self.name, case.name);
            }
        }
        let patience = if self.manner == Manner::Computes { 3 * patience } else { patience };
        Ok(self.end.is_some() || self.last.elapsed() > patience)
    }

    /// Reports the outcome.
    fn done(self, shows_all: bool) -> Done {
        let Self { name, group, output, begin, end, .. } = self;
        let spent =
            Spent { real: begin.elapsed().as_secs_f64(), processor: end.map_or(0.0, |(time, _)| time) };
        let is_hanging = end.is_none();
        // Ends it then.
        drop(group);
        let has_succeeded = end.is_some_and(|(_, is_success)| is_success);
        let totals = output.totals();
        // One that has crashed has no totals.
        let failed = if has_succeeded { totals.failed } else { totals.failed.max(1) };
        let totals = Totals { failed, ..totals };
        if !has_succeeded || shows_all {
            print!("{}", if shows_all { output.text() } else { output.without_passed() });
        }
        if is_hanging {
            println!(
                "error: {name}: no test has ended for a long time. Still running: {}",
                output.unended().join(", ")
            );
        }
        if !totals.is_empty() {
            println!("{name}: {totals}, {spent}");
        }
        Done { name, has_succeeded, totals, cases: output.cases().to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(manner: Manner, script: &str) -> Task {
        let mut command = manner.command(OsStr::new("sh"));
        command.args(["-c", script]);
        Task { name: script.to_owned(), manner, command }
    }

    async fn failures(tasks: Vec<Task>) -> Vec<u64> {
        let done = run(tasks, 2, Duration::from_secs(1), false).await.unwrap();
        done.iter().map(|program| program.totals.failed).collect()
    }

    #[tokio::test]
    async fn a_program_that_crashes_or_hangs_has_failed() {
        let scripts =
            ["exit 1", "sleep 1000 & wait", "echo 'test result: FAILED. 0 passed; 2 failed'; exit 101"];
        let mut failed = failures(scripts.map(|script| task(Manner::Threads(1), script)).into()).await;
        failed.sort_unstable();
        assert_eq!(failed, [1, 1, 2]);
    }

    #[tokio::test]
    async fn what_is_alone_waits_for_the_others_but_not_for_those_that_compute() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        // Each leaves a file, and fails if another one's is there or is not.
        let tasks = vec![
            task(Manner::Computes, &format!("while ! [ -e {path}/alone ]; do sleep 0.01; done")),
            task(Manner::Threads(1), &format!("sleep 0.2; [ ! -e {path}/alone ] && touch {path}/other")),
            task(Manner::Alone, &format!("[ -e {path}/other ] && touch {path}/alone")),
        ];
        assert_eq!(failures(tasks).await, [0, 0, 0]);
    }
}
