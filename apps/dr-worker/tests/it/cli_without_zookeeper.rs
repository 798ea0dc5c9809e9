//! What goes wrong before ZooKeeper is there: the exit codes and words that scripts and
//! people get, from the real program.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::support::{Outcome, Running, dr_worker, set};
use zk_testkit::{Refusal, TestServer};

const GOOD: &str = r#"[node]
id = "east-1"
site = "east"

[zookeeper]
connect = "127.0.0.1:1"
connect_timeout = "1s"

[job.orders]
command = ["/bin/sh", "-c", "touch started"]
"#;

/// A worker's configuration, in a directory of its own.
struct Given {
    dir: tempfile::TempDir,
}

impl Given {
    fn new(text: &str) -> Self {
        let given = Self { dir: tempfile::tempdir().expect("a directory") };
        fs::write(given.file(), text).expect("a file");
        given
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("worker.toml")
    }

    fn run(&self, settings: &[&str], verb: &[&str]) -> Outcome {
        let mut command = dr_worker();
        command.current_dir(self.dir.path()).arg("--config").arg(self.file());
        set(&mut command, &[&format!("node.state_dir={}", self.state().display())]);
        set(&mut command, settings);
        Outcome::of(command.args(verb))
    }

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    /// Nothing of the job has been started.
    fn assert_untouched(&self) {
        assert!(!self.dir.path().join("started").exists(), "the job was started");
    }
}

#[test]
fn a_good_configuration_is_good() {
    let given = Given::new(GOOD);
    given.run(&[], &["config", "check"]).assert(0, &["east-1", "site east", "orders"]);
}

#[test]
fn a_history_is_checked() {
    let given = Given::new(GOOD);
    let check = |text: &str, how: &[&str]| {
        fs::write(given.dir.path().join("test.jsonl"), text).expect("a file");
        given.run(&[], &[&["check-trace", "."], how].concat())
    };
    let finished = "{\"at\":1,\"by\":\"test\",\"event\":\"finished\"}\n";
    assert!(check(finished, &["--ahead", "-5"]).assert(0, &[]).stdout.ends_with("\nheld\n"));
    check("", &[]).assert(64, &[".: no line is in it"]);
    let stall = "{\"at\":1,\"by\":\"test\",\"event\":\"stall\",\"ms\":400}\n";
    check(stall, &[]).assert(64, &["the history has no line that a check examines"]);
    check(finished, &["--txn-log", "."]).assert(64, &[".: no file there is named log.*"]);
    let left = "{\"at\":1,\"by\":\"test\",\"event\":\"left\",\"pid\":77,\"command\":\"ledger run\"}\n";
    let broken = check(left, &[]);
    broken.assert(1, &["the history breaks a promise: nothing-left"]);
    assert!(broken.stdout.contains("process 77 still runs: ledger run"), "{}", broken.stdout);
    let json = check(left, &["--output", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json.assert(1, &[]).stdout).expect("JSON");
    assert_eq!(
        (&report["held"], &report["checks"][8]["violations"][0]["lines"][0]["pid"]),
        (&false.into(), &77.into())
    );
    check("no JSON\n", &[]).assert(64, &["./test.jsonl: line 1"]);
}

/// The editor is a program that replaces a word of the file.
#[test]
fn an_edited_file_replaces_the_configuration_only_if_it_is_valid() {
    let given = Given::new(GOOD);
    fs::set_permissions(given.file(), fs::Permissions::from_mode(0o640)).expect("its own file");
    let link = given.dir.path().join("link.toml");
    std::os::unix::fs::symlink(given.file(), &link).expect("a link");
    let edit = |editor: Option<&str>, file: &Path| {
        let mut command = dr_worker();
        command.env_remove("VISUAL").env_remove("EDITOR").arg("--config").arg(file);
        set(&mut command, &[&format!("node.state_dir={}", given.state().display())]);
        if let Some(editor) = editor {
            command.env("EDITOR", editor);
        }
        Outcome::of(command.args(["config", "edit"]))
    };
    let file = given.file();
    edit(None, &file).assert(64, &["set VISUAL or EDITOR"]);
    edit(Some("/no/such/editor"), &file).assert(1, &["can't start the editor", "nothing was changed"]);
    edit(Some("false"), &file).assert(1, &["ended with", "nothing was changed"]);
    assert!(edit(Some("true"), &file).stdout.contains("is unchanged"));
    // Its place is in the file that the operator knows.
    let place = format!("{}:3:1", file.display());
    edit(Some("sed -i 's/^site = /sit = /'"), &file).assert(78, &[&place, "is unchanged", "discarded"]);
    edit(Some("sed -i 's:/bin/sh:/no/such/program:'"), &file)
        .assert(75, &["job.orders.command", "discarded"]);
    assert_eq!(fs::read_to_string(&file).expect("the file"), GOOD);
    // An interrupt in the editor is the editor's.
    let interrupted = edit(Some("sh -c 'kill -INT $PPID && kill -QUIT $PPID'"), &file);
    assert!(interrupted.assert(0, &[]).stdout.contains("is unchanged"));
    let copy = given.dir.path().join(".worker.toml.edit");
    fs::write(&copy, "").expect("a copy that was left");
    let left = format!("remove {}", copy.display());
    edit(Some("true"), &file).assert(1, &["another edit is open", &left]);
    fs::remove_file(&copy).expect("the copy");
    let saved = edit(Some("sed -i 's/east-1/east-2/'"), &link);
    saved.assert(0, &[]);
    assert!(saved.stdout.contains("is replaced"), "{}", saved.stdout);
    assert_eq!(fs::read_to_string(&file).expect("the file"), GOOD.replace("east-1", "east-2"));
    assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    let names = fs::read_dir(given.dir.path())
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["link.toml", "worker.toml"], "no copy is left");
}

