//! Making a session: names, connections and the handshake.
//!
//! That a session is made is a proof that it lives: the ensemble's leader begins to count its timeout when it prepares the
//! session, which is after the connect request was sent, and the answer comes only once a quorum has agreed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::debug;
use zk_proto::Purpose;

use crate::backoff::Backoff;
use crate::driver::{self, ConnectFailure, ConnectSpec, Connected, DriverEvent};
use crate::error::{ConnectError, HostFailure};
use crate::hosts::Server;
use crate::incarnation::Incarnation;
use crate::node::Epoch;
use crate::shared::Shared;
use crate::time::{BootTime, sleep_until, within};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

/// Below this nothing is left of a session timeout once the lease's margin and a heartbeat are taken from it.
pub(crate) const SHORTEST: Duration = Duration::from_millis(300);
/// A session that has just been made.
pub(crate) struct Made {
    pub(crate) incarnation: Incarnation,
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
    /// When the request was sent whose answer proved it.
    pub(crate) contact: BootTime,
}

/// Tries until `deadline`. Cancel safe: what was begun is ended.
pub(crate) async fn establish(
    shared: &Shared,
    purpose: Purpose,
    epoch: Epoch,
    deadline: BootTime,
) -> Result<Made, ConnectError> {
    let started = BootTime::now();
    let mut backoff = BACKOFF;
    let mut said: HashMap<Server, String> = HashMap::new();
    loop {
        match attempt(shared, purpose.clone(), epoch, deadline, &mut said).await {
            Ok(made) => return Ok(made),
            Err(Some(fatal)) => return Err(fatal),
            Err(None) => {}
        }
        let pause = backoff.next();
        // An attempt without time to speak of would only say that of a server of which more is known by now.
        if BootTime::now() + pause + SHORTEST_ATTEMPT >= deadline {
            sleep_until(deadline.min(BootTime::now() + pause)).await;
            return Err(unreachable_hosts(shared, deadline.duration_since(started), &said));
        }
        sleep_until(BootTime::now() + pause).await;
    }
}

/// One attempt; `Err(None)` where another one may succeed, with what each server said in `said`.
async fn attempt(
    shared: &Shared,
    purpose: Purpose,
    epoch: Epoch,
    deadline: BootTime,
    said: &mut HashMap<Server, String>,
) -> Result<Made, Option<ConnectError>> {
    let config = &shared.config;
    let is_new = matches!(purpose, Purpose::New(_));
    let spec = ConnectSpec {
        purpose,
        resolver: Arc::clone(&shared.resolver),
        auth: Arc::clone(&config.auth),
        secure: config.secure.clone(),
        max_request: config.max_request,
        deadline,
    };
    // On the heap: whoever connects would otherwise be as large as this.
    let connecting = Box::pin(driver::connect(config.driver, spec));
    let Connected { driver, events, sent } = match within(deadline, connecting).await {
        Some(Ok(connected)) => connected,
        Some(Err(ConnectFailure::Unavailable(reasons))) => {
            debug!(?reasons, "no session yet");
            said.extend(reasons);
            return Err(None);
        }
        Some(Err(ConnectFailure::Expired)) => return Err(Some(ConnectError::Expired)),
        Some(Err(ConnectFailure::AuthFailed(reason))) => {
            return Err(Some(ConnectError::AuthFailed { reason }));
        }
        Some(Err(ConnectFailure::Tls(reason))) => return Err(Some(ConnectError::Tls { reason })),
        Some(Err(ConnectFailure::NotBuilt { kind })) => {
            return Err(Some(ConnectError::DriverNotBuilt { driver: kind }));
        }
        None => return Err(None),
    };
    let guard = AbortOnDrop(Some(Arc::clone(&driver)));
    let granted = driver::granted_timeout(&*driver);
    if granted < SHORTEST {
        return Err(Some(ConnectError::TimeoutTooShort { granted, needed: SHORTEST, driver: config.driver }));
    }
    let contact = if is_new {
        sent
    } else {
        // That a session is taken over a deposed leader may say, too.
        let contact = BootTime::now();
        if let Err(error) = driver::barrier(&*driver, deadline.min(contact + granted)).await {
            debug!(%error, "the session was taken over, but no quorum answered on it");
            return Err(None);
        }
        contact
    };
    guard.disarm();
    let (chroot, timeout) = (config.connect.chroot.clone(), config.operation_timeout);
    let incarnation = Incarnation::new(epoch, driver, chroot, timeout, config.acl, contact);
    Ok(Made { incarnation, events, contact })
}

fn unreachable_hosts(shared: &Shared, within: Duration, said: &HashMap<Server, String>) -> ConnectError {
    let silent = "no answer in time";
    let hosts = shared.resolver.servers().into_iter().map(|server| HostFailure {
        reason: said.get(&server).map_or(silent, String::as_str).to_owned(),
        host: server.to_string(),
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
