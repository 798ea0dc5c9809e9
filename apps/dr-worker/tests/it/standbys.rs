//! A job with standbys: its program runs on every member, and is promoted where it leads.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::PathBuf,
    process::Command,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    notify::{listen, names, receiver, webhook},
    support::{
        Outcome, Running,
        stage::{Stage, leads},
        until,
    },
};

/// A program that writes what it is told, and runs on.
pub(crate) fn program(word: &str) -> String {
    let script = format!(
        "echo {word} $$ $DR_ROLE $DR_LEADER >> $JOURNALS/$DR_MEMBER; trap 'exit 0' TERM; while :; do sleep 0.05; done"
    );
    serde_json::json!(["/bin/sh", "-c", script]).to_string()
}

/// A command that writes what it is told.
pub(crate) fn change(word: &str, told: &str) -> String {
    let script = format!("echo {word} {told} >> $JOURNALS/$DR_MEMBER");
    let command = serde_json::json!(["/bin/sh", "-c", script]).to_string();
    format!("{{ kind = \"exec\", command = {command} }}")
}

impl Stage {
    pub(crate) fn standby_worker(&self, id: &str, site: &str, more: &[&str]) -> Running {
        Running::start(&mut self.standby_command(id, site, more))
    }

    pub(crate) fn standby_command(&self, id: &str, site: &str, more: &[&str]) -> Command {
        let env = format!("job.orders.env={{ JOURNALS = \"{}\" }}", self.dir.path().display());
        let command = format!("job.orders.command={}", program("leader"));
        let standby = format!("job.orders.standby.command={}", program("standby"));
        let settings = [&env, &command, &standby, "job.orders.ready.after=0s", "policy.min_tenure=0s"];
        let settings = [&settings[..], &["job.orders.standby.ready.after=0s"], more].concat();
        self.worker_command(id, site, &settings)
    }

