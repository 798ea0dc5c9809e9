//! The queue in the formats of others: one election with Curator's `LeaderLatch`, or with
//! kazoo's `Election`, the real ones, each in a process of its own.
//!
//! Who leads creates a file that must not be there yet, and removes it before it gives
//! up leadership: two leaders at a time can't be missed.

mod child;
mod ours;

use std::{path::PathBuf, process::Command, time::Duration};

use child::{Other, compile_curator, python, wait_for};
use election_core::config::QueueFormat;
use ours::Ours;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zk_session::{Incarnation, Session};
use zk_testkit::{Proxy, ServerKind, Servers};

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(40);

const TICK: Duration = Duration::from_millis(500);

/// Which servers these tests run on: the embedded server, or Apache ZooKeeper by `TEST_SERVERS=apache`, as `cargo xtask
/// test --full` runs them once more.
fn server_kind() -> ServerKind {
    match std::env::var("TEST_SERVERS").as_deref() {
        Ok("apache") => ServerKind::Apache,
        Ok(other) => panic!("TEST_SERVERS={other}: only apache is known"),
        Err(_) => ServerKind::Embedded,
    }
}

/// The root, and the name, whose path is the queue in the formats of other implementations.
const ELECTION: (&str, &str) = ("/theirs", "election");

/// A server, a path, and the candidates there.
struct Stand {
    runtime: Runtime,
    server: Servers,
    observer: Session,
    dir: TempDir,
    format: QueueFormat,
}

/// A process or client that can lead.
enum Contender {
    Ours(Box<Ours>),
    Other(Other),
}

impl Stand {
    fn new(format: QueueFormat) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Servers::start(server_kind(), 1, TICK)).expect("a server starts");
        let observer = connect(&runtime, &server.connect_string());
        Self { runtime, server, observer, dir: tempfile::tempdir().unwrap(), format }
    }

    fn path(&self) -> String {
        let (root, name) = ELECTION;
        format!("{root}/{name}")
    }

    fn lock_file(&self) -> PathBuf {
        self.dir.path().join("leader")
    }

    fn ours(&self, name: &str) -> Contender {
        let session = connect(&self.runtime, &self.server.connect_string());
        Contender::Ours(Box::new(Ours::new(session, name, self.format, ELECTION, self.lock_file())))
    }

    fn ours_behind_a_proxy(&self, name: &str) -> (Contender, Proxy) {
        let server = self.server.addresses()[0];
        let proxy = self.runtime.block_on(Proxy::start(server)).unwrap();
        let session = connect(&self.runtime, &proxy.addr().to_string());
        let ours = Ours::new(session, name, self.format, ELECTION, self.lock_file());
        (Contender::Ours(Box::new(ours)), proxy)
    }

    fn ours_in_a_process(&self) -> Contender {
        let hosts = self.server.connect_string();
        let mut command = ours::process(&hosts, self.format, &self.lock_file());
        Contender::Other(Other::start_on_stderr("ours", &mut command))
    }

    fn kazoo(&self, python: &str) -> Contender {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/others/contender.py");
        let mut command = Command::new(python);
        command.arg(script).arg(self.server.connect_string()).args([&self.path(), "kazoo"]);
        command.arg(self.lock_file()).arg(self.format.as_str());
        Contender::Other(Other::start("kazoo", &mut command))
    }

    fn curator(&self, class_path: &str) -> Contender {
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-cp", class_path, "Contender"]);
        command.arg(self.server.connect_string()).args([&self.path(), "curator"]).arg(self.lock_file());
        Contender::Other(Other::start("curator", &mut command))
    }

    fn live(&self) -> Incarnation {
        self.runtime.block_on(self.observer.active()).unwrap()
    }

    /// The candidates, from the data of their znodes, in no order.
    fn standing(&self) -> Vec<String> {
        let session = self.live();
        self.runtime.block_on(async {
            let children = session.children(&self.path()).await.unwrap();
            let mut held = Vec::new();
            for name in children.map(|c| c.names).unwrap_or_default() {
                if let Some(node) = session.get(&format!("{}/{name}", self.path())).await.unwrap() {
                    held.push(String::from_utf8(node.data).unwrap());
                }
            }
            held
        })
    }

    /// It joins behind all present candidates.
    fn join(&self, who: &mut Contender) {
        let before = self.standing().len();
        match who {
            Contender::Ours(ours) => ours.join(&self.runtime),
            Contender::Other(other) => other.say("join"),
        }
        wait_for("one more stands", || self.standing().len() == before + 1);
    }

    fn leads(&self, who: &mut Contender) {
        match who {
            Contender::Ours(ours) => wait_for("ours leads", || ours.leads()),
            Contender::Other(other) => drop(other.hear("LEADS")),
        }
        assert!(self.lock_file().exists());
    }

    fn leave(&self, who: &mut Contender) {
        match who {
            Contender::Ours(ours) => ours.leave(&self.runtime),
            Contender::Other(other) => {
                let before = self.standing().len();
                other.say("leave");
                other.hear("LEFT");
                // Curator deletes its znode in the background.
                wait_for("it has gone", || self.standing().len() < before);
            }
        }
    }

    /// A leader is killed. What it leaves behind in the file system is the test's to remove,
    /// before its session can be over.
    fn die(&self, who: &mut Contender) {
        let Contender::Other(process) = who else { panic!("it lives in this process") };
        process.kill();
        std::fs::remove_file(self.lock_file()).unwrap();
    }

    /// All join. Then leadership passes from each to the next, in the order of joining. Each one joins again behind the
    /// others as soon as it has led.
    fn goes_round(&self, all: &mut [Contender], times: usize) {
        for who in &mut *all {
            self.join(who);
        }
        for turn in 0..times * all.len() {
            let at = turn % all.len();
            self.leads(&mut all[at]);
            for (other, who) in all.iter_mut().enumerate() {
                match who {
                    Contender::Ours(ours) => assert_eq!(ours.leads(), other == at),
                    Contender::Other(other) => other.is_silent(),
                }
            }
            self.leave(&mut all[at]);
            self.join(&mut all[at]);
        }
    }
}

