//! The daemon: one session, one election per job, and the job wherever this node leads.
//!
//! ```text
//!   check ─▶ lock ─▶ listen ─▶ connect ─▶ join ──────▶ ... ──────▶ leave ─▶ close
//!     78      78       78        69        78 (same id twice)          signal: 0
//! ```
//!
//! Before `join` the worker has no znode and has started no program of a job, so an earlier failure leaves nothing
//! behind. After `join` the daemon survives a loss of ZooKeeper.

mod fitness;
mod handler;
mod join;
mod leader_hosts;
mod led;
mod measure;
mod measured;
mod memory;
mod orders;
mod session;
mod site_check;
mod watch;
mod watchdog;
mod work;

use std::{process, sync::Arc, time::Duration};

use election_core::Ended;
use tokio::{net::TcpListener, task::JoinSet};
use zk_session::{BootTime, Session};

use super::{
    descriptors, http,
    job::{self, StateLock},
    metrics,
    state::Worker,
    systemd::{Phase, ServiceManager},
};
use crate::{
    config::{Config, HostPort, JobConfig},
    connect::connect,
    error::Error,
    logging,
    signals::{self, Signals},
};
use join::join;
use memory::Memory;

/// How long to wait for ZooKeeper to close the session.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long to wait for processes of an earlier worker to end.
const SWEEP_WITHIN: Duration = Duration::from_secs(2);

/// How long the last lines may take: those of jobs at the end, those of the log after a panic.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// Why it could not start, or could not go on.
pub(crate) async fn run(config: Config) -> Result<(), Error> {
    let jobs = config.jobs.iter().map(JobConfig::name);
    logging::identify(config.node.id.as_str(), config.node.site.as_str(), jobs);
    let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signals: {e}")))?;
    job::adopt_orphans().map_err(|e| Error::Internal(format!("can't become a subreaper: {e}")))?;
    tokio::spawn(async {
        if let Err(error) = signals::log_ignored().await {
            tracing::warn!(%error, "can't log ignored signals");
        }
    });
    let mut manager = ServiceManager::of_this_process();
    let started = tokio::select! {
        // The start is dropped, and leaves nothing behind.
        name = signals.next() => {
            tracing::info!(signal = name, "stopped during the start");
            return Ok(());
        }
        started = start(&config) => started,
        never = manager.keep(Phase::Starting) => match never {},
    };
    let result = match started {
        Ok(running) => running.until_ended(&mut signals, &mut manager).await,
        Err(error) => Err(error),
    };
    result.map_err(|error| error.located(|key, message| config.problem(key, message)))
}

async fn start(config: &Config) -> Result<Running, Error> {
    descriptors::raise_limit()
        .map_err(|e| Error::Internal(format!("can't raise the limit of open files: {e}")))?;
    let connections = descriptors::clients_beside(&config.jobs)?;
    // The guard of a killed worker needs this long to stop its job.
    let patience = config.jobs.iter().map(|job| job.spec.stop_budget()).max().unwrap_or_default();
    let by = BootTime::now() + patience + Duration::from_millis(500);
    let lock = StateLock::acquire_by(&config.node.state_dir, config.node.id.as_str(), by).await?;
    let swept = job::sweep(&lock, BootTime::now() + SWEEP_WITHIN).await;
    if let Err(left) = &swept {
        tracing::error!(
            "an earlier worker and its guard were killed together, and its job may still run: {left}; \
            this worker waits for the session of the earlier one to end"
        );
    }
    let memory = Memory::beside(lock.path(), swept.is_ok());
    let listener = listen(&config.http.listen).await?;
    let address = listener.local_addr().map_err(|e| cannot_listen(&config.http.listen, &e))?;
    let metrics = metrics::install(&config.node, &config.jobs)?;
    let worker = Arc::new(Worker::new(config.clone()));
    let mut background = JoinSet::new();
    background.spawn(async {
        if let Err(error) = job::tend_orphans().await {
            tracing::error!(%error, "can't reap orphans");
        }
    });
    background.spawn(http::serve(listener, connections, Arc::clone(&worker), metrics));
    tracing::info!(http = %address, "listening");

    let suspect_after = config.jobs.iter().filter_map(JobConfig::suspect_after).min();
    let session = connect(&config.zookeeper, suspect_after).await?;
    let joined = join(config, &session, &worker, &lock, &memory, address.port(), &mut background).await;
    if let Err(error) = joined {
        let _ = session.close(FAREWELL).await;
        return Err(error);
    }
    Ok(Running { worker, session, background, _lock: lock })
}

