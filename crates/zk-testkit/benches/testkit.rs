//! What the embedded server costs beside Apache ZooKeeper, on this machine:
//!
//! ```text
//! cargo xtask bench testkit [--rounds N]
//! ```
//!
//! Until it answers, operations each second, memory. Figures of another machine mean
//! little, so both are measured in one run and in turn, and what counts is the ratio.
//! Each has a process of its own; one server, one client, which writes bytes to a
//! socket and reads the answers. Apache ZooKeeper runs as [`Ensemble`] starts it:
//! without `fsync`, and with a small heap.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that can't go on says so and ends")]

#[path = "../tests/wire/mod.rs"]
mod wire;

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use wire::{Client, OK, OPEN, set, word};
use zk_proto::{Create, OpCode, Request};
use zk_testkit::{Ensemble, TestServer};

const SLICE: Duration = Duration::from_millis(400);
const WIDTH: usize = 64;
const ZNODES: usize = 10_000;
const DATA: &[u8] = &[7; 128];
const PATH: &str = "/bench";
/// What is asked for.
type Load = fn() -> Request<'static>;
const GET: Load = || Request::GetData { path: PATH.into(), watch: false };
const SET: Load = || set(PATH, DATA);
/// The first argument of the process that the embedded server has for itself.
const SERVE: &str = "--serve";

fn main() -> ExitCode {
    let mut rounds = 10_usize;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            (SERVE, _) => return serve(),
            ("--rounds", Some(count)) if count.parse().is_ok_and(|count: usize| count > 0) => {
                rounds = count.parse().unwrap_or(rounds);
            }
            // Cargo's own, at the end.
            ("--bench", None) => {}
            (other, _) => {
                eprintln!("{other}: there is --rounds N, with N of 1 or more");
                return ExitCode::from(64);
            }
        }
    }
    measure(rounds);
    ExitCode::SUCCESS
}

/// Until its input ends, which it does with whoever started this.
fn serve() -> ExitCode {
    let runtime = runtime();
    let server = runtime.block_on(TestServer::start()).expect("an embedded server");
    println!("{}", server.connect_string());
    let _ = io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// The embedded server in a process of its own.
struct Served(Child, SocketAddr);

impl Served {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program once more");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("its address");
        let address = line.trim().parse().expect("its address");
        Self(child, address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(rounds: usize) {
    let runtime = runtime();
    let (mut in_process, mut apart, mut apache_starts) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds.min(5) {
        eprintln!("start {round}/{}", rounds.min(5));
        in_process.push(timed(|| runtime.block_on(TestServer::start()).unwrap(), |it| it.addresses()[0]));
        apart.push(timed(Served::start, |it| it.1));
        apache_starts.push(timed(|| runtime.block_on(Ensemble::start(1)).unwrap(), |it| it.addresses()[0]));
    }

    let (ours, apache) = (Served::start(), runtime.block_on(Ensemble::start(1)).expect("Apache ZooKeeper"));
    let theirs = apache.addresses()[0];
    let idle = (resident(ours.0.id()), resident(apache.server(0).pid().expect("its process")));
    let mut clients = [Bearer::new(ours.1), Bearer::new(theirs)];
    let loads: [(&str, Load, usize); 4] = [
        ("get, one by one", GET, 1),
        ("set, one by one", SET, 1),
        ("get, 64 under way", GET, WIDTH),
        ("set, 64 under way", SET, WIDTH),
    ];
    let mut rates: Vec<Vec<[f64; 2]>> = vec![Vec::new(); loads.len()];
    for round in 1..=rounds {
        eprintln!("round {round}/{rounds}");
        for (load, rates) in loads.iter().zip(&mut rates) {
            let mut both = [0.0; 2];
            // Who begins changes, so that nobody always comes after the other.
            for turn in 0..2 {
                let whose = (round + turn) % 2;
                both[whose] = clients[whose].bear(load.1, load.2);
            }
            rates.push(both);
        }
    }
    for client in &mut clients {
        client.fill();
    }
    let full = (resident(ours.0.id()), resident(apache.server(0).pid().expect("its process")));

    println!("{:34}{:>14}{:>18}{:>10}", "", "embedded server", "Apache ZooKeeper", "ratio");
    let apache_start = median(&apache_starts);
    row("start in this process, ms", median(&in_process), apache_start, 2);
    row("start in a process of its own, ms", median(&apart), apache_start, 2);
    for ((name, ..), rates) in loads.iter().zip(&rates) {
        let of = |which: usize| median(&rates.iter().map(|both| both[which]).collect::<Vec<f64>>());
        let ratio = median(&rates.iter().map(|both| both[0] / both[1]).collect::<Vec<f64>>());
        println!("{:34}{:>14.0}{:>18.0}{ratio:>10.2}", format!("{name}, each s"), of(0), of(1));
    }
    row("memory without data, MB", idle.0, idle.1, 1);
    row(&format!("memory with {ZNODES} znodes, MB"), full.0, full.1, 1);
    println!("medians of {rounds} rounds (starts: of {}), {} bytes of data", rounds.min(5), DATA.len());
}

fn row(name: &str, ours: f64, theirs: f64, digits: usize) {
    println!("{name:34}{ours:>14.digits$}{theirs:>18.digits$}{:>10.4}", ours / theirs);
}

/// Milliseconds until it answers.
fn timed<T>(start: impl FnOnce() -> T, address: impl FnOnce(&T) -> SocketAddr) -> f64 {
    let begun = Instant::now();
    let started = start();
    let answer = word(address(&started), "ruok").expect("an answer");
    assert_eq!(answer, "imok");
    begun.elapsed().as_secs_f64() * 1e3
}

/// A client under load.
struct Bearer(Client);

impl Bearer {
    fn new(address: SocketAddr) -> Self {
        let mut client = Client::new(address).expect("a session");
        assert_eq!(client.create(PATH, 0).expect("a znode"), OK);
        Self(client)
    }

    /// Operations each second, so many under way at a time.
    fn bear(&mut self, load: Load, width: usize) -> f64 {
        let request = load();
        let (begun, mut done) = (Instant::now(), 0_u32);
        while begun.elapsed() < SLICE {
            for _ in 0..width {
                self.0.ask(&request).expect("a request");
            }
            for _ in 0..width {
                assert_eq!(self.0.frame().expect("an answer").header.error, OK);
                done += 1;
            }
        }
        f64::from(done) / begun.elapsed().as_secs_f64()
    }

    fn fill(&mut self) {
        let (op, path, acl) = (OpCode::CREATE, "/bench/n-".into(), vec![OPEN]);
        let create = Request::Create(Create { op, path, data: Some(DATA.into()), acl, flags: 2, ttl_ms: -1 });
        for _ in 0..ZNODES / WIDTH + 1 {
            for _ in 0..WIDTH {
                self.0.ask(&create).expect("a request");
            }
            for _ in 0..WIDTH {
                assert_eq!(self.0.frame().expect("an answer").header.error, OK);
            }
        }
    }
}

/// In megabytes.
fn resident(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes / 1024.0
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
