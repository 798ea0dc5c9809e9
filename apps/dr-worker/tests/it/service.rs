//! The unit of the package, run by systemd itself: a service manager of its own, in namespaces of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{Outcome, dr_worker, until};
use zk_testkit::TestServer;

/// Lines that need what the namespaces lack: the system's own manager, its user, and its directories.
const LEFT_OUT: [&str; 8] = [
    "User=",
    "Group=",
    "StateDirectory",
    "LogsDirectory",
    "PrivateTmp=",
    "ProtectHome=",
    "ProtectKernelLogs=",
    "ProtectKernelTunables=",
];

/// Starts a service manager in new namespaces of mounts and processes. It ends with its first process.
const SCRIPT: &str = r#"
set -e
mount --make-rprivate /
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" "/sys/fs/cgroup/$CGROUP"
echo $$ > "/sys/fs/cgroup/$CGROUP/cgroup.procs"
/usr/lib/systemd/systemd --user --log-target=console 2> "$XDG_RUNTIME_DIR/log" &
wait
"#;

/// A service manager with the unit.
struct Manager {
    unshare: Child,
    dir: PathBuf,
    cgroup: String,
}

impl Manager {
    /// With the unit's program at `config`. `None` if this machine can't have it and need not: in CI it has to.
    fn start(dir: &Path, config: &Path) -> Option<Self> {
        let units = dir.join("home/.config/systemd/user");
        fs::create_dir_all(&units).expect("a directory");
        fs::write(units.join("dr-worker.service"), unit(dir, config)).expect("a file");
        let cgroup = format!("dr-worker-test-{}", std::process::id());
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
            "--mount-proc",
            "sh",
            "-c",
            SCRIPT,
        ]);
        unshare.env_remove("NOTIFY_SOCKET").env("HOME", dir.join("home")).env("CGROUP", &cgroup);
        unshare.env("XDG_RUNTIME_DIR", dir.join("run")).stdin(Stdio::null());
        let unshare = unshare.spawn().expect("util-linux is there");
        let mut manager = Self { unshare, dir: dir.to_owned(), cgroup };
        let mut is_there = false;
        until("systemd runs, or can't", || {
            is_there = manager.systemctl(&["is-system-running"]).is_ok();
            is_there || manager.unshare.try_wait().expect("its own child").is_some()
        });
        if is_there {
            return Some(manager);
        }
        zk_testkit::skip("this test needs systemd, root, and cgroups of version 2");
        None
    }

    fn command(&self, program: &str) -> Option<Command> {
        let child = format!("/proc/{0}/task/{0}/children", self.unshare.id());
        let inside = fs::read_to_string(child).ok()?;
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--pid", "--target", inside.split_whitespace().next()?, program]);
        command.env("XDG_RUNTIME_DIR", self.dir.join("run")).stdin(Stdio::null());
        Some(command)
    }

    fn systemctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command("systemctl").ok_or("it has not begun")?;
        let output =
            command.args(["--user", "--no-pager"]).args(arguments).output().expect("it can be started");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn show(&self, property: &str) -> String {
        self.systemctl(&["show", "--value", "--property", property, "dr-worker"])
            .expect("the manager answers")
    }

    /// Sends a signal to the worker, and to nothing else.
    fn kill_worker(&self, signal: &str) {
        self.systemctl(&["kill", "--kill-who=main", "--signal", signal, "dr-worker"]).expect("it runs");
    }

    /// What a file of the test has now.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // Its processes are gone, and its cgroups are empty.
        let remove = "mount --make-rprivate / && umount --recursive /sys/fs/cgroup && \
                      mount -t cgroup2 cgroup2 /sys/fs/cgroup && \
                      find \"/sys/fs/cgroup/$CGROUP\" -depth -type d -exec rmdir {} +";
        let mut removal = Command::new("unshare");
        removal.args(["--mount", "sh", "-c", remove]).env("CGROUP", &self.cgroup).stderr(Stdio::null());
        // An empty cgroup costs nothing.
        let _ = removal.status();
    }
}

