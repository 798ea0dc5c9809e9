//! Asks the elector of a job why it decides nothing. Only the elector knows some of the times that it waits for, such
//! as since when a member has been better. Without a prompt answer the result is unknown.

use std::time::Duration;

use election_core::{MemberId, Skipped, operator::Snapshot};
use serde_json::Value;

/// The timeout of the question.
const PATIENCE: Duration = Duration::from_millis(700);
/// The longest answer, in bytes: a worker's is shorter.
const MAX_ANSWER: u64 = 1024 * 1024;

/// Why the elector of this election decides nothing, from its `/status`. `None` if it can't be reached, is no elector
/// any more, or has something to do.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn skipped(job: &str, snapshot: &Snapshot) -> Option<Skipped> {
    let elector = snapshot.elector()?;
    let record = snapshot.members.iter().find(|m| m.member == *elector)?;
    let address = record.http.as_deref()?;
    tokio::time::timeout(PATIENCE, status(address, elector, job)).await.ok()?
}

async fn status(address: &str, member: &MemberId, job: &str) -> Option<Skipped> {
    // That worker itself has to answer.
    let client =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().ok()?;
    let answer = client.get(format!("http://{address}/status")).send().await.ok()?;
    if answer.content_length().is_none_or(|length| length > MAX_ANSWER) {
        return None;
    }
    let status: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    // Another process may listen there now.
    if status["member"] != *member.as_str() || status["jobs"][job]["elector"] != true {
        return None;
    }
    serde_json::from_value(status["jobs"][job]["skipped"].clone()).ok()
}
