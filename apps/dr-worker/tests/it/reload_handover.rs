//! SIGHUP with a change for which the worker executes itself: its jobs run on.

use std::{fs, net::TcpStream, path::PathBuf, process::Command};

use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::{Value, json};

use crate::{
    reload::{File, config, effects, value},
    standbys::is_alive,
    support::{
        Outcome, Running, request,
        stage::{Stage, leads, successors},
        until,
    },
};

fn job(name: &str) -> String {
    format!("[job.{name}]\ncommand = [\"sleep\", \"1000\"]\nstop_timeout = \"1s\"\n")
}

/// What the worker says, unless that is cut off while it executes itself.
fn answer(worker: &Running, path: &str, header: &str) -> Value {
    let asked = TcpStream::connect(("127.0.0.1", worker.port));
    let asked = asked.and_then(|stream| request(stream, "GET", path, &[header], ""));
    asked.ok().and_then(|(_, body)| serde_json::from_str(&body).ok()).unwrap_or_default()
}

fn status(worker: &Running) -> Value {
    answer(worker, "/status", "Accept: */*")
}

/// The READY leadership of a job, with what must not change.
fn leadership(worker: &Running, job: &str) -> Option<[Value; 4]> {
    let status = status(worker);
    let of = &status["jobs"][job];
    let all = [&of["term"], &of["fencing_token"], &of["process"]["pid"], &of["process"]["restarts"]]
        .map(Value::clone);
    (of["role"] == "leader" && of["process"]["state"] == "running").then_some(all)
}

/// Waits until the leadership is shown as it was: the same one, in the same process of the job. An answer can be cut off.
#[track_caller]
fn runs_on(worker: &Running, job: &str, before: Option<&[Value; 4]>) {
    assert!(before.is_some(), "{job} was not led");
    until("the job has run on", || leadership(worker, job).as_ref() == before);
}

fn reload(worker: &Running) -> Value {
    answer(worker, "/config", &format!("Authorization: Bearer {}", crate::reload::TOKEN))["reload"].clone()
}

/// The outcome of the last reload, once nothing is under way.
fn settled(worker: &Running) -> Value {
    let is_settled = |reload: &Value| {
        let changes = reload["changes"].as_array();
        changes.is_some_and(|all| all.iter().all(|change| change["effect"] != "handover"))
            || reload["waits"].is_string()
    };
    until("the reload is over", || is_settled(&reload(worker)));
    reload(worker)
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(key, effect)| ((*key).to_owned(), (*effect).to_owned())).collect()
}

#[test]
fn a_new_job_is_led_and_the_others_do_not_notice() {
    let stage = Stage::new("/reload-added");
    let file = File::new(&stage, &job("bills"));
    let worker = file.worker("east-1", "east");
    let both = || [leadership(&worker, "orders"), leadership(&worker, "bills")];
    until("both are led", || both().iter().all(Option::is_some));
    let before = both();
    file.write(&(job("bills") + &job("mail") + "[job.orders]\nrestart = { max = 7 }\nafter = [\"mail\"]\n"));
    worker.signal(Signal::SIGHUP);
    until("the new one is led", || leadership(&worker, "mail").is_some());
    let run_on = || {
        runs_on(&worker, "orders", before[0].as_ref());
        runs_on(&worker, "bills", before[1].as_ref());
    };
    run_on();
    let reloaded = settled(&worker);
    assert_eq!(reloaded["problems"], json!([]));
    assert_eq!(reloaded["waits"], Value::Null);
    let expected =
        [("job.mail", "applied"), ("job.orders.after", "applied"), ("job.orders.restart.max", "applied")];
    assert_eq!(effects(&reloaded), pairs(&expected));
    assert_eq!(value(&worker, "job.orders.restart.max"), "7");
    let list = stage.json(&["list", "--job", "mail"]);
    assert_eq!(list["members"][0]["member"], "east-1", "{list}");
    let metrics = worker.http("GET", "/metrics").1;
    assert!(metrics.lines().any(|line| line.starts_with("dr_config_reloads_total{")), "{metrics}");
    assert!(metrics.contains("job=\"mail\""), "{metrics}");
    let name = fs::read_to_string(format!("/proc/{}/comm", worker.pid())).expect("it lives");
    assert_eq!(name, "dr-worker\n");

    // An overlay of the new job is followed.
    let overlay = stage.dir.path().join("overlay.toml");
    fs::write(&overlay, "restart = { max = 9 }\n").expect("a file");
    let push =
        ["config", "push", "--job", "mail", "--yes", "--reason", "a test", overlay.to_str().expect("text")];
    Outcome::of(file.command("east-1", "east").args(push)).assert(0, &[]);
    until("the overlay is in force", || value(&worker, "job.mail.restart.max") == "9");
    // Whatever applies at once still does so, and again a job is added.
    let text = job("bills") + &job("mail") + &job("news");
    file.write(&text);
    worker.signal(Signal::SIGHUP);
    until("another one is led", || leadership(&worker, "news").is_some());
    run_on();
}

