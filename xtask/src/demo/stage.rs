//! All processes of the demo, and their end.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;
use zk_testkit::{PortReservation, Servers};

use super::ledger::Ledger;
use super::operator::{self, Operator};
use super::servers;
use super::sweep;
use super::worker::{JOB, Leader, Worker};
use crate::cargo;

const SITES: [&str; 2] = ["east", "west"];
const WORKERS_PER_SITE: u32 = 2;
/// For workers after SIGTERM. A job has two seconds of it.
const END_WITHIN: Duration = Duration::from_secs(10);
/// For guards and jobs after the end of their workers.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Builds the programs of the demo, dr-worker and ledger.
pub(crate) async fn programs() -> anyhow::Result<[PathBuf; 2]> {
    let mut build = cargo::cargo(["build", "--package", "dr-worker", "--package", "ledger", "--bins"]);
    let built = cargo::build(&mut build).await?;
    let path = |name: &str| {
        let program = built.iter().find(|program| program.target.name == name);
        let path = program.map(|program| program.executable.clone());
        path.with_context(|| format!("cargo did not build {name}"))
    };
    Ok([path("dr-worker")?, path("ledger")?])
}

/// The servers, the workers, their files.
///
/// Dropping it ends every process and removes every file. [`strike`](Self::strike) does the same and reports processes that
/// were left.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) workers: Vec<Worker>,
    pub(crate) ledger: Ledger,
    pub(crate) operator: Operator,
    servers: Servers,
    dir: TempDir,
    _ports: PortReservation,
}

impl Stage {
    /// Takes the servers; starts no worker.
    pub(crate) fn set([dr_worker, ledger]: [PathBuf; 2], servers: Servers) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("dr-demo-").tempdir().context("no temporary directory")?;
        let count = SITES.len() * WORKERS_PER_SITE as usize;
        let ports = PortReservation::take(count)?;
        let mut free = ports.ports().iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
        let mut workers = Vec::new();
        for site in SITES {
            for number in 1..=WORKERS_PER_SITE {
                let http = free.next().context("too few ports")?;
                workers.push(Worker::new(site, number, http, dir.path()));
            }
        }
        let orders = cargo::root().join("examples/ledger/data/orders.csv");
        Ok(Self {
            ledger: Ledger::new(&ledger, &orders, dir.path()),
            operator: Operator {
                program: dr_worker,
                options: options(&[config("base.toml")], &shared_settings(&servers)),
            },
            workers,
            servers,
            dir,
            _ports: ports,
        })
    }

    /// Starts the stopped workers of a site.
    pub(crate) fn start_site(&mut self, site: &str) -> anyhow::Result<()> {
        let shared = shared_settings(&self.servers);
        let job = self.ledger.job();
        let dir = self.dir.path().to_owned();
        for worker in self.workers.iter_mut().filter(|worker| worker.site == site && worker.pid().is_none()) {
            let files = [config("base.toml"), config(&format!("{site}.toml"))];
            let mut settings = shared.clone();
            settings.extend([
                format!("node.id={}", worker.id),
                "node.address=127.0.0.1".to_owned(),
                format!("node.state_dir={}", worker.state_dir().display()),
                format!("http.listen={}", worker.http),
                format!("job.{JOB}.command={job}"),
                format!("job.{JOB}.working_dir={}", dir.display()),
            ]);
            let mut command = Command::new(&self.operator.program);
            operator::without_settings(&mut command);
            command.args(options(&files, &settings)).arg("run");
            worker.start(&mut command, &dir)?;
        }
        Ok(())
    }

    /// Ends all workers of a site by SIGKILL, as a power failure; returns their names.
    pub(crate) fn kill_site(&mut self, site: &str) -> anyhow::Result<Vec<String>> {
        let mut killed = Vec::new();
        for worker in self.workers.iter_mut().filter(|worker| worker.site == site && worker.pid().is_some()) {
            worker.kill()?;
            killed.push(worker.id.clone());
        }
        Ok(killed)
    }

    pub(crate) fn worker(&mut self, id: &str) -> anyhow::Result<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.id == id).with_context(|| format!("no worker {id}"))
    }

    /// # Errors
    /// A worker has ended by itself.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        self.workers.iter_mut().try_for_each(Worker::check_alive)
    }

    /// The leader by the workers' own status. If two report leadership, as they may between two requests: the newer one.
    pub(crate) async fn leader(&mut self) -> anyhow::Result<Option<Leader>> {
        self.check_alive()?;
        let mut leading: Vec<Leader> = Vec::new();
        for worker in self.workers.iter().filter(|worker| worker.pid().is_some()) {
            leading.extend(worker.leadership().await?);
        }
        Ok(leading.into_iter().max_by_key(|leader| leader.token))
    }

    /// The ends of the workers' logs.
    pub(crate) fn logs(&self) -> String {
        let tails: Vec<String> = self.workers.iter().map(Worker::log_tail).collect();
        tails.join("\n")
    }

    /// For `--keep`.
    pub(crate) fn what_to_try(&self) -> anyhow::Result<String> {
        // A short name for the program with its options.
        let script = self.dir.path().join("dr-worker");
        let words: Vec<String> = std::iter::once(self.operator.program.display().to_string())
            .chain(self.operator.options.iter().cloned())
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect();
        std::fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))
            .with_context(|| format!("cannot write {}", script.display()))?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        let script = script.display();

        let mut text = format!(
            "The demo keeps running until Ctrl-C.\n\n  ZooKeeper  {}\n",
            self.servers.connect_string()
        );
        for worker in &self.workers {
            text.push_str(&format!(
                "  {:<10} http://{}/  log {}\n",
                worker.id,
                worker.http,
                worker.log().display()
            ));
        }
        text.push_str(&format!(
            "\nTry:\n  {script} list\n  {script} history\n  {script} switchover --to-site east --wait\n  \
             curl -i http://{}/leader\n",
            self.workers[0].http
        ));
        Ok(text)
    }

    /// Ends all processes.
    ///
    /// # Errors
    /// A process was left; it is ended too.
    pub(crate) fn strike(mut self) -> anyhow::Result<()> {
        self.end_processes()
    }

    fn end_processes(&mut self) -> anyhow::Result<()> {
        for worker in &self.workers {
            worker.ask_to_end();
        }
        let deadline = Instant::now() + END_WITHIN;
        for worker in &mut self.workers {
            worker.end_by(deadline);
        }
        sweep::await_none(self.dir.path(), GONE_WITHIN)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After `strike` no process is left.
        if let Err(error) = self.end_processes() {
            eprintln!("error: {error:#}");
        }
    }
}

fn config(file: &str) -> PathBuf {
    cargo::root().join("config").join(file)
}

/// The differences from the files in `config/`, which are for real machines.
fn shared_settings(servers: &Servers) -> Vec<String> {
    vec![
        format!("zookeeper.connect={}", servers.connect_string()),
        format!("zookeeper.tick_time={}ms", servers::TICK.as_millis()),
        // Shorter than in production, for short waits.
        "zookeeper.session_timeout=6s".to_owned(),
        // Three levels: another worker of the site, the other site, an operator.
        "policy.on_leader_failure=same-site-first".to_owned(),
        // The demo has as many takeovers in a minute as a deployment in a year.
        "policy.max_takeovers.count=50".to_owned(),
    ]
}

fn options(files: &[PathBuf], settings: &[String]) -> Vec<String> {
    let files = files.iter().flat_map(|file| ["--config".to_owned(), file.display().to_string()]);
    let settings = settings.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]);
    files.chain(settings).collect()
}
