//! The session of a worker that died on a living host: its last guard has it closed, once no process of any job is left.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::{Running, dr_worker, own_server::OwnServer as Stage, send, set, until};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use zk_testkit::Proxy;

/// So long that a session which ends by its timeout is a failure of the test.
const TIMEOUT: &str = "60s";

/// Much less, and much longer than closing takes on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The sessions of its server are those of the workers, and may last.
fn stage() -> Stage {
    let tick = Duration::from_millis(500);
    Stage::with(|builder| builder.session_timeouts(tick * 2, tick * 400))
}

impl Stage {
    fn sessions(&self) -> usize {
        self.server().sessions().len()
    }

    /// A job that writes its pid, and does this.
    fn job(&self, name: &str, script: &str) -> String {
        let script = format!("echo $$ > {}; {script}", self.pid_file(name).display());
        format!("job.{name}.command={}", serde_json::json!(["/bin/sh", "-c", script]))
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.pid"))
    }

    fn pid(&self, name: &str) -> Option<Pid> {
        let pid = fs::read_to_string(self.pid_file(name)).ok()?.trim().parse().ok()?;
        Some(Pid::from_raw(pid))
    }

    fn lives(&self, name: &str) -> bool {
        self.pid(name).is_some_and(is_alive)
    }

    /// A worker, when its jobs run and it leads them; and its log from then on.
    fn leading_worker(&self, settings: &[String]) -> (Running, Log) {
        let connect = format!("zookeeper.connect={}", self.server().connect_string());
        self.worker_of(&[&[connect], settings].concat())
    }