#[test]
fn an_unknown_key_is_named_with_its_place() {
    let given = Given::new(&GOOD.replace("site = ", "sit = "));
    for verb in [&["config", "check"][..], &["run"]] {
        given.run(&[], verb).assert(
            78,
            &[
                "2 problems",
                "worker.toml:3:1: node.sit: unknown key; did you mean \"site\"?",
                "node.site: it is missing",
            ],
        );
    }
    given.assert_untouched();
    assert!(!given.state().exists());
}

#[test]
fn a_bad_duration_is_named_with_its_place() {
    let given = Given::new(&GOOD.replace("\"1s\"", "\"10 parsecs\""));
    given
        .run(&[], &["run"])
        .assert(78, &["worker.toml:7:19: zookeeper.connect_timeout: ", "\"10 parsecs\"", "\"10s\""]);
}

#[test]
fn a_stop_that_does_not_fit_is_refused_with_figures() {
    let given = Given::new(&format!("{GOOD}stop_timeout = \"9s\"\n"));
    given.run(&[], &["run"]).assert(
        78,
        &[
            "worker.toml:11:16: job.orders.stop_timeout: ",
            "session timeout of 10s",
            "zookeeper.session_timeout to at least",
        ],
    );
    given.assert_untouched();
}

#[test]
fn a_program_that_does_not_exist_is_found_before_anything_is_started() {
    let given = Given::new(&GOOD.replace("/bin/sh", "/no/such/program"));
    for verb in [&["config", "check"][..], &["run"]] {
        given
            .run(&[], verb)
            .assert(75, &["worker.toml:10:11: job.orders.command: /no/such/program", "No such file"]);
    }
    assert!(!given.state().exists());
}

