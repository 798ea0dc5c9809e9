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
mod published;
mod targets;

use std::{net::IpAddr, sync::Arc, time::Duration};

use election_core::{Election, MemberId, Paths};
use strategies::spec::Needs;
use zk_session::Session;

use crate::config::{HostPort, ProbesConfig};
use published::Published;

/// Measures for one job.
pub(super) struct Prober {
    pub(super) job: String,
    pub(super) me: MemberId,
    pub(super) session: Session,
    pub(super) paths: Paths,
    pub(super) election: Election,
    pub(super) probes: ProbesConfig,
    /// Whether the election is told who does not answer, and how soon it wants to know.
    pub(super) suspect_after: Option<Duration>,
    /// Which round trips the policy goes by.
    pub(super) needs: Needs,
}

impl Prober {
    /// Probes for ever.
    pub(super) async fn run(self) {
        let published = Arc::new(Published::new(&self.job, self.election.clone(), self.probes.publishing));
        let peers = async {
            if self.needs_peers() {
                peers::probe(&self, &published).await;
            }
        };
        tokio::join!(peers, targets::probe(&self, &published));
    }

    /// Whether it asks other members, so that they must be able to ask this one.
    pub(super) fn needs_peers(&self) -> bool {
        self.suspect_after.is_some() || self.needs.peers
    }
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

/// A time as it is published.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