    fn worker_of(&self, settings: &[String]) -> (Running, Log) {
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                "zookeeper.tick_time=500ms",
                &format!("zookeeper.session_timeout={TIMEOUT}"),
                "node.id=east-1",
                "node.site=east",
                &format!("node.state_dir={}", self.dir.path().join("state").display()),
                "job.orders.stop_timeout=5s",
            ],
        );
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        set(&mut command, &settings);
        let (log, stderr) = std::io::pipe().expect("a pipe");
        let mut log = BufReader::new(log);
        let worker = Running::start_logging_to(command.stderr(stderr), &mut log);
        let text = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|count| count > 0) {
                kept.lock().expect("no panic").push_str(&std::mem::take(&mut line));
            }
            kept.lock().expect("no panic").push_str(OVER);
        });
        until("the worker leads", || worker.code("/leader?job=orders") == 200);
        (worker, Log(text))
    }

    /// Waits until the worker's session is closed, and asserts that no job lived then.
    fn is_closed(&self, jobs: &[&str], since: Instant) -> Duration {
        until("the session is closed", || {
            // In this order: a job that lives now lived when the session was there.
            let is_closed = self.sessions() == 0;
            let living: Vec<_> = jobs.iter().filter(|job| self.lives(job)).collect();
            assert!(!is_closed || living.is_empty(), "the session is closed, and these live: {living:?}");
            is_closed
        });
        let took = since.elapsed();
        assert!(took < SOON, "{took:?}");
        took
    }

    /// Asserts that the session is not closed for a while in which it would be.
    fn is_not_closed(&self) {
        let by = Instant::now() + Duration::from_secs(3);
        while Instant::now() < by {
            assert_eq!(self.sessions(), 1, "the session was closed");
            // Between two looks.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a signal was sent to the process and has not arrived. None is left for a process that has ended.
fn has_pending_signals(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let has_ended = field("State:").is_none_or(|state| state.starts_with(['Z', 'X']));
    let is_set = |name: &str| field(name).is_some_and(|bits| !bits.trim_matches('0').is_empty());
    !has_ended && (is_set("SigPnd:") || is_set("ShdPnd:"))
}

/// After the last line of a log: all that had it open have ended.
const OVER: &str = "(over)";

/// What a worker, its guards and the process that closes its session log.
struct Log(Arc<Mutex<String>>);

impl Log {
    fn has(&self, words: &str) -> bool {
        self.0.lock().expect("no panic").contains(words)
    }

    fn is_over(&self) -> bool {
        self.has(OVER)
    }
}

/// Those that are not reaped yet are dead.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

const STOPS_AT_ONCE: &str = "exec sleep 600";

#[test]
fn it_is_closed_however_the_worker_dies() {
    let stage = stage();
    for signals in [
        &[Signal::SIGKILL][..],
        // The handler of the first one, which looks for a stack overflow, gives way to the default action.
        &[Signal::SIGSEGV, Signal::SIGSEGV],
        // Frozen, and then killed.
        &[Signal::SIGSTOP, Signal::SIGKILL],
    ] {
        let (mut worker, log) = stage.leading_worker(&[stage.job("orders", STOPS_AT_ONCE)]);
        until("the job runs", || stage.lives("orders"));
        assert_eq!(stage.sessions(), 1, "{:?}", stage.server().sessions());
        let killed = Instant::now();
        for signal in signals {
            worker.signal(*signal);
            // Two pending signals of a kind are one.
            until("it has arrived", || !has_pending_signals(worker.pid()));
        }
        worker.ended();
        let took = stage.is_closed(&["orders"], killed);
        println!("{signals:?}: closed after {took:?} of {TIMEOUT}");
        until("it is logged", || log.has("no process of its jobs is left: its session is closed"));
        fs::remove_file(stage.pid_file("orders")).expect("the file");
    }
}

/// The allocator gets no more memory, so the worker aborts. The kernel's own killer sends SIGKILL.
#[test]
fn it_is_closed_when_the_worker_runs_out_of_memory() {
    use rustix::process::{Resource, Rlimit, prlimit};
    let stage = stage();
    let (mut worker, log) = stage.leading_worker(&[stage.job("orders", STOPS_AT_ONCE)]);
    until("the job runs", || stage.lives("orders"));
    let pid = rustix::process::Pid::from_raw(worker.pid().as_raw());
    let none = || Rlimit { current: Some(0), maximum: Some(0) };
    for memory in [Resource::As, Resource::Data] {
        prlimit(pid, memory, none()).expect("a limit");
    }
    // Clients take memory that the worker does not have.
    let mut clients = Vec::new();
    let began = Instant::now();
    until("the worker has no memory left", || {
        for _ in 0..16 {
            if let Ok(mut client) = std::net::TcpStream::connect(("127.0.0.1", worker.port)) {
                client.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
                let head = format!("GET /status HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(100 << 10));
                let _ = std::io::Write::write_all(&mut client, head.as_bytes());
                clients.push(client);
            }
        }
        !is_alive(worker.pid())
    });
    let status = worker.ended();
    println!("{status} after {:?}", began.elapsed());
    let took = stage.is_closed(&["orders"], Instant::now());
    println!("closed after {took:?} of {TIMEOUT}");
    until("it is logged", || log.has("its session is closed"));
}

#[test]
fn it_is_not_closed_before_the_last_of_several_jobs_is_gone() {
    let stage = stage();
    let (mut worker, _) = stage.leading_worker(&[
        stage.job("orders", STOPS_AT_ONCE),
        stage.job("bills", "trap '' TERM; while :; do sleep 0.05; done"),
        "job.bills.stop_timeout=3s".to_owned(),
        // Guards of another kind, which come and go.
        stage.job("web", STOPS_AT_ONCE),
        "job.web.measure.command=[\"/bin/sh\", \"-c\", \"sleep 0.05; echo lag=0\"]".to_owned(),
        "job.web.measure.interval=100ms".to_owned(),
    ]);
    for job in ["orders", "bills", "web"] {
        until("all lead", || worker.code(&format!("/leader?job={job}")) == 200);
        until("all run", || stage.lives(job));
    }
    let killed = Instant::now();
    worker.signal(Signal::SIGKILL);
    worker.ended();
    until("those that stop at once are gone", || !stage.lives("orders") && !stage.lives("web"));
    assert!(stage.lives("bills"), "it ignores SIGTERM");
    let took = stage.is_closed(&["orders", "bills", "web"], killed);
    println!("closed after {took:?} of {TIMEOUT}");
    assert!(took > Duration::from_secs(2), "the job had three seconds to stop: {took:?}");
}

#[test]
fn it_is_not_closed_when_a_guard_was_killed_as_well() {
    let stage = stage();
    // Its children outlive the guard, at least for a moment.
    let settings =
        [stage.job("orders", STOPS_AT_ONCE), stage.job("bills", "(setsid sleep 600 &) ; exec sleep 600")];
    let (mut worker, log) = stage.leading_worker(&settings);
    until("both lead", || worker.code("/leader?job=bills") == 200 && stage.lives("bills"));
    until("both run", || stage.lives("orders"));
    let guard_of = |job: &str| {
        let job = stage.pid(job).expect("it runs");
        let stat = fs::read_to_string(format!("/proc/{job}/stat")).expect("it runs");
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        Pid::from_raw(parent.expect("its parent"))
    };
    let victims = [guard_of("bills"), worker.pid()];
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        victims.iter().for_each(|pid| send(*pid, signal).expect("it lives"));
    }
    worker.ended();
    until("the other guard has ended its job", || !stage.lives("orders"));
    stage.is_not_closed();
    assert!(!log.has("the worker has died"));
    // The next worker of the member ends what is left.
    stage.leading_worker(&settings);
}

#[test]
fn it_is_closed_as_soon_as_a_server_can_be_reached() {
    let stage = stage();
    let server = stage.server().addresses()[0];
    let proxy = stage.runtime.block_on(Proxy::start(server)).expect("a proxy");
    let connect = format!("zookeeper.connect={}", proxy.addr());
    let (mut worker, _) = stage.worker_of(&[connect, stage.job("orders", STOPS_AT_ONCE)]);
    until("the job runs", || stage.lives("orders"));
    proxy.black_hole(true);
    let accepted = proxy.accepted().len();
    worker.signal(Signal::SIGKILL);
    worker.ended();
    until("the job is gone", || !stage.lives("orders"));
    until("it is tried", || proxy.accepted().len() > accepted);
    assert_eq!(stage.sessions(), 1);
    proxy.black_hole(false);
    let took = stage.is_closed(&["orders"], Instant::now());
    println!("closed {took:?} after the server was there again, of {TIMEOUT}");
}

#[test]
fn a_worker_that_ends_by_itself_closes_its_session_itself() {
    let stage = stage();
    let (mut worker, log) = stage.leading_worker(&[
        stage.job("orders", STOPS_AT_ONCE),
        // The guard of a command is there at any time.
        "job.orders.measure.command=[\"/bin/sh\", \"-c\", \"sleep 600\"]".to_owned(),
        "job.orders.measure.interval=100ms".to_owned(),
        "job.orders.measure.timeout=10m".to_owned(),
    ]);
    until("the job runs", || stage.lives("orders"));
    until("the command runs", || worker.children().len() == 2);
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().success());
    assert_eq!(stage.sessions(), 0);
    until("it is logged", || log.has("\"session\":\"closed\""));
    until("its guards have ended", || log.is_over());
    assert!(!log.has("the worker has died"), "{}", log.0.lock().expect("no panic"));
}

/// Certificates: of an authority, and for everyone else.
#[cfg(feature = "tls")]
fn make_certificates(dir: &std::path::Path) {
    let openssl = |arguments: &str| {
        let words = arguments.split_whitespace();
        let output = std::process::Command::new("openssl").args(words).current_dir(dir).output();
        let output = output.expect("the command openssl is needed to make certificates");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca \
         -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem",
    );
    fs::write(dir.join("extensions"), "subjectAltName=DNS:localhost\n").expect("a file");
    openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=all -keyout all.key -out all.csr",
    );
    openssl(
        "x509 -req -in all.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out all.pem",
    );
    // As the server wants it: certificate and key in one file.
    let both = [fs::read(dir.join("all.pem")), fs::read(dir.join("all.key"))];
    fs::write(dir.join("both.pem"), both.map(|part| part.expect("made")).concat()).expect("a file");
}

