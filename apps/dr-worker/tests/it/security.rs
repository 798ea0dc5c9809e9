//! What docs/security.md claims: modes of files, no shell, and no secret in anything that is shown.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::support::{
    Log, Outcome, code_of,
    stage::{Stage, leads},
    until,
};

/// All directories and files under this one, with their modes.
fn modes(dir: &Path) -> Vec<(PathBuf, bool, u32)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        // A guard may just have ended.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        all.push((path.clone(), metadata.is_dir(), metadata.mode() & 0o777));
        if metadata.is_dir() {
            all.extend(modes(&path));
        }
    }
    all
}

#[test]
fn the_state_directory_is_closed_to_other_users() {
    let stage = Stage::new("/security-state");
    let dir = stage.dir.path().join("lib/state");
    let settings = [
        format!("node.state_dir={}", dir.display()),
        "job.orders.command=[\"/bin/sh\", \"-c\", \"echo hello; while :; do sleep 1; done\"]".to_owned(),
    ];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let worker = stage.worker("east-1", "east", &settings);
    until("it leads", || leads(&worker));
    let found = || {
        let found = modes(&dir);
        let has = |part: &str| found.iter().any(|(path, ..)| path.to_string_lossy().contains(part));
        (
            ["east-1.lock", "east-1.runs/", ".ballots.json", "east-1.output/"].iter().all(|part| has(part)),
            found,
        )
    };
    until("it has written all kinds of files", || found().0);
    assert_eq!(fs::metadata(&dir).expect("it was made").mode() & 0o777, 0o700);
    for (path, is_dir, mode) in found().1 {
        // A group that an administrator admits may read the output.
        let is_output = path.to_string_lossy().contains(".output");
        let expected = match (is_dir, is_output) {
            (true, false) => 0o700,
            (true, true) => 0o750,
            (false, false) => 0o600,
            (false, true) => 0o640,
        };
        assert_eq!(mode & !expected, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn a_state_directory_that_others_can_write_to_is_reported() {
    let stage = Stage::new("/security-shared");
    let dir = stage.dir.path().join("state");
    fs::create_dir(&dir).expect("a directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("its permissions");
    let (worker, log) = Log::of(&mut stage.worker_command("east-1", "east", &[]));
    until("it leads", || leads(&worker));
    assert!(log.has("other users can write to"), "{}", log.text());
}

/// A record that somebody else has written keeps no program from starting, and forges no line of a table, a log or a page.
#[test]
fn text_from_outside_is_one_line_wherever_it_goes() {
    let stage = Stage::new("/security-text");
    let dir = stage.dir.path();
    let hook = |name: &str| {
        let script = format!("printf '%s' \"$DR_REASON\" > {}", dir.join(name).display());
        let command = serde_json::to_string(&["sh", "-c", &script]).expect("JSON");
        format!("job.orders.hooks.{name}={{ command = {command} }}")
    };
    let settings = [hook("before_stop"), hook("after_stop")];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let (east, log) = Log::of(&mut stage.worker_command("east-1", "east", &settings));
    until("east-1 leads", || leads(&east));
    let (west, _) = Log::of(&mut stage.worker_command("west-1", "west", &[]));
    until("west-1 is standby", || west.code("/standby") == 200);
    let refused = stage.operator(&["switchover", "--to", "west-1", "--reason", "a\nrow\u{202e}"]);
    refused.assert(64, &["--reason", "'\\n'"]);
    refused.assert(64, &["which is not allowed in a line of text"]);
    assert_eq!(stage.json(&["list"])["requests"], serde_json::json!([]));

    let hostile = "x\0y\nleads \u{1b}[2J\u{202e}";
    let request = serde_json::json!({
        "v": 1, "id": "1", "kind": "switchover", "to": { "member": "west-1" }, "force": false, "reason": hostile, "by": hostile,
        "created_ms": 1, "state": { "state": "pending" },
    });
    let unreadable = serde_json::json!({ "v": 1, "member": format!("-{hostile}{}", "x".repeat(60_000)) });
    Stage::with_session(async |session| {
        let create = async |path: &str, record: &serde_json::Value| {
            let mode = zk_session::CreateMode::Persistent;
            session
                .create(&format!("/security-text/orders/{path}"), record.to_string().into_bytes(), mode)
                .await
        };
        create("nodes/west-9", &unreadable).await.expect("created");
        create("requests", &serde_json::Value::Null).await.ok();
        create("requests/r-0000000001", &request).await.expect("created");
    });
    until("west-1 leads", || leads(&west));
    let is_line = |text: &str| text.chars().all(|c| !c.is_control() && c != '\u{202e}');
    for name in ["before_stop", "after_stop"] {
        let reason = fs::read_to_string(dir.join(name)).expect("the hook has run");
        assert!(reason.contains('y') && is_line(&reason), "{name}: {reason:?}");
    }
    for command in [
        &["list"][..],
        &["history"],
        &["explain"],
        &["request", "r-0000000001"],
        &["--output", "json", "list"],
    ] {
        let shown = stage.operator(command).stdout;
        assert!(
            shown.lines().all(is_line) && !shown.lines().any(|line| line.starts_with("leads")),
            "{shown}"
        );
    }
    until("the record is reported", || log.has("nodes/west-9 can't be used"));
    let log = log.text();
    assert!(log.lines().all(|line| is_line(line) && line.len() < 4000), "{log}");
    drop((east, west));
}

#[test]
fn no_shell_reads_a_command() {
    let stage = Stage::new("/security-shell");
    let dir = stage.dir.path();
    // A name that a shell would take apart, and run.
    let name = |what: &str| format!("{what} $(touch pwned) `touch pwned`; touch pwned & \"*\" '$HOME'");
    let touch = |what: &str| {
        let path = dir.join(name(what)).display().to_string();
        serde_json::to_string(&["touch", &path]).expect("JSON")
    };
    let settings = [
        format!("job.orders.working_dir={}", dir.display()),
        format!("job.orders.hooks.prepare={{ command = {} }}", touch("prepare")),
        format!("job.orders.hooks.before_takeover={{ command = {} }}", touch("before")),
        format!("job.orders.measure={{ command = {} }}", touch("measure")),
        format!("job.orders.fitness={{ kind = \"exec\", command = {} }}", touch("fitness")),
        format!("job.orders.ready={{ kind = \"exec\", command = {} }}", touch("ready")),
        "job.orders.env={ WORDS = \"$(touch pwned)\" }".to_owned(),
    ];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let worker = stage.worker("east-1", "east", &settings);
    until("it leads", || leads(&worker));
    for what in ["prepare", "before", "measure", "fitness", "ready"] {
        let path = dir.join(name(what));
        until(what, || path.exists());
    }
    assert!(!dir.join("pwned").exists());
}

#[test]
fn no_secret_is_shown() {
    const TOKEN: &str = "hunter4-is-the-token";
    const ENV: &str = "hunter5";
    let stage = Stage::new("/security-secrets");
    let (_, tokens) = stage.tokens(TOKEN);
    let mut settings = vec![tokens, format!("job.orders.env={{ DB_PASSWORD = \"{ENV}\" }}")];
    let mut secrets = vec![TOKEN.to_owned(), ENV.to_owned()];
    #[cfg(feature = "tls")]
    let pki = crate::support::pki::Pki::new();
    #[cfg(feature = "tls")]
    {
        pki.issue("worker", "ca", crate::support::pki::HERE, 20);
        settings.push(pki.setting(&[("cert_file", "worker.pem"), ("key_file", "worker.key")]));
        let key = fs::read_to_string(pki.path("worker.key")).expect("it was made");
        secrets.push(key.lines().nth(1).expect("a line of the key").to_owned());
    }
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let mut command = stage.worker_command("east-1", "east", &settings);
    let (worker, log) = Log::of(command.args(["--log", "debug"]));
    #[cfg(feature = "tls")]
    let worker = worker.over(&pki.client(None));
    until("it leads", || leads(&worker));

    let mut shown = String::new();
    let authorization = format!("Authorization: Bearer {TOKEN}");
    for (method, path) in [
        ("GET", "/config"),
        ("GET", "/status"),
        ("GET", "/cluster"),
        ("GET", "/metrics"),
        ("GET", "/explain"),
        ("POST", "/pause"),
        ("POST", "/nowhere"),
    ] {
        let (head, body) = worker.http_with(method, path, &[&authorization], "");
        assert!(code_of(&head) < 500, "{path}: {head}");
        shown += &format!("{head}\n{body}\n");
    }
    for verb in [&["config", "show"][..], &["config", "check"], &["--output", "json", "config", "show"]] {
        let outcome = Outcome::of(stage.worker_command("east-1", "east", &settings).args(verb));
        outcome.assert(0, &[]);
        shown += &format!("{}{}", outcome.stdout, outcome.stderr);
    }
    until("the request is logged", || log.has("\"path\":\"/pause\""));
    shown += &log.text();
    assert!(shown.contains("DB_PASSWORD") && shown.contains("token_file"));
    for secret in secrets {
        assert!(!shown.contains(&secret), "{secret} is in:\n{shown}");
    }
}
