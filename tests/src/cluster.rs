//! The workers of two sites, their servers and files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use toml::Table;
use zk_testkit::{Ensemble, PortReservation};

use crate::delays::Delays;
use crate::driver::Driver;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::operator::Operator;
use crate::places::{Places, Seat};
use crate::process::Tree;
use crate::programs;
use crate::setup::{JOB, Setup, merge, put};
use crate::shared_ensemble::ensemble;
use crate::wait::{SOON, Wait, wait_for};
use crate::worker::{Worker, state_dir};
use crate::znodes::Znodes;

/// The limit for workers after SIGTERM, and for their jobs.
const END_WITHIN: Duration = Duration::from_secs(20);

/// Workers, their ensemble and their files.
///
/// Dropping it kills every process by pid, removes every file, and prints the ends of all logs if the test has
/// panicked. [`end`](Self::end) ends everything by SIGTERM and fails the test if a process is left.
#[derive(Debug)]
pub struct Cluster {
    workers: Vec<Worker>,
    operator: Operator,
    journal: Journal,
    ledger: Option<Ledger>,
    znodes: OnceCell<Znodes>,
    root: String,
    ensemble: Arc<Ensemble>,
    tree: Tree,
    dir: TempDir,
    delays: Option<Delays>,
    _ports: Option<PortReservation>,
}

/// The READY leader of a job, by the status of its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its id.
    pub member: String,
    /// Its site.
    pub site: String,
    /// Its term.
    pub term: u64,
    /// Its fencing token.
    pub token: u64,
    /// The main process of the job.
    pub pid: Option<u32>,
    /// The number of its restarts.
    pub restarts: u64,
}

impl Cluster {
    /// The usual four workers, with the ensemble that all tests of this process share.
    ///
    /// # Panics
    /// If anything can't be started. All methods here panic if their condition does not hold.
    pub async fn start(driver: Driver) -> Self {
        Self::of(Setup::new(driver)).await
    }

    /// The cluster of this setup, with the shared ensemble.
    pub async fn of(setup: Setup) -> Self {
        Self::on(ensemble().await, setup).await
    }

    /// The cluster of this setup, with its own ensemble.
    pub async fn on(ensemble: Arc<Ensemble>, setup: Setup) -> Self {
        let dir = tempfile::Builder::new().prefix("dr-e2e-").tempdir().expect("a temporary directory");
        let tree = Tree::new(dir.path());
        let root = unique_root();
        let journal = Journal::new(dir.path().join("journal"));
        let ledger = match setup.ledger {
            Some((orders, pace)) => Some(Ledger::make(dir.path(), orders, pace).await),
            None => None,
        };
        let common = dir.path().join("cluster.toml");
        let given = setup.command.clone().or_else(|| ledger.as_ref().map(Ledger::command));
        let job = given.unwrap_or_else(|| stamping(&journal, &setup.options));
        write_common(&common, &setup, &ensemble, &root, job);

        let Places { seats, ports, delays } = Places::of(&setup, &ensemble).await;
        let mut workers = Vec::new();
        for ((id, site), seat) in setup.workers.iter().zip(seats) {
            let place = dir.path().join(id);
            let own = dir.path().join(format!("{id}.toml"));
            write_own(&own, &setup, id, site, &seat, &place);
            let configs = vec![common.clone(), own];
            workers.push(
                Worker::new(id, site, seat.http, place, setup.program, configs, tree.clone()).on(seat.host),
            );
        }
        let mut cluster = Self {
            workers,
            operator: Operator::new(setup.program, &[common], tree.clone()),
            journal,
            ledger,
            znodes: OnceCell::new(),
            root,
            ensemble,
            tree,
            dir,
            delays,
            _ports: ports,
        };
        if setup.started {
            cluster.workers.iter_mut().for_each(Worker::start);
        }
        cluster
    }

