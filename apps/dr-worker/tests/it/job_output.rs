//! Where the output of a job goes, with real workers: the log, files, the journal, and what `logs` shows.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::net::UnixDatagram,
    path::Path,
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

#[cfg(feature = "tls")]
use crate::support::pki::{HERE, Pki};
use crate::support::{
    LONG, Outcome, Running, WRITES_MUCH, set,
    stage::{Stage, leads},
    until,
};
use nix::{sys::signal::Signal, sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};

fn job(script: &str) -> String {
    format!("job.orders.command={}", json!(["/bin/sh", "-c", script]))
}

/// `logs --job orders` on the node of `east-1`.
fn logs(stage: &Stage, arguments: &[&str]) -> Outcome {
    let mut command = stage.worker_command("east-1", "east", &[]);
    Outcome::of(command.args(["logs", "--job", "orders"]).args(arguments))
}

/// The last lines with their streams.
fn last(stage: &Stage, count: usize) -> Vec<(String, String)> {
    let outcome = logs(stage, &["--output", "json", "-n", &count.to_string()]);
    outcome.assert(0, &[]);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let lines = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| (text(&line["stream"]), text(&line["line"]))).collect()
}

fn has(lines: &[(String, String)], stream: &str, part: &str) -> bool {
    lines.iter().any(|(from, line)| from == stream && line.contains(part))
}

fn dropped(worker: &Running) -> f64 {
    let text = worker.http("GET", "/metrics").1;
    let line =
        text.lines().find(|line| line.starts_with("dr_log_lines_dropped_total") && line.contains("orders"));
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0.0)
}

/// A worker, and its log line by line.
fn logging(stage: &Stage, settings: &[&str]) -> (Running, mpsc::Receiver<Value>) {
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let mut command = stage.worker_command("east-1", "east", settings);
    let mut log = BufReader::new(log);
    let worker = Running::start_logging_to(command.stderr(Stdio::from(stderr)), &mut log);
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
        }
    });
    (worker, lines)
}

#[test]
fn each_line_is_logged_with_its_stream_and_term() {
    let stage = Stage::new("/output-log");
    let script = "echo out; echo err >&2; printf 'two\\nlines\\n'; exec sleep 600";
    let (_worker, lines) = logging(&stage, &[&job(script)]);
    let mut of_job = Vec::new();
    while of_job.len() < 4 {
        let line = lines.recv_timeout(LONG).expect("the lines come");
        if line["target"] == "job" {
            assert_eq!((&line["job"], &line["term"]), (&"orders".into(), &1.into()), "{line}");
            of_job.push((line["stream"].clone(), line["message"].clone()));
        }
    }
    // The order is kept within each stream.
    of_job.sort_by_key(|(stream, _)| stream.to_string());
    let expected = [("stderr", "err"), ("stdout", "out"), ("stdout", "two"), ("stdout", "lines")];
    assert_eq!(of_job, expected.map(|(stream, line)| (stream.into(), line.into())));
}

#[test]
fn the_words_of_a_crash_are_shown_also_after_the_end_of_the_worker() {
    let stage = Stage::new("/output-crash");
    let script = "if [ -e crashed ]; then echo again; exec sleep 600; fi; \
                  touch crashed; echo working; echo 'panicked: no orders' >&2; exit 3";
    let dir = format!("job.orders.working_dir={}", stage.dir.path().display());
    let nothing = logs(&stage, &[]);
    nothing.assert(0, &["no output of job orders of east-1 is kept in", "it has not run there"]);
    assert_eq!(nothing.stdout, "");
    // Followed from before the first line on, without its name.
    let mut command = stage.worker_command("east-1", "east", &[]);
    let mut follow = command.args(["logs", "-f"]).stdout(Stdio::piped()).spawn().expect("dr-worker starts");
    let followed = BufReader::new(follow.stdout.take().expect("a pipe"));
    let worker = stage.worker("east-1", "east", &[&job(script), &dir]);
    until("it runs again", || has(&last(&stage, 10), "stdout", "again"));
    // What a job writes to two streams at once comes in any order.
    let mut missing = vec!["starting in term 1", "working", "no orders", "ended: exit code 3", "again"];
    for line in followed.lines().map(|line| line.expect("a line")) {
        missing.retain(|part| !line.contains(part));
        if missing.is_empty() {
            break;
        }
    }
    assert!(missing.is_empty(), "{missing:?} are not printed");
    follow.kill().expect("it runs");
    follow.wait().expect("its own child");
    let check = |lines: &[(String, String)]| {
        assert!(has(lines, "worker", "starting in term 1"), "{lines:?}");
        assert!(has(lines, "stdout", "working") && has(lines, "stderr", "panicked: no orders"), "{lines:?}");
        let at = |part: &str| lines.iter().position(|(_, line)| line.contains(part));
        assert!(at("no orders") < at("ended: exit code 3") && at("exit code 3") < at("again"), "{lines:?}");
    };
    check(&last(&stage, 10));
    assert_eq!(last(&stage, 1).len(), 1);
    // Killed, it can write nothing more.
    drop(worker);
    check(&last(&stage, 10));
    let text = logs(&stage, &[]);
    text.assert(0, &[]);
    assert!(text.stdout.contains("Z  stderr  panicked: no orders\n"), "{}", text.stdout);
}

