//! The reports of drills in ZooKeeper: written while a drill runs, and kept.

use crate::znodes::{DrillOrder, WorkerPaths as _, drills};
use election_admin::Attempts;
use election_core::{
    Paths,
    internals::text::{cut, shown},
};
use serde::Serialize;
use zk_session::{CreateMode, Incarnation, MultiOp, OpError, Session};

use super::report::{DrillOutcome, DrillReport};
use crate::error::Error;

/// How many reports of a job are kept.
pub(crate) const KEPT: usize = 20;

/// A report in ZooKeeper that can't be used, or one that can.
pub(crate) type Kept = Result<DrillReport, String>;

/// Writes a report, and creates its znode if there is none. Returns whether it is there: one that is finished is never replaced,
/// since the command that conducts a drill may be lost, and another one ends it then.
pub(crate) async fn write(session: &Session, paths: &Paths, report: &DrillReport) -> Result<bool, Error> {
    let (path, data) = (paths.drill_run(&report.run), encoded(&report.clone().bounded())?);
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let change = match observer.read(&path).await? {
            Some(node) if node.data == data => return Ok(true),
            Some(node) if is_finished(&report.run, &node.data) => return Ok(false),
            Some(node) => MultiOp::set(&path, &*data, node.version),
            None => {
                observer.session().create_parents(&path).await?;
                MultiOp::create(&path, &*data, CreateMode::Persistent)
            }
        };
        if attempts.write([change]).await? {
            return Ok(true);
        }
    }
}

fn is_finished(run: &str, data: &[u8]) -> bool {
    decode(run, data).is_ok_and(|kept| kept.outcome != DrillOutcome::Running)
}

fn encoded(report: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(report).map_err(|error| Error::Internal(format!("can't write the report: {error}")))
}

