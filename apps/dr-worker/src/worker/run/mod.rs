//! The daemon: one session, one election per job, and the job wherever this node leads.
//!
//! ```text
//!   check ─▶ lock ─▶ listen ─▶ connect ─▶ join ──────▶ ... ──────▶ leave ─▶ close
//!     78      75       75        69        75 (same id twice)          signal: 0
//! ```
//!
//! What another process has (the lock, the port, the id, the recipe in use) it may release: 75, and the service manager starts the
//! worker again. `lock` also refuses to run jobs that this node has led without ZooKeeper ([`alone`]).
//!
//! SIGHUP has a worker that has joined read its configuration again.
//!
//! Before `join` the worker has no znode and has started no program of a job, so an earlier failure leaves nothing
//! behind. After `join` the daemon survives a loss of ZooKeeper.

mod after;
pub(crate) mod alone;
mod fencing;
mod fitness;
mod following;
mod handler;
mod handover;
mod http_port;
mod join;
mod leader_hosts;
mod leader_news;
mod led;
mod left;
mod measure;
mod measured;
mod memory;
mod orders;
mod other_servers;
mod overlays;
mod parts;
mod reload;
mod roster;
mod session;
mod settings;
mod site_check;
mod standby_requests;
mod standby_state;
mod task;
mod upgrade;
mod watchdog;
mod work;

use std::{os::fd::OwnedFd, pin::pin, process, sync::Arc, time::Duration};

use election_core::errors::Ended;
use job_guard::{LeftRun, StateLock, lock_path};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use zk_session::{BootTime, Session, SessionPin};

use super::{
    certificates, descriptors,
    emergency::Records,
    evacuation, http,
    job::HungDisk,
    metrics, notify, plans,
    state::{Job, Worker},
    systemd::{Phase, ServiceManager},
    trace::{self, Traces},
    upgrade::{
        at_signals,
        transfer::{Handed, Resumed},
    },
};
use crate::{
    checked,
    config::{Config, JobConfig, Sources},
    connect::connect,
    error::Error,
    logging,
    signals::{self, Reloads, Signals},
};
use handover::Handovers;
use http_port::{HttpPort, first_listener, port, until_listening};
use join::{Again, Here, join};
pub(crate) use left::sweep_all;
use memory::Memory;
use parts::Parts;
use reload::{PresentConfig, Reading};
use upgrade::Upgrades;

/// How long to wait for ZooKeeper to close the session.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long the last lines may take: those of jobs at the end, those of the log after a panic.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How a worker begins.
pub(crate) enum Beginning {
    /// It starts.
    Start,
    /// It starts beside something that ends with this program: it can't be upgraded in place.
    #[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "only `dr-worker dev` begins so"))]
    StartFixed,
    /// It continues after an upgrade in place.
    Resume(Box<Resumed>),
}

/// Runs the daemon until a signal ends it. `sources` are those of the configuration, which are read again on request.
///
/// # Errors
/// Why it could not start, or could not go on.
pub(crate) async fn run(config: Config, sources: Sources, mut beginning: Beginning) -> Result<(), Error> {
    let jobs = config.jobs.iter().map(JobConfig::name);
    logging::identify(config.node.id.as_str(), config.node.site.as_str(), jobs);
    let no_signals = |e| Error::Internal(format!("no signals: {e}"));
    signals::keep_unobeyed().map_err(no_signals)?;
    let mut signals = Signals::new().map_err(no_signals)?;
    let mut reloads = Reloads::new().map_err(no_signals)?;
    job_guard::adopt_orphans().map_err(|e| Error::Internal(format!("can't become a subreaper: {e}")))?;
    tokio::spawn(async {
        if let Err(error) = signals::log_ignored().await {
            tracing::warn!(%error, "can't log ignored signals");
        }
    });
    tokio::spawn(at_signals());
    tokio::spawn(signals::on(signals::REOPEN, || {
        job_guard::reopen_rotating_files();
        tracing::info!("opening the log files again");
    }));
    let mut manager = ServiceManager::of_this_process();
    // A worker that continues hands over its jobs at a signal as always, which it can once it has joined.
    let is_resumed = matches!(beginning, Beginning::Resume(_));
    let mut inherited = Vec::new();
    if let Beginning::Resume(resumed) = &mut beginning {
        signals::unblock_all();
        inherited = std::mem::take(&mut resumed.signals);
    }
    signals::raise_again(inherited);
    let started = tokio::select! {
        // The start is dropped, and leaves nothing behind.
        name = signals.next(), if !is_resumed => {
            tracing::info!(signal = name, "stopped during the start");
            if config.jobs.iter().any(|job| job.spec.standby.is_some()) {
                left::end_all(&config).await;
            }
            return Ok(());
        }
        started = start(&config, beginning) => started,
        never = manager.keep(Phase::Starting) => match never {},
    };
    // From here on a file is read as it is.
    checked::forget();
    let result = match started {
        Ok(running) => running.until_ended(&sources, &mut signals, &mut reloads, &mut manager).await,
        Err(error) => Err(error),
    };
    result.map_err(|error| error.located(|key, message| config.problem(key, message)))
}

