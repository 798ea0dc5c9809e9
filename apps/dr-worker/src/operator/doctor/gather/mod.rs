//! Reads the facts: from the configuration, this node, the servers, ZooKeeper and the members. It changes nothing.

mod elections;
mod members;
mod node;

use std::time::Duration;

use zk_session::{Acl, Incarnation, OpError, Session};

use super::facts::{Facts, JobFacts, SessionConfig, SessionFacts};
use crate::{
    commands::{Operator, servers},
    config::{Config, OperatorConfig, Sources, ZooKeeperAccess, ZooKeeperConfig},
    connect,
    error::Error,
    wall::unix_ms,
};

/// How many round trips are measured.
const ROUND_TRIPS: usize = 7;
/// How long one may take.
const ROUND_TRIP_WITHIN: Duration = Duration::from_secs(3);
/// For a session without credentials.
const STRANGER_WITHIN: Duration = Duration::from_secs(5);

/// The facts, and whether there is no session because ZooKeeper did not answer in time.
///
/// # Errors
/// If the configuration can't be used by a command.
pub(super) async fn gather(sources: &Sources) -> Result<(Facts, bool), Error> {
    let operators = OperatorConfig::load(sources)?;
    let worker = Config::load(sources);
    let zookeeper = &operators.zookeeper;
    let mut facts = Facts {
        now_ms: unix_ms(),
        asked: SessionConfig {
            session_timeout: zookeeper.session_timeout,
            tick_time: zookeeper.tick_time,
            has_sites: !zookeeper.sites.is_empty(),
            is_open: zookeeper.acl == ZooKeeperAccess::Open,
        },
        jobs: jobs(&operators, worker.as_ref().ok()),
        servers: servers::ask(zookeeper).await,
        ..Facts::default()
    };
    for server in &mut facts.servers {
        server.disk = node::disk_of(server);
    }
    match worker {
        Ok(config) => facts.node = Some(node::node(&config)),
        Err(problems) => {
            let is_absent = |key: &str| key == "node.site" || key == "job";
            facts.is_operator = problems.iter().any(|problem| problem.key.as_deref().is_some_and(is_absent));
            let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
            facts.no_node = all.join("; ");
        }
    }
    let operator = match Operator::connect(sources).await {
        Ok(operator) => operator,
        Err(error) => {
            facts.no_session = error.to_string();
            return Ok((facts, matches!(error, Error::Unreachable(_))));
        }
    };
    let read = read(&operator, &mut facts).await;
    operator.close().await;
    match read {
        // The session was lost meanwhile.
        Err(error @ Error::Unreachable(_)) => {
            facts.session = None;
            facts.no_session = error.to_string();
            Ok((facts, true))
        }
        read => read.map(|()| (facts, false)),
    }
}

async fn read(operator: &Operator, facts: &mut Facts) -> Result<(), Error> {
    let incarnation = operator.incarnation().await?;
    facts.session = Some(held(&incarnation, &operator.config.zookeeper).await);
    elections::elections(operator, facts).await
}

fn jobs(operators: &OperatorConfig, worker: Option<&Config>) -> Vec<JobFacts> {
    let jobs = operators.jobs.keys().map(|name| {
        let fenced = operators.fenced.contains(name);
        let policy = operators.policy_of(name).election;
        let own = worker.and_then(|config| {
            let job = config.jobs.iter().find(|job| job.name() == name)?;
            Some(job.spec.stop_budget() + config.watchdog.reserve())
        });
        JobFacts {
            name: name.clone(),
            keeps: matches!(policy.on_pause, election_core::config::OnPause::Keep { .. }),
            fenced,
            fast_failover: policy.fast_failover,
            stop_budget: own,
        }
    });
    jobs.collect()
}

async fn held(session: &Incarnation, config: &ZooKeeperConfig) -> SessionFacts {
    let mut round_trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        match tokio::time::timeout(ROUND_TRIP_WITHIN, session.barrier()).await {
            Ok(Ok(took)) => round_trips.push(took),
            _ => break,
        }
    }
    round_trips.sort();
    SessionFacts {
        granted: session.granted_timeout(),
        round_trip: round_trips.get(round_trips.len() / 2).copied(),
        leases: session.leases().is_ok(),
        ignores_access_lists: ignores_access_lists(session, config).await,
    }
}

/// Whether a client without credentials can read the root, whose access list does not permit it.
async fn ignores_access_lists(session: &Incarnation, config: &ZooKeeperConfig) -> Option<bool> {
    let has_pair = config.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some());
    if !config.has_credentials() || config.acl != ZooKeeperAccess::Creator || has_pair {
        return None;
    }
    let list = session.acl(&config.root).await.ok()?;
    if list.entries.iter().any(|entry| entry.id.scheme == "world") {
        return None;
    }
    let mut stranger = Session::builder(&config.connect).connect_timeout(STRANGER_WITHIN).acl(Acl::Open);
    if let Some(tls) = &config.tls {
        stranger = connect::with_tls(stranger, tls);
    }
    let stranger = stranger.connect().await.ok()?;
    let answer = tokio::time::timeout(STRANGER_WITHIN, stranger.get(&config.root)).await;
    stranger.close(ROUND_TRIP_WITHIN).await;
    match answer.ok()? {
        Ok(Some(_)) => Some(true),
        Err(OpError::NoAuth { .. }) => Some(false),
        _ => None,
    }
}