#[test]
fn a_reload_that_comes_while_another_one_waits_for_a_takeover_is_not_lost() {
    let stage = Stage::new("/reload-waits");
    let ready = stage.dir.path().join("ready");
    let slow = format!(
        "[job.bills]\ncommand = [\"sleep\", \"1000\"]\nstop_timeout = \"1s\"\n\
         ready = {{ kind = \"exec\", command = [\"test\", \"-f\", {ready:?}] }}\n"
    );
    let file = File::new(&stage, &slow);
    let worker = file.worker("east-1", "east");
    until("one leads", || leadership(&worker, "orders").is_some());
    let role = || status(&worker)["jobs"]["bills"]["role"].clone();
    until("the other one takes over", || role() == "taking-over");
    let before = leadership(&worker, "orders");
    file.write(&(slow.clone() + &job("mail") + "[job.orders]\nrestart = { max = 7 }\n"));
    worker.signal(Signal::SIGHUP);
    until("what applies at once does", || value(&worker, "job.orders.restart.max") == "7");
    let effect = |key: &str| effects(&config(&worker)["reload"]).into_iter().find(|(of, _)| of == key);
    assert_eq!(effect("job.mail").expect("it has changed").1, "handover");
    file.write(&(slow.clone() + &job("mail") + &job("news") + "[job.orders]\nrestart = { max = 8 }\n"));
    worker.signal(Signal::SIGHUP);
    fs::write(&ready, "").expect("a file");
    until("both new ones are led", || ["mail", "news"].iter().all(|job| leadership(&worker, job).is_some()));
    assert_eq!(value(&worker, "job.orders.restart.max"), "8");
    runs_on(&worker, "orders", before.as_ref());
}

