//! Joins one election per job, and starts the tasks that measure and watch beside each.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc, time::Duration};

use election_admin::{AdminError, Observer, ReadError};
use election_core::{
    Election, ElectionConfig, Paths,
    config::Leftovers,
    internals::record::{AppliedOverlay, Control, StoppedStandby},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use job_guard::{Guards, LeftRun, RunState, StateLock, capabilities::may_kill_any_user, delegated_cgroup};
use tokio::{task::JoinSet, time::timeout};
use zk_session::{BootTime, Incarnation, Session, SessionPin};

use super::{
    after::{Order, Source},
    fencing::Fencing,
    handler::JobHandler,
    http_port::HttpPort,
    leader_hosts,
    leader_news::LeaderNews,
    led,
    memory::Memory,
    parts::{JobParts, Parts},
    roster, session,
    settings::{election, needs, paths, profile},
    standby_requests,
    upgrade::{Expected, conclude},
    watchdog::NodeWatchdog,
};
use crate::{
    config::{self, Config, JobConfig, job_key},
    error::Error,
    logging,
    view::access_problem,
    worker::{
        balance,
        drill::Drills,
        emergency::{self, Newest, NewestFile},
        job,
        probes::{self, PeerAnswers, Prober},
        state::{Job, JobSlot, Vacancy, Worker},
        trace::Traces,
        upgrade::{
            report::Continued,
            transfer::{Handed, HandedJob},
        },
    },
    znodes::overlays,
};

/// How many elections are looked at, at a time, before the worker joins them.
const LOOKED_AT_ONCE: usize = 64;

/// How long the next program of a process waits for the orders about a standby that its job did not have before.
const ORDERS_WITHIN: Duration = Duration::from_secs(1);

/// What a worker has on this node when it joins.
pub(super) struct Here<'a> {
    pub(super) lock: &'a StateLock,
    pub(super) left: Vec<LeftRun>,
    pub(super) memory: &'a Memory,
    pub(super) http: HttpPort,
    pub(super) traces: Traces,
    pub(super) incarnation: Incarnation,
    /// If it continues.
    pub(super) again: Option<Again>,
}

/// The phases: check the timing, prepare the guards, look at all elections, join each, and start what is beside them.
pub(super) async fn join(
    (config, overlays): (&Config, &BTreeMap<String, AppliedOverlay>),
    session: &Session,
    worker: &Arc<Worker>,
    here: Here<'_>,
    background: &mut JoinSet<()>,
) -> Result<Parts, Error> {
    let Here { lock, left, memory, http, traces, incarnation, again } = here;
    let is_again = again.is_some();
    let mut again = Returning::new(again, left);
    check_timing(config, &incarnation, is_again)?;
    let guards = guards(config, session, worker, lock, background);
    let device = NodeWatchdog::find(&config.watchdog, incarnation.lease_timing(), memory.is_gone);
    let granted = incarnation.granted_timeout();
    // All of them before the first election begins: elections use the same session.
    let known = is_again.then(|| again.known());
    let looked = look_at_all(&Observer::new(incarnation), config, lock, memory, known.as_ref()).await?;

    let jobs = Vec::with_capacity(config.jobs.len());
    let parts = Parts::new(http, guards, Arc::clone(worker.others()));
    let mut joining =
        Joining { config, session, worker, memory, device, granted, is_again, traces, jobs, parts };
    for (job, looked) in config.jobs.iter().zip(looked) {
        joining.join(job, overlays.get(job.name()), looked, &mut again, background)?;
    }
    let Joining { device, jobs, mut parts, .. } = joining;

    parts.led = led::keep(parts.own_jobs(config));
    parts.follow_others(config);
    background.spawn(device.await_it(jobs.iter().map(|job| job.election.clone()).collect()));
    avoid_leader_hosts(config, session, &parts, background);
    background.spawn(session::timing(session.clone(), Arc::clone(worker)));
    if config.node.site_check.is_some() {
        parts.check_site(config, is_again);
    }
    let balancer = join_balancer(config, session, &mut parts, again.handed.as_ref(), background)?;
    worker.joined(session.clone(), jobs, balancer);
    for job in worker.jobs() {
        let drills = Drills::of(worker, session, job)?;
        background.spawn(drills.follow());
    }
    again.conclude(lock, granted, background);
    Ok(parts)
}

