mod bounds;
mod change;
mod checks;
mod documents;
mod keys;
mod overlay;
mod policy;
mod processes;
mod reference;
mod sample;
mod schema;

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use zk_session::LeaseTiming;

use super::*;
use crate::config::ReadyProbe;

/// A minimal complete configuration of a worker.
const SMALL: &str = r#"[node]
id = "east-1"
site = "east"

[zookeeper]
connect = "127.0.0.1:2181"

[job.orders]
command = ["/bin/true"]
"#;

/// The place of a problem with this setting, without its value, which may be a secret.
fn at_set(set: &str) -> String {
    let (key, _) = set.split_once('=').unwrap();
    format!("--set {key}=...: ")
}

struct Given {
    dir: tempfile::TempDir,
    sources: Sources,
}

impl Given {
    fn file(text: &str) -> Self {
        let mut given = Self { dir: tempfile::tempdir().unwrap(), sources: Sources::default() };
        given.add("worker.toml", text);
        given
    }

    fn add(&mut self, name: &str, text: &str) -> &mut Self {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        self.sources.paths.push(path);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.variables.push((name.into(), value.into()));
        self
    }

    fn set(mut self, text: &str) -> Self {
        self.sources.sets.push(text.into());
        self
    }

    fn registry(mut self, registry: Registry) -> Self {
        self.sources.registry = registry;
        self
    }

    fn load(&self) -> Result<Config, Problems> {
        Config::load(&self.sources)
    }

    fn problems(&self) -> Vec<String> {
        let dir = format!("{}/", self.dir.path().display());
        match self.load() {
            Ok(config) => panic!("accepted: {config:?}"),
            Err(problems) => problems.iter().map(|p| p.to_string().replace(&dir, "")).collect(),
        }
    }

    /// Asserts that there is one problem, and that it starts like this and contains that.
    #[track_caller]
    fn refused(&self, start: &str, parts: &[&str]) {
        let problems = self.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0].starts_with(start), "{problems:#?}");
        for part in parts {
            assert!(problems[0].contains(part), "{part:?} is not in {problems:#?}");
        }
    }
}

#[test]
fn the_files_of_two_nodes_do_not_go_together() {
    for (key, one, other) in [("site", "east", "west"), ("id", "east-1", "west-1")] {
        let mut given = Given::file(SMALL);
        given.add("one.toml", &format!("[node]\n{key} = {one:?}\n"));
        given.add("same.toml", &format!("[node]\n{key} = {one:?}\n"));
        given.add("other.toml", &format!("\n[node]\n{key} = {other:?}\n"));
        let place = format!("other.toml:3:{}: node.{key}: ", key.len() + 4);
        given.refused(&place, &[other, one, "worker.toml:", "the file of its own"]);
    }
}

#[test]
fn the_smallest_configuration_gets_the_defaults() {
    let config = Given::file(SMALL).load().unwrap();
    assert_eq!(config.node.id.as_str(), "east-1");
    assert_eq!(config.zookeeper.root, "/dr");
    assert_eq!(config.zookeeper.session_timeout, Duration::from_secs(10));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:7080");
    let [job] = config.jobs.as_slice() else { panic!("{:?}", config.jobs) };
    assert_eq!(job.policy, PolicyConfig::default().for_job("orders", 1));
    assert_eq!(job.spec.ready, ReadyProbe::None { after: Duration::from_secs(1) });
}

#[test]
fn a_drill_has_the_time_for_which_its_leaders_serve() {
    let of = |mode: &str, keys: &str| {
        Given::file(&format!(
            "{SMALL}\n[drill.it]\njob = \"orders\"\nmode = \"{mode}\"\nlimit = \"5m\"\n{keys}\n"
        ))
    };
    for (mode, keys) in [
        ("switchover", "stay = \"4m\""),
        ("rehearse", "stay = \"6m\""),
        ("cut-site", "stay = \"3m\"\nback = true\ncut_for = \"2m\""),
    ] {
        of(mode, keys).load().unwrap();
    }
    let why = ["each of two leaders serves for stay, 2m 30s: the drill can't end within limit, 5m"];
    of("switchover", "stay = \"150s\"\nback = true").refused("worker.toml:", &why);
}

