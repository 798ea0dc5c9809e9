//! The metrics of this process: the recorder, their descriptions, and what elections report.

use std::time::Duration;

use election_core::{ElectionEvent, record::Cause};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{
    config::{JobConfig, NodeConfig},
    error::Error,
};

/// Of a phase of a change: from a decision on a good network to a job that is slow to be ready.
const PHASE_SECONDS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Makes this process count, and describes everything that is counted.
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
    describe_gauge!("dr_term", "The decision's term, as this member has last seen it");
    describe_gauge!("dr_fencing_token", "The fencing token of the leadership that this member holds, else 0");
    describe_gauge!("dr_session_state", "1 for the state that the ZooKeeper session is in, 0 for the others");
    describe_gauge!(
        "dr_lease_remaining_seconds",
        Unit::Seconds,
        "How long this member may lead on without another sign of life; 0 while it keeps no lease"
    );
    describe_counter!("dr_transitions_total", "Leaderships that this member has entered, by cause");
    describe_histogram!(
        "dr_transition_phase_seconds",
        Unit::Seconds,
        "How long each phase of a change of leadership took"
    );
    describe_counter!("dr_takeover_failures_total", "Takeovers of this member that failed");
    describe_gauge!(
        "dr_process_state",
        "1 for the state that the job's process is in here, 0 for the others"
    );
    describe_counter!(
        "dr_process_restarts_total",
        "Times that the job was started again here after it had ended"
    );
    describe_gauge!(
        "dr_peer_rtt_seconds",
        Unit::Seconds,
        "The smoothed round trip to another member's HTTP endpoints; NaN where it does not answer"
    );
    describe_counter!("dr_probes_total", "Probes of members, ZooKeeper and targets, by outcome");
    describe_counter!(
        "dr_round_trips_published_total",
        "Times that this member has published its round trips, each of them a write"
    );
    describe_counter!(
        "dr_balance_moves_total",
        "Moves for the sake of even shares that this member has asked for, by what has become of them"
    );
    describe_counter!("dr_measurements_total", "Runs of the job's command that measures, by outcome");
    describe_gauge!(
        "dr_measured",
        "What that command says last, where it is a number; NaN when it is not known"
    );
    describe_gauge!(
        "dr_held",
        "1 on the elector while it names nobody after too many takeovers or failures of the job, else 0"
    );
    describe_gauge!(
        "dr_healthy",
        "1 while this member is reported fit to lead, 0 while it is not; NaN while nothing has checked it"
    );
    describe_counter!(
        "dr_liveness_failures_total",
        "Times that the job was ended here because it ran and its liveness check failed"
    );
    // Its name has the unit: the exporter would put another one at its end.
    describe_gauge!(
        "dr_seconds_since_ready_leader",
        "How long this member has known of no READY leader (of a slot at least); 0 while there is one"
    );
    describe_counter!(
        "dr_log_lines_dropped_total",
        "Lines of the log that were dropped because standard error took none; with a job's name, lines of its output"
    );
    describe_counter!("dr_skipped_total", "Times that this member as elector decided nothing, by reason");
}

/// A counter that has never been counted must be there too, or its first step is not seen.
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
