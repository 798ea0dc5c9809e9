//! The AppArmor profile of the package.

use std::{
    env, fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::support::{
    Running,
    stage::{Stage, leads},
    until,
};
use nix::{sys::signal::Signal, unistd::geteuid};

const PARSER: &str = "/usr/sbin/apparmor_parser";

const PROFILE: &str = include_str!("../../package/apparmor/dr-worker");

fn parse(how: &str, profile: &str) -> Output {
    let mut parser = Command::new(PARSER);
    parser.args([how, "--skip-cache"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut parser = parser.spawn().expect("it starts");
    let mut input = parser.stdin.take().expect("a pipe");
    input.write_all(profile.as_bytes()).expect("it reads");
    drop(input);
    parser.wait_with_output().expect("it ends")
}

#[track_caller]
fn accepts(how: &str, profile: &str) {
    let parsed = parse(how, profile);
    assert!(parsed.status.success(), "{how}: {}", String::from_utf8_lossy(&parsed.stderr));
}

/// A profile that is loaded until this is dropped.
struct Loaded(String);

impl Drop for Loaded {
    fn drop(&mut self) {
        parse("--remove", &self.0);
    }
}

#[test]
fn the_profile_is_valid_and_where_the_kernel_has_apparmor_a_worker_leads_under_it() {
    if !Path::new(PARSER).exists() {
        return zk_testkit::skip("apparmor_parser is not installed");
    }
    accepts("--skip-kernel-load", PROFILE);
    // Not in a container either, whose root may not load one.
    let interface = Path::new("/sys/kernel/security/apparmor/.replace");
    if !geteuid().is_root() || fs::OpenOptions::new().write(true).open(interface).is_err() {
        let why = "no AppArmor profile can be loaded here: it is not shown that a worker leads under it";
        assert!(env::var_os("DR_TEST_APPARMOR").is_none(), "{why}");
        // Of CI a job beside the container sets the variable.
        return if env::var_os("CI").is_none() { zk_testkit::skip(why) } else { println!("{why}") };
    }
    // Beside the one of this machine's own service.
    let name = format!("dr-worker-test-{}", std::process::id());
    let profile = PROFILE.replace("profile dr-worker ", &format!("profile {name} "));
    let profile = Loaded(profile.replace("peer=dr-worker,", &format!("peer={name},")));
    accepts("--replace", &profile.0);
    let stage = Stage::new("/apparmor");
    let unconfined = stage.worker_command("east-1", "east", &[]);
    let mut confined = Command::new("aa-exec");
    confined.arg(format!("--profile={name}")).arg("--").arg(unconfined.get_program());
    confined.args(unconfined.get_args());
    confined.envs(unconfined.get_envs().filter_map(|(variable, value)| Some((variable, value?))));
    let mut worker = Running::start(&mut confined);
    until("it leads", || leads(&worker));
    let guards = worker.children();
    assert!(!guards.is_empty());
    for pid in guards.into_iter().chain([worker.pid()]) {
        let current = fs::read_to_string(format!("/proc/{pid}/attr/current")).expect("it lives");
        assert!(current.starts_with(&format!("{name} ")), "{pid}: {current}");
    }
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
}