/// All phases up to `join`.
async fn start(config: &Config, beginning: Beginning) -> Result<Running, Error> {
    if let Some(exposed) = config.zookeeper.plain_password() {
        tracing::warn!("{exposed}");
    }
    let (Opened { lock, left, memory, listener, connections, upgrades }, resumed) =
        open(config, beginning).await?;
    let mut background = JoinSet::new();
    let (replace, mut next) = mpsc::channel(1);
    let http = HttpPort { port: port(config, listener.as_ref())?, upgrades: Arc::clone(&upgrades), replace };
    let worker = watch_node(config, &lock, &mut background)?;
    let metrics = metrics::install(&config.node, &config.jobs)?;
    let (traces, completed) = Traces::new();
    background.spawn(trace::run(Arc::clone(&worker), completed));
    if let Some(reload) = resumed.as_ref().and_then(|(handed, _)| handed.reload.clone()) {
        let [done, _] = metrics::RELOADS;
        ::metrics::counter!("dr_config_reloads_total", "outcome" => done).increment(1);
        worker.reloaded(reload);
    }
    background.spawn({
        let (worker, upgrades, at) = (Arc::clone(&worker), Arc::clone(&upgrades), config.http.listen.clone());
        async move {
            let listener = match listener {
                Some(listener) => listener,
                None => tokio::select! {
                    listener = until_listening(&at) => listener,
                    Some(listener) = next.recv() => listener,
                },
            };
            upgrades.listens(&listener);
            http::serve(listener, next, connections, worker, metrics).await;
        }
    });

    let suspect_after = config.jobs.iter().filter_map(JobConfig::suspect_after).min();
    let ticket = resumed.as_ref().map(|(handed, _)| handed.session.clone());
    let session = connect(&config.zookeeper, suspect_after, ticket).await?;
    let is_resumed = resumed.is_some();
    let joined = async {
        // Before anything else happens on a session that was handed over.
        let again = resumed.map(|(handed, runs)| again(handed, runs, session.pin())).transpose()?;
        let incarnation = match &again {
            // It does not wait for another session, which is not made before the pin is dropped.
            Some(again) => again.pin.incarnation(),
            None => session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?,
        };
        let (present, config, overlays) = PresentConfig::first(config, &session, &incarnation).await?;
        worker.set_config(config.clone());
        let here = Here { lock: &lock, left, memory: &memory, http, traces, incarnation, again };
        let parts = join((&config, &overlays), &session, &worker, here, &mut background).await?;
        Ok((present, parts))
    };
    match joined.await {
        Ok((present, parts)) => {
            Ok(Running { worker, session, present, parts, background, upgrades, _lock: lock })
        }
        Err(error) if is_resumed => abandon(&error),
        Err(error) => {
            let _ = session.close(FAREWELL).await;
            Err(error)
        }
    }
}

/// What a worker has of this node before it connects.
struct Opened {
    lock: StateLock,
    /// The standbys that have outlived the last worker.
    left: Vec<LeftRun>,
    memory: Memory,
    /// `None` as long as another program listens there.
    listener: Option<TcpListener>,
    /// How many HTTP clients there may be.
    connections: usize,
    upgrades: Arc<Upgrades>,
}

