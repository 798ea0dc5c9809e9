//! TLS of the HTTP endpoints: who gets in, renewed certificates, clients that misbehave, and workers that ask each other.

#![cfg(feature = "tls")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use crate::support::{
    Log, Running, code_of,
    pki::{HERE, Https, Pki},
    stage::{Stage, leads},
    until,
};
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery-staple";

/// The files of a worker whose clients have certificates of another authority than workers.
const ALL: [(&str, &str); 4] = [
    ("cert_file", "worker.pem"),
    ("key_file", "worker.key"),
    ("client_ca_file", "clients.pem"),
    ("ca_file", "ca.pem"),
];

/// Authorities, and a certificate for all workers of a test.
fn pki() -> Pki {
    let pki = Pki::new();
    pki.issue("worker", "ca", HERE, 20);
    pki
}

/// A worker that leads.
fn leader(stage: &Stage, id: &str, settings: &[&str], https: &Https) -> Running {
    let worker = stage.worker(id, "east", settings).over(https);
    until(&format!("{id} leads"), || leads(&worker));
    worker
}

fn json_of(answer: &(String, String)) -> Value {
    serde_json::from_str(&answer.1).unwrap_or_else(|e| panic!("{e}: {answer:?}"))
}

/// The status of a request with these headers.
fn asks(worker: &Running, method: &str, path: &str, headers: &[&str]) -> (u16, Value) {
    let answer = worker.http_with(method, path, headers, "");
    (code_of(&answer.0), serde_json::from_str(&answer.1).unwrap_or_default())
}

#[test]
fn a_client_certificate_admits_to_what_the_settings_say() {
    let (stage, pki) = (Stage::new("/tls-clients"), pki());
    pki.issue("ops", "clients", "DNS:ops", 2);
    pki.issue("stranger", "foreign", "DNS:ops", 2);
    pki.issue("late", "clients", "DNS:ops", -1);
    let settings =
        [pki.setting(&ALL), "http.access={ status = \"certificate\", control = \"certificate\" }".to_owned()];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let (worker, log) = Log::of(&mut stage.worker_command("east-1", "east", &settings));
    let mut worker = worker.over(&pki.client(None));
    until("it leads", || leads(&worker));

    // Without a certificate: health checks only.
    for path in ["/leader", "/liveness", "/readiness"] {
        assert_eq!(worker.code(path), 200, "{path}");
    }
    assert_eq!(worker.code("/standby"), 503);
    for (method, path) in
        [("GET", "/"), ("GET", "/status"), ("GET", "/metrics"), ("GET", "/config"), ("POST", "/pause")]
    {
        let (code, answer) = asks(&worker, method, path, &[&format!("Authorization: Bearer {TOKEN}")]);
        let why = answer["error"].as_str().expect("an error");
        assert!(code == 403 && why.contains("client certificate"), "{path}: {code} {why}");
    }
    // One of another authority, and one that has expired: no handshake.
    for name in ["stranger", "late"] {
        let answer = pki.client(Some(name)).get(worker.port, "/liveness");
        assert!(answer.is_err(), "{name}: {answer:?}");
    }
    until("the failures are counted", || {
        let metrics = pki.client(Some("ops")).get(worker.port, "/metrics").expect("an answer").1;
        metrics.lines().any(|line| line.starts_with("dr_tls_handshakes_failed_total") && line.ends_with(" 2"))
    });

    worker.https = Some(pki.client(Some("ops")));
    for path in ["/", "/status", "/metrics", "/config"] {
        assert_eq!(worker.code(path), 200, "{path}");
    }
    // A browser shows the certificate for pages of other sites as well.
    for (headers, expected) in [
        (&["Sec-Fetch-Site: cross-site"][..], 403),
        (&["Origin: https://evil.example"], 403),
        (&["Content-Type: text/plain"], 415),
    ] {
        assert_eq!(asks(&worker, "POST", "/pause", headers).0, expected, "{headers:?}");
    }
    let (code, answer) = asks(&worker, "POST", "/pause", &[]);
    assert_eq!((code, &answer["mode"]), (202, &json!("manual")), "{answer}");
    until("it is logged with the name in the certificate", || log.has("\"certificate\":\"ops\""));
}

