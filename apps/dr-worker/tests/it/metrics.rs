//! `/metrics`, the alerts and the dashboard, as Prometheus's own programs read them.
//!
//! Without Debian's package `prometheus` the tests are skipped; with `CI` set they fail.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use crate::support::{
    Example, Running, at, http,
    stage::{Stage, leads},
    until,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use zk_testkit::PortReservation;

/// Whether a program of the package is there.
fn is_there(program: &str) -> bool {
    crate::support::is_there(program, "prometheus")
}

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut promtool = Command::new("promtool");
    promtool.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool can be started");
    // It may end before it has read everything.
    let _ = promtool.stdin.take().expect("a pipe").write_all(input.as_bytes());
    promtool.wait_with_output().expect("its own child")
}

#[track_caller]
fn assert_ok(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    // `promtool check metrics` ends with 0 for some of its findings.
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

/// Settings of members that probe each other.
const PROBING: [&str; 2] = ["policy.fast_failover=true", "job.orders.fenced=true"];

fn metrics(worker: &Running) -> String {
    worker.http("GET", "/metrics").1
}

/// The value of the series whose name and labels begin so and contain this.
fn value(text: &str, series: &str, label: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(series) && line.contains(label))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// The families of an exposition: name, kind and help.
fn families(text: &str) -> Vec<(&str, &str, &str)> {
    let mut families = Vec::new();
    let mut help = "";
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        if let Some(text) = line.strip_prefix("HELP ") {
            help = text.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("TYPE ").and_then(|line| line.split_once(' ')) {
            families.push((name, kind, std::mem::take(&mut help)));
        }
    }
    families
}

#[test]
fn promtool_finds_no_fault_and_all_that_is_served_is_documented() {
    if !is_there("promtool") {
        return;
    }
    let stage = Stage::new("/metrics-served");
    let more = [
        "job.orders.measure.command=[\"/bin/sh\", \"-c\", \"echo lag=5\"]",
        "job.orders.fitness={ kind = \"exec\", command = [\"true\"] }",
    ];
    let settings = [&PROBING[..], &more].concat();
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &settings);
    let all = "dr_peer_rtt_seconds{ dr_measured{ dr_healthy{ dr_held{ zk_session_request_seconds_bucket{";
    let has_all = |text: &str| all.split(' ').all(|series| text.contains(series));
    until("the other one has measured", || has_all(&metrics(&west)));
    let table = fs::read_to_string(at("docs/metrics.md")).expect("the documentation");
    for (worker, here) in [(&east, true), (&west, false)] {
        let text = metrics(worker);
        assert_ok(&promtool(&["check", "metrics"], &text));
        for (name, kind, help) in families(&text) {
            let row = table.lines().find(|line| line.starts_with(&format!("| `{name}`")));
            let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
            assert!(
                row.contains(&format!("| {kind} |")) && row.ends_with(&format!("| {help} |")),
                "{name}: {row}"
            );
            assert!(!help.is_empty(), "{name} is not described");
        }
        // Both have what alerts need before anything happens.
        assert_eq!(value(&text, "dr_leader{", "job=\"orders\""), Some(f64::from(here)));
        for zero in
            ["dr_takeover_failures_total{", "zk_session_reconnects_total{", "zk_session_expirations_total{"]
        {
            assert_eq!(value(&text, zero, ""), Some(0.0), "{zero}");
        }
        for phase in ["detect", "decide", "release", "acquire", "takeover"] {
            let count = value(&text, "dr_transition_phase_seconds_count{", &format!("phase=\"{phase}\""));
            let expected = f64::from(here && phase != "detect");
            assert_eq!(count, Some(expected), "{phase}: it is the first leader, so no failure was detected");
        }
        for of_leader in
            ["dr_process_state{", "dr_transitions_total{", "dr_last_transition", "dr_fencing_token{"]
        {
            assert_eq!(text.contains(of_leader), here, "{of_leader}");
        }
    }
}