    /// One of the workers.
    pub fn worker(&mut self, id: &str) -> &mut Worker {
        let known = self.workers.iter_mut().find(|worker| worker.id() == id);
        known.unwrap_or_else(|| panic!("there is no worker {id}"))
    }

    /// All workers, running or not.
    pub fn workers(&mut self) -> &mut [Worker] {
        &mut self.workers
    }

    /// The workers of a site.
    pub fn site<'a>(&'a mut self, site: &'a str) -> impl Iterator<Item = &'a mut Worker> + 'a {
        self.workers.iter_mut().filter(move |worker| worker.site() == site)
    }

    /// `dr-worker`'s commands, with the configuration that all workers share.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The program with the whole configuration of a worker.
    pub fn as_worker(&self, id: &str) -> Operator {
        let worker = self.workers.iter().find(|worker| worker.id() == id);
        let worker = worker.unwrap_or_else(|| panic!("there is no worker {id}"));
        Operator::new(self.operator.program, worker.configs(), self.tree.clone())
    }

    /// The journal of the jobs `e2e-job`.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The ledger of a cluster whose job it is.
    pub fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().expect("the setup asked for a ledger")
    }

    /// The delays between the workers, if the setup has them.
    pub fn delays(&self) -> &Delays {
        self.delays.as_ref().expect("the setup asked for delayed hosts")
    }

    /// The servers.
    pub fn ensemble(&self) -> &Ensemble {
        &self.ensemble
    }

    /// The processes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The directory of all files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The znode above all elections of the cluster.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The znodes, by a session of the test.
    pub async fn znodes(&self) -> &Znodes {
        let connect = self.ensemble.connect_string();
        self.znodes.get_or_init(|| Znodes::connect(&connect, &self.root)).await
    }

    /// The status of each worker, by id; those that don't answer are missing.
    ///
    /// # Panics
    /// If a worker that was started has ended by itself.
    pub async fn statuses(&mut self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        for worker in &mut self.workers {
            worker.assert_alive();
            if let Some(status) = worker.status().await {
                all.push((worker.id().to_owned(), status));
            }
        }
        all
    }

    /// The present leader of a job, if there is one. If two report leadership between two requests: the one with the
    /// newer token.
    pub async fn leader_of(&mut self, job: &str) -> Wait<Leader> {
        let statuses = self.statuses().await;
        let leaders = statuses.iter().filter_map(|(id, status)| {
            let said = &status["jobs"][job];
            (said["role"] == "leader").then(|| Leader {
                member: id.clone(),
                site: status["site"].as_str().unwrap_or_default().to_owned(),
                term: said["term"].as_u64().unwrap_or(0),
                token: said["fencing_token"].as_u64().unwrap_or(0),
                pid: said["process"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
                restarts: said["process"]["restarts"].as_u64().unwrap_or(0),
            })
        });
        leaders
            .max_by_key(|leader| leader.token)
            .ok_or_else(|| format!("no member leads {job}: {}", roles(&statuses)))
    }

    /// The present leader of the usual job.
    pub async fn leader(&mut self) -> Wait<Leader> {
        self.leader_of(JOB).await
    }

    /// Waits for a leader of the usual job that satisfies the condition.
    pub async fn leader_is(
        &mut self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&Leader) -> bool,
    ) -> Leader {
        wait_for(&format!("a leader: {what}"), within, async || {
            let leader = self.leader().await?;
            if wanted(&leader) { Ok(leader) } else { Err(format!("{leader:?}")) }
        })
        .await
    }

    /// Waits for the first leader.
    pub async fn first_leader(&mut self) -> Leader {
        self.leader_is("the first one", SOON, |_| true).await
    }

    /// Waits for a leader with a newer token.
    pub async fn successor_of(&mut self, old: &Leader, within: Duration) -> Leader {
        self.leader_is(&format!("a successor of {old:?}"), within, |leader| leader.token > old.token).await
    }

    /// Waits until that many workers are on standby and fit.
    pub async fn standing_by(&mut self, count: usize) {
        let path = format!("/standby?job={JOB}");
        wait_for(&format!("{count} workers on standby"), SOON, async || {
            let mut found = Vec::new();
            for worker in &mut self.workers {
                worker.assert_alive();
                if worker.code(&path).await == Some(200) {
                    found.push(worker.id().to_owned());
                }
            }
            if found.len() == count { Ok(()) } else { Err(format!("there are {found:?}")) }
        })
        .await;
    }

    /// Waits until one worker leads and all other running ones are on standby; returns the leader.
    pub async fn settled(&mut self) -> Leader {
        let leader = self.first_leader().await;
        let running = self.workers.iter().filter(|worker| worker.is_started()).count();
        self.standing_by(running - 1).await;
        leader
    }

    /// Waits until the job of a leadership acts, by its own stamps.
    pub async fn acts(&self, token: u64) -> crate::journal::Acting {
        wait_for(&format!("a job that acts under token {token}"), SOON, async || {
            let actings = self.journal.actings();
            let found = actings.iter().find(|acting| acting.token == token && acting.to > acting.from);
            found.cloned().ok_or_else(|| format!("{actings:?}"))
        })
        .await
    }

    /// Ends the workers by SIGTERM, and asserts that each exits with 0 and that no process is left: no guard, no job,
    /// no child of a job.
    pub async fn end(self) {
        self.ask_all_to_end();
        self.ended().await;
    }

    /// The same, for jobs whose stop hangs: a second SIGTERM skips the hooks.
    pub async fn end_hastily(self) {
        self.ask_all_to_end();
        // Two pending signals are one signal: the first must have been handled.
        wait_for("workers that have heard it", SOON, async || {
            let deaf = self.workers.iter().filter(|worker| worker.is_started() && !worker.is_leaving());
            let deaf: Vec<_> = deaf.map(Worker::id).collect();
            if deaf.is_empty() { Ok(()) } else { Err(format!("not yet: {deaf:?}")) }
        })
        .await;
        self.ask_all_to_end();
        self.ended().await;
    }

    fn ask_all_to_end(&self) {
        self.workers.iter().filter(|worker| worker.is_started()).for_each(Worker::ask_to_end);
    }

    async fn ended(mut self) {
        let deadline = Instant::now() + END_WITHIN;
        for worker in self.workers.iter_mut().filter(|worker| worker.is_started()) {
            let status = worker.ended_by(deadline);
            let status = status.unwrap_or_else(|| panic!("{} did not end at SIGTERM", worker.id()));
            assert!(status.success(), "{} ended with {status} at SIGTERM", worker.id());
        }
        self.nothing_is_left(END_WITHIN);
        for worker in &self.workers {
            let text = worker.log_text();
            let lines: Vec<_> = text.lines().filter(|line| has_debug_text(line)).collect();
            assert!(lines.is_empty(), "{} logs what only its developers can read: {lines:#?}", worker.id());
        }
        if let Some(znodes) = self.znodes.take() {
            znodes.session().close(Duration::from_secs(5)).await;
        }
    }

    /// Asserts that no process of this cluster is left after a moment.
    pub fn nothing_is_left(&self, within: Duration) {
        if let Err(left) = self.tree.await_none(within) {
            panic!("{left}");
        }
    }
}

