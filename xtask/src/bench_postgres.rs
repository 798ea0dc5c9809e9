//! `cargo xtask bench postgres`: Patroni and dr-worker, each with PostgreSQL on two hosts and the same servers of ZooKeeper.
//!
//! `benches/postgres/bench.py` has the rounds. Here is what it needs: the servers, the hosts, Patroni, the program.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use zk_testkit::{Ensemble, Network};

use crate::cargo::{self, cargo};
use crate::packages;

const PYTHON: &str = "/usr/bin/python3";

/// What is installed from PyPI: the newest versions.
const PACKAGES: [&str; 2] = ["patroni[zookeeper]", "psycopg[binary]"];

pub(crate) async fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let dir = tempfile::Builder::new().prefix("bench-postgres-").tempdir()?;
    // PostgreSQL's user runs Patroni.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let venv = dir.path().join("venv");
    if let Some(missing) = missing(&venv).await? {
        eprintln!("SKIPPED: the benchmark postgres: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    packages::ensure_zookeeper().await?;
    let mut words = args.to_vec();
    if !words.iter().any(|word| word.starts_with("--worker")) {
        let mut build = cargo(["build", "--release", "--package", "dr-worker", "--bins"]);
        ensure!(cargo::run(&mut build).await?.success(), "cannot build dr-worker");
        let program = cargo::target_directory()?.join("release/dr-worker");
        words.extend(["--worker".to_owned(), program.display().to_string()]);
    }
    let limit = Duration::from_secs(120);
    let servers = Ensemble::builder().servers(3).in_namespaces(true);
    let servers = servers.session_timeouts(Duration::from_secs(1), limit).start().await?;
    let network = servers.network().context("the servers have a network")?;
    let hosts = [network.host()?, network.host()?];
    for host in &hosts {
        words.extend(["--host".to_owned(), format!("{}={}", host.namespace(), host.ip())]);
    }
    words.extend(["--zookeeper".to_owned(), servers.connect_string()]);
    words.extend(["--dir".to_owned(), dir.path().display().to_string()]);
    let script = cargo::root().join("benches/postgres/bench.py");
    let status = cargo::run(Command::new(venv.join("bin/python3")).arg(script).args(words)).await?;
    ensure!(status.success(), "the benchmark postgres: {status}; its logs are in {}", dir.keep().display());
    Ok(ExitCode::SUCCESS)
}

/// What this machine lacks. Patroni is in the environment otherwise.
async fn missing(venv: &Path) -> anyhow::Result<Option<String>> {
    let has_rewind = |path: std::fs::DirEntry| path.path().join("bin/pg_rewind").is_file();
    if !std::fs::read_dir("/usr/lib/postgresql").is_ok_and(|all| all.flatten().any(has_rewind)) {
        return Ok(Some("there is no PostgreSQL; install postgresql".to_owned()));
    }
    if let Err(error) = Network::new() {
        return Ok(Some(error.to_string()));
    }
    if !Path::new(PYTHON).exists() {
        return Ok(Some(format!("there is no {PYTHON}; install python3 and python3-venv")));
    }
    if !cargo::run(Command::new(PYTHON).args(["-m", "venv"]).arg(venv)).await?.success() {
        return Ok(Some(format!("{PYTHON} can't make an environment with pip; install python3-venv")));
    }
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    if !cargo::run(&mut pip).await?.success() {
        return Ok(Some(format!("pip can't install {}", PACKAGES.join(" and "))));
    }
    Ok(None)
}