#[cfg(feature = "tls")]
#[test]
fn the_output_on_another_node_is_read_by_its_worker() {
    let (stage, pki) = (Stage::new("/output-elsewhere"), Pki::new());
    pki.issue("worker", "ca", HERE, 20);
    let files = [
        ("cert_file", "worker.pem"),
        ("key_file", "worker.key"),
        ("client_ca_file", "ca.pem"),
        ("ca_file", "ca.pem"),
    ];
    let tls = pki.setting(&files);
    let admitted = pki.client(Some("worker"));
    let script = "echo 'from east'; exec sleep 600";
    let access = "http.access.status=\"certificate\"";
    let settings = [&*job(script), &tls, access];
    let east = stage.worker("east-1", "east", &settings).over(&admitted);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &settings).over(&admitted);
    until("west-1 is standby", || west.code("/standby") == 200);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let on_west = |arguments: &[&str]| {
        let state = format!("node.state_dir={}", elsewhere.path().display());
        let mut command = stage.worker_command("west-1", "west", &[&state, &tls, access]);
        Outcome::of(command.arg("logs").args(arguments))
    };
    // The job has not run there.
    let shown = on_west(&["--job", "orders"]);
    shown.assert(0, &["east-1 leads orders: its output is on that node", "logs --job orders --node east-1"]);
    assert!(shown.stdout.contains("Z  stdout  from east\n"), "{}", shown.stdout);
    // An operator's host has no worker.
    let operator = |arguments: &[&str]| Outcome::of(stage.command(&[&tls, access]).args(arguments));
    let named = operator(&["logs", "--job", "orders", "--node", "east-1", "-n", "1"]);
    assert!(named.stdout.lines().count() == 1 && named.stdout.contains("from east"), "{}", named.stdout);
    let line = operator(&["--output", "json", "logs", "--node", "east-1", "-n", "1"]);
    let line: Value = serde_json::from_str(&line.stdout).expect("JSON");
    assert_eq!((&line["stream"], &line["line"]), (&json!("stdout"), &json!("from east")));
    assert_eq!(operator(&["logs", "--node", "west-1"]).assert(0, &[]).stdout, "");
    operator(&["logs", "--node", "north-1"]).assert(64, &["unknown member north-1", "east-1, west-1"]);
    let answer: Value = serde_json::from_str(&east.http("GET", "/logs?lines=1").1).expect("JSON");
    assert_eq!((&answer["member"], &answer["lines"][0]["line"]), (&json!("east-1"), &json!("from east")));
}

/// Output can hold secrets.
#[test]
fn where_everyone_reads_the_state_nobody_reads_the_output() {
    let stage = Stage::new("/output-closed");
    let east = stage.worker("east-1", "east", &[&job("echo secret; exec sleep 600")]);
    until("east-1 leads", || leads(&east));
    assert_eq!((east.code("/status"), east.code("/logs")), (200, 403));
    let refused = stage.operator(&["logs", "--node", "east-1"]);
    refused.assert(1, &["can't be read", "its http.access admits no certificate of this node"]);
    assert!(!refused.stdout.contains("secret"));
}