#[test]
fn a_job_that_can_not_be_joined_waits_and_is_reported() {
    let stage = Stage::new("/reload-other-recipe");
    let others = stage.worker("west-1", "west", &["job.mail.command=[\"sleep\", \"1000\"]"]);
    until("west-1 takes part", || others.code("/readiness") == 200);
    let file = File::new(&stage, "");
    let worker = file.worker("east-1", "east");
    until("east-1 takes part", || worker.code("/readiness") == 200);
    let bad = job("mail") + "recipe = \"queue\"\n";
    file.write(&(bad.clone() + "[job.orders]\nrestart = { max = 7 }\n"));
    worker.signal(Signal::SIGHUP);
    until("it is reported", || reload(&worker)["waits"].is_string());
    let waits = reload(&worker);
    assert!(waits["waits"].as_str().is_some_and(|why| why.contains("recipe")), "{waits}");
    assert_eq!(effects(&waits), pairs(&[("job.mail", "handover"), ("job.orders.restart.max", "applied")]));
    // Together with a key that needs a restart it does not apply, and a job that would outlive its lease is refused.
    file.write(&(job("mail") + "[zookeeper]\ndriver = \"zookeeper-async\"\n"));
    worker.signal(Signal::SIGHUP);
    let of_driver = || {
        let changes = effects(&reload(&worker)).into_iter();
        changes.filter(|(key, _)| key != "job.orders.restart.max").collect::<Vec<_>>()
    };
    let expected = pairs(&[("job.mail", "worker-restart"), ("zookeeper.driver", "worker-restart")]);
    until("both need a restart", || of_driver() == expected);
    file.write(&job("mail").replace("1s", "1h"));
    worker.signal(Signal::SIGHUP);
    let problem = || reload(&worker)["problems"][0].as_str().unwrap_or_default().to_owned();
    until("it is refused", || problem().contains("job.mail.stop_timeout"));
    // The last good one counts.
    file.write(&job("mail"));
    worker.signal(Signal::SIGHUP);
    until("it is a candidate", || !status(&worker)["jobs"]["mail"].is_null());
    assert_eq!(effects(&settled(&worker)), pairs(&[("job.mail", "applied")]));
    until("it takes part in both", || worker.code("/readiness") == 200);
}

/// Whether the worker takes no part in the election any more, and runs nothing of the job.
fn has_left(worker: &Running, job: &str, guards: usize) -> bool {
    let jobs = &status(worker)["jobs"];
    jobs.is_object() && jobs[job].is_null() && worker.children().len() == guards
}

#[test]
fn a_removed_job_is_handed_over_and_the_others_do_not_notice() {
    let stage = Stage::new("/reload-removed");
    let both = job("bills") + "standby = { command = [\"sleep\", \"1000\"], stop_timeout = \"1s\" }\n";
    let file = File::new(&stage, &both);
    let east = file.worker("east-1", "east");
    until("the first leads both", || ["orders", "bills"].iter().all(|job| leadership(&east, job).is_some()));
    let (_, tokens) = stage.tokens(crate::reload::TOKEN);
    let of_west = stage.dir.path().join("west.toml");
    fs::write(&of_west, &both).expect("a file");
    let mut command = stage.worker_command("west-1", "west", &[&tokens]);
    let west = Running::start(command.arg("--config").arg(&of_west));
    let line = || successors(&stage.json(&["list", "--job", "bills"]));
    until("the other one is next in line", || line()[0] == "west-1");
    let before = leadership(&east, "orders");
    file.write("");
    east.signal(Signal::SIGHUP);
    until("it has left", || has_left(&east, "bills", 1));
    until("the other one leads", || leadership(&west, "bills").is_some());
    runs_on(&east, "orders", before.as_ref());
    let history = stage.json(&["history", "--job", "bills"]).to_string();
    assert!(history.contains("leader-shutdown"), "{history}");
    assert_eq!(effects(&settled(&east)), pairs(&[("job.bills", "applied")]));
    assert_eq!(east.code("/readiness"), 200);
    assert_eq!(east.code("/leader?job=bills"), 404);

    // No member is left to take over: it is stopped, as at SIGTERM.
    fs::write(&of_west, "").expect("a file");
    west.signal(Signal::SIGHUP);
    until("it has left too", || has_left(&west, "bills", 0));
    let list = stage.json(&["list", "--job", "bills"]);
    assert_eq!(list["slots"][0]["leader"], Value::Null, "{list}");
    runs_on(&east, "orders", before.as_ref());
}

#[test]
fn a_renamed_job_is_one_removed_and_one_added() {
    let stage = Stage::new("/reload-renamed");
    let file = File::new(&stage, &job("bills"));
    let worker = file.worker("east-1", "east");
    until("both are led", || ["orders", "bills"].iter().all(|job| leadership(&worker, job).is_some()));
    let before = leadership(&worker, "orders");
    file.write(&job("invoices"));
    worker.signal(Signal::SIGHUP);
    until("the new one is led", || leadership(&worker, "invoices").is_some());
    assert!(has_left(&worker, "bills", 2), "{}", status(&worker));
    assert_eq!(effects(&settled(&worker)), pairs(&[("job.bills", "applied"), ("job.invoices", "applied")]));
    runs_on(&worker, "orders", before.as_ref());
}

