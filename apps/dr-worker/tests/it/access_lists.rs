//! Who may touch what workers create in ZooKeeper.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use crate::support::{
    Outcome, Running, dr_worker, set,
    stage::{Stage, leads},
    until,
};
use serde_json::Value;
use zk_session::{Acl, CreateMode, Incarnation, Session};
use zk_testkit::Ensemble;

/// Credentials in a file, and the settings that use them.
fn credentials(stage: &Stage, name: &str, text: &str) -> (PathBuf, String) {
    let file = stage.dir.path().join(name);
    fs::write(&file, text).expect("a file");
    let setting = format!("zookeeper.auth={{ credentials_file = \"{}\" }}", file.display());
    (file, setting)
}

fn operator(stage: &Stage, settings: &[&str], verb: &[&str]) -> Outcome {
    Outcome::of(stage.command(settings).args(verb))
}

/// All znodes from here on, with the schemes that their access lists name.
async fn lists(session: &Incarnation, path: &str) -> Vec<(String, Vec<String>)> {
    let list = session.acl(path).await.expect("it may be read");
    let mut found =
        vec![(path.to_owned(), list.entries.into_iter().map(|entry| entry.id.scheme).collect::<Vec<_>>())];
    for name in session.children(path).await.expect("it may be read").expect("it is there").names {
        found.extend(Box::pin(lists(session, &format!("{path}/{name}"))).await);
    }
    found
}

async fn session(secret: Option<&str>) -> Session {
    let builder = Session::builder(Stage::connect_string()).connect_timeout(crate::support::LONG);
    let builder = match secret {
        Some(secret) => builder.auth("digest", secret).acl(Acl::CreatorAll),
        None => builder,
    };
    builder.connect().await.expect("a session")
}