/// What a key names on this host: what is absent may come with a later mount, and systemd starts the worker again after
/// 75. What is there and wrong must be mended by somebody, and nothing starts the worker again after 78.
#[test]
fn what_a_key_names_ends_check_and_run_with_the_same_code() {
    let given = Given::new(GOOD);
    let path = |name: &str| given.dir.path().join(name).display().to_string();
    fs::write(path("plain"), "plain").expect("a file");
    fs::write(path("open"), "0123456789abcdef").expect("a file");
    let cert = |file: &str| format!("http.tls={{ cert_file = \"{file}\", key_file = \"{file}\" }}");
    let auth = |file: &str| format!("zookeeper.auth={{ credentials_file = \"{file}\" }}");
    let webhook =
        |key: &str| format!("notify.webhook.x={{ url = \"http://localhost/\", {key} = \"/none\" }}");
    let hook = |file: &str| format!("job.orders.hooks.after_stop={{ command = [\"{file}\"] }}");
    let log = |file: &str| format!("job.orders.output={{ kind = \"file\", path = \"{file}\" }}");
    let (plain, below) = (path("plain"), path("plain/below"));
    let mut cases = vec![
        (75, "job.orders.command=[\"/none\"]".to_owned(), "job.orders.command"),
        (75, "job.orders.command=[\"no-such-program\"]".to_owned(), "in PATH"),
        (78, "job.orders.command=[\"/etc/passwd\"]".to_owned(), "can't be executed"),
        (78, "job.orders.command=[\"/etc\"]".to_owned(), "is a directory"),
        (75, "job.orders.working_dir=/none".to_owned(), "job.orders.working_dir"),
        (78, "job.orders.working_dir=/etc/passwd".to_owned(), "job.orders.working_dir"),
        (75, "job.orders.user=no-such-user".to_owned(), "no user"),
        (75, hook("/none"), "hooks.after_stop.command"),
        (75, log("/none/o.log"), "job.orders.output.path"),
        (78, log("/etc"), "job.orders.output.path"),
        (75, "job.orders.output={ kind = \"journal\", socket = \"/none\" }".to_owned(), "output.socket"),
        (75, "log.file=/none/worker.log".to_owned(), "log.file"),
        (75, "http.token_file=/none".to_owned(), "http.token_file"),
        (78, format!("http.token_file={}", path("open")), "chmod 640"),
        (75, webhook("secret_file"), "notify.webhook.x.secret_file"),
        (75, auth("/none"), "zookeeper.auth.credentials_file"),
        (78, auth(&plain), "must contain user:password"),
        (78, format!("node.state_dir={below}"), "node.state_dir"),
        (78, "zookeeper.connect=fd77::11:2181".to_owned(), "[address]:port"),
    ];
    if cfg!(feature = "tls") {
        cases.push((75, cert("/none"), "http.tls.cert_file"));
        cases.push((78, cert(&plain), "chmod 640"));
        cases.push((75, "zookeeper.tls={ ca_file = \"/none\" }".to_owned(), "zookeeper.tls.ca_file"));
    }
    for (code, setting, part) in &cases {
        for verb in [&["config", "check"][..], &["run"]] {
            given.run(&[setting], verb).assert(*code, &[part]);
        }
    }
    // One that nothing but another configuration heals is enough.
    let both = [cases[0].1.as_str(), "job.orders.working_dir=/etc/passwd"];
    given.run(&both, &["config", "check"]).assert(78, &["2 problems"]);
    given.assert_untouched();
}

#[test]
fn a_state_directory_that_can_not_be_made_yet_is_no_fault_of_the_configuration() {
    let given = Given::new(GOOD);
    // Nothing can be made there.
    given.run(&["node.state_dir=/proc/none"], &["run"]).assert(75, &["node.state_dir", "/proc/none"]);
}

#[test]
fn a_second_process_with_the_same_id_is_refused() {
    let given = Given::new(GOOD);
    fs::create_dir(given.state()).expect("a directory");
    let lock = fs::File::create(given.state().join("east-1.lock")).expect("a file");
    lock.lock().expect("a lock");
    // It may end soon.
    given
        .run(&["http.listen=127.0.0.1:0"], &["run"])
        .assert(75, &["node.id: ", "east-1.lock is locked", "its own id and state_dir"]);
    given.assert_untouched();
}

#[test]
fn zookeeper_that_is_not_there_is_given_up_in_time() {
    let given = Given::new(GOOD);
    for verb in [&["run"][..], &["list"], &["history"], &["failover", "--to-site", "west"], &["switchover"]] {
        let outcome = given.run(&["http.listen=127.0.0.1:0"], verb);
        outcome.assert(69, &["127.0.0.1:1", "zookeeper.connect"]);
        assert!(outcome.stdout.is_empty(), "{}", outcome.stdout);
        assert!(outcome.took.as_secs() < 20, "{verb:?} took {:?}", outcome.took);
    }
    given.assert_untouched();
}

#[test]
fn a_worker_that_has_not_connected_answers_and_can_be_ended() {
    let given = Given::new(GOOD);
    let mut command = dr_worker();
    command.current_dir(given.dir.path()).arg("--config").arg(given.file());
    let state = format!("node.state_dir={}", given.state().display());
    set(&mut command, &[&state, "zookeeper.connect_timeout=10m"]);
    let mut worker = Running::start(&mut command);
    for (path, code) in
        [("/liveness", 200), ("/readiness", 503), ("/leader", 503), ("/standby", 503), ("/status", 200)]
    {
        assert_eq!(worker.code(path), code, "{path}");
    }
    worker.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    given.assert_untouched();
}

