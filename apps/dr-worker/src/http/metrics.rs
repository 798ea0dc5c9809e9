//! `/metrics`. What is a state is read when it is asked for; what happens is counted where it
//! happens, by the crate that does it.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use election_core::{
    Skipped,
    record::{Cause, Health},
};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::status::{lease_remaining, session_word};
use crate::{
    config::{JobConfig, NodeConfig},
    error::Error,
    job::ProcessState,
    run::Worker,
};

/// Of a phase of a change: from a decision on a good network to a job that is slow to be ready.
const PHASE_SECONDS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

const PROCESS_STATES: [ProcessState; 6] = [
    ProcessState::Starting,
    ProcessState::Running,
    ProcessState::Backoff,
    ProcessState::Stopping,
    ProcessState::Stopped,
    ProcessState::Failed,
];

/// What histograms keep beside their buckets is let go of in this interval.
const UPKEEP: Duration = Duration::from_secs(5);

/// Makes this process count, and describes everything that is counted.
pub(crate) fn install(node: &NodeConfig, jobs: &[JobConfig]) -> Result<PrometheusHandle, Error> {
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

/// Lets go of what is not needed any more, for ever.
pub(super) async fn upkeep(handle: PrometheusHandle) {
    let mut timer = tokio::time::interval(UPKEEP);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        handle.run_upkeep();
    }
}

pub(super) async fn render(
    State(worker): State<Arc<Worker>>,
    State(handle): State<PrometheusHandle>,
) -> Response {
    read_states(&worker);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render()).into_response()
}

// Counts are far below 2^53, and a token beyond it is only for people to look at here.
#[allow(clippy::cast_precision_loss)]
fn read_states(worker: &Worker) {
    let session = session_word(worker);
    for state in ["active", "paused", "inactive"] {
        gauge!("dr_session_state", "state" => state).set(is(state == session));
    }
    let remaining = lease_remaining(worker).unwrap_or_default();
    gauge!("dr_lease_remaining_seconds").set(remaining.as_secs_f64());
    for job in worker.jobs() {
        let name = || job.slot.name().to_owned();
        let status = job.election.status_now();
        let led = status.slot.filter(|_| status.leads_now());
        let token = status.fencing_token.unwrap_or(0) as f64;
        match status.leaders.len() {
            0 | 1 => {
                gauge!("dr_leader", "job" => name()).set(is(led.is_some()));
                gauge!("dr_fencing_token", "job" => name()).set(token);
            }
            slots => {
                for slot in 0..slots {
                    let label = slot.to_string();
                    gauge!("dr_leader", "job" => name(), "slot" => label.clone()).set(is(led == Some(slot)));
                    let token = if status.slot == Some(slot) { token } else { 0.0 };
                    gauge!("dr_fencing_token", "job" => name(), "slot" => label).set(token);
                }
            }
        }
        gauge!("dr_term", "job" => name()).set(status.term as f64);
        gauge!("dr_healthy", "job" => name()).set(match status.health {
            Health::Healthy => 1.0,
            Health::Unhealthy { .. } => 0.0,
            Health::Unchecked | Health::Unknown => f64::NAN,
        });
        gauge!("dr_held", "job" => name()).set(is(status.skipped.as_ref().is_some_and(Skipped::is_hold)));
        gauge!("dr_seconds_since_ready_leader", "job" => name()).set(job.vacancy.lasts().as_secs_f64());
        let process = job.slot.process();
        for state in PROCESS_STATES {
            gauge!("dr_process_state", "job" => name(), "state" => state.as_str())
                .set(is(state == process.state));
        }
        counter!("dr_process_restarts_total", "job" => name()).absolute(job.slot.restarts());
    }
}

fn is(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}