fn check_timing(config: &Config, incarnation: &Incarnation, is_again: bool) -> Result<(), Error> {
    let granted = incarnation.granted_timeout();
    if granted != config.zookeeper.session_timeout {
        tracing::warn!(?granted, asked = ?config.zookeeper.session_timeout, "the servers granted another session timeout than asked for");
    }
    match config.check_timing(incarnation.lease_timing()) {
        // Lease and guards go by what was granted, so a job only has less time to stop.
        Err(problems) if is_again => tracing::error!("{problems}"),
        checked => checked?,
    }
    Ok(())
}

fn guards(
    config: &Config,
    session: &Session,
    worker: &Worker,
    lock: &StateLock,
    background: &mut JoinSet<()>,
) -> Guards {
    let known = session::known(session, worker.config_changes(), background);
    let mut guards = job::new_guards().lock(lock.clone()).last_will(known);
    match delegated_cgroup() {
        Ok(cgroup) => {
            tracing::info!(cgroup = %cgroup.display(), "each job gets its own cgroup");
            guards = guards.cgroup(cgroup);
        }
        Err(why) => tracing::info!("no job gets a cgroup of its own: {why}"),
    }
    for job in &config.jobs {
        if job.spec.no_new_privileges == Some(false) && !guards.have_cgroups() && !may_kill_any_user() {
            tracing::warn!(
                job = job.name(),
                "no_new_privileges is off, this worker may not kill processes of other users, and it has no \
                cgroup to divide (systemd's Delegate=yes): what the job starts as another user may outlive the lease"
            );
        }
    }
    guards
}

/// What all jobs are joined with, and what has come of it.
struct Joining<'a> {
    config: &'a Config,
    session: &'a Session,
    worker: &'a Worker,
    memory: &'a Memory,
    device: NodeWatchdog,
    /// The session timeout.
    granted: Duration,
    is_again: bool,
    traces: Traces,
    jobs: Vec<Job>,
    parts: Parts,
}