/// The unit of the package, for the program of this test.
fn unit(dir: &Path, config: &Path) -> String {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/package/dr-worker.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    let program = env!("CARGO_BIN_EXE_dr-worker");
    let kept = unit.lines().filter(|line| !LEFT_OUT.iter().any(|prefix| line.starts_with(prefix)));
    let lines: Vec<_> = kept
        .map(|line| match line.split_once('=') {
            Some(("ExecStart", _)) => format!("ExecStart={program} --config {} run", config.display()),
            Some(("ProtectSystem", _)) => format!("{line}\nReadWritePaths={}", dir.display()),
            // A stopped worker is noticed sooner.
            Some(("WatchdogSec", _)) => "WatchdogSec=6".to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    lines.join("\n")
}

#[test]
fn systemd_and_the_guards_each_do_their_part() {
    let tick = Duration::from_millis(500);
    let server = TestServer::builder().tick_time(tick).start_on_thread().expect("a server");
    let dir = tempfile::tempdir().expect("a directory");
    let (dir, etc) = (dir.path(), dir.path().join("etc"));
    let job = format!(
        "/bin/sh -c 'trap \"echo >> {0}/asked; exit\" TERM; cat /proc/self/cgroup > {0}/cgroup; echo >> {0}/started; \
         while :; do sleep 0.05; done'",
        dir.display()
    );
    let mut init = dr_worker();
    init.args(["init", "--id", "east-1", "--site", "east", "--job", "orders", "--listen", "127.0.0.1:0"]);
    init.args(["--connect", &server.connect_string(), "--command", &job]).arg("--dir").arg(&etc);
    Outcome::of(&mut init).assert(0, &[]);
    let more = format!(
        "[node]\nstate_dir = \"{}\"\n[zookeeper]\nsession_timeout = \"6s\"\ntick_time = \"500ms\"\n[job.orders]\nstop_timeout = \"1s\"\n",
        dir.join("state").display()
    );
    fs::write(etc.join("test.toml"), more).expect("a file");
    let Some(manager) = Manager::start(dir, &etc) else { return };
    let leads = |term: u32| {
        until("it leads", || manager.show("StatusText") == format!("leads orders (term {term})"));
    };

    // Returns once the worker takes part.
    manager.systemctl(&["start", "dr-worker"]).expect("it starts");
    assert_eq!(manager.show("ActiveState"), "active");
    leads(1);
    let (unit, job) = (manager.show("ControlGroup"), manager.lines("cgroup"));
    let own = job.iter().find_map(|line| line.strip_prefix("0::")).expect("a cgroup of version 2");
    assert!(
        own.contains("/dr-worker.service/"),
        "the job has no cgroup of its own: {own}, the unit's is {unit}"
    );

    // An upgrade in place is nothing to systemd, and the watchdog knows the new program. The job keeps its cgroup.
    let main = manager.show("MainPID");
    manager.kill_worker("USR1");
    until("it has upgraded itself", || {
        let report = fs::read_to_string(dir.join("state/east-1.upgrade.json")).unwrap_or_default();
        report.contains(r#""progress":"done""#)
    });
    leads(1);
    let now = (manager.show("MainPID"), manager.show("ActiveState"), manager.show("NRestarts"));
    assert_eq!(now, (main, "active".to_owned(), "0".to_owned()));
    assert_eq!((manager.lines("started").len(), manager.lines("asked").len()), (1, 0));

    // The watchdog replaces a worker that is stopped. Its guard has ended the job.
    manager.kill_worker("STOP");
    until("it was restarted", || manager.show("NRestarts") == "1");
    leads(2);
    assert_eq!((manager.lines("started").len(), manager.lines("asked").len()), (2, 1));

    // A worker that is killed leaves the job to its guard, which asks it to end. systemd must not be faster.
    manager.kill_worker("KILL");
    until("the job was asked to end", || manager.lines("asked").len() == 2);
    until("it was restarted", || manager.show("NRestarts") == "2");
    leads(3);

    manager.systemctl(&["stop", "dr-worker"]).expect("it stops");
    let ended = (manager.show("ActiveState"), manager.show("Result"), manager.show("ExecMainStatus"));
    assert_eq!(ended, ("inactive".to_owned(), "success".to_owned(), "0".to_owned()));
    assert_eq!((manager.lines("started").len(), manager.lines("asked").len()), (3, 3));

    // A configuration that is wrong is no reason to try again.
    fs::write(etc.join("wrong.toml"), "[node]\nsight = 1\n").expect("a file");
    manager.systemctl(&["start", "dr-worker"]).expect_err("it can't start");
    assert_eq!((manager.show("ActiveState"), manager.show("ExecMainStatus")), ("failed".into(), "78".into()));
    assert_eq!(manager.show("NRestarts"), "0");
    let why = manager.show("StatusText");
    assert!(why.starts_with("failed: ") && why.contains("wrong.toml:2:1: node.sight"), "{why}");
}
