//! `examples/haproxy`: a real HAProxy routes connections to the leader.
//!
//! Without Debian's package `haproxy` the tests are skipped; with `CI` set they fail.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{
    Background, Example, LONG, Running, at, is_there, send, set,
    stage::{Stage, leads},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use zk_testkit::PortReservation;

/// How often a client asks once more, to show that the answer stays the same.
const MORE: usize = 20;

/// Two workers with the example's job, and HAProxy with the example's configuration.
struct Pair {
    proxy: Proxy,
    east: Running,
    west: Running,
    stage: Stage,
    jobs: PortReservation,
}

impl Pair {
    /// east-1 leads, and HAProxy routes to it.
    fn start(root: &'static str) -> Self {
        let stage = Stage::new(root);
        let jobs = PortReservation::take(2).expect("free ports");
        let worker = |id: &str, site: &str, port: u16| {
            let mut command = stage.command(&[]);
            command.arg("--config").arg(at("examples/haproxy/worker.toml"));
            let server = at("examples/haproxy/server.py").display().to_string();
            set(
                &mut command,
                &[
                    &format!("node.id={id}"),
                    &format!("node.site={site}"),
                    &format!("node.state_dir={}", stage.dir.path().join(id).display()),
                    &format!("job.orders.command=[\"python3\", \"{server}\", \"127.0.0.1:{port}\"]"),
                    &format!("job.orders.ready={{ kind = \"tcp\", address = \"127.0.0.1:{port}\" }}"),
                ],
            );
            Running::start(&mut command)
        };
        let east = worker("east-1", "east", jobs.ports()[0]);
        until("east-1 leads", || leads(&east));
        let west = worker("west-1", "west", jobs.ports()[1]);
        until("west-1 is on standby", || west.code("/standby") == 200);
        let proxy = Proxy::start(stage.dir.path(), [&east, &west], jobs.ports(), "GET");
        let pair = Self { proxy, east, west, stage, jobs };
        pair.is_settled("UP", "DOWN");
        assert_eq!(pair.proxy.ask(), Some("east-1 leads orders in term 1".to_owned()));
        pair
    }

    fn is_settled(&self, east: &str, west: &str) {
        until(&format!("HAProxy has east-1 {east} and west-1 {west}"), || {
            // A server counts as up until its first check.
            let has = |name, state: &str| {
                let check = if state == "UP" { "L7OK,200" } else { "L7STS,503" };
                self.proxy.server(name).is_some_and(|server| server.state == state && server.check == check)
            };
            has("east-1", east) && has("west-1", west)
        });
    }

    /// Asks until this member answers, and returns the time without any answer. No other member answers after it.
    #[track_caller]
    fn moves_to(&self, member: &str) -> Duration {
        let mut last = Instant::now();
        let mut gap = None;
        until(&format!("{member} answers"), || match self.proxy.ask() {
            Some(answer) if answer.starts_with(member) => {
                gap = Some(last.elapsed());
                true
            }
            Some(_) => {
                last = Instant::now();
                false
            }
            None => false,
        });
        self.stays_with(member);
        gap.expect("it has answered")
    }

    #[track_caller]
    fn stays_with(&self, member: &str) {
        for _ in 0..MORE {
            let answer = self.proxy.ask();
            assert!(answer.as_ref().is_some_and(|answer| answer.starts_with(member)), "{answer:?}");
        }
    }
}

/// A HAProxy; it ends with the test.
struct Proxy {
    child: Child,
    ports: PortReservation,
}

/// A server, as HAProxy sees it.
#[derive(Debug)]
struct Server {
    state: String,
    /// Kind and code of the last check.
    check: String,
    /// The number of connections that it has got.
    sessions: u64,
}

impl Proxy {
    /// With the example's configuration at other ports, and this method of the checks.
    fn start(dir: &Path, workers: [&Running; 2], jobs: &[u16], method: &str) -> Self {
        Self::start_with(dir, workers, jobs, &[("meth GET", &format!("meth {method}"))])
    }

