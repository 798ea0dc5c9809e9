//! Two nodes of `examples/postgres`: workers, PostgreSQL, and clients that write.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::{Cluster, Driver, JOB, Leader, Setup, wait_for};
use nix::unistd::{Uid, User};
use toml::Table;
use zk_testkit::PortReservation;

use super::writer::{Ack, Writers, assert_one_at_a_time, pauses};

/// A clone, a rewind or a recovery on a busy machine.
pub const LONG: Duration = Duration::from_secs(100);

pub const MEMBERS: [&str; 2] = ["east-1", "west-1"];

/// Each member has an address of its own, and the same port.
const ADDRESSES: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
const PYTHON: &str = "/usr/bin/python3";

/// The two nodes.
pub struct Stage {
    pub cluster: Cluster,
    pub writers: Writers,
    nodes: BTreeMap<&'static str, Node>,
    is_sync: bool,
    bin: PathBuf,
    user: Option<User>,
    ports: PortReservation,
    dir: tempfile::TempDir,
}

/// A node's files.
struct Node {
    home: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// PostgreSQL's programs and the user that runs them, or why there are none.
fn available() -> Result<(PathBuf, Option<User>), String> {
    let versions =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let bin = versions.max_by_key(number).map(|version| version.join("bin"));
    let bin = bin.filter(|bin| bin.join("pg_rewind").is_file());
    let bin = bin.ok_or("there is no /usr/lib/postgresql/*/bin/pg_rewind: install postgresql")?;
    if !Path::new(PYTHON).exists() {
        return Err(format!("there is no {PYTHON}: install python3"));
    }
    let user = if Uid::effective().is_root() {
        let user = User::from_name("postgres").ok().flatten();
        Some(user.ok_or("this is root, and there is no user `postgres` to run PostgreSQL as")?)
    } else {
        None
    };
    Ok((bin, user))
}

/// The example's configuration, with these files.
fn setup(lib: &Path, homes: &Path, is_sync: bool, user: Option<&User>) -> Setup {
    let example = example();
    let text = fs::read_to_string(example.join("worker.toml")).unwrap();
    let fence = format!("\"{}\", \"{}\"", lib.join("fence.sh").display(), homes.display());
    let text = text.replace("/usr/local/lib/dr-postgres", &lib.display().to_string());
    let text = text.replace("\"/usr/local/sbin/fence-ipmi\"", &fence);
    let mut job = text.parse::<Table>().unwrap()["job"][JOB].as_table().unwrap().clone();
    if is_sync {
        let text = fs::read_to_string(example.join("sync.toml")).unwrap();
        let over = &text.parse::<Table>().unwrap()["job"][JOB]["policy"]["pipeline"];
        job["policy"].as_table_mut().unwrap().insert("pipeline".to_owned(), over.clone());
    }
    if let Some(user) = user {
        job.insert("user".to_owned(), user.name.clone().into());
    }
    let mut setup =
        Setup::new(Driver::Native).workers(&[("east-1", "east"), ("west-1", "west")]).not_started();
    for (member, address) in MEMBERS.into_iter().zip(ADDRESSES) {
        setup = setup.set_for(member, "node.address", address);
    }
    setup.unset("job.orders.ready").set("job.orders", job).set("zookeeper.session_timeout", "10s")
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/postgres").canonicalize().unwrap()
}

impl Stage {
    /// east-1 leads, west-1 is its standby, and the clients write. None if this machine lacks something.
    pub async fn start(is_sync: bool) -> Option<Self> {
        let (bin, user) = match available() {
            Ok(found) => found,
            Err(reason) => {
                zk_testkit::skip(reason);
                return None;
            }
        };
        let dir = tempfile::Builder::new().prefix("dr-pg-").tempdir().unwrap();
        // PostgreSQL's user has to reach its own directories and the programs.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let lib = dir.path().join("lib");
        fs::create_dir(&lib).unwrap();
        for entry in fs::read_dir(example()).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), lib.join(entry.file_name())).unwrap();
        }
        // The data has to survive processes, not the machine.
        let shared = lib.join("test.conf");
        fs::write(&shared, "include 'postgresql.conf'\nfsync = off\n").unwrap();

        let setup = setup(&lib, dir.path(), is_sync, user.as_ref());
        let mut cluster = Cluster::of(setup).await;
        let ports = PortReservation::take(1).unwrap();
        let port = ports.ports()[0];
        let mut nodes = BTreeMap::new();
        for (member, address) in MEMBERS.into_iter().zip(ADDRESSES) {
            let home = dir.path().join(member);
            fs::create_dir(&home).unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
            own(&home, user.as_ref());
            let env = [
                ("PG_HOME", home.display().to_string()),
                ("PG_BIN", bin.display().to_string()),
                ("PG_ADDRESS", format!("{address}:{port}")),
                ("PG_WORKER", cluster.worker(member).http().to_string()),
                ("PG_CONF", shared.display().to_string()),
                ("PG_SYNC", if is_sync { MEMBERS.join(" ") } else { String::new() }),
            ];
            let env: Vec<_> = env.map(|(name, value)| (name.into(), value.into())).into();
            cluster.worker(member).set_env(env.clone());
            nodes.insert(member, Node { home, env });
        }
        let writers = Writers::start(ADDRESSES.map(|address| (address, port)));
        let mut stage = Self { cluster, writers, nodes, is_sync, bin, user, ports, dir };
        stage.run_script("east-1", &["init"]).unwrap();
        let password = stage.nodes["west-1"].home.join("pgpass");
        fs::copy(stage.nodes["east-1"].home.join("pgpass"), &password).unwrap();
        own(&password, stage.user.as_ref());
        for member in MEMBERS {
            stage.return_of(member);
        }
        let first = stage.cluster.leader_is("the first", LONG, |leader| leader.member == "east-1").await;
        stage.fits("west-1").await;
        let schema = "CREATE ROLE writer LOGIN PASSWORD 'writer';
            CREATE TABLE rows (node int, number bigint, payload text, PRIMARY KEY (node, number));
            ALTER TABLE rows ALTER payload SET STORAGE PLAIN;
            GRANT INSERT ON rows TO writer";
        stage.sql(&first.member, schema).unwrap();
        stage.writers.pause(false);
        stage.writes_on().await;
        Some(stage)
    }

    /// Starts the worker of a node.
    pub fn return_of(&mut self, member: &'static str) {
        self.cluster.worker(member).start();
    }

    /// SIGKILL to the worker and its guards, as if the host were lost. PostgreSQL is left to the kernel and to the fence.
    pub fn lose(&mut self, member: &str) {
        self.cluster.worker(member).kill_with_guards();
    }

    /// `pg.py` on a node, which knows that the first one leads; its output.
    pub fn run_script(&self, member: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.dir.path().join("lib/pg.py"));
        let (mark, value) = self.cluster.tree().mark();
        command.args(arguments).envs(self.nodes[member].env.clone()).env(mark, value);
        command.env("DR_LEADER", MEMBERS[0]).env("DR_LEADER_ADDRESS", ADDRESSES[0]);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        output(&mut command)
    }

    /// A statement at a node, by the superuser.
    pub fn sql(&self, member: &str, statement: &str) -> Result<String, String> {
        let node = &self.nodes[member];
        let mut command = Command::new(self.bin.join("psql"));
        command
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"])
            .arg(&node.home);
        output(command.args(["-p", &self.ports.ports()[0].to_string(), "-c", statement]))
    }

    /// No standby can connect to this primary any more; the network and ZooKeeper work.
    pub fn cut_replication(&self, member: &str) {
        // Not by a commit that waits for the standby.
        let cut = "SET synchronous_commit = local; SELECT pg_terminate_backend(pid) FROM pg_stat_replication;
            ALTER ROLE replicator NOREPLICATION NOLOGIN";
        self.sql(member, cut).unwrap();
    }

    pub fn mend_replication(&self, member: &str) {
        let mend = "SET synchronous_commit = local; ALTER ROLE replicator REPLICATION LOGIN";
        self.sql(member, mend).unwrap();
    }

    /// A measured attribute of a member, as `list` shows it.
    pub async fn attribute(&self, member: &str, name: &str) -> Option<String> {
        let listed = self.cluster.operator().json(&["list"]).await;
        let found = listed["members"].as_array()?.iter().find(|one| one["member"] == member)?;
        found["attributes"][name].as_str().map(str::to_owned)
    }

    pub async fn lag(&self, member: &str) -> Option<i64> {
        self.attribute(member, "lag").await?.parse().ok()
    }

    /// Waits until a standby may lead.
    pub async fn fits(&self, member: &str) {
        wait_for(&format!("{member} as a standby that may lead"), LONG, async || {
            let state = self.attribute(member, "state").await;
            let lag = self.lag(member).await;
            let confirms = self.attribute(member, "async").await;
            let is_sync = !self.is_sync || confirms.as_deref() == Some("0");
            let fits =
                state.as_deref() == Some("streaming") && lag.is_some_and(|lag| lag < 1 << 20) && is_sync;
            if fits { Ok(()) } else { Err(format!("{state:?}, lag {lag:?}, async {confirms:?}")) }
        })
        .await;
    }

    /// Waits for more acknowledged rows.
    pub async fn writes_on(&self) {
        let before = self.writers.acks().len();
        wait_for("acknowledged rows", LONG, async || {
            let now = self.writers.acks().len();
            if now > before + 20 { Ok(()) } else { Err(format!("{} more", now - before)) }
        })
        .await;
    }

    pub async fn successor_of(&mut self, old: &Leader) -> Leader {
        let leader = self.cluster.successor_of(old, LONG).await;
        assert_ne!(leader.member, old.member);
        leader
    }

    /// Waits until there is no leader, and the elector `member` has this reason.
    pub async fn no_leader(&mut self, member: &str, reason: &str) {
        wait_for(&format!("no leader: {reason}"), LONG, async || {
            let status = self.cluster.worker(member).status().await.ok_or("no answer")?;
            let note = status["jobs"][JOB]["note"].as_str().unwrap_or_default().to_owned();
            if note.contains(reason) && self.cluster.leader().await.is_err() { Ok(()) } else { Err(note) }
        })
        .await;
    }

    /// Acknowledged rows that this primary does not have.
    pub fn lost(&self, leader: &Leader) -> Vec<Ack> {
        let acks = self.writers.acks();
        let rows = self.sql(&leader.member, "SELECT node, number FROM rows").unwrap();
        let rows: HashSet<(i32, i64)> = rows
            .lines()
            .map(|row| {
                let (node, number) = row.split_once('|').unwrap();
                (node.parse().unwrap(), number.parse().unwrap())
            })
            .collect();
        acks.into_iter().filter(|ack| !rows.contains(&ack.id)).collect()
    }

    /// The sentence of the present leadership.
    pub async fn sentence(&self) -> String {
        let history = self.cluster.operator().json(&["history"]).await;
        history["leaderships"].as_array().unwrap().last().unwrap()["sentence"].as_str().unwrap().to_owned()
    }

    /// Ends all, and looks back at all that was written.
    pub async fn end(self) {
        let acks = self.writers.acks();
        assert_one_at_a_time(&acks);
        println!("{} rows; between two primaries none for {:.1?}", acks.len(), pauses(&acks));
        self.writers.no_more();
        self.cluster.end().await;
        self.writers.end();
        // PostgreSQL's processes overwrite their environment, so the mark does not find all of them.
        let at = |entry: fs::DirEntry| fs::read_link(entry.path().join("cwd")).ok();
        let here = fs::read_dir("/proc").unwrap().flatten().filter_map(at);
        let left: Vec<_> = here.filter(|cwd| cwd.starts_with(self.dir.path())).collect();
        assert!(left.is_empty(), "servers are left: {left:?}");
    }
}

fn own(path: &Path, user: Option<&User>) {
    if let Some(user) = user {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let done = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stdout) + &text(&done.stderr)) }
}
