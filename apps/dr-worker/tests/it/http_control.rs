//! Control by HTTP: tokens, the commands, their outcomes, and the log of them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use crate::support::{
    Log, Outcome, Running, code_of,
    stage::{Stage, leads},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery-staple";
const OTHER: &str = "another-token-of-the-same-kind";

/// A POST with this token.
fn post(worker: &Running, path: &str, token: &str, body: &Value) -> (u16, Value, String) {
    let authorization = format!("Authorization: Bearer {token}");
    let (head, answer) = worker.http_with("POST", path, &[&authorization], &body.to_string());
    let answer = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {head}\n{answer}"));
    (code_of(&head), answer, head)
}

fn get(worker: &Running, path: &str) -> Value {
    let (head, body) = worker.http("GET", path);
    assert_eq!(code_of(&head), 200, "{path}: {head}\n{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Waits for the end of a request, and returns its state.
fn ended(worker: &Running, request: &Value) -> Value {
    let path = format!("/requests/{}", request.as_str().expect("an id"));
    let mut outcome = Value::Null;
    until("the request has ended", || {
        outcome = get(worker, &path)["outcome"].clone();
        !["pending", "accepted"].contains(&outcome["state"].as_str().expect("a state"))
    });
    outcome
}

#[test]
fn leadership_is_moved_and_paused_by_http() {
    let stage = Stage::new("/http-control");
    let (_, setting) = stage.tokens(&format!("# of the deployment\n{OTHER}\n{TOKEN}\n"));
    let (east, log) = Log::of(&mut stage.worker_command("east-1", "east", &[&setting]));
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&setting]);
    until("west-1 is standby", || west.code("/standby") == 200);

    let (code, filed, head) =
        post(&west, "/switchover", TOKEN, &json!({ "to": "west-1", "reason": "a drill" }));
    assert_eq!((code, &filed["election"]), (202, &json!("orders")), "{filed}");
    let id = filed["request"].as_str().expect("an id");
    assert!(head.to_lowercase().contains(&format!("location: /requests/{id}?job=orders")), "{head}");
    // Any worker knows the outcome.
    let outcome = ended(&east, &filed["request"]);
    assert_eq!((&outcome["state"], &outcome["leader"]), (&json!("done"), &json!("west-1")), "{outcome}");
    until("west-1 leads", || leads(&west));
    let request = get(&east, "/cluster")["requests"][0].clone();
    assert_eq!(request["reason"], "a drill");
    assert_eq!(request["by"], "127.0.0.1 by HTTP at west-1", "{request}");

    // The target leads already: nothing is filed.
    let (code, answer, _) = post(&east, "/switchover", OTHER, &json!({ "to": "west-1" }));
    assert_eq!((code, &answer["request"], &answer["outcome"]["state"]), (200, &Value::Null, &json!("done")));

    // The sentences are those of the commands.
    for (path, body, verb) in [
        ("/switchover", json!({ "to": "east-9" }), &["switchover", "--to", "east-9"][..]),
        ("/failover", json!({ "to_site": "north" }), &["failover", "--to-site", "north"]),
    ] {
        let (code, answer, _) = post(&east, path, TOKEN, &body);
        let said = stage.operator(verb);
        let sentence = answer["error"].as_str().expect("an error");
        assert_eq!((code, answer["code"].as_i64()), (400, said.code.map(i64::from)), "{answer}");
        assert!(said.stderr.contains(sentence), "{sentence}\n{}", said.stderr);
    }

    // Planned for later: it waits, and is in no other's way.
    let at = json!({ "to": "east-1", "at": "+1h", "within": "10m" });
    let (code, planned, _) = post(&west, "/switchover", TOKEN, &at);
    assert_eq!((code, &planned["outcome"]["state"]), (202, &json!("planned")), "{planned}");
    assert!(planned["planned_for"].as_str().is_some_and(|time| time.ends_with('Z')), "{planned}");
    let id = planned["request"].as_str().expect("an id");
    assert_eq!(get(&east, &format!("/requests/{id}"))["outcome"], planned["outcome"]);
    let (code, answer, _) = post(&west, "/switchover", TOKEN, &at);
    assert!(
        code == 409 && answer["error"].to_string().contains(&format!("dr-worker cancel {id}")),
        "{answer}"
    );
    stage.operator(&["cancel", id]).assert(0, &[]);
    assert_eq!(get(&east, &format!("/requests/{id}"))["outcome"]["state"], "cancelled");

    // A pause holds until it ends, and its change has an id as well.
    let (code, paused, _) = post(&east, "/pause", TOKEN, &json!({ "job": "orders" }));
    assert_eq!(
        (code, &paused["mode"], &paused["changed"]),
        (202, &json!("manual"), &json!(true)),
        "{paused}"
    );
    assert_eq!(ended(&west, &paused["request"])["state"], "done");
    assert_eq!(stage.json(&["list"])["mode"], "manual");
    let (code, again, _) = post(&east, "/pause", TOKEN, &Value::Null);
    assert_eq!((code, &again["request"]), (400, &Value::Null), "null is no object: {again}");
    let (code, again, _) = post(&east, "/pause?job=orders", TOKEN, &json!({}));
    assert_eq!((code, &again["request"], &again["changed"]), (202, &paused["request"], &json!(false)));
    let (code, resumed, _) = post(&east, "/resume", TOKEN, &json!({}));
    assert_eq!((code, &resumed["mode"]), (202, &json!("auto")), "{resumed}");
    assert_ne!(resumed["request"], paused["request"]);
    for unknown in ["/requests/o-0000000009", "/requests/r-0000000009", "/requests/x", "/requests/r-0/x"] {
        assert_eq!(west.code(unknown), 404, "{unknown}");
    }

    // Each control request is in the log, its token never.
    until("the log has the last request", || log.has("\"path\":\"/resume\""));
    let log = log.text();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let control: Vec<_> = lines.iter().filter(|line| line["path"].is_string()).collect();
    assert_eq!(control.len(), 7, "{log}");
    assert!(control.iter().all(|line| line["peer"].as_str().is_some_and(|p| p.starts_with("127.0.0.1:"))));
    assert!(
        control.iter().any(|line| line["status"] == 400
            && line["outcome"].as_str().is_some_and(|outcome| outcome.contains("unknown member east-9"))),
        "{log}"
    );
    assert!(!log.contains(TOKEN) && !log.contains(OTHER), "{log}");
}

