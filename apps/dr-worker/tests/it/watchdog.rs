//! The watchdog device: here a pipe, whose reader knows when each byte was written: when the machine would be reset.

use std::{
    fs::{self, OpenOptions},
    io::Read as _,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{Outcome, Running, dr_worker, own_server::OwnServer as Stage, set, until};
use nix::{
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};
use zk_session::BootTime;

/// Of the device.
const TIMEOUT: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(600);
const SESSION: Duration = Duration::from_secs(6);

/// What was written to the device, and when.
type Written = Arc<Mutex<Vec<(BootTime, u8)>>>;

impl Stage {
    fn device(&self) -> PathBuf {
        self.dir.path().join("watchdog")
    }

    /// Makes the device, and reads what is written to it.
    fn plug_in(&self) -> Written {
        mkfifo(&self.device(), Mode::S_IRWXU).expect("a pipe");
        // Opened for both, it does not end with its writers.
        let mut pipe = OpenOptions::new().read(true).write(true).open(self.device()).expect("the pipe");
        let written = Written::default();
        let kept = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut byte = [0];
            while pipe.read_exact(&mut byte).is_ok() {
                kept.lock().expect("no panic").push((BootTime::now(), byte[0]));
            }
        });
        written
    }

    fn settings(&self, mode: &str) -> Vec<String> {
        let connect = self.server().connect_string();
        // It notes when it has ended, by the clock of the device's reader.
        let job =
            "trap 'sleep 0.3; cut -d\" \" -f1 /proc/uptime > ended; exit' TERM; while :; do sleep 0.02; done";
        vec![
            format!("zookeeper.connect={connect}"),
            "zookeeper.tick_time=500ms".to_owned(),
            format!("zookeeper.session_timeout={}ms", SESSION.as_millis()),
            "node.id=east-1".to_owned(),
            "node.site=east".to_owned(),
            format!("node.state_dir={}", self.dir.path().join("state").display()),
            format!("job.orders.command={}", serde_json::json!(["/bin/sh", "-c", job])),
            format!("job.orders.working_dir={}", self.dir.path().display()),
            "job.orders.stop_timeout=1s".to_owned(),
            "job.orders.ready.after=0s".to_owned(),
            format!("watchdog.mode={mode}"),
            format!("watchdog.device={}", self.device().display()),
            format!("watchdog.safety_margin={}ms", MARGIN.as_millis()),
            format!("watchdog.fixed_timeout={}s", TIMEOUT.as_secs()),
        ]
    }

    fn worker(&self, mode: &str) -> Running {
        let mut command = dr_worker();
        let settings = self.settings(mode);
        set(&mut command, &settings.iter().map(String::as_str).collect::<Vec<_>>());
        Running::start(&mut command)
    }

    /// When the job had ended.
    fn ended(&self) -> BootTime {
        let text = fs::read_to_string(self.dir.path().join("ended")).expect("the job's note");
        BootTime::from_duration(Duration::from_secs_f64(text.trim().parse().expect("seconds")))
    }
}

fn leads(worker: &Running) {
    until("the worker leads", || worker.code("/leader") == 200);
}

fn all(written: &Written) -> Vec<(BootTime, u8)> {
    written.lock().expect("no panic").clone()
}

fn last(written: &Written) -> (BootTime, u8) {
    *all(written).last().expect("something was written")
}

/// Kicks that were written since the last stop of the device.
fn kicks(written: &Written) -> usize {
    all(written).iter().rev().take_while(|(_, byte)| *byte != b'V').count()
}

/// The machine was never reset: each byte came in time after the one before, unless that has stopped the device.
fn assert_no_reset(written: &Written) {
    for pair in all(written).windows(2) {
        let apart = pair[1].0.duration_since(pair[0].0);
        assert!(pair[0].1 == b'V' || apart < TIMEOUT, "{apart:?} without a kick");
    }
}

#[test]
fn it_is_kicked_while_the_member_leads_and_stopped_once_the_job_is_gone() {
    let stage = Stage::new();
    let written = stage.plug_in();
    let mut worker = stage.worker("required");
    leads(&worker);
    until("kicks", || kicks(&written) > 20);
    assert_eq!(all(&written)[0].1, b'V', "a device that an earlier worker has left running is stopped first");
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    until("the stop of the device", || last(&written).1 == b'V');
    assert_no_reset(&written);
    let (stopped, ended) = (last(&written).0, stage.ended());
    assert!(stopped >= ended, "it was stopped {:?} before the job had ended", ended.duration_since(stopped));
}

