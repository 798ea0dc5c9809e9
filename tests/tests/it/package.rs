//! The packages: built, installed into a root of their own, upgraded, removed and purged with the real tools.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use e2e::{SOON, can_run, debian_package, program, rpm_package, succeeds};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The units, as they are in the sources.
const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../apps/dr-worker/package");

/// A root directory that only dpkg knows.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().expect("a directory"));
        for dir in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
            fs::create_dir_all(root.at(dir)).expect("a directory");
        }
        fs::write(root.at("var/lib/dpkg/status"), "").expect("a file");
        root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Scripts of the package run outside of the root, and get its path: it has no shell.
    fn dpkg(&self, arguments: &[&str]) -> String {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.0.path().display()));
        // The root has no other package, and nobody to ask about a changed file.
        succeeds(
            dpkg.args(["--force-depends", "--force-script-chrootless", "--force-confold"]).args(arguments),
        )
    }

    fn install(&self, package: &Path) {
        self.dpkg(&["--install", package.to_str().expect("text")]);
    }

    fn dr_worker(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.at("usr/bin/dr-worker"));
        command.args(arguments).env_clear().output().expect("it can be started")
    }
}

/// A worker of the installed program, which runs while that is replaced.
struct Running {
    worker: Child,
    /// Each start of the job writes its pid.
    starts: PathBuf,
}

impl Running {
    fn start(root: &Root) -> Self {
        let dir = root.at("tmp");
        fs::create_dir(&dir).expect("a directory");
        let starts = dir.join("starts");
        let job = format!("echo $$ >> {}; exec sleep 600", starts.display());
        let mut worker = Command::new(root.at("usr/bin/dr-worker"));
        worker.args(["--set", "http.listen=127.0.0.1:0", "dev", "--", "/bin/sh", "-c", &job]);
        worker.env("TMPDIR", &dir).stderr(Stdio::null());
        let running = Self { worker: worker.spawn().expect("it can be started"), starts };
        running.wait_for_start(1);
        running
    }

    /// Waits for this start of the job, counted from 1.
    #[track_caller]
    fn wait_for_start(&self, number: usize) -> Pid {
        let deadline = Instant::now() + SOON;
        loop {
            let starts = fs::read_to_string(&self.starts).unwrap_or_default();
            if let Some(pid) = starts.lines().nth(number - 1) {
                return Pid::from_raw(pid.parse().expect("a pid"));
            }
            assert!(Instant::now() < deadline, "the job was not started {number} times");
            // Between two looks.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Copies the state directory of the worker, once it has all that a leader writes.
    #[track_caller]
    fn copies_its_state(&self, to: &Path) {
        let dir = self.starts.parent().expect("a directory");
        let deadline = Instant::now() + SOON;
        let state = loop {
            let dirs =
                fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path().join("state"));
            let mut states = dirs.filter(|state| {
                let names =
                    fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.file_name());
                let names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
                [".lock", ".runs", ".tokens", ".ballots.json"]
                    .iter()
                    .all(|end| names.iter().any(|name| name.ends_with(end)))
            });
            if let Some(state) = states.next() {
                break state;
            }
            assert!(Instant::now() < deadline, "the worker has not written its state");
            // Between two looks.
            std::thread::sleep(Duration::from_millis(20));
        };
        succeeds(Command::new("cp").arg("-r").arg(state.join(".")).arg(to));
    }

    /// The job was not restarted. The worker is still able to start one, although its program was replaced.
    #[track_caller]
    fn leads_on(mut self) {
        let first = self.wait_for_start(1);
        assert_eq!(fs::read_to_string(&self.starts).expect("the starts").lines().count(), 1);
        kill(first, Signal::SIGKILL).expect("the job runs");
        let second = self.wait_for_start(2);
        kill(Pid::from_raw(self.worker.id().cast_signed()), Signal::SIGTERM).expect("the worker runs");
        assert!(self.worker.wait().expect("its own child").success());
        assert_eq!(kill(second, None), Err(Errno::ESRCH), "the job has ended before the worker");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its guards end the job.
        let _ = self.worker.kill();
        let _ = self.worker.wait();
    }
}

