//! Runs a job's measure command periodically, and publishes its values.

use std::{collections::BTreeMap, sync::Arc};

use election_core::Election;
use metrics::{counter, gauge};
use tokio::time::{Instant, sleep_until};

use super::measured::Measured;
use crate::{
    config::Measure,
    worker::{job::run_measure, state::JobSlot},
};

/// Runs until it is dropped. Values that are older than `keep` are removed; the configured attributes remain.
///
/// Only a change is published, so a member writes at most once in an interval.
pub(super) async fn keep(slot: Arc<JobSlot>, election: Election, publishes: Arc<Measured>, measure: Measure) {
    let job = slot.name();
    for outcome in ["done", "failed"] {
        counter!("dr_measurements_total", "job" => job.to_owned(), "outcome" => outcome).absolute(0);
    }
    let mut measured: BTreeMap<String, String> = BTreeMap::new();
    let mut last_good = Instant::now();
    let mut is_failing = false;
    loop {
        let next = Instant::now() + measure.interval;
        let role = election.status().now().role.as_str();
        let outcome = run_measure(&slot.spec(), &slot.env_of_member(), role, &slot.guards).await;
        let word = if outcome.is_ok() { "done" } else { "failed" };
        counter!("dr_measurements_total", "job" => job.to_owned(), "outcome" => word).increment(1);
        let news = match outcome {
            Ok(values) => {
                if is_failing {
                    tracing::info!(job, "the measure command works again");
                }
                (is_failing, last_good) = (false, Instant::now());
                Some(values)
            }
            Err(why) => {
                // Logged once, not at each failure.
                if !is_failing {
                    tracing::warn!(job, keep = ?measure.keep, "the measure command failed; its last values stay valid for the time `keep`: {why}");
                }
                is_failing = true;
                (last_good.elapsed() >= measure.keep).then(BTreeMap::new)
            }
        };
        if let Some(values) = news {
            show(job, &measured, &values);
            measured = values;
            publishes.by_command(job, measured.clone());
        }
        sleep_until(next).await;
    }
}

/// Exports numeric values as metrics; a value that is not known any more is NaN.
fn show(job: &str, before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) {
    let number = |text: &String| text.trim().parse::<f64>().ok();
    let gauge = |name: &String| gauge!("dr_measured", "job" => job.to_owned(), "name" => name.clone());
    for name in before.iter().filter(|(_, value)| number(value).is_some()).map(|(name, _)| name) {
        if now.get(name).and_then(number).is_none() {
            gauge(name).set(f64::NAN);
        }
    }
    for (name, value) in now {
        if let Some(value) = number(value) {
            gauge(name).set(value);
        }
    }
}