#[test]
fn a_job_that_ends_with_its_lease_costs_no_reset() {
    let mut stage = Stage::new();
    let written = stage.plug_in();
    let mut worker = stage.worker("required");
    leads(&worker);
    until("kicks", || kicks(&written) > 4);
    stage.stop();
    until("the stop of the device", || last(&written).1 == b'V');
    assert_no_reset(&written);
    assert!(last(&written).0 >= stage.ended());
    worker.signal(Signal::SIGTERM);
    worker.ended();
}

#[test]
fn a_worker_that_is_stopped_has_its_machine_reset_before_its_lease_ends() {
    let stage = Stage::new();
    let written = stage.plug_in();
    let mut worker = stage.worker("required");
    leads(&worker);
    until("kicks", || kicks(&written) > 4);
    worker.signal(Signal::SIGSTOP);
    let stopped = BootTime::now();
    // The reset is due when nothing was written for the timeout.
    until("the reset", || BootTime::now() > last(&written).0 + TIMEOUT);
    let (at, byte) = last(&written);
    assert_eq!(byte, b'k', "the device was stopped");
    let latest = stopped + SESSION - MARGIN / 2;
    assert!(at + TIMEOUT < latest, "{:?} after the lease", (at + TIMEOUT).duration_since(latest));
    worker.signal(Signal::SIGCONT);
    worker.signal(Signal::SIGTERM);
    worker.ended();
}

#[test]
fn a_worker_that_is_killed_leaves_the_device_running() {
    let stage = Stage::new();
    let written = stage.plug_in();
    let mut worker = stage.worker("required");
    leads(&worker);
    until("kicks", || kicks(&written) > 4);
    worker.signal(Signal::SIGKILL);
    worker.ended();
    let so_far = all(&written).len();
    until("the end of the job", || stage.dir.path().join("ended").exists());
    assert_eq!((all(&written).len(), last(&written).1), (so_far, b'k'));
    // The next worker finds that no process of the job is left.
    let mut next = stage.worker("required");
    until("the stop of the device", || all(&written).get(so_far).is_some_and(|(_, byte)| *byte == b'V'));
    leads(&next);
    next.signal(Signal::SIGTERM);
    next.ended();
}

#[test]
fn a_member_without_a_device_leads_only_where_it_is_not_required() {
    let stage = Stage::new();
    let mut worker = stage.worker("required");
    let shown = |verb| {
        let mut command = dr_worker();
        let settings = stage.settings("required");
        set(&mut command, &settings.iter().map(String::as_str).collect::<Vec<_>>());
        Outcome::of(command.args([verb, "--output", "json"])).stdout
    };
    let why = "watchdog.mode is \\\"required\\\": can't open ";
    for verb in ["list", "explain"] {
        until(&format!("the reason in `{verb}`"), || shown(verb).contains(why));
    }
    assert_eq!(worker.code("/leader"), 503);
    let written = stage.plug_in();
    leads(&worker);
    until("kicks", || kicks(&written) > 1);
    worker.signal(Signal::SIGTERM);
    worker.ended();

    fs::remove_file(stage.device()).expect("it is there");
    let mut worker = stage.worker("automatic");
    leads(&worker);
    worker.signal(Signal::SIGTERM);
    worker.ended();
}

/// A real device resets the machine if this test fails: only by choice, such as `softdog`'s.
#[test]
fn a_real_device_takes_the_timeout_that_is_set() {
    let Some(device) = std::env::var_os("DR_TEST_WATCHDOG") else {
        return eprintln!(
            "SKIPPED: DR_TEST_WATCHDOG does not name a watchdog device, such as softdog's /dev/watchdog0"
        );
    };
    let stage = Stage::new();
    let mut settings = stage.settings("required");
    settings.retain(|setting| !setting.starts_with("watchdog.fixed_timeout"));
    settings.push(format!("watchdog.device={}", device.display()));
    let mut command = dr_worker();
    set(&mut command, &settings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut worker = Running::start(&mut command);
    leads(&worker);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
}