#[test]
fn it_is_installed_upgraded_removed_and_purged() {
    if !can_run(&["dpkg", "dpkg-deb", "dpkg-shlibdeps", "gzip", "systemd-sysusers", "systemctl"], true) {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let (first, second) = (debian_package(out.path(), "1"), debian_package(out.path(), "2"));
    let fields = succeeds(Command::new("dpkg-deb").arg("--field").arg(&first));
    assert!(fields.contains("libc6 (>= ") && fields.contains("The dr-worker developers"), "{fields}");
    let owners = succeeds(Command::new("dpkg-deb").arg("--contents").arg(&first));
    assert!(owners.lines().all(|line| line.contains("root/root")), "{owners}");
    let mut dirs = owners.lines().filter(|line| line.starts_with('d'));
    assert!(dirs.all(|line| line.starts_with("drwxr-xr-x ")), "{owners}");

    let root = Root::new();
    root.install(&first);
    for path in [
        "usr/bin/dr-worker",
        "usr/lib/systemd/system/dr-worker.service",
        "usr/lib/systemd/system/dr-worker@.service",
        "usr/lib/systemd/system/dr-worker-drill@.service",
        "usr/lib/systemd/system/dr-worker-drill@.timer",
        "usr/share/man/man1/dr-worker.1.gz",
        "usr/share/man/man1/dr-worker-switchover.1.gz",
        "usr/share/bash-completion/completions/dr-worker",
        "usr/share/zsh/vendor-completions/_dr-worker",
        "usr/share/fish/vendor_completions.d/dr-worker.fish",
        "usr/share/doc/dr-worker/copyright",
        "usr/share/doc/dr-worker/LICENSE-MIT",
        "usr/share/doc/dr-worker/LICENSE-APACHE",
        "usr/share/doc/dr-worker/lost-quorum.md",
        "usr/share/doc/dr-worker/examples/base.toml",
        "usr/share/doc/dr-worker/examples/grafana/dr-worker.json",
        "usr/share/doc/dr-worker/examples/prometheus/alerts.yml",
        "etc/dr-worker/environment",
        "etc/needrestart/conf.d/dr-worker.conf",
    ] {
        assert!(root.at(path).is_file(), "{path} is missing");
    }
    let mode = |path: &str| root.at(path).metadata().expect(path).permissions().mode() & 0o7777;
    assert_eq!((mode("usr/bin/dr-worker"), mode("etc/dr-worker/environment")), (0o755, 0o644));
    let licences = fs::read_to_string(root.at("usr/share/doc/dr-worker/THIRD-PARTY")).expect("licences");
    for part in ["\nsubtle ", "Redistributions in binary form must reproduce the above copyright"] {
        assert!(licences.contains(part), "{part:?} is not in:\n{licences}");
    }
    let users = fs::read_to_string(root.at("etc/passwd")).expect("the user was created");
    assert!(users.starts_with("dr-worker:"), "{users}");

    // The configuration of the installed program.
    let etc = root.at("etc/dr-worker");
    let etc = etc.to_str().expect("text");
    let init = [
        "init",
        "--dir",
        etc,
        "--site",
        "east",
        "--connect",
        "zk1:2181",
        "--job",
        "orders",
        "--command",
        "/bin/sh",
    ];
    assert!(root.dr_worker(&init).status.success());
    let check = root.dr_worker(&["--config", etc, "config", "check"]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));

    // What the worker, a job and the administrator have written.
    for dir in ["var/lib/dr-worker/east-1.runs", "var/log/dr-worker"] {
        fs::create_dir_all(root.at(dir)).expect("a directory");
    }
    for (path, text) in [
        ("var/lib/dr-worker/east-1.lock", "1\n"),
        ("var/lib/dr-worker/east-1.ballots.json", "{}"),
        ("var/lib/dr-worker/east-1.emergency.json", "{}"),
        ("var/lib/dr-worker/east-1.upgrade.json", "{}"),
        ("var/lib/dr-worker/east-1.alive", ""),
        ("var/lib/dr-worker/east-1.alive.new", ""),
        ("var/lib/dr-worker/east-1.emergency.json.new", "{"),
        ("var/lib/dr-worker/east-1.orders.leadership.json", "{}"),
        ("var/lib/dr-worker/east-1.orders.leadership.json.new", "{"),
        ("var/lib/dr-worker/orders.db", "data"),
        ("var/lib/dr-worker/orders.lock", "data"),
        ("etc/dr-worker/environment", "DR_LOG=debug\n"),
    ] {
        fs::write(root.at(path), text).expect("a file");
    }
    let text = |path: &str| fs::read_to_string(root.at(path)).ok();
    let worker = text("etc/dr-worker/worker.toml");
    let running = Running::start(&root);
    running.copies_its_state(&root.at("var/lib/dr-worker"));
    root.install(&second);
    let shown = root.dpkg(&["--status", "dr-worker"]);
    assert!(shown.contains("Status: install ok installed") && shown.contains("-2\n"), "{shown}");
    assert_eq!(
        text("etc/dr-worker/environment").as_deref(),
        Some("DR_LOG=debug\n"),
        "a changed file is kept"
    );
    assert_eq!(text("etc/dr-worker/worker.toml"), worker);
    running.leads_on();

    let links = [("multi-user", "dr-worker@billing.service"), ("timers", "dr-worker-drill@quarterly.timer")]
        .map(|(target, unit)| (root.at(&format!("etc/systemd/system/{target}.target.wants")), unit));
    for (dir, unit) in &links {
        let (name, end) = unit.split_once('@').expect("an instance");
        let end = end.split_once('.').expect("a type").1;
        fs::create_dir_all(dir).expect("a directory");
        symlink(format!("/usr/lib/systemd/system/{name}@.{end}"), dir.join(unit)).expect("a link");
    }
    root.dpkg(&["--remove", "dr-worker"]);
    assert!(!links.iter().any(|(dir, unit)| dir.join(unit).is_symlink()), "a removed unit is enabled");
    assert!(!root.at("usr/bin/dr-worker").exists() && !root.at("usr/share/doc/dr-worker").exists());
    assert!(
        root.at("etc/dr-worker/environment").exists() && root.at("var/lib/dr-worker/east-1.lock").exists()
    );
    root.dpkg(&["--purge", "dr-worker"]);
    let left = |dir: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(root.at(dir)).expect("a directory").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(
        left("var/lib/dr-worker"),
        ["orders.db", "orders.lock"].map(str::to_owned).into(),
        "the job's data stay"
    );
    assert_eq!(left("etc/dr-worker"), ["worker.toml".to_owned()].into(), "the administrator's file stays");
    assert!(!root.at("var/log/dr-worker").exists(), "it had no log");
}

