//! The benchmark in small: it runs through, and leaves nothing behind. Its figures mean nothing here.
//!
//! Without the usual harness, for this program starts itself as the benchmark does: as one that measures, and as the
//! clients that it measures.

#[path = "../benches/session/child.rs"]
mod child;
#[path = "../benches/session/client.rs"]
mod client;
#[path = "../benches/session/load.rs"]
mod load;
#[path = "../benches/session/measure.rs"]
mod measure;
#[path = "../benches/session/memory.rs"]
mod memory;
#[path = "../benches/session/options.rs"]
mod options;
#[path = "../benches/session/process.rs"]
mod process;
#[path = "../benches/session/report.rs"]
mod report;
#[path = "../benches/session/setting.rs"]
mod setting;

use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::client::Kind;
use self::load::Load;

const TESTS: [(&str, fn()); 2] = [
    ("every_client_is_measured_under_every_load", every_client_is_measured_under_every_load),
    ("an_interrupt_ends_all_that_was_started", an_interrupt_ends_all_that_was_started),
];
const PATIENCE: Duration = Duration::from_secs(60);
/// In the place of a test's name.
const AS_BENCHMARK: &str = "--as-benchmark";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--child") => return options::obey(args.into_iter()),
        Some(AS_BENCHMARK) => return options::obey(args.into_iter().skip(1)),
        _ => {}
    }
    // As much of the usual harness as those who run tests ask for.
    let has = |option: &str| args.iter().any(|arg| arg == option);
    if has("--list") {
        let listed = if has("--ignored") { &TESTS[..0] } else { &TESTS[..] };
        listed.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let with_value = ["--test-threads", "--format", "--color", "--skip"];
    let behind = |at: usize| at.checked_sub(1).and_then(|at| args.get(at)).map_or("", String::as_str);
    let mut wanted = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        if !arg.starts_with('-') && !with_value.contains(&behind(at)) {
            wanted.push(arg.as_str());
        }
    }
    let chosen =
        TESTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|part| name.contains(part)));
    let mut passed = 0;
    for (name, test) in chosen {
        // A panic ends the program, and not with success.
        test();
        println!("test {name} ... ok");
        passed += 1;
    }
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

fn benchmark(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command.arg(AS_BENCHMARK).args(args);
    command
}

fn every_client_is_measured_under_every_load() {
    let mut command = benchmark(&["--rounds", "1", "--slice", "20", "--sessions", "2"]);
    let output = command.stderr(Stdio::inherit()).output().expect("it can be started");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {table}", output.status);
    // Said by the benchmark where it is missing.
    let has_kazoo = process::find_kazoo().is_ok();
    for part in
        Load::ALL.map(|load| load.to_string()).into_iter().chain(["memory of one session more".to_owned()])
    {
        let part = table
            .split("\n\n")
            .find(|lines| lines.starts_with(&part))
            .unwrap_or_else(|| panic!("{part}: {table}"));
        for kind in Kind::ALL.into_iter().filter(|kind| has_kazoo || *kind != Kind::Kazoo) {
            let line = part.lines().find(|line| line.split_whitespace().next() == Some(&kind.to_string()));
            let figures = line.unwrap_or_else(|| panic!("no {kind} in {part}")).split_whitespace();
            let figures = figures.filter(|word| word.parse::<f64>().is_ok_and(f64::is_finite)).count();
            // Its own, to the driver where it is a session, to kazoo. So few sessions may well need no more memory.
            let ratios =
                usize::from(kind.beneath().is_some()) + usize::from(has_kazoo && kind != Kind::Kazoo);
            let expected = if part.starts_with("memory") { 1 } else { 1 + ratios };
            assert!(figures >= expected, "{kind}: {figures} figures in {part}");
        }
    }
}

fn an_interrupt_ends_all_that_was_started() {
    let clients = [Kind::ALL[0], Kind::ALL[1]].map(|kind| kind.to_string());
    let mut command = benchmark(&["--rounds", "1000000", "--client", &clients[0], "--client", &clients[1]]);
    let mut benchmark = Ends(command.spawn().expect("it can be started"));
    let pid = benchmark.0.id();
    // Three servers and two clients.
    let started = eventually("all of it", || Some(descendants(pid)).filter(|started| started.len() >= 5));
    signal(pid, Signal::SIGINT);
    let status = eventually("its end", || benchmark.0.try_wait().expect("it is a child of this process"));
    assert_eq!(status.code(), Some(130));
    eventually("the end of all that it has started", || {
        let left = started.iter().filter(|(pid, born)| birth(**pid) == Some(**born)).count();
        (left == 0).then_some(())
    });
}

/// Ended in good order if the test fails.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            signal(self.0.id(), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).expect("a process's number");
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The processes that it has started, and those that they have started, each with the moment of its birth.
fn descendants(of: u32) -> BTreeMap<u32, u64> {
    let all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = BTreeMap::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for &(pid, _) in all.iter().filter(|(_, its)| *its == parent) {
            if let Some(born) = birth(pid) {
                found.insert(pid, born);
                parents.push(pid);
            }
        }
    }
    found
}

/// `None` if it has ended, whether somebody has taken note of that or not.
fn birth(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    if stat.first()? == "Z" { None } else { stat.get(19)?.parse().ok() }
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// What stands in /proc/PID/stat behind the program's name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}
