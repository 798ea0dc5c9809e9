//! Follows the overlays of this worker's jobs in ZooKeeper.
//!
//! Each member checks an overlay with its own files before it applies it, and goes on with the former version otherwise: a
//! bad push stops no job. A restart that an overlay needs is a request like an operator's, so the leader does it once.

use std::{collections::BTreeMap, future::pending};

use election_core::internals::{
    record::{AppliedOverlay, Record as _, RefusedOverlay},
    text::{self, cut, shown},
};
use futures_util::{StreamExt as _, TryStreamExt as _, future::OptionFuture, stream};
use metrics::gauge;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use zk_session::{DataWatch, Incarnation, Session};

use super::{settings::paths, task::Task};
use crate::{
    config::{Config, JobConfig, Overlays as Allowed, SETTLE, Usable},
    error::Error,
    znodes::{Overlay, WorkerPaths as _, overlays},
};

/// How many are read at a time.
const READ_AT_ONCE: usize = 64;

/// The newest overlay of each job that has one, or why it can't be read.
type SeenOverlays = BTreeMap<String, Result<Overlay, String>>;

/// The overlays of this worker's jobs.
pub(super) struct FollowedOverlays {
    seen: watch::Receiver<SeenOverlays>,
    /// When the last change is applied.
    due: Option<Instant>,
    /// Those that are in force.
    used: BTreeMap<String, Overlay>,
    _tasks: Vec<Task>,
}

impl FollowedOverlays {
    /// Reads and follows the overlays of all jobs, unless this node takes none.
    pub(super) async fn follow(
        session: &Session,
        incarnation: &Incarnation,
        config: &Config,
    ) -> Result<Self, Error> {
        let takes_some = config.zookeeper.overlay != Allowed::Off;
        let jobs: Vec<_> = config.jobs.iter().filter(|_| takes_some).map(JobConfig::name).collect();
        let reads = jobs.iter().map(|job| {
            let (incarnation, paths) = (incarnation.clone(), paths(config, job));
            async move {
                let overlay = match overlays::read(&incarnation, &paths?).await {
                    Ok(overlay) => overlay.map(Ok),
                    Err(election_admin::AdminError::Record(error)) => Some(Err(error.to_string())),
                    Err(error) => return Err(Error::from(error)),
                };
                Ok::<_, Error>(overlay.map(|overlay| ((*job).to_owned(), overlay)))
            }
        });
        let read: Vec<Option<_>> = stream::iter(reads).buffered(READ_AT_ONCE).try_collect().await?;
        let seen: SeenOverlays = read.into_iter().flatten().collect();
        let (sender, seen) = watch::channel(seen);
        let mut tasks = Vec::new();
        for job in jobs {
            let watch = session.watch_data(paths(config, job)?.config());
            tasks.push(Task::spawn(follow(job.to_owned(), watch, sender.clone())));
        }
        Ok(Self { seen, due: None, used: BTreeMap::new(), _tasks: tasks })
    }

    /// Waits for a change of an overlay, or until no other one has followed the last change for a while. Returns whether the
    /// overlays are to be applied now. Cancel safe.
    pub(super) async fn next(&mut self) -> bool {
        let settled = OptionFuture::from(self.due.map(sleep_until));
        tokio::select! {
            // Closed if this node takes no overlays.
            Ok(()) = self.seen.changed() => {
                self.due = Some(Instant::now() + SETTLE);
                false
            }
            Some(()) = settled => {
                self.due = None;
                true
            }
            else => pending().await,
        }
    }

    /// Whether every change is applied, or refused.
    pub(super) fn are_settled(&self) -> bool {
        self.due.is_none() && !self.seen.borrow().has_changed()
    }

    /// The newest overlays that can be read, and those in force.
    pub(super) fn present(&self) -> (BTreeMap<String, Overlay>, BTreeMap<String, Overlay>) {
        (self.newest(&self.seen.borrow()), self.used.clone())
    }

    /// The same for a reload, which restarts no job: a change that is not applied yet is not among them.
    pub(super) fn settled(&self) -> (BTreeMap<String, Overlay>, BTreeMap<String, Overlay>) {
        let seen = self.seen.borrow();
        let waits = self.due.is_some() || seen.has_changed();
        let newest = if waits { self.used.clone() } else { self.newest(&seen) };
        (newest, self.used.clone())
    }