/// What the program before this one has handed over, with the descriptors of its running jobs.
type HandedRuns = (Handed, Vec<OwnedFd>);

/// The phases `lock` and `listen`.
async fn open(config: &Config, beginning: Beginning) -> Result<(Opened, Option<HandedRuns>), Error> {
    let is_fixed = matches!(beginning, Beginning::StartFixed);
    if let Beginning::Resume(resumed) = &beginning {
        descriptors::inherit_limit(resumed.handed.open_files);
    }
    descriptors::raise_limit()
        .map_err(|e| Error::Internal(format!("can't raise the limit of open files: {e}")))?;
    let connections = descriptors::clients_beside(&config.jobs)?;
    let (lock, inherited, resumed) = match beginning {
        Beginning::Start | Beginning::StartFixed => (acquire(config).await?, None, None),
        Beginning::Resume(resumed) => {
            let Resumed { handed, descriptors, .. } = *resumed;
            let (state_dir, member) = (&config.node.state_dir, config.node.id.as_str());
            let lock = StateLock::adopt(state_dir, member, descriptors.lock)?;
            let was_at = handed.listen.clone();
            (lock, Some((descriptors.listener, was_at)), Some((handed, descriptors.runs)))
        }
    };
    // The jobs of a worker that continues are no left-overs.
    let (is_gone, left) = match resumed {
        Some(_) => (true, Vec::new()),
        None => left::sweep(config, &lock).await?,
    };
    let memory = Memory::beside(lock.path(), is_gone);
    let listener = first_listener(&config.http.listen, inherited).await?;
    let upgrades = Upgrades::new(&lock, !is_fixed).map(Arc::new);
    let upgrades = upgrades.map_err(|e| Error::Internal(format!("can't prepare for upgrades: {e}")))?;
    Ok((Opened { lock, left, memory, listener, connections, upgrades }, resumed))
}

/// The worker, and the tasks that it has from its start on.
fn watch_node(config: &Config, lock: &StateLock, background: &mut JoinSet<()>) -> Result<Arc<Worker>, Error> {
    let (keeper, certificates) = certificates::load(config)?;
    let worker = Arc::new(Worker::new(config.clone(), certificates, HungDisk::watch(lock)));
    background.spawn(async {
        if let Err(error) = job_guard::tend_orphans().await {
            tracing::error!(%error, "can't reap orphans");
        }
    });
    background.spawn(keeper.keep(worker.config_changes()));
    background.spawn(notify::run(Arc::clone(&worker)));
    background.spawn(plans::run(Arc::clone(&worker)));
    background.spawn(evacuation::run(Arc::clone(&worker)));
    Ok(worker)
}

/// A worker that continues, if its session lives.
fn again(handed: Handed, runs: Vec<OwnedFd>, pin: Option<SessionPin>) -> Result<Again, Error> {
    let session = handed.session.session_id;
    let pin = pin.filter(|pin| pin.incarnation().session_id() == session);
    let pin = pin.ok_or_else(|| Error::Unreachable(format!("the session {session} is over")))?;
    Ok(Again { handed, pin, runs })
}

/// Waits for the lock, while the guard of a killed worker stops its job. Refuses to run a job that this node has led without
/// ZooKeeper.
async fn acquire(config: &Config) -> Result<StateLock, Error> {
    let emergencies = Records::beside(&lock_path(&config.node.state_dir, config.node.id.as_str()));
    // `emergency-lead` has the lock as long as it runs.
    emergencies.refuse(&config.jobs)?;
    let patience = config.jobs.iter().map(|job| job.spec.longest_stop()).max().unwrap_or_default();
    let by = BootTime::now() + patience + Duration::from_millis(500);
    let lock = StateLock::acquire_by(&config.node.state_dir, config.node.id.as_str(), by).await?;
    emergencies.refuse(&config.jobs)?;
    Ok(lock)
}

/// Ends this process without closing the session: its jobs run, and only their guards know when none is left. They end
/// them, and the last one closes the session.
fn abandon(error: &Error) -> ! {
    tracing::error!(%error, "the worker can't continue after an upgrade; its guards end the jobs");
    logging::flush(LAST_LINES);
    process::exit(error.exit_code() as i32)
}

