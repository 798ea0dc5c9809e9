//! `/openapi.json` describes what the endpoints answer: status, media type and fields.

use std::collections::BTreeSet;

use crate::support::{
    Running, code_of,
    stage::{Stage, leads},
    until,
};
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery-staple";
const JSON: &str = "application/json";

/// The answers that were seen: method, path of the description, status.
type Seen = BTreeSet<(String, String, u16)>;

/// Sends a request to `target`, and compares its answer with the description of `path`.
fn compare(
    worker: &Running,
    described: &Value,
    seen: &mut Seen,
    (method, path, target): (&str, &str, &str),
    token: Option<&str>,
    body: &str,
) -> Value {
    let what = format!("{method} {target} {body}");
    let authorization = token.map(|token| format!("Authorization: Bearer {token}"));
    let headers: Vec<&str> = authorization.as_deref().into_iter().collect();
    let (head, body) = worker.http_with(method, target, &headers, body);
    let status = code_of(&head);
    // HEAD is answered like GET, without the body.
    let described_as = if method == "HEAD" { "GET" } else { method };
    let operation = &described["paths"][path][described_as.to_lowercase()];
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{what}: {status} is not described: {head}\n{body}");
    let media = head.lines().find_map(|line| line.strip_prefix("content-type: ")).expect("a media type");
    let schema = &response["content"][media]["schema"];
    assert!(schema.is_object(), "{what}: {media} is not described for {status}");
    seen.insert((described_as.to_owned(), path.to_owned(), status));
    if media != JSON {
        return Value::Null;
    }
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{what}: {e}: {body}"));
    // Each field of the answer is described, too.
    let mut schema = schema.clone();
    for object in schema["anyOf"].as_array_mut().expect("objects") {
        object["additionalProperties"] = json!(false);
    }
    let (mut all, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("answer.json", schema).expect("a schema");
    let compiled = compiler.compile("answer.json", &mut all).expect("it compiles");
    if let Err(wrong) = all.validate(&body, compiled) {
        panic!("{what}: {status}: {wrong:#}\n{body}");
    }
    body
}

#[test]
fn each_endpoint_answers_as_described() {
    let stage = Stage::new("/openapi");
    let (_, setting) = stage.tokens(TOKEN);
    let east = stage.worker("east-1", "east", &[&setting]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || west.code("/standby") == 200);

    let described: Value = serde_json::from_str(&east.http("GET", "/openapi.json").1).expect("JSON");
    assert_eq!(described["openapi"], "3.1.0");
    let mut seen = Seen::new();
    // What everyone may read.
    for target in [
        "/",
        "/leader",
        "/standby",
        "/liveness",
        "/readiness",
        "/status",
        "/cluster",
        "/history",
        "/explain",
        "/simulate?without_site=east",
        "/logs?lines=1",
        "/evacuation",
        "/metrics",
        "/openapi.json",
        // Errors.
        "/leader?job=bills",
        "/leader?job=a&job=b",
        "/cluster?job=bills",
        "/logs?job=bills",
        "/logs?lines=x",
        "/simulate?without=a/b",
        "/simulate?x=y",
        "/events?job=bills",
        "/requests/r-0000000009",
    ] {
        let path = target.split('?').next().unwrap_or_default();
        let path = if path.starts_with("/requests/") { "/requests/{id}" } else { path };
        for worker in [&east, &west] {
            compare(worker, &described, &mut seen, ("GET", path, target), None, "");
        }
    }
    // The body of a stream does not end.
    compare(&east, &described, &mut seen, ("HEAD", "/events", "/events"), None, "");
    // Control: with each kind of token and body.
    compare(&east, &described, &mut seen, ("GET", "/config", "/config"), Some(TOKEN), "");
    for target in ["/logs?lines=1", "/logs?job=bills", "/logs?lines=x"] {
        compare(&east, &described, &mut seen, ("GET", "/logs", target), Some(TOKEN), "");
    }
    for (method, path) in [
        ("GET", "/config"),
        ("POST", "/switchover"),
        ("POST", "/failover"),
        ("POST", "/restart"),
        ("POST", "/stop"),
        ("POST", "/start"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
        ("POST", "/confirm"),
        ("POST", "/drain"),
        ("POST", "/fail-site"),
        ("POST", "/maintenance"),
        ("POST", "/prefer"),
        ("POST", "/mode"),
        ("POST", "/stay"),
        ("POST", "/ack"),
        ("POST", "/raise-token"),
        ("POST", "/evacuate"),
    ] {
        compare(&east, &described, &mut seen, (method, path, path), None, "");
        compare(&west, &described, &mut seen, (method, path, path), Some(TOKEN), "");
    }
    // A parameter that an endpoint does not have is refused, and changes nothing.
    for (path, operations) in described["paths"].as_object().expect("paths") {
        for method in operations.as_object().expect("operations").keys() {
            let (method, target) = (method.to_uppercase(), path.replace("{id}", "r-0000000000"));
            let mut unknown = vec![format!("{target}?x=y"), format!("{target}?job=orders&dry_run=true")];
            if path == "/evacuate" {
                unknown.push(format!("{target}?job=orders"));
            }
            for target in unknown {
                let request = (method.as_str(), path.as_str(), target.as_str());
                let answer = compare(&east, &described, &mut Seen::new(), request, Some(TOKEN), "");
                let why = answer["error"].as_str().expect("an error");
                assert!(why.starts_with("unknown parameter"), "{method} {target}: {why}");
            }
        }
    }
    assert_eq!(stage.json(&["list"])["mode"], "auto");
    let long = format!("{{\"reason\":\"{}\"}}", "x".repeat(20_000));
    for (path, body, status) in [
        ("/evacuate", r#"{"site":"east","dry_run":true}"#, 200),
        ("/evacuate", r#"{"site":"north"}"#, 400),
        ("/switchover", r#"{"to":"west-1"}"#, 202),
        ("/switchover", r#"{"to":"north-1"}"#, 400),
        ("/switchover", r#"{"to":"west-1","at":"+1s"}"#, 202),
        ("/switchover", r#"{"job":"bills"}"#, 404),
        ("/switchover", r#"{"tto":"west-1"}"#, 400),
        ("/switchover", long.as_str(), 413),
        ("/restart", "{}", 202),
        ("/start", "{}", 200),
        ("/stop", r#"{"reason":"a test"}"#, 202),
        ("/stop", "{}", 200),
        ("/restart", "{}", 409),
        ("/start", "{}", 202),
        ("/restart", r#"{"from":"north-1"}"#, 400),
        ("/stop", r#"{"from":"east-1"}"#, 400),
        ("/pause", "{}", 202),
        ("/resume", "{}", 202),
        // Of the site that does not lead, and back.
        ("/drain", r#"{"site":"north"}"#, 400),
        ("/drain", r#"{"site":"east","reason":"a test"}"#, 202),
        ("/drain", r#"{"site":"west"}"#, 409),
        ("/drain", r#"{"site":"east","off":true}"#, 202),
        ("/fail-site", r#"{"site":"east"}"#, 202),
        ("/fail-site", r#"{"site":"east","off":true}"#, 202),
        ("/maintenance", r#"{"member":"north-1"}"#, 400),
        ("/maintenance", r#"{"member":"east-1"}"#, 202),
        ("/maintenance", r#"{"member":"east-1","off":true}"#, 202),
        ("/prefer", r#"{"order":["west","east"]}"#, 202),
        ("/prefer", r#"{"off":true}"#, 202),
        ("/mode", r#"{"mode":"fast"}"#, 400),
        ("/mode", r#"{"mode":"manual"}"#, 202),
        ("/mode", r#"{"mode":"auto"}"#, 202),
        ("/stay", "{}", 202),
        ("/stay", r#"{"off":true}"#, 202),
        ("/confirm", r#"{"site":"west"}"#, 409),
        ("/confirm", r#"{"site":"east"}"#, 202),
        ("/confirm", r#"{"off":true}"#, 202),
        ("/ack", r#"{"failures":true,"sites":true}"#, 200),
        ("/raise-token", r#"{"above":1}"#, 200),
        ("/raise-token", "{}", 400),
        ("/cancel", r#"{"id":"r-0000000000"}"#, 409),
        ("/cancel", r#"{"id":"x"}"#, 400),
        ("/failover", r#"{"to_site":"north"}"#, 400),
        ("/failover", r#"{"to":"east-1"}"#, 202),
    ] {
        let answer = compare(&east, &described, &mut seen, ("POST", path, path), Some(TOKEN), body);
        assert!(seen.contains(&("POST".to_owned(), path.to_owned(), status)), "{path} {body}: {answer}");
        let Some(id) = answer["request"].as_str() else { continue };
        let target = format!("/requests/{id}");
        until("the request has ended", || {
            let request = ("GET", "/requests/{id}", target.as_str());
            let found = compare(&west, &described, &mut seen, request, None, "");
            !["planned", "pending", "accepted"]
                .contains(&found["outcome"]["state"].as_str().expect("a state"))
        });
    }
    // One that waits is withdrawn.
    let planned = r#"{"to":"west-1","at":"+1h"}"#;
    let post = |path, body: &str, seen: &mut Seen| {
        compare(&east, &described, seen, ("POST", path, path), Some(TOKEN), body)
    };
    let id = post("/switchover", planned, &mut seen)["request"].clone();
    let withdrawn = post("/cancel", &json!({ "id": id }).to_string(), &mut seen);
    assert_eq!(withdrawn["outcome"]["state"], "cancelled", "{withdrawn}");
    // The target leads already.
    until("east-1 leads", || leads(&east));
    compare(
        &east,
        &described,
        &mut seen,
        ("POST", "/switchover", "/switchover"),
        Some(TOKEN),
        r#"{"to":"east-1"}"#,
    );

    // Without ZooKeeper.
    let setting = [setting.as_str(), "zookeeper.connect=127.0.0.1:1"];
    let lost = stage.worker("west-2", "west", &setting);
    for (path, operations) in described["paths"].as_object().expect("paths") {
        for method in operations.as_object().expect("operations").keys() {
            let (method, target) = (method.to_uppercase(), path.replace("{id}", "r-0000000000"));
            // The body of a stream does not end.
            let method = if path == "/events" { "HEAD" } else { method.as_str() };
            let request = (method, path.as_str(), target.as_str());
            compare(&lost, &described, &mut Seen::new(), request, Some(TOKEN), "");
        }
    }

    // Each success that is described was seen, so nothing is described that can't be answered.
    for (path, operations) in described["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let responses = operation["responses"].as_object().expect("responses");
            for status in responses.keys().filter(|status| status.starts_with('2')) {
                let status = status.parse().expect("a status");
                // A failover to the leader is the same answer as a switchover to it. The only worker of a site may not
                // be taken down: cli_can_restart.rs has a site of two.
                let is_left_out = ["/failover", "/can-restart"].contains(&path.as_str()) && status == 200;
                let is_seen = seen.contains(&(method.to_uppercase(), path.clone(), status));
                assert!(is_seen || is_left_out, "{path}: {status}");
            }
        }
    }
}