/// Writes a report of any kind, and creates its znode if there is none.
pub(crate) async fn put(session: &Incarnation, path: &str, report: &impl Serialize) -> Result<(), Error> {
    let data = encoded(report)?;
    match session.set(path, &data, None).await {
        Ok(_) => return Ok(()),
        Err(OpError::NoNode { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    session.create_parents(path).await?;
    session.create(path, &data, CreateMode::Persistent).await?;
    Ok(())
}

/// The ids of all reports, oldest first.
pub(crate) async fn names(session: &Incarnation, paths: &Paths) -> Result<Vec<String>, OpError> {
    let children = session.children(&paths.drill_runs()).await?;
    let mut names = children.map(|children| children.names).unwrap_or_default();
    // No drill has another name, and a command that is shown can have it as an argument.
    names.retain(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
    names.sort();
    Ok(names)
}

/// A report; `None` if there is none.
pub(crate) async fn read(session: &Incarnation, paths: &Paths, run: &str) -> Result<Option<Kept>, OpError> {
    let node = session.get(&paths.drill_run(run)).await?;
    Ok(node.map(|node| decode(run, &node.data)))
}

/// All reports, oldest first, and those that can't be used.
pub(crate) async fn all(session: &Incarnation, paths: &Paths) -> Result<Vec<Kept>, OpError> {
    let mut found = Vec::new();
    for name in names(session, paths).await? {
        // It may have been removed meanwhile.
        found.extend(read(session, paths, &name).await?);
    }
    Ok(found)
}

fn decode(run: &str, data: &[u8]) -> Kept {
    let report: DrillReport = serde_json::from_slice(data)
        .map_err(|error| format!("the report of drill {run}: {}", quoted(&error)))?;
    check_format(&format!("drill {run}"), report.v)?;
    // Another program may have written it.
    Ok(report.bounded())
}

/// Whether this program reads a report of this format.
pub(crate) fn check_format(of: &str, found: u32) -> Result<(), String> {
    match DrillReport::VERSION {
        known if known == found => Ok(()),
        known => Err(format!("the report of {of} has format {found}, and this program reads {known}")),
    }
}

/// The beginning of an error that may quote the whole report.
pub(crate) fn quoted(error: &serde_json::Error) -> String {
    let mut text = shown(&error.to_string()).into_owned();
    cut(&mut text, 300);
    text
}

/// Removes the oldest reports above the limit, except for the last proof.
pub(crate) async fn trim(session: &Incarnation, paths: &Paths) -> Result<(), OpError> {
    let kept = all(session, paths).await?;
    let names = names(session, paths).await?;
    let proof = last_success(&kept).map(|report| report.run.clone());
    let surplus = names.len().saturating_sub(KEPT);
    for name in names.iter().filter(|name| Some(*name) != proof.as_ref()).take(surplus) {
        match session.delete(&paths.drill_run(name), None).await {
            Ok(()) | Err(OpError::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The last drill that passed.
pub(crate) fn last_success(kept: &[Kept]) -> Option<&DrillReport> {
    kept.iter()
        .flatten()
        .filter(|report| report.outcome == DrillOutcome::Passed)
        .max_by_key(|report| report.ended_ms)
}

/// What is known of a drill that is under way, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present {
    /// The order.
    pub(crate) order: Option<DrillOrder>,
    /// The run whose command lives.
    pub(crate) conducted: Option<String>,
    /// Runs whose report is not finished.
    pub(crate) unfinished: Vec<String>,
}

impl Present {
    /// Reads it.
    pub(crate) async fn read(session: &Incarnation, paths: &Paths) -> Result<Self, Error> {
        let order = drills::order(session, paths).await?;
        let conductor = session.get(&paths.drill_conductor()).await?;
        let conducted = conductor.map(|node| shown(&String::from_utf8_lossy(&node.data)).into_owned());
        let kept = all(session, paths).await?;
        let unfinished = kept.iter().flatten().filter(|report| report.outcome == DrillOutcome::Running);
        Ok(Self { order, conducted, unfinished: unfinished.map(|report| report.run.clone()).collect() })
    }

    /// Drills whose command is lost: those that have an order or an unfinished report.
    pub(crate) fn interrupted(&self) -> Vec<String> {
        let ordered = self.order.iter().map(|order| order.run.clone());
        let mut runs: Vec<_> = self.unfinished.iter().cloned().chain(ordered).collect();
        runs.sort();
        runs.dedup();
        runs.retain(|run| self.conducted.as_ref() != Some(run));
        runs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

    use super::{super::report::tests::sample, *};

    #[test]
    fn the_last_proof_is_the_newest_that_passed() {
        let with = |run: &str, outcome: DrillOutcome, ended_ms: u64| {
            Ok(DrillReport { run: run.to_owned(), outcome, ended_ms: Some(ended_ms), ..sample() })
        };
        let kept = [
            with("a", DrillOutcome::Passed, 1),
            with("b", DrillOutcome::Passed, 2),
            with("c", DrillOutcome::Failed, 3),
            Err("d".to_owned()),
        ];
        assert_eq!(last_success(&kept).unwrap().run, "b");
        assert_eq!(last_success(&kept[2..]), None);
    }

    #[test]
    fn only_a_report_of_a_drill_that_runs_is_replaced() {
        for (outcome, finished) in
            [(DrillOutcome::Running, false), (DrillOutcome::Interrupted, true), (DrillOutcome::Passed, true)]
        {
            let kept = serde_json::to_vec(&DrillReport { outcome, ..sample() }).unwrap();
            assert_eq!(is_finished("d-1", &kept), finished, "{outcome}");
        }
        assert!(!is_finished("d-1", b"{"));
    }

    #[test]
    fn a_report_of_another_format_is_refused() {
        let later = DrillReport { v: 2, ..sample() };
        let error = decode("d-1", &serde_json::to_vec(&later).unwrap()).unwrap_err();
        assert_eq!(error, "the report of drill d-1 has format 2, and this program reads 1");
        assert!(decode("d-1", b"{").unwrap_err().starts_with("the report of drill d-1: "));
    }

    #[test]
    fn a_drill_without_its_command_is_interrupted() {
        let mut present = Present { unfinished: vec!["b".to_owned()], ..Present::default() };
        assert_eq!(present.interrupted(), ["b"]);
        present.conducted = Some("b".to_owned());
        assert_eq!(present.interrupted(), [""; 0]);
        present.conducted = Some("c".to_owned());
        assert_eq!(present.interrupted(), ["b"]);
    }
}
