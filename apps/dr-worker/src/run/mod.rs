//! The daemon: one session, one election per job, and the job wherever this node leads.
//!
//! ```text
//!   check ─▶ lock ─▶ listen ─▶ connect ─▶ join ──────▶ ... ──────▶ leave ─▶ close
//!     78      78       78        69        78 (same id twice)          signal: 0
//! ```
//!
//! Up to `join` nothing is to be seen of this worker in ZooKeeper, and no program of a
//! job has been started: what goes wrong before leaves nothing behind. After it, no loss of
//! ZooKeeper ends the daemon.

mod balance;
mod fitness;
mod handler;
mod led;
mod measure;
mod measured;
mod memory;
mod probes;
pub(crate) mod signals;
mod site_check;
mod slot;
mod vacancy;
mod watch;
mod worker;

use std::{process, sync::Arc, time::Duration};

use election_core::{
    Election, ElectionConfig, Ended, Leftovers, Paths, Profile, QueueFormat, Recipe, operator::Observer,
    record::Health,
};
use strategies::spec::Needs;
use tokio::{net::TcpListener, task::JoinSet};
use zk_session::Session;

use crate::{
    config::{self, Config, HostPort, JobConfig},
    connect::connect,
    descriptors,
    error::Error,
    guard::BootTime,
    http::{self, metrics},
    job::{self, Guards, StateLock},
    logging,
    view::access_problem,
};

pub(crate) use balance::UNDER as BALANCING;
use handler::JobHandler;
use led::OwnJob;
use measured::Measured;
use memory::Memory;
use probes::Prober;
use signals::Signals;
pub(crate) use signals::ignore_signals;
use slot::JobSlot;
use vacancy::Vacancy;
pub use worker::{Job, Worker};

/// How long to wait for ZooKeeper to hear that this worker has ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long what is left of an earlier worker may take to end.
const SWEEP_WITHIN: Duration = Duration::from_secs(2);

/// How long a job may take to end once the worker can't trust itself any more.
const LAST_ORDERS: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// Why it could not start, or could not go on.
pub async fn run(config: Config) -> Result<(), Error> {
    let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signals: {e}")))?;
    job::adopt_orphans().map_err(|e| Error::Internal(format!("can't become a subreaper: {e}")))?;
    tokio::spawn(async {
        if let Err(error) = signals::log_ignored().await {
            tracing::warn!(%error, "signals that are ignored are not logged");
        }
    });
    let result = tokio::select! {
        // What is not done yet is dropped, and nothing of it stays.
        name = signals.next() => {
            tracing::info!(signal = name, "ended before it had started");
            Ok(())
        }
        started = start(&config) => match started {
            Ok(running) => running.until_ended(&mut signals).await,
            Err(error) => Err(error),
        },
    };
    result.map_err(|error| error.located(|key, message| config.problem(key, message)))
}

async fn start(config: &Config) -> Result<Running, Error> {
    descriptors::raise_limit()
        .map_err(|e| Error::Internal(format!("can't raise the limit of open files: {e}")))?;
    let connections = descriptors::clients_beside(&config.jobs)?;
    // The guard of a worker that was killed needs this long to end its job.
    let patience = config.jobs.iter().map(|job| job.spec.stop_budget()).max().unwrap_or_default();
    let by = BootTime::now() + patience + Duration::from_millis(500);
    let lock = StateLock::acquire_by(&config.node.state_dir, config.node.id.as_str(), by).await?;
    let swept = job::sweep(&lock, BootTime::now() + SWEEP_WITHIN).await;
    if let Err(left) = &swept {
        tracing::error!(
            "an earlier worker and its guard were killed together, and it is not proved that its job is gone: {left}; \
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
            tracing::error!(%error, "orphans are not reaped");
        }
    });
    background.spawn(http::serve(listener, connections, Arc::clone(&worker), metrics));
    tracing::info!(http = %address, "listening");

    let session = connect(&config.zookeeper).await?;
    let joined = join(config, &session, &worker, &lock, &memory, address.port(), &mut background).await;
    if let Err(error) = joined {
        let _ = session.close(FAREWELL).await;
        return Err(error);
    }
    Ok(Running { worker, session, background, _lock: lock })
}