    pub(crate) fn written(&self, id: &str) -> Vec<String> {
        let path: PathBuf = self.dir.path().join(id);
        fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// It is running before it has written anything.
    pub(crate) fn standby_pid(&self, id: &str) -> Pid {
        until("the standby has begun", || self.last_pid(id, "standby").is_some());
        self.last_pid(id, "standby").expect("it has begun")
    }

    pub(crate) fn last_pid(&self, id: &str, word: &str) -> Option<Pid> {
        let lines = self.written(id);
        let line = lines.iter().rfind(|line| line.starts_with(word))?;
        line.split(' ').nth(1)?.parse().ok().map(Pid::from_raw)
    }
}

pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn standby_of(worker: &Running) -> Value {
    let (_, body) = worker.http("GET", "/status");
    let status: Value = serde_json::from_str(&body).unwrap_or_default();
    status["jobs"]["orders"]["standby"].clone()
}

#[test]
fn a_running_standby_is_promoted_demoted_and_told_who_leads() {
    let stage = Stage::new("/standbys-exec");
    let promote = format!(
        "job.orders.standby.promote={}",
        change("promote", "$DR_ROLE $DR_TERM $DR_FENCING_TOKEN $(cat $DR_LEADERSHIP_FILE)")
    );
    let demote = format!("job.orders.standby.demote={}", change("demote", "$DR_TERM"));
    // The first try of each member fails: it is told again.
    let tried = "$JOURNALS/$DR_MEMBER.tried";
    let tried = format!("$([ -e {tried} ] || {{ touch {tried}; kill $$; }})");
    let told = format!("{tried}$DR_LEADER $DR_LEADER_SITE $DR_TERM");
    let follow = format!("job.orders.standby.follow={}", change("follow", &told));
    let settings = [promote.as_str(), &demote, &follow];
    let mut east = stage.standby_worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    assert_eq!(standby_of(&east), Value::Null, "the leader has none");
    let mut west = stage.standby_worker("west-1", "west", &settings);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    let standby = stage.standby_pid("west-1");
    assert_eq!(standby_of(&west)["pid"], standby.as_raw());
    until("/standby", || west.code("/standby") == 200);
    assert_eq!(east.code("/standby"), 503);
    let (_, metrics) = west.http("GET", "/metrics");
    let running =
        metrics.lines().find(|line| line.starts_with("dr_standby_state") && line.contains("running"));
    assert!(running.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
    until("it is told who leads, at its start or later", || {
        let knows = |line: &String| line.ends_with("standby east-1") || line == "follow east-1 east 1";
        stage.written("west-1").iter().any(knows)
    });

    let upgraded = |id: &str, site: &str| {
        Outcome::of(stage.standby_command(id, site, &settings).arg("upgrade")).assert(0, &[]);
    };
    upgraded("west-1", "west");
    until("/standby", || west.code("/standby") == 200);
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("the second leads", || leads(&west));
    let lines = stage.written("west-1");
    assert!(!lines.iter().any(|line| line.starts_with("leader")), "the same process: {lines:?}");
    let promoted = lines.iter().find(|line| line.starts_with("promote leader 2 ")).expect("promoted");
    let facts: Value =
        serde_json::from_str(&promoted[promoted.find('{').expect("the file")..]).expect("JSON");
    assert_eq!((&facts["role"], &facts["term"]), (&"leader".into(), &2.into()), "{promoted}");
    assert!(promoted.contains(&format!(" {} ", facts["token"])), "{promoted}");
    assert!(is_alive(standby));
    // The former leader's program is the standby now.
    assert!(stage.written("east-1").iter().any(|line| line == "demote 1"), "{:?}", stage.written("east-1"));
    until("it follows", || stage.written("east-1").iter().any(|line| line == "follow west-1 west 2"));
    let file = stage.dir.path().join("state/east-1.orders.leadership.json");
    let facts: Value = serde_json::from_slice(&fs::read(file).expect("the file")).expect("JSON");
    let told = (&facts["role"], &facts["leader"], &facts["token"]);
    assert_eq!(told, (&"standby".into(), &"west-1".into(), &Value::Null));
    let (_, body) = east.http("GET", "/status");
    let status: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(status["jobs"]["orders"]["process"]["state"], "stopped", "it is the standby's now");
    // What leads has what it was told, also after an upgrade.
    let told = || fs::read_to_string(stage.dir.path().join("state/west-1.orders.leadership.json"));
    let before = told().expect("the file");
    upgraded("west-1", "west");
    until("it leads on", || leads(&west));
    assert_eq!(told().expect("the file"), before);
    let former = standby_of(&east)["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    let former = former.expect("it runs");
    // It has nothing new to follow, and may be promoted again.
    upgraded("east-1", "east");
    until("/standby", || east.code("/standby") == 200);

    // What was promoted ends with its worker.
    west.signal(Signal::SIGKILL);
    west.ended();
    until("its end", || !is_alive(standby));
    until("the first leads again", || leads(&east));
    assert!(is_alive(former), "the same process again");
    let followed = stage.written("east-1").iter().filter(|line| *line == "follow west-1 west 2").count();
    assert_eq!(followed, 1, "once, also through the upgrade");
    kill(former, Signal::SIGKILL).expect("it lives");
    until("it is restarted as the leader", || {
        stage.last_pid("east-1", "leader").is_some_and(|pid| pid != former && is_alive(pid))
    });
    let last = stage.last_pid("east-1", "leader").expect("it runs");
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    assert!(!is_alive(last));
}

/// Where a program that has written it reports that it is ready, connected.
fn word_of(stage: &Stage, id: &str) -> UnixDatagram {
    let socket = UnixDatagram::unbound().expect("a socket");
    // A process that has written its own may have ended.
    until("it listens", || {
        let line = stage.written(id).into_iter().rfind(|line| line.starts_with("socket "));
        line.is_some_and(|line| {
            let name = line.trim_start_matches("socket @");
            let address = SocketAddr::from_abstract_name(name).expect("an address");
            socket.connect_addr(&address).is_ok()
        })
    });
    socket
}

fn says_ready(stage: &Stage, id: &str) {
    until("it hears", || word_of(stage, id).send(b"READY=1").is_ok());
}

#[test]
fn a_promoted_standby_is_ready_by_its_own_word_after_an_upgrade_too() {
    let stage = Stage::new("/standbys-notify");
    let journal = stage.dir.path().display();
    let script = format!(
        "echo socket $NOTIFY_SOCKET >> {journal}/$DR_MEMBER; trap 'echo promoted >> {journal}/$DR_MEMBER' USR1; \
         trap 'exit 0' TERM; while :; do sleep 0.05; done"
    );
    let program = serde_json::json!(["/bin/sh", "-c", script]);
    // Until the test has said that it is a standby.
    let wait =
        format!("echo demoting >> {journal}/$DR_MEMBER; until [ -e {journal}/said ]; do sleep 0.05; done");
    let command = serde_json::json!(["/bin/sh", "-c", wait]);
    let demote = format!("job.orders.standby.demote={{ kind = \"exec\", command = {command} }}");
    let (leader, standby) =
        (format!("job.orders.command={program}"), format!("job.orders.standby.command={program}"));
    let settings = [
        leader.as_str(),
        &standby,
        "job.orders.ready.kind=notify",
        "job.orders.standby.promote={ kind = \"signal\", signal = \"SIGUSR1\" }",
        &demote,
        "job.orders.standby.ready.kind=notify",
        "policy.min_tenure=0s",
    ];
    let worker = |id: &str, site: &str| Running::start(&mut stage.worker_command(id, site, &settings));
    let east = worker("east-1", "east");
    // It may begin as a standby: what it said in that role is forgotten then.
    until("the first leads", || {
        says_ready(&stage, "east-1");
        leads(&east)
    });
    let west = worker("west-1", "west");
    let word = word_of(&stage, "west-1");
    word.send(b"READY=1").expect("it listens");
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    Outcome::of(stage.worker_command("west-1", "west", &settings).arg("upgrade")).assert(0, &[]);
    // Whenever it is sent: the socket is the same.
    word.send(b"READY=1").expect("it listens");
    until("/standby", || west.code("/standby") == 200);
    // Of its role as a standby: it is no word about the next one.
    word.send(b"READY=1").expect("it listens");
    stage.operator(&["switchover", "--to-site", "west"]).assert(0, &[]);
    until("it is demoted", || stage.written("east-1").iter().any(|line| line == "demoting"));
    says_ready(&stage, "east-1");
    fs::write(stage.dir.path().join("said"), "").expect("written");
    until("it is a ready standby", || standby_of(&east)["state"] == "running");
    until("it is promoted", || stage.written("west-1").iter().any(|line| line == "promoted"));
    assert!(!leads(&west), "it has not said that it is ready");
    word.send(b"READY=1").expect("it listens");
    until("the second leads", || leads(&west));
    let sockets = stage.written("west-1").iter().filter(|line| line.starts_with("socket ")).count();
    assert_eq!(sockets, 1, "the same process");
}

#[test]
fn promote_by_restart_never_has_two_programs_and_a_required_standby_decides_who_is_elected() {
    let stage = Stage::new("/standbys-restart");
    let ready = format!(
        "job.orders.standby.ready={{ kind = \"exec\", command = [\"test\", \"-e\", \"{}/ready\"], interval = \"50ms\" }}",
        stage.dir.path().display()
    );
    let settings = ["job.orders.standby.required=true", "job.orders.standby.stop_timeout=2s", ready.as_str()];
    let mut east = stage.standby_worker("east-1", "east", &settings);
    until("its standby runs", || stage.last_pid("east-1", "standby").is_some());
    until("it is not fit", || stage.operator(&["list"]).stdout.contains("the standby is starting"));
    assert!(!leads(&east));
    fs::write(stage.dir.path().join("ready"), "").expect("a file");
    until("it leads", || leads(&east));
    until("its program has begun", || stage.last_pid("east-1", "leader").is_some());
    let (standby, leader) = (stage.last_pid("east-1", "standby"), stage.last_pid("east-1", "leader"));
    assert!(!is_alive(standby.expect("it ran")) && is_alive(leader.expect("it runs")));
    let west = stage.standby_worker("west-1", "west", &settings);
    until("it is ready", || west.code("/standby") == 200);
    // Both run through an upgrade of their workers.
    let standby = stage.last_pid("west-1", "standby");
    for (worker, id, site) in [(&west, "west-1", "west"), (&east, "east-1", "east")] {
        Outcome::of(stage.standby_command(id, site, &settings).arg("upgrade")).assert(0, &[]);
        until("it goes on", || leads(worker) || worker.code("/standby") == 200);
    }
    assert_eq!(standby, stage.last_pid("west-1", "standby"));
    assert!(is_alive(standby.expect("it runs")) && is_alive(leader.expect("it runs")));
    // One that is not ready does not delay it, and is started again.
    fs::remove_file(stage.dir.path().join("ready")).expect("it exists");
    stage.operator(&["restart", "--standby", "west-1"]).assert(0, &[]);
    until("it is started again", || stage.last_pid("west-1", "standby") != standby);
    let standby = stage.last_pid("west-1", "standby");
    Outcome::of(stage.standby_command("west-1", "west", &settings).arg("upgrade")).assert(0, &[]);
    until("it is started again", || stage.last_pid("west-1", "standby") != standby);
    assert!(!is_alive(standby.expect("it ran")));
    let outcome = || stage.json(&["list"])["requests"][0]["outcome"].clone();
    until("the restart is answered", || outcome()["state"] == "failed");
    assert!(outcome()["reason"].as_str().is_some_and(|why| why.contains("upgraded")), "{}", outcome());
    fs::write(stage.dir.path().join("ready"), "").expect("a file");
    until("it is ready", || west.code("/standby") == 200);
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("it leads", || leads(&west));
    until("the former leader is a standby", || standby_of(&east)["state"] == "running");
    assert!(!is_alive(leader.expect("it ran")));
    let standby = stage.standby_pid("east-1");
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    assert!(!is_alive(standby));
}

/// Another job of the worker is being taken over.
#[test]
fn an_upgrade_that_can_not_begin_leaves_a_standby_alone_that_is_not_ready() {
    let stage = Stage::new("/standbys-no-upgrade");
    let east = stage.standby_worker("east-1", "east", &[]);
    until("the first leads", || leads(&east));
    let settings = [
        "job.orders.standby.ready={ kind = \"exec\", command = [\"false\"], interval = \"50ms\" }",
        "job.bills.command=[\"sleep\", \"600\"]",
        "job.bills.ready={ kind = \"exec\", command = [\"false\"] }",
        "policy.takeover_timeout=5m",
    ];
    let west = stage.standby_worker("west-1", "west", &settings);
    until("it takes over the other job", || {
        let status: Value = serde_json::from_str(&west.http("GET", "/status").1).unwrap_or_default();
        status["jobs"]["bills"]["process"]["state"] == "starting"
    });
    let standby = stage.standby_pid("west-1");
    let upgrade = Outcome::of(stage.standby_command("west-1", "west", &settings).arg("upgrade"));
    upgrade.assert(75, &["job bills: "]);
    assert!(is_alive(standby) && stage.standby_pid("west-1") == standby);
}

/// It ignores signals, and has a child that is in no group of it.
#[test]
fn a_deaf_standby_is_restarted_by_its_liveness_and_is_gone_before_the_leader_begins() {
    let stage = Stage::new("/standbys-deaf");
    let dead = stage.dir.path().join("dead");
    let script = "echo standby $$ >> $JOURNALS/$DR_MEMBER; trap '' TERM; \
                  setsid sh -c 'echo stray $$ >> $JOURNALS/$DR_MEMBER; exec sleep 600' & \
                  while :; do sleep 0.05; done";
    let command = format!("job.orders.standby.command={}", serde_json::json!(["/bin/sh", "-c", script]));
    let liveness = format!(
        "job.orders.standby.liveness={{ kind = \"exec\", command = [\"test\", \"!\", \"-e\", \"{}\"], \
         interval = \"1s\", timeout = \"1s\" }}",
        dead.display()
    );
    let settings = [command.as_str(), &liveness, "job.orders.standby.stop_timeout=500ms"];
    let east = stage.standby_worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let west = stage.standby_worker("west-1", "west", &settings);
    until("its stray has begun", || stage.last_pid("west-1", "stray").is_some());
    let pids = || ["standby", "stray"].map(|word| stage.last_pid("west-1", word).expect("it has begun"));
    let before = pids();

    fs::write(&dead, "").expect("a file");
    until("a new standby", || pids().iter().zip(before).all(|(now, before)| *now != before));
    assert!(!before.into_iter().any(is_alive), "two at once");
    fs::remove_file(&dead).expect("it exists");
    assert!(leads(&east), "leadership stays");
    until("the standby is ready", || standby_of(&west)["state"] == "running");

    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    // It runs before it has written anything.
    until("the leader's program", || stage.last_pid("west-1", "leader").is_some_and(is_alive));
    assert!(!pids().into_iter().any(is_alive), "a standby beside the leader");
}

/// By its program, and by its member; a restart is neither.
#[test]
fn the_loss_of_the_last_ready_standby_of_a_site_is_notified_of() {
    let stage = Stage::new("/standbys-lost");
    let (listener, port) = listen();
    let got = receiver(listener, &[204]);
    let broken = stage.dir.path().join("broken");
    let ready = format!(
        "job.orders.standby.ready={{ kind = \"exec\", command = [\"test\", \"!\", \"-e\", \"{}\"], interval = \"50ms\" }}",
        broken.display()
    );
    let url = webhook("ops", port, &[r#"events=["standbys-lost", "standbys-returned", "leader-changed"]"#]);
    let mut settings = vec![ready.as_str()];
    settings.extend(url.iter().map(String::as_str));
    let east = stage.standby_worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let mut west = stage.standby_worker("west-1", "west", &settings);
    let published = || stage.json(&["list"])["members"][1]["attributes"]["dr.standby"].clone();
    until("its state is published", || published() == "ready");
    let standby = stage.standby_pid("west-1");

    stage.operator(&["restart", "--standby", "west-1", "--wait"]).assert(0, &[]);
    fs::write(&broken, "").expect("a file");
    kill(stage.standby_pid("west-1"), Signal::SIGKILL).expect("it lives");
    until("its loss is notified of", || names(&got) == ["leader-changed", "standbys-lost"]);
    assert!(published().as_str().is_some_and(|text| text.starts_with("not-ready ")), "{}", published());
    fs::remove_file(&broken).expect("it exists");
    until("its return is notified of", || names(&got).last().is_some_and(|name| name == "standbys-returned"));
    let body = |at: usize| got.lock().expect("no panic")[at].1.clone();
    let (lost, returned) = (body(1), body(2));
    let about = |event: &Value| (event["site"].clone(), event["member"].clone(), event["since_ms"].clone());
    assert_eq!(about(&lost), ("west".into(), "west-1".into(), about(&returned).2), "{lost} {returned}");
    assert_eq!(lost["ready_elsewhere"], 0);
    let id = lost["id"].as_str().expect("an id");
    assert!(id.starts_with("/standbys-lost/orders/standbys-lost/west/west-1/"), "{id}");

    west.signal(Signal::SIGKILL);
    west.ended();
    until("the loss of the member is notified of", || names(&got).len() == 4);
    let text = body(3)["text"].as_str().expect("a text").to_owned();
    assert!(text.starts_with("the last ready standby of site west is gone: that of west-1 at "), "{text}");
    assert!(leads(&east) && !is_alive(standby));
}

#[test]
fn drills_kill_a_standby_and_have_one_promoted() {
    let stage = Stage::new("/standbys-drills");
    let promote = format!("job.orders.standby.promote={}", change("promote", "$DR_TERM"));
    let settings = [
        promote.as_str(),
        r#"drill.allow=["rehearse", "kill-standby", "kill-job"]"#,
        "job.orders.restart.max=0",
    ];
    let east = stage.standby_worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let west = stage.standby_worker("west-1", "west", &settings);
    let published = || stage.json(&["list"])["members"][1]["attributes"]["dr.standby"].clone();
    until("the standby is ready", || published() == "ready");
    let drill = |more: &[&str]| {
        stage.operator(
            &[&["--set", "policy.min_tenure=0s", "--output", "json", "drill", "--yes"], more].concat(),
        )
    };
    drill(&[])
        .assert(75, &["west-1 refuses: a standby of the job runs here: set job.orders.rehearsal.command"]);

    let (leader, before) = (stage.last_pid("east-1", "leader"), stage.standby_pid("west-1"));
    let killed = drill(&["--mode", "kill-standby", "--to-site", "west"]);
    killed.assert(0, &[]);
    let report: Value = serde_json::from_str(&killed.stdout).expect("a report");
    let sentence = report["sentence"].as_str().expect("a sentence");
    assert!(sentence.starts_with("the standby of west-1 was killed, and ready again after "), "{sentence}");
    assert!(sentence.ends_with("; east-1 of site east leads on"), "{sentence}");
    assert!(
        report["phases"]["takeover_ms"].as_u64().is_some_and(|took| took >= 1000),
        "after its backoff: {report:#}"
    );
    assert_eq!((&report["to"]["member"], &report["moves"]), (&"west-1".into(), &serde_json::json!([])));
    until("another has begun", || stage.standby_pid("west-1") != before);
    let after = stage.standby_pid("west-1");
    assert!(after != before && !is_alive(before) && is_alive(after));
    assert!(leads(&east) && stage.last_pid("east-1", "leader") == leader);

    until("its record has that too", || published() == "ready");
    let killed = drill(&["--mode", "kill-job", "--to-site", "west"]);
    killed.assert(0, &[]);
    let report: Value = serde_json::from_str(&killed.stdout).expect("a report");
    let check =
        report["checks"].as_array().and_then(|all| all.iter().find(|check| check["name"] == "standbys"));
    assert_eq!(check.map(|check| &check["sentence"]), Some(&"the standby of west-1 is ready".into()));
    assert_eq!(report["moves"][0]["to"]["member"], "west-1", "{report:#}");
    assert!(report["outage_ms"].as_u64().is_some_and(|outage| outage > 0), "{report:#}");
    assert!(leads(&west) && is_alive(after), "the same process leads");
    assert!(stage.written("west-1").iter().any(|line| line == "promote 2"), "{:?}", stage.written("west-1"));
}

/// A process that is ended with the test, in panic too.
struct Ends(Pid);

impl Drop for Ends {
    fn drop(&mut self) {
        if is_alive(self.0) {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

#[test]
fn a_standby_outlives_its_worker_if_it_is_to_and_the_next_one_continues_and_promotes_it() {
    let stage = Stage::new("/standbys-outlive");
    let promote = format!("job.orders.standby.promote={}", change("promote", "$DR_TERM"));
    let follow = format!("job.orders.standby.follow={}", change("follow", "$DR_LEADER $DR_TERM"));
    // Longer than anything is waited for here.
    let timeout = "zookeeper.session_timeout=10m";
    let settings = [promote.as_str(), &follow, "job.orders.standby.outlives=true", timeout];
    let mut east = stage.standby_worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let mut west = stage.standby_worker("west-1", "west", &settings);
    let told = || stage.written("west-1").iter().filter(|line| *line == "follow east-1 1").count();
    until("the standby is ready", || west.code("/standby") == 200);
    let standby = stage.standby_pid("west-1");
    let _end = Ends(standby);
    let before = told();

    let file = stage.dir.path().join("state/west-1.orders.leadership.json");
    let knows = || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"leader\":\"east-1\""));
    until("it knows who leads", knows);
    let known = fs::read(&file).expect("the file");
    west.signal(Signal::SIGKILL);
    west.ended();
    west = stage.standby_worker("west-1", "west", &settings);
    until("the standby is ready", || west.code("/standby") == 200);
    assert_eq!(standby_of(&west)["pid"], standby.as_raw(), "the same process");
    assert!(is_alive(standby));
    until("it is told again, which may have been interrupted", || told() > before);
    assert_eq!(fs::read(&file).expect("the file"), known, "it has never known less");

    // It crosses an upgrade like any other, under a guard that is no child of its worker.
    Outcome::of(stage.standby_command("west-1", "west", &settings).arg("upgrade")).assert(0, &[]);
    until("the standby is ready", || west.code("/standby") == 200);
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("the second leads", || leads(&west));
    assert!(stage.written("west-1").iter().any(|line| line == "promote 2"), "{:?}", stage.written("west-1"));
    assert!(is_alive(standby), "the same process leads");
    west.signal(Signal::SIGKILL);
    west.ended();
    until("what was promoted ends with its worker", || !is_alive(standby));
    until("the first leads again: the guard has closed the session", || leads(&east));

    // A worker that is stopped ends its standby, also one that it has only just found.
    let mut west = stage.standby_worker("west-1", "west", &settings);
    until("the standby is ready", || west.code("/standby") == 200);
    let standby = stage.standby_pid("west-1");
    let _end = Ends(standby);
    west.signal(Signal::SIGKILL);
    west.ended();
    let unreachable = [&settings[..], &["zookeeper.connect=127.0.0.1:1"]].concat();
    let mut west = stage.standby_worker("west-1", "west", &unreachable);
    assert!(is_alive(standby));
    west.signal(Signal::SIGTERM);
    assert_eq!(west.ended().code(), Some(0));
    assert!(!is_alive(standby));
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
}

#[test]
fn a_standby_that_is_not_to_outlive_its_worker_any_more_is_ended_by_the_next_one() {
    let stage = Stage::new("/standbys-outlive-not");
    let east = stage.standby_worker("east-1", "east", &[]);
    until("the first leads", || leads(&east));
    let mut west = stage.standby_worker("west-1", "west", &["job.orders.standby.outlives=true"]);
    until("the standby is ready", || west.code("/standby") == 200);
    let standby = stage.standby_pid("west-1");
    let _end = Ends(standby);
    west.signal(Signal::SIGKILL);
    west.ended();
    let mut west = stage.standby_worker("west-1", "west", &[]);
    until("another standby", || stage.last_pid("west-1", "standby").is_some_and(|pid| pid != standby));
    assert!(!is_alive(standby), "two at once");
    let standby = stage.standby_pid("west-1");
    west.signal(Signal::SIGKILL);
    west.ended();
    until("it ends with its worker", || !is_alive(standby));
}