    fn newest(&self, seen: &SeenOverlays) -> BTreeMap<String, Overlay> {
        let newest = seen.iter().filter_map(|(job, overlay)| match overlay {
            Ok(overlay) => Some((job.clone(), overlay.clone())),
            Err(_) => Some((job.clone(), self.used.get(job)?.clone())),
        });
        newest.collect()
    }

    /// These are in force now. Returns what each job's member reports about it.
    pub(super) fn used(&mut self, usable: &Usable) -> BTreeMap<String, AppliedOverlay> {
        let seen = self.seen.borrow();
        let mut states = BTreeMap::new();
        for job in usable.config.jobs.iter().map(JobConfig::name) {
            let version = usable.used.get(job).map_or(0, |overlay| overlay.version);
            let refused = match (seen.get(job), usable.refused.get(job)) {
                (Some(Err(reason)), _) => Some(RefusedOverlay { version: 0, reason: reason.clone() }),
                (Some(Ok(overlay)), Some(problems)) => {
                    let reasons: Vec<_> = problems.iter().map(ToString::to_string).collect();
                    // They quote the overlay.
                    let mut reason = shown(&reasons.join("; ")).into_owned();
                    cut(&mut reason, text::MAX);
                    Some(RefusedOverlay { version: overlay.version, reason })
                }
                _ => None,
            };
            if let Some(RefusedOverlay { version: newer, reason }) = &refused {
                tracing::error!(
                    job,
                    "this member refuses configuration version {newer} of ZooKeeper, and goes on with version {version}: {reason}"
                );
            }
            let before = self.used.get(job).map_or(0, |overlay| overlay.version);
            if let Some(overlay) = usable.used.get(job).filter(|overlay| overlay.version != before) {
                let (by, reason) = (&overlay.by, &overlay.reason);
                tracing::info!(job, by, reason, "configuration version {version} of ZooKeeper is in force");
            }
            if seen.contains_key(job) || before > 0 {
                gauge!("dr_config_version", "job" => job.to_owned()).set(version as f64);
                gauge!("dr_config_refused", "job" => job.to_owned()).set(f64::from(refused.is_some()));
            }
            if version > 0 || refused.is_some() {
                states.insert(job.to_owned(), AppliedOverlay { version, refused });
            }
        }
        drop(seen);
        self.used.clone_from(&usable.used);
        states
    }

    /// The overlays that are in force, by job.
    pub(super) fn in_force(&self) -> &BTreeMap<String, Overlay> {
        &self.used
    }
}

async fn follow(job: String, mut watch: DataWatch, sender: watch::Sender<SeenOverlays>) {
    let path = watch.path().to_owned();
    while let Ok(seen) = watch.next_allowed().await {
        let overlay = seen.value.map(|node| Overlay::decode(&path, &node.data).map_err(|e| e.to_string()));
        sender.send_if_modified(|all| {
            let is_new = all.get(&job) != overlay.as_ref();
            match overlay {
                Some(overlay) => drop(all.insert(job.clone(), overlay)),
                None => drop(all.remove(&job)),
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reload_leaves_a_change_to_the_one_that_restarts_jobs() {
        let overlay = |version: u64| {
            let record = json!({ "v": 1, "version": version, "text": "" });
            Overlay::decode("/dr/orders/config", record.to_string().as_bytes()).unwrap()
        };
        let of = |version| BTreeMap::from([("orders".to_owned(), overlay(version))]);
        let (sender, seen) = watch::channel(SeenOverlays::from([("orders".to_owned(), Ok(overlay(1)))]));
        let mut overlays = FollowedOverlays { seen, due: None, used: of(1), _tasks: Vec::new() };
        assert!(overlays.are_settled());
        sender.send_modify(|all| drop(all.insert("orders".to_owned(), Ok(overlay(2)))));
        for is_noticed in [false, true] {
            assert!(!overlays.are_settled(), "{is_noticed}");
            assert_eq!(overlays.settled(), (of(1), of(1)), "{is_noticed}");
            assert_eq!(overlays.present(), (of(2), of(1)), "{is_noticed}");
            assert_eq!(overlays.next().await, is_noticed);
        }
        // One that was refused is tried again with what the reload has read.
        assert_eq!(overlays.settled(), (of(2), of(1)));
        assert!(overlays.are_settled());
    }
}