/// A worker that leaves the election of a removed job, whose program ends once a file exists.
struct Leaving<'a> {
    file: File<'a>,
    worker: Running,
    /// What configured the job.
    slow: String,
    may_end: PathBuf,
    /// The leaderships of the job that stays, and of the removed one.
    before: [Option<[Value; 4]>; 2],
}

impl<'a> Leaving<'a> {
    fn new(stage: &'a Stage) -> Self {
        let may_end = stage.dir.path().join("may-end");
        let script = format!(
            "trap 'until [ -e {} ]; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done",
            may_end.display()
        );
        let slow = format!(
            "[job.bills]\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\nstop_timeout = \"1s\"\n\
             planned_stop_timeout = \"10m\"\n"
        );
        let file = File::new(stage, &slow);
        let worker = file.worker("east-1", "east");
        let both = || ["orders", "bills"].map(|job| leadership(&worker, job));
        until("both are led", || both().iter().all(Option::is_some));
        let before = both();
        file.write("");
        worker.signal(Signal::SIGHUP);
        until("it leaves", || status(&worker)["jobs"]["bills"]["role"] == "stepping-down");
        Self { file, worker, slow, may_end, before }
    }
}

#[test]
fn a_job_that_is_configured_again_while_it_leaves_is_joined_again() {
    let stage = Stage::new("/reload-again");
    let leaving = Leaving::new(&stage);
    let Leaving { file, worker, slow, may_end, before } = &leaving;
    // Together with a key that needs a restart it stays away.
    file.write(&(slow.clone() + "[zookeeper]\ndriver = \"zookeeper-async\"\n"));
    worker.signal(Signal::SIGHUP);
    let both = pairs(&[("zookeeper.driver", "worker-restart"), ("job.bills", "worker-restart")]);
    until("both need a restart", || effects(&reload(worker)) == both);
    // What applies at once is not held up.
    file.write(&(slow.clone() + "[job.orders.restart]\nmax = 7\n"));
    worker.signal(Signal::SIGHUP);
    until("it has read it", || value(worker, "job.orders.restart.max") == "7");
    fs::write(may_end, "").expect("a file");
    // With a newer token than it had.
    let token = |of: Option<[Value; 4]>| of.and_then(|[_, token, ..]| token.as_u64());
    until("it is led again", || token(leadership(worker, "bills")) > token(before[1].clone()));
    runs_on(worker, "orders", before[0].as_ref());
}

#[test]
fn a_worker_that_is_stopped_meanwhile_leaves_nothing_of_the_job() {
    let stage = Stage::new("/reload-stopped");
    let Leaving { mut worker, may_end, before, .. } = Leaving::new(&stage);
    let jobs = before.iter().flatten().filter_map(|[_, _, pid, _]| pid.as_i64()?.try_into().ok());
    let all: Vec<_> = jobs.map(Pid::from_raw).chain(worker.children()).collect();
    assert_eq!(all.len(), 4, "two programs with a guard each");
    worker.signal(Signal::SIGTERM);
    fs::write(&may_end, "").expect("a file");
    assert_eq!(worker.ended().code(), Some(0));
    until("nothing is left", || !all.iter().any(|pid| is_alive(*pid)));
    let list = stage.json(&["list", "--job", "bills"]);
    assert_eq!(list["slots"][0]["leader"], Value::Null, "{list}");
}