#[test]
fn the_member_is_named_after_the_host() {
    let config = Given::file(&SMALL.replace("id = \"east-1\"\n", "")).load().unwrap();
    let host = nix::sys::utsname::uname().unwrap();
    assert_eq!(config.node.id.as_str(), host.nodename().to_str().unwrap());
}

/// A base has what its kind takes. A layer that chooses another kind keeps what that takes, too.
#[test]
fn a_layer_that_chooses_another_kind_drops_the_keys_of_the_former_one() {
    let file =
        "[job.orders.output]\nkind = \"file\"\npath = \"/var/log/orders\"\nkeep = 9\nlimit = \"2MiB\"\n";
    let mut given = Given::file(SMALL);
    given.add("10.toml", file).add("20.toml", "[job.orders.output]\nkind = \"log\"\n");
    let config = given.load().unwrap();
    let spec = &config.jobs[0].spec;
    assert_eq!((&spec.output, spec.output_limit.unwrap().to_string()), (&JobOutput::Log, "2MiB".to_owned()));
    assert!(config.shown().iter().all(|shown| shown.key != "job.orders.output.path"));
    // The other way round, and by an overlay or the command line.
    let mut given = Given::file(&format!("{SMALL}output = {{ limit = \"2MiB\" }}\n"));
    given.add("20.toml", "[job.orders.output]\nkind = \"file\"\npath = \"/var/log/orders\"\n");
    let config = given.load().unwrap();
    assert_eq!(config.jobs[0].spec.output_limit.unwrap().to_string(), "2MiB");
    let again = given.set("job.orders.output.kind=log").load().unwrap();
    assert_eq!(again.jobs[0].spec.output, JobOutput::Log);
    // What is set beside the kind, or later, must belong to it.
    let beside = format!("{SMALL}output = {{ kind = \"log\", keep = 9 }}\n");
    Given::file(&beside).refused("worker.toml:10", &["job.orders.output.keep: unknown key"]);
    let later = Given::file(SMALL).set("job.orders.output.kind=log").set("job.orders.output.keep=9");
    later.refused("--set job.orders.output.keep=...: ", &["unknown key"]);
}

#[test]
fn later_layers_win() {
    let mut given = Given::file(SMALL);
    given.add("site.toml", "[zookeeper]\nconnect = \"zk:2181\"\n[node]\naddress = \"10.0.0.1\"\n");
    let given = given
        .variable("DR_WORKER__NODE__ADDRESS", "10.0.0.2")
        .variable("DR_WORKER__NODE__STATE_DIR", "/from/environment")
        .set("node.state_dir=/from/set");
    let config = given.load().unwrap();
    assert_eq!(config.zookeeper.connect, "zk:2181");
    assert_eq!(config.node.address, "10.0.0.2");
    assert_eq!(config.node.state_dir, PathBuf::from("/from/set"));
    let origin = |key: &str| {
        let shown = config.shown().iter().find(|s| s.key == key).unwrap();
        shown.origin.to_string()
    };
    assert!(origin("zookeeper.connect").ends_with("site.toml:2:11"), "{}", origin("zookeeper.connect"));
    assert_eq!(origin("node.address"), "environment variable DR_WORKER__NODE__ADDRESS");
    assert_eq!(origin("node.state_dir"), "--set node.state_dir=...");
    assert_eq!(origin("zookeeper.root"), "built-in default");
    assert_eq!(origin("job.orders.policy.min_tenure"), "taken over from [policy]");
}

