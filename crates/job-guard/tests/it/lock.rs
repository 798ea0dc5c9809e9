//! The member's lock on its way from a worker to a guard: it is held at any time, and without it nothing is started.

use std::fs::File;
use std::io::{IoSlice, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

use crate::support::{STUBBORN, Tree, wait_for};
use boot_time::BootTime;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// Where the lock file is, in the directory of a tree.
const LOCK: &str = "lock";

/// A worker's orders to start this, under the lock.
fn orders(tree: &Tree, script: &str) -> Vec<u8> {
    let spec = tree.spec(script);
    let until = BootTime::now() + Duration::from_secs(60);
    let launch = serde_json::json!({
        "command": spec.command,
        "env": spec.env,
        "withheld": [],
        "run_variable": "DR_RUN",
        "guard_name": "dr-guard",
        "working_dir": spec.working_dir,
        "stop_signal": spec.stop_signal,
        "stop_timeout_ms": u64::try_from(spec.stop_timeout.as_millis()).expect("short"),
        "until": u64::try_from(until.as_duration().as_millis()).expect("a time"),
        "lock_from": std::process::id(),
        "relays_output": false,
        "no_new_privileges": false,
        "freezes": false,
        "limits": {},
    });
    format!("{}\n", serde_json::json!({ "start": launch })).into_bytes()
}

fn lock(tree: &Tree) -> File {
    let file = File::create(tree.file(LOCK)).expect("a file");
    file.try_lock().expect("free");
    file
}

fn is_locked(tree: &Tree) -> bool {
    File::open(tree.file(LOCK)).expect("the file").try_lock().is_err()
}

/// Sends these orders, and with their first byte the lock.
fn send(worker: &UnixStream, orders: &[u8], lock: Option<&File>) {
    let lock = lock.map(|file| [file.as_raw_fd()]);
    let control = lock.as_ref().map(|fds| ControlMessage::ScmRights(fds.as_slice()));
    let parts = [IoSlice::new(orders)];
    let sent = sendmsg::<()>(worker.as_raw_fd(), &parts, control.as_slice(), MsgFlags::empty(), None);
    assert_eq!(sent, Ok(orders.len()));
}

/// Starts a guard on its end of the socket.
fn guard(socket: UnixStream) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_job-guard"));
    command.args(["guard", "--over-stdin", "a test"]).stdin(OwnedFd::from(socket));
    command.spawn().expect("started")
}

#[test]
fn the_lock_is_held_from_the_worker_to_the_end_of_the_job() {
    let tree = Tree::new();
    let lock = lock(&tree);
    let (worker, socket) = UnixStream::pair().expect("a socket");
    let script = format!("ls -l /proc/$$/fd > fds.tmp; mv fds.tmp fds; {STUBBORN}");
    send(&worker, &orders(&tree, &script), Some(&lock));
    // The worker's own copy is the first to be closed.
    drop(lock);
    assert!(is_locked(&tree), "on its way to a guard that does not run yet");
    let mut guard = guard(socket);
    wait_for("the job", || tree.file("fds").exists());
    assert!(is_locked(&tree), "the guard has it");
    let (path, open) = (tree.file(LOCK).display().to_string(), tree.read("fds"));
    assert!(!open.contains(&path), "the job has it: {open}");

    drop(worker);
    wait_for("the lock", || {
        let is_locked = is_locked(&tree);
        assert!(is_locked || tree.is_gone(), "it is free, while these live: {:?}", tree.living());
        !is_locked
    });
    assert!(guard.wait().expect("its end").success());
}

#[test]
fn a_guard_that_gets_no_lock_starts_nothing() {
    let tree = Tree::new();
    let (mut worker, socket) = UnixStream::pair().expect("a socket");
    send(&worker, &orders(&tree, "echo > started"), None);
    let mut guard = guard(socket);
    let mut reports = String::new();
    worker.read_to_string(&mut reports).expect("its reports, to its end");
    assert!(reports.contains("did not receive the member's lock"), "{reports}");
    assert!(reports.ends_with("\"gone\"\n"), "{reports}");
    assert!(guard.wait().expect("its end").success());
    assert!(!tree.file("started").exists());
}

#[test]
fn a_worker_that_dies_within_its_orders_leaves_neither_a_job_nor_a_locked_file() {
    let tree = Tree::new();
    let lock = lock(&tree);
    let (worker, socket) = UnixStream::pair().expect("a socket");
    let orders = orders(&tree, "echo > started");
    send(&worker, &orders[..orders.len() - 1], Some(&lock));
    drop((worker, lock));
    assert!(is_locked(&tree), "on its way");
    assert!(guard(socket).wait().expect("its end").success());
    assert!(!is_locked(&tree));
    assert!(!tree.file("started").exists());
}