#[test]
fn the_rpm_package_has_the_same_files() {
    if !can_run(&["rpm", "rpmbuild", "dpkg-deb", "dpkg-shlibdeps", "gzip"], true) {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let files = |text: &str| -> BTreeSet<String> {
        // Where RPM's distributions have completions of zsh, and what rpmbuild adds.
        let lines = text.lines().map(|line| line.replace("/vendor-completions/", "/site-functions/"));
        lines.filter(|line| !line.ends_with('/') && !line.contains("/.build-id")).collect()
    };
    let contents = succeeds(Command::new("dpkg-deb").arg("--contents").arg(debian_package(out.path(), "1")));
    let contents = contents.lines().filter_map(|line| line.split_once(" ./"));
    let contents: String = contents.map(|(_, file)| format!("/{file}\n")).collect();
    let (first, second) = (rpm_package(out.path(), "1"), rpm_package(out.path(), "2"));
    let query = |what: &str| succeeds(Command::new("rpm").args(["-qp", what]).arg(&first));
    // RPM removes a directory with the package that lists it.
    let dirs = contents.lines().filter_map(|line| line.strip_suffix('/'));
    let own: BTreeSet<_> = dirs.filter(|dir| dir.contains("/dr-worker")).map(str::to_owned).collect();
    let listed = files(&query("--list"));
    assert!(own.is_subset(&listed), "{own:?} in {listed:?}");
    assert_eq!(&listed - &own, files(&contents));
    assert!(query("--requires").contains("libc.so.6"), "{}", query("--requires"));
    let format = "[%{FILEMODES:perms} %{FILEUSERNAME}\n]";
    let owners = succeeds(Command::new("rpm").args(["-qp", "--queryformat", format]).arg(&first));
    assert!(owners.lines().all(|owner| owner.ends_with(" root")), "{owners}");
    let mut dirs = owners.lines().filter(|line| line.starts_with('d'));
    assert!(dirs.all(|line| line == "drwxr-xr-x root"), "{owners}");

    // Its scripts need a root with a shell.
    let root = tempfile::tempdir().expect("a directory");
    let rpm = |arguments: &[&str], package: &Path| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(root.path()).args(["--nodeps", "--noscripts"]).args(arguments).arg(package);
        succeeds(&mut rpm)
    };
    let at = |path: &str| root.path().join(path);
    rpm(&["--install"], &first);
    let version = succeeds(Command::new(at("usr/bin/dr-worker")).arg("--version"));
    assert!(version.starts_with("dr-worker "), "{version}");
    let environment = at("etc/dr-worker/environment");
    fs::write(&environment, "DR_LOG=debug\n").expect("a file");
    rpm(&["--upgrade"], &second);
    assert_eq!(fs::read_to_string(&environment).expect("a file"), "DR_LOG=debug\n", "a changed file is kept");
    rpm(&["--erase"], Path::new("dr-worker"));
    assert!(!at("usr/bin/dr-worker").exists() && !at("usr/share/doc/dr-worker").exists());

    let scripts = query("--scripts");
    let prerm = fs::read_to_string(Path::new(UNITS).join("prerm")).expect("a script");
    let steps = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("systemctl "));
        lines.map(|line| line.replace("${DPKG_ROOT:+--root=\"$DPKG_ROOT\"} ", "")).collect()
    };
    let preun =
        scripts.split_once("preuninstall").expect("a script").1.split_once("postuninstall").expect("another");
    assert!(preun.0.contains("\"$1\" = 0 ") && steps(preun.0) == steps(&prerm), "{scripts}{prerm}");
    let acts = scripts.matches("systemctl ").count() - scripts.matches("systemctl daemon-reload").count();
    assert_eq!(
        acts,
        preun.0.matches("systemctl ").count(),
        "services are stopped at the removal only: {scripts}"
    );
}