fn connect(runtime: &Runtime, hosts: &str) -> Session {
    let builder = Session::builder(hosts)
        .session_timeout(Duration::from_secs(6))
        .tick_time(TICK)
        .connect_timeout(Duration::from_secs(20));
    runtime.block_on(builder.connect()).expect("a session")
}

fn grow(contender: &Contender) {
    let Contender::Ours(ours) = contender else { panic!("not ours") };
    let tokens = ours.tokens();
    assert!(tokens.len() > 1 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn leadership_goes_round_between_ours_and_curators() {
    let stand = Stand::new(QueueFormat::LeaderLatch);
    let Some(class_path) = compile_curator(stand.dir.path()) else { return };
    let mut all = [stand.ours("a"), stand.curator(&class_path), stand.ours("b")];
    stand.goes_round(&mut all, 2);
    grow(&all[0]);
    // To Curator ours are participants like any.
    let Contender::Other(curator) = &mut all[1] else { unreachable!() };
    curator.say("participants");
    let mut participants: Vec<_> =
        curator.hear("PARTICIPANTS").split(' ').skip(1).map(str::to_owned).collect();
    participants.sort();
    assert_eq!(participants, ["a", "b", "curator"]);
}

#[test]
fn leadership_goes_round_between_ours_and_kazoos() {
    let Some(python) = python() else { return };
    let stand = Stand::new(QueueFormat::KazooElection);
    let mut all = [stand.kazoo(python), stand.ours("a"), stand.ours("b")];
    stand.goes_round(&mut all, 2);
    grow(&all[1]);
}

/// kazoo can be a candidate in a latch of Curator's if its lock is given the names of one.
#[test]
fn leadership_goes_round_between_ours_curators_and_kazoos() {
    let (Some(python), stand) = (python(), Stand::new(QueueFormat::LeaderLatch)) else { return };
    let Some(class_path) = compile_curator(stand.dir.path()) else { return };
    let mut all = [stand.ours("a"), stand.kazoo(python), stand.curator(&class_path), stand.ours("b")];
    stand.goes_round(&mut all, 1);
    // And the other way round.
    let mut others = [stand.ours("c"), stand.curator(&class_path), stand.kazoo(python)];
    // The leader last, so that no other candidate leads meanwhile.
    for who in all.iter_mut().rev() {
        stand.leave(who);
    }
    stand.goes_round(&mut others, 2);
}

/// When a leader dies, the next one leads once the session is over.
#[test]
fn whoever_dies_is_followed() {
    let (Some(python), stand) = (python(), Stand::new(QueueFormat::LeaderLatch)) else { return };
    let Some(class_path) = compile_curator(stand.dir.path()) else { return };
    let mut all = [
        stand.kazoo(python),
        stand.ours_in_a_process(),
        stand.curator(&class_path),
        stand.ours("a"),
        stand.kazoo(python),
    ];
    for who in &mut all {
        stand.join(who);
    }
    let [mortals @ .., ours, last] = &mut all;
    for who in mortals {
        stand.leads(who);
        stand.die(who);
    }
    stand.leads(ours);
    stand.leave(ours);
    stand.leads(last);
}

/// A leader of ours that is cut off has stopped its work by the time that theirs lead.
#[test]
fn ours_stop_before_theirs_begin() {
    let stand = Stand::new(QueueFormat::LeaderLatch);
    let Some(class_path) = compile_curator(stand.dir.path()) else { return };
    let (mut ours, proxy) = stand.ours_behind_a_proxy("a");
    let mut curator = stand.curator(&class_path);
    stand.join(&mut ours);
    stand.join(&mut curator);
    stand.leads(&mut ours);
    proxy.black_hole(true);
    // It prints TWO instead if it finds the other one at work.
    stand.leads(&mut curator);
}

/// A candidate that leaves the middle of the queue causes no other one to lead.
#[test]
fn whoever_gives_up_is_passed_over() {
    let Some(python) = python() else { return };
    let stand = Stand::new(QueueFormat::KazooElection);
    let (mut first, mut second, mut third) = (stand.kazoo(python), stand.kazoo(python), stand.ours("a"));
    for who in [&mut first, &mut second, &mut third] {
        stand.join(who);
    }
    stand.leads(&mut first);
    stand.leave(&mut second);
    wait_for("the second is gone", || stand.standing().len() == 2);
    let Contender::Ours(ours) = &third else { unreachable!() };
    assert!(!ours.leads());
    stand.join(&mut second);
    stand.leave(&mut first);
    stand.leads(&mut third);
    stand.leave(&mut third);
    stand.leads(&mut second);
}