/// A server that accepts no client without a certificate and a password.
#[cfg(feature = "tls")]
#[test]
fn it_is_closed_over_tls_and_with_credentials() {
    use zk_session::{Session, TlsOptions};
    use zk_testkit::Ensemble;
    let stage = stage();
    let file = |name: &str| stage.dir.path().join(name);
    make_certificates(stage.dir.path());
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let users = format!("Server {{ {module} required user_operator=\"hunter2\"; }};\n");
    fs::write(file("jaas.conf"), users).expect("a file");
    fs::write(file("credentials"), "operator:hunter2\n").expect("a file");
    let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    let ensemble = Ensemble::builder()
        .servers(1)
        .tick_time(Duration::from_millis(500))
        .setting("ssl.clientAuth", "need")
        .setting("ssl.protocol", "TLSv1.2")
        .setting("ssl.enabledProtocols", "TLSv1.2")
        .setting("maxSessionTimeout", "60000")
        .jvm_flag(format!("-Djava.security.auth.login.config={}", file("jaas.conf").display()))
        .jvm_flag(format!("-Dzookeeper.authProvider.sasl={provider}"))
        .jvm_flag("-Dzookeeper.sessionRequireClientSASLAuth=true")
        .with(|settings| settings.tls_only = Some([file("both.pem"), file("ca.pem")]));
    let ensemble = stage.runtime.block_on(ensemble.start()).expect("a server");
    let servers = format!("localhost:{}", ensemble.addresses()[0].port());
    let tls = TlsOptions::new(file("ca.pem")).identity(file("all.pem"), file("all.key"));
    let session = Session::builder(&servers).tls(tls.clone()).sasl_digest("operator", "hunter2");
    let observer = stage.runtime.block_on(session.connect()).expect("a session");
    let (mut worker, log) = stage.worker_of(&[
        format!("zookeeper.connect={servers}"),
        format!("zookeeper.auth={{ scheme = \"sasl\", credentials_file = {:?} }}", file("credentials")),
        format!(
            "zookeeper.tls={{ ca_file = {:?}, cert_file = {:?}, key_file = {:?} }}",
            file("ca.pem"),
            file("all.pem"),
            file("all.key")
        ),
        "zookeeper.acl=open".to_owned(),
        stage.job("orders", STOPS_AT_ONCE),
    ]);
    let leads = || {
        stage.runtime.block_on(async {
            observer.barrier().await.expect("a round trip");
            observer.get("/dr/orders/leader/current").await.expect("a read").is_some()
        })
    };
    assert!(leads());
    let killed = Instant::now();
    worker.signal(Signal::SIGKILL);
    worker.ended();
    until("its znode is gone", || !leads());
    println!("closed after {:?} of {TIMEOUT}", killed.elapsed());
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    until("it is logged", || log.has("its session is closed"));
    let text = log.0.lock().expect("no panic").clone();
    assert!(!text.contains("hunter2"), "{text}");
}
