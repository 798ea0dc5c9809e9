//! A trace of each change of leadership that this member completes, sent by OTLP over HTTP.
//!
//! ```text
//!   change of leadership   ├─────────────────────────────────────┤ READY
//!     detect               ├─────┤   (if probes have seen it)
//!     decide                     ├──┤
//!     release                       ├──────┤
//!     acquire                              ├──┤
//!     takeover                                ├──────────────────┤
//! ```
//!
//! The new leader knows all phases when it is READY, and they follow one another. So one member sends the whole trace, and no
//! context crosses from one member to another. The ids are derived from root, job, slot, term and fencing token: they
//! lead to the trace, and one that arrives twice is the same one. Nothing waits for the receiver.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    job::JobEnv,
    notify::WebhookClient,
    state::Worker,
    unsent::{TRACES, Unsent},
};
use crate::{
    config::{NotifyRetry, TraceConfig},
    wall::unix_ms,
};

/// How many traces may wait. Then the oldest is dropped.
const WAITING: usize = 64;

/// A receiver that is restarted gets the traces of that time.
const RETRY: NotifyRetry =
    NotifyRetry { max: 5, backoff: Duration::from_secs(1), backoff_max: Duration::from_secs(16) };

/// A change of leadership that this member has completed.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) leadership: JobEnv,
    /// When the leader was READY, in milliseconds since the Unix epoch.
    pub(super) ready_ms: u64,
    /// In their order, with their durations: those that are known.
    pub(super) phases: Vec<(&'static str, Duration)>,
}

/// Where completed changes wait to be sent.
#[derive(Clone, Debug)]
pub(super) struct Traces(async_channel::Sender<Unsent<Change>>);

impl Traces {
    /// The queue, and the end for [`run`].
    pub(super) fn new() -> (Self, async_channel::Receiver<Unsent<Change>>) {
        let (sender, changes) = async_channel::bounded(WAITING);
        (Self(sender), changes)
    }

    /// This member is READY now.
    pub(super) fn ready(
        &self,
        leadership: JobEnv,
        phases: impl Iterator<Item = (&'static str, Option<Duration>)>,
    ) {
        let phases = phases.filter_map(|(name, took)| Some((name, took?))).collect();
        let change = Change { leadership, ready_ms: unix_ms(), phases };
        if let Ok(Some(_)) = self.0.force_send(Unsent::new(change, &TRACES)) {
            tracing::warn!("too many traces wait for their receiver: the oldest is dropped");
        }
    }
}

/// Sends the traces where the configuration in force says, until it is dropped.
pub(super) async fn run(worker: Arc<Worker>, changes: async_channel::Receiver<Unsent<Change>>) {
    let mut used: Option<(TraceConfig, WebhookClient)> = None;
    while let Ok(change) = changes.recv().await {
        let Some(config) = worker.config().trace.clone() else { continue };
        let (present, client) = match used.take() {
            Some(last) if last.0 == config => used.insert(last),
            _ => used.insert((config.clone(), WebhookClient::new(config.into()))),
        };
        let trace = trace(&change, worker.root()).to_string();
        let mut failed = 0;
        while let Err(failure) = client.post(trace.clone(), []).await {
            failed += 1;
            let (job, term, why) = (&change.leadership.job, change.leadership.term, failure.why());
            let is_wanted = worker.config().trace.as_ref() == Some(&*present);
            let Some(again) = failure.pause(RETRY, failed).filter(|_| is_wanted) else {
                tracing::warn!(job, term, why, "the trace of a change of leadership was not delivered");
                break;
            };
            tracing::debug!(job, term, why, ?again, "a trace is sent again");
            tokio::time::sleep(again).await;
        }
    }
}

/// The body of a request: `ExportTraceServiceRequest` as JSON, of <https://opentelemetry.io/docs/specs/otlp/>.
fn trace(change: &Change, root: &str) -> Value {
    let Change { leadership: of, ready_ms, phases } = change;
    let root = root.trim_end_matches('/');
    let name = format!("{root}/{}/{}/{}/{}", of.job, of.slot, of.term, of.fencing_token);
    let trace_id = id(&name, 16);
    let root_id = id(&format!("{name}/change"), 8);
    let end = Duration::from_millis(*ready_ms);
    let mut at = phases.iter().fold(end, |at, (_, took)| at.saturating_sub(*took));
    let span = |name: &str, span_id: &str, (from, to): (Duration, Duration)| {
        json!({
            "traceId": trace_id, "spanId": span_id, "name": name,
            // An operation inside of an application.
            "kind": 1,
            "startTimeUnixNano": from.as_nanos().to_string(), "endTimeUnixNano": to.as_nanos().to_string(),
        })
    };
    let mut whole = span("change of leadership", &root_id, (at, end));
    whole["attributes"] = json!([
        text("dr.job", &of.job),
        number("dr.slot", of.slot as u64),
        number("dr.term", of.term),
        number("dr.fencing_token", of.fencing_token),
        text("dr.cause", &of.cause),
        text("dr.reason", &of.reason),
        text("dr.previous_leader", of.previous_leader.as_deref().unwrap_or_default()),
        text("dr.previous_site", of.previous_site.as_deref().unwrap_or_default()),
    ]);
    let mut spans = vec![whole];
    for (phase, took) in phases {
        let from = at;
        at += *took;
        let mut part = span(phase, &id(&format!("{name}/{phase}"), 8), (from, at));
        part["parentSpanId"] = json!(root_id);
        spans.push(part);
    }
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "dr-worker"),
            text("service.version", version),
            text("service.instance.id", &of.member),
            text("dr.site", &of.site),
        ] },
        "scopeSpans": [{ "scope": { "name": "dr-worker", "version": version }, "spans": spans }],
    }] })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// JSON of OTLP has 64-bit numbers as text.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// An id of so many bytes, in hexadecimal digits.
fn id(of: &str, bytes: usize) -> String {
    Sha256::digest(of).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_follow_one_another_until_the_leader_is_ready() {
        let leadership = JobEnv { job: "orders".to_owned(), term: 7, ..JobEnv::default() };
        let seconds = Duration::from_secs;
        let phases = vec![("decide", seconds(1)), ("takeover", seconds(2))];
        let change = Change { leadership, ready_ms: 10_000, phases };
        let sent = trace(&change, "/dr/");
        let spans = &sent["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let span = |at: usize| {
            let span = &spans[at];
            let time =
                |key: &str| span[key].as_str().expect("a number as text").parse::<u64>().expect("a number");
            let (from, to) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
            (span["name"].as_str().expect("a name"), from / 1_000_000_000, to / 1_000_000_000)
        };
        assert_eq!(span(0), ("change of leadership", 7, 10));
        assert_eq!([span(1), span(2)], [("decide", 7, 8), ("takeover", 8, 10)]);
        let ids: Vec<_> = (0..3).map(|at| spans[at]["spanId"].as_str().expect("an id")).collect();
        assert!(ids.iter().all(|id| id.len() == 16) && ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
        assert_eq!(
            (&spans[1]["parentSpanId"], &spans[0]["parentSpanId"]),
            (&spans[0]["spanId"], &Value::Null)
        );
        assert_eq!(spans[0]["traceId"].as_str().map(str::len), Some(32));
        assert_eq!(sent, trace(&change, "/dr"), "the same change has the same ids");
    }
}