impl Joining<'_> {
    /// Joins the election of a job, and starts what is beside it.
    fn join(
        &mut self,
        job: &JobConfig,
        overlay: Option<&AppliedOverlay>,
        looked: SeenElection,
        again: &mut Returning,
        background: &mut JoinSet<()>,
    ) -> Result<(), Error> {
        let &mut Self { config, session, memory, .. } = self;
        let SeenElection { paths, leftovers, newest, floor, stopped_standby } = looked;
        let decides = job.recipe == config::Recipe::Elector;
        let path = paths.node(&config.node.id);
        let (guards, watchdog) = (self.parts.guards.clone(), self.device.watchdog.clone());
        let slot = Arc::new(JobSlot::new(&config.node, job, guards, watchdog, self.device.reserve));
        slot.set_overlay(overlay.cloned());
        let me = config.node.id.clone();
        let fencing = job.spec.fence.clone().map(|fence| Fencing {
            session: session.clone(),
            paths: paths.clone(),
            me: me.clone(),
            site: config.node.site.clone(),
            address: config.node.address.clone(),
            has_elector: decides,
            fence,
        });
        // The leadership of a worker that continues has not ended.
        let ended = memory.proved(&path).filter(|_| !self.is_again);
        if let (Some(fencing), Some(ballot)) = (fencing.clone(), ended) {
            let job = job.name().to_owned();
            background.spawn(async move { fencing.returned(&job, &ballot).await });
        }
        let source = || Source { session: session.clone(), paths: paths.clone(), me: me.clone() };
        let of_standby = decides.then(source).filter(|_| slot.standby().is_some());
        let others = self.worker.others();
        let order = decides.then(|| Order::new(Arc::clone(others), self.worker.root().to_owned(), source()));
        let answers = Arc::new(PeerAnswers::default());
        let disk = self.worker.disk().clone();
        let news = Arc::new(LeaderNews::new(Arc::clone(&slot), job.recipe == config::Recipe::Queue));
        let is_told = slot.standby().is_some() || job.spec.hooks.on_leader_changed.is_some();
        if news.is_queue && is_told {
            background.spawn(Arc::clone(&news).follow_queue(session.clone(), paths.clone()));
        }
        let handler = JobHandler::new(
            news,
            fencing,
            Arc::clone(&answers),
            self.granted,
            order,
            disk,
            self.traces.clone(),
        );
        let settings = election(config, job, &paths, &slot, self.parts.http.port).leftovers(leftovers);
        let settings = settings.above(floor.term, floor.token);
        let election = again.join(session, settings, &slot, handler, decides)?;

        if let Some(source) = of_standby {
            background.spawn(standby_requests::follow(source, Arc::clone(&slot), election.clone()));
        }
        if decides {
            background.spawn(roster::keep(session.clone(), paths.clone(), election.clone()));
        }
        background.spawn(memory.clone().keep(path, election.status().into()));
        background.spawn(emergency::keep(newest, job.name().to_owned(), election.status().into()));
        let suspect_after = job.suspect_after();
        if job.policy.election.fast_failover && suspect_after.is_none() {
            let why = if decides { "is not fenced" } else { "has no elector" };
            tracing::warn!(job = job.name(), "fast_failover does nothing for a job that {why}");
        }
        let prober = Prober {
            job: job.name().to_owned(),
            me,
            session: session.clone(),
            paths,
            election: election.clone(),
            probes: config.probes.clone(),
            suspect_after,
            certificates: self.worker.certificates().clone(),
            needs: needs(job),
            answers,
        };
        if prober.needs_peers() {
            probes::check_own_address(&config.http.listen, &config.node.address);
        }
        if let Some((order, standby)) = stopped_standby.filter(|_| decides).zip(slot.standby()) {
            standby.obey(Some(order.stopped));
        }
        self.parts.jobs.push(JobParts::start(Arc::clone(&slot), prober, self.is_again));
        let vacancy = Arc::new(Vacancy::new(job.recipe == config::Recipe::Queue));
        background.spawn(Arc::clone(&vacancy).keep(election.clone(), session.clone()));
        self.jobs.push(Job::new(election, slot, job.policy.election.slots, vacancy));
        Ok(())
    }
}

/// If a job suspects its leader, the session avoids the servers on the hosts of leaders.
fn avoid_leader_hosts(config: &Config, session: &Session, parts: &Parts, background: &mut JoinSet<()>) {
    let suspecting = parts.jobs.iter().filter(|job| job.prober.suspect_after.is_some());
    let suspecting: Vec<_> = suspecting.map(|job| job.prober.election.clone()).collect();
    if !suspecting.is_empty() {
        background.spawn(leader_hosts::avoid(config.node.id.clone(), suspecting, session.clone()));
    }
}

/// `before`: the program before this one in this process.
fn join_balancer(
    config: &Config,
    session: &Session,
    parts: &mut Parts,
    before: Option<&Handed>,
    background: &mut JoinSet<()>,
) -> Result<Option<Election>, Error> {
    let balances = config.jobs.iter().any(|job| job.policy.balance);
    if !balances && !before.is_some_and(|before| before.balances) {
        return Ok(None);
    }
    let leftovers = if before.is_some() { Leftovers::Remove } else { Leftovers::Wait };
    let me = profile(config, parts.http.port);
    let (balancer, balanced) = balance::join(config, session, me, leftovers)?;
    if !balances {
        // The others would wait behind what the program before this one has left there. It is gone once this one is in the queue.
        background.spawn(async move {
            let mut status = balancer.status();
            while status.now().ballot.is_none() && status.changed().await.is_some() {}
            balancer.leave().await;
        });
        return Ok(None);
    }
    background.spawn(balance::watch(balancer.clone()));
    parts.balanced = Some(balanced);
    Ok(Some(balancer))
}

/// A worker that continues after an upgrade in place.
pub(super) struct Again {
    pub(super) handed: Handed,
    /// No other session is made while the jobs of this one run.
    pub(super) pin: SessionPin,
    /// The descriptors of the programs of its running jobs.
    pub(super) runs: Vec<OwnedFd>,
}

