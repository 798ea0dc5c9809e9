//! `examples/valkey`: a server of Valkey or Redis with a replica. A client adds numbers all the time and counts each one that
//! was acknowledged; they are looked for at each new primary.
//!
//! Without Debian's package `redis-server` the tests are skipped; with `CI` set they fail.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, kill_pid, wait_for};
use toml::Table;
use zk_testkit::PortReservation;

/// Each member has an address of its own, and the same port.
const MEMBERS: [(&str, &str); 2] = [("east-1", "127.0.0.1"), ("west-1", "127.0.0.2")];

/// A full copy, after pauses of the server.
const LONG: Duration = Duration::from_secs(60);

struct Stage {
    cluster: Cluster,
    writer: Writer,
    ports: PortReservation,
    _dir: tempfile::TempDir,
}

/// A connection to a server.
struct Server(BufReader<TcpStream>);

impl Server {
    fn at(address: &str, port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((address, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// The first line of the answer.
    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        self.line()
    }

    fn numbers(&mut self) -> io::Result<BTreeSet<u64>> {
        let count: usize = self.ask("SMEMBERS numbers")?[1..].parse().unwrap();
        let each = |_| {
            self.line()?; // its length
            Ok(self.line()?.parse().unwrap())
        };
        (0..count).map(each).collect()
    }
}

/// A client that adds one number after the other, at the server that takes them.
struct Writer {
    acknowledged: Arc<Mutex<Vec<u64>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(port: u16) -> Self {
        let (acknowledged, is_over) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::<AtomicBool>::default());
        let (acks, over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            // A number whose answer was lost may be there: it is not used again.
            let mut numbers = 1_u64..;
            for (_, address) in MEMBERS.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                let written = Server::at(address, port).and_then(|mut server| {
                    while !over.load(Ordering::Relaxed) {
                        let number = numbers.next().unwrap();
                        if server.ask(&format!("SADD numbers {number}"))? != ":1" {
                            break;
                        }
                        acks.lock().unwrap().push(number);
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                });
                if written.is_err() {
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        Self { acknowledged, is_over, thread: Some(thread) }
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.acknowledged.lock().unwrap().clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn address_of(member: &str) -> &'static str {
    MEMBERS.into_iter().find(|(name, _)| *name == member).unwrap().1
}

/// The example's job, with its script in place.
fn job() -> Table {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/valkey").canonicalize().unwrap();
    let text = fs::read_to_string(example.join("worker.toml")).unwrap();
    let text = text.replace("/usr/local/lib/dr-valkey", &example.display().to_string());
    text.parse::<Table>().unwrap()["job"][JOB].as_table().unwrap().clone()
}

impl Stage {
    /// east-1 leads, and the client writes. None if this machine has no server.
    async fn start() -> Option<Self> {
        let is_there = |name: &str| Path::new("/usr/bin").join(name).exists();
        if !is_there("redis-server") && !is_there("valkey-server") {
            zk_testkit::skip("there is no redis-server and no valkey-server: install redis-server");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("dr-valkey-").tempdir().unwrap();
        let ports = PortReservation::take(1).unwrap();
        let mut setup =
            Setup::new(Driver::Native).workers(&[("east-1", "east"), ("west-1", "west")]).not_started();
        setup = setup.unset("job.orders.ready").set("job.orders", job());
        for (member, address) in MEMBERS {
            setup = setup.set_for(member, "node.address", address);
        }
        let mut cluster = Cluster::of(setup).await;
        let port = ports.ports()[0];
        for (member, address) in MEMBERS {
            let data = dir.path().join(member);
            fs::create_dir(&data).unwrap();
            let worker = cluster.worker(member);
            let env = [
                ("ADDRESS", address.to_owned()),
                ("DIR", data.display().to_string()),
                ("PORT", port.to_string()),
                ("HTTP", worker.http().to_string()),
            ];
            worker.set_env(env.map(|(name, value)| (name.into(), value.into())).into());
            worker.start();
        }
        let mut stage = Self { cluster, writer: Writer::start(port), ports, _dir: dir };
        // Nothing is known of any primary.
        stage.cluster.standing_by(2).await;
        stage.cluster.operator().done(&["failover", "--to", "east-1", "--accept-loss", "--wait"]).await;
        stage.cluster.first_leader().await;
        stage.writes_on().await;
        stage.follows("west-1").await;
        Some(stage)
    }

    fn server(&self, member: &str) -> io::Result<Server> {
        Server::at(address_of(member), self.ports.ports()[0])
    }

    async fn writes_on(&self) {
        let before = self.writer.acknowledged().len();
        wait_for("acknowledged numbers", LONG, async || {
            let more = self.writer.acknowledged().len() - before;
            if more > 50 { Ok(()) } else { Err(format!("{more} more")) }
        })
        .await;
    }

    async fn lag(&self, member: &str) -> Option<u64> {
        let listed = self.cluster.operator().json(&["list"]).await;
        let found = listed["members"].as_array()?.iter().find(|one| one["member"] == member)?;
        found["attributes"]["lag"].as_str()?.parse().ok()
    }

    /// Waits until the member replicates, and may lead.
    async fn follows(&self, member: &str) {
        wait_for(&format!("{member} as a replica that may lead"), LONG, async || {
            let lag = self.lag(member).await;
            if lag.is_some_and(|lag| lag < 65536) { Ok(()) } else { Err(format!("lag {lag:?}")) }
        })
        .await;
    }

    /// Moves leadership there. The lag of a former leader is not known for a moment, and it is refused then.
    async fn moves(&self, to: &str) {
        wait_for(&format!("a move to {to}"), LONG, async || {
            self.follows(to).await;
            let said = self.cluster.operator().run(&["switchover", "--to", to, "--wait"]).await;
            if said.code == Some(1) && said.stderr.contains("lag is missing") {
                return Err(said.stderr);
            }
            drop(said.with_code(0));
            Ok(())
        })
        .await;
    }

    /// What was acknowledged until now, and this member does not have.
    fn lost(&self, member: &str) -> Vec<u64> {
        let acknowledged = self.writer.acknowledged();
        let there = self.server(member).unwrap().numbers().unwrap();
        acknowledged.into_iter().filter(|number| !there.contains(number)).collect()
    }

    async fn successor_of(&mut self, old: &Leader) -> Leader {
        let leader = self.cluster.successor_of(old, LONG).await;
        assert_ne!(leader.member, old.member);
        self.writes_on().await;
        leader
    }
}

#[tokio::test]
async fn a_planned_move_promotes_and_demotes_the_running_servers_and_loses_nothing() {
    let Some(mut stage) = Stage::start().await else { return };
    let mut leader = stage.cluster.leader().await.unwrap();
    let first_pid = leader.pid;
    for to in ["west-1", "east-1"] {
        stage.moves(to).await;
        leader = stage.successor_of(&leader).await;
        assert_eq!(stage.lost(to), Vec::<u64>::new());
    }
    assert_eq!(leader.pid, first_pid, "the same process");

    // A killed server is started again on its node, with its data.
    kill_pid(leader.pid.unwrap());
    wait_for("another run of the job", SOON, async || {
        let now = stage.cluster.leader().await?;
        if now.restarts > leader.restarts && now.pid.is_some() { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    stage.writes_on().await;
    assert_eq!(stage.lost("east-1"), Vec::<u64>::new());
    stage.cluster.end().await;
}

/// No server runs on the node then.
#[tokio::test]
async fn a_node_that_leads_without_zookeeper_has_its_data_and_takes_writes() {
    let Some(mut stage) = Stage::start().await else { return };
    let west = stage.cluster.worker("west-1");
    west.ask_to_end();
    assert!(west.ended_by(Instant::now() + LONG).unwrap().success());
    let east = stage.cluster.worker("east-1");
    east.ask_to_end();
    assert!(east.ended_by(Instant::now() + LONG).unwrap().success());
    east.lead_alone("I have fenced: site west");
    stage.writes_on().await;
    assert_eq!(stage.lost("east-1"), Vec::<u64>::new());
    stage.cluster.end().await;
}

#[tokio::test]
async fn a_killed_worker_ends_its_server_and_a_replica_that_lacks_too_much_does_not_lead() {
    let Some(mut stage) = Stage::start().await else { return };
    let first = stage.cluster.leader().await.unwrap();
    stage.cluster.worker("east-1").kill();
    let second = stage.successor_of(&first).await;
    println!("{} numbers are lost", stage.lost("west-1").len());
    stage.writer.acknowledged.lock().unwrap().clear();
    stage.cluster.worker("east-1").start();
    stage.follows("east-1").await;

    // Replication is cut, and more is written than the limit.
    stage.server("east-1").unwrap().ask("REPLICAOF 127.0.0.1 1").unwrap();
    let payload = format!("SET payload {}", "x".repeat(50_000));
    for _ in 0..4 {
        assert_eq!(stage.server("west-1").unwrap().ask(&payload).unwrap(), "+OK");
    }
    wait_for("a lag above the limit", SOON, async || match stage.lag("east-1").await {
        Some(lag) if lag > 200_000 => Ok(()),
        lag => Err(format!("{lag:?}")),
    })
    .await;
    stage.cluster.worker("west-1").kill();
    wait_for("no leader, for a reason", LONG, async || {
        let status = stage.cluster.worker("east-1").status().await.ok_or("no answer")?;
        let note = status["jobs"][JOB]["note"].as_str().unwrap_or_default().to_owned();
        if note.contains("and the limit is 65536") { Ok(()) } else { Err(note) }
    })
    .await;
    stage.cluster.operator().done(&["failover", "--to", "east-1", "--accept-loss", "--wait"]).await;
    let third = stage.successor_of(&second).await;
    assert_eq!(third.member, "east-1");
    stage.cluster.worker("west-1").start();
    stage.follows("west-1").await;
    stage.cluster.end().await;
}