#[test]
fn a_table_that_comes_as_text_is_merged_key_by_key() {
    let file = format!(
        "{SMALL}env = {{ A = \"1\", B = \"2\" }}\n[job.orders.policy]\nexclusion = \"7s\"\nsite_minimum = {{ east = 2 }}\n"
    );
    let given = Given::file(&file)
        .variable("DR_WORKER__NODE__ATTRIBUTES", "{rack='r\"7',weight=\"2\"}")
        .variable("DR_WORKER__NODE__ATTRIBUTES__CAPACITY", "8")
        .variable("DR_WORKER__JOB__ORDERS__ENV__C", "{ x = 1 }")
        .set("job.orders.policy={ min_tenure = \"1s\", max_takeovers = { count = 9 }, site_minimum = { west = 3 } }")
        .set("job.orders.env={ B = \"\" }");
    let config = given.load().unwrap();
    let attributes: Vec<_> = config.node.attributes.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(attributes, [("capacity", "8"), ("rack", "r\"7"), ("weight", "2")]);
    let job = &config.jobs[0];
    let env: Vec<_> = job.spec.env.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(env, [("A", "1"), ("B", ""), ("C", "{ x = 1 }")]);
    let election = &job.policy.election;
    assert_eq!(
        (election.exclusion, election.min_tenure, election.max_takeovers.count),
        (Duration::from_secs(7), Duration::from_secs(1), 9)
    );
    let shown = |key: &str| config.shown().iter().find(|shown| shown.key == key).unwrap().value.clone();
    assert_eq!(shown("job.orders.policy.site_minimum"), "{ east = 2, west = 3 }");
    // Over an operator's settings too.
    let set = "job.orders.policy={ exclusion = \"9s\" }".to_owned();
    let policy = config.what_if(&[set]).unwrap().policy_of("orders");
    assert_eq!(policy.election.exclusion, Duration::from_secs(9));
    assert_eq!(policy.election.min_tenure, Duration::from_secs(1));
}

#[test]
fn a_job_with_a_dot_in_its_name_has_file_and_line_too() {
    let text = SMALL.replace("[job.orders]", "[job.\"a.b\"]").replace("/bin/true", "/no/such");
    let given = Given::file(&format!("{text}stop_timeout = \"3s\"\n"));
    let config = given.load().unwrap();
    let problems = config.check_node().unwrap_err().to_string();
    assert!(problems.contains("worker.toml:9:11: job.\"a.b\".command: "), "{problems}");
    let granted = LeaseTiming { session_timeout: Duration::from_secs(4), tick_time: Duration::from_secs(2) };
    let problems = config.check_timing(granted).unwrap_err().to_string();
    assert!(problems.contains("worker.toml:10:16: job.\"a.b\".stop_timeout: "), "{problems}");
}

#[test]
fn a_directory_is_read_in_the_order_of_names() {
    let mut given = Given::file(SMALL);
    let dir = given.path("conf.d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("20.toml"), "[zookeeper]\nroot = \"/second\"\n").unwrap();
    fs::write(dir.join("10.toml"), "[zookeeper]\nroot = \"/first\"\ntick_time = \"1s\"\n").unwrap();
    fs::write(dir.join("30.txt"), "not TOML at all").unwrap();
    fs::write(dir.join(".20.toml"), "not TOML at all").unwrap();
    std::os::unix::fs::symlink("me@host.1:2", dir.join(".#10.toml")).unwrap();
    given.sources.paths.push(dir);
    let config = given.load().unwrap();
    assert_eq!(config.zookeeper.root, "/second");
    assert_eq!(config.zookeeper.tick_time, Duration::from_secs(1));
}

#[test]
fn a_job_takes_the_policy_over_and_may_change_it() {
    let text = format!(
        "{SMALL}[policy]\nsites = [\"east\", \"west\"]\nmin_tenure = \"5s\"\nmax_takeovers = {{ count = 9 }}\n\
         [job.orders.policy]\nmin_tenure = \"7s\"\n[job.bills]\ncommand = [\"x\"]\n"
    );
    let config = Given::file(&text).load().unwrap();
    let policy = |name: &str| &config.jobs.iter().find(|j| j.name() == name).unwrap().policy;
    assert_eq!(policy("orders").election.min_tenure, Duration::from_secs(7));
    assert_eq!(policy("orders").election.max_takeovers.count, 9);
    assert_eq!(policy("bills").election.min_tenure, Duration::from_secs(5));
    assert_eq!(policy("bills").who.site_policy.sites.len(), 2);
}

