//! The metrics of this process: the recorder, what is described and served, and what elections report.

mod bounded;
mod list;
#[cfg(test)]
mod tests;

use std::time::Duration;

use election_core::{
    handler::ElectionEvent,
    internals::record::{Cause, Phases},
};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{
    config::{HookName, JobConfig, NodeConfig},
    error::Error,
};
pub(super) use bounded::Bounded;
pub(super) use list::Scope;
use list::{METRICS, Metric, MetricKind};

/// The buckets of a phase: from a decision on a fast network to a job that is slow to be ready.
const PHASE_SECONDS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// The outcomes of a reload of the configuration.
pub(super) const RELOADS: [&str; 2] = ["done", "refused"];

/// The phase that only probes can measure.
const DETECT: &str = "detect";

/// The other phases of a change of leadership, by name, as far as they are known.
fn phases(of: &Phases) -> [(&'static str, Option<Duration>); 4] {
    let all = [
        ("decide", of.decide_ms),
        ("release", of.release_ms),
        ("acquire", of.acquire_ms),
        ("takeover", of.takeover_ms),
    ];
    all.map(|(phase, ms)| (phase, ms.map(Duration::from_millis)))
}

/// Installs the recorder, describes all metrics, and begins those that must exist before anything happens.
pub(super) fn install(node: &NodeConfig, jobs: &[JobConfig]) -> Result<PrometheusHandle, Error> {
    let failed = |e: metrics_exporter_prometheus::BuildError| Error::Internal(format!("no metrics: {e}"));
    let handle = PrometheusBuilder::new()
        .with_recommended_naming(true)
        .add_global_label("member", node.id.as_str())
        .add_global_label("site", node.site.as_str())
        .set_buckets_for_metric(
            Matcher::Full("zk_session_request_seconds".into()),
            &zk_session::REQUEST_SECONDS_BUCKETS,
        )
        .map_err(failed)?
        .set_buckets_for_metric(Matcher::Full("dr_transition_phase_seconds".into()), &PHASE_SECONDS)
        .map_err(failed)?
        .install_recorder()
        .map_err(failed)?;
    describe();
    // Of a counter or a histogram that appears with its first event, `rate` and `increase` miss that event.
    counter!("dr_log_lines_dropped_total").absolute(0);
    counter!("dr_http_control_refused_total").absolute(0);
    for outcome in RELOADS {
        counter!("dr_config_reloads_total", "outcome" => outcome).absolute(0);
    }
    for job in jobs {
        counter!("dr_takeover_failures_total", "job" => job.name().to_owned()).absolute(0);
        for outcome in ["done", "failed"].into_iter().filter(|_| job.spec.fence.is_some()) {
            counter!("dr_fences_total", "job" => job.name().to_owned(), "outcome" => outcome).absolute(0);
        }
        for name in HookName::ALL.into_iter().filter(|name| job.spec.hooks.get(*name).is_some()) {
            for counter in ["dr_hook_failures_total", "dr_hook_runs_dropped_total"] {
                counter!(counter, "job" => job.name().to_owned(), "hook" => name.as_str()).absolute(0);
            }
        }
    }
    for (phase, _) in phases(&Phases::default()) {
        begin_phase(phase);
    }
    Ok(handle)
}

fn describe() {
    for Metric { name, kind, help, .. } in METRICS.iter() {
        let (name, help) = (name.as_str(), help.as_str());
        // The exporter appends a unit with which the name does not end.
        let is_in_seconds = name.ends_with("_seconds");
        match kind {
            MetricKind::Counter => describe_counter!(name, help),
            MetricKind::Gauge if is_in_seconds => describe_gauge!(name, Unit::Seconds, help),
            MetricKind::Gauge => describe_gauge!(name, help),
            MetricKind::Histogram if is_in_seconds => describe_histogram!(name, Unit::Seconds, help),
            MetricKind::Histogram => describe_histogram!(name, help),
        }
    }
}

/// The histogram exists from here on.
fn begin_phase(phase: &'static str) {
    drop(histogram!("dr_transition_phase_seconds", "phase" => phase));
}

/// This member probes others, so it can find out how long a failure was not noticed.
pub(super) fn begin_detection() {
    begin_phase(DETECT);
}

/// This member begins to take over `job` for this reason: its counters are 0 before they count.
pub(super) fn begin(job: &str, cause: Cause) {
    counter!("dr_transitions_total", "job" => job.to_owned(), "cause" => cause.as_str()).absolute(0);
    counter!("dr_process_restarts_total", "job" => job.to_owned()).absolute(0);
    counter!("dr_liveness_failures_total", "job" => job.to_owned()).absolute(0);
    counter!("dr_log_lines_dropped_total", "job" => job.to_owned()).absolute(0);
}

/// How long a change of leadership took from when the elector noticed that it was necessary.
pub(super) fn took(of: &Phases) -> Option<Duration> {
    phases(of).into_iter().map(|(_, took)| took).sum()
}

/// All phases of a change of leadership, in their order. `detected` is how long the failure that led to it was not noticed.
pub(super) fn all_phases(
    of: &Phases,
    detected: Option<Duration>,
) -> impl Iterator<Item = (&'static str, Option<Duration>)> {
    [(DETECT, detected)].into_iter().chain(phases(of))
}

/// Records what happened in the election of `job`. `detected` is how long the failure that led to it was not noticed.
pub(super) fn record(job: &str, event: ElectionEvent, detected: Option<Duration>) {
    let job = || job.to_owned();
    match event {
        ElectionEvent::Skipped(reason) => {
            counter!("dr_skipped_total", "job" => job(), "reason" => reason.as_str()).increment(1);
        }
        ElectionEvent::TakeoverFailed => counter!("dr_takeover_failures_total", "job" => job()).increment(1),
        ElectionEvent::Ready { cause, phases: of } => {
            counter!("dr_transitions_total", "job" => job(), "cause" => cause.as_str()).increment(1);
            for (phase, took) in all_phases(&of, detected) {
                let seconds = took.map_or(f64::NAN, |took| took.as_secs_f64());
                if took.is_some() {
                    histogram!("dr_transition_phase_seconds", "phase" => phase).record(seconds);
                }
                gauge!("dr_last_transition_phase_seconds", "job" => job(), "phase" => phase).set(seconds);
            }
        }
        _ => {}
    }
}
