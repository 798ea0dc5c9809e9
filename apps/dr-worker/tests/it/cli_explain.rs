//! `explain` and `simulate`, and what really happens then, on a real ZooKeeper server.

use crate::support::{
    Outcome, Running, code_of, dr_worker, set,
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const ORDER: (&str, &str) = ("DR_WORKER__POLICY__SITES", "[\"east\", \"west\"]");

/// A verb with the policy in the environment: what `simulate` gets by `--set` it imagines.
fn ask(stage: &Stage, environment: &[(&str, &str)], verb: &[&str]) -> Outcome {
    let mut command = dr_worker();
    set(
        &mut command,
        &[
            &format!("zookeeper.connect={}", Stage::connect_string()),
            &format!("zookeeper.root={}", stage.root),
            "zookeeper.connect_timeout=30s",
        ],
    );
    command.args(verb).env(ORDER.0, ORDER.1).envs(environment.iter().copied());
    Outcome::of(&mut command)
}

fn ask_json(stage: &Stage, environment: &[(&str, &str)], verb: &[&str]) -> Value {
    let outcome = ask(stage, environment, &[&["--output", "json"], verb].concat());
    outcome.assert(0, &[]);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.stdout))
}

fn get(worker: &Running, path: &str) -> (u16, Value) {
    let (head, body) = worker.http("GET", path);
    (code_of(&head), serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}")))
}

fn member<'a>(explained: &'a Value, id: &str) -> &'a Value {
    let candidates = explained["slots"][0]["candidates"].as_array().expect("candidates");
    candidates.iter().find(|c| c["member"] == id).unwrap_or_else(|| panic!("{id} is not in {explained:#}"))
}

/// A leader in east and a standby in west.
fn two_sites(root: &'static str) -> (Stage, Running, Running) {
    let stage = Stage::new(root);
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    (stage, east, west)
}

#[test]
fn every_candidate_is_shown_with_its_rank_or_with_what_put_it_out() {
    let (stage, east, west) = two_sites("/explained");
    let explained = ask_json(&stage, &[], &["explain"]);
    let slot = &explained["slots"][0];
    assert_eq!((&explained["elector"], &slot["question"]), (&json!("east-1"), &json!("better-candidate")));
    assert_eq!(slot["leader"], json!({ "member": "east-1", "site": "east", "status": "READY" }));
    assert_eq!((&slot["proposal"], &slot["obstacles"]), (&Value::Null, &json!([])));
    let first = member(&explained, "east-1");
    assert_eq!(first["rank"], 1);
    let ahead = json!({
        "member": "west-1", "stage": "incumbent", "value": "incumbent", "other": "not the incumbent",
    });
    assert_eq!(first["ahead_of"], ahead, "{explained:#}");
    assert_eq!(explained["other_line"], false);
    assert_eq!(explained["skipped"]["reason"], "steady", "the elector was asked: {explained:#}");

    // Every worker says the same.
    for worker in [&east, &west] {
        let (code, mut told) = get(worker, "/explain?job=orders");
        assert_eq!(code, 200);
        told["at_ms"] = explained["at_ms"].clone();
        assert_eq!(told, explained);
    }
    let text = ask(&stage, &[], &["explain", "--job", "orders"]).stdout;
    for part in
        ["orders: east-1 decides", "is another member better than east-1? (better-candidate)", "AHEAD BY"]
    {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }

    stage.operator(&["drain", "west"]).assert(0, &[]);
    let explained = ask_json(&stage, &[], &["explain"]);
    let out = member(&explained, "west-1");
    assert_eq!((&out["rank"], &out["refused_by"]), (&Value::Null, &json!("site-open")));
    assert_eq!(out["reasons"], json!(["site west is drained"]));

    // With every worker dead the znodes still answer.
    drop((east, west));
    until("their sessions have ended", || {
        ask_json(&stage, &[], &["explain"])["next"]["reason"] == "no-elector"
    });
    let text = ask(&stage, &[], &["explain"]).stdout;
    assert!(text.contains("no elector: no member is there"), "{text}");
    ask(&stage, &[], &["explain", "--job", "nothing"])
        .assert(64, &["unknown job", "there is no election at"]);
}

