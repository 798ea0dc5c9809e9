//! `watch`: each change of elections, as one JSON object on one line.
//!
//! A watch of ZooKeeper reports that something has changed, and the election is read again. What differs from the last
//! look is printed. So no state is missed in the end, also after a lost connection; states between two reads are.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use election_admin::ReadError;
use election_core::internals::record::HistoryEntry;
use futures_util::FutureExt as _;
use serde::Serialize;
use serde_json::json;
use zk_session::{ChangeKind, SessionState};

use super::{global::AllJobs, output};
use crate::{
    commands::Operator,
    config::Sources,
    error::Error,
    signals::Signals,
    view::{Change, Cluster},
    wall::unix_ms,
};

/// The pause before an election is read again after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// How often a reader that has gone is looked for.
const READER: Duration = Duration::from_millis(500);

/// `watch`
pub(super) async fn watch(arguments: &AllJobs, sources: &Sources) -> Result<(), Error> {
    let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    let ends = async {
        tokio::select! {
            signal = signals.next() => tracing::debug!("ends by {signal}"),
            () = until_unread() => tracing::debug!("ends because standard output is closed"),
        }
    };
    tokio::pin!(ends);
    let operator = tokio::select! {
        operator = Operator::connect(sources) => operator?,
        () = &mut ends => return Ok(()),
    };
    let result = tokio::select! {
        result = follow(&operator, arguments.job.as_deref()) => result,
        () = ends => Ok(()),
    };
    operator.close().await;
    match result {
        Err(WatchEnd::Unread) => Ok(()),
        Err(WatchEnd::Failed(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// Why there is nothing more to print.
enum WatchEnd {
    /// No program reads the output any more.
    Unread,
    Failed(Error),
}

impl From<Error> for WatchEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Ends when no program reads standard output any more.
async fn until_unread() {
    while !output::is_unread() {
        tokio::time::sleep(READER).await;
    }
}

/// A line of the output.
#[derive(Serialize)]
struct WatchLine<'a> {
    at_ms: u64,
    /// Whether this is the state at the start, not a change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    initial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    #[serde(flatten)]
    change: Change,
}

async fn print(change: Change, job: Option<&str>, initial: bool) -> Result<(), WatchEnd> {
    let line = WatchLine { at_ms: unix_ms(), initial, job, change };
    let line = serde_json::to_string(&line).map_err(|e| Error::Internal(format!("can't write JSON: {e}")))?;
    // A reader that is slow must not keep this command from ending.
    match tokio::task::spawn_blocking(move || output::write_line(line)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(WatchEnd::Unread),
        Ok(Err(error)) => Err(Error::Failed(format!("can't write to standard output: {error}")).into()),
        Err(error) => Err(Error::Internal(error.to_string()).into()),
    }
}

async fn follow(operator: &Operator, job: Option<&str>) -> Result<(), WatchEnd> {
    if let Some(job) = job {
        operator.paths(job)?;
    }
    tokio::try_join!(report_session(operator), report_elections(operator, job)).map(|_| ())
}

/// Reports when the session is not usable, and when it is again.
async fn report_session(operator: &Operator) -> Result<(), WatchEnd> {
    let mut states = operator.session.subscribe();
    let mut last = None;
    loop {
        let state = states.borrow_and_update().clone();
        let word = match &state {
            SessionState::Active { .. } => "active",
            SessionState::Paused { .. } => "paused",
            _ => "inactive",
        };
        if last != Some(word) {
            let change = Change::new("session", json!({ "state": word }));
            print(change, None, last.is_none()).await?;
            last = Some(word);
        }
        if state == SessionState::Closed || states.changed().await.is_err() {
            return Err(Error::Unreachable("the session with ZooKeeper is closed".to_owned()).into());
        }
    }
}

/// What is read again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stale {
    /// Everything, including which elections there are.
    all: bool,
    jobs: BTreeSet<String>,
    /// Jobs whose history has changed.
    histories: BTreeSet<String>,
}

impl Stale {
    /// Adds what a change of the znode at `path` makes stale.
    fn add(&mut self, root: &str, path: &str, kind: ChangeKind) {
        let below = path.strip_prefix(root.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        match below.filter(|_| kind != ChangeKind::Gap) {
            Some(below) if !below.is_empty() => {
                let (job, part) = below.split_once('/').unwrap_or((below, ""));
                self.jobs.insert(job.to_owned());
                if part.split('/').next() == Some("history") {
                    self.histories.insert(job.to_owned());
                }
            }
            _ => self.all = true,
        }
    }
}

/// What was seen of an election.
#[derive(Default)]
struct WatchedElection {
    cluster: Option<Cluster>,
    /// The slots and terms of its history.
    history: Option<BTreeSet<(usize, u64)>>,
}

async fn report_elections(operator: &Operator, job: Option<&str>) -> Result<(), WatchEnd> {
    let root = operator.root();
    let mut changes = match job {
        Some(job) => operator.session.watch_tree(operator.paths(job)?.base()),
        None => operator.session.watch_tree(root),
    };
    let (mut seen, mut stale, mut initial) =
        (BTreeMap::<String, WatchedElection>::new(), Stale::default(), true);
    loop {
        let first = changes.next().await.map_err(|e| Error::Unreachable(e.to_string()))?;
        stale.add(root, &first.path, first.kind);
        loop {
            // What has been reported meanwhile.
            while let Some(Ok(change)) = changes.next().now_or_never() {
                stale.add(root, &change.path, change.kind);
            }
            match look(operator, job, &stale, &mut seen, initial).await {
                Ok(()) => break,
                // The session's state is reported beside; it is read again once it can be.
                Err(WatchEnd::Failed(Error::Unreachable(_))) => tokio::time::sleep(PAUSE).await,
                Err(other) => return Err(other),
            }
        }
        (stale, initial) = (Stale::default(), false);
    }
}

/// Reads what is stale, and prints what differs.
async fn look(
    operator: &Operator,
    only: Option<&str>,
    stale: &Stale,
    seen: &mut BTreeMap<String, WatchedElection>,
    initial: bool,
) -> Result<(), WatchEnd> {
    let observer = operator.observer().await?;
    let is_asked = |job: &str| only.is_none_or(|only| only == job);
    let mut jobs: BTreeSet<_> = stale.jobs.iter().filter(|job| is_asked(job)).cloned().collect();
    if stale.all {
        jobs.extend(seen.keys().cloned());
        match only {
            Some(job) => drop(jobs.insert(job.to_owned())),
            None => jobs.extend(observer.elections(operator.root()).await.map_err(Error::from)?),
        }
    }
    if jobs.is_empty() {
        output::print_progress(format_args!("there is no election under {} yet", operator.root()));
    }
    for job in jobs {
        let paths = operator.paths(&job)?;
        let cluster = match observer.snapshot(&paths).await {
            Ok(snapshot) => Cluster::new(operator.root(), &job, snapshot, unix_ms()),
            Err(ReadError::NoElection(path)) => {
                if seen.remove(&job).is_some() {
                    print(Change::new("gone", json!({})), Some(&job), false).await?;
                } else if initial {
                    output::print_progress(format_args!("there is no election at {path} yet"));
                }
                continue;
            }
            Err(error) => return Err(Error::from(error).into()),
        };
        let known = seen.entry(job.clone()).or_default();
        let is_new = known.cluster.is_none();
        for change in Change::between(known.cluster.as_ref(), &cluster) {
            print(change, Some(&job), initial && is_new).await?;
        }
        known.cluster = Some(cluster);
        if stale.all || known.history.is_none() || stale.histories.contains(&job) {
            let (entries, _) = observer.history(&paths).await.map_err(Error::from)?;
            let key = |entry: &HistoryEntry| (entry.slot, entry.term);
            let now = entries.iter().map(key).collect();
            // Of an election that is new to this command, only what follows.
            if let Some(before) = known.history.replace(now) {
                for entry in entries.iter().filter(|entry| !before.contains(&key(entry))) {
                    let change = Change::new("history", json!({ "leadership": entry }));
                    print(change, Some(&job), false).await?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_makes_its_election_stale() {
        let of = |root: &str, path: &str, kind| {
            let mut stale = Stale::default();
            stale.add(root, path, kind);
            (stale.all, stale.jobs.into_iter().next(), stale.histories.len())
        };
        let orders = Some("orders".to_owned());
        let data = ChangeKind::DataChanged;
        assert_eq!(of("/dr", "/dr/orders/elected", data), (false, orders.clone(), 0));
        assert_eq!(of("/dr", "/dr/orders/history/h-0000000001", data), (false, orders.clone(), 1));
        assert_eq!(of("/dr", "/dr/orders", data), (false, orders.clone(), 0));
        assert_eq!(of("/", "/orders/elected", data), (false, orders, 0));
        assert_eq!(of("/dr", "/dr", data), (true, None, 0));
        assert_eq!(of("/dr", "/dr/orders", ChangeKind::Gap), (true, None, 0));
    }
}