#[test]
fn logs_ends_with_the_code_that_scripts_know() {
    let stage = Stage::new("/output-codes");
    let worker = |settings: &[&str]| stage.worker_command("east-1", "east", settings);
    Outcome::of(worker(&[]).args(["logs", "--job", "bills"]))
        .assert(64, &["unknown job \"bills\"", "configured: [\"orders\"]"]);
    Outcome::of(worker(&["node.id=a/b"]).args(["logs", "--job", "orders"])).assert(78, &["node.id"]);
    let several = worker(&["job.bills.command=[\"/bin/true\"]"]).arg("logs").output().expect("it starts");
    assert_eq!(several.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&several.stderr).contains("which job? bills, orders (--job JOB)"));
    // What does not concern the node does not matter.
    Outcome::of(worker(&["zookeeper.session_timeout=soon"]).args(["logs", "--job", "orders"])).assert(0, &[]);
    let dir = stage.dir.path().join("state/east-1.output/orders.jsonl");
    fs::create_dir_all(&dir).expect("a directory");
    Outcome::of(worker(&[]).args(["logs", "--job", "orders"]))
        .assert(1, &["can't read the output of job orders"]);
}

#[test]
fn a_file_is_rotated_and_nothing_is_lost() {
    let stage = Stage::new("/output-file");
    let path = stage.dir.path().join("orders.log");
    let output =
        format!("job.orders.output={{ kind = \"file\", path = {path:?}, max_size = \"4KiB\", keep = 1000 }}");
    // Bytes that are no text, too.
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; printf '\\377\\000\\n'; echo done >&2; \
                  exec sleep 600";
    let worker = stage.worker("east-1", "east", &[&job(script), &output]);
    until("it is written", || has(&last(&stage, 10_000), "stderr", "done"));
    // The last line of the other stream can come later.
    let older = |number: usize| format!("{}.{number}", path.display());
    let read = || {
        let count = (1..).take_while(|number| Path::new(&older(*number)).exists()).count();
        let all = (1..=count).rev().map(older).chain([path.display().to_string()]);
        let all: Vec<_> = all.map(|path| fs::read(path).expect("a file")).collect();
        assert!(
            all.iter().all(|file| file.len() <= 4096),
            "{:?}",
            all.iter().map(Vec::len).collect::<Vec<_>>()
        );
        all.concat()
    };
    until("all lines are in the files", || read().windows(5).any(|bytes| bytes == b"done\n"));
    let mut expected: Vec<u8> =
        (0..2000).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
    expected.extend(b"\xff\0\n");
    let all = read();
    let all: Vec<_> = all.split_inclusive(|&byte| byte == b'\n').filter(|line| *line != b"done\n").collect();
    assert!(all.concat() == expected, "{} lines", all.len());
    assert_eq!(dropped(&worker), 0.0);
}

#[test]
fn the_last_words_of_a_job_are_written_before_its_worker_ends() {
    let stage = Stage::new("/output-last-words");
    let path = stage.dir.path().join("orders.log");
    let output = format!("job.orders.output={{ kind = \"file\", path = {path:?} }}");
    let script = "exec 2>/dev/null; trap 'seq 1000; echo bye; exit 0' TERM; while :; do sleep 0.1; done";
    let mut worker = stage.worker("east-1", "east", &[&job(script), &output]);
    until("it leads", || leads(&worker));
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    let written = fs::read_to_string(&path).expect("a file");
    let end = &written[written.len().saturating_sub(100)..];
    assert!(end.ends_with("\n1000\nbye\n"), "{end} {:?}", last(&stage, 3));
    let lines = last(&stage, 2);
    assert!(has(&lines, "stdout", "bye") && has(&lines, "worker", "ended: exit code 0"), "{lines:?}");
}

#[test]
fn a_job_that_goes_into_the_background_is_told_what_to_do() {
    let stage = Stage::new("/output-background");
    let settings = [&*job("sleep 600 & exit 0"), "job.orders.restart.max=0"];
    let _worker = stage.worker("east-1", "east", &settings);
    until("it has ended", || {
        let lines = last(&stage, 10);
        has(&lines, "worker", "configure it to stay in the foreground")
    });
}

