//! Whether this member is fit to lead a job: by the job's fitness check, which runs periodically, and by its standby if that is
//! required. The result is published as the member's health.

use std::sync::Arc;

use election_core::{Election, internals::record::Health};
use futures_util::future::OptionFuture;
use job_guard::Tally;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    config::Check,
    mask::mask,
    worker::{job::check_fitness, state::JobSlot},
};

/// Runs until it is dropped.
pub(super) async fn keep(slot: Arc<JobSlot>, election: Election, check: Option<Check>, is_again: bool) {
    let of_check = watch::Sender::new(if check.is_some() { Health::Unknown } else { Health::Healthy });
    let checks =
        check.as_ref().map(|check| try_again_and_again(&slot, &election, check, is_again, &of_check));
    tokio::join!(OptionFuture::from(checks), publish(&slot, &election, &of_check));
}

/// The first answer counts at once, because the member is not elected before it. Later a failure has to repeat itself before
/// leadership moves; that is so from the beginning if the member continues (`is_again`) and was healthy.
async fn try_again_and_again(
    slot: &JobSlot,
    election: &Election,
    check: &Check,
    is_again: bool,
    result: &watch::Sender<Health>,
) {
    let job = slot.name();
    let was_healthy = is_again && election.status().now().health == Health::Healthy;
    let mut tally = match was_healthy {
        true => Tally::new(check.failures),
        false => Tally::reporting_the_first(check.failures),
    };
    loop {
        let next = Instant::now() + check.interval();
        let role = election.status().now().role.as_str();
        let outcome = check_fitness(&slot.spec(), check, &slot.env_of_member(), role, &slot.guards).await;
        let report = tally.answered(outcome.is_ok());
        let failures = tally.in_a_row();
        if let Err(reason) = &outcome {
            tracing::debug!(job, failures, "the fitness check failed: {reason}");
        }
        if report.is_some() {
            result.send_replace(match outcome {
                Ok(()) => {
                    tracing::info!(job, "this member is fit to lead: its fitness check passes");
                    Health::Healthy
                }
                Err(reason) => {
                    tracing::warn!(
                        job,
                        failures,
                        "this member is not fit to lead: its fitness check fails: {reason}"
                    );
                    Health::Unhealthy { reason: format!("fitness: {}", mask(&reason)) }
                }
            });
        }
        sleep_until(next).await;
    }
}

/// Publishes what check and standby say together. Only a change of the result is published, because each is a write.
async fn publish(slot: &JobSlot, election: &Election, of_check: &watch::Sender<Health>) {
    let last = parking_lot::Mutex::new(Health::Unknown);
    let seen = || {
        let problem = slot.standby().and_then(|standby| standby.problem());
        let health = match problem {
            Some(reason) => Health::Unhealthy { reason },
            None => of_check.borrow().clone(),
        };
        let mut last = last.lock();
        if health != Health::Unknown && *last != health {
            last.clone_from(&health);
            election.set_health(health);
        }
    };
    let of_standby = OptionFuture::from(slot.standby().map(|standby| standby.watch(&seen)));
    let mut results = of_check.subscribe();
    let of_results = async {
        loop {
            seen();
            if results.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::join!(of_standby, of_results);
}
