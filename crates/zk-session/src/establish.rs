//! Makes a session: names, connections and the handshake.
//! A session that has been made is proved to be alive: the ensemble's leader begins to count its timeout when it prepares
//! the session, which is after the connect request was sent, and the answer comes only once a quorum has agreed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::debug;
use zk_proto::{Purpose, Ticket};

use crate::backoff::Backoff;
use crate::close::CloseOutcome;
use crate::driver::{self, ConnectFailure, ConnectSpec, Connected, DriverEvent};
use crate::error::{ConnectError, HostFailure};
use crate::hosts::Server;
use crate::incarnation::Incarnation;
use crate::node::Epoch;
use crate::shared::Shared;
use crate::time::{BootTime, Moment, sleep_until, within};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

/// A shorter session timeout leaves no time for a lease after its margin and a heartbeat.
pub(crate) const SHORTEST: Duration = Duration::from_millis(300);

/// A session that has just been made.
pub(crate) struct Made {
    pub(crate) incarnation: Incarnation,
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
    /// When the connect request was sent that made or re-attached it: it is proved to have been alive then.
    pub(crate) alive: Moment,
}

/// Retries until `deadline`. Cancel safe: connections and sessions that were begun are ended.
pub(crate) async fn establish(
    shared: &Shared,
    purpose: Purpose,
    epoch: Epoch,
    deadline: BootTime,
) -> Result<Made, ConnectError> {
    persist(shared, deadline, || attempt(shared, purpose.clone(), epoch, deadline)).await
}

/// Closes a session that another process has left behind. Retries until `deadline` to reach a server, and asks once.
pub(crate) async fn close(
    shared: &Shared,
    ticket: Ticket,
    deadline: BootTime,
) -> Result<CloseOutcome, ConnectError> {
    let attempt = || {
        let (resolver, settings) = (Arc::clone(&shared.resolver), Arc::clone(&shared.settings));
        let purpose = Purpose::Resume(ticket.clone());
        Box::pin(driver::close(ConnectSpec { purpose, resolver, settings, deadline }))
    };
    persist(shared, deadline, attempt).await
}

/// Repeats an attempt until `deadline`.
async fn persist<T, F: Future<Output = Result<T, ConnectFailure>>>(
    shared: &Shared,
    deadline: BootTime,
    attempt: impl Fn() -> F,
) -> Result<T, ConnectError> {
    let started = BootTime::now();
    let mut backoff = BACKOFF;
    let mut said: HashMap<Server, String> = HashMap::new();
    loop {
        match attempt().await {
            Ok(made) => return Ok(made),
            Err(ConnectFailure::Final(error)) => return Err(error),
            Err(ConnectFailure::Unavailable(reasons)) => {
                debug!(?reasons, "no session yet");
                said.extend(reasons);
            }
        }
        let pause = backoff.next();
        // An attempt with too little time would only replace a better reason by 'no answer in time'.
        if BootTime::now() + pause + SHORTEST_ATTEMPT >= deadline {
            sleep_until(deadline.min(BootTime::now() + pause)).await;
            return Err(unreachable_hosts(shared, deadline.duration_since(started), &said));
        }
        sleep_until(BootTime::now() + pause).await;
    }
}

async fn attempt(
    shared: &Shared,
    purpose: Purpose,
    epoch: Epoch,
    deadline: BootTime,
) -> Result<Made, ConnectFailure> {
    let is_new = matches!(purpose, Purpose::New(_));
    let (resolver, settings) = (Arc::clone(&shared.resolver), Arc::clone(&shared.settings));
    // On the heap: the caller's future would otherwise be as large as this.
    let connecting = Box::pin(driver::connect(ConnectSpec { purpose, resolver, settings, deadline }));
    let silent = || ConnectFailure::Unavailable(Vec::new());
    let Connected { driver, events, sent } = within(deadline, connecting).await.ok_or_else(silent)??;
    let granted = driver.ticket().timeout;
    if granted < SHORTEST {
        let driver = shared.settings.driver;
        let too_short = ConnectError::TimeoutTooShort { granted, needed: SHORTEST, driver };
        return Err(ConnectFailure::Final(too_short));
    }
    let (contact, alive) = if is_new {
        (sent.boot, sent)
    } else {
        // A deposed leader may also answer that a session is taken over.
        let alive = driver.attached();
        let contact = BootTime::now();
        if let Err(error) = driver::barrier(&*driver, deadline.min(contact + granted)).await {
            debug!(%error, "the session was re-attached, but no quorum answered on it");
            return Err(silent());
        }
        (contact, alive)
    };
    let (settings, chroot) = (Arc::clone(&shared.settings), shared.chroot.clone());
    let incarnation = Incarnation::new(epoch, driver, settings, chroot, contact);
    Ok(Made { incarnation, events, alive })
}

fn unreachable_hosts(shared: &Shared, within: Duration, said: &HashMap<Server, String>) -> ConnectError {
    let silent = "no answer in time";
    let hosts = shared.resolver.servers().into_iter().map(|server| HostFailure {
        reason: said.get(&server).map_or(silent, String::as_str).to_owned(),
        host: server.to_string(),
    });
    ConnectError::Unreachable { within, hosts: hosts.collect() }
}
