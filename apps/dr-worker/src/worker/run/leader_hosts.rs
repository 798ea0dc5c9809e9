//! Keeps this worker's session away from the servers on the hosts of leaders: a host that is lost takes its server with it,
//! and this worker must be able to report the loss at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use election_core::{Election, config::MemberId, internals::record::Status, status::ElectionStatus};
use tokio::{net::lookup_host, time::sleep};
use zk_session::Session;

/// Between two looks, on average: a takeover has more urgent requests, and not all members must move at once.
const INTERVAL: Duration = Duration::from_secs(2);

/// Avoids the hosts of all READY leaders of these elections except `own`, until it is dropped.
pub(super) async fn avoid(own: MemberId, elections: Vec<Election>, session: Session) {
    let statuses: Vec<_> = elections.iter().map(Election::status).collect();
    let mut known = BTreeSet::new();
    loop {
        sleep(INTERVAL.mul_f64(0.5 + fastrand::f64())).await;
        let hosts: BTreeSet<String> = statuses.iter().flat_map(|status| hosts(&own, &status.now())).collect();
        if hosts == known {
            continue;
        }
        let addresses = resolve(&hosts).await;
        tracing::debug!(?addresses, "avoiding the ZooKeeper servers on the hosts of leaders");
        session.avoid(addresses.values().flatten().copied());
        // A name that did not resolve is looked up again.
        known = addresses.into_keys().collect();
    }
}

/// The hosts of the READY leaders other than `own`.
fn hosts(own: &MemberId, status: &ElectionStatus) -> Vec<String> {
    let leaders = status.leaders.iter().flatten();
    let others = leaders.filter(|leader| leader.status == Status::Ready && leader.member != *own);
    others.filter_map(|leader| leader.endpoint.clone()).collect()
}

async fn resolve(hosts: &BTreeSet<String>) -> BTreeMap<String, Vec<IpAddr>> {
    let mut addresses = BTreeMap::new();
    for host in hosts {
        match lookup_host((host.as_str(), 0)).await {
            Ok(found) => {
                addresses.insert(host.clone(), found.map(|address| address.ip()).collect());
            }
            Err(error) => tracing::debug!(host, %error, "the address of a leader's host does not resolve"),
        }
    }
    addresses
}
