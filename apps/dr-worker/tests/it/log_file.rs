//! The worker's own log: in a file, as text and as JSON, with the fields that programs read.

use std::{fs, path::Path};

use crate::support::{Background, Outcome, set, stage::Stage, until};
use nix::sys::signal::Signal;
use serde_json::Value;

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last one may not be whole yet.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn message<'a>(lines: &'a [Value], part: &str) -> Option<&'a Value> {
    lines.iter().find(|line| line["message"].as_str().is_some_and(|message| message.contains(part)))
}

#[test]
fn the_log_goes_to_its_file_with_member_site_job_and_term() {
    let stage = Stage::new("/log-file");
    let path = stage.dir.path().join("worker.log");
    let file = format!("log.file={}", path.display());
    let mut command = stage.worker_command("east-1", "east", &[&file, "http.listen=127.0.0.1:0"]);
    let worker = Background::of(command.arg("run"));
    until("it leads", || message(&lines(&path), "job is ready").is_some());
    // As logrotate does it.
    let moved = stage.dir.path().join("moved.log");
    fs::rename(&path, &moved).expect("a file");
    worker.signal(Signal::SIGUSR2);
    until("the file is there again", || message(&lines(&path), "opening the log files again").is_some());
    worker.signal(Signal::SIGTERM);
    let outcome = worker.outcome();
    outcome.assert(0, &[]);
    assert_eq!(outcome.stderr, "", "the log is in the file only");
    let lines = [lines(&moved), lines(&path)].concat();
    for line in &lines {
        assert_eq!((&line["member"], &line["site"]), (&"east-1".into(), &"east".into()), "{line}");
        assert!(line["term"].is_null() || line["term"].is_u64(), "{line}");
    }
    for part in ["job started", "job is ready", "sent SIGTERM to the job", "the job has stopped"] {
        let line = message(&lines, part).unwrap_or_else(|| panic!("no line {part:?}"));
        assert_eq!((&line["job"], &line["term"]), (&"orders".into(), &1.into()), "{line}");
    }
    assert!(message(&lines, "the job has stopped").is_some_and(|line| line["took_ms"].is_u64()));
    // Once the leadership is over, lines have no term.
    let of_election = lines.iter().rfind(|line| line["election"] == "orders").expect("lines of the election");
    assert_eq!(
        (&of_election["job"], &of_election["term"]),
        (&"orders".into(), &Value::Null),
        "{of_election}"
    );
}

#[test]
fn a_worker_that_can_not_start_says_so_on_standard_error_and_in_its_file() {
    let stage = Stage::new("/log-file-error");
    let path = stage.dir.path().join("worker.log");
    let missing = "job.orders.command=[\"/no/such/program\"]";
    let log = format!("log.file={}", path.display());
    let mut command = stage.worker_command("east-1", "east", &[&log, missing]);
    Outcome::of(command.arg("run")).assert(75, &["error:", "job.orders.command: /no/such/program"]);
    let text = fs::read_to_string(&path).expect("a file");
    assert!(text.contains("/no/such/program"), "{text}");
    for verb in [&["config", "check"][..], &["run"]] {
        let mut command = stage.worker_command("east-1", "east", &["log.file=/nowhere/worker.log"]);
        Outcome::of(command.args(verb)).assert(75, &["log.file: /nowhere is not a directory; create it"]);
    }
}

/// Runs a worker until it leads, and returns what it printed.
fn led(stage: &Stage, settings: &[&str], arguments: &[&str]) -> Outcome {
    let mut command = stage.worker_command("east-1", "east", settings);
    set(&mut command, &["http.listen=127.0.0.1:0"]);
    let worker = Background::of(command.args(arguments).arg("run"));
    until("it leads", || {
        let list = stage.operator(&["--output", "json", "list"]);
        list.code == Some(0) && list.stdout.contains("\"role\":\"leader\"")
    });
    worker.signal(Signal::SIGTERM);
    let outcome = worker.outcome();
    outcome.assert(0, &[]);
    outcome
}

#[test]
fn a_log_whose_disk_is_full_holds_up_nothing() {
    let stage = Stage::new("/log-file-full");
    led(&stage, &["log.file=/dev/full"], &[]);
}

#[test]
fn the_format_is_chosen() {
    let stage = Stage::new("/log-format");
    let text = led(&stage, &[], &["--log-format", "text"]).stderr;
    assert!(text.contains(" INFO leaving all elections signal=\"SIGTERM\"\n"), "{text}");
    let path = stage.dir.path().join("worker.log");
    led(&stage, &[&format!("log.file={}", path.display())], &["--log-format", "text"]);
    let text = fs::read_to_string(&path).expect("a file");
    assert!(text.contains(" INFO leaving all elections signal=\"SIGTERM\"\n"), "{text}");
    Outcome::of(stage.command(&[]).args(["--log-format", "xml", "list"])).assert(64, &["text", "json"]);
}
