//! A worker as a systemd service: what it tells the service manager, and when it is silent.

use std::{
    fs,
    io::ErrorKind,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{Background, LONG, Outcome, Running, dr_worker, set, until};
use nix::sys::signal::Signal;
use zk_testkit::TestServer;

/// The timeout of the watchdog.
const WATCHDOG: Duration = Duration::from_millis(600);

/// What systemd would receive.
struct Manager {
    socket: UnixDatagram,
    /// The value of `NOTIFY_SOCKET`.
    address: String,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket");
        Self { socket, address: path.display().to_string() }
    }

    fn abstract_one() -> Self {
        let name = format!("dr-worker-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        Self { socket: UnixDatagram::bind_addr(&address).expect("a socket"), address: format!("@{name}") }
    }

    /// The next message, if one comes in time.
    fn next(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).expect("a timeout");
        let mut buffer = [0; 8192];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Some(String::from_utf8(buffer[..length].to_vec()).expect("text")),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// All messages up to one that fits.
    #[track_caller]
    fn until(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let deadline = Instant::now() + LONG;
        let mut all = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "only these came: {all:?}");
            let Some(message) = self.next(left) else { continue };
            all.push(message);
            if all.last().is_some_and(|last| fits(last)) {
                return all;
            }
        }
    }

    /// Forgets what has come.
    fn drain(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }
}

fn server() -> TestServer {
    let tick = Duration::from_millis(500);
    TestServer::builder().tick_time(tick).start_on_thread().expect("a server")
}

/// A worker whose job writes its environment to the file `job`, and its hook to `hook`.
fn worker(connect: &str, dir: &Path, manager: &Manager) -> Command {
    let mut command = dr_worker();
    command.env("NOTIFY_SOCKET", &manager.address);
    command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    let script = |name: &str, then: &str| {
        let file = dir.join(name);
        let script = format!("env > {0}.new; mv {0}.new {0}; {then}", file.display());
        serde_json::json!(["/bin/sh", "-c", script]).to_string()
    };
    set(
        &mut command,
        &[
            &format!("zookeeper.connect={connect}"),
            "zookeeper.tick_time=500ms",
            "zookeeper.session_timeout=6s",
            "node.id=east-1",
            "node.site=east",
            &format!("node.state_dir={}", dir.join("state").display()),
            &format!("job.orders.command={}", script("job", "exec sleep 600")),
            &format!("job.orders.hooks.prepare.command={}", script("hook", "true")),
            "job.orders.stop_timeout=1s",
        ],
    );
    command
}

fn is(line: &'static str) -> impl Fn(&str) -> bool {
    move |message| message.lines().any(|found| found == line)
}

#[test]
fn it_reports_when_it_takes_part_and_what_it_does() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let manager = Manager::at(&dir.path().join("notify"));
    let mut worker = Running::start(&mut worker(&server.connect_string(), dir.path(), &manager));
    let before = manager.until(is("READY=1"));
    assert!(is("STATUS=starting")(&before[0]), "{before:?}");
    assert!(before.iter().any(|message| message.starts_with("EXTEND_TIMEOUT_USEC=")), "{before:?}");
    assert_eq!(worker.code("/readiness"), 200);
    manager.until(is("STATUS=leads orders (term 1)"));
    manager.until(is("WATCHDOG=1"));
    worker.signal(Signal::SIGTERM);
    let last = manager.until(is("STOPPING=1"));
    assert!(!last.iter().any(|message| is("READY=1")(message)), "{last:?}");
    assert_eq!(worker.ended().code(), Some(0));
    for name in ["job", "hook"] {
        let env = fs::read_to_string(dir.path().join(name)).expect("its environment");
        let passed_on: Vec<_> =
            env.lines().filter(|line| line.starts_with("NOTIFY_") || line.starts_with("WATCHDOG_")).collect();
        assert_eq!(passed_on, [""; 0], "{name}");
    }
}