#[test]
fn text_from_outside_becomes_what_is_asked_for() {
    let given = Given::file(SMALL)
        .variable("DR_WORKER__NODE__ID", "12345")
        .variable("DR_WORKER__JOB__ORDERS__ENV__RUST_LOG", "debug")
        .variable("DR_WORKER__JOB__ORDERS__FENCED", "true")
        .set("job.orders.command=[\"/bin/echo\", \"a,b\"]")
        .set("job.orders.restart.max=7")
        .set("job.orders.ready={ kind = \"tcp\", address = \"[::1]:80\" }")
        .set("zookeeper.root=\"/quoted\"");
    let config = given.load().unwrap();
    assert_eq!(config.node.id.as_str(), "12345");
    assert_eq!(config.zookeeper.root, "/quoted");
    let job = &config.jobs[0];
    let spec = &job.spec;
    assert_eq!(spec.env["RUST_LOG"], "debug");
    assert_eq!(spec.command, ["/bin/echo", "a,b"]);
    assert_eq!(spec.restart.max, 7);
    assert!(job.fenced);
    assert!(matches!(&spec.ready, ReadyProbe::Tcp { address, .. } if address == "[::1]:80"));
}

#[test]
fn everything_wrong_is_reported_at_once_each_with_its_place() {
    let text = "[node]\nsit = \"east\"\n[zookeeper]\nconnect = \"zk1:2181\"\nsession_timeout = 10\n\
                [policy]\nauto_moves = \"soon\"\n[job.orders]\ncommand = [\"x\", 3]\n";
    let given = Given::file(text).variable("DR_WORKER__POLICY__MIN_TENURE", "soon").set("policy.slots=17");
    let problems = given.problems();
    let expected = [
        ("worker.toml:1:", "node.site: it is missing"),
        ("worker.toml:2:1: node.sit: unknown key; did you mean \"site\"?", "valid in [node]: id, site"),
        ("worker.toml:5:19: zookeeper.session_timeout: expected a duration", "\"250ms\""),
        (
            "worker.toml:7:14: policy.auto_moves: \"soon\" is not known; valid: \"none\", \"in-site\", \"all\"",
            "",
        ),
        (
            "environment variable DR_WORKER__POLICY__MIN_TENURE: policy.min_tenure: expected a duration",
            "found \"soon\"",
        ),
        ("--set policy.slots=...: policy.slots: 17 leaders at once are not possible", "valid: 1 to 16"),
        ("worker.toml:9:17: job.orders.command[1]: expected a string", "found the integer 3"),
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (start, part) in expected {
        assert!(
            problems.iter().any(|p| p.starts_with(start) && p.contains(part)),
            "{start:?} ... {part:?} is not in {problems:#?}"
        );
    }
}

#[test]
fn bad_durations_are_refused() {
    for bad in ["\"10 parsecs\"", "\"ten\"", "\"10\"", "10", "1.5", "\"-1s\""] {
        let text = SMALL.replace("[job.orders]", &format!("tick_time = {bad}\n[job.orders]"));
        Given::file(&text).refused("worker.toml:8:13: zookeeper.tick_time: ", &["a duration", "\"10s\""]);
    }
    Given::file(SMALL).set("zookeeper.session_timeout=1s").refused(
        "--set zookeeper.session_timeout=...: zookeeper.session_timeout: ",
        &["1s is out of range", "1s 500ms to 10m"],
    );
}

#[test]
fn a_job_that_would_never_count_as_ready_is_refused() {
    Given::file(SMALL).set("job.orders.ready.after=1m").set("policy.takeover_timeout=30s").refused(
        "--set job.orders.ready.after=...: job.orders.ready: ",
        &["after is 60s", "fails after 30s (takeover_timeout)"],
    );
}

#[test]
fn a_hook_has_the_modes_that_fit_its_point() {
    for (hook, usual, other, why) in [
        ("prepare", "sync", "async", Some("the takeover waits for it")),
        ("before_takeover", "sync", "async", Some("the takeover waits for it")),
        ("after_ready", "async", "sync", Some("nothing waits for it")),
        ("on_leader_changed", "async", "sync", Some("nothing waits for it")),
        ("before_stop", "sync", "async", None),
        ("after_stop", "sync", "async", None),
    ] {
        let name = HookName::ALL.into_iter().find(|name| name.as_str() == hook).unwrap();
        let given = || Given::file(SMALL).set(&format!("job.orders.hooks.{hook}.command=[\"x\"]"));
        let mode = |given: Given| {
            let mut config = given.load().unwrap();
            config.jobs.remove(0).spec.hooks.get(name).unwrap().mode.as_str()
        };
        assert_eq!(mode(given()), usual, "{hook}");
        let set = format!("job.orders.hooks.{hook}.mode={other}");
        match why {
            Some(why) => given().set(&set).refused(
                &format!("{}job.orders.hooks.{hook}.mode: ", at_set(&set)),
                &[other, hook, why, usual],
            ),
            None => assert_eq!(mode(given().set(&set)), other, "{hook}"),
        }
    }
}

#[test]
fn fence_commands_have_an_order_names_and_enough_time() {
    let given = |commands: &str| Given::file(SMALL).set(&format!("job.orders.fence.commands={commands}"));
    let fence = |given: Given| given.load().unwrap().jobs.remove(0).spec.fence.clone().unwrap();
    let two =
        "[{ command = [\"/sbin/off\", \"-f\"] }, { name = \"san\", command = [\"b\"], timeout = \"3s\" }]";
    let read = fence(given(two));
    let names: Vec<_> = read.commands.iter().map(|command| command.name.as_str()).collect();
    assert_eq!((names, read.longest()), (vec!["off", "san"], Duration::from_secs(13)));
    assert_eq!(read.commands[0].command, ["/sbin/off", "-f"]);
    assert_eq!(read.on_failure.as_str(), "stop");
    assert_eq!(fence(given(two).set("job.orders.fence.on_failure=continue")).on_failure.as_str(), "continue");
    assert!(Given::file(SMALL).load().unwrap().jobs[0].spec.fence.is_none());

    for (commands, key, parts) in [
        ("[]", ".commands", &["0 commands"][..]),
        (
            "[{ timeout = \"1s\" }]",
            ".commands[0].command",
            &["it is missing", "such as [\"/usr/bin/fence\"]"],
        ),
        (
            "[{ command = [\"a\"], after = \"1s\" }]",
            ".commands[0].after",
            &["unknown key", "name, command, timeout"],
        ),
        ("[{ command = [\"a\"], timeout = \"2h\" }]", ".commands[0].timeout", &["out of range", "1ms to 1h"]),
        (
            "[{ command = [\"a\"] }, { command = [\"/x/a\"] }]",
            ".commands",
            &["two commands have the name \"a\""],
        ),
        ("[{ command = [\"a\"], timeout = \"60s\" }]", "", &["takeover_timeout", "60s in all"]),
    ] {
        let start = format!("--set job.orders.fence.commands=...: job.orders.fence{key}: ");
        given(commands).refused(&start, parts);
    }
}

#[test]
fn unknown_keys_are_refused_wherever_they_stand() {
    let cases = [
        (
            "colour = 1\n",
            "worker.toml:1:1: colour: unknown key",
            "valid at the top: node, zookeeper, http, log, probes, balance, notify, trace, watchdog, drill, plan, policy, job",
        ),
        (
            "job.orders.ready = { kind = \"exec\", command = [\"x\"], url = \"u\" }\n",
            "worker.toml:1:54: job.orders.ready.url: unknown key",
            "valid in [job.orders.ready]: kind, command",
        ),
        (
            "job.orders.hooks.prepared = { command = [\"x\"] }\n",
            "worker.toml:1:18: job.orders.hooks.prepared: unknown key",
            "did you mean \"prepare\"?",
        ),
    ];
    for (line, start, part) in cases {
        let rest = SMALL.replace("[job.orders]\n", "").replace("command = [\"/bin/true\"]\n", "");
        let command = if line.starts_with("job") {
            "job.orders.command = [\"x\"]\n"
        } else {
            "job.x.command = [\"x\"]\n"
        };
        Given::file(&format!("{line}{command}{rest}")).refused(start, &[part]);
    }
    Given::file(SMALL).variable("DR_WORKER__ZOOKEEPER__ROOTS", "/x").refused(
        "environment variable DR_WORKER__ZOOKEEPER__ROOTS: zookeeper.roots: unknown key",
        &["did you mean \"root\"?"],
    );
    Given::file(SMALL)
        .set("zookeper.root=/x")
        .refused("--set zookeper.root=...: zookeper: unknown key", &["did you mean \"zookeeper\"?"]);
}

#[test]
fn what_this_version_cannot_do_is_refused_not_ignored() {
    for (key, value, part) in [
        (
            "policy.failback_windows",
            "['Sit 02:00-04:00']",
            "\"Sit 02:00-04:00\" has a day that there is not; valid are",
        ),
        ("http.tls", "{ cert_file = \"x\" }", "it needs key_file too"),
        ("http.tls", "{ key_file = \"x\" }", "it needs cert_file too"),
        ("http.tls", "{ client_ca_file = \"x\" }", "it needs cert_file too"),
        ("http.access", "{ status = \"token\" }", "\"token\" needs http.token_file, which is not set"),
        ("http.access", "{ control = \"certificate\" }", "needs http.tls.client_ca_file, which is not set"),
        ("http.access", "{ control = \"open\" }", "\"open\" is not known; valid: \"closed\", \"token\""),
    ] {
        let set = format!("{key}={value}");
        let given = Given::file(SMALL).set(&set);
        given.refused(&format!("{}{key}", at_set(&set)), &[part]);
    }
}

#[test]
fn words_that_mean_nothing_are_refused_with_those_that_do() {
    for (key, value, parts) in [
        ("zookeeper.driver", "zk", ["\"zk\" is not known", "\"native\", \"zookeeper-async\""]),
        ("policy.on_pause", "wait", ["\"wait\" is not known", "\"stop\", \"freeze\", \"keep\""]),
        ("job.orders.recipe", "paxos", ["\"paxos\" is not known", "\"elector\", \"queue\", \"single\""]),
        ("job.orders.stop_signal", "SIGCHLD", ["is not a stop signal", "SIGTERM"]),
        ("http.listen", "7080", ["is not a host:port", "127.0.0.1:7080"]),
        ("zookeeper.connect", "zk1", ["\"zk1\" is not a host:port", "zk1:2181"]),
        ("zookeeper.connect", "zk1:2181/dr", ["contains a path", "zookeeper.root"]),
        ("zookeeper.prefer", "zk1", ["\"zk1\" is not a host:port", "zk1:2181"]),
        ("zookeeper.prefer", "other:2181", ["\"other:2181\" is not in zookeeper.connect", "as it is there"]),
        ("zookeeper.root", "dr", ["does not begin with '/'", "dr"]),
        ("node.id", "a/b", ["member id", "'/'"]),
        ("node.id", "", ["it is empty", ""]),
        ("policy.sites", "east", ["an array", "found \"east\""]),
        ("policy.sites", "[\"west\"]", ["site \"east\" is not in the order of sites", "node.site"]),
        ("policy.sites", "[\"east\", \"east\"]", ["listed twice", ""]),
        ("node", "7", ["expected a table, found an integer", ""]),
    ] {
        let set = format!("{key}={value}");
        let problems = Given::file(SMALL).set(&set).problems();
        assert!(problems.iter().any(|p| parts.iter().all(|part| p.contains(part))), "{set}: {problems:#?}");
    }
}

#[test]
fn a_stop_that_does_not_fit_the_session_timeout_is_refused_with_the_figures() {
    let text = format!("{SMALL}stop_timeout = \"8s\"\n");
    Given::file(&text).refused(
        "worker.toml:10:16: job.orders.stop_timeout: ",
        &[
            "stop_timeout 8s",
            "heartbeat interval 2s 500ms",
            "margin 100ms",
            "less than the session timeout of 10s",
            "set stop_timeout to at most ",
            "zookeeper.session_timeout to at least ",
        ],
    );
    Given::file(SMALL).set("zookeeper.session_timeout=4s").refused(
        "worker.toml:8:6: job.orders.stop_timeout: ",
        &["less than the session timeout of 4s", "zookeeper.session_timeout to at least"],
    );
}

#[test]
fn a_planned_stop_lengthens_the_release_and_not_the_stop_budget() {
    let policies = |set: &[&str]| {
        let mut given = Given::file(SMALL);
        given.sources.sets.extend(set.iter().map(|set| (*set).to_owned()));
        let config = given.load().unwrap();
        let engine = config.jobs[0].policy.engine(config.jobs[0].spec.stop_budget(), false);
        let operator = OperatorConfig::load(&given.sources).unwrap().engine_of("orders");
        assert_eq!(operator.release_timeout, engine.release_timeout);
        (engine.release_timeout, engine.stop_budget, config.jobs[0].policy.fingerprint(false))
    };
    let (usual, budget, fingerprint) = policies(&[]);
    let (longer, same, other) = policies(&["job.orders.planned_stop_timeout=62s"]);
    assert_eq!((longer, same), (usual + Duration::from_secs(60), budget));
    assert_ne!(fingerprint, other, "members that differ in it warn of each other");
    Given::file(SMALL)
        .set("job.orders.planned_stop_timeout=1s")
        .refused("--set job.orders.planned_stop_timeout=...: ", &["shorter than stop_timeout"]);
}

#[test]
fn a_program_that_is_not_there_is_found_at_its_place() {
    let text = SMALL.replace("/bin/true", "/no/such/program");
    let config = Given::file(&text).load().unwrap();
    let problems = config.check_node().unwrap_err().to_string();
    for part in ["worker.toml:9:11: job.orders.command: /no/such/program", "No such file"] {
        assert!(problems.contains(part), "{problems}");
    }
    let config = Given::file(SMALL).set("job.orders.env={ DR_TERM = \"1\" }").load().unwrap();
    let problems = config.check_node().unwrap_err().to_string();
    assert!(problems.contains("--set job.orders.env=...: job.orders.env.DR_TERM: "), "{problems}");
    assert_eq!(Given::file(SMALL).load().unwrap().check_node(), Ok(()));
}

#[test]
fn what_the_servers_grant_is_checked_as_well() {
    let config = Given::file(SMALL).load().unwrap();
    let granted = |seconds| {
        config.check_timing(LeaseTiming {
            session_timeout: Duration::from_secs(seconds),
            tick_time: Duration::from_secs(2),
        })
    };
    assert_eq!(granted(10), Ok(()));
    let problems = granted(4).unwrap_err().to_string();
    for part in ["job.orders.stop_timeout", "that the servers grant", "less than the session timeout of 4s"] {
        assert!(problems.contains(part), "{problems}");
    }
}

#[test]
fn sources_that_cannot_be_read_are_named() {
    let mut given = Given::file(SMALL);
    let missing = given.path("missing.toml");
    given.sources.paths.push(missing);
    given.refused("missing.toml: the file cannot be read", &[]);

    let mut given = Given::file(SMALL);
    given.add("broken.toml", "[node\nid = 1\n");
    given.refused("broken.toml:1:", &["not valid TOML"]);

    let mut given = Given::file(SMALL);
    given.add("twice.toml", "[node]\nid = \"a\"\nid = \"b\"\n");
    given.refused("twice.toml:3:1", &["not valid TOML", "duplicate key"]);

    Given::file(SMALL).set("nothing").refused("--set nothing: ", &["section.key=value"]);
    Given::file(SMALL)
        .variable("DR_WORKER__", "x")
        .refused("environment variable DR_WORKER__: ", &["SECTION__KEY"]);
    use std::os::unix::ffi::OsStringExt as _;
    let mut given = Given::file(SMALL);
    given.sources.variables.push(("DR_WORKER__NODE__ID".into(), OsString::from_vec(vec![0xff, 0xfe])));
    given.refused("environment variable DR_WORKER__NODE__ID: ", &["UTF-8"]);
}

#[test]
fn nothing_at_all_says_what_is_needed() {
    let problems = match Config::load(&Sources::default()) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(problems) => problems.to_string(),
    };
    for part in ["node.site: it is missing", "zookeeper.connect: it is missing", "job: no job is configured"]
    {
        assert!(problems.contains(part), "{problems}");
    }
}

