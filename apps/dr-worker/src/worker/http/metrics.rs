//! `/metrics`: the gauges are set when they are asked for; counters and histograms are recorded where things happen.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use election_core::internals::record::Health;
use job_guard::{NamedStatus, ProcessState};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;

use super::{
    answer,
    status::{lease_remaining, session_word},
};
use crate::worker::{
    metrics::{Bounded, Scope},
    state::{Job, Worker},
};

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
    read_member(&worker);
    let jobs: HashMap<_, _> = worker.jobs().iter().map(|job| (job.slot.name(), read_job(job))).collect();
    // The balancer's election is not a job, and is served.
    let mut served = Bounded::new(|scope, job: &str| {
        jobs.get(job)
            .is_none_or(|ServedJob { here, elects }| *here || scope == Scope::HereOrElector && *elects)
    });
    match handle.render_to_write(&mut served) {
        Ok(()) => {
            let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (text, served.into_text()).into_response()
        }
        Err(error) => answer::refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// What is served of a job.
struct ServedJob {
    here: bool,
    elects: bool,
}

fn read_member(worker: &Worker) {
    let session = session_word(worker);
    for state in ["active", "paused", "inactive"] {
        gauge!("dr_session_state", "state" => state).set(is(state == session));
    }
    let remaining = lease_remaining(worker).unwrap_or_default();
    gauge!("dr_lease_remaining_seconds").set(remaining.as_secs_f64());
}

// Counts are far below 2^53, and a larger token is only displayed here.
#[allow(clippy::cast_precision_loss)]
fn read_job(job: &Job) -> ServedJob {
    let name = || job.slot.name().to_owned();
    let status = job.election.status().now();
    let here = job.slot.is_or_was_here();
    let led = status.slot.filter(|_| status.leads_now());
    let token = status.fencing_token.unwrap_or(0) as f64;
    // By the configuration too: the first decision has not been read yet, or does not exist.
    match status.leaders.len().max(job.slots) {
        0 | 1 => {
            gauge!("dr_leader", "job" => name()).set(is(led.is_some()));
            if here {
                gauge!("dr_fencing_token", "job" => name()).set(token);
            }
        }
        slots => {
            for slot in 0..slots {
                let label = slot.to_string();
                gauge!("dr_leader", "job" => name(), "slot" => label.clone()).set(is(led == Some(slot)));
                if here {
                    let token = if status.slot == Some(slot) { token } else { 0.0 };
                    gauge!("dr_fencing_token", "job" => name(), "slot" => label).set(token);
                }
            }
        }
    }
    // The leader's own term can be an older one: of a slot, or of one that has called a move off.
    let decided = status.elected.as_ref().map_or(status.term, |elected| elected.term);
    gauge!("dr_term", "job" => name()).set(decided as f64);
    let fit = match status.health {
        Health::Healthy => Some(1.0),
        Health::Unhealthy { .. } => Some(0.0),
        Health::Unknown => Some(f64::NAN),
        Health::Unchecked => None,
    };
    if let Some(fit) = fit {
        gauge!("dr_healthy", "job" => name()).set(fit);
    }
    gauge!("dr_held", "job" => name())
        .set(is(status.skipped.as_ref().is_some_and(|skipped| skipped.is_hold())));
    gauge!("dr_stopped", "job" => name()).set(is(job.slot.stopped().is_some()));
    gauge!("dr_seconds_since_ready_leader", "job" => name()).set(job.vacancy.lasts().as_secs_f64());
    if let Some(standby) = job.slot.standby() {
        let process = standby.process();
        for state in ProcessState::ALL {
            gauge!("dr_standby_state", "job" => name(), "state" => state.as_str())
                .set(is(process.as_ref().is_some_and(|process| process.state == state)));
        }
        counter!("dr_standby_restarts_total", "job" => name()).absolute(standby.restarts());
    }
    if here {
        let process = job.slot.process();
        for state in ProcessState::ALL {
            gauge!("dr_process_state", "job" => name(), "state" => state.as_str())
                .set(is(state == process.state));
            for NamedStatus { name: process, status, .. } in &process.processes {
                gauge!("dr_job_process_state", "job" => name(), "process" => process.clone(), "state" => state.as_str())
                    .set(is(state == status.state));
            }
        }
        counter!("dr_process_restarts_total", "job" => name()).absolute(job.slot.restarts());
    }
    ServedJob { here, elects: status.is_elector }
}

fn is(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}