#[test]
fn both_drivers_give_up_in_time() {
    let given = Given::new(GOOD);
    for driver in ["native", "zookeeper-async"] {
        let outcome = given.run(&[&format!("zookeeper.driver={driver}")], &["list"]);
        outcome.assert(69, &["127.0.0.1:1"]);
        assert!(outcome.took.as_secs() < 20, "{driver} took {:?}", outcome.took);
    }
}

/// systemd does not start a worker again after 78, so one server's configuration must not be the reason.
#[test]
fn credentials_are_wrong_where_every_server_refuses_them() {
    let servers = TestServer::builder().servers(3).start_on_thread().expect("servers");
    let refuse = |server| servers.faults().refuse_clients(server, Some(Refusal::Credentials));
    let given = Given::new(GOOD);
    let file = given.dir.path().join("credentials");
    fs::write(&file, "operator:hunter2").expect("a file");
    let auth = format!("zookeeper.auth={{ credentials_file = \"{}\" }}", file.display());
    let run = |connect: &str| {
        let prefer = format!("zookeeper.prefer={}", servers.addresses()[0]);
        given.run(&[&format!("zookeeper.connect={connect}"), &prefer, &auth], &["list"])
    };
    refuse(0);
    // There is no election.
    run(&servers.connect_string()).assert(1, &["/dr"]);
    run(&format!("{},127.0.0.1:1,127.0.0.1:2", servers.addresses()[0])).assert(69, &["the credentials"]);
    refuse(1);
    refuse(2);
    run(&servers.connect_string()).assert(78, &["zookeeper.auth", "the credentials"]);
}

#[test]
fn credentials_that_cannot_be_read_are_named_and_never_shown() {
    let given = Given::new(GOOD);
    let file = given.dir.path().join("credentials");
    let auth = format!("zookeeper.auth={{ credentials_file = \"{}\" }}", file.display());
    given.run(&[&auth], &["list"]).assert(75, &["zookeeper.auth.credentials_file", "can't be read"]);
    fs::write(&file, "hunter2").expect("a file");
    let outcome = given.run(&[&auth], &["list"]);
    outcome.assert(78, &["must contain user:password"]);
    assert!(!outcome.stderr.contains("hunter2"), "{}", outcome.stderr);
}

#[test]
fn a_password_that_crosses_the_network_as_it_is_is_warned_of_once() {
    let given = Given::new(GOOD);
    let file = given.dir.path().join("credentials");
    fs::write(&file, "app:hunter2").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its own");
    let state = format!("node.state_dir={}", given.dir.path().join("state").display());
    let warnings = |scheme: &str, connect: &str| {
        let auth =
            format!("zookeeper.auth={{ scheme = \"{scheme}\", credentials_file = \"{}\" }}", file.display());
        let connect = format!("zookeeper.connect={connect}");
        // The session may be made, or not: it is warned of before.
        let settings = [&auth, &connect, &state, "zookeeper.connect_timeout=100ms"];
        given.run(&settings, &["run"]).stderr.matches("is sent in plain text").count()
    };
    // An address for documents, where no server is.
    assert_eq!(warnings("digest", "192.0.2.1:2181"), 1);
    assert_eq!(warnings("sasl", "192.0.2.1:2181"), 0);
    assert_eq!(warnings("digest", "127.0.0.1:1,[::1]:1"), 0);
}

#[test]
fn bad_usage_has_its_own_code() {
    for arguments in [
        &["no-such-verb"][..],
        &[],
        &["list", "--no-such-option"],
        &["switchover", "--to", "a", "--to-site", "b"],
        &["switchover", "--to", "a/b"],
        &["failover", "--timeout", "5s"],
        &["--log", "loud=very", "list"],
        &["mode"],
        &["drain"],
        &["prefer"],
        &["prefer", "east", "--off"],
        // Of a later version.
        &["emergency-lead"],
    ] {
        let outcome = Outcome::of(dr_worker().args(arguments));
        assert_eq!(outcome.code, Some(64), "{arguments:?}: {}", outcome.stderr);
        assert!(!outcome.stderr.is_empty(), "{arguments:?}");
    }
    Outcome::of(dr_worker().args(["--set", "nothing", "config", "check"])).assert(78, &["section.key=value"]);
}