/// Each question has one order, wherever it is shown, and it is the order of what happens then.
#[test]
fn each_question_has_one_order_and_it_comes_true() {
    let stage = Stage::new("/orders");
    let mut workers: Vec<(&str, Running)> = Vec::new();
    for (id, site) in [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")] {
        workers.push((id, stage.worker(id, site, &[])));
        if workers.len() == 1 {
            until("east-1 leads", || leads(&workers[0].1));
        }
    }
    // After a failure the other site is first, for a switchover the order of sites counts.
    let (lost, moved) = (["west-1", "west-2", "east-2"], ["east-2", "west-1", "west-2"]);
    until("three are in line", || successors(&stage.json(&["list"])) == json!(lost));

    let names = |order: &Value| -> Vec<String> {
        let ranked = order.as_array().expect("an order").iter().filter(|c| c["rank"].is_number());
        ranked.map(|c| c["member"].as_str().expect("a name").to_owned()).collect()
    };
    let next = |cluster: &Value| -> Vec<String> {
        let members = cluster["members"].as_array().expect("members").iter();
        let mut next: Vec<_> =
            members.filter_map(|m| Some((m["next"].as_u64()?, m["member"].as_str()?.to_owned()))).collect();
        next.sort();
        next.into_iter().map(|(_, member)| member).collect()
    };
    let dry_run = ask_json(&stage, &[], &["switchover", "--dry-run"]);
    let explained = ask_json(&stage, &[], &["explain"]);
    let (page, cluster) = (get(&workers[3].1, "/explain").1, get(&workers[3].1, "/cluster").1);
    assert_eq!(next(&stage.json(&["list"])), lost);
    assert_eq!(next(&cluster), lost, "{cluster:#}");
    for orders in [&explained["slots"][0], &page["slots"][0], &dry_run["orders"][0]] {
        assert_eq!(
            (names(&orders["if_lost"]), names(&orders["switchover"])),
            (lost.map(str::to_owned).to_vec(), moved.map(str::to_owned).to_vec()),
            "{orders:#}"
        );
    }
    assert_eq!(dry_run["slots"][0]["would_lead"]["member"], moved[0], "{dry_run:#}");
    let (is_lost, now) =
        ("  if east-1 is lost: 1. west-1 (west), ", "  for a switchover now: 1. east-2 (east), by ");
    for verb in [&["explain"][..], &["switchover", "--dry-run"]] {
        let text = ask(&stage, &[], verb).stdout;
        let at = [is_lost, now]
            .map(|part| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in:\n{text}")));
        assert!(at[0] < at[1], "{text}");
    }

    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    until("east-2 leads", || leads(&workers[1].1));
    until("three are in line", || next(&stage.json(&["list"])).len() == 3);
    let explained = ask_json(&stage, &[], &["explain"]);
    let lost = names(&explained["slots"][0]["if_lost"]);
    assert_eq!(lost, next(&stage.json(&["list"])));
    workers[1].1.kill_with_guards();
    let heir = workers.iter().find(|(id, _)| *id == lost[0]).expect("a worker");
    until("the first in line leads", || leads(&heir.1));
}

/// The decision that is not taken has its sentence wherever one looks for it.
#[test]
fn what_is_not_decided_is_said_everywhere_and_counted_once() {
    let stage = Stage::new("/not-decided");
    let slow = ["policy.auto_moves=all", "policy.failback_after=1h", "policy.min_tenure=30m"];
    let environment = [
        ("DR_WORKER__POLICY__AUTO_MOVES", "all"),
        ("DR_WORKER__POLICY__FAILBACK_AFTER", "1h"),
        ("DR_WORKER__POLICY__MIN_TENURE", "30m"),
    ];
    let west = stage.worker("west-1", "west", &slow);
    until("west-1 leads, for east has not come", || leads(&west));
    let _east = stage.worker("east-1", "east", &slow);
    let status = || get(&west, "/status").1["jobs"]["orders"]["skipped"].clone();
    let sentence = "west-1 leads; east-1 would be better (better-after is not over); to site east at ";
    // What follows is the minute of it.
    let says_so = |skipped: &Value| {
        skipped["reason"] == "better-after"
            && skipped["sentence"].as_str().is_some_and(|said| said.starts_with(sentence))
    };
    until("the elector waits", || says_so(&status()));

    let list = stage.operator(&["list"]).stdout;
    assert!(list.contains(&format!("not decided: {sentence}")), "{list}");
    assert!(says_so(&stage.json(&["list"])["skipped"]));
    assert!(says_so(&get(&west, "/cluster").1["skipped"]));

    let explained = ask_json(&stage, &environment, &["explain"]);
    assert!(says_so(&explained["skipped"]), "{explained:#}");
    let slot = &explained["slots"][0];
    assert_eq!(slot["proposal"]["named"]["member"], "east-1", "{slot:#}");
    let reasons: Vec<_> = slot["obstacles"].as_array().unwrap().iter().map(|o| &o["reason"]).collect();
    assert_eq!(reasons, ["better-after", "min-tenure"]);
    let known: Vec<_> = slot["obstacles"].as_array().unwrap().iter().map(|o| &o["bound"]).collect();
    assert_eq!(known, ["latest", "earliest"]);
    let now = explained["at_ms"].as_u64().unwrap();
    for (obstacle, minutes) in slot["obstacles"].as_array().unwrap().iter().zip([60, 30]) {
        let until = obstacle["until_ms"].as_u64().expect("a time");
        assert!(until > now && until <= now + minutes * 60_000, "{obstacle}");
    }
    let text = ask(&stage, &environment, &["explain"]).stdout;
    assert!(text.contains("would be decided if nothing blocked it: east-1 has been better for"), "{text}");
    assert!(text.contains("in the way: min-tenure: west-1 leads for"), "{text}");

    // Many passes, one count; two, should the minute be told otherwise by two clocks.
    let count = |reason: &str| {
        let metrics = west.http("GET", "/metrics").1;
        let of = |line: &&str| {
            line.starts_with("dr_skipped_total") && line.contains(&format!("reason=\"{reason}\""))
        };
        let line = metrics.lines().find(of).map(str::to_owned);
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!((1..=2).contains(&count("better-after")));
    for (mode, reason) in [("observe", "observe"), ("manual", "manual")] {
        stage.operator(&["mode", mode]).assert(0, &[]);
        until("the elector says so", || status()["reason"] == reason);
        let sentence = status()["sentence"].as_str().unwrap_or_default().to_owned();
        assert!(sentence.contains(&format!("the mode is {mode}")), "{sentence}");
        assert_eq!(count(reason), 1);
        let explained = ask_json(&stage, &environment, &["explain"]);
        let slot = &explained["slots"][0];
        // In whatever mode it is said what would be.
        assert_eq!(slot["proposal"]["named"]["member"], "east-1", "{slot:#}");
        assert_eq!(slot["obstacles"][0]["reason"], reason);
        assert_eq!(slot["obstacles"][0]["until_ms"], Value::Null);
        assert!(stage.operator(&["list"]).stdout.contains("not decided: the mode is"));
    }
}

#[test]
fn what_is_simulated_is_what_happens() {
    let (stage, east, west) = two_sites("/simulated");
    let other = stage.worker("east-2", "east", &[]);
    let line = json!(["west-1", "east-2"]);
    until("all are in line", || successors(&stage.json(&["list"])) == line);

    let told = ask_json(&stage, &[], &["simulate", "--without-site", "east"]);
    let slot = &told["slots"][0];
    assert_eq!((&told["unchanged"], &told["elector_then"]), (&json!(false), &json!("west-1")));
    assert_eq!((&slot["leads"]["member"], &slot["leads"]["site"]), (&json!("east-1"), &json!("east")));
    let then = &slot["would_lead"];
    assert_eq!((&then["member"], &then["site"]), (&json!("west-1"), &json!("west")));
    let (code, by_http) = get(&west, "/simulate?without_site=east");
    assert_eq!((code, &by_http), (200, &told));
    let text = ask(&stage, &[], &["simulate", "--without-site", "east"]).stdout;
    for part in [
        "without site east",
        "east-1 (east) leads now, west-1 (west) would lead then",
        "west-1 would be the elector",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }

    // Who does not lead, and isn't anybody: nothing would change.
    let nothing = ask_json(&stage, &[], &["simulate", "--without", "west-1"]);
    assert_eq!(nothing["unchanged"], true, "{nothing:#}");
    let text = ask(&stage, &[], &["simulate", "--without", "west-1"]).stdout;
    assert!(text.contains("nothing would change: east-1 of site east leads on"), "{text}");
    let all = ask_json(&stage, &[], &["simulate", "--without-site", "east", "--without", "west-1"]);
    assert_eq!((&all["slots"][0]["would_lead"], &all["elector_then"]), (&Value::Null, &Value::Null));

    // Whoever explains by another policy than the workers' is told.
    let theirs = [("DR_WORKER__POLICY__ON_LEADER_FAILURE", "same-site-first")];
    ask(&stage, &theirs, &["explain"]).assert(0, &["the line of succession in ZooKeeper differs from"]);
    assert_eq!(ask(&stage, &[], &["explain"]).stderr, "");

    // Another order alone moves nobody; with failback it does, later.
    let order = "--set=policy.sites=[\"west\", \"east\"]";
    assert_eq!(ask_json(&stage, &[], &["simulate", order])["unchanged"], true);
    let later = ask_json(&stage, &[], &["simulate", order, "--set=policy.auto_moves=all"]);
    let slot = &later["slots"][0];
    assert_eq!(slot["would_lead"]["member"], "east-1", "{later:#}");
    assert_eq!(slot["later"]["named"]["member"], "west-1");
    let reasons: Vec<_> = slot["obstacles"].as_array().unwrap().iter().map(|o| &o["reason"]).collect();
    assert!(reasons.contains(&&json!("better-after")), "{reasons:?}");
    let path = "/simulate?set=policy.sites%3D%5B%22west%22%2C%22east%22%5D&set=policy.auto_moves%3Dall";
    assert_eq!(get(&east, path).1["slots"][0]["later"]["named"]["member"], "west-1");

    // Who isn't there, and what is no setting.
    ask(&stage, &[], &["simulate", "--without-site", "wset"]).assert(64, &["wset", "east, west"]);
    ask(&stage, &[], &["simulate", "--without", "east-9"]).assert(64, &["east-9", "east-1, west-1, east-2"]);
    ask(&stage, &[], &["simulate"]).assert(64, &["--without-site", "--set"]);
    ask(&stage, &[], &["simulate", "--set=policy.auto_moves=sometimes"])
        .assert(78, &["policy.auto_moves", "in-site"]);
    for (query, part) in [
        ("without_site=wset", "east, west"),
        ("without=east-9", "east-1"),
        ("set=policy.auto_moves%3Dsometimes", "in-site"),
        ("set=zookeeper.root%3D%2Fx", "only keys of the policy"),
        ("", "without_site"),
    ] {
        let (code, answer) = get(&east, &format!("/simulate?{query}"));
        assert_eq!(code, 400, "{query}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|why| why.contains(part)), "{query}: {answer}");
    }

    // And then the site is really lost.
    east.signal(Signal::SIGKILL);
    other.signal(Signal::SIGKILL);
    until("west-1 leads", || leads(&west));
    let said = &told["slots"][0]["decisions"][0];
    let list = stage.json(&["list"]);
    assert_eq!(list["slots"][0]["decision"]["named"]["member"], said["named"]["member"], "{list:#}");
    assert_eq!(list["slots"][0]["decision"]["given"]["cause"], said["cause"]);
    // The sentence is that of the first in line, or, where the elector's session ended later than the
    // leader's, that of the elector of the moment: here both are west-1.
    let sentence = list["slots"][0]["decision"]["given"]["sentence"].as_str().expect("a sentence");
    let by_elector = "the session of east-1 of site east ended: west-1 of site west leads (";
    assert!(said["sentence"] == sentence || sentence.starts_with(by_elector), "{sentence}");
    until("the history tells it", || {
        let history = stage.json(&["history"]);
        let last = history["leaderships"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        last["member"] == "west-1" && last["sentence"] == sentence
    });
    assert!(stage.operator(&["list"]).stdout.contains(sentence));
}

#[test]
fn a_queue_shows_its_order() {
    let stage = Stage::new("/explained-queue");
    let own = ["job.orders.recipe=queue"];
    let first = stage.worker("east-1", "east", &own);
    until("east-1 leads", || leads(&first));
    let second = stage.worker("west-1", "west", &own);
    until("west-1 waits", || second.code("/standby") == 200);
    let explained = ask_json(&stage, &[], &["explain"]);
    assert_eq!((&explained["recipe"], &explained["elector"]), (&json!("queue"), &Value::Null));
    assert_eq!(member(&explained, "east-1")["reasons"], json!(["first in the queue"]));
    assert_eq!(member(&explained, "west-1")["rank"], 2);
    let told = ask_json(&stage, &[], &["simulate", "--without", "east-1"]);
    assert_eq!(told["slots"][0]["would_lead"]["member"], "west-1");
    let told = ask_json(&stage, &[], &["simulate", "--set=policy.auto_moves=all"]);
    assert_eq!(told["unchanged"], true);
    assert!(told["notes"].to_string().contains("no policy"), "{told}");
    first.signal(Signal::SIGKILL);
    until("west-1 leads", || leads(&second));
}

#[test]
fn members_with_another_policy_are_named() {
    let (stage, _east, _west) = two_sites("/other-policy");
    let explained = ask_json(&stage, &[], &["explain"]);
    assert_eq!(
        (&explained["other_policy"], &explained["problems"]),
        (&json!(false), &json!([])),
        "{explained:#}"
    );

    let _odd = stage.worker("west-2", "west", &["policy.min_tenure=7m"]);
    until("west-2 is in line", || successors(&stage.json(&["list"])) == json!(["west-1", "west-2"]));
    let list = stage.operator(&["list"]).stdout;
    let sentence = "west-2 has another policy than the elector east-1";
    assert!(list.contains(sentence), "{list}");
    assert_eq!(stage.json(&["list"])["problems"][0]["kind"], "other-policy");
    // So has a command that was given another one.
    let told = ask(&stage, &[("DR_WORKER__POLICY__MIN_TENURE", "3m")], &["explain"]);
    told.assert(0, &[]);
    assert!(
        told.stderr.contains("this configuration has another policy than the elector"),
        "{}",
        told.stderr
    );
}
