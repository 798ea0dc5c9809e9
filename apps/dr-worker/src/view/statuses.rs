//! Asks the workers of members what no znode has. Why the elector of a job decides nothing: only the elector knows some of the
//! times that it waits for, such as since when a member has been better. Whether the leader leads. What keeps a worker from
//! starting its jobs. Without a prompt answer the result is unknown.

use std::{collections::HashMap, sync::Arc, time::Duration};

use election_admin::Snapshot;
use election_core::{
    internals::{
        record::{Current, MemberRecord},
        text::shown,
    },
    status::Skipped,
};
use futures_util::{StreamExt as _, future::ready, stream};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::OnceCell, time::timeout};

use super::problems::ProblemRow;
use crate::workers::Workers;

/// The timeout of the question.
const PATIENCE: Duration = Duration::from_millis(700);
/// How many workers are asked at a time.
const ASKED_AT_ONCE: usize = 64;
/// The longest answer, in bytes: that of a worker with thousands of jobs is shorter.
const MAX_ANSWER: usize = 16 << 20;

/// The answers of workers. Each worker is asked once, for all jobs.
#[derive(Debug)]
pub(crate) struct WorkerStatuses {
    /// `None`: no question can be asked.
    workers: Option<Workers>,
    answers: Mutex<HashMap<String, Arc<OnceCell<Option<Value>>>>>,
}

/// Why the elector of this election decides nothing. `None` if it can't be reached, is no elector any more, or has
/// something to do.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn skipped(workers: Option<Workers>, job: &str, snapshot: &Snapshot) -> Option<Skipped> {
    WorkerStatuses::new(workers).skipped(job, snapshot).await
}

impl WorkerStatuses {
    pub(crate) fn new(workers: Option<Workers>) -> Self {
        Self { workers, answers: Mutex::default() }
    }

    /// The same, with the answer that its worker has given for another job, if there is one.
    pub(crate) async fn skipped(&self, job: &str, snapshot: &Snapshot) -> Option<Skipped> {
        let elector = snapshot.elector()?;
        let record = snapshot.members.iter().find(|m| m.member == *elector)?;
        let status = self.of(record).await?;
        if status["jobs"][job]["elector"] != true {
            return None;
        }
        serde_json::from_value(status["jobs"][job]["skipped"].clone()).ok()
    }

    /// Which members of this election start no job now, and why.
    pub(crate) async fn problems(&self, snapshot: &Snapshot) -> Vec<ProblemRow> {
        let asked = snapshot.members.iter().map(|record| async move {
            let status = self.of(record).await?;
            Some(ProblemRow {
                kind: "starts-no-job",
                sentence: format!("{}: {}", record.member, shown(status["problem"].as_str()?)),
                command: None,
            })
        });
        stream::iter(asked).buffered(ASKED_AT_ONCE).filter_map(ready).collect().await
    }

    /// The answer of the worker of this member.
    async fn of(&self, record: &MemberRecord) -> Option<Value> {
        let (workers, url) = (self.workers.as_ref()?, record.http.as_deref()?);
        let answer = {
            let mut answers = self.answers.lock();
            Arc::clone(answers.entry(url.to_owned()).or_default())
        };
        let status = answer.get_or_init(|| async { timeout(PATIENCE, ask(workers, url)).await.ok()? }).await;
        // Another process may listen there now.
        status.clone().filter(|status| status["member"] == *record.member.as_str())
    }
}

/// What the worker of a leader reports about its leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaderReport {
    /// It leads in that term; the state of the job's process.
    Leads(String),
    /// It does not answer, or it does not lead in that term.
    NoAnswer,
}

/// Asks the worker of this leader.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn report_of(
    workers: Option<Workers>,
    job: &str,
    snapshot: &Snapshot,
    leader: &Current,
) -> LeaderReport {
    let record = snapshot.members.iter().find(|member| member.ballot == leader.ballot);
    let Some(record) = record else { return LeaderReport::NoAnswer };
    let Some(status) = WorkerStatuses::new(workers).of(record).await else { return LeaderReport::NoAnswer };
    let job = &status["jobs"][job];
    let leads = job["role"] == "leader" && job["term"] == leader.term;
    match job["process"]["state"].as_str() {
        Some(state) if leads => LeaderReport::Leads(state.to_owned()),
        _ => LeaderReport::NoAnswer,
    }
}

/// The worker's `/status`.
async fn ask(workers: &Workers, url: &str) -> Option<Value> {
    serde_json::from_slice(&workers.read(&format!("{url}/status"), MAX_ANSWER).await?).ok()
}
