//! `/metrics`: the gauges are set when they are asked for; counters and histograms are recorded where things happen.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

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
    app::App,
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

pub(super) async fn render(State(App { worker, metrics, .. }): State<App>) -> Response {
    read_member(&worker);
    let jobs: HashMap<_, _> = worker.jobs().iter().map(|job| (job.slot.name(), read_job(job))).collect();
    // The balancer's election is not a job, and is served.
    let mut served = Bounded::new(|scope, job: &str| {
        jobs.get(job)
            .is_none_or(|ServedJob { here, elects }| *here || scope == Scope::HereOrElector && *elects)
    });
    match metrics.render_to_write(&mut served) {
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
    let mut set = job.gauges.lock();
    // Before the first decision, and until it is read, by the configuration.
    let labels = match status.elected.as_ref().map_or(job.slots, |elected| elected.slots.len()) {
        0 | 1 => BTreeSet::from([None]),
        slots => (0..slots).map(Some).collect(),
    };
    for slot in labels.union(&set.slots) {
        let (is_gone, is_own) = (!labels.contains(slot), slot.is_none() || *slot == status.slot);
        let leads = if is_gone { f64::NAN } else { is(led.is_some() && is_own) };
        let label = slot.map(|slot| ("slot", slot.to_string()));
        let labels: Vec<_> = [("job", name())].into_iter().chain(label).collect();
        gauge!("dr_leader", &labels).set(leads);
        if here {
            let own = if is_own { token } else { 0.0 };
            gauge!("dr_fencing_token", &labels).set(if is_gone { f64::NAN } else { own });
        }
    }
    set.slots.extend(labels);
    let term = job.vacancy.term(status.elected.as_ref().map(|elected| elected.term));
    gauge!("dr_term", "job" => name()).set(term.map_or(f64::NAN, |term| term as f64));
    let fit = match status.health {
        Health::Healthy => Some(1.0),
        Health::Unhealthy { .. } => Some(0.0),
        Health::Unknown => Some(f64::NAN),
        Health::Unchecked => set.healthy.then_some(f64::NAN),
    };
    if let Some(fit) = fit {
        gauge!("dr_healthy", "job" => name()).set(fit);
        set.healthy = true;
    }
    gauge!("dr_held", "job" => name())
        .set(is(status.skipped.as_ref().is_some_and(|skipped| skipped.is_hold())));
    gauge!("dr_stopped", "job" => name()).set(is(job.slot.stopped().is_some()));
    gauge!("dr_seconds_since_ready_leader", "job" => name())
        .set(job.vacancy.lasts().map_or(f64::NAN, |lasts| lasts.as_secs_f64()));
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
        let present = process.processes.iter().map(|NamedStatus { name, status, .. }| (name, status.state));
        let present: BTreeMap<_, _> = present.collect();
        set.processes.extend(present.keys().map(|process| (*process).clone()));
        for state in ProcessState::ALL {
            gauge!("dr_process_state", "job" => name(), "state" => state.as_str())
                .set(is(state == process.state));
            for process in &set.processes {
                gauge!("dr_job_process_state", "job" => name(), "process" => process.clone(), "state" => state.as_str())
                    .set(is(present.get(process) == Some(&state)));
            }
        }
        counter!("dr_process_restarts_total", "job" => name()).absolute(job.slot.restarts());
    }
    ServedJob { here, elects: status.is_elector }
}

fn is(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}
