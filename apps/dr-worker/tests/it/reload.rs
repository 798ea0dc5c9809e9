//! SIGHUP: a worker reads its configuration again, applies what it can, and reports what needs more.

use std::{fs, path::PathBuf, process::Command};

use crate::notify::{fail_a_request, listen, names, receiver, webhook};
use crate::support::{
    Running, dr_worker, http,
    own_server::OwnServer,
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use zk_testkit::PortReservation;

pub(crate) const TOKEN: &str = "0123456789abcdef";

/// The file that a test changes.
pub(crate) struct File<'a> {
    stage: &'a Stage,
    path: PathBuf,
    tokens: String,
}

impl<'a> File<'a> {
    pub(crate) fn new(stage: &'a Stage, text: &str) -> Self {
        let (_, tokens) = stage.tokens(TOKEN);
        let file = Self { stage, path: stage.dir.path().join("worker.toml"), tokens };
        file.write(text);
        file
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(&self.path, text).expect("a file");
    }

    pub(crate) fn worker(&self, id: &str, site: &str) -> Running {
        Running::start(&mut self.command(id, site))
    }

    pub(crate) fn command(&self, id: &str, site: &str) -> Command {
        let mut command = self.stage.worker_command(id, site, &[&self.tokens]);
        command.arg("--config").arg(&self.path);
        command
    }

    /// Has workers read this text, and waits until they have.
    pub(crate) fn reload(&self, workers: &[&Running], text: &str) -> Vec<Value> {
        self.write(text);
        workers
            .iter()
            .map(|worker| {
                let before = config(worker)["reload"]["at_ms"].clone();
                // The time has milliseconds.
                until("the clock goes on", || now_ms() > before.as_u64().unwrap_or(0));
                worker.signal(Signal::SIGHUP);
                until("it has read it", || config(worker)["reload"]["at_ms"] != before);
                config(worker)["reload"].clone()
            })
            .collect()
    }
}

