//! `init` writes a configuration that is valid and runs.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use crate::support::{Outcome, Running, dr_worker, set, until};
use nix::{pty::openpty, sys::signal::Signal};
use zk_testkit::TestServer;

/// Everything that a script gives.
const ALL: [&str; 13] = [
    "init",
    "--id",
    "east-1",
    "--site",
    "east",
    "--sites",
    "east,west",
    "--connect",
    "127.0.0.1:1",
    "--job",
    "orders",
    "--command",
    "/bin/sh -c 'exec sleep 600'",
];

fn init(dir: &Path, more: &[&str]) -> Outcome {
    Outcome::of(dr_worker().args(ALL).arg("--dir").arg(dir).args(more))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_it_writes_is_valid_and_runs() {
    let tick = Duration::from_millis(500);
    let server = TestServer::builder().tick_time(tick).start_on_thread().expect("a server");
    let dir = tempfile::tempdir().expect("a directory");
    let etc = dir.path().join("etc/dr-worker");
    let connect = server.connect_string();
    let written = init(&etc, &["--connect", &connect]);
    // An option that is given twice is refused.
    written.assert(64, &["--connect"]);
    let mut arguments = ALL.map(str::to_owned);
    arguments[8] = connect;
    let written = Outcome::of(dr_worker().args(&arguments).arg("--dir").arg(&etc).args(["--output", "json"]));
    written.assert(0, &["wrote ", "config check", "run"]);
    let object: serde_json::Value = serde_json::from_str(&written.stdout).expect("one object");
    assert_eq!(object["file"], etc.join("worker.toml").to_str().expect("text"), "{object}");
    let etc = etc.to_str().expect("text");
    let mode = fs::metadata(Path::new(etc).join("worker.toml")).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "a service of another user reads it");
    Outcome::of(dr_worker().args(["--config", etc, "config", "check"]))
        .assert(0, &["east-1", "site east", "orders"]);

    let mut command = dr_worker();
    let state = format!("node.state_dir={}", dir.path().join("state").display());
    set(&mut command, &[&state, "zookeeper.tick_time=500ms"]);
    let mut worker = Running::start(command.args(["--config", etc]));
    until("it leads", || worker.code("/leader") == 200);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn a_file_that_exists_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    init(dir.path(), &[]).assert(0, &["wrote "]);
    let first = fs::read_to_string(dir.path().join("worker.toml")).expect("the file");
    init(dir.path(), &["--root", "/other"]).assert(1, &["exists, and was not changed", "--replace"]);
    assert_eq!(fs::read_to_string(dir.path().join("worker.toml")).expect("the file"), first);
    init(dir.path(), &["--root", "/other", "--replace"]).assert(0, &["kept the former file as "]);
    init(dir.path(), &["--root", "/third", "--replace"]).assert(0, &["worker.toml.old-2"]);
    assert_eq!(names(dir.path()), ["worker.toml", "worker.toml.old-1", "worker.toml.old-2"]);
    assert_eq!(fs::read_to_string(dir.path().join("worker.toml.old-1")).expect("the file"), first);
}

#[test]
fn what_is_missing_or_wrong_is_said_and_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().to_str().expect("text");
    let run = |arguments: &[&str]| Outcome::of(dr_worker().args(["init", "--dir", at]).args(arguments));
    run(&["--site", "east"]).assert(64, &["missing: --connect, --job, --command", "not a terminal"]);
    run(&["--site", "east", "--command", "/no/such/job"])
        .assert(64, &["nothing was written", "command: /no/such/job"]);
    run(&["--connect", "zk1:port"]).assert(64, &["zookeeper.connect"]);
    Outcome::of(dr_worker().args(["--set", "node.id=x", "init"])).assert(64, &["--dir"]);
    assert_eq!(names(dir.path()), [""; 0]);
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    init(&file.join("below"), &[]).assert(1, &["can't write ", "file/below/worker.toml"]);
}

#[test]
fn another_file_of_the_directory_that_contradicts_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("base.toml"), "[node]\nsite = \"west\"\n").expect("a file");
    init(dir.path(), &[]).assert(78, &["wrote ", "contradicts", "base.toml:2:8"]);
}

/// A person at a terminal.
struct Person {
    terminal: File,
    prompts: ChildStderr,
    /// What was printed, and how much of it was read.
    printed: (String, usize),
    child: Child,
}

impl Person {
    fn at(command: &mut Command) -> Self {
        let pty = openpty(None, None).expect("a terminal");
        let mut child =
            command.stdin(pty.slave).stderr(Stdio::piped()).spawn().expect("dr-worker can be started");
        // The command keeps its end.
        command.stdin(Stdio::null());
        let prompts = child.stderr.take().expect("a pipe");
        Self { terminal: pty.master.into(), prompts, printed: (String::new(), 0), child }
    }

    /// Reads on until this was printed, and returns what was printed before it.
    #[track_caller]
    fn reads(&mut self, prompt: &str) -> String {
        let (text, at) = &mut self.printed;
        loop {
            if let Some(found) = text[*at..].find(prompt) {
                let before = text[*at..*at + found].to_owned();
                *at += found + prompt.len();
                return before;
            }
            let mut more = [0; 1024];
            let length = self.prompts.read(&mut more).expect("readable");
            assert!(length > 0, "{prompt:?} is not in {:?}", &text[*at..]);
            text.push_str(std::str::from_utf8(&more[..length]).expect("text"));
        }
    }

    fn types(&mut self, line: &str) {
        writeln!(self.terminal, "{line}").expect("it is read");
    }
}

#[test]
fn a_person_is_asked_until_the_answer_is_valid() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut person = Person::at(dr_worker().args(["init", "--job", "orders", "--dir"]).arg(dir.path()));
    person.reads("Id of this worker");
    person.types("east-1");
    person.reads("Site of this worker");
    person.types("");
    person.reads("an answer is needed here\nSite of this worker, such as east:");
    person.types("east");
    person.reads("order of preference");
    person.types("west");
    person.reads("not in the order of sites");
    person.reads("order of preference");
    person.types("east,west");
    person.reads("Who follows a failed leader");
    person.types("nobody");
    person.reads("on_leader_failure");
    person.reads("Who follows a failed leader");
    person.types("same-site-first");
    person.reads("ZooKeeper servers");
    person.types("zk1:2181");
    person.reads("Parent znode of all elections, the same on all nodes [/dr]:");
    person.types("");
    let before = person.reads("Program of the job");
    assert!(!before.contains("Name of the job"), "it was given by its option: {before}");
    person.types("/no/such/job");
    person.reads("/no/such/job");
    person.reads("Program of the job");
    person.types("/bin/sleep 600");
    assert!(person.child.wait().expect("its own child").success());
    let text = fs::read_to_string(dir.path().join("worker.toml")).expect("the file");
    for line in [
        "id = \"east-1\"",
        "site = \"east\"",
        "sites = [\"east\", \"west\"]",
        "on_leader_failure = \"same-site-first\"",
        "connect = \"zk1:2181\"",
        "root = \"/dr\"",
        "[job.orders]",
        "command = [\"/bin/sleep\", \"600\"]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
}

#[test]
fn without_an_answer_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut person = Person::at(dr_worker().args(["init", "--dir"]).arg(dir.path()));
    person.reads("Id of this worker");
    // Ctrl-D.
    person.terminal.write_all(&[4]).expect("it is read");
    person.reads("nothing was written");
    assert_eq!(person.child.wait().expect("its own child").code(), Some(1));
    assert_eq!(names(dir.path()), [""; 0]);
}