#[test]
fn a_reload_begins_and_ends_and_a_refused_one_stays_in_the_status() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let manager = Manager::at(&dir.path().join("notify"));
    let file = dir.path().join("worker.toml");
    fs::write(&file, "").expect("a file");
    let mut command = worker(&server.connect_string(), dir.path(), &manager);
    let worker = Running::start(command.arg("--config").arg(&file));
    manager.until(is("READY=1"));
    manager.until(is("STATUS=leads orders (term 1)"));
    let reload = |text: &str| {
        fs::write(&file, text).expect("a file");
        worker.signal(Signal::SIGHUP);
        let begun = manager.until(|message| is("RELOADING=1")(message)).pop().expect("a message");
        let micros = begun.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("a time");
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("the time");
        let age = Duration::from(now) - Duration::from_micros(micros.parse().expect("microseconds"));
        assert!(age < LONG, "{age:?}");
        manager.until(is("READY=1"));
    };
    reload("[job.orders]\nrestart = { maximum = 3 }\n");
    let status = manager.until(|message| message.starts_with("STATUS=uses the old configuration: ")).pop();
    let status = status.expect("a message");
    for part in ["worker.toml:2:13: job.orders.restart.maximum: unknown key", "; leads orders (term 1)"] {
        assert!(status.contains(part), "{status}");
    }
    reload("[http]\nlisten = \"127.0.0.1:1\"\n[zookeeper]\nconnect_timeout = \"16s\"\n");
    manager.until(is("STATUS=needs a restart for zookeeper.connect_timeout; leads orders (term 1)"));
    reload("");
    manager.until(is("STATUS=leads orders (term 1)"));
    // The program that is executed ends the reload.
    reload("[job.bills]\ncommand = [\"sleep\", \"600\"]\nstop_timeout = \"1s\"\n");
    manager.until(|message| message.starts_with("STATUS=leads ") && message.contains("bills"));
}

/// As systemd waits for them, which sends its signal while the worker waits for rest, or executes itself.
#[test]
fn a_reload_that_comes_during_a_handover_begins_and_ends_as_well() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let manager = Manager::at(&dir.path().join("notify"));
    let (file, ready) = (dir.path().join("worker.toml"), dir.path().join("ready"));
    let job = |name: &str| format!("[job.{name}]\ncommand = [\"sleep\", \"600\"]\nstop_timeout = \"1s\"\n");
    let ready_check = format!("ready = {{ kind = \"exec\", command = [\"test\", \"-f\", {ready:?}] }}\n");
    let slow = job("bills") + &ready_check;
    fs::write(&file, &slow).expect("a file");
    let mut command = worker(&server.connect_string(), dir.path(), &manager);
    let worker = Running::start(command.arg("--config").arg(&file));
    manager.until(|message| message.starts_with("STATUS=") && message.contains("takes over bills"));
    let reload = |text: &str| {
        fs::write(&file, text).expect("a file");
        worker.signal(Signal::SIGHUP);
    };
    reload(&(slow.clone() + &job("mail")));
    manager.until(|message| message.starts_with("STATUS=applies job.mail"));
    reload("[job.orders]\nrestart = { maximum = 3 }\n");
    // The takeover is over, so nothing holds the worker up any more.
    fs::write(&ready, "").expect("a file");
    manager.until(is("RELOADING=1"));
    let refused = |message: &str| message.starts_with("STATUS=uses the old configuration: ");
    let ended = manager.until(is("READY=1"));
    if !ended.iter().any(|message| refused(message)) {
        manager.until(refused);
    }
    until("the new job is led", || worker.code("/leader?job=mail") == 200);
}

