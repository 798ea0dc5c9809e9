//! Times that must fit each other.

use std::time::Duration;

use election_core::strategy::in_words;
use zk_session::{LeaseTiming, lease_margin};

use super::super::{
    facts::{Facts, Server},
    finding::{Check, Found, Severity},
};

/// A follower that joins gets a copy of all data within this time.
const SHORTEST_INIT: Duration = Duration::from_secs(5);

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "tick-time",
        severity: Severity::Error,
        finds: "zookeeper.tick_time is not the servers' tickTime",
        why: "With a value that is too small a leader may still work when the servers have ended its session: two leaders.",
        action: "Set zookeeper.tick_time to the servers' tickTime, on all nodes.",
        look: tick_time,
    },
    Check {
        id: "session-timeout",
        severity: Severity::Warning,
        finds: "the servers grant another session timeout than the configured one",
        why: "A failover takes longer than planned, or a job has less time to stop.",
        action: "Set zookeeper.session_timeout to a value that the servers allow, or minSessionTimeout and maxSessionTimeout in zoo.cfg.",
        look: session_timeout,
    },
    Check {
        id: "stop-budget",
        severity: Severity::Error,
        finds: "a job may need longer to stop than its lease lasts, with the measured round trips",
        why: "The job is killed before it has stopped in order, or runs on when another member may lead.",
        action: "Shorten the job's stop_timeout, or lengthen zookeeper.session_timeout.",
        look: stop_budget,
    },
    Check {
        id: "slow-quorum",
        severity: Severity::Warning,
        finds: "a quorum round trip takes longer than leases assume",
        why: "Leases are renewed late, and jobs may stop without a fault.",
        action: "Lengthen zookeeper.session_timeout; find out which server or which link is slow.",
        look: slow_quorum,
    },
    Check {
        id: "late-expiry",
        severity: Severity::Warning,
        finds: "sessions are short beside the servers' tick",
        why: "The servers end sessions at multiples of their tick, so a failover takes up to a tick longer; heartbeats are twice as frequent.",
        action: "Shorten tickTime in zoo.cfg and zookeeper.tick_time, to a fifth of the session timeout or less.",
        look: late_expiry,
    },
    Check {
        id: "sync-limit",
        severity: Severity::Warning,
        finds: "the servers notice the loss of their leader later than sessions end",
        why: "If the host of the servers' leader is lost, no lease is renewed until then: every job stops.",
        action: "Shorten syncLimit in zoo.cfg, or lengthen zookeeper.session_timeout.",
        look: sync_limit,
    },
    Check {
        id: "init-limit",
        severity: Severity::Warning,
        finds: "a server has little time to get all data when it joins",
        why: "A server that was down does not return while the data is large or the network slow.",
        action: "Lengthen initLimit in zoo.cfg, to 10 s or more.",
        look: init_limit,
    },
    Check {
        id: "no-lease",
        severity: Severity::Error,
        finds: "the servers end a session with its connection",
        why: "No lease can be given, so no member leads.",
        action: "Use Apache ZooKeeper.",
        look: |facts, found| {
            if facts.session.as_ref().is_some_and(|held| !held.leases) {
                found.add("these servers end a session with its connection");
            }
        },
    },
];

/// How much is left of a lease at least if a round trip takes this long: [`LeaseTiming::shortest_lease`] with a measured time.
fn shortest_lease(timing: LeaseTiming, round_trip: Duration) -> Duration {
    let heartbeat = timing.heartbeat_interval();
    let proving = (timing.tick_time + round_trip).as_nanos().div_ceil(heartbeat.as_nanos().max(1));
    let proving = heartbeat.saturating_mul(u32::try_from(proving).unwrap_or(u32::MAX));
    let spent = lease_margin(timing.session_timeout) + heartbeat + round_trip;
    timing.session_timeout.saturating_sub(spent).saturating_sub(proving)
}