/// The elections in which this worker continues; none if it starts.
struct Returning {
    pin: Option<SessionPin>,
    handed: Option<Handed>,
    elections: BTreeMap<String, (HandedJob, [Vec<OwnedFd>; 2])>,
    expected: Vec<Expected>,
    /// The standbys that have outlived the last worker, if this one starts.
    left: Vec<LeftRun>,
}

impl Returning {
    fn new(again: Option<Again>, left: Vec<LeftRun>) -> Self {
        let (mut elections, expected) = (BTreeMap::new(), Vec::new());
        let Some(Again { mut handed, pin, runs }) = again else {
            return Self { pin: None, handed: None, elections, expected, left };
        };
        let mut runs = runs.into_iter();
        for job in std::mem::take(&mut handed.jobs) {
            let of_runs =
                job.runs().map(|run| runs.by_ref().take(run.map_or(0, RunState::descriptors)).collect());
            elections.insert(job.name.clone(), (job, of_runs));
        }
        Self { pin: Some(pin), handed: Some(handed), elections, expected, left }
    }

    /// The jobs, and whether each has a standby.
    fn known(&self) -> BTreeMap<String, bool> {
        self.elections.iter().map(|(name, (job, _))| (name.clone(), job.standby.is_some())).collect()
    }

    /// Continues in an election, or joins it.
    fn join(
        &mut self,
        session: &Session,
        config: ElectionConfig,
        slot: &Arc<JobSlot>,
        handler: JobHandler,
        has_elector: bool,
    ) -> Result<Election, Error> {
        let (Some(pin), Some((job, [of_job, of_standby]))) = (&self.pin, self.elections.remove(slot.name()))
        else {
            self.continue_standby(slot)?;
            return Ok(Election::join(session.clone(), config, handler));
        };
        let HandedJob { name, election: from, slot: handed, standby } = job;
        let refused = |error| Error::Internal(format!("can't continue job {}: {error}", slot.name()));
        let lease = from.lease().map(BootTime::from_duration);
        let leadership = from.leadership();
        if let Some(handed) = handed {
            let work_until = lease.unwrap_or_else(BootTime::now);
            slot.adopt(handed, of_job, work_until).map_err(refused)?;
        }
        if let Some((own, handed)) = slot.standby().zip(standby) {
            own.adopt(handed, of_standby).map_err(refused)?;
        }
        let election = Election::resume(session.clone(), pin.clone(), config, from, handler)
            .map_err(|error| Error::Internal(format!("can't continue job {name}: {error}")))?;
        if let Some((term, fencing_token)) = leadership {
            logging::set_term(&name, Some(term));
            let continued = Continued { job: name, term, fencing_token };
            self.expected.push(Expected { election: election.clone(), continued, lease, has_elector });
        }
        Ok(election)
    }

    /// Continues the standby that has outlived the last worker, if there is one.
    ///
    /// # Errors
    /// If that is not possible: another one must not be started beside it.
    fn continue_standby(&mut self, slot: &JobSlot) -> Result<(), Error> {
        let name = job::standby_name(slot.name());
        let at = self.left.iter().position(|run| run.job() == name);
        let Some((at, standby)) = at.zip(slot.standby()) else { return Ok(()) };
        let left = self.left.swap_remove(at);
        let refused =
            |error| Error::Internal(format!("can't continue the standby of {}: {error}", slot.name()));
        standby.continue_with(left).map_err(refused)
    }

    /// Reports the outcome, if this worker continues.
    fn conclude(self, lock: &StateLock, within: Duration, background: &mut JoinSet<()>) {
        if let Some(handed) = self.handed {
            conclude(&handed, self.expected, lock, within, background);
        }
    }
}

/// What is known of an election before this worker joins it.
struct SeenElection {
    paths: Paths,
    leftovers: Leftovers,
    newest: NewestFile,
    /// What the last worker of this state directory has seen.
    floor: Newest,
    /// The order that the standby of this member is stopped.
    stopped_standby: Option<StoppedStandby>,
}