/// As a loop that prints an error without a pause, which fills the disk of the log.
#[test]
fn a_job_that_writes_too_much_loses_lines_which_are_counted() {
    let stage = Stage::new("/output-limit");
    let script =
        "for i in $(seq 6000); do echo 0123456789012345678901234567890123456789; done; exec sleep 600";
    let limit = "job.orders.output.limit=10KiB";
    let (worker, lines) = logging(&stage, &[&job(script), limit]);
    until("all others are dropped and counted", || dropped(&worker) > 3000.0);
    let mut logged = std::iter::from_fn(|| lines.recv_timeout(LONG).ok());
    let is_warning =
        |line: &Value| line["message"].to_string().contains("it writes more than 10KiB a second");
    let before = logged.by_ref().take_while(|line| !is_warning(line));
    let passed = before.filter(|line| line["target"] == "job").count();
    assert!((2000..4000).contains(&passed), "{passed} lines have passed");
    assert!(has(&last(&stage, 1), "stdout", "0123456789"), "all are kept for `logs`");
}

/// A worker whose job writes all the time and whose output goes nowhere still leads, and moves at once.
#[track_caller]
fn is_not_held_up(stage: &Stage, output: &str) {
    let (worker, lines) = logging(stage, &[&job(WRITES_MUCH), output]);
    let west = stage.worker("west-1", "west", &[]);
    until("it leads", || leads(&worker));
    until("lines are dropped and counted", || dropped(&worker) > 100.0);
    until("the last lines are kept in any case", || {
        has(&last(stage, 1), "stdout", "0123456789") || has(&last(stage, 1), "stderr", "0123456789")
    });
    let moved = stage.operator(&["switchover", "--to", "west-1", "--wait"]);
    moved.assert(0, &[]);
    assert!(moved.took < Duration::from_secs(10), "the switchover took {:?}", moved.took);
    until("the other one leads", || leads(&west));
    let mut logged = std::iter::from_fn(|| lines.recv_timeout(LONG).ok());
    assert!(logged.any(|line| line["job"] == "orders" && line["target"] != "job"));
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let stage = Stage::new("/output-full");
    let output = "job.orders.output={ kind = \"file\", path = \"/dev/full\" }";
    is_not_held_up(&stage, output);
    let (_worker, lines) = logging(&stage, &[&job("echo one; exec sleep 600"), output]);
    let mut logged = std::iter::from_fn(|| lines.recv_timeout(LONG).ok());
    let error = logged.find(|line| line["level"] == "ERROR").expect("it is logged");
    let message = error["message"].as_str().expect("text");
    assert!(message.contains("can't write its output to /dev/full"), "{error}");
}

#[test]
fn a_file_that_blocks_costs_lines_and_nothing_else() {
    let stage = Stage::new("/output-blocked");
    let path = stage.dir.path().join("fifo");
    mkfifo(&path, Mode::S_IRWXU).expect("a pipe that no one reads");
    is_not_held_up(&stage, &format!("job.orders.output={{ kind = \"file\", path = {path:?} }}"));
}

#[test]
fn what_the_guard_drops_while_the_worker_hangs_is_counted_and_named() {
    let stage = Stage::new("/output-frozen");
    let (progress, line) = (stage.dir.path().join("progress"), "x".repeat(200));
    let script = format!(
        "lines=$(yes {line} | head -n 20); \
         while :; do echo \"$lines\"; printf %20s >> {}; sleep 0.02; done",
        progress.display()
    );
    // Longer than the guard holds lines back.
    let (worker, lines) = logging(&stage, &[&job(&script), "zookeeper.session_timeout=10s"]);
    until("it leads", || leads(&worker));
    // One byte for each line.
    let written = || fs::metadata(&progress).map_or(0, |file| file.len());
    worker.signal(Signal::SIGSTOP);
    // Three pipes and the guard hold 64 KiB each. What is more is dropped.
    let before = written();
    until("the job is not held up", || written() > before + 2000);
    worker.signal(Signal::SIGCONT);
    until("dropped lines are counted", || dropped(&worker) > 100.0);
    let mut logged = std::iter::from_fn(|| lines.recv_timeout(LONG).ok());
    assert!(logged.any(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        line["target"] == "job" && message.contains("bytes of output were dropped here")
    }));
}