#[test]
fn tokens_can_be_required_for_reading_and_control_be_closed() {
    let (stage, pki) = (Stage::new("/tls-tokens"), pki());
    let (_, tokens) = stage.tokens(TOKEN);
    let tls = pki.setting(&ALL[..2]);
    let access = "http.access={ status = \"token\", control = \"closed\" }";
    let worker = leader(&stage, "east-1", &[&tls, &tokens, access], &pki.client(None));
    let (right, wrong) =
        (format!("Authorization: Bearer {TOKEN}"), format!("Authorization: Bearer x{TOKEN}"));
    for (method, path, headers, code) in [
        ("GET", "/status", &[][..], 401),
        ("GET", "/status", &[wrong.as_str()], 401),
        ("GET", "/status", &[right.as_str()], 200),
        ("GET", "/liveness", &[], 200),
        ("GET", "/config", &[right.as_str()], 403),
        ("POST", "/pause", &[right.as_str()], 403),
    ] {
        assert_eq!(asks(&worker, method, path, headers).0, code, "{method} {path} {headers:?}");
    }
}

#[test]
fn a_certificate_is_renewed_under_load_without_a_failed_request() {
    let (stage, pki) = (Stage::new("/tls-renewal"), pki());
    pki.issue("renewed", "ca", HERE, 25);
    let (worker, log) = Log::of(&mut stage.worker_command("east-1", "east", &[&pki.setting(&ALL)]));
    let https = pki.client(None);
    let worker = worker.over(&https);
    until("it leads", || leads(&worker));
    let expires = || {
        let metrics = worker.http("GET", "/metrics").1;
        let line =
            metrics.lines().find(|line| line.starts_with("dr_certificate_expiry_timestamp_seconds"))?;
        Some(line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"))
    };
    // It is published beside the election, so a worker can lead before.
    until("it is served", || expires().is_some());
    let before = expires().expect("it is served");

    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = || {
        while !stop.load(Ordering::Relaxed) {
            let answer = https.get(worker.port, "/liveness").expect("no request fails");
            assert_eq!(code_of(&answer.0), 200);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(load);
        }
        // As a tool does that is interrupted between the two files: the former pair stays.
        pki.replace("renewed.pem", "worker.pem");
        until("a certificate without its key is reported", || log.has("is not the key of the certificate"));
        assert!((expires().expect("it is served") - before).abs() < 1.0);
        pki.replace("renewed.key", "worker.key");
        until("the new certificate is in use", || expires() > Some(before + 86_400.0));
        // What is no certificate at all.
        pki.replace("worker.key", "worker.pem");
        until("it is reported", || log.has("no certificate in this file"));
        pki.replace("renewed.pem", "worker.pem");
        until("its end is reported", || log.has("match the certificates in use again"));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(log.has("the former ones remain in use") && log.has("were replaced"));
    assert!(answered.load(Ordering::Relaxed) > 100, "{answered:?}");
}

#[test]
fn clients_without_a_handshake_are_dropped_and_hold_up_nobody() {
    let (stage, pki) = (Stage::new("/tls-slow"), pki());
    let worker = leader(&stage, "east-1", &[&pki.setting(&ALL)], &pki.client(None));
    // They connect and are silent, or begin a handshake.
    let hello = [0x16, 3, 1, 2, 0, 1, 0];
    let silent: Vec<_> = (0..50)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("it listens");
            stream.write_all(&hello[..number % hello.len()]).expect("it is sent");
            stream
        })
        .collect();
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(worker.code("/leader"), 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    // Plain HTTP gets an alert of TLS, and its end at once.
    let mut plain = TcpStream::connect(("127.0.0.1", worker.port)).expect("it listens");
    plain.set_read_timeout(Some(Duration::from_secs(4))).expect("a timeout");
    plain.write_all(b"GET /liveness HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).expect("the connection is closed");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        // Closed or reset, but not open.
        let read = stream.read_to_end(&mut Vec::new());
        let is_open = read.is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock));
        assert!(!is_open, "after {:?}", begun.elapsed());
    }
    assert!(
        begun.elapsed() > Duration::from_secs(4),
        "a slow client has less than 5 s: {:?}",
        begun.elapsed()
    );
}

