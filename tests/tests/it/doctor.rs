//! `doctor`: it names faults that are made here, and reports nothing about a healthy deployment. Faults that can't be made
//! here, such as a full disk, are in the unit tests of its checks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use e2e::{Cluster, Desk, Driver, JOB, Operator, SOON, Setup, own_ensemble, wait_for, wall_ahead};
use serde_json::{Value, json};
use tempfile::TempDir;
use zk_session::{Acl, CreateMode, Session};
use zk_testkit::Ensemble;

const WORKERS: [(&str, &str); 4] =
    [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")];

/// What `doctor` has found: the name, the severity, the sentence.
struct Findings(Vec<(String, String, String)>);

impl Findings {
    /// With these settings over the configuration.
    async fn with(operator: &Operator, code: i32, settings: &[&str]) -> Self {
        let mut arguments = vec!["--output", "json"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        arguments.push("doctor");
        let report = operator.run(&arguments).await.with_code(code).json();
        Self::of(&report)
    }

    fn of(report: &Value) -> Self {
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        let findings = report["findings"].as_array().unwrap().iter();
        Self(findings.map(|f| (text(f, "id"), text(f, "severity"), text(f, "what"))).collect())
    }

    fn name(&self, id: &str, severity: &str, part: &str) -> Result<(), String> {
        let is_it = |(i, s, what): &(String, String, String)| i == id && s == severity && what.contains(part);
        if self.0.iter().any(is_it) {
            Ok(())
        } else {
            Err(format!("{id} {severity} {part:?} not in {:#?}", self.0))
        }
    }

    #[track_caller]
    fn assert(&self, id: &str, severity: &str, part: &str) {
        self.name(id, severity, part).unwrap();
    }
}

/// A setup in which each server has a site and an AdminServer, and the workers' files are on a disk.
fn on_sites(ensemble: &Ensemble, files: &TempDir) -> Setup {
    let admin = ensemble.servers().iter().map(|server| server.admin_address().unwrap().to_string());
    let mut setup = Setup::new(Driver::Native).set("zookeeper.admin", admin.collect::<Vec<_>>());
    for (site, address) in ["east", "west", "third"].iter().zip(ensemble.addresses()) {
        setup = setup.set(&format!("zookeeper.sites.{site}"), vec![address.to_string()]);
    }
    with_files_in(files, setup)
}

/// A setup in which the workers keep their files here.
fn with_files_in(files: &TempDir, mut setup: Setup) -> Setup {
    for (id, _) in WORKERS {
        setup = setup.set_for(id, "node.state_dir", files.path().join(id).display().to_string());
    }
    setup
}

/// The temporary directory can be in memory; this one is not.
fn on_disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

async fn named(operator: &Operator, code: i32, settings: &[&str], id: &str, severity: &str, part: &str) {
    Findings::with(operator, code, settings).await.assert(id, severity, part);
}

/// Four workers in two sites, and three servers in three. Then things happen to them.
#[tokio::test]
async fn a_healthy_deployment_has_one_note_and_what_happens_to_it_is_named() {
    let files = on_disk();
    let ensemble = own_ensemble(|servers| {
        servers.with(|settings| settings.admin_server = true).jvm_flag("-Dzookeeper.forceSync=yes")
    })
    .await;
    let mut cluster = Cluster::on(Arc::clone(&ensemble), on_sites(&ensemble, &files)).await;
    let leader = cluster.settled().await;
    assert_eq!(leader.site, "east");
    let east = cluster.as_worker("east-1");
    // Members join one after the other, and the line is written again each time.
    wait_for("a report with one note", SOON, async || {
        let said = east.run(&["doctor"]).await;
        let is_quiet = said.code == Some(0)
            && said.stdout.starts_with("note no-access-lists\n")
            && said.stdout.contains("\n1 note (")
            && said.stderr.is_empty();
        if is_quiet { Ok(()) } else { Err(format!("{said:#?}")) }
    })
    .await;
    east.done(&["doctor", "--strict"]).await;
    let report = east.json(&["config", "check", "--online"]).await;
    let findings = Findings::of(&report);
    findings.assert("no-access-lists", "note", "zookeeper.acl");
    assert_eq!((findings.0.len(), &report["member"]), (1, &json!("east-1")), "{report:#}");

    // Orders.
    let verbs: [(&[&str], &[&str], &str, &str); 3] = [
        (&["pause"], &["resume"], "paused", "orders: the mode is manual"),
        (
            &["maintenance", "west-2"],
            &["maintenance", "west-2", "--off"],
            "maintenance",
            "west-2 is in maintenance",
        ),
        (&["drain", "west"], &["drain", "west", "--off"], "closed-site", "site west is drained"),
    ];
    for (order, undo, id, part) in verbs {
        east.done(order).await;
        let findings = Findings::with(&east, if id == "closed-site" { 1 } else { 0 }, &[]).await;
        findings.assert(id, "note", part);
        match id {
            "maintenance" => {
                findings.assert("single-candidate", "warning", "west-1 is the only candidate of site west")
            }
            "closed-site" => {
                findings.assert("empty-site", "warning", "no member of site west may lead");
                findings.assert("no-other-site", "error", "orders: without site east");
            }
            _ => {}
        }
        east.done(undo).await;
    }

    // Znodes.
    let znodes = cluster.znodes().await.clone();
    let left = json!({ "v": 1, "leaderships": [
        { "member": "west-9", "site": "west", "term": 1, "fencing_token": 1, "since_ms": 1 }
    ]});
    znodes.put("orders/breadcrumbs", left.to_string().as_bytes()).await;
    znodes.put("orders/nodes/west-9", b"garbage").await;
    let findings = Findings::with(&east, 0, &[]).await;
    findings.assert("breadcrumb", "warning", "west-9 of site west led in term 1");
    findings.assert("unreadable-znode", "warning", "orders/nodes/west-9");
    znodes.delete("orders/breadcrumbs").await;
    znodes.delete("orders/nodes/west-9").await;

    // The record of a member with another version and another configuration.
    let mut record = znodes.json("orders/nodes/west-2").await;
    for (key, value) in [
        ("member", json!("west-3")),
        ("ballot", json!("s1.1-0000000099")),
        ("http", Value::Null),
        ("software", json!("dr-worker 99.0.0")),
        ("policy", json!("another")),
        ("config", json!({ "version": 7, "refused": { "version": 8, "reason": "not here" } })),
    ] {
        record[key] = value;
    }
    znodes.put("orders/nodes/west-3", record.to_string().as_bytes()).await;
    let findings = Findings::with(&east, 0, &[]).await;
    findings.assert("member-versions", "warning", "west-3 has dr-worker 99.0.0");
    findings.assert("member-policy", "warning", "west-3 has another policy than the elector");
    findings.assert("member-config", "warning", "west-3 refuses configuration version 8");
    znodes.delete("orders/nodes/west-3").await;

    // A member that is silent, and one whose clock is wrong.
    cluster.worker("west-2").freeze();
    named(&east, 0, &[], "member-unreachable", "warning", "west-2 of site west").await;
    cluster.worker("west-2").kill();
    let ahead = wall_ahead(cluster.dir(), 60);
    cluster.worker("west-2").set_env(ahead);
    cluster.worker("west-2").start();
    wait_for("its clock is named", SOON, async || {
        Findings::with(&east, 0, &[]).await.name("member-clock", "warning", "the clock of west-2 is")
    })
    .await;

    // Servers: the third one is down, then there is no quorum.
    ensemble.kill(2).await.unwrap();
    let findings = Findings::with(&east, 1, &[]).await;
    let third = ensemble.server(2).address();
    findings.assert("server-unreachable", "warning", &format!("{third} can't be reached"));
    findings.assert(
        "site-quorum",
        "error",
        &format!("the loss of site east loses the quorum while {third} is down"),
    );
    ensemble.kill(1).await.unwrap();
    wait_for("the server knows it", SOON, async || {
        let findings = Findings::with(&east, 69, &["zookeeper.connect_timeout=1s"]).await;
        findings.name("zookeeper-session", "error", "no session with ZooKeeper")?;
        findings.name("server-not-serving", "warning", &ensemble.server(0).address().to_string())
    })
    .await;
    ensemble.start_server(1).await.unwrap();
    ensemble.start_server(2).await.unwrap();
    ensemble.wait_serving(SOON).await.unwrap();
    cluster.settled().await;
    cluster.end().await;
}

/// A file of this mode.
fn file(dir: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

/// The deployment works, and the configuration of this node is not the right one.
#[tokio::test]
async fn mistakes_in_the_configuration_of_a_node_are_named() {
    let files = on_disk();
    let mut cluster = Cluster::of(with_files_in(&files, Setup::new(Driver::Native))).await;
    let leader = cluster.settled().await;
    let east = cluster.as_worker("east-1");
    let dir = tempfile::tempdir().unwrap();
    let servers = cluster.ensemble().addresses();
    let sites = format!(
        "zookeeper.sites={{ east = [\"{}\", \"{}\"], west = [\"{}\"] }}",
        servers[0], servers[1], servers[2]
    );
    let two = format!("zookeeper.connect={},{}", servers[0], servers[1]);
    let secret = format!("zookeeper.auth.credentials_file={}", file(dir.path(), "zk", "me:secret\n", 0o644));
    let tokens = format!("http.token_file={}", file(dir.path(), "tokens", "0123456789abcdef\n", 0o644));
    let no_directory = format!("node.state_dir={}/below", file(dir.path(), "file", "", 0o600));
    let long = ["zookeeper.session_timeout=60s", "job.orders.stop_timeout=20s"];
    let short = ["zookeeper.session_timeout=1500ms", "job.orders.stop_timeout=0s"];
    let keep = ["job.orders.fenced=false", "policy.on_pause=keep"];
    let fast = ["job.orders.fenced=false", "policy.fast_failover=true"];
    let watchdog = ["watchdog.mode=required", "watchdog.device=/nonexistent"];
    let here = "on the host of 127.0.0.1:";
    let (error, warning, unknown, note) = ("error", "warning", "unknown", "note");
    let faults: &[(&[&str], i32, &str, &str, &str)] = &[
        (&[], 0, "server-properties", unknown, "forceSync, skipACL"),
        (&[], 0, "server-sites", unknown, "zookeeper.sites does not name them"),
        (&[&sites], 1, "site-quorum", error, "the loss of site east loses the quorum: 1 of 3 voting servers"),
        (&[&two], 0, "server-unlisted", warning, "3 voting servers, and 1 of them are not in"),
        (&["zookeeper.tick_time=250ms"], 1, "tick-time", error, "leases are computed too long"),
        (&["zookeeper.tick_time=1s"], 0, "tick-time", note, "leases are shorter"),
        (
            &long,
            1,
            "session-timeout",
            warning,
            "asks for 1m, but the servers grant 10s; the servers allow 1s to 10s",
        ),
        (&long, 1, "stop-budget", error, "the stop of orders may need 20s"),
        (&short, 0, "late-expiry", warning, "replaced after 1.5s to 2s"),
        (&short, 0, "sync-limit", warning, "after 5s (syncLimit × tickTime), and sessions end after 1.5s"),
        (
            &["zookeeper.root=/none"],
            0,
            "no-election",
            note,
            "no worker has joined the election of orders yet",
        ),
        (&["node.address=192.0.2.1"], 1, "duplicate-id", error, "a worker at 127.0.0.1 has that id"),
        (
            &["policy.sites=[\"east\", \"west\", \"north\"]"],
            0,
            "empty-site",
            warning,
            "site north may lead (it has no member)",
        ),
        (&keep, 1, "keep-unfenced", error, "orders has on_pause = \"keep\""),
        (&fast, 0, "fast-unfenced", warning, "orders has fast_failover and is not fenced"),
        (&["policy.fast_failover=true"], 0, "beside-zookeeper-leader", warning, here),
        (
            &["job.orders.hooks.prepare.command=[\"/nonexistent\"]"],
            1,
            "not-runnable",
            error,
            "job.orders.hooks.prepare.command",
        ),
        (&[&tokens], 1, "unusable-file", error, "http.token_file"),
        (&[&secret], 1, "readable-secret", error, "other users can read"),
        (&[&secret], 1, "open-access", warning, "not only the owner of these credentials has access"),
        (&[&no_directory], 1, "state-dir", error, "is not a directory"),
        (
            &["http.listen=0.0.0.0:7080"],
            0,
            "open-http",
            warning,
            "everyone on those hosts can read the state",
        ),
        (&watchdog, 1, "watchdog", error, "/nonexistent: No such file"),
    ];
    for (settings, code, id, severity, part) in faults {
        named(&east, *code, settings, id, severity, part).await;
    }
    // The group of the service may read them.
    let secret =
        format!("zookeeper.auth.credentials_file={}", file(dir.path(), "group", "me:secret\n", 0o640));
    let said = east.run(&["--output", "json", "--set", &secret, "doctor"]).await;
    Findings::of(&said.json()).name("readable-secret", error, "").unwrap_err();
    // Warnings and what is unknown count with --strict only.
    east.done(&["doctor"]).await;
    let strict = east.run(&["doctor", "--strict"]).await.with_code(1);
    assert!(strict.stdout.contains("unknown server-sites\n"), "{strict:#?}");
    assert_eq!(strict.stderr, "error: not everything could be checked: see the report\n");
    assert!(strict.stdout.contains("\n    why: ") && strict.stdout.contains("\n    do:  "), "{strict:#?}");
    // What the worker itself refuses, and an operator's command does not need.
    let too_long = "job.orders.stop_timeout=20s";
    named(&east, 1, &[too_long], "no-worker", error, "the job cannot be stopped before its lease ends").await;
    // An operator's desk is no node.
    named(cluster.operator(), 0, &[], "no-worker", unknown, "node.site: it is missing").await;
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && fs::read_to_string("/proc/mounts").unwrap().contains(" /dev/shm tmpfs ") {
        let set = "node.state_dir=/dev/shm/dr-doctor";
        named(&east, 0, &[set], "state-in-memory", warning, "/dev/shm/dr-doctor is in memory").await;
    } else {
        zk_testkit::skip("state-in-memory, because /dev/shm is no tmpfs");
    }
    // It has changed nothing.
    assert_eq!(cluster.leader().await.unwrap(), leader);

    // A policy that never chooses another site, in force on all members.
    let overlay = dir.path().join("overlay.toml");
    fs::write(&overlay, "[policy]\nsites = [\"east\"]\nforbidden_sites = [\"west\"]\n").unwrap();
    east.done(&["config", "push", overlay.to_str().unwrap()]).await;
    wait_for("the only site is named", SOON, async || {
        let said = east.run(&["--output", "json", "doctor"]).await;
        let findings = Findings::of(&said.json());
        findings.name("no-other-site", "error", "orders: without site east: ")
    })
    .await;
    cluster.end().await;
}

/// No member is fit, so no member leads.
#[tokio::test]
async fn a_job_without_a_candidate_is_named() {
    let setup = Setup::new(Driver::Native)
        .workers(&[WORKERS[0], WORKERS[2]])
        .set("job.orders.fitness.kind", "exec")
        .set("job.orders.fitness.command", vec!["false"])
        .set("job.orders.fitness.interval", "500ms")
        .set("job.orders.fitness.timeout", "500ms")
        .set("job.orders.fitness.failures", 1);
    let cluster = Cluster::of(setup).await;
    let east = cluster.as_worker("east-1");
    wait_for("both are unfit", SOON, async || {
        let said = east.run(&["--output", "json", "doctor"]).await;
        if said.code != Some(1) {
            return Err(format!("{said:#?}"));
        }
        let findings = Findings::of(&said.json());
        findings.name("no-leader", "error", &format!("no member leads {JOB}"))?;
        findings.name("no-candidate", "error", "orders: no member may lead (east-1: ")?;
        findings.name("empty-site", "warning", "no member of site west may lead (west-1: ")
    })
    .await;
    cluster.end().await;
}

/// Three servers, one of which has no vote, with settings that make them weak.
#[tokio::test]
async fn weak_servers_are_named() {
    let flags = ["skipACL=yes", "enableEagerACLCheck=true", "snapCount=100", "forceSync=no"];
    let ensemble = own_ensemble(|servers| {
        let servers = servers.with(|settings| {
            (settings.observers, settings.init_limit, settings.admin_server) = (1, 8, true);
        });
        flags.iter().fold(servers, |servers, flag| servers.jvm_flag(format!("-Dzookeeper.{flag}")))
    })
    .await;
    let files = on_disk();
    let secret = file(files.path(), "zk", "me:secret\n", 0o600);
    let setup = on_sites(&ensemble, &files).not_started().set("zookeeper.auth.credentials_file", secret);
    let cluster = Cluster::on(Arc::clone(&ensemble), setup).await;
    let session =
        Session::builder(ensemble.connect_string()).auth("digest", "me:secret").acl(Acl::CreatorAll);
    let session = session.connect().await.unwrap();
    session.create(cluster.root(), Vec::new(), CreateMode::Persistent).await.unwrap();
    session.close(SOON).await;
    let east = cluster.as_worker("east-1");
    let second = ensemble.server(1).address();
    // The first answers of the AdminServers can be late.
    wait_for("what is weak is named", SOON, async || {
        let findings = Findings::with(&east, 1, &[]).await;
        for (id, severity, part) in [
            ("skip-acl", "error", format!("{second} runs with skipACL=yes")),
            ("skip-acl", "error", "a client without credentials has read a znode".to_owned()),
            ("eager-acl", "note", format!("{second} runs with enableEagerACLCheck=true")),
            ("snap-count", "warning", format!("{second} runs with snapCount=100")),
            ("force-sync", "error", format!("{second} runs with forceSync=no")),
            ("init-limit", "warning", format!("{second} must have all data within 4s")),
            (
                "servers-even",
                "warning",
                "2 servers have a vote, one observer not counted: they need 2".to_owned(),
            ),
            ("site-quorum", "error", "the loss of site west loses the quorum: 1 of 2".to_owned()),
        ] {
            findings.name(id, severity, &part)?;
        }
        assert!(
            !findings.0.iter().any(|(_, _, what)| what.contains("the loss of site third")),
            "it has no vote"
        );
        Ok(())
    })
    .await;
}

/// One server, which answers only what servers answer by default, and an election that is not for these credentials.
#[tokio::test]
async fn what_can_not_be_read_is_unknown() {
    let words = "-Dzookeeper.4lw.commands.whitelist=srvr";
    let ensemble = own_ensemble(|servers| servers.servers(1).jvm_flag(words)).await;
    let cluster = Cluster::on(Arc::clone(&ensemble), Setup::new(Driver::Native).not_started()).await;
    let east = cluster.as_worker("east-1");
    let findings = Findings::with(&east, 1, &[]).await;
    let server = ensemble.server(0).address();
    findings.assert("server-alone", "error", &format!("{server} is the only server with a vote"));
    findings.assert(
        "server-silent",
        "unknown",
        "(conf: not in 4lw.commands.whitelist; its AdminServer 127.0.0.1:8080",
    );
    findings.assert("server-properties", "unknown", &server.to_string());

    let session =
        Session::builder(ensemble.connect_string()).auth("digest", "other:secret").acl(Acl::CreatorAll);
    let session = session.connect().await.unwrap();
    session.create("/closed", Vec::new(), CreateMode::Persistent).await.unwrap();
    session.close(SOON).await;
    named(&east, 1, &["zookeeper.root=/closed"], "access-refused", "error", "/closed").await;
}

#[tokio::test]
async fn without_zookeeper_the_rest_is_examined() {
    let desk = Desk::with(&[(
        "worker.toml",
        "[node]\nid = \"east-1\"\nsite = \"east\"\nstate_dir = \"/nonexistent\"\n\
        [zookeeper]\nconnect = \"127.0.0.1:1\"\nconnect_timeout = \"500ms\"\n[job.orders]\ncommand = [\"/nonexistent\"]\n",
    )]);
    let findings = Findings::with(desk.dr_worker(), 69, &[]).await;
    findings.assert("zookeeper-session", "error", "no session with ZooKeeper");
    findings.assert("server-unreachable", "warning", "127.0.0.1:1 can't be reached: ");
    findings.assert("not-runnable", "error", "job.orders.command: /nonexistent");
    desk.dr_worker()
        .run(&["--set", "zookeeper.sites={ east = [\"zk9:2181\"] }", "doctor"])
        .await
        .with_code(78)
        .complains_of(&["zookeeper.sites", "\"zk9:2181\" is not in zookeeper.connect"]);
    desk.assert_untouched(&["worker.toml"]);
}