    /// With the example's configuration at other ports, and these changes.
    fn start_with(dir: &Path, workers: [&Running; 2], jobs: &[u16], changes: &[(&str, &str)]) -> Self {
        let ports = PortReservation::take(2).expect("free ports");
        let [front, status] = ports.ports() else { unreachable!("two were taken") };
        let text = fs::read_to_string(at("examples/haproxy/haproxy.cfg")).expect("the example");
        let replaced = [
            (":8080".to_owned(), format!(":{front}")),
            (":8404".to_owned(), format!(":{status}")),
            (":9081 port 7080".to_owned(), format!(":{} port {}", jobs[0], workers[0].port)),
            (":9082 port 7081".to_owned(), format!(":{} port {}", jobs[1], workers[1].port)),
        ];
        let changes = changes.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        let text = replaced.into_iter().chain(changes).fold(text, |text, (from, to)| {
            assert!(text.contains(&from), "{from} is not in the example");
            text.replace(&from, &to)
        });
        let config = dir.join("haproxy.cfg");
        fs::write(&config, text).expect("a file");
        let mut command = Command::new("haproxy");
        // Debian has it where only root's PATH leads.
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("-db").arg("-f").arg(&config).stdin(Stdio::null());
        command.stderr(fs::File::create(dir.join("haproxy.log")).expect("a log"));
        let child = command.stdout(Stdio::null()).spawn().expect("haproxy can be started");
        let proxy = Self { child, ports };
        until("HAProxy serves", || proxy.server("east-1").is_some());
        proxy
    }

    /// What a client of a new connection reads; `None` if there is no server for it.
    #[track_caller]
    fn ask(&self) -> Option<String> {
        Client::connect(self.ports.ports()[0])?.ask()
    }