async fn join(
    config: &Config,
    session: &Session,
    worker: &Arc<Worker>,
    lock: &StateLock,
    memory: &Memory,
    http_port: u16,
    background: &mut JoinSet<()>,
) -> Result<(), Error> {
    let incarnation = session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?;
    let granted = incarnation.granted_timeout();
    if granted != config.zookeeper.session_timeout {
        tracing::warn!(?granted, asked = ?config.zookeeper.session_timeout, "the servers grant another session timeout");
    }
    config.check_timing(incarnation.lease_timing())?;
    let mut guards = Guards::new().lock(lock.clone());
    if let Some(cgroup) = job::delegated_cgroup() {
        tracing::info!(cgroup = %cgroup.display(), "jobs get cgroups of their own");
        guards = guards.cgroup(cgroup);
    }
    let has_cgroups = guards.have_cgroups();
    let (mut jobs, mut own) = (Vec::new(), Vec::new());
    for job in &config.jobs {
        if job.spec.no_new_privileges == Some(false) && !has_cgroups && !job::may_kill_any_user() {
            let job = job.name();
            tracing::warn!(
                job,
                "no_new_privileges is off, this worker may not kill processes of other users, and it has no \
                cgroup to divide (systemd's Delegate=yes): what the job starts as another user may outlive the lease"
            );
        }
        let recipe = match job.recipe {
            config::Recipe::Elector => Recipe::Elector(job.policy.strategy()),
            config::Recipe::Queue => Recipe::Queue(QueueFormat::Native),
            config::Recipe::Single => Recipe::Single,
        };
        let policy = job.policy.fingerprint(job.fenced);
        // Not elected before its first check has passed.
        let health = job.spec.fitness.as_ref().map_or(Health::Unchecked, |_| Health::Unknown);
        let me = Profile { policy, health, ..profile(config, http_port) };
        let mut election = ElectionConfig::new(&config.zookeeper.root, job.name(), me, recipe)
            .map_err(|message| Error::Setting { key: "job", message })?;
        election.policy = job.policy.engine(job.spec.stop_budget(), job.fenced);
        let observer = Observer::new(incarnation.clone());
        check_recipe(&observer, &election.paths, job).await?;
        if let Some(problem) = access_problem(&incarnation, &config.zookeeper, &election.paths).await? {
            tracing::warn!(job = job.name(), "{problem}");
        }
        election.leftovers = leftovers(&observer, &election.paths, config, job.recipe, memory).await;
        let decides = job.recipe == config::Recipe::Elector;
        let may_suspect = decides && election.policy.may_suspect();
        let suspect_after = may_suspect.then_some(election.policy.suspect_after);
        if election.policy.fast_failover && !may_suspect {
            let job = job.name();
            let why = if decides { "is not fenced" } else { "has no elector" };
            tracing::warn!(job, "fast_failover does nothing for a job that {why}");
        }
        let paths = election.paths.clone();
        let slot = Arc::new(JobSlot::new(&config.node, job.spec.clone(), guards.clone()));
        let handler = JobHandler::new(Arc::clone(&slot));
        let path = election.paths.node(&config.node.id);
        let election = Election::join(session.clone(), election, handler);
        background.spawn(memory.clone().keep(path, election.status()));
        let prober = Prober {
            job: job.name().to_owned(),
            me: config.node.id.clone(),
            session: session.clone(),
            paths,
            election: election.clone(),
            probes: config.probes.clone(),
            suspect_after,
            needs: if decides { job.policy.needs() } else { Needs::default() },
        };
        if prober.needs_peers() {
            probes::check_own_address(&config.http.listen, &config.node.address);
        }
        background.spawn(prober.run());
        let measured = Arc::new(Measured::of(election.clone()));
        if let Some(measure) = job.spec.measure.clone() {
            let publishes = Arc::clone(&measured);
            background.spawn(measure::keep(Arc::clone(&slot), election.clone(), publishes, measure));
        }
        if let Some(check) = job.spec.fitness.clone() {
            background.spawn(fitness::keep(Arc::clone(&slot), election.clone(), check));
        }
        own.push(OwnJob::new(job, election.status(), measured));
        let vacancy = Arc::new(Vacancy::new());
        background.spawn(Arc::clone(&vacancy).keep(election.clone(), session.clone()));
        jobs.push(Job { election, slot, vacancy });
    }
    led::keep(own, background);
    background.spawn(watch::timing(session.clone(), config.clone()));
    if let Some(check) = config.node.site_check.clone() {
        let elections = jobs.iter().map(|job| job.election.clone()).collect();
        background.spawn(site_check::keep(config.node.clone(), check, elections, guards));
    }
    let balancer = balance::join(config, session, profile(config, http_port))?;
    if let Some(balancer) = &balancer {
        background.spawn(balance::watch(balancer.clone()));
    }
    worker.joined(session.clone(), jobs, balancer);
    Ok(())
}