/// An upgrade must not stop, restart or start anything.
#[test]
fn its_scripts_act_on_services_at_a_removal_only() {
    for name in ["postinst", "postrm", "prerm"] {
        let script = fs::read_to_string(Path::new(UNITS).join(name)).expect(name);
        assert!(succeeds(Command::new("sh").arg("-n").arg(Path::new(UNITS).join(name))).is_empty());
        let acts = script.lines().filter(|line| line.trim_start().starts_with("systemctl"));
        let acts: Vec<_> = acts.map(|line| line.split_whitespace().nth(1).expect("a verb")).collect();
        let expected: &[&str] =
            if name == "prerm" { &["stop", "stop", "disable"] } else { &["daemon-reload"] };
        assert_eq!(acts, expected, "{name}");
        assert_eq!(name == "prerm", script.contains("\"$1\" = remove "), "{name}");
    }
}

/// needrestart reads the file as here.
#[test]
fn needrestart_leaves_workers_alone() {
    let read = r#"
        our %nrconf = (override_rc => { qr(^dbus) => 0 });
        eval do { local(@ARGV, $/) = shift; <> };
        die $@ if $@;
        for my $unit (@ARGV) {
            print "$unit\n" if grep { $unit =~ /$_/ && !$nrconf{override_rc}{$_} } keys %{$nrconf{override_rc}};
        }
    "#;
    let units = ["dr-worker.service", "dr-worker@billing.service", "dr-worker-drill@quarterly.timer"];
    let mut perl = Command::new("perl");
    perl.args(["-e", read])
        .arg(Path::new(UNITS).join("needrestart.conf"))
        .args(units)
        .arg("dr-workers.service");
    assert_eq!(succeeds(&mut perl).lines().collect::<Vec<_>>(), units);
}