#[test]
fn an_upgrade_waits_for_a_removed_job() {
    let stage = Stage::new("/reload-upgraded");
    let Leaving { file, worker, may_end, before, .. } = Leaving::new(&stage);
    let upgrade = || Outcome::of(file.command("east-1", "east").arg("upgrade"));
    upgrade().assert(75, &["job bills: this member leaves its election"]);
    fs::write(&may_end, "").expect("a file");
    until("it has left", || has_left(&worker, "bills", 1));
    // A machine with much work may refuse the first one.
    until("it is upgraded", || upgrade().code == Some(0));
    runs_on(&worker, "orders", before[0].as_ref());
    assert!(has_left(&worker, "bills", 1), "{}", status(&worker));
}

#[test]
fn a_ready_standby_runs_on_when_its_section_changes_and_a_new_one_is_started() {
    let stage = Stage::new("/reload-standby");
    let standby = |stop_timeout: &str| {
        format!(
            "standby = {{ command = [\"sleep\", \"1000\"], stop_timeout = \"{stop_timeout}\", ready = {{ after = \"0s\" }} }}\n"
        )
    };
    let file = File::new(&stage, &(job("bills") + &standby("1s")));
    let east = file.worker("east-1", "east");
    until("the first leads both", || ["orders", "bills"].iter().all(|job| leadership(&east, job).is_some()));
    let west = file.worker("west-1", "west");
    let ready = |job: &str| {
        let standby = status(&west)["jobs"][job]["standby"].clone();
        (standby["state"] == "running").then(|| standby["pid"].clone())
    };
    until("its standby is ready", || ready("bills").is_some());
    let before = ready("bills");
    file.write(&(job("bills") + &standby("2s") + "[job.orders]\n" + &standby("1s")));
    west.signal(Signal::SIGHUP);
    until("the new one is ready", || ready("orders").is_some());
    until("the other one has run on", || ready("bills") == before);
    assert_eq!(value(&west, "job.bills.standby.stop_timeout"), "\"2s\"");
    let reloaded = settled(&west);
    assert_eq!(reloaded["waits"], Value::Null);
    assert!(effects(&reloaded).iter().all(|(_, effect)| effect == "applied"), "{reloaded}");
}

#[test]
fn a_stopped_standby_stays_stopped_when_a_reload_adds_a_job_or_its_own_or_its_section() {
    let stage = Stage::new("/reload-standby-stopped");
    let begun = stage.dir.path().join("begun");
    let script = format!("echo $DR_MEMBER >> {}; exec sleep 1000", begun.display());
    let bills = job("bills")
        + &format!(
            "standby = {{ command = [\"/bin/sh\", \"-c\", {script:?}], stop_timeout = \"1s\", ready = {{ after = \"0s\" }} }}\n"
        );
    let times = || {
        let begun = fs::read_to_string(&begun).unwrap_or_default();
        begun.lines().filter(|member| *member == "west-1").count()
    };
    let of_east = stage.dir.path().join("east.toml");
    fs::write(&of_east, &bills).expect("a file");
    let east = Running::start(stage.worker_command("east-1", "east", &[]).arg("--config").arg(&of_east));
    until("the first leads", || leadership(&east, "bills").is_some());
    let file = File::new(&stage, &bills);
    let mut west = file.worker("west-1", "west");
    until("its standby has begun", || times() == 1);
    let of = |verb: &str| stage.operator(&[verb, "--job", "bills", "--standby", "west-1", "--wait"]);
    of("stop").assert(0, &[]);

    file.write(&(bills.clone() + &job("mail")));
    west.signal(Signal::SIGHUP);
    until("the new job is led", || leadership(&west, "mail").is_some());
    file.write(&job("mail"));
    west.signal(Signal::SIGHUP);
    until("it has left", || has_left(&west, "bills", 1));
    file.write(&(bills.clone() + &job("mail")));
    west.signal(Signal::SIGHUP);
    until("it takes part again", || !status(&west)["jobs"]["bills"].is_null());
    assert_eq!(effects(&settled(&west)), pairs(&[("job.bills", "applied")]));
    assert_eq!(times(), 1, "none was started");

    // The next worker has a job without a standby at first.
    west.signal(Signal::SIGTERM);
    assert_eq!(west.ended().code(), Some(0));
    file.write(&job("bills"));
    west = file.worker("west-1", "west");
    until("it takes part", || west.code("/readiness") == 200);
    let standby = || status(&west)["jobs"]["bills"]["standby"].clone();
    assert_eq!(standby(), Value::Null);
    file.write(&bills);
    west.signal(Signal::SIGHUP);
    until("it has a standby", || standby()["state"] == "stopped");
    settled(&west);
    assert!(leadership(&east, "bills").is_some());
    assert_eq!(times(), 1, "none was started");
    of("start").assert(0, &[]);
    until("it has begun again", || times() == 2);
}