/// Whether a line for people, which is one without a level for developers, shows a value as Rust writes it down.
fn has_debug_text(line: &str) -> bool {
    let is_for_people = !["DEBUG", "TRACE"].iter().any(|level| line.contains(level));
    let opens = |at: usize| {
        let word = line[..at].trim_end().rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        word.starts_with(char::is_uppercase) && word.chars().any(char::is_lowercase)
    };
    let is_value = |(at, bracket): (usize, char)| match bracket {
        // Leftover { .. }
        '{' => line[..at].ends_with(' ') && opens(at),
        // Some(..), Pid(..)
        '(' => !line[..at].ends_with(' ') && opens(at),
        _ => false,
    };
    is_for_people && line.char_indices().any(is_value)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut text = String::new();
            for worker in &self.workers {
                text.push_str(&worker.log_tail());
            }
            for acting in self.journal.actings() {
                let _ = writeln!(text, "{acting:?}");
            }
            for server in self.ensemble.servers() {
                let tail = server.log_tail();
                // These tests end clients, so their errors are expected.
                let tail: Vec<&str> = tail.lines().filter(|line| !is_noise(line)).collect();
                let tail = tail.join("\n");
                if !tail.is_empty() {
                    let _ =
                        writeln!(text, "---- the end of the log of server {} ----\n{tail}", server.index());
                }
            }
            eprintln!("{text}");
        }
        // The workers first, so that none restarts a killed process.
        self.workers.clear();
        self.tree.kill_all();
    }
}