#[test]
fn help_version_and_completions_are_results() {
    for (arguments, part) in [
        (&["--help"][..], "failover"),
        (&["--version"], "dr-worker 0."),
        (&["completions", "bash"], "-F _clap_complete_dr_worker dr-worker"),
        (&["failover", "--help"], "--force"),
    ] {
        let outcome = Outcome::of(dr_worker().args(arguments));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains(part), "{}", outcome.stdout);
    }
}

/// One line of each verb and option, as it is shown without a terminal.
#[test]
fn short_help_fits_eighty_columns() {
    let help = |verb: &[&str]| {
        let outcome = Outcome::of(dr_worker().env_remove("COLUMNS").args(verb).arg("-h"));
        outcome.assert(0, &[]);
        for line in outcome.stdout.lines() {
            assert!(line.len() <= 80, "{verb:?}: {line}");
            let is_continued = line.starts_with("            ");
            assert!(!is_continued, "{verb:?}: more than a line: {line}\n{}", outcome.stdout);
        }
        outcome.stdout
    };
    let verbs_of = |help: &str| -> Vec<String> {
        let listed = help.lines().take_while(|line| !line.ends_with("ptions:"));
        let listed = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        listed
            .filter(|word| word.starts_with(char::is_lowercase) && *word != "dr-worker")
            .map(str::to_owned)
            .collect()
    };
    let verbs = verbs_of(&help(&[]));
    assert!(verbs.len() > 20, "{verbs:?}");
    for verb in &verbs {
        for inner in verbs_of(&help(&[verb])) {
            help(&[verb, &inner]);
        }
    }
}

#[test]
fn config_show_tells_values_and_where_they_came_from() {
    let given = Given::new(GOOD);
    let outcome = given.run(&["zookeeper.root=/elsewhere"], &["config", "show"]);
    outcome.assert(0, &[]);
    let line = |key: &str| {
        let found = outcome.stdout.lines().find(|line| line.starts_with(&format!("{key} = ")));
        found.unwrap_or_else(|| panic!("no {key} in {}", outcome.stdout)).to_owned()
    };
    assert!(line("node.id").contains("\"east-1\"") && line("node.id").contains("worker.toml:2:6"));
    assert!(line("zookeeper.root").ends_with("# --set zookeeper.root=..."));
    assert!(line("zookeeper.session_timeout").ends_with("# built-in default"));

    let outcome = given.run(&["zookeeper.root=/elsewhere"], &["--output", "json", "config", "show"]);
    let shown: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let values = shown["values"].as_array().expect("an array");
    let root = values.iter().find(|v| v["key"] == "zookeeper.root").expect("the key");
    assert_eq!(root["value"], "\"/elsewhere\"");
    assert_eq!(root["origin"], "--set zookeeper.root=...");
}

#[test]
fn the_environment_is_a_layer() {
    let given = Given::new(GOOD);
    let outcome = Outcome::of(
        dr_worker()
            .arg("--config")
            .arg(given.file())
            .env("DR_WORKER__NODE__SITE", "west")
            .env("DR_WORKER__POLICY__FAILBAK", "auto")
            .args(["config", "check"]),
    );
    outcome.assert(78, &["environment variable DR_WORKER__POLICY__FAILBAK: policy.failbak: unknown key"]);
}

#[test]
fn the_shipped_files_can_be_shown() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    for site in ["east", "west"] {
        let mut command = dr_worker();
        command.arg("--config").arg(config.join("base.toml"));
        command.arg("--config").arg(config.join(format!("{site}.toml")));
        let outcome = Outcome::of(command.args(["config", "show"]));
        outcome.assert(0, &[]);
        assert!(outcome.stdout.contains(&format!("node.site = \"{site}\"")), "{}", outcome.stdout);
    }
    let schema = Outcome::of(dr_worker().args(["config", "schema"]));
    schema.assert(0, &[]);
    assert_eq!(schema.stdout, fs::read_to_string(config.join("schema.json")).unwrap());
}

#[test]
fn passwords_in_urls_are_not_shown() {
    let given = Given::new(
        &GOOD
            .replace("\"touch started\"]", "\"touch started\", \"--db=postgres://u:hunter4@h/db\"]\nenv = { DB = \"postgres://u:hunter4@h/db\" }\nready = { kind = \"http\", url = \"http://u:hunter4@127.0.0.1:1/\" }")
            .replace("[zookeeper]", "attributes = { db = \"postgres://u:hunter4@h/db\" }\n\n[zookeeper]"),
    );
    let set = "job.orders.policy.pipeline=http://u:hunter4@h/";
    for (settings, verb, code) in [
        (&[][..], &["config", "show"][..], 0),
        (&[], &["--output", "json", "config", "show"], 0),
        (&[set], &["config", "check"], 78),
        (&["zookeeper.tick_time=x://u:hunter4@h"], &["--output", "json", "config", "check"], 78),
    ] {
        let outcome = given.run(settings, verb);
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        let printed = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!printed.contains("hunter4") && printed.contains("://...@"), "{printed}");
    }
}

