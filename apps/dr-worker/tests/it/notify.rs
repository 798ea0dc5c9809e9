//! Notifications: real receivers, real workers.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::support::{
    Log, Running,
    pki::{HERE, Pki},
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use zk_testkit::PortReservation;

const SECRET: &str = "correct-horse-battery-staple";
const OTHER: &str = "another-secret-of-the-same-kind";

/// What a receiver got: headers, body.
pub(crate) type Got = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers each request with the next of these codes, and the last one from then on. 0 never answers.
pub(crate) fn receiver(listener: TcpListener, codes: &'static [u16]) -> Got {
    let got = Got::default();
    let kept = Arc::clone(&got);
    thread::spawn(move || {
        let mut silent = Vec::new();
        for (at, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let code = codes[at.min(codes.len() - 1)];
            let Some(request) = read(&stream) else { continue };
            kept.lock().expect("no panic").push(request);
            if code == 0 {
                silent.push(stream);
                continue;
            }
            let answer = format!("HTTP/1.1 {code} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    got
}

/// The same over TLS, and always 200.
fn tls_receiver(listener: TcpListener, shows: Arc<Mutex<Arc<ServerConfig>>>) -> Got {
    let got = Got::default();
    let kept = Arc::clone(&got);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&shows.lock().expect("no panic"));
            let connection = ServerConnection::new(config).expect("a server");
            let mut stream = StreamOwned::new(connection, stream);
            let Some(request) = read(&mut stream) else { continue };
            kept.lock().expect("no panic").push(request);
            let _ = stream.write_all(b"HTTP/1.1 200 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    got
}

fn read(stream: impl Read) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}

pub(crate) fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// The settings of a webhook to this port.
pub(crate) fn webhook(name: &str, port: u16, more: &[&str]) -> Vec<String> {
    let mut settings = vec![format!("notify.webhook.{name}.url=http://127.0.0.1:{port}/a-secret-path")];
    settings.extend(more.iter().map(|setting| format!("notify.webhook.{name}.{setting}")));
    settings
}

fn worker(stage: &Stage, id: &str, site: &str, settings: &[String]) -> Running {
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    stage.worker(id, site, &settings)
}

fn secret(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("secret");
    fs::write(&path, format!("{text}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its permissions");
    path
}

pub(crate) fn names(got: &Got) -> Vec<String> {
    let got = got.lock().expect("no panic");
    got.iter().map(|(_, body)| body["event"].as_str().expect("an event").to_owned()).collect()
}

/// An operator asks for what is so already: the event `request-failed`.
pub(crate) fn fail_a_request(stage: &Stage, leading_site: &str) {
    stage.operator(&["switchover", "--to-site", leading_site, "--at", "+1s"]).assert(0, &[]);
}

/// The samples of the counter with this outcome.
fn count(worker: &Running, receiver: &str, outcome: &str) -> u64 {
    let text = worker.http("GET", "/metrics").1;
    let is_it = |line: &&str| {
        line.starts_with("dr_notifications_total{")
            && line.contains(&format!("receiver=\"{receiver}\""))
            && line.contains(&format!("outcome=\"{outcome}\""))
    };
    let found = text.lines().find(is_it).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    found.unwrap_or(0)
}

/// A process that is killed at the end.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_failover_is_notified_of_once() {
    let stage = Stage::new("/notify-failover");
    let (listener, port) = listen();
    let got = receiver(listener, &[204]);
    let settings = webhook("ops", port, &[]);
    let mut east = worker(&stage, "east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    let west = worker(&stage, "west-1", "west", &settings);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == serde_json::json!(["west-1"]));
    until("the first leader is notified of", || names(&got) == ["leader-changed"]);

    // A planned move is no loss, and a request that is refused is reported.
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("the move is notified of", || names(&got).len() == 2);
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    until("the way back is notified of", || names(&got).len() == 3);

    // The elector leads, and is lost: the next elector sends, also what the first one has just sent.
    east.kill_with_guards();
    until("west-1 leads", || leads(&west));
    let ids = || {
        let got = got.lock().expect("no panic");
        let mut ids: Vec<_> =
            got.iter().map(|(_, body)| body["id"].as_str().expect("an id").to_owned()).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    until("both are notified of", || ids().len() == 5);
    // One task sends all of it in order, so nothing of the above is still to come once a later event has come.
    fail_a_request(&stage, "west");
    until("a refused request is notified of", || names(&got).iter().any(|name| name == "request-failed"));
    let last: Vec<_> = got.lock().expect("no panic").iter().map(|(_, body)| body.clone()).collect();
    let lost: Vec<_> = last.iter().filter(|body| body["event"] == "leader-lost").collect();
    assert_eq!(lost.len(), 1, "{last:#?}");
    assert_eq!((&lost[0]["leader"], &lost[0]["cause"]), (&"east-1".into(), &"leader-lost".into()));
    let new: Vec<_> =
        last.iter().filter(|body| body["id"] == "/notify-failover/orders/leader-changed/0/4").collect();
    assert_eq!(new.len(), 1, "{last:#?}");
    assert_eq!((&new[0]["leader"], &new[0]["previous"]["member"]), (&"west-1".into(), &"east-1".into()));
    assert_eq!(new[0]["sender"]["member"], "west-1");
    assert!(
        new[0]["text"].as_str().is_some_and(|text| text.starts_with("west-1 of site west leads in term 4: "))
    );
    let head = got.lock().expect("no panic")[0].0.to_lowercase();
    assert!(
        head.contains("dr-event: leader-changed") && head.contains("dr-event-id: /notify-failover/orders/"),
        "{head}"
    );
    assert!(!head.contains("dr-signature"), "there is no secret: {head}");
}

/// The elector decides, and dies before any receiver has it.
#[test]
fn what_a_lost_elector_had_not_delivered_is_sent_by_the_next() {
    let stage = Stage::new("/notify-elector");
    // Nothing listens here.
    let absent = PortReservation::take(1).expect("a port");
    let retry = "retry={max=1000,backoff=\"50ms\",backoff_max=\"50ms\"}";
    let mut east = worker(&stage, "east-1", "east", &webhook("ops", absent.ports()[0], &[retry]));
    until("east-1 leads", || leads(&east));
    let (listener, port) = listen();
    let got = receiver(listener, &[204]);
    let west = worker(&stage, "west-1", "west", &webhook("ops", port, &[]));
    until("west-1 is in line", || successors(&stage.json(&["list"])) == serde_json::json!(["west-1"]));
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    until("it is tried", || count(&east, "ops", "retried") > 0);
    assert_eq!(
        (names(&got).len(), count(&east, "ops", "delivered")),
        (0, 0),
        "the elector sends, and it can't"
    );

    east.signal(Signal::SIGKILL);
    east.ended();
    let has = |id: &str| got.lock().expect("no panic").iter().any(|(_, body)| body["id"] == id);
    until("the move is notified of", || has("/notify-elector/orders/leader-changed/0/2"));
}

#[test]
fn what_fails_is_sent_again_and_what_is_refused_is_not() {
    let stage = Stage::new("/notify-retry");
    let retry = "retry={max=50,backoff=\"50ms\",backoff_max=\"200ms\"}";
    let (failing, failing_port) = listen();
    let failing = receiver(failing, &[500, 503, 204]);
    let (refusing, refusing_port) = listen();
    let refusing = receiver(refusing, &[401]);
    let (silent, silent_port) = listen();
    let silent = receiver(silent, &[0, 204]);
    // Nothing listens here at first.
    let absent_port = PortReservation::take(1).expect("a port");
    let mut settings = webhook("failing", failing_port, &[retry]);
    settings.extend(webhook("refusing", refusing_port, &[retry]));
    settings.extend(webhook("silent", silent_port, &[retry, "timeout=500ms"]));
    settings.extend(webhook("absent", absent_port.ports()[0], &[retry]));
    settings.extend(webhook("other", refusing_port, &["events=[\"hold-set\"]"]));
    let east = worker(&stage, "east-1", "east", &settings);
    // No receiver delays the job.
    until("east-1 leads", || leads(&east));
    until("it was tried several times", || count(&east, "absent", "retried") >= 2);
    let absent =
        receiver(TcpListener::bind(("127.0.0.1", absent_port.ports()[0])).expect("the port"), &[204]);
    // Each receiver gets one after the other: when it has this one, no attempt of the first is to come.
    fail_a_request(&stage, "east");
    for (receiver, outcome) in
        [("failing", "delivered"), ("refusing", "failed"), ("silent", "delivered"), ("absent", "delivered")]
    {
        until("both have come to an end", || count(&east, receiver, outcome) == 2);
    }
    let (first, second) = ("leader-changed", "request-failed");
    assert_eq!(
        (names(&failing), count(&east, "failing", "retried")),
        ([first, first, first, second].map(str::to_owned).to_vec(), 2)
    );
    assert_eq!(
        (names(&refusing), count(&east, "refusing", "retried")),
        ([first, second].map(str::to_owned).to_vec(), 0)
    );
    assert_eq!(names(&silent), [first, first, second]);
    assert_eq!(names(&absent), [first, second]);
    assert_eq!(count(&east, "other", "failed"), 0, "it wants other events");
    // Each attempt of a notification has the same id.
    let failing = failing.lock().expect("no panic");
    assert!(failing[..3].iter().all(|(_, body)| body["id"] == failing[0].1["id"]));
}

/// Signs with what is in the file of secrets and is none.
const FORGED: &str = r##"
import hashlib, hmac, http.client, sys, time
for secret in b"", b"# both":
    stamp, body = str(int(time.time())), b'{"id": "1", "event": "test", "text": "forged"}'
    signature = "sha256=" + hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    receiver = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    receiver.request("POST", "/", body, {"DR-Timestamp": stamp, "DR-Signature": signature})
    assert receiver.getresponse().status == 401, secret
"##;

/// The receiver of docs/notifications.md verifies the signature, of the secret of the moment.
#[test]
fn the_receiver_of_the_guide_verifies_the_signature() {
    let stage = Stage::new("/notify-signed");
    let dir = stage.dir.path();
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/notifications.md"))
        .expect("the guide");
    let code =
        guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a receiver");
    fs::write(dir.join("receiver.py"), code).expect("a file");
    fs::write(dir.join("accepted"), format!("# both\n{SECRET}\n\n{OTHER}\n")).expect("a file");
    let mut python = Command::new("python3");
    python.arg(dir.join("receiver.py")).arg(dir.join("accepted")).arg("0").stdout(Stdio::piped());
    let mut python = Ended(python.spawn().expect("python3"));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let stdout = BufReader::new(python.0.stdout.take().expect("its output"));
    thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            kept.lock().expect("no panic").push(line);
        }
    });
    let port = || lines.lock().expect("no panic").first()?.strip_prefix("listening ")?.parse::<u16>().ok();
    until("the receiver listens", || port().is_some());
    let mut forge = Command::new("python3");
    forge.args(["-c", FORGED, &port().expect("a port").to_string()]);
    assert!(forge.status().expect("python3").success());
    let file = secret(dir, SECRET);
    let settings = webhook("ops", port().expect("a port"), &[&format!("secret_file={}", file.display())]);
    let east = worker(&stage, "east-1", "east", &settings);
    until("it has arrived", || count(&east, "ops", "delivered") == 1);
    let arrived = || lines.lock().expect("no panic").len() - 1;
    assert_eq!(arrived(), 1);
    assert!(
        lines.lock().expect("no panic")[1].starts_with("leader-changed east-1 of site east leads in term 1")
    );

    // The verb tries the receivers of its configuration. A secret is replaced while the worker runs; a wrong one is refused.
    let settings: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let node =
        ["--set", "node.id=east-1", "--set", "node.site=east", "--set", "job.orders.command=[\"/bin/true\"]"];
    let verb = [&["notify", "test"], &settings[..], &node[..]].concat();
    for secret in [SECRET, OTHER] {
        fs::write(&file, secret).expect("written");
        let tried = stage.operator(&verb);
        tried.assert(0, &[]);
        assert!(
            tried.stdout.contains(&format!(
                "webhook ops (http://127.0.0.1:{}/...): delivered",
                port().expect("a port")
            ))
        );
    }
    fs::write(&file, "a-secret-that-is-not-accepted").expect("written");
    let refused = stage.operator(&verb);
    refused.assert(1, &["webhook ops", "the receiver answered 401"]);
    assert!(
        !refused.stderr.contains("secret-path") && !refused.stderr.contains("not-accepted"),
        "{}",
        refused.stderr
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
    stage.operator(&verb).assert(1, &["secret_file", "chmod 640"]);
    stage
        .operator(&[
            "notify",
            "test",
            "--set",
            "node.site=east",
            "--set",
            "job.orders.command=[\"/bin/true\"]",
        ])
        .assert(1, &["no receiver is configured", "[notify.webhook.NAME]"]);
    assert_eq!(arrived(), 3);
}

#[test]
fn a_full_queue_drops_the_oldest_and_delays_nothing() {
    let stage = Stage::new("/notify-queue");
    let (listener, port) = listen();
    let got = receiver(listener, &[0]);
    let mut settings = webhook("slow", port, &["timeout=10m"]);
    settings.push("notify.queue=1".to_owned());
    let east = worker(&stage, "east-1", "east", &settings);
    until("the first one is being sent", || !names(&got).is_empty());
    // Three more: one waits, the others are dropped.
    for _ in 0..3 {
        let id = stage.operator(&["switchover", "--to-site", "east", "--at", "+1s"]);
        let id = id.stdout.trim().to_owned();
        until("the request is refused", || {
            let list = stage.json(&["list"]);
            let found =
                list["requests"].as_array().and_then(|all| all.iter().find(|r| r["id"] == id.as_str()));
            found.is_some_and(|request| request["outcome"]["state"] == "failed")
        });
    }
    until("two are dropped", || count(&east, "slow", "dropped") == 2);
    until("east-1 leads", || leads(&east));
    east.signal(Signal::SIGTERM);
}

#[test]
fn a_command_gets_each_notification() {
    let stage = Stage::new("/notify-command");
    let file = stage.dir.path().join("got");
    let script = format!(
        "cat >> {0}; echo \" $DR_EVENT $DR_JOB $DR_MEMBER $DR_TERM $DR_LEADER\" >> {0}; exit 1",
        file.display()
    );
    let command = serde_json::json!(["/bin/sh", "-c", script]);
    let east = worker(&stage, "east-1", "east", &[format!("notify.command.command={command}")]);
    until("it was run, and has failed", || count(&east, "command", "failed") == 1);
    let text = fs::read_to_string(&file).expect("what it got");
    let (body, env) = text.trim_end().rsplit_once("} ").expect("both");
    let body: Value = serde_json::from_str(&format!("{body}}}")).expect("JSON");
    assert_eq!((&body["event"], &body["term"]), (&"leader-changed".into(), &1.into()));
    assert_eq!(env, "leader-changed orders east-1 1 east-1");
}

/// The worker looks for orphans after each death of a child, and must not take the command for one.
#[test]
fn a_slow_command_runs_to_its_end_beside_other_children() {
    let stage = Stage::new("/notify-slow");
    let file = |name: &str| stage.dir.path().join(name);
    let (started, end, done, probed) = (file("started"), file("end"), file("done"), file("probed"));
    let script = format!(
        "touch {}; until [ -e {} ]; do sleep 0.02; done; touch {}",
        started.display(),
        end.display(),
        done.display()
    );
    let probe = serde_json::json!(["/bin/sh", "-c", format!("echo >> {}", probed.display())]);
    let settings = [
        format!("notify.command.command={}", serde_json::json!(["/bin/sh", "-c", script])),
        format!("job.orders.liveness={{kind=\"exec\",interval=\"1s\",timeout=\"1s\",command={probe}}}"),
    ];
    let east = worker(&stage, "east-1", "east", &settings);
    until("the command runs", || started.exists());
    let probes = || fs::read_to_string(&probed).unwrap_or_default().lines().count();
    let before = probes();
    until("guards of three probes have ended", || probes() > before + 3);
    assert_eq!((count(&east, "command", "delivered"), count(&east, "command", "failed")), (0, 0), "it runs");
    fs::write(&end, "").expect("a file");
    until("it is delivered", || count(&east, "command", "delivered") == 1);
    assert!(done.exists(), "it ran to its end");
}

const TLS_RECEIVER: &str = r#"
import http.server, ssl
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

#[test]
fn a_webhook_over_https_is_verified() {
    let stage = Stage::new("/notify-https");
    let dir = stage.dir.path();
    let make = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=receiver \
                -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let made = Command::new("openssl").args(make.split_whitespace()).current_dir(dir).output();
    let made = made.expect("the command openssl is needed to make certificates");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut python = Command::new("python3");
    python.args(["-c", TLS_RECEIVER]).current_dir(dir).stdout(Stdio::piped());
    let mut python = Ended(python.spawn().expect("python3"));
    let mut port = String::new();
    let mut stdout = BufReader::new(python.0.stdout.take().expect("its output"));
    stdout.read_line(&mut port).expect("its port");
    let test = |more: &str| {
        let url = format!("notify.webhook.ops.url=https://127.0.0.1:{}/", port.trim());
        let settings = [&url, "node.id=east-1", "node.site=east", "job.orders.command=[\"/bin/true\"]", more];
        let settings: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        stage.operator(&[&["notify", "test"], &settings[..]].concat())
    };
    test(&format!("notify.webhook.ops.ca_file={}", dir.join("cert.pem").display())).assert(0, &[]);
    test("notify.queue=1").assert(1, &["webhook ops", "invalid peer certificate"]);
    test("notify.webhook.ops.ca_file=/nowhere.pem").assert(1, &["ca_file: /nowhere.pem can't be read"]);
}

#[test]
fn renewed_certificates_of_a_webhook_are_used_from_the_next_attempt_on() {
    let stage = Stage::new("/notify-renewed");
    let pki = Pki::new();
    pki.issue("receiver", "ca", HERE, 30);
    pki.issue("renewed", "foreign", HERE, 30);
    let (listener, port) = listen();
    let shows = Arc::new(Mutex::new(pki.server("receiver")));
    let got = tls_receiver(listener, Arc::clone(&shows));
    pki.replace("ca.pem", "trusted.pem");
    let url = format!("notify.webhook.ops.url=https://127.0.0.1:{port}/");
    let ca_file = format!("notify.webhook.ops.ca_file={}", pki.path("trusted.pem").display());
    let retry = "notify.webhook.ops.retry={ max = 1000, backoff = \"50ms\", backoff_max = \"50ms\" }";
    let (east, log) = Log::of(&mut stage.worker_command("east-1", "east", &[&url, &ca_file, retry]));
    let arrived = |count: usize| move |got: &Got| got.lock().expect("no panic").len() >= count;
    until("the first leader is notified of", || arrived(1)(&got));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");

    fs::remove_file(pki.path("trusted.pem")).expect("removed");
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("it is notified of by the last certificates", || arrived(2)(&got));
    until("the log says so", || log.has("the former ones remain in use"));

    *shows.lock().expect("no panic") = pki.server("renewed");
    until("east-1 is next in line", || successors(&stage.json(&["list"]))[0] == "east-1");
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    until("the receiver is refused", || count(&east, "ops", "retried") > 0);
    pki.replace("foreign.pem", "trusted.pem");
    until("the next attempt trusts it", || arrived(3)(&got));
    assert_eq!(log.text().matches("remain in use").count(), 1);
    let end = "dr_certificate_expiry_timestamp_seconds";
    let is_known = |line: &str| line.starts_with(end) && line.contains("notify.webhook.ops.ca_file");
    until("its end is known", || east.http("GET", "/metrics").1.lines().any(is_known));
    drop(west);
}