/// Looks at all elections, some at a time.
async fn look_at_all(
    observer: &Observer,
    config: &Config,
    lock: &StateLock,
    memory: &Memory,
    again: Option<&BTreeMap<String, bool>>,
) -> Result<Vec<SeenElection>, Error> {
    let looks = config.jobs.iter().map(|job| {
        let newest = NewestFile::beside(lock.path(), job.name());
        look(observer, config, job, memory, again, newest)
    });
    stream::iter(looks).buffered(LOOKED_AT_ONCE).try_collect().await
}

async fn look(
    observer: &Observer,
    config: &Config,
    job: &JobConfig,
    memory: &Memory,
    again: Option<&BTreeMap<String, bool>>,
    newest: NewestFile,
) -> Result<SeenElection, Error> {
    let paths = paths(config, job.name())?;
    // The program before this one has looked, and a lease does not wait.
    if let Some(again) = again {
        let (mut floor, mut stopped_standby) = (Newest::default(), None);
        let had_standby = again.get(job.name());
        if had_standby.is_none() {
            floor = newest.floor(job.name()).await;
        }
        if job.spec.standby.is_some() && had_standby != Some(&true) {
            // If it was stopped, it is stopped again as soon as the orders are read.
            match timeout(ORDERS_WITHIN, stopped(observer, &paths, config)).await {
                Ok(Ok(order)) => stopped_standby = order,
                Ok(Err(error)) => {
                    tracing::warn!(job = job.name(), %error, "can't read the standing orders: the standby is started");
                }
                Err(_) => {
                    tracing::warn!(
                        job = job.name(),
                        "no answer about the standing orders yet: the standby is started"
                    );
                }
            }
        }
        return Ok(SeenElection { paths, leftovers: Leftovers::Wait, newest, floor, stopped_standby });
    }
    let floor = newest.floor(job.name()).await;
    check_election(observer, &paths, config, job).await?;
    let leftovers = leftovers(observer, &paths, config, job.recipe, memory).await;
    let stopped_standby = stopped(observer, &paths, config).await?;
    Ok(SeenElection { paths, leftovers, newest, floor, stopped_standby })
}

/// The order that the standby of this member is stopped.
async fn stopped(
    observer: &Observer,
    paths: &Paths,
    config: &Config,
) -> Result<Option<StoppedStandby>, Error> {
    let control = match observer.record::<Control>(&paths.control()).await {
        // What can't be used is reported by who follows it.
        Err(ReadError::Record(_)) => None,
        control => control.map_err(AdminError::from)?,
    };
    Ok(control.and_then(|control| control.stopped_standby(&config.node.id).cloned()))
}

/// Checks whether this worker can join the election of a new job, for the next program of this process.
///
/// # Errors
/// Why it can't.
pub(super) async fn can_join(
    incarnation: &Incarnation,
    config: &Config,
    job: &JobConfig,
) -> Result<(), Error> {
    let paths = paths(config, job.name())?;
    check_election(&Observer::new(incarnation.clone()), &paths, config, job).await?;
    match overlays::read(incarnation, &paths).await {
        // It is refused as any other.
        Ok(_) | Err(AdminError::Record(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether znodes of an earlier process of this member may be removed at once.
///
/// The lock and the guards' records prove that no process of an earlier worker of this state directory is alive. The
/// proof covers only znodes with a ballot that the directory remembers. Another worker that has the same id by mistake
/// keeps its znodes.
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

/// All members must use one recipe: two recipes could have two leaders. Warns of znodes that others may change.
async fn check_election(
    observer: &Observer,
    paths: &Paths,
    config: &Config,
    job: &JobConfig,
) -> Result<(), Error> {
    let standing = observer.standing(paths).await?;
    if let Some(standing) = standing.filter(|standing| standing.as_str() != job.recipe.as_str()) {
        let message = format!(
            "{}.recipe is {:?}, but members in {} use the recipe {:?}: stop them first, all members must use the same recipe",
            job_key(job.name()),
            job.recipe.as_str(),
            paths.base(),
            standing.as_str()
        );
        return Err(Error::NotNow(message));
    }
    if let Some(problem) = access_problem(observer.session(), &config.zookeeper, paths).await? {
        tracing::warn!(job = job.name(), "{problem}");
    }
    Ok(())
}