#[test]
fn a_job_is_restarted_stopped_and_started_by_http() {
    let stage = Stage::new("/http-job");
    let (_, setting) = stage.tokens(TOKEN);
    let east = stage.worker("east-1", "east", &[&setting]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&setting]);
    until("west-1 is standby", || west.code("/standby") == 200);
    let job = || get(&east, "/status")["jobs"]["orders"].clone();
    let before = job();

    // Any worker takes the request; the leader carries it out.
    let (code, filed, head) = post(&west, "/restart", TOKEN, &json!({ "reason": "new data" }));
    assert_eq!((code, &filed["outcome"]["state"]), (202, &json!("pending")), "{filed}");
    let id = filed["request"].as_str().expect("an id");
    assert!(head.to_lowercase().contains(&format!("location: /requests/{id}?job=orders")), "{head}");
    let outcome = ended(&west, &filed["request"]);
    assert_eq!((&outcome["state"], &outcome["leader"]), (&json!("done"), &json!("east-1")), "{outcome}");
    let after = job();
    assert_ne!(before["process"]["pid"], after["process"]["pid"]);
    assert_eq!((&before["term"], &before["fencing_token"]), (&after["term"], &after["fencing_token"]));
    let request = get(&west, "/cluster")["requests"][0].clone();
    assert_eq!((&request["kind"], &request["reason"]), (&json!("restart"), &json!("new data")));
    assert_eq!(request["by"], "127.0.0.1 by HTTP at west-1", "{request}");

    let (code, filed, _) = post(&east, "/stop", TOKEN, &json!({ "reason": "repair" }));
    assert_eq!((code, &ended(&west, &filed["request"])["state"]), (202, &json!("done")), "{filed}");
    assert_eq!((job()["stopped"]["reason"].clone(), east.code("/leader")), (json!("repair"), 503));
    // A stopped job has nothing to stop, and nothing to restart: the sentence is that of the command.
    let (code, answer, _) = post(&east, "/stop", TOKEN, &Value::Null);
    assert_eq!((code, &answer["request"]), (400, &Value::Null), "null is no object: {answer}");
    let (code, answer, _) = post(&east, "/stop", TOKEN, &json!({}));
    assert_eq!((code, &answer["request"], &answer["outcome"]["state"]), (200, &Value::Null, &json!("done")));
    let (code, answer, _) = post(&east, "/restart", TOKEN, &json!({}));
    let said = stage.operator(&["restart"]);
    assert_eq!((code, answer["code"].as_i64()), (409, said.code.map(i64::from)), "{answer}");
    assert!(said.stderr.contains(answer["error"].as_str().expect("an error")), "{answer}\n{}", said.stderr);

    let (code, filed, _) = post(&west, "/start", TOKEN, &json!({ "job": "orders" }));
    assert_eq!((code, &ended(&east, &filed["request"])["state"]), (202, &json!("done")), "{filed}");
    until("east-1 leads", || leads(&east));
    for (path, body, expected) in [
        ("/restart", json!({ "from": "north-1" }), 400),
        ("/start", json!({ "slot": 0 }), 400),
        ("/restart", json!({ "to": "west-1" }), 400),
    ] {
        assert_eq!(post(&east, path, TOKEN, &body).0, expected, "{path} {body}");
    }
}

