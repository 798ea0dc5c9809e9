//! The daemon: one session, one election per job, and the job wherever this node leads.
//!
//! ```text
//!   check ─▶ lock ─▶ listen ─▶ connect ─▶ join ──────▶ ... ──────▶ leave ─▶ close
//!     78      78       78        69        78 (same id twice)          signal: 0
//! ```
//!
//! SIGHUP has a worker that has joined read its configuration again.
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
mod overlays;
mod parts;
mod reload;
mod session;
mod settings;
mod site_check;
mod task;
mod watch;
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
    config::{Config, HostPort, JobConfig, Sources},
    connect::connect,
    error::Error,
    logging,
    signals::{self, Reloads, Signals},
};
use join::join;
use memory::Memory;
use parts::Parts;
use reload::Present;

/// How long to wait for ZooKeeper to close the session.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long to wait for processes of an earlier worker to end.
const SWEEP_WITHIN: Duration = Duration::from_secs(2);

/// How long the last lines may take: those of jobs at the end, those of the log after a panic.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal ends it. `sources` are those of the configuration, which are read again on request.
///
/// # Errors
/// Why it could not start, or could not go on.
pub(crate) async fn run(config: Config, sources: Sources) -> Result<(), Error> {
    let jobs = config.jobs.iter().map(JobConfig::name);
    logging::identify(config.node.id.as_str(), config.node.site.as_str(), jobs);
    let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signals: {e}")))?;
    let mut reloads = Reloads::new().map_err(|e| Error::Internal(format!("no signals: {e}")))?;
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
        Ok(running) => running.until_ended(&sources, &mut signals, &mut reloads, &mut manager).await,
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
    let joined = async {
        let (present, config, overlays) = Present::first(config, &session).await?;
        worker.set_config(config.clone());
        let config = (&config, &overlays);
        let parts = join(config, &session, &worker, &lock, &memory, address.port(), &mut background).await?;
        Ok((present, parts))
    };
    match joined.await {
        Ok((present, parts)) => Ok(Running { worker, session, present, parts, background, _lock: lock }),
        Err(error) => {
            let _ = session.close(FAREWELL).await;
            Err(error)
        }
    }
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
    present: Present,
    parts: Parts,
    background: JoinSet<()>,
    /// Held until no process of this worker is left.
    _lock: StateLock,
}

impl Running {
    async fn until_ended(
        mut self,
        sources: &Sources,
        signals: &mut Signals,
        reloads: &mut Reloads,
        manager: &mut ServiceManager,
    ) -> Result<(), Error> {
        let mut ends = JoinSet::new();
        for job in self.worker.jobs() {
            let election = job.election.clone();
            ends.spawn(async move { election.ended().await });
        }
        let result = loop {
            break tokio::select! {
            () = reloads.next() => {
                self.reload(sources, manager).await;
                continue;
            }
            () = self.present.overlays.settled() => {
                self.present.overlay_changed(&self.worker, &mut self.parts).await;
                continue;
            }
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
        };
        tokio::select! {
            () = self.leave(signals) => {}
            never = manager.keep(Phase::Stopping(&self.worker)) => match never {},
        }
        let outcome = self.session.close(FAREWELL).await;
        tracing::info!(session = ?outcome, "the worker has stopped");
        drop(self.parts);
        self.background.shutdown().await;
        job::flush_output(LAST_LINES);
        result
    }

    /// Reads the configuration again.
    async fn reload(&mut self, sources: &Sources, manager: &mut ServiceManager) {
        manager.reloading();
        tokio::select! {
            () = self.present.reload(sources, &self.worker, &mut self.parts) => {}
            never = manager.keep(Phase::Running(&self.worker)) => match never {},
        }
        manager.reloaded();
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
