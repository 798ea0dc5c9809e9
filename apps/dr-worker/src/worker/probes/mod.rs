//! Probes which other members answer, and how fast: for fast failover, and for policies by round trip.
//!
//! One set of probes serves both. A [`Meter`] smooths the values. This member publishes them in its record only if they
//! have changed by more than a tolerance, and at most once in `probes.publish.every`. Only targets that the policy
//! needs are probed.
//!
//! [`Meter`]: strategies::meter::Meter

mod answers;
mod peers;
mod prober;
mod published;
mod targets;

use std::{net::IpAddr, sync::Arc};

use crate::config::HostPort;
pub(super) use answers::PeerAnswers;
pub(super) use prober::Prober;
use published::Published;

/// Probes until it is dropped.
pub(super) async fn run(prober: Prober) {
    let published = Arc::new(Published::new(&prober.job, prober.election.clone(), prober.probes.publishing));
    let peers = async {
        if prober.needs_peers() {
            peers::probe(&prober, &published).await;
        }
    };
    tokio::join!(peers, targets::probe(&prober, &published));
}

/// Warns if the published address is a loopback address, which leads each other member to itself.
pub(super) fn check_own_address(listen: &HostPort, address: &str) {
    let is_loopback =
        |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || host == "localhost";
    if is_loopback(&listen.host) && !is_loopback(address) {
        tracing::warn!(
            %listen,
            "http.listen is a loopback address, so members on other hosts can't probe this worker: \
             fast_failover won't move leadership away from it, and policies by round trip do not prefer it"
        );
    }
}