#[test]
fn with_credentials_all_that_is_created_is_for_them_alone() {
    let stage = Stage::new("/closed/root");
    let (_, auth) = credentials(&stage, "own", "operator:hunter2\n");
    let east = stage.worker("east-1", "east", &[&auth]);
    let west = stage.worker("west-1", "west", &[&auth]);
    until("east-1 leads, and west-1 is standby", || leads(&east) && west.code("/standby") == 200);
    // The command writes a request, the elector the decision and the history.
    operator(&stage, &[&auth], &["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    operator(&stage, &[&auth], &["drain", "east"]).assert(0, &[]);
    until("the history is written", || {
        operator(&stage, &[&auth], &["history"]).stdout.contains("switchover")
    });
    let found = Stage::with_session(async |_| {
        let own = session(Some("operator:hunter2")).await;
        lists(&own.active().await.expect("a session"), "/closed").await
    });
    assert!(found.len() > 8, "{found:?}");
    for (path, schemes) in &found {
        assert_eq!(schemes, &["digest"], "{path}");
    }
    let listed = operator(&stage, &[&auth], &["--output", "json", "list"]);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(listed["problems"], Value::Array(Vec::new()));

    // Others get nothing, and hear why.
    let (_, other) = credentials(&stage, "other", "operator:wrong");
    for settings in [&[][..], &[&*other]] {
        operator(&stage, settings, &["list"]).assert(75, &["zookeeper.auth", "/closed/root"]);
    }
}

#[test]
fn lists_that_are_otherwise_are_reported_with_what_mends_them() {
    let stage = Stage::new("/otherwise");
    let earlier = stage.worker("east-1", "east", &[]);
    until("it leads", || leads(&earlier));
    drop(earlier);
    let (_, auth) = credentials(&stage, "own", "operator:hunter2");
    for verb in ["list", "explain"] {
        let outcome = operator(&stage, &[&auth], &["--output", "json", verb]);
        outcome.assert(0, &[]);
        let object: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let problem = object["problems"].as_array().expect("a list").iter().find(|p| p["kind"] == "access");
        let problem = problem.unwrap_or_else(|| panic!("{object:#}"));
        assert_eq!(problem["command"], "setAcl -R /otherwise auth::cdrwa");
        assert!(
            problem["sentence"].as_str().is_some_and(|words| words.contains("/otherwise/orders")),
            "{problem}"
        );
    }
    // As asked for, there is nothing to report; and without credentials nothing could be otherwise.
    for settings in [&[&*auth, "zookeeper.acl=open"][..], &[]] {
        let outcome = operator(&stage, settings, &["--output", "json", "list"]);
        let object: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        assert!(!object["problems"].to_string().contains("access"), "{object:#}");
    }
    // A worker that starts there logs it.
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let mut command = stage.worker_command("west-1", "west", &[&auth]);
    let mut log = std::io::BufReader::new(log);
    let worker = Running::start_logging_to(command.stderr(stderr), &mut log);
    let mut text = String::new();
    until("it logs the problem", || {
        std::io::BufRead::read_line(&mut log, &mut text).expect("a line");
        text.contains("setAcl -R /otherwise auth::cdrwa")
    });
    drop(worker);
}

#[test]
fn open_is_a_choice_with_credentials_and_the_only_one_without() {
    let stage = Stage::new("/chosen");
    let (_, auth) = credentials(&stage, "own", "operator:hunter2");
    let worker = stage.worker("east-1", "east", &[&auth, "zookeeper.acl=open"]);
    until("it leads", || leads(&worker));
    let found = Stage::with_session(async |session| {
        session.create("/chosen/mine", "", CreateMode::Persistent).await.expect("all may");
        lists(&session.active().await.expect("a session"), "/chosen").await
    });
    assert!(found.iter().all(|(_, schemes)| *schemes == ["world"]), "{found:?}");
    let check = operator(&stage, &["zookeeper.acl=creator"], &["list"]);
    check.assert(78, &["zookeeper.acl", "[zookeeper.auth]", "\"open\""]);
}

#[test]
fn a_certificate_needs_its_key_and_both_are_named() {
    let stage = Stage::new("/certificates");
    let with = |tls: &str| operator(&stage, &[&format!("zookeeper.tls={{ {tls} }}")], &["list"]);
    with("cert_file = \"c.pem\", ca_file = \"ca.pem\"").assert(78, &["zookeeper.tls.cert_file", "key_file"]);
    with("cert_file = \"c.pem\", key_file = \"k.pem\"").assert(78, &["zookeeper.tls.ca_file: it is missing"]);
    with("ca_file = \"/no/such/ca.pem\"").assert(75, &["zookeeper.tls.ca_file", "/no/such/ca.pem"]);
    if cfg!(not(feature = "tls")) {
        with("ca_file = \"/dev/null\"").assert(78, &["zookeeper.tls", "the feature tls"]);
    }
    // A file that can be read and not used is found before a worker needs it.
    let mut check = stage.worker_command("east-1", "east", &["zookeeper.tls={ ca_file = \"/dev/null\" }"]);
    Outcome::of(check.args(["config", "check"])).assert(78, &["zookeeper.tls"]);
}

#[test]
fn workers_and_commands_log_in_by_sasl() {
    log_in_by_sasl(false);
}

#[cfg(feature = "tls")]
#[test]
fn workers_and_commands_speak_tls() {
    log_in_by_sasl(true);
}

fn log_in_by_sasl(with_tls: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let openssl = |arguments: String| {
        let output = Command::new("openssl").args(arguments.split_whitespace()).current_dir(&dir).output();
        let output = output.expect("the command openssl is needed to make certificates");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let make_certificates = || {
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(format!(
            "req -x509 {key} -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE \
         -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem"
        ));
        fs::write(path("extensions"), "subjectAltName=DNS:localhost\n").expect("a file");
        for name in ["server", "client"] {
            openssl(format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
            openssl(format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions \
             -out {name}.pem"
            ));
        }
        let both =
            ["server.pem", "server.key"].map(|name| fs::read(path(name)).expect("it was made")).concat();
        fs::write(path("both.pem"), both).expect("a file");
    };
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let users = format!("Server {{ {module} required user_operator=\"hunter2\"; }};\n");
    fs::write(path("jaas.conf"), users).expect("a file");
    fs::write(path("credentials"), "operator:hunter2\n").expect("a file");
    fs::write(path("wrong"), "operator:hunter3\n").expect("a file");

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let mut ensemble = Ensemble::builder();
    if with_tls {
        make_certificates();
        ensemble = ensemble
            .with(|settings| settings.tls_only = Some(["both.pem", "ca.pem"].map(|name| path(name).into())))
            .setting("ssl.clientAuth", "need")
            .setting("ssl.protocol", "TLSv1.2")
            .setting("ssl.enabledProtocols", "TLSv1.2");
    }
    let ensemble = ensemble
        .servers(1)
        .tick_time(Duration::from_millis(500))
        .jvm_flag(format!("-Djava.security.auth.login.config={}", path("jaas.conf")))
        .jvm_flag("-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        .start();
    let ensemble = runtime.block_on(ensemble).expect("a ZooKeeper server");
    let settings = |credentials: &str| {
        let mut all = vec![
            format!("zookeeper.connect=localhost:{}", ensemble.addresses()[0].port()),
            format!("zookeeper.auth={{ scheme = \"sasl\", credentials_file = {:?} }}", path(credentials)),
            "zookeeper.tick_time=500ms".to_owned(),
            "zookeeper.session_timeout=6s".to_owned(),
        ];
        if with_tls {
            all.push(format!(
                "zookeeper.tls={{ ca_file = {:?}, cert_file = {:?}, key_file = {:?} }}",
                path("ca.pem"),
                path("client.pem"),
                path("client.key")
            ));
        }
        all
    };
    let of = |credentials: &str, verb: &[&str]| {
        let mut command = dr_worker();
        set(&mut command, &settings(credentials).iter().map(String::as_str).collect::<Vec<_>>());
        Outcome::of(command.args(verb))
    };
    let mut command = dr_worker();
    set(&mut command, &settings("credentials").iter().map(String::as_str).collect::<Vec<_>>());
    let state = format!("node.state_dir={}", path("state"));
    set(
        &mut command,
        &["node.id=east-1", "node.site=east", &state, r#"job.orders.command=["/bin/sleep", "600"]"#],
    );
    let worker = Running::start(&mut command);
    until("it leads", || leads(&worker));
    let listed = of("credentials", &["list"]);
    listed.assert(0, &[]);
    assert!(listed.stdout.contains("east-1"), "{}", listed.stdout);
    of("wrong", &["list"]).assert(78, &["zookeeper.auth", "refused the credentials"]);
    drop((worker, ensemble));
}
