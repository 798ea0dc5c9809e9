//! Joins one election per job, and starts the tasks that measure and watch beside each.

use std::sync::Arc;

use election_core::{
    Election, ElectionConfig, Leftovers, Paths, Profile, QueueFormat, Recipe, operator::Observer,
    record::Health,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use strategies::spec::Needs;
use tokio::task::JoinSet;
use zk_session::Session;

use super::{
    fitness,
    handler::JobHandler,
    leader_hosts,
    led::{self, OwnJob},
    measure,
    measured::Measured,
    memory::Memory,
    orders::Source,
    session, site_check, watch,
    watchdog::Device,
};
use crate::{
    capabilities::may_kill_any_user,
    config::{self, Config, HostPort, JobConfig},
    connect::Servers,
    error::Error,
    view::access_problem,
    worker::{
        balance,
        job::{self, Guards, StateLock},
        probes::{self, Answers, Prober},
        state::{Job, JobSlot, Vacancy, Worker},
    },
};

/// How many elections are looked at, at a time, before the worker joins them.
const LOOKED_AT_ONCE: usize = 64;

pub(super) async fn join(
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
        tracing::warn!(?granted, asked = ?config.zookeeper.session_timeout, "the servers granted another session timeout than asked for");
    }
    config.check_timing(incarnation.lease_timing())?;
    let known = session::known(session, Servers::of(&config.zookeeper), background);
    let mut guards = Guards::new().lock(lock.clone()).session(known);
    if let Some(cgroup) = job::delegated_cgroup() {
        tracing::info!(cgroup = %cgroup.display(), "each job gets its own cgroup");
        guards = guards.cgroup(cgroup);
    }
    let has_cgroups = guards.have_cgroups();
    let device = Device::find(&config.watchdog, incarnation.lease_timing(), memory.is_alone());
    let (mut jobs, mut own, mut suspecting) = (Vec::new(), Vec::new(), Vec::new());
    // All of them before the first election begins: elections use the same session.
    let observer = Observer::new(incarnation);
    let looks = config.jobs.iter().map(|job| look(&observer, config, job, memory));
    let looked: Vec<_> = stream::iter(looks).buffered(LOOKED_AT_ONCE).try_collect().await?;
    for (job, Looked { paths, leftovers }) in config.jobs.iter().zip(looked) {
        if job.spec.no_new_privileges == Some(false) && !has_cgroups && !may_kill_any_user() {
            let job = job.name();
            tracing::warn!(
                job,
                "no_new_privileges is off, this worker may not kill processes of other users, and it has no \
                cgroup to divide (systemd's Delegate=yes): what the job starts as another user may outlive the lease"
            );
        }
        if job.spec.limits.processes.is_some() && !has_cgroups {
            let job = job.name();
            tracing::warn!(
                job,
                "limits.processes counts all processes of the job's user, and does not apply to root: this worker has no                 cgroup to divide (systemd's Delegate=yes)"
            );
        }
        let recipe = match job.recipe {
            config::Recipe::Elector => Recipe::Elector(job.policy.strategy()),
            config::Recipe::Queue => Recipe::Queue(QueueFormat::Native),
            config::Recipe::Single => Recipe::Single,
        };
        // It is not elected before its first check has passed.
        let health = job.spec.fitness.as_ref().map_or(Health::Unchecked, |_| Health::Unknown);
        let mut me = profile(config, http_port);
        (me.policy, me.health) = (job.policy.fingerprint(job.fenced), health);
        let policy = job.policy.engine(job.spec.stop_budget(), job.fenced);
        let policy = policy.with(|policy| policy.lease_reserve = device.reserve);
        let slots = policy.slots;
        let decides = job.recipe == config::Recipe::Elector;
        let suspect_after = job.suspect_after();
        if policy.fast_failover && suspect_after.is_none() {
            let job = job.name();
            let why = if decides { "is not fenced" } else { "has no elector" };
            tracing::warn!(job, "fast_failover does nothing for a job that {why}");
        }
        let slot =
            Arc::new(JobSlot::new(&config.node, job.spec.clone(), guards.clone(), device.watchdog.clone()));
        let answers = Arc::new(Answers::default());
        let orders = decides.then(|| Source {
            session: session.clone(),
            paths: paths.clone(),
            me: config.node.id.clone(),
            takeover_timeout: policy.takeover_timeout,
        });
        let handler = JobHandler::new(Arc::clone(&slot), Arc::clone(&answers), granted, orders);
        let path = paths.node(&config.node.id);
        let election = ElectionConfig::new(paths.clone(), me, recipe).policy(policy).leftovers(leftovers);
        let election = Election::join(session.clone(), election, handler);
        if suspect_after.is_some() {
            suspecting.push(election.clone());
        }
        background.spawn(memory.clone().keep(path, election.status().into()));
        let prober = Prober {
            job: job.name().to_owned(),
            me: config.node.id.clone(),
            session: session.clone(),
            paths,
            election: election.clone(),
            probes: config.probes.clone(),
            suspect_after,
            needs: if decides { job.policy.needs() } else { Needs::default() },
            answers,
        };
        if prober.needs_peers() {
            probes::check_own_address(&config.http.listen, &config.node.address);
        }
        background.spawn(probes::run(prober));
        let measured = Arc::new(Measured::of(election.clone()));
        if let Some(measure) = job.spec.measure.clone() {
            let publishes = Arc::clone(&measured);
            background.spawn(measure::keep(Arc::clone(&slot), election.clone(), publishes, measure));
        }
        if let Some(check) = job.spec.fitness.clone() {
            background.spawn(fitness::keep(Arc::clone(&slot), election.clone(), check));
        }
        own.push(OwnJob::new(job, election.status().into(), measured));
        let vacancy = Arc::new(Vacancy::new());
        background.spawn(Arc::clone(&vacancy).keep(election.clone(), session.clone()));
        jobs.push(Job { election, slot, slots, vacancy });
    }
    led::keep(own, background);
    background.spawn(device.await_it(jobs.iter().map(|job| job.election.clone()).collect()));
    if !suspecting.is_empty() {
        background.spawn(leader_hosts::avoid(config.node.id.clone(), suspecting, session.clone()));
    }
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

/// What is known of an election before this worker joins it.
struct Looked {
    paths: Paths,
    leftovers: Leftovers,
}

async fn look(
    observer: &Observer,
    config: &Config,
    job: &JobConfig,
    memory: &Memory,
) -> Result<Looked, Error> {
    let paths = Paths::new(&config.zookeeper.root, job.name())
        .map_err(|wrong| Error::Setting { key: "job", message: wrong.to_string() })?;
    check_recipe(observer, &paths, job).await?;
    if let Some(problem) = access_problem(observer.session(), &config.zookeeper, &paths).await? {
        tracing::warn!(job = job.name(), "{problem}");
    }
    let leftovers = leftovers(observer, &paths, config, job.recipe, memory).await;
    Ok(Looked { paths, leftovers })
}

/// This worker's profile for an election.
fn profile(config: &Config, http_port: u16) -> Profile {
    let node = &config.node;
    let listen = &config.http.listen;
    let host = if listen.is_wildcard() { node.address.clone() } else { listen.host.clone() };
    let mut profile = Profile::new(node.id.clone()).in_site(node.site.clone());
    profile.address = Some(node.address.clone());
    profile.http = Some(HostPort { host, port: http_port }.to_string());
    profile.priority = node.priority;
    profile.attributes = node.attributes.clone();
    concat!("dr-worker ", env!("CARGO_PKG_VERSION")).clone_into(&mut profile.software);
    profile
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

/// All members must use one recipe: two recipes could have two leaders.
async fn check_recipe(observer: &Observer, paths: &Paths, job: &JobConfig) -> Result<(), Error> {
    let Some(standing) = observer.standing(paths).await? else { return Ok(()) };
    if standing.as_str() == job.recipe.as_str() {
        return Ok(());
    }
    let message = format!(
        "job.{}.recipe is {:?}, but members in {} use the recipe {:?}: stop them first, all members must use the same recipe",
        job.name(),
        job.recipe.as_str(),
        paths.base(),
        standing.as_str()
    );
    Err(Error::Setting { key: "job", message })
}
