//! `migrate`: workers and jobs from one ensemble to another, with the jobs running until the last step.

use std::{fs, process::Command, time::Duration};

use serde_json::{Value, json};

use crate::{
    standbys::standby_of,
    support::{Background, Outcome, Running, dr_worker, own_server::OwnServer, set, stage::leads, until},
};
use nix::sys::signal::Signal;
use zk_session::{CreateMode, Session};

/// Notes each begin and end, with the token.
const JOB: &str = "job.orders.command=[\"/bin/sh\", \"-c\", \"trap 'echo end $DR_FENCING_TOKEN >> led; exit' TERM; \
                   echo begin $DR_FENCING_TOKEN >> led; while :; do sleep 0.1; done\"]";

/// The setting of workers and commands there.
const ELSEWHERE: &str = "zookeeper.root=/elsewhere";

struct Move {
    old: OwnServer,
    new: OwnServer,
    /// Of all workers and commands.
    settings: &'static [&'static str],
}

impl Move {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(settings: &'static [&'static str]) -> Self {
        Self { old: OwnServer::new(), new: OwnServer::new(), settings }
    }

    fn command(&self, ensemble: &OwnServer, settings: &[&str]) -> Command {
        let dir = self.old.dir.path().display();
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={}", ensemble.server().connect_string()),
                "zookeeper.tick_time=500ms",
                "zookeeper.session_timeout=6s",
                "zookeeper.connect_timeout=30s",
                "policy.sites=[\"east\", \"west\"]",
                &format!("node.state_dir={dir}/state"),
                &format!("job.orders.working_dir={dir}"),
                JOB,
                "job.orders.stop_timeout=1s",
            ],
        );
        set(&mut command, self.settings);
        set(&mut command, settings);
        command
    }

    fn worker(&self, ensemble: &OwnServer, id: &str, site: &str) -> Running {
        let settings = [format!("node.id={id}"), format!("node.site={site}")];
        Running::start(&mut self.command(ensemble, &settings.each_ref().map(String::as_str)))
    }

    fn says(&self, ensemble: &OwnServer, verb: &[&str]) -> Outcome {
        Outcome::of(self.command(ensemble, &["node.site=east"]).args(verb))
    }

    fn list(&self, ensemble: &OwnServer) -> Value {
        let outcome = self.says(ensemble, &["--output", "json", "list", "--job", "orders"]);
        outcome.assert(0, &[]);
        one(&outcome)
    }

    /// Whether the election of this job is closed there.
    fn is_closed(&self, ensemble: &OwnServer) -> bool {
        self.list(ensemble)["closed"].is_string()
    }

    fn migrate(&self) -> Outcome {
        Outcome::of(&mut self.migration())
    }

    fn migration(&self) -> Command {
        let mut command = self.command(&self.old, &["node.site=east"]);
        let to = self.new.server().connect_string();
        command.args(["--output", "json", "migrate", "--to", &to, "--yes"]);
        command
    }

    /// To [another root](ELSEWHERE) of the same ensemble.
    fn migration_elsewhere(&self) -> Command {
        let mut command = self.command(&self.old, &["node.site=east"]);
        let to = self.old.server().connect_string();
        command.args(["--output", "json", "migrate", "--to", &to, "--root", "/elsewhere", "--yes"]);
        command
    }

    fn migrate_with(&self, options: &[&str]) -> Outcome {
        Outcome::of(self.migration().args(options))
    }

    /// Moves this worker, which does not lead, once the elections are prepared.
    fn moves(&self, mut worker: Running, id: &str, site: &str) -> Running {
        self.migrate().assert(75, &["prepared", "orders"]);
        stop(&mut worker);
        drop(worker);
        let moved = self.worker(&self.new, id, site);
        until("it is in the new ensemble", || self.list(&self.new)["members"][0]["member"] == id);
        moved
    }

    /// Writes the record of this former leader of the old ensemble, which was not fenced.
    fn leaves_behind(&self, member: &str) {
        let left = json!({ "member": member, "site": "west", "term": 1, "fencing_token": 7, "since_ms": 1 });
        let data = json!({ "v": 1, "leaderships": [left] }).to_string();
        self.old.runtime.block_on(async {
            let session = Session::builder(self.old.server().connect_string())
                .connect_timeout(Duration::from_secs(30))
                .connect()
                .await
                .expect("a session");
            let path = "/dr/orders/breadcrumbs";
            let written = match session.exists(path).await.expect("an answer") {
                Some(_) => session.set(path, data, None).await.map(drop),
                None => session.create(path, data, CreateMode::Persistent).await.map(drop),
            };
            written.expect("a record");
            session.close(Duration::from_secs(5)).await;
        });
    }

    /// What the job has noted: whether it is a begin, and the token.
    fn led(&self) -> Vec<(bool, u64)> {
        let text = fs::read_to_string(self.old.dir.path().join("led")).unwrap_or_default();
        let line = |line: &str| {
            let (what, token) = line.split_once(' ').expect("two words");
            (what == "begin", token.parse().expect("a number"))
        };
        text.lines().map(line).collect()
    }
}

