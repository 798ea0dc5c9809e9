//! `/events` and `/config`.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
};

use crate::support::{
    LONG, Running, code_of,
    stage::{Stage, leads},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A client of `/events`.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(worker: &Running, path: &str) -> (Self, u16) {
        let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut client = Self(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(client.0.read_line(&mut head).expect("an answer"), 0, "{head}");
        }
        let code = code_of(&head);
        assert!(code != 200 || head.contains("text/event-stream"), "{head}");
        (client, code)
    }

    /// The next event: its name and its data.
    fn next(&mut self) -> (String, Value) {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).expect("an event"), 0, "the stream has ended");
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).expect("JSON"));
            }
        }
    }

    /// The next event that fits.
    fn until(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (event, data) = self.next();
            if event == name && fits(&data) {
                return data;
            }
        }
    }
}

#[test]
fn each_change_is_an_event() {
    let stage = Stage::new("/http-events");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || west.code("/standby") == 200);
    let (mut events, code) = Client::of(&west, "/events");
    assert_eq!(code, 200);
    let (name, status) = events.next();
    assert_eq!((name.as_str(), &status["member"]), ("status", &json!("west-1")));
    assert_eq!(status["jobs"]["orders"]["role"], "standby");

    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    let decision = events.until("decision", |data| data["slots"][0]["named"] == "west-1");
    assert_eq!((&decision["slots"][0]["cause"], &decision["job"]), (&json!("switchover"), &json!("orders")));
    assert!(decision["at_ms"].as_u64().is_some() && decision["member"] == "west-1", "{decision}");
    events.until("process", |data| data["state"] == "running" && data["pid"].is_u64());
    // Role and leader are two parts of one look.
    let leader = events.until("leader", |data| data["leader"] == "west-1" && data["status"] == "READY");
    assert_eq!((&leader["slot"], &leader["site"], &leader["term"]), (&json!(0), &json!("west"), &json!(2)));
    drop(events);

    // Of one job, from the other side.
    let (mut events, _) = Client::of(&east, "/events?job=orders");
    assert_eq!(events.next().0, "status");
    stage.operator(&["switchover", "--to", "east-1"]).assert(0, &[]);
    events.until("role", |data| data["role"] == "leader");
    assert_eq!(Client::of(&east, "/events?job=bills").1, 404);
    assert_eq!(code_of(&east.http("OPTIONS", "/events").0), 200);
    assert_eq!(code_of(&east.http("HEAD", "/events").0), 200);
}

#[test]
fn streams_stay_open_and_leave_connections_for_others() {
    let stage = Stage::new("/http-streams");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let mut streams: Vec<_> = (0..64).map(|_| Client::of(&east, "/events")).collect();
    assert!(streams.iter().all(|(_, code)| *code == 200));
    assert_eq!(Client::of(&east, "/events").1, 503);
    // Many more clients than connections, all idle: streams are not among those that are closed for them.
    let _idle: Vec<_> =
        (0..600).map(|_| TcpStream::connect(("127.0.0.1", east.port)).expect("it listens")).collect();
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || west.code("/standby") == 200);
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    for (stream, _) in &mut streams {
        stream.until("leader", |data| data["leader"] == "west-1");
    }
    // A place is free again once its client is gone.
    drop(streams.pop());
    until("a place is free", || Client::of(&east, "/events").1 == 200);
    // Streams do not delay the end.
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
}

#[test]
fn the_configuration_is_shown_with_a_token_only() {
    const TOKEN: &str = "0123456789abcdef";
    let stage = Stage::new("/http-config");
    let (_, setting) = stage.tokens(TOKEN);
    let settings = [setting.as_str(), "job.orders.env={ DB = \"x://u:hunter4@db/x\" }"];
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    assert_eq!(east.code("/config"), 401);
    let (head, body) = east.http_with("GET", "/config", &["Authorization: Bearer 0123456789abcdef"], "");
    assert_eq!(code_of(&head), 200, "{body}");
    let mut command = stage.worker_command("east-1", "east", &settings);
    crate::support::set(&mut command, &["http.listen=127.0.0.1:0"]);
    let shown = crate::support::Outcome::of(command.args(["--output", "json", "config", "show"]));
    shown.assert(0, &[]);
    let (served, shown): (Value, Value) =
        (serde_json::from_str(&body).expect("JSON"), serde_json::from_str(&shown.stdout).expect("JSON"));
    assert_eq!(served["values"], shown["values"]);
    assert_eq!(served["overlays"], json!({ "orders": null }));
    assert!(!body.contains(TOKEN) && !body.contains("hunter4") && body.contains("x://...@db/x"), "{body}");
}
