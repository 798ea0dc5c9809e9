//! Publishes whether the standby of a job is ready, as an attribute of this member, for the one that notifies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use job_guard::ProcessState;
use tokio::{sync::watch, time::sleep};

use super::measured::Measured;
use crate::{wall::unix_ms, worker::job::Standby, znodes::StandbyReport};

/// From a change to its write: a standby that is ready again within it is not reported, and one that is started again and again
/// costs no more than one write in this time.
const SETTLE: Duration = Duration::from_secs(3);

/// Publishes until it is dropped.
pub(super) async fn keep(standby: Arc<Standby>, job: String, publishes: Arc<Measured>) {
    let report = watch::Sender::new(None);
    let has_led = AtomicBool::new(false);
    let seen = || {
        let is_ready = standby.process().map(|process| process.state == ProcessState::Running);
        has_led.fetch_or(is_ready.is_none(), Relaxed);
        let is_changed = report.send_if_modified(|report| {
            let next = StandbyReport::next(*report, is_ready, unix_ms());
            std::mem::replace(report, next) != next
        });
        if is_ready == Some(true) && !is_changed {
            has_led.store(false, Relaxed);
        }
    };
    let mut reports = report.subscribe();
    let publish = async {
        while reports.changed().await.is_ok() {
            // The report that remained while this member led is not true any more.
            if !has_led.swap(false, Relaxed) {
                sleep(SETTLE).await;
            }
            let report = *reports.borrow_and_update();
            publishes.change(&job, |parts| parts.of_standby = report);
        }
    };
    tokio::join!(standby.watch(&seen), publish);
}
