//! Who of the other members answers, and how soon: what fast failover rests on, and what a
//! policy by round trips goes by.
//!
//! One set of probes serves both. What is measured is smoothed by a [`Meter`], and published
//! in this member's record only when it has changed by more than a tolerance, and no more
//! often than every so often: `n` members of a job write at most `n` times in
//! `probes.publish.every`. Nothing is probed that nobody needs.
//!
//! [`Meter`]: strategies::meter::Meter

mod peers;
mod prober;
mod published;
mod targets;

use std::{net::IpAddr, sync::Arc};

use crate::config::HostPort;
pub(super) use prober::Prober;
use published::Published;

/// Probes for ever.
pub(super) async fn run(prober: Prober) {
    let published = Arc::new(Published::new(&prober.job, prober.election.clone(), prober.probes.publishing));
    let peers = async {
        if prober.needs_peers() {
            peers::probe(&prober, &published).await;
        }
    };
    tokio::join!(peers, targets::probe(&prober, &published));
}

/// Warns if what this worker tells the others leads each of them to itself.
pub(super) fn check_own_address(listen: &HostPort, address: &str) {
    let is_loopback =
        |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || host == "localhost";
    if is_loopback(&listen.host) && !is_loopback(address) {
        tracing::warn!(
            %listen,
            "http.listen is for this host alone, so members on other hosts can't probe this worker: \
             fast_failover won't move leadership away from it, and no policy finds it near"
        );
    }
}
