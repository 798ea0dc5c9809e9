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

/// Runs a command, and records what it told. Returns its exit code.
pub(crate) async fn command(
    operator: Operator,
    recorder: Arc<Recorder>,
    words: Vec<String>,
    excuses: Vec<Excuse>,
) -> Option<i32> {
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
    said.code
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

/// By the outcome, or by the sentence of an error.
fn told(code: i64, output: &str) -> Answer {
    let said: Value = serde_json::from_str(output.trim()).unwrap_or_default();
    if let Some(sentence) = said["error"]["message"].as_str() {
        let (request, state) = by_sentence(sentence).map_or((None, None), |(id, state)| (Some(id), state));
        return Answer::Told { code, request, state };
    }
    let state: Option<RequestState> = serde_json::from_value(said["outcome"].clone()).ok();
    Answer::Told { code, request: said["request"].as_str().map(str::to_owned), state }
}

/// The request that a command has filed and an error is about, and how it has ended, if the error says that.
fn by_sentence(sentence: &str) -> Option<(String, Option<RequestState>)> {
    let rest = sentence.strip_prefix("request r-")?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = rest.split_at(digits);
    let state = if rest.starts_with(" was withdrawn: ") {
        Some(RequestState::Cancelled)
    } else if rest.starts_with(" expired: ") {
        Some(RequestState::Expired)
    } else if rest.starts_with(": ") || rest.starts_with(" is still open: ") {
        // It has failed or was withdrawn; or it goes on.
        None
    } else {
        return None;
    };
    (digits > 0).then(|| (format!("r-{number}"), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_of_its_request_is_read() {
        let told = |code, sentence: &str| {
            told(code, &serde_json::json!({ "error": { "code": code, "message": sentence } }).to_string())
        };
        let of = |code, request: &str, state| Answer::Told { code, request: Some(request.to_owned()), state };
        assert_eq!(
            told(1, "request r-0000000007: no member may lead; try again"),
            of(1, "r-0000000007", None)
        );
        let withdrawn =
            "request r-0000000007 was withdrawn: no elector began it within 20s; nothing was moved";
        assert_eq!(told(75, withdrawn), of(75, "r-0000000007", Some(RequestState::Cancelled)));
        let expired = "request r-0000000007 expired: it was not begun within 25s; try again";
        assert_eq!(told(75, expired), of(75, "r-0000000007", Some(RequestState::Expired)));
        let open =
            "request r-0000000007 is still open: decided; don't repeat it, follow it with `dr-worker list`";
        assert_eq!(told(75, open), of(75, "r-0000000007", None));
        let other = "request r-0000000003, a switchover, is still open (pending); wait for it";
        assert_eq!(told(75, other), Answer::Told { code: 75, request: None, state: None });
    }
}
