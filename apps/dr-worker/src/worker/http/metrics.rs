//! `/metrics`: the gauges are set when they are asked for; counters and histograms are recorded where things happen.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use election_core::{Skipped, record::Health};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;

use super::status::{lease_remaining, session_word};
use crate::worker::{job::ProcessState, state::Worker};

/// How often samples of histograms are drained into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// Drains the samples of histograms, until it is dropped.
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

// Counts are far below 2^53, and a larger token is only displayed here.
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
        let status = job.election.status().now();
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
        for state in ProcessState::ALL {
            gauge!("dr_process_state", "job" => name(), "state" => state.as_str())
                .set(is(state == process.state));
        }
        counter!("dr_process_restarts_total", "job" => name()).absolute(job.slot.restarts());
    }
}

fn is(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}
