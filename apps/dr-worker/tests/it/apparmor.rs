//! The AppArmor profile of the package.

use std::{fs, path::Path, process::Command};

use crate::support::{
    Running,
    stage::{Stage, leads},
    until,
};

const PARSER: &str = "/usr/sbin/apparmor_parser";

fn parse(how: &[&str]) {
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/package/apparmor/dr-worker");
    let parsed = Command::new(PARSER).args(how).arg("--skip-cache").arg(profile).output().expect("it starts");
    assert!(parsed.status.success(), "{how:?}: {}", String::from_utf8_lossy(&parsed.stderr));
}

#[test]
fn the_profile_is_valid_and_where_the_kernel_has_apparmor_a_worker_leads_under_it() {
    if !Path::new(PARSER).exists() {
        return zk_testkit::skip("apparmor_parser is not installed");
    }
    parse(&["--skip-kernel-load"]);
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    if enabled.trim() != "Y" || !nix::unistd::geteuid().is_root() {
        eprintln!("this kernel has no AppArmor, or this is not root: no worker runs under the profile");
        return;
    }
    parse(&["--replace"]);
    let stage = Stage::new("/apparmor");
    let worker = stage.worker_command("east-1", "east", &[]);
    let mut confined = Command::new("aa-exec");
    confined.args(["--profile=dr-worker", "--"]).arg(worker.get_program()).args(worker.get_args());
    let set = worker.get_envs().filter_map(|(name, value)| Some((name, value?)));
    confined.envs(set);
    let mut worker = Running::start(&mut confined);
    until("it leads", || leads(&worker));
    let guards = worker.children();
    assert!(!guards.is_empty());
    for pid in guards.into_iter().chain([worker.pid()]) {
        let current = fs::read_to_string(format!("/proc/{pid}/attr/current")).expect("it lives");
        assert!(current.starts_with("dr-worker "), "{pid}: {current}");
    }
    worker.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    parse(&["--remove"]);
}
