//! A worker with few descriptors: it says so at the start, or has enough for what counts.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{
    Outcome, Running, set,
    stage::{Stage, leads},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// The same, started by a shell with these limits of open files.
fn limited(command: &Command, soft: u64, hard: u64) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// A worker of so many jobs.
fn worker_of(stage: &Stage, jobs: usize) -> Command {
    let mut text = String::new();
    for job in 0..jobs {
        text += &format!("[job.job-{job}]\ncommand = [\"/bin/sleep\", \"600\"]\nstop_timeout = \"1s\"\n");
    }
    let file = stage.dir.path().join("jobs.toml");
    fs::write(&file, text).expect("a file");
    let mut command = stage.command(&["node.id=east-1", "node.site=east"]);
    set(&mut command, &[&format!("node.state_dir={}", stage.dir.path().join("state").display())]);
    command.arg("--config").arg(file);
    command
}

/// The limits of a process: soft and hard.
fn limits(pid: Pid) -> (u64, u64) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it lives");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let mut numbers = line.split_ascii_whitespace().filter_map(|word| word.parse().ok());
    (numbers.next().expect("the soft one"), numbers.next().expect("the hard one"))
}

fn open_files(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count()
}

#[test]
fn too_few_for_all_jobs_are_refused_with_figures_that_suffice() {
    let stage = Stage::new("/files");
    const JOBS: usize = 30;
    let mut refused = limited(&worker_of(&stage, JOBS), 64, 128);
    set(&mut refused, &["http.listen=127.0.0.1:0"]);
    let refused = Outcome::of(refused.arg("run"));
    refused.assert(78, &["may open 128 files", "its 30 jobs", "LimitNOFILE"]);
    let needed = refused.stderr.split("needs ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let needed: u64 = needed.unwrap_or_else(|| panic!("{}", refused.stderr));

    // With what it says that it needs, and with all clients that there is room for, it leads all jobs.
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let mut log = BufReader::new(log);
    let mut command = limited(&worker_of(&stage, JOBS), needed, needed);
    let mut worker = Running::start_logging_to(command.stderr(stderr), &mut log);
    let reader = std::thread::spawn(move || {
        let mut rest = String::new();
        let _ = log.read_to_string(&mut rest);
        rest
    });
    let _clients: Vec<_> =
        (0..64).map(|_| TcpStream::connect(("127.0.0.1", worker.port)).expect("it listens")).collect();
    until("it leads all jobs", || {
        let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
        let jobs = status["jobs"].as_object().expect("jobs");
        jobs.len() == JOBS && jobs.values().all(|job| job["process"]["state"] == "running")
    });
    assert!(open_files(worker.pid()) as u64 <= needed);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    let log = reader.join().expect("read");
    assert!(!log.contains("os error 24"), "{log}");
}

#[test]
fn the_limit_is_raised_and_given_back_to_what_is_started() {
    let stage = Stage::new("/raised");
    let pid = stage.dir.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", pid.display());
    let job = format!("job.orders.command=[\"/bin/sh\", \"-c\", \"{script}\"]");
    let command = stage.worker_command("east-1", "east", &[&job]);
    let worker = Running::start(&mut limited(&command, 256, 2048));
    assert_eq!(limits(worker.pid()), (2048, 2048));
    until("the job runs", || pid.exists());
    assert_eq!(limits(pid_in(&pid)), (256, 2048));
}

fn pid_in(file: &Path) -> Pid {
    Pid::from_raw(fs::read_to_string(file).expect("a file").trim().parse().expect("a pid"))
}

#[test]
fn clients_that_say_nothing_take_nothing_from_a_job() {
    let stage = Stage::new("/idle");
    let pid = stage.dir.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", pid.display());
    let job = format!("job.orders.command=[\"/bin/sh\", \"-c\", \"{script}\"]");
    let command = stage.worker_command("east-1", "east", &[&job, "job.orders.restart.max=1"]);
    let worker = Running::start(&mut limited(&command, 160, 160));
    until("it leads", || leads(&worker));
    // They hold their connections open, and never ask for anything.
    let clients: Vec<_> =
        (0..400).map(|_| TcpStream::connect(("127.0.0.1", worker.port)).expect("it listens")).collect();
    until("all were accepted or closed", || worker.code("/leader") == 200);
    assert!(open_files(worker.pid()) < 150, "{}", open_files(worker.pid()));
    let before = pid_in(&pid);
    fs::remove_file(&pid).expect("it was there");
    kill(before, Signal::SIGKILL).expect("the job lives");
    until("the job was started again", || pid.exists());
    until("it leads on", || leads(&worker));
    let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
    assert_eq!(
        (&status["jobs"]["orders"]["term"], &status["jobs"]["orders"]["process"]["restarts"]),
        (&1.into(), &1.into())
    );
    // The newest of them is served yet.
    let mut last = clients.into_iter().next_back().expect("a client");
    last.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    std::io::Write::write_all(&mut last, b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it is open");
    let mut line = String::new();
    BufReader::new(last).read_line(&mut line).expect("an answer");
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
}