#[test]
fn control_needs_a_token() {
    let stage = Stage::new("/http-tokens");
    let (file, setting) = stage.tokens(TOKEN);
    let (east, log) = Log::of(&mut stage.worker_command("east-1", "east", &[&setting]));
    until("east-1 leads", || leads(&east));

    for path in ["/switchover", "/failover", "/restart", "/stop", "/start", "/pause", "/resume"] {
        let (head, body) = east.http("POST", path);
        assert_eq!(code_of(&head), 401, "{path}: {head}");
        assert!(head.to_lowercase().contains("www-authenticate: bearer"), "{head}");
        assert!(body.contains("Authorization: Bearer TOKEN"), "{body}");
        for wrong in [OTHER, "correct-horse-battery-stapl", "correct-horse-battery-stapled"] {
            assert_eq!(post(&east, path, wrong, &json!({})).0, 401, "{path} {wrong}");
        }
        for header in ["Authorization: Basic dXNlcjpwYXNz", "Cookie: token=correct-horse-battery-staple"] {
            assert_eq!(code_of(&east.http_with("POST", path, &[header], "").0), 401, "{header}");
        }
        let in_query = format!("{path}?token={TOKEN}");
        assert_eq!(code_of(&east.http("POST", &in_query).0), 401);
        let (head, _) = east.http("GET", path);
        assert_eq!(code_of(&head), 405, "{path}");
        assert!(head.to_lowercase().contains("allow: post"), "{head}");
    }
    assert_eq!(code_of(&east.http("POST", "/nowhere").0), 404);
    assert_eq!(code_of(&east.http("POST", "/cluster").0), 405);

    // What a page of another site can make a browser send.
    let authorization = format!("Authorization: Bearer {TOKEN}");
    for (headers, expected) in [
        (&["Sec-Fetch-Site: cross-site", "Origin: http://evil.example"][..], 403),
        (&["Origin: null"], 403),
        (&["Host: evil.example"], 403),
        (&["Content-Type: text/plain"], 415),
        (&["Content-Type: application/x-www-form-urlencoded", "Sec-Fetch-Site: none"], 415),
    ] {
        let headers = [&[authorization.as_str()], headers].concat();
        let (head, answer) = east.http_with("POST", "/pause", &headers, "{}");
        assert_eq!(code_of(&head), expected, "{headers:?}: {answer}");
    }
    assert_eq!(stage.json(&["list"])["mode"], "auto");

    // Bodies are small, and have known fields.
    for (body, expected) in [
        ("{\"tto\":\"west-1\"}", 400),
        ("not JSON", 400),
        ("{\"reason\":\"a\\u0000b\"}", 400),
        ("{\"reason\":\"a\\nb\"}", 400),
        ("{\"to\":\"-oProxyCommand=x\"}", 400),
        ("{\"job\":\"bills\"}", 404),
        (&format!("{{\"reason\":\"{}\"}}", "x".repeat(20_000)), 413),
    ] {
        let authorization = format!("Authorization: Bearer {TOKEN}");
        let (head, answer) = east.http_with("POST", "/switchover", &[&authorization], body);
        assert_eq!(code_of(&head), expected, "{answer}");
    }
    let (code, answer, _) = post(&east, "/pause?job=orders", TOKEN, &json!({ "job": "bills" }));
    assert_eq!(code, 400, "{answer}");

    // A token is replaced while the worker runs.
    fs::write(&file, OTHER).expect("written");
    assert_eq!(post(&east, "/pause", TOKEN, &json!({})).0, 401);
    assert_eq!(post(&east, "/pause", OTHER, &json!({})).0, 202);
    // A file that others can read closes control.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
    let (code, answer, _) = post(&east, "/resume", OTHER, &json!({}));
    assert_eq!(code, 403);
    assert!(answer["error"].as_str().expect("an error").contains("chmod 640"), "{answer}");
    assert_eq!(stage.json(&["list"])["mode"], "manual");
    fs::remove_file(&file).expect("removed");
    assert_eq!(post(&east, "/resume", OTHER, &json!({})).0, 403);

    // Those that have no line are counted, and the next request that is admitted reports them.
    let counted = || {
        let (_, metrics) = east.http("GET", "/metrics");
        let line = metrics.lines().find(|line| line.starts_with("dr_http_control_refused_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).expect("a number")
    };
    fs::write(&file, OTHER).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("changed");
    assert_eq!(post(&east, "/resume", OTHER, &json!({})).0, 202);
    until("they are reported", || {
        let text = log.text();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let denied = |line: &&Value| [401, 403, 415].iter().any(|status| line["status"] == *status);
        let logged = lines.iter().filter(denied).count() as u64;
        let omitted: u64 = lines.iter().filter_map(|line| line["omitted"].as_u64()).sum();
        omitted > 0 && logged + omitted == counted()
    });

    // Everyone could fill it.
    let refused = || log.text().lines().filter(|line| line.contains("HTTP control request refused")).count();
    until("the log has the first ones", || refused() >= 20);
    let log = log.text();
    assert!(log.matches("\"status\":401").count() <= 20, "{log}");
    assert!(!log.contains(TOKEN) && !log.contains(OTHER) && !log.contains("battery"), "{log}");
}

#[test]
fn an_order_of_a_client_that_hangs_up_is_carried_out_and_logged() {
    const TIMES: usize = 10;
    let stage = Stage::new("/http-hangs-up");
    let (_, setting) = stage.tokens(TOKEN);
    let (east, log) = Log::of(&mut stage.worker_command("east-1", "east", &[&setting]));
    until("east-1 leads", || leads(&east));
    let hang_up = |verb: &str| {
        let mut client = TcpStream::connect(("127.0.0.1", east.port)).expect("it listens");
        let request = format!(
            "POST /{verb} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        client.write_all(request.as_bytes()).expect("it reads");
    };
    for _ in 0..TIMES {
        for (verb, mode) in [("pause", "manual"), ("resume", "auto")] {
            let line = format!("\"path\":\"/{verb}\"");
            let logged = || log.text().matches(&line).count();
            let (before, mut sent) = (logged(), None::<Instant>);
            until("the order is in force", || {
                // One whose end the server sees together with its beginning is not carried out at all.
                if sent.is_none_or(|sent| sent.elapsed() > Duration::from_secs(5)) {
                    hang_up(verb);
                    sent = Some(Instant::now());
                }
                get(&east, "/cluster")["mode"] == mode
            });
            until("it is in the log", || logged() > before);
        }
    }
}

#[test]
fn without_a_usable_token_file_control_is_closed() {
    let stage = Stage::new("/http-closed");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let (code, answer, _) = post(&east, "/pause", TOKEN, &json!({}));
    assert_eq!(code, 403);
    assert!(answer["error"].as_str().expect("an error").contains("http.token_file is not set"), "{answer}");

    let (file, setting) = stage.tokens(TOKEN);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).expect("changed");
    for verb in [&["config", "check"][..], &["run"]] {
        let mut command = stage.worker_command("west-1", "west", &[&setting]);
        Outcome::of(command.args(verb)).assert(78, &["http.token_file: ", "permissions 604", "chmod 640"]);
    }
}

#[test]
fn a_port_that_other_hosts_reach_without_a_token_is_warned_of() {
    let stage = Stage::new("/http-open");
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let mut command = stage.worker_command("east-1", "east", &["http.listen=0.0.0.0:0"]);
    let mut child = command.stderr(stderr).arg("run").spawn().expect("dr-worker can be started");
    // Only the worker keeps its end of the pipe, so the log ends with it.
    drop(command);
    let warned = BufReader::new(log).lines().map_while(Result::ok).find(|line| {
        line.contains("\"WARN\"") && line.contains("everyone on those hosts can read the state")
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(warned.is_some_and(|line| line.contains("\"address\":\"0.0.0.0:")));
}

#[test]
fn a_failover_by_http_needs_no_elector() {
    let stage = Stage::new("/http-failover");
    let (_, setting) = stage.tokens(TOKEN);
    // The elector leads, and is frozen: its session lives on, and nothing is decided.
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&setting, "job.orders.fenced=true"]);
    until("west-1 is standby", || west.code("/standby") == 200);
    east.signal(Signal::SIGSTOP);
    let (code, filed, _) = post(&west, "/failover", TOKEN, &json!({ "to": "west-1", "force": true }));
    assert_eq!(code, 202, "{filed}");
    let outcome = ended(&west, &filed["request"]);
    assert_eq!((&outcome["state"], &outcome["leader"]), (&json!("done"), &json!("west-1")), "{outcome}");
    until("west-1 leads", || leads(&west));
    east.signal(Signal::SIGCONT);
}

#[test]
fn recipes_without_an_elector_refuse_as_the_command_does() {
    let stage = Stage::new("/http-recipes");
    let (_, setting) = stage.tokens(TOKEN);
    let recipe = "job.orders.recipe=queue";
    let east = stage.worker("east-1", "east", &[&setting, recipe]);
    until("east-1 leads", || leads(&east));
    let (code, answer, _) = post(&east, "/switchover", TOKEN, &json!({}));
    assert_eq!((code, &answer["code"]), (400, &json!(64)), "{answer}");
    let said = stage.operator(&["switchover"]);
    assert!(said.stderr.contains(answer["error"].as_str().expect("an error")), "{answer}\n{}", said.stderr);
    assert_eq!(post(&east, "/pause", TOKEN, &json!({})).0, 409);
    let (code, answer, _) = post(&east, "/restart", TOKEN, &json!({}));
    assert_eq!((code, &answer["code"]), (409, &json!(1)), "{answer}");
    assert_eq!(
        post(&east, "/failover", TOKEN, &json!({ "force": true })).0,
        400,
        "no elector grants the stop budget"
    );
    let (code, answer, _) = post(&east, "/failover", TOKEN, &json!({ "force": true, "now": true }));
    assert_eq!((code, &answer["taken_from"]), (200, &json!("east-1")), "{answer}");
}
