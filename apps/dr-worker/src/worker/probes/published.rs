//! Publishes this member's round trips for one job.

use std::{collections::BTreeSet, time::Duration};

use election_core::{Election, config::MemberId, internals::record::RoundTrips};
use metrics::{counter, gauge};
use parking_lot::Mutex;
use strategies::meter::{Meter, Publishing};
use tokio::time::Instant;

/// The target of a round trip.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    Peer(MemberId),
    ZooKeeper,
    Target(String),
}

/// The meter of a job, whose values are published in its election.
pub(super) struct Published {
    job: String,
    election: Election,
    start: Instant,
    meter: Mutex<Meter<Whom>>,
}

impl Published {
    pub(super) fn new(job: &str, election: Election, publishing: Publishing) -> Self {
        for outcome in ["answered", "missed"] {
            counter!("dr_probes_total", "outcome" => outcome).absolute(0);
        }
        counter!("dr_round_trips_published_total").absolute(0);
        let meter = Mutex::new(Meter::new(publishing));
        Self { job: job.to_owned(), election, start: Instant::now(), meter }
    }

    /// Records an answer after this time; `None` if it is not the time of one round trip.
    pub(super) fn answered(&self, whom: Whom, after: Option<Duration>) {
        count("answered");
        let Some(after) = after else { return };
        let mut meter = self.meter.lock();
        meter.answered(whom.clone(), micros(after));
        show(&meter, &whom);
    }

    /// Records a missed answer after this time.
    pub(super) fn missed(&self, whom: &Whom, waited: Duration) {
        count("missed");
        let mut meter = self.meter.lock();
        meter.missed(whom, micros(waited));
        show(&meter, whom);
    }

    /// Removes all members but these.
    pub(super) fn retain_peers(&self, living: &BTreeSet<&MemberId>) {
        let mut meter = self.meter.lock();
        let lives = |whom: &Whom| !matches!(whom, Whom::Peer(peer) if !living.contains(peer));
        let gone: Vec<_> = meter.smoothed().into_keys().filter(|whom| !lives(whom)).collect();
        meter.retain(lives);
        gone.iter().for_each(|whom| show(&meter, whom));
    }

    /// Publishes the values, if they have changed enough.
    pub(super) fn publish(&self) {
        let Some(news) = self.meter.lock().publish(self.start.elapsed()) else { return };
        let mut round_trips = RoundTrips::default();
        for (whom, micros) in news {
            match whom {
                Whom::Peer(peer) => drop(round_trips.peers.insert(peer, micros)),
                Whom::ZooKeeper => round_trips.zookeeper = Some(micros),
                Whom::Target(name) => drop(round_trips.targets.insert(name, micros)),
            }
        }
        tracing::debug!(job = self.job, ?round_trips, "publishing round trips");
        counter!("dr_round_trips_published_total").increment(1);
        if let Err(error) = self.election.set_round_trips(round_trips) {
            tracing::warn!(job = self.job, %error, "the round trips of this member are not published");
        }
    }
}

fn count(outcome: &'static str) {
    counter!("dr_probes_total", "outcome" => outcome).increment(1);
}

/// Exports the round trip to a member. It is the same for all jobs, so it has no label for one.
fn show(meter: &Meter<Whom>, whom: &Whom) {
    let Whom::Peer(peer) = whom else { return };
    let seconds = meter.smoothed().get(whom).map_or(f64::NAN, |micros| f64::from(*micros) / 1e6);
    gauge!("dr_peer_rtt_seconds", "peer" => peer.to_string()).set(seconds);
}

/// A duration in microseconds, as it is published.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
