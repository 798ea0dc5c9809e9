//! `evacuate`: jobs move out of a site together and back, also if a worker dies meanwhile.

use serde_json::{Value, json};
use zk_session::CreateMode;

use crate::support::{Outcome, Running, stage::Stage, until};

const JOBS: [&str; 3] = ["app", "db", "proxy"];

/// What depends on what.
const ORDER: [&str; 2] = ["job.app.after=[\"db\"]", "job.proxy.after=[\"app\"]"];

/// A command of an operator whose configuration has the order of the jobs.
fn ordered(stage: &Stage, verb: &[&str]) -> Outcome {
    Outcome::of(stage.command(&ORDER).args(verb))
}

/// A worker with three jobs beside the one that every worker has.
fn worker(stage: &Stage, id: &str, site: &str, more: &[&str]) -> Running {
    let sleep = "[\"/bin/sh\", \"-c\", \"while :; do sleep 1; done\"]";
    let settings = JOBS.map(|job| format!("job.{job}.command={sleep}"));
    let stops = JOBS.map(|job| format!("job.{job}.stop_timeout=1s"));
    let settings: Vec<_> = settings.iter().chain(&stops).map(String::as_str).chain(ORDER).collect();
    let settings = [&settings[..], more].concat();
    stage.worker(id, site, &settings)
}

/// The sites of the READY leaders of all jobs.
fn sites(stage: &Stage) -> Vec<Value> {
    let site = |job: &&str| {
        let list = stage.operator(&["--output", "json", "list", "--job", job]);
        // There is no election yet.
        let Ok(list) = serde_json::from_str::<Value>(&list.stdout) else { return Value::Null };
        let slot = list["slots"][0].clone();
        let is_settled = slot["leader"]["status"] == "READY"
            && slot["leader"]["member"] == slot["decision"]["named"]["member"];
        if is_settled { slot["leader"]["site"].clone() } else { Value::Null }
    };
    ["app", "db", "orders", "proxy"].iter().map(site).collect()
}

fn all(site: &str) -> Vec<Value> {
    vec![json!(site); 4]
}

fn start(root: &'static str) -> (Stage, Running, Running) {
    let stage = Stage::new(root);
    let east = worker(&stage, "east-1", "east", &[]);
    until("east leads", || sites(&stage) == all("east"));
    let west = worker(&stage, "west-1", "west", &[]);
    until("west is standby", || is_standby(&stage));
    (stage, east, west)
}

/// Whether each job has two members.
fn is_standby(stage: &Stage) -> bool {
    ["app", "db", "orders", "proxy"].iter().all(|job| {
        let list = stage.json(&["list", "--job", job]);
        list["members"].as_array().is_some_and(|members| members.len() == 2)
    })
}

#[test]
fn everything_moves_out_of_a_site_and_back() {
    let (stage, _east, west) = start("/evacuation");
    let dry = stage.operator(&["evacuate", "east", "--dry-run"]);
    dry.assert(0, &[]);
    assert!(dry.stdout.contains(": from east-1 to west-1 of site west"), "{}", dry.stdout);
    assert_eq!(sites(&stage), all("east"));
    stage.operator(&["evacuate", "north"]).assert(64, &["site north"]);
    stage.operator(&["evacuate", "east", "--resume"]).assert(75, &["no evacuation"]);

    let moved = ordered(&stage, &["evacuate", "east", "--reason", "power", "--wait", "--timeout", "60s"]);
    moved.assert(0, &["db: west-1 of site west leads"]);
    assert!(moved.stdout.contains("4 of 4 jobs done"), "{}", moved.stdout);
    assert_eq!(sites(&stage), all("west"));
    let (_, plan) = west.http("GET", "/evacuation");
    let plan: Value = serde_json::from_str::<Value>(&plan).expect("JSON")["evacuation"].clone();
    let step = |job: &str| {
        let steps = plan["steps"].as_array().expect("steps");
        steps.iter().find(|step| step["job"] == job).expect("its step").clone()
    };
    assert!(step("db")["longest_ms"].as_u64() > Some(0), "{plan}");
    for (job, other) in [("app", "db"), ("proxy", "app")] {
        let (begun, ended) = (step(job)["begun_ms"].as_u64(), step(other)["ended_ms"].as_u64());
        assert!(begun >= ended && ended.is_some(), "{job} moves after {other}: {plan}");
    }
    let list = stage.json(&["list", "--job", "db"]);
    assert_eq!(list["drained"], json!(["east"]), "no leader returns");
    let request = &list["requests"][0];
    assert_eq!(
        (&request["kind"], &request["reason"]),
        (&json!("switchover"), &json!("evacuation of site east: power"))
    );

    // There is nothing left to move.
    let again = stage.operator(&["evacuate", "east", "--wait", "--timeout", "60s"]);
    again.assert(0, &["leads already"]);
    // West can't be emptied while the jobs of the east have not returned.
    stage.operator(&["evacuate", "west"]).assert(75, &["have not returned", "evacuate east --undo"]);
    ordered(&stage, &["evacuate", "east", "--undo", "--wait", "--timeout", "60s"]).assert(0, &[]);
    assert_eq!(sites(&stage), all("east"));
    assert_eq!(stage.json(&["list", "--job", "db"])["drained"], json!([]));
}