/// `METRICS_JOBS=1000 cargo test -p dr-worker --test it many_jobs -- --nocapture` prints the sizes of docs/metrics.md.
#[test]
fn a_worker_with_many_jobs_serves_few_series_of_those_that_others_lead() {
    let jobs: usize = std::env::var("METRICS_JOBS").map_or(12, |jobs| jobs.parse().expect("a number"));
    let stage = Stage::new("/metrics-many");
    let config = stage.dir.path().join("jobs.toml");
    let job = |n| format!("[job.job-{n:04}]\ncommand = [\"sleep\", \"100000\"]\nready.after = \"0s\"\n");
    fs::write(&config, (0..jobs).map(job).collect::<String>()).expect("a file");
    let worker = |id, site| {
        let mut command = stage.command(&[
            &format!("node.id={id}"),
            &format!("node.site={site}"),
            &format!("node.state_dir={}", stage.dir.path().join(id).display()),
        ]);
        Running::start(command.arg("--config").arg(&config))
    };
    let led = |text: &str, is_ready| {
        let lines = text.lines().filter(|line| line.starts_with("dr_leader{"));
        lines.filter(|line| line.ends_with(if is_ready { " 1" } else { " 0" })).count()
    };
    let east = worker("east-1", "east");
    until("east-1 leads all", || led(&metrics(&east), true) == jobs);
    let west = worker("west-1", "west");
    let known = |text: &str| text.matches("dr_seconds_since_ready_leader{").count();
    let is_quiet = |text: &str| {
        let mut unled = text.lines().filter(|line| line.starts_with("dr_seconds_since_ready_leader{"));
        led(text, false) == jobs && known(text) == jobs && unled.all(|line| line.ends_with(" 0"))
    };
    until("west-1 knows all leaders", || is_quiet(&metrics(&west)));
    let (east, west) = (metrics(&east), metrics(&west));
    let of_jobs =
        |text: &str| text.lines().filter(|line| line.contains("job=\"job-")).map(str::len).sum::<usize>();
    for (name, text) in [("all of which it leads", &east), ("none of which it leads", &west)] {
        println!(
            "{jobs} jobs, {name}: {} B, {} series",
            text.len(),
            text.lines().filter(|l| !l.starts_with('#')).count()
        );
    }
    assert!(of_jobs(&west) < 600 * jobs, "{}\n{west}", of_jobs(&west));
    assert!(of_jobs(&east) < 3500 * jobs, "{}\n{east}", of_jobs(&east));
}

/// The series of the leaders, sorted.
fn leader_series(worker: &Running) -> Vec<String> {
    let text = metrics(worker);
    let mut served: Vec<_> =
        text.lines().filter(|l| l.starts_with("dr_leader{")).map(str::to_owned).collect();
    served.sort();
    served
}

/// A series without the label would be a job without a leader for the main alert.
#[test]
fn each_slot_of_a_job_is_a_series_and_there_is_no_other() {
    let stage = Stage::new("/metrics-slots");
    let east = stage.worker("east-1", "east", &["policy.slots=2"]);
    let served = || leader_series(&east);
    let mut all = Vec::new();
    until("it leads one of both", || {
        all.extend(served());
        served().iter().any(|line| line.ends_with(" 1"))
    });
    let (of, rest): (Vec<_>, Vec<_>) = all.iter().partition(|line| line.contains("slot=\""));
    assert!(rest.is_empty() && served().len() == 2, "{rest:?} {of:?}");
}

/// The number of leaders is changed by restarts of the workers, one after the other.
#[test]
fn slots_have_series_once_they_are_decided_and_the_former_series_ends() {
    let stage = Stage::new("/metrics-more-slots");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &["policy.slots=2"]);
    until("west-1 has read the decision about one leader", || {
        let served = leader_series(&west);
        served.len() == 1 && !served[0].contains("slot=")
    });
    east.signal(Signal::SIGTERM);
    east.ended();
    until("west-1 has decided about two slots", || {
        let served = leader_series(&west);
        served.len() == 2 && served.iter().all(|line| line.contains("slot=\""))
    });
}