fn is_noise(line: &str) -> bool {
    let noise = ["\tat ", "EndOfStreamException", "NIOServerCnxn - Unexpected exception"];
    noise.iter().any(|word| line.contains(word))
}

fn roles(statuses: &[(String, Value)]) -> String {
    let mut text = String::new();
    for (id, status) in statuses {
        let _ = write!(text, "{id} ({}):", status["session"].as_str().unwrap_or("?"));
        for (job, said) in status["jobs"].as_object().into_iter().flatten() {
            let _ = write!(text, " {job} {} term {}", said["role"].as_str().unwrap_or("?"), said["term"]);
        }
        text.push_str("; ");
    }
    text
}

/// A root that no other cluster has, in this process or in another, which can have the pid of an earlier one.
fn unique_root() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    format!("/e2e-{}-{}-{}", since.as_micros(), std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn stamping(journal: &Journal, options: &[&str]) -> Vec<String> {
    let program = programs::program("e2e-job").display().to_string();
    let mut command = vec![program, "--journal".to_owned(), journal.path().display().to_string()];
    command.extend(options.iter().map(|&option| option.to_owned()));
    command
}

fn write_common(path: &PathBuf, setup: &Setup, ensemble: &Ensemble, root: &str, job: Vec<String>) {
    let mut table = Table::new();
    put(&mut table, "zookeeper.connect", ensemble.connect_string().into());
    put(&mut table, "zookeeper.root", root.into());
    put(&mut table, &format!("job.{JOB}.command"), job.into());
    merge(&mut table, &setup.common);
    write(path, &table);
}

fn write_own(path: &PathBuf, setup: &Setup, id: &str, site: &str, seat: &Seat, place: &Path) {
    let mut table = Table::new();
    put(&mut table, "node.id", id.into());
    put(&mut table, "node.site", site.into());
    put(&mut table, "node.address", seat.address.to_string().into());
    put(&mut table, "node.state_dir", state_dir(place).display().to_string().into());
    put(&mut table, "http.listen", seat.listen.to_string().into());
    for (_, own) in setup.own.iter().filter(|(known, _)| *known == id) {
        merge(&mut table, own);
    }
    write(path, &table);
}

fn write(path: &PathBuf, table: &Table) {
    let text = toml::to_string(table).expect("tables are TOML");
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::has_debug_text;

    #[test]
    fn values_as_rust_writes_them_are_recognized() {
        for (line, is) in [
            (
                "{\"level\":\"INFO\",\"message\":\"RemoveBallot { leftover: Leftover { name: 1 } }: Missing\"}",
                true,
            ),
            ("{\"level\":\"WARN\",\"message\":\"processes [Pid(3486)] survive\"}", true),
            ("{\"level\":\"WARN\",\"owner\":\"Some(12)\"}", true),
            ("{\"level\":\"DEBUG\",\"owner\":\"Some(12)\"}", false),
            ("{\"level\":\"INFO\",\"message\":\"ZooKeeper (EU) grants 10s; LEADER (term 7)\"}", false),
        ] {
            assert_eq!(has_debug_text(line), is, "{line}");
        }
    }
}
