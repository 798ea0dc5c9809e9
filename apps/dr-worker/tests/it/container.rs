//! The root of the image of examples/container: a worker runs in it as process 1, on a read-only root.

use std::{fs, path::Path, process::Command};

use crate::support::{Running, at, set, stage::Stage, stage::leads, until};
use nix::{sys::signal::Signal, unistd::Uid};

/// What a container engine does: namespaces, mounts, and the program as process 1.
const ENGINE: &str = "set -e; mount --bind $0 $0; mount --rbind /dev $0/dev; mount -t proc proc $0/proc; mount -t tmpfs tmpfs $0/tmp; \
                      mount -t tmpfs tmpfs $0/var/lib/dr-worker; mount -o remount,bind,ro $0; exec chroot $0 \"$@\"";

/// A job that leaves an orphan, which ends at once, and runs on.
const JOB: &str = "job.orders.command=[\"/bin/sh\", \"-c\", \"(/bin/sleep 0 &); touch /written 2>/dev/null || \
                   touch /tmp/read-only; exec /bin/sleep 1000\"]";

/// The processes below this one, as (id, state). A child is listed at the thread that started it.
fn below(pid: i32) -> Vec<(i32, char)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children: String = threads
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .collect();
    let mut all = Vec::new();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('-');
        all.push((child, state));
        all.extend(below(child));
    }
    all
}

fn made(program: &Path, root: &Path) {
    let status = Command::new(at("examples/container/root.sh"))
        .arg(root)
        .args([program, Path::new("/bin/sh"), Path::new("/bin/sleep"), Path::new("/bin/touch")])
        .status()
        .expect("a shell");
    assert!(status.success());
}

#[test]
fn a_worker_is_process_1_of_a_read_only_root_reaps_orphans_and_hands_over() {
    let allowed = Command::new("unshare").args(["--fork", "--pid", "--mount", "true"]).status();
    if !Uid::effective().is_root() || !allowed.is_ok_and(|status| status.success()) {
        zk_testkit::skip(format_args!("namespaces of processes and mounts need root and `unshare`"));
        return;
    }
    let stage = Stage::new("/container");
    let root = stage.dir.path().join("root");
    let program = Path::new(env!("CARGO_BIN_EXE_dr-worker"));
    made(program, &root);
    let files = ["etc/passwd", "dev", "proc", "tmp", "var/lib/dr-worker"];
    assert!(files.iter().all(|file| root.join(file).exists()));
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount", "--kill-child", "sh", "-c", ENGINE]).arg(&root).arg(program);
    set(
        &mut command,
        &[
            &format!("zookeeper.connect={}", Stage::connect_string()),
            "zookeeper.root=/container",
            "zookeeper.tick_time=500ms",
            "zookeeper.session_timeout=6s",
            "policy.sites=[\"east\", \"west\"]",
            "node.id=east-1",
            "node.site=east",
            JOB,
            "job.orders.stop_timeout=1s",
        ],
    );
    let mut first = Running::start(&mut command);
    until("it leads", || leads(&first));
    let (process_1, _) = below(first.pid().as_raw())[0];
    until("the job runs", || below(process_1).len() >= 2);
    let tmp = format!("/proc/{process_1}/root/tmp/read-only");
    until("the job could not write to the root", || Path::new(&tmp).exists());
    assert!(!root.join("written").exists());
    until("no orphan is left", || below(process_1).iter().all(|(_, state)| *state != 'Z'));

    let second = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || second.code("/standby") == 200);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process_1), Signal::SIGTERM).expect("it runs");
    until("west-1 leads", || leads(&second));
    assert!(first.ended().success());
}
