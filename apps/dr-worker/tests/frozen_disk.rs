//! The disk of the state directory hangs, as a frozen file system does: what has ended is reported all the same.

mod job_support;
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dr_worker::config::{Check, JobSpec, ReadyProbe};
use dr_worker::worker::job::{JobError, JobRun, StateLock};
use job_support::{PATIENCE, Tree, env, guards, long_lease, soon};
use nix::sys::signal::Signal;
use support::stage::{Stage, leads, successors};
use support::until;

/// A file system of its own, mounted over a loop device. Dropped, in panic too, it is thawed and unmounted, which detaches
/// the device.
struct Disk {
    point: tempfile::TempDir,
    _image: tempfile::NamedTempFile,
}

impl Disk {
    /// `None`, loudly, where this user can't mount one.
    fn new() -> Option<Disk> {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(16 << 20).expect("sparse");
        let point = tempfile::tempdir().expect("tempdir");
        let is_mounted = does("mkfs.ext4", &["-q", "-F"], &[image.path()])
            && does("mount", &["-o", "loop"], &[image.path(), point.path()]);
        if !is_mounted {
            assert!(std::env::var_os("CI").is_none(), "this test needs root, a loop device and mkfs.ext4");
            eprintln!("SKIPPED: this test needs root, a loop device and mkfs.ext4");
            return None;
        }
        Some(Disk { point, _image: image })
    }

    fn path(&self) -> &Path {
        self.point.path()
    }

    fn freeze(&self) {
        assert!(does("fsfreeze", &["--freeze"], &[self.path()]), "frozen");
    }

    fn thaw(&self) -> bool {
        does("fsfreeze", &["--unfreeze"], &[self.path()])
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.thaw();
        // At once out of sight, and gone with the last process that uses it.
        does("umount", &["--lazy"], &[self.path()]);
    }
}

fn does(program: &str, options: &[&str], paths: &[&Path]) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).env("PATH", path).args(options).args(paths).output();
    output.is_ok_and(|output| output.status.success())
}

/// A job whose guards keep their records on this disk.
fn run_on(disk: &Disk, spec: JobSpec) -> JobRun {
    let lock = StateLock::acquire(disk.path(), "east-1").expect("free");
    JobRun::start(Arc::new(spec), &env(), long_lease(), guards().lock(lock))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_job_is_reported_while_the_disk_of_its_record_hangs() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let job = run_on(&disk, tree.spec("exec sleep 1000"));
    job.ready().await.expect("it runs");
    disk.freeze();
    let stopped = tokio::time::timeout(PATIENCE, job.stop(soon())).await;
    assert!(tree.is_gone(), "the job has ended");
    assert!(stopped.is_ok(), "its end is reported while the disk hangs");
    assert!(disk.thaw(), "it was frozen all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liveness_check_fails_whose_guard_the_disk_holds_up() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let probe = ReadyProbe::Exec {
        command: vec!["true".to_owned()],
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
    };
    let spec = JobSpec { liveness: Some(Check { probe, failures: 2 }), ..tree.spec("exec sleep 1000") };
    let job = run_on(&disk, spec);
    job.ready().await.expect("it runs");
    disk.freeze();
    let finished = tokio::time::timeout(PATIENCE, job.finished()).await;
    let error = finished.expect("the check fails while the disk hangs");
    assert!(matches!(error, JobError::RestartsExhausted { .. }), "{error:?}");
    assert!(error.to_string().contains("liveness: the probe did not end within"), "{error}");
    assert!(disk.thaw(), "it was frozen all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_record_can_not_be_written_has_failed_and_names_the_record() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let lock = StateLock::acquire(disk.path(), "east-1").expect("free");
    disk.freeze();
    let spec = tree.spec("echo run >> runs");
    let job = JobRun::start(Arc::new(spec), &env(), long_lease(), guards().lock(lock));
    let finished = tokio::time::timeout(PATIENCE, job.finished()).await;
    let error = finished.expect("an outcome while the disk hangs").to_string();
    assert!(error.contains(disk.path().to_str().expect("a plain name")), "{error}");
    assert!(disk.thaw(), "it was frozen all the time");
    assert_eq!(tree.lines("runs").len(), 0, "nothing was started");
}

#[test]
fn a_leader_that_ends_or_hands_over_does_not_wait_for_its_disk() {
    let Some(disk) = Disk::new() else { return };
    let stage = Stage::new("/frozen-leader");
    let east = stage.worker("east-1", "east", &[&on(&disk)]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let _thaw = Thaw(&disk);
    disk.freeze();
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    assert!(disk.thaw());
    until("east-1 is next in line", || successors(&stage.json(&["list"]))[0] == "east-1");
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    disk.freeze();
    east.signal(Signal::SIGTERM);
    until("west-1 leads again", || leads(&west));
}

#[test]
fn a_member_whose_disk_hangs_gives_leadership_on() {
    let Some(disk) = Disk::new() else { return };
    let stage = Stage::new("/frozen-standby");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&on(&disk)]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let _thaw = Thaw(&disk);
    disk.freeze();
    let refused = stage.operator(&["switchover", "--to", "west-1", "--wait"]);
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
    until("east-1 leads again", || leads(&east));
    let (list, hangs) = (stage.json(&["list"]), format!("the disk of {}", shown(&disk.path().join("state"))));
    assert!(list["exclusions"][0]["reason"].as_str().is_some_and(|why| why.contains(&hangs)), "{list:#}");
    until("west-1 is not ready", || west.code("/readiness") == 503);
    assert!(west.http("GET", "/readiness").1.contains(&shown(disk.path())));
    assert!(disk.thaw());
    until("west-1 is ready", || west.code("/readiness") == 200);
}

#[test]
fn a_check_that_its_disk_holds_up_has_failed() {
    let Some(disk) = Disk::new() else { return };
    let stage = Stage::new("/frozen-check");
    let liveness = "job.orders.liveness={ kind = \"exec\", command = [\"true\"], interval = \"1s\", timeout = \"1s\", failures = 2 }";
    let east = stage.worker("east-1", "east", &[&on(&disk), liveness, "job.orders.restart.max=0"]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let _thaw = Thaw(&disk);
    disk.freeze();
    until("west-1 leads", || leads(&west));
    let metrics = east.http("GET", "/metrics").1;
    let failures = metrics.lines().find(|line| line.starts_with("dr_liveness_failures_total"));
    assert!(failures.is_some_and(|line| !line.ends_with(" 0")), "{failures:?}");
}

/// The setting of a worker that keeps its state there.
fn on(disk: &Disk) -> String {
    format!("node.state_dir={}", disk.path().join("state").display())
}

/// Thaws the disk before the workers are waited for, which can't end before.
struct Thaw<'a>(&'a Disk);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