#[test]
fn a_configuration_that_can_not_be_read_yet_holds_up_nothing_and_is_not_lost() {
    let stage = Stage::new("/reload-hangs");
    let text = "[job.orders.restart]\nmax = 1\n";
    let file = File::new(&stage, text);
    let mut east = file.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    // A pipe is read when somebody writes it, as a file whose disk answers late.
    let hang = || {
        fs::remove_file(&file.path).expect("removed");
        nix::unistd::mkfifo(&file.path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        east.signal(Signal::SIGHUP);
    };
    hang();
    // Returns when the worker reads.
    fs::write(&file.path, text.replace('1', "2")).expect("read");
    until("it has read it", || value(&east, "job.orders.restart.max") == "2");
    hang();
    let held = fs::OpenOptions::new().write(true).open(&file.path).expect("read");
    east.signal(Signal::SIGTERM);
    until("west-1 leads", || leads(&west));
    assert!(east.ended().success());
    drop(held);
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    u64::try_from(since.as_millis()).expect("a time")
}

pub(crate) fn config(worker: &Running) -> Value {
    let (_, body) = worker.http_with("GET", "/config", &[&format!("Authorization: Bearer {TOKEN}")], "");
    serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"))
}

pub(crate) fn value(worker: &Running, key: &str) -> Value {
    let config = config(worker);
    let values = config["values"].as_array().expect("values").iter();
    values.filter(|shown| shown["key"] == key).map(|shown| shown["value"].clone()).next().unwrap_or_default()
}

fn pid(worker: &Running) -> Value {
    let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
    status["jobs"]["orders"]["process"]["pid"].clone()
}

/// `(key, effect)` of each change.
pub(crate) fn effects(reload: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let changes = reload["changes"].as_array().expect("changes").iter();
    changes.map(|change| (text(&change["key"]), text(&change["effect"]))).collect()
}

#[test]
fn it_applies_what_it_can_and_reports_what_needs_more() {
    let stage = Stage::new("/reload-effects");
    let file = File::new(&stage, "[job.orders]\nenv = { RUN = \"one\" }\n");
    let worker = file.worker("east-1", "east");
    until("it leads", || leads(&worker));
    let before = pid(&worker);
    let hook = stage.dir.path().join("hook");
    let text = format!(
        "[node]\nattributes = {{ rack = \"r7\" }}\n[zookeeper]\ndriver = \"zookeeper-async\"\n[policy]\nmin_tenure = \"7s\"\n\
         [job.orders]\nenv = {{ RUN = \"two\" }}\nrestart = {{ max = 9 }}\n\
         hooks.after_ready.command = [\"/bin/sh\", \"-c\", \"echo $RUN > {}\"]\n\
         [job.bills]\ncommand = [\"true\"]\n",
        hook.display()
    );
    let reload = &file.reload(&[&worker], &text)[0];
    assert_eq!(reload["problems"], json!([]));
    let expected = [
        ("job.bills", "worker-restart"),
        ("job.orders.env", "job-restart"),
        ("job.orders.hooks.after_ready.command", "applied"),
        ("job.orders.hooks.after_ready.mode", "applied"),
        ("job.orders.hooks.after_ready.timeout", "applied"),
        ("job.orders.restart.max", "applied"),
        ("node.attributes", "applied"),
        ("policy.min_tenure", "applied"),
        ("zookeeper.driver", "worker-restart"),
    ];
    let expected = expected.map(|(key, effect)| (key.to_owned(), effect.to_owned()));
    assert_eq!(effects(reload), expected);
    assert_eq!(pid(&worker), before, "the job runs on");
    until("it leads", || leads(&worker));
    assert_eq!(value(&worker, "zookeeper.driver"), "\"native\"", "what is in force");
    until("the attributes are published", || {
        stage.json(&["list"])["members"][0]["attributes"] == json!({ "rack": "r7" })
    });
    assert!(!hook.exists());
    // Its next start has the new environment and the new hook.
    stage.operator(&["restart", "--job", "orders", "--wait"]).assert(0, &[]);
    until("the hook has run", || fs::read_to_string(&hook).is_ok_and(|text| text == "two\n"));
    assert_ne!(pid(&worker), before);
    let metrics = worker.http("GET", "/metrics").1;
    let reloads = |outcome: &str, count: u32| {
        metrics.lines().any(|line| {
            line.starts_with("dr_config_reloads_total{")
                && line.contains(&format!("outcome=\"{outcome}\""))
                && line.ends_with(&format!(" {count}"))
        })
    };
    assert!(reloads("done", 1) && reloads("refused", 0), "{metrics}");
}

#[test]
fn a_bad_file_changes_nothing_and_is_named() {
    let stage = Stage::new("/reload-bad");
    let file = File::new(&stage, "[job.orders]\nrestart = { max = 1 }\n");
    let worker = file.worker("east-1", "east");
    until("it leads", || leads(&worker));
    let before = pid(&worker);
    for (text, reason) in [
        (
            "[job.orders]\nrestart = { max = 2, often = 3 }\n",
            "worker.toml:2:22: job.orders.restart.often: unknown key",
        ),
        (
            "[job.orders]\nrestart = { max = 2 }\nliveness = 3\n",
            "worker.toml:3:12: job.orders.liveness: expected a table",
        ),
        ("[job.orders\n", "worker.toml:1:12: this is not valid TOML"),
        (
            "[job.orders.fitness]\nkind = \"exec\"\ncommand = [\"/no/such/program\"]\n",
            "job.orders.fitness.command",
        ),
        ("[job.orders.hooks.prepare]\ncommand = [\"no-such-program\"]\n", "job.orders.hooks.prepare.command"),
    ] {
        let reload = &file.reload(&[&worker], text)[0];
        let problem = reload["problems"][0].as_str().unwrap_or_default();
        assert!(problem.contains(reason), "{reason}: {reload}");
        assert_eq!((pid(&worker), value(&worker, "job.orders.restart.max")), (before.clone(), json!("1")));
    }
    let reload = &file.reload(&[&worker], "[job.orders]\nrestart = { max = 2 }\n")[0];
    assert_eq!(effects(reload), [("job.orders.restart.max".to_owned(), "applied".to_owned())]);
    assert_eq!((pid(&worker), value(&worker, "job.orders.restart.max")), (before, json!("2")));
}

#[test]
fn a_policy_reaches_the_elector() {
    let stage = Stage::new("/reload-policy");
    let text = |first: &str, second: &str| {
        format!(
            "[job.orders.policy]\nsites = [\"{first}\", \"{second}\"]\nauto_moves = \"all\"\nfailback_after = \"0s\"\n\
             min_tenure = \"0s\"\n"
        )
    };
    let file = File::new(&stage, &text("east", "west"));
    let east = file.worker("east-1", "east");
    until("the preferred site leads", || leads(&east));
    let west = file.worker("west-1", "west");
    until("the other one is standby", || west.code("/standby") == 200);
    let reloads = file.reload(&[&east, &west], &text("west", "east"));
    assert_eq!(effects(&reloads[0]), [("job.orders.policy.sites".to_owned(), "applied".to_owned())]);
    until("the site that is preferred now leads", || leads(&west));
    until("the other one is standby", || east.code("/standby") == 200);
}

#[test]
fn checks_measurements_and_output_change_while_the_job_runs() {
    let stage = Stage::new("/reload-parts");
    let job = |more: &str| format!("[job.orders]\n{more}");
    let file = File::new(&stage, &job(""));
    let mut command = file.command("east-1", "east");
    let prints = "while :; do echo line; sleep 0.1; done";
    command.args(["--set", &format!("job.orders.command={}", json!(["/bin/sh", "-c", prints]))]);
    let output = stage.dir.path().join("output");
    let worker = Running::start(&mut command);
    until("it leads", || leads(&worker));
    let before = pid(&worker);
    let set = |shell: &str| {
        format!("command = [\"/bin/sh\", \"-c\", \"{shell}\"]\ninterval = \"100ms\"\ntimeout = \"100ms\"\n")
    };

    let accepted = |text: &str| {
        let reload = &file.reload(&[&worker], text)[0];
        assert_eq!(reload["problems"], json!([]), "{text}");
    };
    let measure = format!("[job.orders.measure]\n{}", set("echo lag=7"));
    accepted(&job(&measure));
    let member = || stage.json(&["list"])["members"][0].clone();
    until("it is measured", || member()["attributes"] == json!({ "lag": "7" }));
    accepted(&job(""));
    until("it is not any more", || member()["attributes"] == json!({}));

    let fitness = format!("[job.orders.fitness]\nkind = \"exec\"\n{}failures = 1\n", set("exit 1"));
    accepted(&job(&fitness));
    until("it is not fit", || member()["health"].as_str().is_some_and(|health| health.contains("fitness")));
    accepted(&job(""));
    until("nothing checks it", || member()["health"] == "unchecked");

    accepted(&job(&format!("output = {{ kind = \"file\", path = {output:?} }}\n")));
    until("the output goes to the file", || {
        fs::read_to_string(&output).is_ok_and(|text| text.contains("line"))
    });
    assert_eq!(pid(&worker), before, "the job has run on until now");

    let liveness = format!("[job.orders.liveness]\nkind = \"exec\"\n{}failures = 1\n", set("exit 1"));
    accepted(&job(&liveness));
    until("the job is restarted", || pid(&worker) != before);
}

#[test]
fn it_listens_elsewhere_and_notifies_others() {
    let stage = Stage::new("/reload-places");
    let ports = PortReservation::take(1).expect("a port");
    let listen_at = |port: u16, more: &str| format!("[http]\nlisten = \"127.0.0.1:{port}\"\n{more}");
    let file = File::new(&stage, &listen_at(0, ""));
    let mut worker = Running::start_where_configured(&mut file.command("east-1", "east"), &["run"]);
    until("it leads", || leads(&worker));
    let (before, job) = (worker.port, pid(&worker));
    // One that another program has is refused, and nothing else of that file applies.
    let (taken, taken_port) = listen();
    let refused = &file.reload(&[&worker], &listen_at(taken_port, "[job.orders.restart]\nmax = 7\n"))[0];
    let problem = refused["problems"][0].as_str().unwrap_or_default();
    assert!(problem.contains("http.listen: can't listen at"), "{refused}");
    assert_ne!(value(&worker, "job.orders.restart.max"), "7");
    drop(taken);

    let port = ports.ports()[0];
    file.write(&listen_at(port, ""));
    worker.signal(Signal::SIGHUP);
    until("it listens there", || http(port, "GET", "/leader").is_ok());
    worker.port = port;
    assert!(leads(&worker) && pid(&worker) == job, "the job runs on");
    until("nothing listens where it did", || http(before, "GET", "/leader").is_err());
    until("other members learn of it", || {
        stage.json(&["list"])["members"][0].to_string().contains(&format!("127.0.0.1:{port}"))
    });

    let (first, second) = (listen(), listen());
    let (first_got, second_got) = (receiver(first.0, &[200]), receiver(second.0, &[200]));
    let notifies = |port_of_hook: u16| {
        let settings = webhook("ops", port_of_hook, &[]);
        let (key, url) = settings[0].split_once('=').expect("a setting");
        listen_at(port, &format!("[{}]\nurl = \"{url}\"\n", key.trim_end_matches(".url")))
    };
    for (hook, got) in [(first.1, &first_got), (second.1, &second_got)] {
        let reload = &file.reload(&[&worker], &notifies(hook))[0];
        assert_eq!(reload["problems"], json!([]));
        fail_a_request(&stage, "east");
        until("it is notified", || names(got).iter().any(|name| name == "request-failed"));
    }
    assert_eq!(names(&first_got).iter().filter(|name| *name == "request-failed").count(), 1);
    assert_eq!(pid(&worker), job, "the job runs on");
}

#[test]
fn its_session_goes_on_with_other_servers_of_the_ensemble_only() {
    let own = OwnServer::with(|builder| builder.servers(3));
    let other = OwnServer::new();
    let names: Vec<_> = own.server().addresses().iter().map(ToString::to_string).collect();
    let file = own.dir.path().join("worker.toml");
    let write = |connect: &str| {
        let state = own.dir.path().join("state");
        let text = format!(
            "[node]\nid = \"east-1\"\nsite = \"east\"\nstate_dir = {state:?}\n\
             [zookeeper]\nconnect = \"{connect}\"\ntick_time = \"500ms\"\nsession_timeout = \"6s\"\n\
             [policy]\nsites = [\"east\"]\n[job.orders]\ncommand = [\"sleep\", \"1000\"]\nstop_timeout = \"1s\"\n"
        );
        fs::write(&file, text).expect("a file");
    };
    write(&names[0]);
    let mut command = dr_worker();
    let worker = Running::start(command.arg("--config").arg(&file));
    until("it leads", || leads(&worker));
    let status = || -> Value { serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON") };
    let term = status()["jobs"]["orders"]["term"].clone();
    let reload = |connect: &str| {
        write(connect);
        worker.signal(Signal::SIGHUP);
    };
    let metric = |outcome: &str| {
        let text = worker.http("GET", "/metrics").1;
        let end = format!("outcome=\"{outcome}\"");
        let line =
            text.lines().find(|line| line.starts_with("dr_config_reloads_total{") && line.contains(&end));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    reload(&format!("{},{}", names[0], other.server().addresses()[0]));
    until("another ensemble is refused", || metric("refused") == 1);
    reload(&format!("{},{}", names[1], names[2]));
    until("others of this one are not", || metric("done") == 1);
    own.runtime.block_on(own.server().stop(0)).expect("it stops");
    // Longer than the session would last without a server.
    let by = std::time::Instant::now() + std::time::Duration::from_secs(8);
    while std::time::Instant::now() < by {
        assert!(leads(&worker), "{}", status());
        // Between two looks.
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_eq!(status()["jobs"]["orders"]["term"], term);
}
