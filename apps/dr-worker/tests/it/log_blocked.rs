//! A log that no one reads, and jobs that write: neither may hold up the worker.

use std::{
    fs,
    io::{BufReader, PipeReader, Read as _},
    os::fd::AsFd,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::support::{
    Running, WRITES_MUCH,
    stage::{Stage, leads},
    until,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Far less than a request that waits for a log takes, and far more than any other.
const SOON: Duration = Duration::from_secs(3);

/// Whether nothing more fits into the pipe of which this is an end to write to.
fn is_full(pipe: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready == 0)
}

/// The metric of that name and these labels, whatever other labels it has.
fn metric(worker: &Running, name: &str, label: &str) -> f64 {
    let text = worker.http("GET", "/metrics").1;
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(f64::NAN)
}

#[test]
fn a_log_that_no_one_reads_holds_up_nothing() {
    let stage = Stage::new("/blocked");
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let ours = stderr.try_clone().expect("a descriptor");
    let job = format!("job.orders.command={}", json!(["/bin/sh", "-c", WRITES_MUCH]));
    let mut command = stage.worker_command("east-1", "east", &[&job]);
    command.stdout(stderr.try_clone().expect("a descriptor")).stderr(Stdio::from(stderr));
    let mut log = BufReader::with_capacity(1, log);
    let mut east = Running::start_logging_to(&mut command, &mut log);
    let west = stage.worker("west-1", "west", &[]);
    until("its log is blocked", || is_full(&ours));
    // The worker reports that it leads, and much else, to a log that takes nothing.
    let answers = |path: &str| {
        let asked = Instant::now();
        let code = east.code(path);
        assert!(asked.elapsed() < SOON, "{path} took {:?}", asked.elapsed());
        code
    };
    until("it leads", || answers("/leader") == 200);
    until("lines of the job were dropped", || {
        metric(&east, "dr_log_lines_dropped_total", "job=\"orders\"") > 0.0
    });
    assert_eq!(answers("/liveness"), 200);
    assert!(is_full(&ours), "something reads the log");

    let moved = stage.operator(&["switchover", "--to", "west-1", "--wait"]);
    moved.assert(0, &[]);
    assert!(moved.took < Duration::from_secs(10), "the switchover took {:?}", moved.took);
    until("west-1 leads", || leads(&west));
    assert_eq!(answers("/standby"), 200);

    let asked = Instant::now();
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(8), "it took {:?} to end", asked.elapsed());
    drop(log);
}

#[test]
fn lines_that_no_one_can_read_any_more_are_counted() {
    let stage = Stage::new("/no-reader");
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let job = r#"job.orders.command=["/bin/sh", "-c", "while :; do echo 0123456789; sleep 0.1; done"]"#;
    let mut command = stage.worker_command("east-1", "east", &[job]);
    command.stderr(Stdio::from(stderr));
    let mut log = BufReader::new(log);
    let worker = Running::start_logging_to(&mut command, &mut log);
    until("it leads", || leads(&worker));
    drop((command, log));
    until("they are counted", || metric(&worker, "dr_log_lines_dropped_total", "") > 0.0);
    assert!(leads(&worker));
}

#[test]
fn what_was_dropped_is_logged_when_there_is_room_again() {
    let stage = Stage::new("/dropped");
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let ours = stderr.try_clone().expect("a descriptor");
    let go = stage.dir.path().join("stop");
    // Until it is told to, and then it says one thing more.
    let script = format!(
        "while [ ! -e {0} ]; do head -c 100000 /dev/zero | tr '\\\\0' x | fold -w 100; done; echo; echo last words; \
         exec sleep 600",
        go.display()
    );
    let job = format!("job.orders.command=[\"/bin/sh\", \"-c\", \"{script}\"]");
    let mut command = stage.worker_command("east-1", "east", &[&job]);
    command.stderr(Stdio::from(stderr));
    let mut log = BufReader::with_capacity(1, log);
    let worker = Running::start_logging_to(&mut command, &mut log);
    until("its log is blocked", || is_full(&ours));
    until("lines were dropped", || metric(&worker, "dr_log_lines_dropped_total", "job=\"orders\"") > 1000.0);
    fs::write(go, "").expect("a file");
    drop((command, ours));
    let lines = lines_until(log, "last words");
    let of_job = lines.iter().filter(|line| line["target"] == "job");
    assert!(of_job.clone().count() > 0);
    for line in of_job {
        assert_eq!((&line["job"], &line["level"]), (&"orders".into(), &"INFO".into()), "{line}");
    }
    // By one line, or by several if there was room for a moment before.
    let is_report = |words: &str| words.contains("lines of its output were dropped");
    let reports = lines.iter().filter(|line| line["message"].as_str().is_some_and(is_report));
    let reported = reports.map(|line| {
        assert_eq!(line["job"], "orders", "{line}");
        line["lines"].as_u64().expect("how many")
    });
    assert!(reported.sum::<u64>() > 1000);
    drop(worker);
}

/// The lines of a log up to the one with this message.
fn lines_until(log: BufReader<PipeReader>, message: &str) -> Vec<Value> {
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut log = log.into_inner();
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = log.read(&mut chunk) {
            text.extend_from_slice(&chunk[..count]);
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                if sender.send(line).is_err() {
                    return;
                }
            }
        }
    });
    let mut found = Vec::new();
    loop {
        let line = lines.recv_timeout(crate::support::LONG).expect("the message comes");
        let line: Value = match serde_json::from_slice(&line) {
            Ok(line) => line,
            // The rest of a line that was read in part.
            Err(_) if found.is_empty() => continue,
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&line)),
        };
        let is_last = line["message"] == message;
        found.push(line);
        if is_last {
            return found;
        }
    }
}
