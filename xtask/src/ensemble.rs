//! `cargo xtask ensemble`: servers that outlive the command.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use zk_testkit::{Ensemble, Error};

use crate::cargo;
use crate::cli::{EnsembleDir, EnsembleDown, EnsembleUp};
use crate::packages;

const START_WITHIN: Duration = Duration::from_secs(60);

impl EnsembleDir {
    fn path(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| cargo::root().join(".ensemble"))
    }
}

pub(crate) async fn up(up: &EnsembleUp) -> anyhow::Result<ExitCode> {
    packages::ensure_zookeeper().await?;
    let dir = up.at.path();
    let started = Ensemble::builder()
        .servers(up.servers)
        .with(|settings| {
            settings.base_port = Some(up.base_port);
            settings.dir = Some(dir.clone());
            settings.detached = true;
            settings.start_within = START_WITHIN;
        })
        .start()
        .await;
    match started {
        Ok(ensemble) => {
            println!("{}", ensemble.connect_string());
            eprintln!(
                "{} servers run; logs and data in {}; `cargo xtask ensemble down` ends them",
                up.servers,
                dir.display()
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(Error::AlreadyRunning { .. }) => already_up(up, &dir).await,
        Err(error) => Err(error.into()),
    }
}

/// A second call has no effect, except that it restarts servers that have died.
async fn already_up(up: &EnsembleUp, dir: &std::path::Path) -> anyhow::Result<ExitCode> {
    let ensemble = Ensemble::attach(dir)?;
    let there = ensemble.servers().len();
    let base = ensemble.addresses()[0].port();
    ensure!(
        there == up.servers && base == up.base_port,
        "an ensemble of {there} servers from port {base} is running in {}: end it with \
         `cargo xtask ensemble down`, or give another --dir",
        dir.display()
    );
    for server in ensemble.servers() {
        if server.pid().is_none() {
            ensemble.start_server(server.index()).await?;
        }
    }
    ensemble.wait_serving(START_WITHIN).await?;
    println!("{}", ensemble.connect_string());
    eprintln!("the ensemble runs already; logs and data in {}", dir.display());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(down: &EnsembleDown) -> anyhow::Result<ExitCode> {
    let dir = down.at.path();
    match Ensemble::attach(&dir) {
        Ok(ensemble) => {
            let running = ensemble.servers().iter().filter(|server| server.pid().is_some()).count();
            ensemble.end();
            eprintln!("{running} servers ended");
        }
        Err(Error::NoEnsemble { .. }) => {
            eprintln!("no ensemble in {}", dir.display());
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error.into()),
    }
    if down.wipe {
        // `attach` has checked that this is an ensemble's directory.
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        eprintln!("{} removed", dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn status(at: &EnsembleDir) -> anyhow::Result<ExitCode> {
    let ensemble = Ensemble::attach(at.path())?;
    let mut all_serve = true;
    for server in ensemble.servers() {
        let mode = ensemble.mode(server.index()).await;
        all_serve &= mode.is_some();
        let state = match (server.pid(), mode) {
            (None, _) => "stopped".to_owned(),
            (Some(pid), Some(mode)) => format!("{}, pid {pid}", format!("{mode:?}").to_lowercase()),
            (Some(pid), None) => format!("runs but does not serve, pid {pid}"),
        };
        println!("server {}  {}  {state}", server.index(), server.address());
    }
    if all_serve {
        println!("{}", ensemble.connect_string());
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}
