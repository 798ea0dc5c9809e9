//! Asks the elector of a job why it decides nothing. Only the elector knows some of the times that it waits for, such
//! as since when a member has been better. Without a prompt answer the result is unknown.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use election_core::{Skipped, operator::Snapshot};
use serde_json::Value;
use tokio::{sync::OnceCell, time::timeout};

use crate::workers::Workers;

/// The timeout of the question.
const PATIENCE: Duration = Duration::from_millis(700);
/// The longest answer, in bytes: that of a worker with thousands of jobs is shorter.
const MAX_ANSWER: usize = 16 << 20;

/// The answers of electors' workers. Each worker is asked once, for all jobs of which it is the elector.
#[derive(Debug)]
pub(crate) struct Electors {
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
    Electors::new(workers).skipped(job, snapshot).await
}

impl Electors {
    pub(crate) fn new(workers: Option<Workers>) -> Self {
        Self { workers, answers: Mutex::default() }
    }

    /// The same, with the answer that its worker has given for another job, if there is one.
    pub(crate) async fn skipped(&self, job: &str, snapshot: &Snapshot) -> Option<Skipped> {
        let elector = snapshot.elector()?;
        let record = snapshot.members.iter().find(|m| m.member == *elector)?;
        let (workers, url) = (self.workers.as_ref()?, record.http.as_deref()?);
        let answer = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry(url.to_owned()).or_default())
        };
        let status = answer.get_or_init(|| async { timeout(PATIENCE, ask(workers, url)).await.ok()? }).await;
        let status = status.as_ref()?;
        // Another process may listen there now.
        if status["member"] != *elector.as_str() || status["jobs"][job]["elector"] != true {
            return None;
        }
        serde_json::from_value(status["jobs"][job]["skipped"].clone()).ok()
    }
}

/// The worker's `/status`.
async fn ask(workers: &Workers, url: &str) -> Option<Value> {
    serde_json::from_slice(&workers.read(&format!("{url}/status"), MAX_ANSWER).await?).ok()
}