fn stop_budget(facts: &Facts, found: &mut Found) {
    let timing =
        LeaseTiming { session_timeout: facts.timeout(), tick_time: facts.tick().max(facts.asked.tick_time) };
    let measured = facts.session.as_ref().and_then(|held| held.round_trip).unwrap_or_default();
    let left = shortest_lease(timing, measured.max(LeaseTiming::ROUND_TRIP));
    for job in &facts.jobs {
        if let Some(budget) = job.stop_budget.filter(|budget| *budget > left) {
            found.add(format!(
                "the stop of {} may need {}, but its lease may have only {} left: session timeout {}, tick {}, round trip {}",
                job.name,
                in_words(budget),
                in_words(left),
                in_words(timing.session_timeout),
                in_words(timing.tick_time),
                in_words(measured.max(LeaseTiming::ROUND_TRIP)),
            ));
        }
    }
}

fn slow_quorum(facts: &Facts, found: &mut Found) {
    let measured = facts.session.as_ref().and_then(|held| held.round_trip);
    if let Some(measured) = measured.filter(|measured| *measured > LeaseTiming::ROUND_TRIP) {
        let assumed = in_words(LeaseTiming::ROUND_TRIP);
        found.add(format!("a quorum round trip takes {}, but leases assume {assumed}", in_words(measured)));
    } else if facts.session.is_some() && measured.is_none() {
        found.with(Severity::Unknown, "no quorum round trip could be measured");
    }
}

fn session_timeout(facts: &Facts, found: &mut Found) {
    let Some(held) = &facts.session else { return };
    let asked = facts.asked.session_timeout;
    if held.granted != asked {
        let of = |key| facts.servers.iter().find_map(|server: &Server| server.millis(key));
        let bounds = match (of("minSessionTimeout"), of("maxSessionTimeout")) {
            (Some(min), Some(max)) => format!("; the servers allow {} to {}", in_words(min), in_words(max)),
            _ => String::new(),
        };
        found.add(format!(
            "zookeeper.session_timeout asks for {}, but the servers grant {}{bounds}",
            in_words(asked),
            in_words(held.granted)
        ));
    }
}

fn tick_time(facts: &Facts, found: &mut Found) {
    let asked = facts.asked.tick_time;
    for server in &facts.servers {
        let Some(tick) = server.tick().filter(|tick| *tick != asked) else { continue };
        let what = format!(
            "zookeeper.tick_time is {}, and tickTime of {} is {}",
            in_words(asked),
            server.name,
            in_words(tick)
        );
        if asked < tick {
            found.add(format!("{what}: leases are computed too long"));
        } else {
            found.with(Severity::Note, format!("{what}: leases are shorter than they could be"));
        }
    }
}

fn sync_limit(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if let Some(limit) = server.ticks("syncLimit").filter(|limit| *limit >= facts.timeout()) {
            found.add(format!(
                "{} notices the loss of its leader after {} (syncLimit × tickTime), and sessions end after {}",
                server.name,
                in_words(limit),
                in_words(facts.timeout())
            ));
        }
    }
}

fn init_limit(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if let Some(limit) = server.ticks("initLimit").filter(|limit| *limit < SHORTEST_INIT) {
            found.add(format!(
                "{} must have all data within {} (initLimit × tickTime) when it joins",
                server.name,
                in_words(limit)
            ));
        }
    }
}

fn late_expiry(facts: &Facts, found: &mut Found) {
    let (tick, timeout) = (facts.tick(), facts.timeout());
    if tick * 4 > timeout {
        found.add(format!(
            "sessions end at multiples of the tick of {}: a lost host is replaced after {} to {}",
            in_words(tick),
            in_words(timeout),
            in_words(timeout + tick)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_assumed_round_trip_it_is_the_lease_of_the_session() {
        for (timeout, tick) in [(10_000, 2_000), (6_000, 500), (4_000, 2_000), (1_500, 100)] {
            let timing = LeaseTiming {
                session_timeout: Duration::from_millis(timeout),
                tick_time: Duration::from_millis(tick),
            };
            assert_eq!(shortest_lease(timing, LeaseTiming::ROUND_TRIP), timing.shortest_lease());
        }
    }
}