/// A worker that has joined its elections.
struct Running {
    worker: Arc<Worker>,
    session: Session,
    present: PresentConfig,
    parts: Parts,
    background: JoinSet<()>,
    upgrades: Arc<Upgrades>,
    /// Held until no process of this worker is left.
    _lock: StateLock,
}

/// A signal that ends the worker.
fn ending(signal: &'static str) -> Result<(), Error> {
    tracing::info!(signal, "leaving all elections");
    Ok(())
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
        for (at, job) in self.worker.jobs().iter().enumerate() {
            let election = job.election.clone();
            ends.spawn(async move { (at, election.ended().await) });
        }
        let mut handovers =
            Handovers::new(Arc::clone(&self.upgrades), Arc::clone(&self.worker), self.session.clone());
        let mut reading = Reading::default();
        let result = loop {
            break tokio::select! {
            // The next program starts with the newest overlays, and restarts no job for them.
            is_over = handovers.next(),
                if !reading.is_under_way() && (handovers.is_under_way() || self.present.overlays.are_settled()) =>
            {
                if is_over {
                    manager.reloaded();
                }
                continue;
            }
            // One that comes meanwhile is the next.
            () = reloads.next(), if !reading.is_under_way() && !handovers.is_under_way() => {
                manager.reloading();
                reading.begin(sources);
                continue;
            }
            read = reading.done() => tokio::select! {
                wanted = self.present.reload(read, &self.worker, &mut self.parts) => {
                    if !wanted.is_ok_and(|wanted| handovers.want(wanted)) {
                        manager.reloaded();
                    }
                    continue;
                }
                name = signals.next() => ending(name),
                never = manager.keep(Phase::Running(&self.worker)) => match never {},
            },
            () = self.parts.other_jobs_changed() => {
                self.parts.reconsider(&self.worker.config());
                continue;
            }
            is_due = self.present.overlays.next() => {
                if !is_due {
                    continue;
                }
                tokio::select! {
                    // A disk or a name service may hold it up.
                    () = self.present.overlay_changed(&self.worker, &mut self.parts) => continue,
                    name = signals.next() => ending(name),
                    never = manager.keep(Phase::Running(&self.worker)) => match never {},
                }
            }
            name = signals.next() => ending(name),
            Some(ended) = ends.join_next() => {
                let (at, ended) = ended.unwrap_or((usize::MAX, Ended::EnginePanicked));
                match ended {
                    Ended::Left if self.worker.jobs().get(at).is_some_and(Job::is_removed) => {
                        self.parts.left(at);
                        continue;
                    }
                    Ended::Left | Ended::HandedOver => Ok(()),
                    duplicate @ Ended::DuplicateMember { .. } => {
                        Err(Error::NotNow(format!("node.id: {duplicate}")))
                    }
                    other @ Ended::OtherRecipe { .. } => Err(Error::NotNow(other.to_string())),
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
        self.end_standbys(signals).await;
        if result.is_ok() {
            roster::sign_off(&self.session, &self.worker, |_| true).await;
        }
        let outcome = self.session.close(FAREWELL).await;
        tracing::info!(session = %outcome, "the worker has stopped");
        drop(self.parts);
        self.background.shutdown().await;
        job_guard::flush_output(LAST_LINES);
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
                left = leaving.join_next() => match left.map(|left| left.unwrap_or(Ended::EnginePanicked)) {
                    None => return,
                    Some(panicked @ (Ended::HandlerPanicked { .. } | Ended::EnginePanicked)) => Self::abort(&panicked),
                    Some(_) => {}
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

    /// Stops the standbys. A signal kills them.
    async fn end_standbys(&self, signals: &mut Signals) {
        let ending = self.worker.jobs().iter().filter_map(|job| {
            let standby = job.slot.standby()?;
            Some(standby.end(job.slot.hastened()))
        });
        let mut ending = pin!(futures_util::future::join_all(ending));
        loop {
            tokio::select! {
                _ = &mut ending => return,
                _ = signals.next() => self.worker.jobs().iter().for_each(|job| job.slot.hasten()),
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