    fn server(&self, name: &str) -> Option<Server> {
        let (_, csv) = crate::support::http(self.ports.ports()[1], "GET", "/;csv").ok()?;
        let line = csv.lines().find(|line| line.starts_with(&format!("orders,{name},")))?;
        let fields: Vec<_> = line.split(',').collect();
        Some(Server {
            state: fields[17].to_owned(),
            check: format!("{},{}", fields[36], fields[37]),
            sessions: fields[7].parse().expect("a number"),
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's connection, which stays open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        Some(Self(BufReader::new(stream)))
    }

    /// One request; `None` if the connection was closed.
    ///
    /// # Panics
    /// If there is no answer: the connection is at a frozen server.
    #[track_caller]
    fn ask(&mut self) -> Option<String> {
        self.0.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: orders\r\n\r\n").ok()?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.read(|reader| reader.read_line(&mut line))?;
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.read(|reader| reader.read_exact(&mut body).map(|()| length))?;
        Some(String::from_utf8(body).expect("text").trim().to_owned())
    }

    /// Waits until the other side closes the connection.
    #[track_caller]
    fn ends(mut self) {
        let read = self.read(|reader| reader.read(&mut [0; 1]));
        assert_eq!(read, None, "an answer without a request");
    }

    #[track_caller]
    fn read(
        &mut self,
        read: impl FnOnce(&mut BufReader<TcpStream>) -> std::io::Result<usize>,
    ) -> Option<usize> {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        match read(&mut self.0) {
            Ok(0) => None,
            Ok(count) => Some(count),
            Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => panic!("no answer in {LONG:?}"),
            Err(_) => None,
        }
    }
}

/// `cargo test -p dr-worker --test it next_connection -- --nocapture` prints how long clients found no server.
#[test]
fn after_a_switchover_and_a_failover_the_next_connection_goes_to_the_new_leader() {
    if !is_there("haproxy", "haproxy") {
        return;
    }
    let mut pair = Pair::start("/haproxy-moves");
    let mut open = Client::connect(pair.proxy.ports.ports()[0]).expect("HAProxy");
    open.ask().expect("an answer");
    let switchover = Background::of(pair.stage.command(&[]).args(["switchover", "--to", "west-1", "--wait"]));
    let gap = pair.moves_to("west-1");
    println!("switchover: no server for {} ms", gap.as_millis());
    switchover.outcome().assert(0, &[]);
    open.ends();
    pair.is_settled("DOWN", "UP");

    let mut open = Client::connect(pair.proxy.ports.ports()[0]).expect("HAProxy");
    open.ask().expect("an answer");
    // As if its host were lost: its session lasts until it times out.
    pair.west.kill_with_guards();
    let gap = pair.moves_to("east-1");
    println!("failover of a lost host: no server for {} ms", gap.as_millis());
    open.ends();
    assert_eq!(pair.proxy.ask(), Some("east-1 leads orders in term 3".to_owned()));
}

/// Stopped processes; they continue when it is dropped, so that they can end.
struct Frozen(Vec<Pid>);

impl Frozen {
    fn all(pids: Vec<Pid>) -> Self {
        pids.iter().for_each(|pid| send(*pid, Signal::SIGSTOP).expect("it lives"));
        Self(pids)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // The guard or the job may have ended meanwhile.
        self.0.iter().for_each(|pid| {
            let _ = kill(*pid, Signal::SIGCONT);
        });
    }
}

/// The new leader has all connections, and the old one has got none since its lease has ended.
#[track_caller]
fn gets_no_connection(pair: &Pair, victims: Vec<Pid>, its_job_listens: bool) {
    let mut open = Client::connect(pair.proxy.ports.ports()[0]).expect("HAProxy");
    open.ask().expect("an answer");
    let answer: Value = serde_json::from_str(&pair.east.http("GET", "/leader").1).expect("JSON");
    let lease = Duration::from_millis(answer["lease_remaining_ms"].as_u64().expect("a lease"));
    // It can't be renewed beyond this: a heartbeat that is under way counts from its start.
    let frozen_at = Instant::now();
    let frozen = Frozen::all(victims);
    until("HAProxy has east-1 down", || pair.proxy.server("east-1").is_some_and(|east| east.state == "DOWN"));
    let took = frozen_at.elapsed();
    assert!(took < lease, "{took:?}, and the lease lasted {lease:?}");
    let sessions = pair.proxy.server("east-1").expect("it is listed").sessions;
    open.ends();
    until("west-1 leads", || leads(&pair.west));
    // The kernel accepts connections for a frozen process.
    let port = pair.jobs.ports()[0];
    assert_eq!(TcpStream::connect(("127.0.0.1", port)).is_ok(), its_job_listens, "the job's port {port}");
    pair.moves_to("west-1");

    drop(frozen);
    until("east-1 is on standby", || pair.east.code("/standby") == 200);
    pair.stays_with("west-1");
    assert_eq!(pair.proxy.server("east-1").expect("it is listed").sessions, sessions);
}

#[test]
fn a_frozen_worker_gets_no_connection_and_its_job_ends_with_the_lease() {
    if !is_there("haproxy", "haproxy") {
        return;
    }
    let pair = Pair::start("/haproxy-worker");
    gets_no_connection(&pair, vec![pair.east.pid()], false);
}

#[test]
fn a_leader_that_is_frozen_with_guard_and_job_gets_no_connection_though_its_job_listens() {
    if !is_there("haproxy", "haproxy") {
        return;
    }
    let pair = Pair::start("/haproxy-all");
    let status: Value = serde_json::from_str(&pair.east.http("GET", "/status").1).expect("JSON");
    let job = status["jobs"]["orders"]["process"]["pid"].as_i64().expect("the job runs");
    let mut victims = pair.east.children();
    victims.push(pair.east.pid());
    victims.push(Pid::from_raw(i32::try_from(job).expect("a pid")));
    gets_no_connection(&pair, victims, true);
}

#[test]
fn checks_by_head_and_by_options_find_the_leader_too() {
    if !is_there("haproxy", "haproxy") {
        return;
    }
    let mut pair = Pair::start("/haproxy-methods");
    for method in ["HEAD", "OPTIONS"] {
        pair.proxy = Proxy::start(pair.stage.dir.path(), [&pair.east, &pair.west], pair.jobs.ports(), method);
        pair.is_settled("UP", "DOWN");
        pair.stays_with("east-1");
    }
}

/// With TLS, as README.md of the example describes it.
#[cfg(feature = "tls")]
#[test]
fn checks_over_tls_find_the_leader() {
    use crate::support::pki::{HERE, Pki};
    if !is_there("haproxy", "haproxy") {
        return;
    }
    let (stage, pki) = (Stage::new("/haproxy-tls"), Pki::new());
    pki.issue("worker", "ca", HERE, 2);
    let tls = pki.setting(&[("cert_file", "worker.pem"), ("key_file", "worker.key"), ("ca_file", "ca.pem")]);
    let worker = |id, site| stage.worker(id, site, &[&tls]).over(&pki.client(None));
    let east = worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = worker("west-1", "west");
    let jobs = PortReservation::take(2).expect("free ports");
    let check =
        format!("default-server check check-ssl verify required ca-file {} ", pki.path("ca.pem").display());
    let proxy = Proxy::start_with(
        stage.dir.path(),
        [&east, &west],
        jobs.ports(),
        &[("default-server check ", &check)],
    );
    let check_of = |name| proxy.server(name).map(|server| (server.state, server.check));
    until("HAProxy has east-1 up", || {
        check_of("east-1") == Some(("UP".to_owned(), "L7OK,200".to_owned()))
            && check_of("west-1") == Some(("DOWN".to_owned(), "L7STS,503".to_owned()))
    });
}

#[test]
fn the_example_starts_what_it_says_and_leaves_nothing() {
    if !is_there("haproxy", "haproxy") {
        return;
    }
    let reserved = PortReservation::take(7).expect("free ports");
    let ports: Vec<_> = reserved.ports().iter().map(u16::to_string).collect();
    let example = Example::start("examples/haproxy/run.sh", &ports.join(" "));
    until("the leader answers", || {
        Client::connect(reserved.ports()[0]).and_then(|mut client| client.ask()).is_some()
    });
    example.interrupt();
    for port in reserved.ports() {
        assert!(TcpStream::connect(("127.0.0.1", *port)).is_err(), "the port {port} is still in use");
    }
}