/// Settings of members that probe each other.
const PROBING: [&str; 3] =
    ["policy.fast_failover=true", "policy.suspect_after=500ms", "job.orders.fenced=true"];

fn probing<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&PROBING[..], more].concat()
}

/// Whether it publishes a round trip to this member.
fn measures(worker: &Running, peer: &str) -> bool {
    let metrics = worker.http("GET", "/metrics").1;
    metrics
        .lines()
        .any(|line| line.starts_with("dr_peer_rtt_seconds") && line.contains(&format!("peer=\"{peer}\"")))
}

#[test]
fn workers_with_and_without_tls_probe_each_other() {
    let (stage, pki) = (Stage::new("/tls-mixed"), pki());
    let https = pki.client(None);
    let with = pki.setting(&ALL);
    let east = leader(&stage, "east-1", &probing(&[&with]), &https);
    let without = pki.setting(&ALL[3..]);
    let west = stage.worker("west-1", "west", &probing(&[&without]));
    until("both measure", || measures(&east, "west-1") && measures(&west, "east-1"));

    let list = stage.json(&["list"]);
    let url = |member: &str| {
        let members = list["members"].as_array().expect("members");
        members.iter().find(|m| m["member"] == member).expect("a member")["http"].clone()
    };
    assert_eq!(url("east-1"), format!("https://127.0.0.1:{}", east.port));
    assert_eq!(url("west-1"), format!("http://127.0.0.1:{}", west.port));

    // A command asks the elector why it decides nothing, and verifies it.
    let elector = list["elector"].clone();
    assert_eq!(elector, "east-1");
    let operator = |settings: &[&str]| {
        let mut command = stage.command(settings);
        command.args(["--output", "json", "list"]);
        let outcome = crate::support::Outcome::of(&mut command);
        serde_json::from_str::<Value>(&outcome.assert(0, &[]).stdout).expect("JSON")["skipped"].clone()
    };
    until("it is told", || operator(&[&without])["reason"] == "steady");
    assert_eq!(operator(&[]), Value::Null);
    // So does another worker, if the elector's answers in time.
    until("another worker is told", || {
        json_of(&west.http("GET", "/cluster"))["skipped"]["reason"] == "steady"
    });
}

/// East-1 leads, and is lost with its guards. West-1 follows long before the session ends.
fn a_lost_leader_is_replaced(
    root: &'static str,
    pki: &Pki,
    have_probed: impl Fn(&[Running], &[Log]) -> bool,
) {
    let stage = Stage::new(root);
    let settings = [pki.setting(&ALL), "zookeeper.session_timeout=20s".to_owned()];
    let settings = probing(&settings.each_ref().map(String::as_str));
    let leader = || {
        // Before the first worker has joined, there is no election.
        let list = stage.operator(&["--output", "json", "list"]).stdout;
        serde_json::from_str::<Value>(&list).unwrap_or_default()["slots"][0]["leader"].clone()
    };
    let (mut workers, mut logs) = (Vec::new(), Vec::new());
    for (id, site) in [("east-1", "east"), ("east-2", "east"), ("west-1", "west")] {
        let (worker, log) = Log::of(&mut stage.worker_command(id, site, &settings));
        workers.push(worker.over(&pki.client(None)));
        logs.push(log);
        until("east-1 leads", || leader()["member"] == "east-1" && leader()["status"] == "READY");
    }
    until("all have probed each other", || have_probed(&workers, &logs));
    // Several rounds of probes later it still leads. That nothing happens shows only with time: a slow machine makes no failure
    // of it. The rounds can't be counted from here, because a client refuses an expired certificate.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(stage.json(&["list"])["term"], 1, "{}", logs[0].text());

    let begun = Instant::now();
    workers[0].kill_with_guards();
    until("west-1 leads", || leader()["member"] == "west-1");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?} of a session of 20 s");
}

#[test]
fn a_lost_leader_is_replaced_before_its_session_ends() {
    a_lost_leader_is_replaced("/tls-failover", &pki(), |workers, _| {
        workers.iter().all(|worker| {
            ["east-1", "east-2", "west-1"].iter().filter(|peer| measures(worker, peer)).count() == 2
        })
    });
}