/// The object on the only line.
fn one(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.stdout))
}

fn stop(worker: &mut Running) {
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().success());
}

#[test]
fn a_job_moves_to_another_ensemble_without_two_leaders_and_above_its_tokens() {
    let mover = Move::new();
    let (old, new) = (&mover.old, &mover.new);
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = mover.worker(old, "west-1", "west");
    until("west-1 is standby", || west.code("/standby") == 200);
    // Higher terms and tokens than those of a new ensemble, and orders that move too.
    mover.says(old, &["raise-token", "--above", "5000000000000"]).assert(0, &[]);
    mover.says(old, &["prefer", "east"]).assert(0, &[]);
    until("it leads with a higher token", || {
        mover.led().last().is_some_and(|(_, token)| *token > 5_000_000_000_000)
    });
    until("east-1 leads", || leads(&east));
    let connect = old.server().connect_string();
    mover.says(old, &["migrate", "--to", &connect, "--yes"]).assert(64, &["that is this ensemble"]);

    let west = mover.moves(west, "west-1", "west");
    // It is alone there, and does not lead.
    assert!(leads(&east) && !leads(&west), "{}", mover.list(new));
    let term = mover.list(old)["term"].as_u64().expect("a term");
    let moving = Background::of(&mut mover.migration());
    until("the old ensemble is closed", || mover.is_closed(old));
    assert!(leads(&east) && !leads(&west), "the leader leads until its worker stops");
    stop(&mut east);
    let moved = moving.outcome();
    moved.assert(0, &["restart the worker of east-1 there now: orders"]);
    let shown = one(&moved);
    let leader = &shown["leaders"][0];
    assert_eq!(
        (&leader["leader"], &shown["vacant"], &shown["left"]),
        (&json!("west-1"), &json!([]), &json!([]))
    );
    assert!(leader["term"].as_u64() > Some(term), "{shown} {term}");
    until("west-1 leads", || leads(&west));
    let led = mover.led();
    assert!(led.is_sorted_by_key(|(_, token)| *token), "{led:?}");
    let is_alternating = led.iter().enumerate().all(|(at, (begins, _))| *begins == (at % 2 == 0));
    assert!(is_alternating, "each leadership begins after the end of the one before: {led:?}");

    let orders = &mover.list(new);
    assert_eq!((&orders["closed"], &orders["preferred_site"]), (&Value::Null, &json!("east")), "{orders}");
    // Again it changes nothing, also if a worker has returned to the old ensemble: no member leads there.
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 is in the old ensemble", || mover.list(old)["members"][0]["member"] == "east-1");
    let again = mover.migrate();
    again.assert(0, &[]);
    assert_eq!(one(&again)["left"], json!(["east-1"]));
    let closed = mover.list(old);
    assert_eq!(closed["members"][0]["role"], "closed", "{closed}");
    assert!(!leads(&east) && leads(&west));
    mover.migrate_with(&["--off"]).assert(75, &["it has moved already"]);
    stop(&mut east);
    let east = mover.worker(new, "east-1", "east");
    until("east-1 takes part in the new ensemble", || east.code("/readiness") == 200);
    mover.says(old, &["forget", "orders", "--yes"]).assert(0, &[]);
}

