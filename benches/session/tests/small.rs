//! A small run of the benchmark: it completes, and leaves no process. Its figures have no meaning here.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use zk_session::DriverKind;

const PATIENCE: Duration = Duration::from_secs(60);

fn benchmark(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_session-bench"));
    command.args(args);
    command
}

/// The figures of a client's lines in one part of the table.
fn figures(part: &str, kind: &str) -> Vec<f64> {
    let lines = part.lines().filter(|line| line.split_whitespace().next() == Some(kind));
    lines
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.trim_matches(['(', ')']).parse().ok())
        .collect()
}

#[test]
fn every_client_is_measured_under_every_load() {
    let output = benchmark(&["--rounds", "1", "--slice", "20", "--sessions", "2"]).output();
    let output = output.expect("it can be started");
    let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{table}", output.status);
    let raw = ["socket", "zookeeper-client", "zookeeper-async", "kazoo"].map(str::to_owned);
    let sessions = DriverKind::ALL.map(|driver| format!("session/{driver}"));
    let has_kazoo = !said.contains("SKIPPED: kazoo");
    let parts: Vec<&str> = table.split("\n\n").skip(1).collect();
    assert_eq!(parts.len(), 5, "four loads and what does not depend on them: {table}");
    for kind in raw.iter().chain(&sessions).filter(|kind| has_kazoo || *kind != "kazoo") {
        let has_driver =
            kind.strip_prefix("session/").is_some_and(|driver| raw.iter().any(|raw| raw == driver));
        let others = usize::from(kind != "socket") + usize::from(has_driver);
        let kazoo = usize::from(has_kazoo && kind != "kazoo");
        // Operations per second, and two latencies: its own; three ratios to the socket, three to the driver, and one
        // to kazoo. In the best tenth of the rounds one to each.
        let expected = 3 * (1 + 3 * others + kazoo) + (1 + others + kazoo);
        for part in &parts[..4] {
            let figures = figures(part, kind);
            assert_eq!(figures.len(), expected, "{kind}: {figures:?} in {part}");
            assert!(figures.iter().all(|figure| figure.is_finite() && *figure > 0.0), "{kind}: {part}");
        }
        // Memory (so few sessions may need no more), threads with one session and with all, round trips.
        let [_, one, all, connected, read] = figures(parts[4], kind)[..] else {
            panic!("{kind}: {}", parts[4])
        };
        assert!(kind != "socket" || one + all == 0.0, "the socket's loop has no thread: {}", parts[4]);
        assert!(one <= all, "{kind}: {}", parts[4]);
        // A handshake, and the reply to a read that may have been sent with it.
        assert!(read >= 1.0 && connected < read, "{kind}: {}", parts[4]);
    }
}

#[test]
fn an_interrupt_ends_all_that_was_started() {
    let mut command =
        benchmark(&["--rounds", "1000000", "--client", "socket", "--client", "zookeeper-client"]);
    command.stderr(Stdio::null());
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

/// Ends by a signal if the test fails.
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
        // The polling interval.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Its children and their children, each with its start time.
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

/// `None` if it has ended, reaped or not.
fn birth(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    if stat.first()? == "Z" { None } else { stat.get(19)?.parse().ok() }
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The fields of /proc/PID/stat after the program's name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}
