//! The metrics of this process: the recorder, their descriptions, and what elections report.

use std::time::Duration;

use election_core::{ElectionEvent, record::Cause};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{
    config::{JobConfig, NodeConfig},
    error::Error,
};

/// The buckets of a phase: from a decision on a fast network to a job that is slow to be ready.
const PHASE_SECONDS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Installs the recorder, and describes all metrics.
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
    counter!("dr_log_lines_dropped_total").absolute(0);
    zk_session::describe_metrics();
    for job in jobs {
        begin(job.name());
    }
    Ok(handle)
}

fn describe() {
    describe_gauge!("dr_leader", "1 on the READY leader whose lease is valid, else 0");
    describe_gauge!("dr_term", "Term of the last decision that this member has read");
    describe_gauge!("dr_fencing_token", "Fencing token of this member's leadership, else 0");
    describe_gauge!("dr_session_state", "1 for the current state of the ZooKeeper session, 0 for the others");
    describe_gauge!(
        "dr_lease_remaining_seconds",
        Unit::Seconds,
        "Time until this member's lease ends unless it is renewed; 0 without a lease"
    );
    describe_counter!("dr_transitions_total", "Leaderships that became READY on this member, by cause");
    describe_histogram!(
        "dr_transition_phase_seconds",
        Unit::Seconds,
        "Duration of each phase of a leadership change"
    );
    describe_counter!("dr_takeover_failures_total", "Failed takeovers of this member");
    describe_gauge!(
        "dr_process_state",
        "1 for the current state of the job's process on this member, 0 for the others"
    );
    describe_counter!("dr_process_restarts_total", "Restarts of the job on this member");
    describe_gauge!(
        "dr_peer_rtt_seconds",
        Unit::Seconds,
        "Smoothed round trip to another member's HTTP endpoints; NaN if it does not answer"
    );
    describe_counter!("dr_probes_total", "Probes of members, ZooKeeper and targets, by outcome");
    describe_counter!(
        "dr_round_trips_published_total",
        "Publications of this member's round trips; each is a write to ZooKeeper"
    );
    describe_counter!(
        "dr_balance_moves_total",
        "Moves for even shares that this member requested, by outcome"
    );
    describe_counter!("dr_measurements_total", "Runs of the job's measure command, by outcome");
    describe_gauge!("dr_measured", "Last numeric value of the measure command; NaN if unknown");
    describe_gauge!(
        "dr_held",
        "1 on the elector while the election is on hold after too many takeovers or failures of the job, else 0"
    );
    describe_gauge!("dr_healthy", "1 if this member is fit to lead, 0 if not; NaN if unchecked");
    describe_counter!(
        "dr_liveness_failures_total",
        "Stops of the job on this member because its liveness check failed"
    );
    // Its name has the unit already: the exporter would append another one.
    describe_gauge!(
        "dr_seconds_since_ready_leader",
        "Time without a known READY leader in at least one slot; 0 while there is one"
    );
    describe_counter!(
        "dr_log_lines_dropped_total",
        "Log lines dropped because the log was blocked; with the label job, lines of its output, wherever it goes"
    );
    describe_counter!(
        "dr_skipped_total",
        "Passes of this member as the elector that decided nothing, by reason"
    );
}

/// Sets counters to 0: otherwise their first increment is not visible.
fn begin(job: &str) {
    for cause in Cause::ALL {
        counter!("dr_transitions_total", "job" => job.to_owned(), "cause" => cause.as_str()).absolute(0);
    }
    counter!("dr_takeover_failures_total", "job" => job.to_owned()).absolute(0);
    counter!("dr_process_restarts_total", "job" => job.to_owned()).absolute(0);
    counter!("dr_liveness_failures_total", "job" => job.to_owned()).absolute(0);
    counter!("dr_log_lines_dropped_total", "job" => job.to_owned()).absolute(0);
}

/// Records what happened in the election of `job`.
pub(super) fn record(job: &str, event: ElectionEvent) {
    let job = || job.to_owned();
    match event {
        ElectionEvent::Skipped(reason) => {
            counter!("dr_skipped_total", "job" => job(), "reason" => reason.as_str()).increment(1);
        }
        ElectionEvent::TakeoverFailed => counter!("dr_takeover_failures_total", "job" => job()).increment(1),
        ElectionEvent::Ready { cause, phases } => {
            counter!("dr_transitions_total", "job" => job(), "cause" => cause.as_str()).increment(1);
            for (phase, ms) in [
                ("decide", phases.decide_ms),
                ("release", phases.release_ms),
                ("acquire", phases.acquire_ms),
                ("takeover", phases.takeover_ms),
            ] {
                let seconds = Duration::from_millis(ms).as_secs_f64();
                histogram!("dr_transition_phase_seconds", "job" => job(), "phase" => phase).record(seconds);
            }
        }
        _ => {}
    }
}