/// Of three workers one has moved. Orders that are given after the close go along, and the close holds.
#[test]
fn a_job_moves_while_members_stay_behind_and_orders_are_given() {
    let mover = Move::new();
    let (old, new) = (&mover.old, &mover.new);
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let spare = mover.worker(old, "east-2", "east");
    let west = mover.worker(old, "west-1", "west");
    until("both are standby", || spare.code("/standby") == 200 && west.code("/standby") == 200);
    let west = mover.moves(west, "west-1", "west");
    let moving = Background::of(&mut mover.migration());
    until("the old ensemble is closed", || mover.is_closed(old));
    mover.says(old, &["maintenance", "east-2", "--reason", "new disks"]).assert(0, &[]);
    let preferred = mover.says(old, &["prefer", "west"]);
    preferred.assert(0, &[]);
    assert!(preferred.stdout.contains("the election moves to /dr/orders at "), "{}", preferred.stdout);
    assert!(mover.is_closed(old) && leads(&east) && !leads(&west));
    stop(&mut east);
    let moved = moving.outcome();
    moved.assert(0, &[]);
    let shown = one(&moved);
    assert_eq!((&shown["leaders"][0]["leader"], &shown["left"]), (&json!("west-1"), &json!(["east-2"])));
    assert!(!leads(&spare));
    let orders = mover.list(new);
    let (serviced, preferred) = (&orders["maintenance"][0]["member"], &orders["preferred_site"]);
    assert_eq!((serviced, preferred), (&json!("east-2"), &json!("west")), "{orders}");
    let explained = mover.says(old, &["explain", "--job", "orders"]);
    explained.assert(0, &[]);
    assert!(explained.stdout.contains("the election has moved to /dr/orders"), "{}", explained.stdout);
}

/// A job that no member there can lead does not keep another one from moving.
#[test]
fn each_job_moves_by_itself() {
    let mover = Move::new();
    let (old, new) = (&mover.old, &mover.new);
    let both = |id: &str, site: &str| {
        let (id, site) = (format!("node.id={id}"), format!("node.site={site}"));
        let mut command = mover.command(old, &[&id, &site, "job.bills.command=[\"/bin/sleep\", \"600\"]"]);
        Running::start(&mut command)
    };
    let mut east = both("east-1", "east");
    let leads_both = |worker: &Running| {
        ["orders", "bills"].iter().all(|job| worker.code(&format!("/leader?job={job}")) == 200)
    };
    until("east-1 leads both", || leads_both(&east));
    let mut west = both("west-1", "west");
    until("west-1 is standby", || west.code("/standby?job=orders") == 200);
    mover.migrate().assert(75, &["prepared", "bills", "orders"]);
    stop(&mut west);
    let west = mover.worker(new, "west-1", "west");
    until("west-1 is in the new ensemble", || mover.list(new)["members"][0]["member"] == "west-1");
    let moving = Background::of(&mut mover.migration());
    until("the old ensemble is closed", || mover.is_closed(old));
    assert!(leads_both(&east));
    stop(&mut east);
    let moved = moving.outcome();
    moved.assert(
        75,
        &["restart the worker of east-1 there now: orders", "no member there can lead bills yet"],
    );
    assert!(moved.stdout.contains("\"leader\":\"west-1\""), "{}", moved.stdout);
    until("west-1 leads orders", || leads(&west));
    let bills = mover.says(old, &["--output", "json", "list", "--job", "bills"]);
    bills.assert(0, &[]);
    assert_eq!(one(&bills)["closed"], Value::Null);
}

