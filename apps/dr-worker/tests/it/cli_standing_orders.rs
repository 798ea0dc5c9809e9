//! Standing orders and what they do to a leader, on a real ZooKeeper server.

use crate::support::{
    Running,
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use zk_session::CreateMode;

/// A leader in east and a standby in west.
fn two_sites(root: &'static str, settings: &[&str]) -> (Stage, Running, Running) {
    let stage = Stage::new(root);
    let east = stage.worker("east-1", "east", settings);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", settings);
    until("west-1 is standby", || west.code("/standby") == 200);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    (stage, east, west)
}

/// `--wait` ends when the leader has moved, and the reason is kept with the order.
#[test]
fn an_order_is_waited_for_and_has_its_reason() {
    let (stage, east, west) = two_sites("/orders-awaited", &[]);
    let drained = stage.operator(&["drain", "east", "--wait", "--reason", "new switches"]);
    drained.assert(0, &["orders: waiting: "]);
    assert!(leads(&west) && !leads(&east), "{}", drained.stderr);
    let order = |list: &Value| list["latest_order"]["reason"].clone();
    assert_eq!(order(&stage.json(&["list"])), "new switches");
    assert!(stage.operator(&["list"]).stdout.contains(": new switches\n"));
    stage.operator(&["drain", "east", "--off", "--wait"]).assert(0, &[]);
    assert_eq!(order(&stage.json(&["list"])), Value::Null, "that of the latest order");

    // Nothing else may lead.
    let sick = [
        "job.orders.fitness={kind=\"exec\",command=[\"/bin/false\"],interval=\"500ms\",timeout=\"500ms\",failures=1}",
    ];
    drop(east);
    let _sick = stage.worker("east-2", "east", &sick);
    until("east-2 is unfit", || {
        let list = stage.json(&["list"]);
        let members = list["members"].as_array().cloned().unwrap_or_default();
        members.len() == 2
            && members.iter().any(|m| m["health"].as_str().is_some_and(|h| h.contains("fitness")))
    });
    let serviced = stage.operator(&["maintenance", "west-1", "--wait", "--timeout", "2s"]);
    serviced.assert(75, &["the order is in force, but not carried out yet: west-1 of site west leads on: "]);
    assert_eq!(stage.json(&["list"])["maintenance"][0]["member"], "west-1");
    assert!(leads(&west));
}

/// No quiet time of the policy holds it up, and the history says why it was.
#[test]
fn a_drained_site_is_left_at_once() {
    let slow = ["policy.auto_moves=all", "policy.failback_after=1h", "policy.min_tenure=1h"];
    let (stage, east, west) = two_sites("/drained", &slow);

    let drained = stage.operator(&["drain", "east"]);
    drained.assert(0, &[]);
    assert_eq!(drained.stdout, "orders: mode auto, site east is drained\n");
    until("west-1 leads", || leads(&west) && !leads(&east));
    let list = stage.json(&["list"]);
    assert_eq!(list["drained"], json!(["east"]));
    assert_eq!(list["slots"][0]["decision"]["given"]["cause"], "standing-order");
    assert_eq!(successors(&list), json!([]));
    until("the history tells", || {
        let history = stage.json(&["history"]);
        let last = history["leaderships"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        last["cause"] == "standing-order"
            && last["sentence"]
                .as_str()
                .is_some_and(|s| s.contains("east-1 may not lead any more (site east is drained)"))
    });

    // No site is left to move to: a script needs a word, and the leader stays.
    let last =
        ["orders: drain site west; no member of another site can lead", "--yes", "nothing was changed"];
    stage.operator(&["drain", "west"]).assert(75, &last);
    assert_eq!(stage.json(&["list"])["drained"], json!(["east"]));
    stage.operator(&["drain", "west", "--yes"]).assert(0, &[]);
    let again = stage.json(&["drain", "west"]);
    let expected = json!({
        "election": "orders", "changed": false, "mode": "auto", "drained": ["east", "west"],
        "failed_sites": [], "maintenance": [], "preferred_site": null, "site_order": [],
    });
    assert_eq!(again, expected);
    until("west-1 leads", || leads(&west));

    stage.operator(&["drain", "west", "--off", "--job", "orders"]).assert(0, &[]);
    let open = stage.operator(&["drain", "east", "--off"]);
    assert_eq!(open.stdout, "orders: mode auto\n");
    until("east-1 is in line", || successors(&stage.json(&["list"])) == json!(["east-1"]));
    // It does not come back before failback_after.
    until("west-1 leads", || leads(&west));
}

#[test]
fn a_script_does_not_drain_the_last_site_with_a_fit_member() {
    let (stage, east, _west) = two_sites("/drained-serviced", &[]);
    stage.operator(&["maintenance", "west-1"]).assert(0, &[]);
    stage.operator(&["drain", "east"]).assert(75, &["no member of another site can lead", "--yes"]);
    assert_eq!(stage.json(&["list"])["drained"], json!([]));
    until("east-1 leads", || leads(&east));
}

#[test]
fn sites_that_nobody_knows_are_refused_before_anything_is_changed() {
    let (stage, ..) = two_sites("/unknown-sites", &[]);
    for verb in [&["drain", "wset"][..], &["prefer", "wset"], &["prefer", "--order", "west,wset"]] {
        stage.operator(verb).assert(64, &["orders: unknown site wset", "known: east, west", "--unknown"]);
    }
    stage.operator(&["prefer", "--order", "west,west"]).assert(64, &["west appears twice"]);
    stage.operator(&["prefer"]).assert(64, &["--order"]);
    stage
        .operator(&["drain", "west", "--job", "nothing"])
        .assert(64, &["unknown job", "there is no election at"]);
    let list = stage.json(&["list"]);
    assert_eq!((&list["drained"], &list["site_order"]), (&json!([]), &json!([])));
    stage.operator(&["drain", "wset", "--unknown"]).assert(0, &[]);
    assert_eq!(stage.json(&["list"])["drained"], json!(["wset"]));
}

/// The preferred site is moved for a planned maintenance, and back.
#[test]
fn the_order_of_sites_changes_at_run_time() {
    let quick = ["policy.auto_moves=all", "policy.failback_after=0s", "policy.min_tenure=0s"];
    let (stage, east, west) = two_sites("/preferred", &quick);
    let preferred = stage.operator(&["prefer", "west"]);
    assert_eq!(preferred.stdout, "orders: mode auto, site west is preferred\n");
    until("west-1 leads", || leads(&west));
    stage.operator(&["prefer", "--off"]).assert(0, &[]);
    until("east-1 leads", || leads(&east));
    stage.operator(&["prefer", "--order", "west,east"]).assert(0, &[]);
    until("west-1 leads again", || leads(&west));
    let list = stage.json(&["list"]);
    assert_eq!(list["site_order"], json!(["west", "east"]));
    let sentence = list["slots"][0]["decision"]["given"]["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("site west is first in the operators' order"), "{sentence}");
    stage.operator(&["prefer", "--off"]).assert(0, &[]);
    until("east-1 leads again", || leads(&east));
}

#[test]
fn a_preference_says_that_it_moves_nothing_by_itself() {
    let (stage, ..) = two_sites("/preferred-manual", &[]);
    stage.operator(&["prefer", "west"]).assert(0, &["auto_moves is \"none\"", "dr-worker switchover"]);
}

/// A pause keeps whoever leads, and whoever is lost is not followed until it ends.
#[test]
fn nobody_follows_during_a_pause() {
    let (stage, mut east, west) = two_sites("/paused", &[]);
    assert_eq!(stage.operator(&["pause"]).stdout, "orders: mode manual\n");
    until("the line is withdrawn", || successors(&stage.json(&["list"])) == json!([]));
    east.signal(Signal::SIGTERM);
    assert!(east.ended().success());
    until("west-1 decides", || stage.json(&["list"])["elector"] == "west-1");
    assert!(!leads(&west));
    assert_eq!(stage.operator(&["resume"]).stdout, "orders: mode auto\n");
    until("west-1 leads", || leads(&west));
    stage.operator(&["mode", "observe"]).assert(0, &[]);
    assert_eq!(stage.json(&["list"])["mode"], "observe");
    stage.operator(&["mode", "sometimes"]).assert(64, &["auto", "manual", "observe"]);
}

/// What is in force is shown, until it ends and not longer.
#[test]
fn orders_are_shown_as_they_are() {
    let (stage, east, west) = two_sites("/shown", &[]);
    let role = |member: &str| {
        let list = stage.json(&["list"]);
        let members = list["members"].as_array().expect("members").iter();
        members.filter(|m| m["member"] == member).map(|m| m["role"].clone()).next().expect("the member")
    };
    stage.operator(&["maintenance", "west-1"]).assert(0, &[]);
    assert_eq!(role("west-1"), "maintenance");
    // The order of another is not that of the site.
    let undrained = stage.operator(&["drain", "west", "--off"]).stdout;
    assert!(
        undrained.starts_with("orders: nothing to change; in force: mode auto, west-1 is in maintenance"),
        "{undrained}"
    );
    stage.operator(&["maintenance", "west-1", "--off"]).assert(0, &[]);
    stage.operator(&["drain", "west"]).assert(0, &[]);
    assert_eq!(role("west-1"), "drained");
    stage.operator(&["drain", "west", "--off"]).assert(0, &[]);
    stage.operator(&["fail-site", "west"]).assert(0, &[]);
    assert_eq!((role("west-1"), role("east-1")), (json!("site-failed"), json!("leader")));
    stage.operator(&["fail-site", "west", "--off"]).assert(0, &[]);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    assert_eq!(role("west-1"), "standby");

    let shown = |verb: &str, part: &str| stage.operator(&[verb]).stdout.contains(part);
    stage.operator(&["stay"]).assert(0, &[]);
    stage.operator(&["confirm", "west"]).assert(0, &[]);
    assert!(shown("list", "east-1 stays in term 1, a move of east-1 to site west is confirmed in term 1"));
    assert!(shown("explain", "leader: east-1 (east) leads, and stays until the next change of leader"));
    assert_eq!(
        (&stage.json(&["list"])["stay"], &stage.json(&["explain"])["slots"][0]["stays"]),
        (&json!([1]), &json!(true))
    );
    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    let list = stage.json(&["list"]);
    assert_eq!((&list["stay"], &list["confirmed"]), (&json!([]), &json!([])), "{list:#}");
    assert!(!shown("list", "stays") && !shown("explain", "stays"));
    // A standby has no lease, also if it led once.
    until("east-1 is standby", || east.code("/standby") == 200);
    let status: Value = serde_json::from_str(&east.http("GET", "/status").1).expect("JSON");
    assert_eq!(status["lease_remaining_ms"], Value::Null, "{status:#}");
}

/// A name that nobody has is a mistake of the command line, whatever it names.
#[test]
fn unknown_names_have_one_exit_code() {
    let (stage, ..) = two_sites("/unknown-names", &[]);
    for verb in [
        &["list", "--job", "nothing"][..],
        &["history", "--job", "nothing"],
        &["explain", "--job", "nothing"],
        &["switchover", "--job", "nothing"],
        &["stop", "--job", "nothing"],
        &["stay", "--job", "nothing"],
        &["config", "pull", "--job", "nothing"],
        &["config", "history", "--job", "nothing"],
        &["switchover", "--to", "nobody"],
        &["switchover", "--to-site", "nowhere"],
        &["drain", "nowhere"],
        &["simulate", "--without", "nobody"],
        &["maintenance", "nobody"],
        &["can-restart", "nobody"],
        &["assert", "--token", "1", "--job", "nothing"],
    ] {
        stage.operator(verb).assert(64, &["unknown "]);
    }
}

/// Without an elector nobody would heed them.
#[test]
fn a_queue_takes_no_standing_orders() {
    let stage = Stage::new("/no-orders");
    let worker = stage.worker("east-1", "east", &["job.orders.recipe=queue"]);
    until("it leads", || leads(&worker));
    stage.operator(&["pause"]).assert(1, &["the recipe \"queue\" has no elector", "no election under"]);
    stage.operator(&["pause", "--job", "orders"]).assert(1, &["recipe \"queue\"", "no elector to carry out"]);
}

/// A command for all jobs acts on those that have an elector.
#[test]
fn an_order_for_all_jobs_leaves_out_those_without_an_elector() {
    let stage = Stage::new("/some-orders");
    let bills = ["job.bills.recipe=queue", "job.bills.command=[\"/bin/sleep\", \"600\"]"];
    let worker = stage.worker("east-1", "east", &bills);
    until("it leads", || worker.code("/leader?job=orders") == 200);
    for verb in [&["ack"][..], &["pause"], &["drain", "east"], &["raise-token", "--above", "1", "--yes"]] {
        stage.operator(verb).assert(64, &["which job? bills, orders (--job JOB, or --all)"]);
    }
    assert_eq!(stage.json(&["list", "--job", "orders"])["mode"], "auto");
    for verb in
        [&["pause", "--all"][..], &["resume", "--all"], &["stay", "--all"], &["maintenance", "east-1"]]
    {
        let done = stage.operator(verb);
        done.assert(0, &["bills: left out: the recipe \"queue\" has no elector"]);
        assert!(done.stdout.contains("orders"), "{verb:?}: {}", done.stdout);
    }

    // Its former leaders are confirmed as off, whatever the recipe is.
    let left = json!({ "member": "west-9", "site": "west", "term": 1, "fencing_token": 7, "since_ms": 1 });
    let left = json!({ "v": 1, "leaderships": [left] });
    Stage::with_session(async |session| {
        let (path, data) = (format!("{}/bills/breadcrumbs", stage.root), left.to_string().into_bytes());
        let session = session.active().await.expect("a session");
        session.create(&path, data, CreateMode::Persistent).await.expect("a record");
    });
    let off = stage.operator(&["ack", "--fenced", "--all"]);
    off.assert(0, &[]);
    assert_eq!(
        off.stdout,
        "bills: confirmed as off, so not fenced: west-9; nothing to acknowledge\n\
         orders: no former leader needed fencing; nothing to acknowledge\n"
    );
}

/// A job that fails everywhere is not passed round for ever; whoever has mended it says so,
/// and it goes on at once.
#[test]
fn a_hold_ends_when_an_operator_acknowledges_it() {
    let stage = Stage::new("/hold");
    let broken = stage.dir.path().join("broken");
    std::fs::write(&broken, "").expect("a file");
    let probe = format!(
        "job.orders.ready={{kind=\"exec\",command=[\"/bin/sh\",\"-c\",\"! test -e {}\"]}}",
        broken.display()
    );
    let settings = [
        "policy.max_takeovers={count=2,within=\"1h\"}",
        "policy.takeover_timeout=1s",
        "policy.exclusion=1s",
        &probe,
    ];
    let east = stage.worker("east-1", "east", &settings);
    let west = stage.worker("west-1", "west", &settings);
    until("both have joined", || east.code("/readiness") == 200 && west.code("/readiness") == 200);
    until("it is held", || {
        let list = stage.json(&["list"]);
        list["failures"].as_array().is_some_and(|all| all.len() == 2)
            && list["members"].as_array().is_some_and(|all| all.len() == 2)
    });
    let mut said = stage.operator(&["switchover"]);
    until("a switchover is refused for the hold", || {
        said = stage.operator(&["switchover"]);
        said.stderr.contains("ON HOLD until ")
    });
    said.assert(
        75,
        &[
            "an acknowledgement resumes now (`dr-worker ack --job orders`)",
            "`dr-worker failover --job orders`",
        ],
    );
    std::fs::remove_file(&broken).expect("it was there");
    // Whoever took over just as it was mended may lead already: then the hold has no part in it.
    let held = stage.operator(&["--set", "policy.max_takeovers={count=2,within=\"1h\"}", "ack"]);
    held.assert(0, &[]);
    assert!(held.stdout.starts_with("orders: the hold ends; forgotten: 2 takeovers, "), "{}", held.stdout);
    assert!(
        held.stdout.contains("2 failures of the job; remembered still: failures of members"),
        "{}",
        held.stdout
    );
    until("one leads", || leads(&east) || leads(&west));
    let again = stage.json(&["ack"]);
    assert_eq!((&again["held"], &again["failures"]), (&json!(false), &json!([])));
    assert!(stage.json(&["list"])["failures"].as_array().is_some_and(|all| all.len() >= 2));
    let forgotten = stage.operator(&["ack", "--failures", "--sites"]);
    assert!(forgotten.stdout.starts_with("orders: forgotten: "), "{}", forgotten.stdout);
    for what in [" of east-1, ", " of west-1, ", "1 lost leader of site east"] {
        assert!(forgotten.stdout.contains(what), "{}", forgotten.stdout);
    }
    assert_eq!(stage.json(&["list"])["failures"], json!([]));
}

/// An operator calls it off that leadership goes back, and lets it go.
#[test]
fn a_leader_that_is_told_to_stay_is_not_followed_by_a_better_one() {
    let quick = ["policy.auto_moves=all", "policy.failback_after=2s", "policy.min_tenure=0s"];
    let stage = Stage::new("/stay");
    let west = stage.worker("west-1", "west", &quick);
    until("west-1 leads", || leads(&west));
    let told = stage.operator(&["stay"]);
    assert_eq!(told.stdout, "orders: west-1 stays until the next change of leader\n", "{}", told.stderr);
    let east = stage.worker("east-1", "east", &quick);
    until("the elector says so", || {
        let text = stage.operator(&["explain"]).stdout;
        text.contains("stays by an operator's order")
    });
    until("west-1 leads", || leads(&west));
    assert_eq!(stage.json(&["list"])["stay"], json!([1]));
    stage.operator(&["stay", "--off"]).assert(0, &[]);
    until("east-1 leads", || leads(&east));
    // The change of leader ends it by itself.
    let told = stage.json(&["stay", "--job", "orders"]);
    assert_eq!(told, json!({ "election": "orders", "members": ["east-1"], "terms": [2] }));
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("east-1 leads again", || leads(&east));
}

/// The policy asks first: a move back is proposed, and made once an operator has confirmed it.
#[test]
fn a_move_to_another_site_waits_for_an_operators_word() {
    let careful = [
        "policy.auto_moves=all",
        "policy.confirm=cross-site",
        "policy.failback_after=1s",
        "policy.min_tenure=0s",
    ];
    let stage = Stage::new("/confirm");
    let west = stage.worker("west-1", "west", &careful);
    until("west-1 leads", || leads(&west));
    let east = stage.worker("east-1", "east", &careful);
    let mut list = String::new();
    until("the elector proposes it", || {
        list = stage.operator(&["list"]).stdout;
        list.contains("a move to site east is proposed, and waits for an operator's confirmation (`dr-worker confirm SITE")
    });
    let metrics = west.http("GET", "/metrics").1;
    let counted = |line: &str| line.starts_with("dr_skipped_total") && line.contains("reason=\"confirm\"");
    assert!(metrics.lines().any(counted), "{metrics}");
    // Who asks before has to say where to.
    stage.operator(&["confirm"]).assert(64, &["SITE"]);
    stage.operator(&["confirm", "north"]).assert(64, &["unknown site north"]);
    stage.operator(&["confirm", "west"]).assert(75, &["no leader outside of site west"]);
    until("west-1 leads", || leads(&west));

    let confirmed = stage.operator(
        &careful
            .map(|set| format!("--set={set}"))
            .iter()
            .map(String::as_str)
            .chain(["confirm", "east"])
            .collect::<Vec<_>>(),
    );
    confirmed.assert(0, &[]);
    assert_eq!(
        confirmed.stdout,
        "orders: leadership may move from west-1 to site east, until the next change of leader\n"
    );
    until("east-1 leads", || leads(&east) && !leads(&west));
    let sentence = stage.json(&["list"])["slots"][0]["decision"]["given"]["sentence"].clone();
    assert!(sentence.as_str().is_some_and(|s| s.contains(" has confirmed: east-1")), "{sentence}");
    // The word was for that leader.
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("it is proposed again", || {
        stage.operator(&["list"]).stdout.contains("waits for an operator's confirmation")
    });
    let cleared = stage.json(&["confirm", "--off"]);
    assert_eq!(cleared, json!({ "election": "orders", "confirmed": [] }));
}

/// A spare for emergencies: nothing brings it into office but an operator, and then it stays.
#[test]
fn a_member_of_priority_0_leads_where_an_operator_names_it_and_only_then() {
    let stage = Stage::new("/priority-0");
    let spare = stage.worker("west-1", "west", &["node.priority=0"]);
    until("the spare stands by, and leads nothing", || spare.code("/standby") == 200);
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    stage.operator(&["switchover", "--wait"]).assert(1, &["west-1", "priority 0"]);

    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("the spare leads", || leads(&spare) && !leads(&east));
    // The elector has looked at it once more by the time that it has a line for it.
    until("east-1 is in line", || successors(&stage.json(&["list"])) == json!(["east-1"]));
    let explained = stage.operator(&["explain"]);
    assert!(leads(&spare), "{}", explained.stdout);
    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    until("east-1 leads again", || leads(&east) && !leads(&spare));
}