fn unit(name: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(UNITS).join(name)).expect(name);
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn both_units_differ_only_in_where_they_read() {
    let (one, several) = (unit("dr-worker.service"), unit("dr-worker@.service"));
    let own = |lines: &[String], others: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !others.contains(line)).cloned().collect()
    };
    let changed =
        ["Description=dr-worker: runs its jobs on exactly one node", "ExecStart=/usr/bin/dr-worker run"];
    assert_eq!(own(&one, &several), changed);
    let changed = [
        "Description=dr-worker %i: runs its jobs on exactly one node",
        "ExecStart=/usr/bin/dr-worker --config /etc/dr-worker/%i run",
        "EnvironmentFile=-/etc/dr-worker/%i/environment",
    ];
    assert_eq!(own(&several, &one), changed);
}

/// The system is read-only for the services, apart from these directories.
#[test]
fn a_service_may_write_the_files_of_the_examples() {
    let base = fs::read_to_string(Path::new(UNITS).join("../../../config/base.toml")).expect("the example");
    for (dir, setting) in [("lib", "StateDirectory=dr-worker"), ("log", "LogsDirectory=dr-worker")] {
        assert!(base.contains(&format!("\"/var/{dir}/dr-worker")), "{dir}");
        assert!(unit("dr-worker.service").iter().any(|line| line == setting), "{setting}");
    }
}

#[test]
fn systemd_accepts_the_units() {
    if !can_run(&["systemd-analyze"], false) {
        return;
    }
    // systemd looks for the program, which is not installed here.
    let dir = tempfile::tempdir().expect("a directory");
    let real = program("dr-worker");
    let drills = ["dr-worker-drill@.service", "dr-worker-drill@.timer"];
    for name in ["dr-worker.service", "dr-worker@.service"].into_iter().chain(drills) {
        let text = unit(name).join("\n").replace("/usr/bin/dr-worker", real.to_str().expect("text"));
        fs::write(dir.path().join(name), text).expect("a file");
    }
    let at = |name: &str| dir.path().join(name);
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(at("dr-worker.service")).arg(at("dr-worker@billing.service"));
    verify.arg(at("dr-worker-drill@quarterly.service")).arg(at("dr-worker-drill@quarterly.timer"));
    let Output { status, stderr, .. } = verify.output().expect("it can be started");
    let stderr = String::from_utf8_lossy(&stderr);
    // systemd 253 and older ignore it.
    let complaints: Vec<_> = stderr.lines().filter(|line| !line.contains("'DelegateSubgroup'")).collect();
    assert!(status.success() && complaints.is_empty(), "{status}: {complaints:?}");

    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=yes", "--no-pager"]).arg(at("dr-worker.service"));
    let rated = succeeds(&mut security);
    let level =
        rated.lines().find_map(|line| line.split_once("Overall exposure level for dr-worker.service: "));
    let level = level.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok());
    assert!(level.is_some_and(|level| level <= 2.5), "{rated}");
}