/// Who may still run the job keeps it from the new ensemble, until an operator confirms that it does not.
#[test]
fn a_former_leader_that_was_not_fenced_is_waited_for_and_a_move_can_be_called_off() {
    let mover = Move::new();
    let old = &mover.old;
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = mover.worker(old, "west-1", "west");
    until("west-1 is standby", || west.code("/standby") == 200);
    let west = mover.moves(west, "west-1", "west");
    let briefly = ["--within", "1s"];
    mover.migrate_with(&briefly).assert(75, &["east-1 leads here", "--off"]);
    assert!(mover.is_closed(old) && leads(&east));
    mover.migrate_with(&["--off"]).assert(0, &[]);
    assert!(!mover.is_closed(old) && leads(&east) && !leads(&west));
    mover.leaves_behind("west-9");
    let ack = "dr-worker ack --fenced --job orders";
    mover.migrate().assert(75, &["west-9 may still run the job", ack]);
    assert!(!mover.is_closed(old), "nothing was changed");
    mover.says(old, &["ack", "--fenced", "--job", "orders"]).assert(0, &[]);
    mover.migrate_with(&briefly).assert(75, &["east-1 leads here"]);
    // It is recorded after the close, as by a leader that vanishes.
    mover.leaves_behind("west-9");
    stop(&mut east);
    mover.migrate_with(&briefly).assert(75, &["west-9 may still run the job", ack]);
    assert!(!leads(&west));
    mover.says(old, &["ack", "--fenced", "--job", "orders"]).assert(0, &[]);
    mover.migrate().assert(0, &[]);
    until("west-1 leads", || leads(&west));
}

/// Of two leaders the one that has a candidate there is followed; the other slot is named.
#[test]
fn each_slot_is_reported() {
    let mover = Move::with(&["policy.slots=2"]);
    let (old, new) = (&mover.old, &mover.new);
    let mut first = mover.worker(old, "east-1", "east");
    let mut second = mover.worker(old, "east-2", "east");
    until("both lead", || leads(&first) && leads(&second));
    let west = mover.worker(old, "west-1", "west");
    until("west-1 is standby", || west.code("/standby") == 200);
    let west = mover.moves(west, "west-1", "west");
    let moving = Background::of(&mut mover.migration());
    until("the old ensemble is closed", || mover.is_closed(old));
    stop(&mut first);
    stop(&mut second);
    let moved = moving.outcome();
    moved.assert(0, &["restart the worker of east-1 there now", "restart the worker of east-2 there now"]);
    let shown = one(&moved);
    let leaders = shown["leaders"].as_array().cloned().unwrap_or_default();
    assert_eq!((leaders.len(), &leaders[0]["leader"]), (1, &json!("west-1")), "{shown}");
    assert_eq!(shown["vacant"].as_array().map(Vec::len), Some(1), "{shown}");
    let east = mover.worker(new, "east-1", "east");
    until("both slots have a leader", || leads(&east) && leads(&west));
    let again = mover.migrate();
    again.assert(0, &[]);
    assert_eq!(one(&again)["vacant"], json!([]));
}