#[test]
fn the_last_balanced_job_leaves_no_place_in_the_balancers_queue() {
    let stage = Stage::new("/reload-balanced");
    let file = File::new(&stage, &(job("bills") + "policy = { balance = true }\n"));
    let worker = file.worker("east-1", "east");
    let queue = || {
        let queue = "/reload-balanced/balancing/balancer/queue";
        let children = Stage::with_session(async |session| session.children(queue).await.expect("an answer"));
        children.map_or(0, |children| children.names.len())
    };
    until("both are led", || ["orders", "bills"].iter().all(|job| leadership(&worker, job).is_some()));
    until("it balances", || queue() == 1);
    let before = leadership(&worker, "orders");
    file.write("");
    worker.signal(Signal::SIGHUP);
    until("it has left", || has_left(&worker, "bills", 1));
    until("the queue is empty", || queue() == 0);
    runs_on(&worker, "orders", before.as_ref());
}

#[test]
fn the_program_that_runs_is_executed_whatever_has_become_of_its_file() {
    let stage = Stage::new("/reload-replaced");
    let file = File::new(&stage, "");
    let link = stage.dir.path().join("dr-worker");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dr-worker"), &link).expect("a link");
    let by_link = || {
        let usual = file.command("east-1", "east");
        let mut command = Command::new(&link);
        command.args(usual.get_args());
        command
    };
    let worker = Running::start(&mut by_link());
    until("it leads", || leads(&worker));
    let before = leadership(&worker, "orders");
    let mut upgrade = by_link();
    upgrade.arg("upgrade");
    fs::remove_file(&link).expect("removed");
    file.write(&job("mail"));
    worker.signal(Signal::SIGHUP);
    until("the new one is led", || leadership(&worker, "mail").is_some());
    runs_on(&worker, "orders", before.as_ref());
    // An upgrade still executes what is there.
    let mut usual = file.command("east-1", "east");
    Outcome::of(usual.arg("upgrade")).assert(1, &["dr-worker", "No such file"]);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dr-worker"), &link).expect("a link");
    // A machine with much work may refuse the first one.
    until("it is upgraded", || Outcome::of(&mut upgrade).code == Some(0));
    until("both are led", || leadership(&worker, "mail").is_some());
    runs_on(&worker, "orders", before.as_ref());
}

#[test]
fn beside_an_embedded_server_a_new_job_needs_a_restart() {
    let stage = Stage::new("/reload-dev");
    let file = File::new(&stage, "");
    let mut command = file.command("east-1", "east");
    let worker = Running::start_as(&mut command, &["dev"]);
    until("it leads", || leads(&worker));
    file.write(&job("mail"));
    worker.signal(Signal::SIGHUP);
    until("it is reported", || reload(&worker)["waits"].is_string());
    let reload = reload(&worker);
    assert_eq!(effects(&reload), pairs(&[("job.mail", "worker-restart")]));
    assert!(reload["waits"].as_str().is_some_and(|why| why.contains("embedded server")), "{reload}");
    assert!(leads(&worker));
}