#[test]
fn a_journal_that_does_not_read_costs_lines_and_nothing_else() {
    let stage = Stage::new("/output-journal-blocked");
    let path = stage.dir.path().join("journal");
    let _socket = UnixDatagram::bind(&path).expect("a socket");
    is_not_held_up(&stage, &format!("job.orders.output={{ kind = \"journal\", socket = {path:?} }}"));
}

#[test]
fn the_journal_gets_each_line_with_the_leadership() {
    let stage = Stage::new("/output-journal");
    let path = stage.dir.path().join("journal");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    let output = format!("job.orders.output={{ kind = \"journal\", socket = {path:?} }}");
    let _worker = stage.worker("east-1", "east", &[&job("echo hello >&2; exec sleep 600"), &output]);
    let mut entry = vec![0; 64 * 1024];
    let count = socket.recv(&mut entry).expect("an entry");
    let entry = &entry[..count];
    for (name, value) in
        [("MESSAGE", "hello"), ("DR_STREAM", "stderr"), ("DR_TERM", "1"), ("DR_JOB", "orders")]
    {
        let mut field = format!("{name}\n").into_bytes();
        field.extend((value.len() as u64).to_le_bytes());
        field.extend(format!("{value}\n").into_bytes());
        assert!(entry.windows(field.len()).any(|part| part == field), "{name}: {entry:?}");
    }
}

#[test]
fn a_line_without_end_takes_no_memory() {
    let stage = Stage::new("/output-endless");
    let path = stage.dir.path().join("orders.log");
    let output =
        format!("job.orders.output={{ kind = \"file\", path = {path:?}, max_size = \"1MiB\", keep = 1 }}");
    let script = "head -c 40000000 /dev/zero; echo; echo last words >&2; exec sleep 600";
    let worker = stage.worker("east-1", "east", &[&job(script), &output]);
    until("all of it was read", || has(&last(&stage, 1000), "stderr", "last words"));
    let status = fs::read_to_string(format!("/proc/{}/status", worker.pid())).expect("it lives");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its memory");
    let most: u64 = most.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(most < 60_000, "it took {most} kB");
    worker.signal(Signal::SIGTERM);
}

#[test]
fn a_place_where_no_file_can_be_is_refused() {
    let stage = Stage::new("/output-refused");
    let check = |output: &str| {
        let mut command = stage.worker_command("east-1", "east", &[]);
        set(&mut command, &[&format!("job.orders.output={output}")]);
        Outcome::of(command.args(["config", "check"]))
    };
    for (output, part) in [
        ("{ kind = \"file\" }", "job.orders.output.path: it is missing: the file, such as"),
        ("{ kind = \"file\", path = \"/tmp\" }", "job.orders.output.path: /tmp is a directory"),
        ("{ kind = \"file\", path = \"/tmp/o.log\", max_size = \"10\" }", "expected a size"),
        ("{ kind = \"file\", path = \"/tmp/o.log\", max_size = \"1B\" }", "1B is too small; 1KiB or more"),
        ("{ kind = \"file\", path = \"/tmp/o.log\", keep = 1001 }", "0 to 1000 is valid"),
        ("{ kind = \"syslog\" }", "valid: \"log\", \"file\", \"journal\""),
        ("{ kind = \"log\", path = \"/tmp/o.log\" }", "unknown key"),
    ] {
        check(output).assert(78, &[part]);
    }
    check("{ kind = \"file\", path = \"/tmp/orders.log\", max_age = \"1d\" }").assert(0, &[]);
    let both = "{ kind = \"file\", path = \"/tmp/orders.log\" }";
    let mut command = stage.worker_command("east-1", "east", &[]);
    let bills = [&format!("job.bills.output={both}"), "job.bills.command=[\"true\"]"];
    set(&mut command, &[&format!("job.orders.output={both}"), bills[0], bills[1]]);
    Outcome::of(command.args(["config", "check"]))
        .assert(78, &["job \"bills\" writes to /tmp/orders.log too"]);
}