#[test]
fn an_error_is_an_object_where_results_are() {
    let given = Given::new(GOOD);
    for (verb, code, part) in [
        (&["--output", "json", "list"][..], 69, "zookeeper.connect"),
        (&["list", "--output=json", "--no-such-option"], 64, "--no-such-option"),
        (&["--output", "json", "--set", "zookeeper.rot=/x", "list"], 78, "zookeeper.rot"),
    ] {
        let outcome = given.run(&[], verb);
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        let object: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("one object");
        assert_eq!(object["error"]["code"], code, "{object}");
        assert!(object["error"]["message"].as_str().is_some_and(|words| words.contains(part)), "{object}");
        assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
    }
}

#[test]
fn signals_that_mean_nothing_to_a_worker_leave_it_alone() {
    use nix::sys::signal::Signal;
    let given = Given::new(GOOD);
    let mut command = dr_worker();
    command.current_dir(given.dir.path()).arg("--config").arg(given.file());
    let state = format!("node.state_dir={}", given.state().display());
    set(&mut command, &[&state, "zookeeper.connect_timeout=10m"]);
    let mut worker = Running::start(&mut command);
    let own = |signal: &Signal| {
        use Signal::*;
        // What ends it, what can't be caught, what a fault sends, and what a terminal sends to what is not before it.
        let left_out =
            [SIGTERM, SIGINT, SIGKILL, SIGSTOP, SIGILL, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, SIGTTIN, SIGTTOU];
        !left_out.contains(signal)
    };
    for signal in Signal::iterator().filter(own) {
        worker.signal(signal);
        assert_eq!(worker.code("/liveness"), 200, "{signal}");
    }
    for number in 34..=64 {
        // Built into the shell; the program of that name is not on every machine.
        let kill = format!("kill -{number} {}", worker.pid());
        let sent = std::process::Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell").success(), "{number}");
        assert_eq!(worker.code("/liveness"), 200, "{number}");
    }
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn short_options_are_those_that_other_programs_have() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.toml");
    fs::write(&file, "[zookeeper]\nconect = \"x\"\n").expect("a file");
    let file = file.display().to_string();
    for line in [
        &["-c", &file, "-o", "json", "config", "show"][..],
        &["config", "show", "-ojson", &format!("-c{file}")],
    ] {
        let outcome = Outcome::of(dr_worker().args(line));
        outcome.assert(78, &["a.toml:2:1: zookeeper.conect: unknown key"]);
        assert!(outcome.stdout.starts_with("{\"error\":"), "{}", outcome.stdout);
    }
    // Also where the command line is wrong. No tip says what is of no use.
    let wrong = Outcome::of(dr_worker().args(["drain", "-o", "json", "east", "--frob"]));
    assert!(wrong.stdout.starts_with("{\"error\":"), "{}", wrong.stdout);
    let wrong = Outcome::of(dr_worker().args(["drain", "east", "--frob"]));
    wrong.assert(64, &["unexpected argument '--frob'"]);
    assert!(!wrong.stderr.contains("as a value"), "{}", wrong.stderr);
    let similar = Outcome::of(dr_worker().args(["switchover", "--wiat"]));
    similar.assert(64, &["similar", "--wait"]);
}

/// Who gives settings on the command line knows that there is no file.
#[test]
fn only_who_gives_nothing_is_told_of_init() {
    let told = "--config: not given";
    let set = Outcome::of(dr_worker().args(["--set", "zookeeper.conect=127.0.0.1:2181", "config", "check"]));
    set.assert(78, &["zookeeper.conect: unknown key"]);
    assert!(!set.stderr.contains(told), "{}", set.stderr);
    let variable = Outcome::of(dr_worker().env("DR_WORKER__NODE__ID", "a/b").args(["config", "check"]));
    assert!(!variable.stderr.contains(told), "{}", variable.stderr);
    Outcome::of(dr_worker().args(["config", "check"])).assert(78, &[told, "init` writes one"]);
}
