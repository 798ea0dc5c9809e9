//! Makes a session: names, connections and the handshake.
//! A session that has been made is proved to be alive: the ensemble's leader begins to count its timeout when it prepares
//! the session, which is after the connect request was sent, and the answer comes only once a quorum has agreed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::debug;
use zk_proto::{Purpose, Ticket};

use crate::backoff::Backoff;
use crate::driver::close::CloseOutcome;
use crate::driver::{self, Answers, ConnectFailure, ConnectSpec, Connected, DriverEvent};
use crate::error::{ConnectError, HostFailure};
use crate::node::Epoch;
use crate::session::incarnation::Incarnation;
use crate::session::shared::Shared;
use crate::time::{BootTime, Moment, sleep_until, within};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

/// A session that has just been made.
pub(crate) struct Made {
    pub(crate) incarnation: Incarnation,
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
    /// When the first request was sent that a quorum has answered on it.
    pub(crate) contact: BootTime,
    /// When the connect request was sent that made or re-attached it: it is proved to have been alive then.
    pub(crate) alive: Moment,
    /// Whether it was there before.
    pub(crate) is_resumed: bool,
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
    let purpose = Purpose::Resume(ticket);
    let attempt = || Box::pin(driver::close(spec(shared, purpose.clone(), deadline, true)));
    persist(shared, deadline, attempt).await
}

fn spec(shared: &Shared, purpose: Purpose, deadline: BootTime, closes: bool) -> ConnectSpec {
    let (resolver, settings) = (Arc::clone(&shared.resolver), Arc::clone(&shared.settings));
    ConnectSpec { purpose, resolver, settings, deadline, closes }
}

/// Repeats an attempt until `deadline`.
async fn persist<T, F: Future<Output = Result<T, ConnectFailure>>>(
    shared: &Shared,
    deadline: BootTime,
    attempt: impl Fn() -> F,
) -> Result<T, ConnectError> {
    let started = BootTime::now();
    let mut backoff = BACKOFF;
    let mut answers = Answers::default();
    let driver = shared.settings.driver;
    loop {
        match attempt().await {
            Ok(made) => return Ok(made),
            Err(ConnectFailure::Final(error)) => return Err(error),
            Err(ConnectFailure::Unavailable(latest)) => {
                debug!(answers = ?latest, "no session yet");
                if let Some(error) = latest.unanimous(driver) {
                    return Err(error);
                }
                answers.extend(latest);
            }
        }
        let pause = backoff.next();
        // An attempt with too little time would only replace a better reason by 'no answer in time'.
        if BootTime::now() + pause + SHORTEST_ATTEMPT >= deadline {
            sleep_until(deadline.min(BootTime::now() + pause)).await;
            let unreachable = || unreachable_hosts(shared, deadline.duration_since(started), &answers);
            return Err(answers.at_last(driver).unwrap_or_else(unreachable));
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
    // On the heap: the caller's future would otherwise be as large as this.
    let connecting = Box::pin(driver::connect(spec(shared, purpose, deadline, false)));
    let silent = || ConnectFailure::Unavailable(Answers::default());
    let Connected { driver, events, sent } = within(deadline, connecting).await.ok_or_else(silent)??;
    let granted = driver.ticket().timeout;
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
    let (live, settings, scope) =
        (Arc::clone(&shared.live), Arc::clone(&shared.settings), Arc::clone(&shared.scope));
    let incarnation = Incarnation::new(epoch, live, driver, settings, scope);
    Ok(Made { incarnation, events, contact, alive, is_resumed: !is_new })
}

fn unreachable_hosts(shared: &Shared, within: Duration, answers: &Answers) -> ConnectError {
    let hosts = shared.resolver.servers().into_iter().map(|server| HostFailure {
        reason: answers.reason(&server).unwrap_or_else(|| "no answer in time".to_owned()),
        host: server.to_string(),
    });
    ConnectError::Unreachable { within, hosts: hosts.collect() }
}
