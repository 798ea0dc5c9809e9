//! A day without a fault, with the noise of every network: does fast failover move a leader that lives?

use std::{sync::Arc, time::Duration};

use election_core::config::{Leftovers, Policy, Recipe, SiteId};

use super::{
    Due, Sim, Summary, Violation,
    faults::Healed,
    host::Unseen,
    settings::{App, Settings},
};
use crate::{strategy::SiteOrder, zookeeper::Millis};

/// How likely a probe gets no answer.
const LOST: f64 = 0.005;
/// Once in this time, on the average, a host pauses or is not reached.
const EVERY: Millis = 60_000;
/// For so long at most.
const LASTS: Millis = 150;

/// Four members in two sites for so many hours, with the probes of this `suspect_after`.
pub(crate) fn run(seed: u64, hours: u64, suspect_after: Duration) -> Result<Summary, Violation> {
    let mut sim = Sim::with(settings(suspect_after), fastrand::Rng::with_seed(seed), false);
    for host in 0..sim.hosts.len() {
        sim.after(EVERY, Due::Noise(host));
    }
    sim.run_until(hours * 3_600_000)
}

fn settings(suspect_after: Duration) -> Settings {
    let sites = ["east", "west"].map(|site| SiteId::new(site).expect("a site")).to_vec();
    let every = suspect_after / 4;
    Settings {
        recipe: Recipe::Elector(Arc::new(SiteOrder(sites.clone()))),
        sites,
        members: 4,
        timeout: 10_000,
        tick: 2000,
        policy: Policy::default().with(|policy| {
            policy.fenced = true;
            policy.fast_failover = true;
            policy.suspect_after = suspect_after;
            // All members are there by then.
            policy.startup_wait = Duration::from_secs(5);
        }),
        differing: false,
        leftovers: Leftovers::Wait,
        own_deadline: true,
        fault_time: Millis::MAX,
        fault_every: 3_600_000,
        stays: 0,
        weights: Vec::new(),
        latency: 10,
        lag: 0,
        app: App { prepare: 1, take_over: 1, stop: 1, ..App::default() },
        loss: 0.0,
        strays: 0.0,
        two_strategies: false,
        twin: false,
        probe_every: Some(u64::try_from(every.as_millis()).expect("a short time")),
        lost_probes: LOST,
        drained: None,
        exclusive: true,
    }
}

impl Sim {
    /// A host pauses, or the others do not reach it, or those of other sites do not.
    pub(super) fn noise(&mut self, host: usize) {
        let next = self.rng.u64(1..2 * EVERY);
        self.after(next, Due::Noise(host));
        self.summary.noises += 1;
        let lasts = self.rng.u64(1..=LASTS);
        let unseen = match self.rng.u8(0..4) {
            whole @ 0..2 => return self.freeze(host, whole == 0, lasts),
            2 => Unseen::All,
            _ => Unseen::Site(self.hosts[host].site.clone()),
        };
        self.hosts[host].net.unseen = unseen;
        self.after(lasts, Due::Heal(host, Healed::Sight));
    }
}
