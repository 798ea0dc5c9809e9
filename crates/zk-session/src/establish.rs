//! Making a session: names, connections, the handshake, and a first quorum round trip that proves it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::debug;

use crate::backoff::Backoff;
use crate::driver::{self, ConnectFailure, ConnectSpec, Connected, DriverEvent};
use crate::error::{ConnectError, HostFailure};
use crate::hosts::Server;
use crate::incarnation::Incarnation;
use crate::node::Epoch;
use crate::shared::Shared;
use crate::time::{BootTime, sleep_until, within};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));

/// Below this nothing is left of a session timeout once the lease's margin and a heartbeat are taken from it.
pub(crate) const SHORTEST: Duration = Duration::from_millis(300);
/// ZooKeeper counts a session timeout as milliseconds in 31 bits.
pub(crate) const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// A session that has just been made.
pub(crate) struct Made {
    pub(crate) incarnation: Incarnation,
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
    /// When the round trip was sent that proved it.
    pub(crate) contact: BootTime,
}

/// Tries until `deadline`. Cancel safe: what was begun is ended.
pub(crate) async fn establish(
    shared: &Shared,
    epoch: Epoch,
    deadline: BootTime,
) -> Result<Made, ConnectError> {
    let started = BootTime::now();
    let mut backoff = BACKOFF;
    let mut said: HashMap<Server, String> = HashMap::new();
    loop {
        match attempt(shared, epoch, deadline, &mut said).await {
            Ok(made) => return Ok(made),
            Err(Some(fatal)) => return Err(fatal),
            Err(None) => {}
        }
        let pause = backoff.next();
        if BootTime::now() + pause >= deadline {
            sleep_until(deadline.min(BootTime::now() + pause)).await;
            return Err(unreachable_hosts(shared, deadline.duration_since(started), &said));
        }
        sleep_until(BootTime::now() + pause).await;
    }
}

/// One attempt; `Err(None)` where another one may succeed, with what each host said in `said`.
async fn attempt(
    shared: &Shared,
    epoch: Epoch,
    deadline: BootTime,
    said: &mut HashMap<Server, String>,
) -> Result<Made, Option<ConnectError>> {
    let config = &shared.config;
    let survey = shared.resolver.survey(deadline).await;
    said.extend(survey.failures);
    if survey.reachable.is_empty() {
        return Err(None);
    }
    let reachable = survey.reachable;
    let mut blame = |reason: String| {
        debug!(%reason, "no session yet");
        said.extend(reachable.iter().map(|server| (server.clone(), reason.clone())));
    };
    let spec = ConnectSpec {
        hosts: survey.hosts,
        resolver: Arc::clone(&shared.resolver),
        session_timeout: config.session_timeout,
        auth: config.auth.clone(),
        acl: config.acl,
        secure: config.secure.clone(),
        deadline,
    };
    let connected = match within(deadline, driver::connect(config.driver, spec)).await {
        Some(Ok(connected)) => connected,
        Some(Err(ConnectFailure::Unavailable(reason))) => {
            blame(format!("it takes connections, but no session came about: {reason}"));
            return Err(None);
        }
        Some(Err(ConnectFailure::AuthFailed(reason))) => {
            return Err(Some(ConnectError::AuthFailed { reason }));
        }
        Some(Err(ConnectFailure::Tls(reason))) => return Err(Some(ConnectError::Tls { reason })),
        Some(Err(ConnectFailure::NotBuilt { kind })) => {
            return Err(Some(ConnectError::DriverNotBuilt { driver: kind }));
        }
        None => {
            blame("it takes connections, but no session came about in time".to_owned());
            return Err(None);
        }
    };
    let Connected { driver, events } = connected;
    let guard = AbortOnDrop(Some(driver.clone()));
    let granted = driver.granted_timeout();
    if granted < SHORTEST {
        return Err(Some(ConnectError::TimeoutTooShort { granted, needed: SHORTEST, driver: config.driver }));
    }
    if granted > LONGEST {
        // A negative number, taken for a large one: a lease computed from it would never end.
        blame(format!("it granted a session timeout of {granted:?}, which no ZooKeeper server does"));
        return Err(None);
    }
    let contact = BootTime::now();
    // The first round trip starts the session's clock on this side: how long the handshake took does not matter then.
    let proof_by = deadline.min(contact + granted);
    match within(proof_by, driver.barrier(proof_by)).await {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            blame(format!("a session was made, but no quorum answered on it: {error}"));
            return Err(None);
        }
        None => {
            blame("a session was made, but no quorum answered on it in time".to_owned());
            return Err(None);
        }
    }
    guard.disarm();
    let incarnation =
        Incarnation::new(epoch, driver, config.connect.chroot.clone(), config.operation_timeout, contact);
    Ok(Made { incarnation, events, contact })
}

fn unreachable_hosts(shared: &Shared, within: Duration, said: &HashMap<Server, String>) -> ConnectError {
    let silent = "nothing was heard of it";
    let hosts = shared.config.connect.servers.iter().map(|server| HostFailure {
        host: server.to_string(),
        reason: said.get(server).map_or(silent, String::as_str).to_owned(),
    });
    ConnectError::Unreachable { within, hosts: hosts.collect() }
}

struct AbortOnDrop(Option<Arc<dyn driver::Driver>>);

impl AbortOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.abort();
        }
    }
}
