//! Operators: commands, and POSTs to a worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use e2e::Operator;
use robustness::history::{Answer, Call, Event, Excuse, Recorder, RequestState};
use serde_json::Value;

use crate::http;
use crate::watchers::now;

/// ZooKeeper is given 10 s by a worker.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// Runs a command, and records what it told.
pub(crate) async fn command(
    operator: Operator,
    recorder: Arc<Recorder>,
    words: Vec<String>,
    excuses: Vec<Excuse>,
) {
    let op = recorder.next_op();
    let (verb, arguments) = (words[0].clone(), words[1..].to_vec());
    let call = Call::Operator { verb, arguments, excuses };
    let _ = recorder.record(now(), Event::Invoke { op, call });
    let mut all = vec!["--output", "json"];
    all.extend(words.iter().map(String::as_str));
    let said = operator.run(&all).await;
    let event = match said.code {
        Some(code) => Event::Ok { op, answer: told(i64::from(code), &said.stdout) },
        None => Event::Unknown { op, reason: said.stderr },
    };
    let _ = recorder.record(now(), event);
}

/// Sends a POST to a member.
pub(crate) async fn post(to: SocketAddr, token: String, recorder: Arc<Recorder>, path: String, body: String) {
    let op = recorder.next_op();
    let verb = path.trim_start_matches('/').to_owned();
    let call = Call::Operator { verb, arguments: vec![body.clone()], excuses: Vec::new() };
    let _ = recorder.record(now(), Event::Invoke { op, call });
    let event = match http::ask(to, &http::post(to, &path, &token, &body), ANSWERS_WITHIN).await {
        Ok((code, body)) => Event::Ok { op, answer: told(i64::from(code), &body) },
        Err(error) => Event::Unknown { op, reason: error.to_string() },
    };
    let _ = recorder.record(now(), event);
}

fn told(code: i64, output: &str) -> Answer {
    let said: Value = serde_json::from_str(output.trim()).unwrap_or_default();
    let state: Option<RequestState> = serde_json::from_value(said["outcome"].clone()).ok();
    Answer::Told { code, request: said["request"].as_str().map(str::to_owned), state }
}