/// An expired certificate must cost no leader its leadership.
#[test]
fn members_with_an_expired_certificate_count_as_reachable() {
    let pki = Pki::new();
    pki.issue("worker", "ca", HERE, -1);
    a_lost_leader_is_replaced("/tls-expired", &pki, |_, logs| {
        let warned = |log: &Log| log.text().matches("but not as TLS requires it").count() == 2;
        logs.iter().all(|log| log.has("http.tls.cert_file has expired at") && warned(log))
    });
}

#[test]
fn config_check_finds_what_is_wrong_with_the_files() {
    let (stage, pki) = (Stage::new("/tls-check"), pki());
    pki.issue("other", "ca", HERE, 20);
    pki.issue("soon", "ca", HERE, 5);
    pki.issue("late", "ca", HERE, -1);
    pki.issue("elsewhere", "ca", "DNS:elsewhere", 20);
    pki.issue("strange", "foreign", HERE, 20);
    fs::write(pki.path("empty.pem"), "").expect("a file");
    fs::copy(pki.path("worker.key"), pki.path("open.key")).expect("a copy");
    fs::set_permissions(pki.path("open.key"), fs::Permissions::from_mode(0o644)).expect("its permissions");
    let check = |cert: &str, key: &str, ca: &str| {
        let setting = pki.setting(&[("cert_file", cert), ("key_file", key), ("ca_file", ca)]);
        let mut command = stage.worker_command("east-1", "east", &[&setting]);
        crate::support::Outcome::of(command.args(["config", "check"]))
    };
    check("worker.pem", "worker.key", "ca.pem").assert(0, &[]);
    check("soon.pem", "soon.key", "ca.pem")
        .assert(0, &["warning:", "the certificate of http.tls.cert_file expires at"]);
    for (name, part) in [("worker", None), ("soon", Some("expires at")), ("late", Some("has expired at"))] {
        let file = |extension: &str| pki.path(&format!("{name}.{extension}")).display().to_string();
        let (cert, key, ca) = (file("pem"), file("key"), pki.path("ca.pem").display().to_string());
        let setting =
            format!("zookeeper.tls={{ ca_file = {ca:?}, cert_file = {cert:?}, key_file = {key:?} }}");
        let mut command = stage.worker_command("east-1", "east", &[&setting]);
        let said = crate::support::Outcome::of(command.args(["config", "check"]));
        let part = part.map(|part| format!("the certificate of zookeeper.tls.cert_file {part}"));
        said.assert(0, &part.iter().map(String::as_str).collect::<Vec<_>>());
    }
    for (cert, key, ca, parts) in [
        ("none.pem", "worker.key", "ca.pem", ["http.tls.cert_file", "can't be read"]),
        ("empty.pem", "worker.key", "ca.pem", ["http.tls.cert_file", "no certificate in this file"]),
        ("worker.pem", "none.key", "ca.pem", ["http.tls.key_file", "can't be read"]),
        ("worker.pem", "worker.pem", "ca.pem", ["http.tls.key_file", "permissions 644"]),
        ("worker.pem", "open.key", "ca.pem", ["http.tls.key_file", "chmod 640"]),
        ("worker.pem", "other.key", "ca.pem", ["http.tls.key_file", "is not the key of the certificate"]),
        ("worker.pem", "worker.key", "empty.pem", ["http.tls.ca_file", "no certificate in this file"]),
        ("late.pem", "late.key", "ca.pem", ["http.tls.cert_file", "expired"]),
        ("elsewhere.pem", "elsewhere.key", "ca.pem", ["reach this one as 127.0.0.1", "not valid for"]),
        ("strange.pem", "strange.key", "ca.pem", ["http.tls.cert_file", "refuse the certificate"]),
    ] {
        let outcome = check(cert, key, ca);
        // It may come with a later mount.
        outcome.assert(if parts[1] == "can't be read" { 75 } else { 78 }, &parts);
        assert!(!outcome.stderr.contains("PRIVATE KEY"), "{}", outcome.stderr);
    }
}