#[test]
fn alerts_pass_their_tests_and_each_has_one() {
    if !is_there("promtool") {
        return;
    }
    let alerts = at("config/prometheus/alerts.yml");
    let tests = ["alerts-test.yml", "alerts-drill-test.yml"].map(|name| at("config/prometheus").join(name));
    let path = |path: &Path| path.display().to_string();
    assert_ok(&promtool(&["check", "rules", "--lint-fatal", &path(&alerts)], ""));
    let tested = promtool(&["test", "rules", &path(&tests[0]), &path(&tests[1])], "");
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&[tested.stdout, tested.stderr].concat()));
    let read = |path| fs::read_to_string(path).expect("a file of the workspace");
    let (alerts, tests) = (read(alerts), tests.map(read).concat());
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for name in names {
        // The second line of a test that expects the alert.
        let expects = |(at, _): (usize, &str)| {
            tests[at..].lines().nth(1).is_some_and(|line| line.contains("exp_alerts:"))
        };
        assert!(tests.match_indices(&format!("alertname: {name}\n")).any(expects), "{name} has no test");
    }
}

#[test]
fn prometheus_can_evaluate_every_panel_of_the_dashboard() {
    if !is_there("promtool") {
        return;
    }
    let dashboard = fs::read_to_string(at("config/grafana/dr-worker.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut rules = "groups:\n  - name: panels\n    rules:\n".to_owned();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut number = 0;
    for target in targets.chain(dashboard["annotations"]["list"].as_array().into_iter().flatten()) {
        let expr = target["expr"].as_str().expect("an expression").replace("$__rate_interval", "5m");
        number += 1;
        rules += &format!("      - record: panel:{number}\n        expr: {}\n", serde_json::json!(expr));
    }
    assert!(number > 10, "{rules}");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("panels.yml");
    fs::write(&path, rules).expect("a file");
    assert_ok(&promtool(&["check", "rules", &path.display().to_string()], ""));
}

/// A Prometheus server; it ends with the test.
struct Prometheus {
    child: Child,
    port: u16,
    _port: PortReservation,
}

impl Prometheus {
    /// It scrapes the workers, and evaluates the alerts.
    fn start(dir: &Path, workers: &[&Running]) -> Self {
        let targets: Vec<_> = workers.iter().map(|worker| format!("127.0.0.1:{}", worker.port)).collect();
        let config = dir.join("prometheus.yml");
        // The example's configuration, at another pace.
        let example = fs::read_to_string(at("examples/prometheus/prometheus.yml")).expect("the example");
        let example = example
            .replace("interval: 5s", "interval: 200ms")
            .replace("alerts.yml", &at("config/prometheus/alerts.yml").display().to_string());
        let example = example.replace("127.0.0.1:7080, 127.0.0.1:7081", &targets.join(", "));
        fs::write(&config, example).expect("a file");
        let reserved = PortReservation::take(1).expect("a free port");
        let port = reserved.ports()[0];
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(dir.join("prometheus.log")).expect("a log"))
            .spawn()
            .expect("prometheus can be started");
        Self { child, port, _port: reserved }
    }

    /// The series of the result of an expression, each with its value.
    fn query(&self, expr: &str) -> Option<Vec<(Value, String)>> {
        let encoded: String = expr.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (_, body) = http(self.port, "GET", &format!("/api/v1/query?query={encoded}")).ok()?;
        let body: Value = serde_json::from_str(&body).ok()?;
        let result = body["data"]["result"].as_array()?.iter();
        Some(
            result.map(|s| (s["metric"].clone(), s["value"][1].as_str().unwrap_or("?").to_owned())).collect(),
        )
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_prometheus_server_sees_a_failover_by_the_main_alert() {
    if !is_there("prometheus") {
        return;
    }
    let stage = Stage::new("/metrics-failover");
    let state = format!("node.state_dir={}", stage.dir.path().join("west").display());
    let mut east = stage.worker("east-1", "east", &PROBING);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&PROBING[..], &[&state]].concat());
    let prometheus = Prometheus::start(stage.dir.path(), &[&east, &west]);
    let up = "sum(up{job=\"dr-worker\"})";
    until("both are scraped", || prometheus.query(up).is_some_and(|up| up.iter().any(|(_, n)| n == "2")));
    let alerts = fs::read_to_string(at("config/prometheus/alerts.yml")).expect("the alerts");
    let main = alerts.split("alert: DrNotOneLeader").nth(1).and_then(|rest| rest.split("expr: ").nth(1));
    let main = main.and_then(|rest| rest.lines().next()).expect("the main alert");
    let leader = || -> Option<Value> {
        let of = prometheus.query("dr_leader == 1")?;
        Some(of.first()?.0["member"].clone())
    };
    until("it knows the leader", || leader() == Some("east-1".into()));
    until("it knows both members", || {
        prometheus.query("count(dr_leader)").is_some_and(|count| count.iter().any(|(_, n)| n == "2"))
    });
    assert_eq!(prometheus.query(main), Some(Vec::new()), "one member leads");

    // As if its host were lost: its session lasts until it times out.
    until("west-1 has probed east-1", || value(&metrics(&west), "dr_peer_rtt_seconds{", "east-1").is_some());
    east.kill_with_guards();
    until("the main alert has its reason", || {
        let seen = prometheus.query(main).unwrap_or_default();
        seen.iter().any(|(labels, leaders)| labels["job"] == "orders" && leaders == "0")
    });
    until("it is an alert that waits for its minute", || {
        let pending = prometheus.query("ALERTS{alertname=\"DrNotOneLeader\", alertstate=\"pending\"}");
        pending.is_some_and(|pending| pending.len() == 1)
    });
    until("it knows the next leader", || leader() == Some("west-1".into()));
    until("the main alert has no reason", || prometheus.query(main) == Some(Vec::new()));
    // By a counter that existed before.
    until("it has counted a change", || {
        let changes =
            prometheus.query("increase(dr_transition_phase_seconds_count{phase=\"takeover\"}[1m]) > 0");
        changes.is_some_and(|changes| changes.len() == 1)
    });

    // The session timeout is 6 s, and heartbeats are sent every 1.5 s.
    let text = metrics(&west);
    let detected =
        value(&text, "dr_last_transition_phase_seconds{", "phase=\"detect\"").expect("it is known");
    assert!((3.0..=12.0).contains(&detected), "{detected}: {text}");
    assert_eq!(value(&text, "dr_transition_phase_seconds_count{", "phase=\"detect\""), Some(1.0));
    assert_eq!(value(&text, "dr_transitions_total{", "cause=\"leader-lost\""), Some(1.0));
}

#[test]
fn the_example_starts_what_it_says_and_leaves_nothing() {
    if !is_there("prometheus") {
        return;
    }
    let reserved = PortReservation::take(4).expect("free ports");
    let ports: Vec<_> = reserved.ports().iter().map(u16::to_string).collect();
    let example = Example::start("examples/prometheus/run.sh", &ports.join(" "));
    let query = |expr: &str| {
        let (_, body) = http(reserved.ports()[2], "GET", &format!("/api/v1/query?query={expr}")).ok()?;
        Some(body)
    };
    until("a leader is scraped", || query("sum(dr_leader)").is_some_and(|body| body.contains("\"1\"]")));
    until("both are scraped", || query("sum(up)").is_some_and(|body| body.contains("\"2\"]")));
    example.interrupt();
    for port in reserved.ports() {
        assert!(http(*port, "GET", "/").is_err(), "the port {port} is still in use");
    }
}