async fn listen(at: &HostPort) -> Result<TcpListener, Error> {
    TcpListener::bind((at.host.as_str(), at.port)).await.map_err(|e| cannot_listen(at, &e))
}

fn cannot_listen(at: &HostPort, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => "; another program listens there, choose another port",
        _ => "",
    };
    Error::Setting { key: "http.listen", message: format!("can't listen at {at}: {error}{hint}") }
}

/// A worker that has joined its elections.
struct Running {
    worker: Arc<Worker>,
    session: Session,
    background: JoinSet<()>,
    /// Held until no process of this worker is left.
    _lock: StateLock,
}

impl Running {
    async fn until_ended(mut self, signals: &mut Signals, manager: &mut ServiceManager) -> Result<(), Error> {
        let mut ends = JoinSet::new();
        for job in self.worker.jobs() {
            let election = job.election.clone();
            ends.spawn(async move { election.ended().await });
        }
        let result = tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "leaving all elections");
                Ok(())
            }
            Some(ended) = ends.join_next() => {
                match ended.unwrap_or(Ended::EnginePanicked) {
                    Ended::Left => Ok(()),
                    duplicate @ Ended::DuplicateMember { .. } => {
                        Err(Error::Setting { key: "node.id", message: duplicate.to_string() })
                    }
                    no_lease @ Ended::NoLease(_) => {
                        Err(Error::Setting { key: "zookeeper.connect", message: no_lease.to_string() })
                    }
                    Ended::SessionClosed => Err(Error::Internal(Ended::SessionClosed.to_string())),
                    panicked => Self::abort(&panicked),
                }
            }
            never = manager.keep(Phase::Running(&self.worker)) => match never {},
        };
        tokio::select! {
            () = self.leave(signals) => {}
            never = manager.keep(Phase::Stopping(&self.worker)) => match never {},
        }
        let outcome = self.session.close(FAREWELL).await;
        tracing::info!(session = ?outcome, "the worker has stopped");
        self.background.shutdown().await;
        job::flush_output(LAST_LINES);
        result
    }

    /// Leaves all elections: hands over each leadership, and stops its job.
    async fn leave(&self, signals: &mut Signals) {
        let mut leaving = JoinSet::new();
        for job in self.worker.jobs() {
            let election = job.election.clone();
            leaving.spawn(async move { election.leave().await });
        }
        if let Some(balancer) = self.worker.balancer().cloned() {
            leaving.spawn(async move { balancer.leave().await });
        }
        loop {
            tokio::select! {
                left = leaving.join_next() => match left {
                    None => return,
                    Some(Ok(Ended::HandlerPanicked { .. } | Ended::EnginePanicked) | Err(_)) => {
                        tracing::error!("an election ended in a panic; its znodes go with the session");
                    }
                    Some(Ok(_)) => {}
                },
                name = signals.next() => {
                    tracing::warn!(signal = name, "second signal: killing the jobs, skipping their hooks");
                    for job in self.worker.jobs() {
                        job.slot.hasten();
                        job.election.leave_at_once();
                    }
                }
            }
        }
    }

    /// The state of this process is unknown after a panic, so it ends without releasing anything, as if it were killed. The
    /// guards end the jobs, and the last one has the session closed.
    fn abort(why: &Ended) -> ! {
        tracing::error!(%why, "aborting this process");
        logging::flush(LAST_LINES);
        process::abort()
    }
}