#[test]
fn a_job_moves_to_another_root_of_the_same_ensemble() {
    let mover = Move::new();
    let old = &mover.old;
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let mut west = mover.worker(old, "west-1", "west");
    until("west-1 is standby", || west.code("/standby") == 200);
    let push = |seconds: u8| {
        let file = old.dir.path().join("overlay.toml");
        fs::write(&file, format!("stop_timeout = \"{seconds}s\"\n")).expect("a file");
        let file = file.display().to_string();
        mover.says(old, &["config", "push", &file, "--job", "orders", "--yes"]).assert(0, &[]);
    };
    push(2);
    Outcome::of(&mut mover.migration_elsewhere()).assert(75, &["prepared", "orders"]);
    stop(&mut west);
    let west = Running::start(&mut mover.command(old, &["node.id=west-1", "node.site=west", ELSEWHERE]));
    until("west-1 is there", || west.code("/readiness") == 200);
    let moving = Background::of(&mut mover.migration_elsewhere());
    until("the old root is closed", || mover.is_closed(old));
    assert!(leads(&east) && !leads(&west));
    // After the overlay was copied.
    push(3);
    stop(&mut east);
    moving.outcome().assert(0, &[]);
    until("west-1 leads", || leads(&west));
    let pull = ["--output", "json", "config", "pull", "--job", "orders"];
    let overlay = one(&Outcome::of(mover.command(old, &["node.site=east", ELSEWHERE]).args(pull)));
    assert_eq!(overlay["overlay"]["version"], 2, "{overlay}");
    assert_eq!(overlay["overlay"]["text"], "stop_timeout = \"3s\"\n", "{overlay}");
    let led = mover.led();
    assert!(led.is_sorted_by_key(|(_, token)| *token), "{led:?}");
}

#[test]
fn the_order_that_a_standby_is_stopped_moves_along() {
    let mover = Move::with(&[
        "job.orders.standby.command=[\"/bin/sh\", \"-c\", \"echo $DR_MEMBER >> standbys; exec sleep 600\"]",
        "job.orders.standby.ready.after=0s",
    ]);
    let old = &mover.old;
    let begun = || {
        let begun = fs::read_to_string(old.dir.path().join("standbys")).unwrap_or_default();
        begun.lines().filter(|member| *member == "west-1").count()
    };
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let mut west = mover.worker(old, "west-1", "west");
    until("its standby has begun", || begun() == 1);
    mover.says(old, &["stop", "--standby", "west-1", "--wait"]).assert(0, &[]);

    Outcome::of(&mut mover.migration_elsewhere()).assert(75, &["prepared", "orders"]);
    stop(&mut west);
    // That election is closed, and has the order already.
    let west = Running::start(&mut mover.command(old, &["node.id=west-1", "node.site=west", ELSEWHERE]));
    until("west-1 is there", || west.code("/readiness") == 200);
    let moving = Background::of(&mut mover.migration_elsewhere());
    until("the old root is closed", || mover.is_closed(old));
    stop(&mut east);
    moving.outcome().assert(0, &[]);
    until("west-1 leads", || leads(&west));
    assert_eq!(begun(), 1, "none was started before it led");

    let east = Running::start(&mut mover.command(old, &["node.id=east-1", "node.site=east", ELSEWHERE]));
    until("east-1 is standby", || east.code("/standby") == 200);
    let there = |verb: &[&str]| {
        Outcome::of(mover.command(old, &["node.site=east", ELSEWHERE]).args(verb)).assert(0, &[]);
    };
    there(&["switchover", "--to", "east-1", "--wait"]);
    until("west-1 is no leader", || standby_of(&west)["state"] == "stopped");
    assert_eq!(begun(), 1, "none was started after it led");
    there(&["start", "--standby", "west-1", "--wait"]);
    until("its standby has begun again", || begun() == 2);
}

#[test]
fn a_target_in_use_and_a_mode_that_would_not_obey_are_refused() {
    let mover = Move::new();
    let east = mover.worker(&mover.old, "east-1", "east");
    let other = mover.worker(&mover.new, "other-1", "east");
    until("both lead", || leads(&east) && leads(&other));
    mover.migrate().assert(1, &["there is an election", "nothing was changed"]);
    drop(other);
    let elsewhere = mover.new.server().connect_string();
    mover.says(&mover.old, &["pause"]).assert(0, &[]);
    let mut paused = mover.command(&mover.old, &[]);
    paused.args(["migrate", "--to", &elsewhere, "--root", "/elsewhere", "--yes"]);
    Outcome::of(&mut paused).assert(75, &["dr-worker mode auto --job orders"]);
    assert!(leads(&east));
}