#[test]
fn what_may_be_secret_is_not_shown() {
    let config = Given::file(SMALL).set("job.orders.env.DB_PASSWORD=hunter2").load().unwrap();
    assert_eq!(config.jobs[0].spec.env["DB_PASSWORD"], "hunter2");
    let shown = format!(
        "{:?}",
        config.shown().iter().map(|s| format!("{} {}", s.value, s.origin)).collect::<Vec<_>>()
    );
    assert!(shown.contains("DB_PASSWORD"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let problems =
        Given::file(SMALL).set("job.orders.env.DB_PASSWORD=hunter2").set("job.orders.fence=true").problems();
    assert!(!format!("{problems:?}").contains("hunter2"), "{problems:?}");
}

#[test]
fn an_operator_needs_neither_node_nor_job() {
    let given = Given { dir: tempfile::tempdir().unwrap(), sources: Sources::default() }
        .set("zookeeper.connect=zk1:2181")
        .set("policy.sites=[\"east\", \"west\"]")
        .set("job.orders.policy.exclusion=7m")
        .set("job.orders.stop_timeout=nonsense")
        .set("node.id=a/b");
    let config = OperatorConfig::load(&given.sources).unwrap();
    assert_eq!(config.zookeeper.connect, "zk1:2181");
    assert_eq!(config.policy_of("orders").election.exclusion, Duration::from_secs(420));
    assert_eq!(config.policy_of("orders").who.site_policy.sites.len(), 2);
    assert_eq!(config.policy_of("other").election.exclusion, Duration::from_secs(300));
    let mistyped = given.set("zookeeper.rot=/x");
    assert!(OperatorConfig::load(&mistyped.sources).is_err());
}

fn config_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

/// The files in `config/`, as they are shipped.
fn sample(names: &[&str]) -> Sources {
    let paths = names.iter().map(|name| config_dir().join(name)).collect();
    Sources { paths, ..Sources::default() }
}

fn base_toml() -> String {
    fs::read_to_string(config_dir().join("base.toml")).unwrap()
}

/// A table or an assignment behind a '#'.
fn example(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("# ")?;
    let key = rest.split([' ', '=']).next()?;
    let is_key = key.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !key.is_empty();
    let is_example = rest.starts_with('[') || is_key && rest[key.len()..].trim_start().starts_with("= ");
    is_example.then_some(rest)
}

/// `config/base.toml` with all its examples.
fn uncommented() -> String {
    base_toml().lines().map(|line| format!("{}\n", example(line).unwrap_or(line))).collect()
}

#[test]
fn the_sample_files_are_valid() {
    for site in ["east", "west"] {
        let config = Config::load(&sample(&["base.toml", &format!("{site}.toml")])).unwrap();
        assert_eq!(config.node.site.as_str(), site);
        assert_eq!(config.jobs[0].name(), "orders");
        assert!(config.jobs[0].fenced);
    }
}

#[test]
fn the_sample_files_show_the_defaults() {
    let config = Config::load(&sample(&["base.toml", "east.toml"])).unwrap();
    let site = |name: &str| election_core::config::SiteId::new(name).unwrap();
    let policy = &config.jobs[0].policy;
    let who = strategies::PolicySpec::for_sites(["east", "west"].map(site));
    assert_eq!(policy.who, who.for_election("orders"));
    assert_eq!((&policy.election, policy.balance), (&election_core::config::Policy::default(), false));
    assert_eq!(config.jobs[0].spec.restart, crate::config::RestartPolicy::default());
}

/// What is behind a '#' in the sample is an example to uncomment: it must be valid too.
#[test]
fn the_examples_in_the_sample_file_are_valid() {
    let uncommented = uncommented();
    assert!(uncommented.contains("\n[zookeeper.auth]\n"), "{uncommented}");
    Given::file(&uncommented).set("node.site=east").load().unwrap();
}

#[test]
fn a_policy_that_takes_an_elector_is_refused_with_the_other_recipes() {
    for recipe in ["queue", "single"] {
        let given = || Given::file(SMALL).set(&format!("job.orders.recipe={recipe}"));
        assert_eq!(given().load().unwrap().jobs[0].recipe.as_str(), recipe);
        // What goes for all jobs goes for those that can heed it.
        let loaded = given().set("policy.auto_moves=all").set("job.orders.policy.exclusion=1s").load();
        assert!(loaded.is_ok(), "{loaded:?}");
        let set = "job.orders.policy.auto_moves=all";
        given().set(set).refused(
            &format!("{}job.orders.policy.auto_moves: ", at_set(set)),
            &[recipe, "only \"elector\" does"],
        );
    }
}
