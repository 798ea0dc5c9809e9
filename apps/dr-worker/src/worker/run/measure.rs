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
    let mut measured = MeasuredGauges { job, values: BTreeMap::new() };
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
            measured.show(values.clone());
            publishes.change(job, |parts| parts.by_command = values);
        }
        sleep_until(next).await;
    }
}

/// The numeric values as metrics. They end with the command: dropped, none has a value any more.
struct MeasuredGauges<'a> {
    job: &'a str,
    values: BTreeMap<String, String>,
}

impl MeasuredGauges<'_> {
    /// Exports these values; one that is not known any more is NaN.
    fn show(&mut self, now: BTreeMap<String, String>) {
        let number = |text: &String| text.trim().parse::<f64>().ok();
        let gauge =
            |name: &String| gauge!("dr_measured", "job" => self.job.to_owned(), "name" => name.clone());
        for name in self.values.iter().filter(|(_, value)| number(value).is_some()).map(|(name, _)| name) {
            if now.get(name).and_then(number).is_none() {
                gauge(name).set(f64::NAN);
            }
        }
        for (name, value) in &now {
            if let Some(value) = number(value) {
                gauge(name).set(value);
            }
        }
        self.values = now;
    }
}

impl Drop for MeasuredGauges<'_> {
    fn drop(&mut self) {
        self.show(BTreeMap::new());
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn what_is_not_measured_any_more_has_no_value() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<_, _> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let has = |name: &str, value: &str| {
            let line = format!("dr_measured{{job=\"orders\",name=\"{name}\"}} {value}\n");
            recorder.handle().render().contains(&line)
        };
        metrics::with_local_recorder(&recorder, || {
            let mut measured = MeasuredGauges { job: "orders", values: BTreeMap::new() };
            measured.show(of(&[("lag", "5"), ("state", "streaming"), ("size", "7")]));
            assert!(has("lag", "5") && has("size", "7"));
            measured.show(of(&[("lag", "6"), ("size", "unknown")]));
            assert!(has("lag", "6") && has("size", "NaN"));
            // The configuration has the command no more.
            drop(measured);
            assert!(has("lag", "NaN"));
        });
    }
}