#[test]
fn an_evacuation_is_undone() {
    let (stage, _east, _west) = start("/evacuation-undone");
    stage
        .operator(&["evacuate", "east", "--job", "db", "--job", "app", "--wait", "--timeout", "60s"])
        .assert(0, &[]);
    assert_eq!(sites(&stage), ["west", "west", "east", "east"]);
    let report = stage.json(&["evacuate", "east", "--undo", "--wait", "--timeout", "60s"]);
    assert_eq!((&report["phase"], &report["undo"]), (&json!("done"), &json!(true)), "{report}");
    assert_eq!(sites(&stage), all("east"));
    assert_eq!(stage.json(&["list", "--job", "db"])["drained"], json!([]));

    // A job that can't be moved is named, and is no success while it is led there.
    let cache = ["job.cache.command=[\"sleep\", \"600\"]", "job.cache.recipe=queue"];
    let third = stage.worker("east-2", "east", &cache);
    until("the queue has a leader", || third.code("/leader?job=cache") == 200);
    let part = stage.operator(&["evacuate", "east", "--job", "db", "--job", "cache", "--wait"]);
    part.assert(1, &["left out, and led in site east: cache"]);
    assert!(part.stdout.contains("1 of 1 jobs done") && part.stdout.contains("cache: "), "{}", part.stdout);
}

/// The command ends at once, and the worker of the other site that carries it out is killed in the middle of it.
#[test]
fn it_survives_the_worker_that_carries_it_out() {
    let (stage, _east, mut west) = start("/evacuation-survives");
    let _second = worker(&stage, "west-2", "west", &[]);
    stage.operator(&["evacuate", "east"]).assert(0, &["workers carry it out"]);
    until("a step is under way", || {
        let (_, body) = west.http("GET", "/evacuation");
        serde_json::from_str::<Value>(&body)
            .is_ok_and(|body| !body["evacuation"]["steps"][0]["request"].is_null())
    });
    west.kill_with_guards();
    // A job that it has led in vain may have failed over to the east again: then it stops, and is told to go on.
    until("everything is in the west", || {
        stage.operator(&["evacuate", "east", "--resume"]);
        sites(&stage) == all("west")
    });
}

/// A planned one has begun when it turns out that the site is lost.
#[test]
fn one_that_is_under_way_is_made_a_forced_one() {
    let (stage, mut east, west) = start("/evacuation-forced");
    east.kill_with_guards();
    stage.operator(&["evacuate", "east"]).assert(0, &["no order is known"]);
    let forced = ["evacuate", "east", "--force", "--yes", "--wait", "--timeout", "60s"];
    stage.operator(&forced).assert(0, &["no order is known"]);
    assert_eq!(sites(&stage), all("west"));
    let plan: Value = serde_json::from_str(&west.http("GET", "/evacuation").1).expect("JSON");
    assert_eq!(plan["evacuation"]["force"], true, "{plan}");
}

/// What is read of it becomes unreadable once the evacuation has begun.
#[test]
fn a_job_that_cant_be_read_holds_up_no_other() {
    // Where it is moved to, db gets ready only when the test says so: app is not due before.
    let stage = Stage::new("/evacuation-spoiled");
    let file = stage.dir.path().join("ready");
    let ready = format!("job.db.ready={{ kind = \"exec\", command = [\"test\", \"-e\", {file:?}] }}");
    let mut east = worker(&stage, "east-1", "east", &[]);
    until("east leads", || sites(&stage) == all("east"));
    let west = worker(&stage, "west-1", "west", &[&ready]);
    until("west is standby", || is_standby(&stage));
    east.kill_with_guards();
    ordered(&stage, &["evacuate", "east", "--force", "--yes"]).assert(0, &[]);
    let order = "/evacuation-spoiled/app/drill/order";
    Stage::with_session(async |session| {
        let _ = session.create("/evacuation-spoiled/app/drill", Vec::new(), CreateMode::Persistent).await;
        session.create(order, b"no record".to_vec(), CreateMode::Persistent).await.expect("written");
    });
    std::fs::write(&file, "").expect("a file");
    until("it stops at that job", || {
        let (_, body) = west.http("GET", "/evacuation");
        let body = serde_json::from_str::<Value>(&body).unwrap_or_default();
        body["evacuation"]["phase"] == "stopped" && body.to_string().contains(order)
    });
    let sites = sites(&stage);
    assert_eq!([&sites[1], &sites[2]], ["west"; 2]);

    // Once it can be read, it goes on.
    Stage::with_session(async |session| session.delete(order, None).await.expect("deleted"));
    let resumed = stage.operator(&["evacuate", "east", "--resume", "--wait", "--timeout", "60s"]);
    // It is moved, or has failed over meanwhile.
    resumed.assert(0, &["proxy: "]);
    assert_eq!(self::sites(&stage), all("west"));
}
