//! `dev`: a server and a worker in one process.

#![cfg(feature = "dev")]

use std::fs;

use crate::support::{Outcome, Running, dr_worker, set, taken_port, until};
use nix::sys::signal::Signal;
use serde_json::Value;
use zk_testkit::PortReservation;

#[test]
fn it_leads_and_other_commands_find_it_and_nothing_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    let script = format!("echo $DR_FENCING_TOKEN > {}; exec sleep 600", token.display());
    let reserved = PortReservation::take(1).expect("a port");
    let port = reserved.ports()[0].to_string();
    let mut command = dr_worker();
    command.env("TMPDIR", dir.path());
    let mut worker =
        Running::start_as(&mut command, &["dev", "--port", &port, "--", "/bin/sh", "-c", &script]);
    until("the job runs with a token", || {
        fs::read_to_string(&token).is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|token| token > 0))
    });
    until("it leads", || worker.code("/leader") == 200);

    let mut list = dr_worker();
    set(&mut list, &[&format!("zookeeper.connect=127.0.0.1:{port}")]);
    let listed = Outcome::of(list.args(["--output", "json", "list"]));
    listed.assert(0, &[]);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("an object");
    assert_eq!(listed["slots"][0]["leader"]["member"], "dev-1", "{listed}");
    assert_eq!(listed["election"], "dev", "{listed}");

    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().success());
    let left: Vec<_> =
        fs::read_dir(dir.path()).expect("it is there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["token"], "the worker's own files are removed");
}

#[test]
fn jobs_come_from_the_files_that_are_given() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, ran) = (dir.path().join("job.toml"), dir.path().join("ran"));
    let job = format!(
        "[zookeeper]\nconnect = \"192.0.2.1:2181\"\n[job.orders]\ncommand = [\"/bin/sh\", \"-c\", \
         \"echo $DR_JOB > {}; exec sleep 600\"]\nstop_timeout = \"2s\"\n",
        ran.display()
    );
    fs::write(&file, job).expect("a file");
    let mut command = dr_worker();
    command.arg("--config").arg(&file).env("TMPDIR", dir.path());
    let mut worker = Running::start_as(&mut command, &["dev"]);
    until("the file's job runs", || fs::read_to_string(&ran).is_ok_and(|text| text == "orders\n"));
    assert_eq!(worker.code("/leader?job=dev"), 404, "there is no other job");
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().success());
}

#[test]
fn a_port_in_use_is_said() {
    let (_taken, port) = taken_port();
    let port = port.to_string();
    Outcome::of(dr_worker().args(["dev", "--port", &port])).assert(1, &["is in use", &port]);
}