/// How this worker presents itself.
fn profile(config: &Config, http_port: u16) -> Profile {
    let node = &config.node;
    let listen = &config.http.listen;
    let host = if listen.is_wildcard() { node.address.clone() } else { listen.host.clone() };
    Profile {
        address: Some(node.address.clone()),
        http: Some(HostPort { host, port: http_port }.to_string()),
        priority: node.priority,
        attributes: node.attributes.clone(),
        software: concat!("dr-worker ", env!("CARGO_PKG_VERSION")).to_owned(),
        ..Profile::new(node.id.clone(), node.site.clone())
    }
}

/// Whether what stands in ZooKeeper under this member's name may be removed at once.
///
/// The lock and the records of the guards prove that nothing of a former worker of this state directory lives; and
/// only if what is there was made by that one, as the directory remembers, does the proof go for it.
/// A worker elsewhere with the same id by mistake is left in peace.
async fn leftovers(
    observer: &Observer,
    paths: &Paths,
    config: &Config,
    recipe: config::Recipe,
    memory: &Memory,
) -> Leftovers {
    let (id, path) = (&config.node.id, paths.node(&config.node.id));
    let own = match recipe {
        config::Recipe::Elector => {
            let node = observer.session().get(&path).await;
            matches!(node, Ok(Some(node)) if memory.made(&path, &node.data))
        }
        config::Recipe::Queue | config::Recipe::Single => {
            let snapshot = observer.snapshot(paths).await.unwrap_or_default();
            let mut members = snapshot.members.iter();
            members.any(|member| member.member == *id && memory.holds(&path, &member.ballot))
        }
    };
    if own { Leftovers::Remove } else { Leftovers::Wait }
}

/// Two recipes in one election would be two leaders.
async fn check_recipe(observer: &Observer, paths: &Paths, job: &JobConfig) -> Result<(), Error> {
    let Some(standing) = observer.standing(paths).await? else { return Ok(()) };
    if standing.as_str() == job.recipe.as_str() {
        return Ok(());
    }
    let message = format!(
        "job.{}.recipe is {:?}, and others stand in {} by the recipe {:?}: end them first, for all must use the same",
        job.name(),
        job.recipe.as_str(),
        paths.base(),
        standing.as_str()
    );
    Err(Error::Setting { key: "job", message })
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

/// A worker that takes part in its elections.
struct Running {
    worker: Arc<Worker>,
    session: Session,
    background: JoinSet<()>,
    /// Held until nothing of this worker is left.
    _lock: StateLock,
}

impl Running {
    async fn until_ended(mut self, signals: &mut Signals) -> Result<(), Error> {
        let mut ends = JoinSet::new();
        for job in self.worker.jobs() {
            let election = job.election.clone();
            ends.spawn(async move { election.ended().await });
        }
        let result = tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "leaving");
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
                    panicked => self.abort(&panicked).await,
                }
            }
        };
        self.leave(signals).await;
        let outcome = self.session.close(FAREWELL).await;
        tracing::info!(session = ?outcome, "ended");
        self.background.shutdown().await;
        result
    }

    /// Leaves all elections: each leadership is handed over, its job stopped in between.
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
                        tracing::error!("an election ended in a panic; ZooKeeper forgets it with the session");
                    }
                    Some(Ok(_)) => {}
                },
                name = signals.next() => {
                    tracing::warn!(signal = name, "asked again: the jobs are killed, their hooks left out");
                    for job in self.worker.jobs() {
                        job.slot.hasten();
                        job.election.leave_at_once();
                    }
                }
            }
        }
    }

    /// Nobody knows any more what this process does: it ends its jobs, and then itself
    /// without releasing anything. The session expires, and the next leader waits for that.
    async fn abort(&self, why: &Ended) -> ! {
        tracing::error!(%why, "ending this process on purpose");
        let by = BootTime::now() + LAST_ORDERS;
        for job in self.worker.jobs() {
            // The guards end what is not gone by then.
            let _ = tokio::time::timeout(LAST_ORDERS, job.slot.end(by)).await;
        }
        logging::flush(LAST_ORDERS);
        process::abort()
    }
}