#[test]
fn no_reload_waits_for_the_end_of_a_removed_job() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let manager = Manager::at(&dir.path().join("notify"));
    let file = dir.path().join("worker.toml");
    let deaf = "trap '' TERM; while :; do sleep 0.05; done";
    let slow = format!(
        "[job.bills]\ncommand = [\"/bin/sh\", \"-c\", {deaf:?}]\nstop_timeout = \"1s\"\nplanned_stop_timeout = \"10m\"\n"
    );
    fs::write(&file, slow).expect("a file");
    let mut command = worker(&server.connect_string(), dir.path(), &manager);
    let worker = Running::start(command.arg("--config").arg(&file));
    until("it is led", || worker.code("/leader?job=bills") == 200);
    fs::write(&file, "").expect("a file");
    for _ in 0..2 {
        worker.signal(Signal::SIGHUP);
        manager.until(is("RELOADING=1"));
        manager.until(is("READY=1"));
        until("it leaves", || worker.http("GET", "/status").1.contains("stepping-down"));
    }
}

#[test]
fn a_worker_that_is_stopped_shows_no_sign_of_life() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let manager = Manager::abstract_one();
    let worker = Running::start(&mut worker(&server.connect_string(), dir.path(), &manager));
    manager.until(is("READY=1"));
    manager.until(is("WATCHDOG=1"));
    worker.signal(Signal::SIGSTOP);
    manager.drain();
    assert_eq!(manager.next(WATCHDOG * 3), None, "a stopped worker");
    worker.signal(Signal::SIGCONT);
    manager.until(is("WATCHDOG=1"));
}

#[test]
fn it_is_not_ready_before_it_takes_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = Manager::at(&dir.path().join("notify"));
    let mut command = worker("127.0.0.1:1", dir.path(), &manager);
    set(&mut command, &["zookeeper.connect_timeout=3s", "http.listen=127.0.0.1:0"]);
    let running = Background::of(command.arg("run"));
    let all = manager.until(|message| message.starts_with("STATUS=failed: "));
    assert!(!all.iter().any(|message| is("READY=1")(message)), "{all:?}");
    assert!(all.iter().filter(|message| message.starts_with("EXTEND_TIMEOUT_USEC=")).count() > 1, "{all:?}");
    running.outcome().assert(69, &["zookeeper.connect"]);
}

#[test]
fn a_configuration_that_is_refused_is_reported_with_its_exit_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = Manager::at(&dir.path().join("notify"));
    let mut command = worker("127.0.0.1:1", dir.path(), &manager);
    set(&mut command, &["node.sight=east"]);
    Outcome::of(command.arg("run")).assert(78, &["node.sight"]);
    let all = manager.until(|message| message.starts_with("STATUS=failed: "));
    assert!(all.iter().any(|message| message.contains("node.sight")), "{all:?}");
    // Commands are no services.
    Outcome::of(command.args(["config", "check"]));
    assert_eq!(manager.next(Duration::from_millis(1)), None);
}

#[test]
fn the_watchdog_of_another_process_gets_nothing() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let manager = Manager::at(&dir.path().join("notify"));
    let mut command = worker(&server.connect_string(), dir.path(), &manager);
    let worker = Running::start(command.env("WATCHDOG_PID", "1"));
    let mut all = manager.until(is("READY=1"));
    all.extend(manager.until(is("STATUS=leads orders (term 1)")));
    assert!(!all.iter().any(|message| is("WATCHDOG=1")(message)), "{all:?}");
    drop(worker);
}

#[test]
fn a_service_manager_that_is_gone_or_does_not_read_holds_nothing_up() {
    let (server, dir) = (server(), tempfile::tempdir().expect("a directory"));
    let gone =
        Manager { socket: UnixDatagram::unbound().expect("a socket"), address: "/no/such/socket".to_owned() };
    let mut worker_of_gone = Running::start(&mut worker(&server.connect_string(), dir.path(), &gone));
    until("it leads", || worker_of_gone.code("/leader") == 200);
    worker_of_gone.signal(Signal::SIGTERM);
    assert_eq!(worker_of_gone.ended().code(), Some(0));

    let deaf = Manager::at(&dir.path().join("notify"));
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.set_nonblocking(true).expect("a socket");
    // The kernel keeps a few messages for a reader.
    while sender.send_to(b"X=1", &deaf.address).is_ok() {}
    let mut worker = Running::start(&mut worker(&server.connect_string(), dir.path(), &deaf));
    until("it leads", || worker.code("/leader") == 200);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
}
