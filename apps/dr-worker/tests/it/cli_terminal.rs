//! What an operator sees on a terminal, and a script without one, from the real program.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
    time::Instant,
};

use crate::support::{
    Log, Outcome, dr_worker, set,
    stage::{Stage, leads, successors},
    taken_port,
    terminal::{Ended, OnTerminal},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

fn two_sites(root: &'static str) -> (Stage, crate::support::Running, crate::support::Running) {
    let stage = Stage::new(root);
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    (stage, east, west)
}

#[test]
fn dangerous_commands_ask_on_a_terminal_and_nowhere_else() {
    let (stage, east, west) = two_sites("/asked");
    // A script has no terminal.
    stage.operator(&["fail-site", "west"]).assert(0, &[]);
    stage.operator(&["fail-site", "west", "--off"]).assert(0, &[]);
    let list = stage.json(&["list"]);
    assert_eq!(
        (&list["requests"], &list["failed_sites"], &list["term"]),
        (&json!([]), &json!([]), &json!(1))
    );

    let mut asked = OnTerminal::start(stage.command(&[]).arg("drill"), 200, 30);
    asked.until_shown(
        "a second copy of the job's program starts on a standby, while the first one runs. Continue?",
    );
    asked.keys.write_all(b"n\n").expect("the terminal reads");
    asked.assert_ends(1);

    let forced = ["failover", "--force", "--to-site", "west", "--wait"];
    for answer in ["n\n", "\n"] {
        let mut asked = OnTerminal::start(stage.command(&[]).args(forced), 100, 30);
        asked.until_shown("Continue? [y/N]");
        asked.keys.write_all(answer.as_bytes()).expect("the terminal reads");
        asked.assert_ends(1);
        asked.until_shown("not confirmed; nothing was changed");
    }
    until("east-1 leads", || leads(&east));
    let mut asked = OnTerminal::start(stage.command(&[]).args(forced), 100, 30);
    asked.until_shown("failover of orders to site west, by force");
    asked.keys.write_all(b"y\n").expect("the terminal reads");
    asked.assert_ends(0);
    until("west-1 leads", || leads(&west));

    // What ends the job of a leader that works.
    for (arguments, question) in [
        (&["failover"][..], "failover of orders: west-1 leads, and the job stops there. Continue? [y/N]"),
        (&["stop"], "stop of orders: west-1 leads; the job stops, and no other member starts it. Continue?"),
        (
            &["restart"],
            "restart of orders: west-1 leads; the job stops and starts again there. Continue? [y/N]",
        ),
    ] {
        let mut asked = OnTerminal::start(stage.command(&[]).args(arguments), 200, 30);
        asked.until_shown(question);
        asked.keys.write_all(b"n\n").expect("the terminal reads");
        asked.assert_ends(1);
        asked.until_shown("not confirmed; nothing was changed");
    }
    let list = stage.json(&["list"]);
    assert_eq!(list["requests"].as_array().map(Vec::len), Some(1), "only the failover by force: {list:#}");
    assert!(leads(&west), "{list:#}");
    let mut told = OnTerminal::start(stage.command(&[]).args(["restart", "--yes", "--wait"]), 100, 30);
    told.assert_ends(0);

    // A drain asks only where no other site is left.
    let mut drained = OnTerminal::start(stage.command(&[]).args(["drain", "east"]), 100, 30);
    drained.assert_ends(0);
    let mut asked = OnTerminal::start(stage.command(&[]).args(["drain", "west"]), 100, 30);
    asked.until_shown("no member of another site can lead. Continue? [y/N]");
    asked.keys.write_all(b"no\n").expect("the terminal reads");
    asked.assert_ends(1);
    assert_eq!(stage.json(&["list"])["drained"], json!(["east"]));
}

#[test]
fn a_push_says_what_follows_and_asks_and_reverts_go_down_the_history() {
    let stage = Stage::new("/pushed");
    let (east, log) = Log::of(&mut stage.worker_command("east-1", "east", &[]));
    until("east-1 leads", || leads(&east));
    let _west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    let file = stage.dir.path().join("overlay.toml");
    let name = file.display().to_string();
    let write = |text: &str| std::fs::write(&file, text).expect("a file");
    let pid = || {
        let status = east.http("GET", "/status").1;
        let status: Value = serde_json::from_str(&status).expect("JSON");
        status["jobs"]["orders"]["process"]["pid"].clone()
    };
    let versions = || {
        let versions = stage.json(&["config", "history"])["versions"].clone();
        let all = versions.as_array().expect("a list").clone();
        all.iter().map(|version| (version["text"].clone(), version["restores"].clone())).collect::<Vec<_>>()
    };

    // A diff refuses what a push refuses.
    for (text, why) in [
        ("stop_timout = \"2s\"\n", "overlay.toml:1:1: job.orders.stop_timout: unknown key"),
        ("command = [\"/bin/true\"]\n", "overlay.toml:1:1: job.orders.command: "),
    ] {
        write(text);
        for verb in ["diff", "push"] {
            stage.operator(&["config", verb, &name]).assert(78, &[why]);
        }
    }

    // Both take the table of the job, and say what follows.
    let first = "[job.orders]\nload = 2\n";
    write(first);
    stage.operator(&["config", "diff", &name]).assert(0, &["orders is not restarted"]);
    stage.operator(&["config", "push", &name]).assert(0, &["orders is not restarted"]);
    until("version 1 is applied", || {
        let members = stage.json(&["config", "history"])["members"].clone();
        members.as_array().is_some_and(|all| all.len() == 2 && all.iter().all(|of| of["version"] == 1))
    });
    let second = "load = 2\nlimits.open_files = 500\n";
    write(second);
    let restarts = "restarts orders on east-1 in 2 s";
    stage.operator(&["config", "diff", &name]).assert(0, &[restarts]);
    let diff = stage.json(&["config", "diff", &name]);
    let change = json!({ "key": "limits.open_files", "from": null, "to": "500", "effect": "job-restart" });
    assert_eq!((&diff["changes"], &diff["restarts"]), (&json!([change]), &json!(["east-1"])));
    let before = pid();
    let push = ["config", "push", &name];
    let mut asked = OnTerminal::start(stage.command(&[]).args(push), 200, 30);
    asked.until_shown("+ limits.open_files = 500");
    asked.until_shown(&format!("push of orders: {restarts}. Continue? [y/N]"));
    asked.keys.write_all(b"n\n").expect("the terminal reads");
    asked.assert_ends(1);
    asked.until_shown("not confirmed; nothing was changed");
    assert_eq!(versions().len(), 1);
    let mut told = OnTerminal::start(stage.command(&[]).args(push).arg("--yes"), 200, 30);
    told.assert_ends(0);
    until("the job is restarted", || pid().is_number() && pid() != before);
    until("east-1 leads", || leads(&east));
    let log = log.text();
    assert!(
        log.contains("version 2 changes job.orders.limits.open_files: the job is to be restarted"),
        "{log}"
    );
    assert!(!log.contains("applies at the next start"), "{log}");

    // Two reverts don't end where they began.
    let mut asked = OnTerminal::start(stage.command(&[]).args(["config", "revert"]), 300, 30);
    asked.until_shown("revert of orders restores version 1 (by ");
    asked.until_shown(&format!("): {restarts}. Continue? [y/N]"));
    asked.keys.write_all(b"y\n").expect("the terminal reads");
    asked.assert_ends(0);
    asked.until_shown("orders: configuration version 3, restores version 1");
    let none = "restores the configuration without an overlay";
    stage.operator(&["config", "revert"]).assert(0, &[none]);
    stage.operator(&["config", "revert"]).assert(1, &["version 4 is in force", none]);
    // A version that was restored is the same as the first one.
    assert_eq!(stage.json(&["config", "revert", "3", "--reason", "again"])["restores"], 1);
    let overlay = |text: &str, restores: Value| (json!(text), restores);
    assert_eq!(
        versions(),
        [
            overlay(first, Value::Null),
            overlay(second, Value::Null),
            overlay(first, json!(1)),
            overlay("", json!(0)),
            overlay(first, json!(1))
        ]
    );
    let history = stage.operator(&["config", "history"]);
    assert!(history.stdout.contains("restores version 1: again"), "{}", history.stdout);
}

#[test]
fn a_drill_that_needs_an_approval_begins_once_the_name_of_its_job_is_typed() {
    let (stage, east, _west) = two_sites("/approved");
    let plan = "drill.signed={ job = \"orders\", mode = \"rehearse\", approval = true }";
    let command = || {
        let mut command = stage.command(&[plan]);
        command.args(["drill", "--plan", "signed"]);
        command
    };
    let drills = || stage.json(&["drill", "list"])["drills"].clone();
    let why = "needs an approval: run it on a terminal, or with --yes; nothing was changed";
    Outcome::of(&mut command()).assert(75, &["the drill signed (rehearse of orders", why]);
    for typed in ["yes\n", "order\n", "\n"] {
        let mut asked = OnTerminal::start(&mut command(), 100, 30);
        asked.until_shown("needs an approval. Type orders to approve it: ");
        asked.keys.write_all(typed.as_bytes()).expect("the terminal reads");
        asked.assert_ends(1);
        asked.until_shown("not approved; nothing was changed");
    }
    assert_eq!(drills(), json!([]));

    let mut asked = OnTerminal::start(&mut command(), 100, 30);
    asked.until_shown("Type orders to approve it: ");
    asked.keys.write_all(b"orders\n").expect("the terminal reads");
    asked.assert_ends(0);
    let drills = drills();
    assert_eq!(drills.as_array().map(Vec::len), Some(1), "{drills:#}");
    assert_eq!(
        (&drills[0]["plan"], &drills[0]["outcome"]),
        (&json!("signed"), &json!("passed")),
        "{drills:#}"
    );
    until("east-1 leads", || leads(&east));
}

/// What has changed while the operator was asked is examined again.
#[test]
fn a_drill_of_a_site_is_refused_if_its_site_was_emptied_during_the_question() {
    let (stage, _east, west) = two_sites("/approved-late");
    let plan = "plan.signed={ site = \"east\", approval = true }";
    let mut command = stage.command(&[plan]);
    let mut asked = OnTerminal::start(command.args(["drill", "--plan", "signed"]), 200, 30);
    asked.until_shown("needs an approval. Type east to approve it: ");
    stage.operator(&["evacuate", "east", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    asked.keys.write_all(b"east\n").expect("the terminal reads");
    asked.assert_ends(75);
    asked.until_shown("no job would move out of this site");
    let kept = |plan: &str| stage.operator(&["drill", "show", "last", "--plan", plan]);
    kept("signed").assert(1, &["plan signed: no drill yet"]);
    kept("../../evacuation").assert(64, &["is not the name of a plan"]);
}

#[test]
fn an_emergency_leadership_asks_for_the_whole_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    let led = dir.path().join("led");
    let command = || {
        let mut command = dr_worker();
        let job = format!(
            "job.orders.command=[\"/bin/sh\", \"-c\", \"echo $$ > {}; exec sleep 600\"]",
            led.display()
        );
        let state = format!("node.state_dir={}", dir.path().join("state").display());
        let settings = [
            "zookeeper.connect=127.0.0.1:1",
            "node.id=east-1",
            "node.site=east",
            "policy.sites=[\"east\", \"west\"]",
        ];
        set(&mut command, &settings);
        set(&mut command, &[&job, &state, "job.orders.stop_timeout=1s"]);
        command.args(["emergency-lead", "--i-accept-split-brain", "--token-above", "70"]);
        command
    };
    let mut asked = OnTerminal::start(&mut command(), 100, 60);
    asked.until_shown("Type this sentence to confirm it: ");
    asked.until_shown("it runs twice, and both write");
    asked.keys.write_all(b"yes\n").expect("the terminal reads");
    asked.assert_ends(1);
    asked.until_shown("not confirmed; nothing was changed");
    assert!(!led.exists());
    let mut asked = OnTerminal::start(&mut command(), 100, 60);
    asked.until_shown("Type this sentence to confirm it: ");
    asked.keys.write_all(b"I have fenced: site west\n").expect("the terminal reads");
    until("the job runs", || led.exists());
    asked.until_shown("leads without ZooKeeper");
    kill(Pid::from_raw(asked.child.0.id().cast_signed()), Signal::SIGINT).expect("it lives");
    asked.assert_ends(0);
    asked.until_shown("Once ZooKeeper has a quorum: dr-worker raise-token --job orders --above ");
}

#[test]
fn a_dry_run_shows_who_would_lead_and_writes_nothing() {
    let (stage, east, _west) = two_sites("/tried");
    let before = stage.json(&["list"]);
    for verb in [
        &["switchover", "--to", "west-1"][..],
        &["failover", "--to-site", "west"],
        &["failover", "--force"],
        &["drain", "east"],
        &["fail-site", "east"],
    ] {
        let verb = [verb, &["--dry-run"]].concat();
        let tried = stage.json(&verb);
        let slot = &tried["slots"][0];
        assert_eq!(
            (&slot["leads"]["member"], &slot["would_lead"]["member"]),
            (&"east-1".into(), &"west-1".into()),
            "{verb:?}: {tried:#}"
        );
        assert!(tried["dry_run"].as_str().is_some_and(|what| what.contains(verb[0])), "{tried}");
        let shown = stage.operator(&verb);
        shown.assert(0, &[]);
        for part in ["nothing is written", "east-1 (east) leads now, west-1 (west) would lead then"] {
            assert!(shown.stdout.contains(part), "{}", shown.stdout);
        }
    }
    // A member that is not fit to lead, and a site that is open already.
    stage.operator(&["switchover", "--to", "north-1", "--dry-run"]).assert(64, &["unknown member north-1"]);
    let open = stage.json(&["drain", "west", "--off", "--dry-run"]);
    assert_eq!(open["slots"][0]["unchanged"], true, "{open:#}");
    assert_eq!(stage.json(&["list"]), before);
    until("east-1 leads", || leads(&east));
    stage.operator(&["mode", "observe"]).assert(0, &[]);
    stage.operator(&["switchover", "--dry-run"]).assert(75, &["the mode is observe"]);
}

#[test]
fn a_command_that_waits_shows_the_phases() {
    let (stage, _east, west) = two_sites("/phases");
    let moved = stage.operator(&["switchover", "--wait"]);
    moved.assert(
        0,
        &["s  decided, in term 2", "s  released by east-1", "s  acquired by west-1", "s  west-1 is READY"],
    );
    assert_eq!(moved.stdout, "west-1 leads orders in term 2\n");
    until("west-1 leads", || leads(&west));
    let order: Vec<_> = ["decided", "released", "acquired", "is READY"]
        .map(|part| moved.stderr.find(part))
        .into_iter()
        .collect();
    assert!(order.is_sorted(), "{}", moved.stderr);
}

#[test]
fn waiting_for_zookeeper_is_shown_before_it_ends() {
    // It accepts connections and never answers.
    let (_listener, port) = taken_port();
    let mut command = dr_worker();
    set(&mut command, &[&format!("zookeeper.connect=127.0.0.1:{port}"), "zookeeper.connect_timeout=10m"]);
    let mut child =
        Ended(command.arg("list").stderr(Stdio::piped()).spawn().expect("dr-worker can be started"));
    let begun = Instant::now();
    let mut line = String::new();
    let mut stderr = BufReader::new(child.0.stderr.take().expect("a pipe"));
    while !line.contains("waiting for ZooKeeper") && stderr.read_line(&mut line).expect("text") > 0 {}
    println!("shown after {:?}", begun.elapsed());
    assert!(child.0.try_wait().expect("its own child").is_none(), "it waits still");
    let expected =
        format!("waiting for ZooKeeper at 127.0.0.1:{port}, for 10m at most (zookeeper.connect_timeout)\n");
    assert!(line.ends_with(&expected), "{line}");
}

#[test]
fn tables_fit_the_terminal() {
    let stage = Stage::new("/narrow");
    let long = "a-member-with-a-name-as-long-as-some-clouds-give-them-1";
    let east = stage.worker(
        long,
        "east",
        &["node.attributes={ rack = \"r7\", zone = \"a-zone-with-a-long-name\" }"],
    );
    until("it leads", || leads(&east));
    let _west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    stage.operator(&["switchover", "--reason", "a test", "--wait"]).assert(0, &[]);
    until("it is in the history", || {
        stage.json(&["history"])["leaderships"].as_array().is_some_and(|all| all.len() == 2)
    });
    let verbs = ["list", "history", "explain"];
    for verb in verbs {
        let narrow = Outcome::of(stage.command(&[]).env("COLUMNS", "80").arg(verb));
        narrow.assert(0, &[]);
        assert!(!narrow.stdout.contains('\x1b'), "{}", narrow.stdout);
        let mut table = narrow.stdout.lines().skip_while(|line| !line.contains("  SITE  ")).peekable();
        assert!(table.peek().is_some(), "{}", narrow.stdout);
        let too_wide = table
            .take_while(|line| !line.starts_with("  ") || line.starts_with("    "))
            .find(|l| l.len() > 80);
        assert_eq!(too_wide, None, "{}", narrow.stdout);
        assert!(narrow.stdout.contains("a-member-with-"), "{}", narrow.stdout);
        // On a terminal all lines fit.
        let mut on_terminal = OnTerminal::start(stage.command(&[]).arg(verb), 72, 30);
        on_terminal.assert_ends(0);
        let shown = on_terminal.shown();
        assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 72), "{shown}");
        // A pipe has no width.
        let wide = Outcome::of(stage.command(&[]).env_remove("COLUMNS").arg(verb)).stdout;
        assert!(wide.lines().any(|line| line.contains(long) && line.contains("  east  ")), "{wide}");
    }
    let wide = Outcome::of(stage.command(&[]).env_remove("COLUMNS").arg("history")).stdout;
    assert_eq!(wide.lines().count(), 3, "{wide}");
}

#[test]
fn colours_are_for_terminals_and_not_for_all() {
    let (stage, _east, _west) = two_sites("/coloured");
    for verb in ["list", "explain", "history"] {
        for (value, coloured) in [(None, true), (Some("1"), false)] {
            let mut command = stage.command(&[]);
            command.env_remove("NO_COLOR").env_remove("CLICOLOR");
            command.envs(value.map(|value| ("NO_COLOR", value))).arg(verb);
            let mut shown = OnTerminal::start(&mut command, 80, 24);
            shown.assert_ends(0);
            until("something is shown", || !shown.shown().is_empty());
            assert_eq!(
                shown.shown().contains('\x1b'),
                coloured,
                "{verb}, NO_COLOR {value:?}: {}",
                shown.shown()
            );
        }
        let piped = Outcome::of(stage.command(&[]).env_remove("NO_COLOR").arg(verb));
        assert!(!piped.stdout.contains('\x1b') && !piped.stderr.contains('\x1b'), "{}", piped.stdout);
    }
}

#[test]
fn list_watch_redraws_on_a_terminal_with_a_clock() {
    let (stage, _east, _west) = two_sites("/redrawn");
    let mut watching = OnTerminal::start(stage.command(&[]).args(["list", "--watch"]), 80, 12);
    let frames = |shown: &str| -> Vec<String> { shown.split("\x1b[H").skip(1).map(str::to_owned).collect() };
    let clocks = |shown: &str| -> Vec<String> {
        let mut clocks: Vec<_> = frames(shown).iter().filter_map(|f| Some(f.get(..20)?.to_owned())).collect();
        clocks.dedup();
        clocks
    };
    until("the clock goes on", || clocks(&watching.shown()).len() >= 3);
    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    watching.until_shown("west-1 (west) leads");
    kill(Pid::from_raw(watching.child.0.id().cast_signed()), Signal::SIGINT).expect("it lives");
    watching.assert_ends(0);
    let shown = watching.shown();
    assert!(!shown.contains("\x1b[?"), "a mode of the terminal was changed: {shown:?}");
    for frame in frames(&shown) {
        let lines: Vec<_> = frame.split("\x1b[K").collect();
        assert!(lines.len() <= 12, "{frame:?}");
        assert!(lines.iter().all(|line| line.trim().len() <= 80), "{frame:?}");
    }
    // The cursor is below the last text.
    assert!(shown.ends_with("\x1b[J"), "{shown:?}");
}

#[test]
fn list_watch_in_a_pipe_prints_a_table_for_each_change() {
    let (stage, _east, _west) = two_sites("/piped");
    let mut command = stage.command(&[]);
    let mut child =
        Ended(command.args(["list", "--watch"]).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("a pipe")).lines();
    let mut up_to = |part: &str| -> Vec<String> {
        let mut seen = Vec::new();
        for line in lines.by_ref() {
            seen.push(line.expect("text"));
            if seen.last().is_some_and(|line| line.contains(part)) {
                break;
            }
        }
        assert!(seen.last().is_some_and(|line| line.contains(part)), "{seen:#?}");
        seen
    };
    let mut all = up_to("* elector");
    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    all.extend(up_to("west-1 (west) leads"));
    kill(Pid::from_raw(child.0.id().cast_signed()), Signal::SIGINT).expect("it lives");
    assert_eq!(child.0.wait().expect("its own child").code(), Some(0));
    assert!(all.iter().all(|line| !line.contains('\x1b')), "{all:#?}");
}

#[test]
fn results_and_errors_are_json_where_that_is_asked_for() {
    let (stage, _east, _west) = two_sites("/objects");
    for (verb, code) in [
        (&["list"][..], 0),
        (&["history"], 0),
        (&["explain"], 0),
        (&["simulate", "--without", "east-1"], 0),
        (&["drain", "west"], 0),
        (&["drain", "west", "--off"], 0),
        (&["fail-site", "west", "--yes"], 0),
        (&["fail-site", "west", "--off"], 0),
        (&["prefer", "west"], 0),
        (&["prefer", "--off"], 0),
        (&["mode", "observe"], 0),
        (&["mode", "auto"], 0),
        (&["pause"], 0),
        (&["resume"], 0),
        (&["stay"], 0),
        (&["stay", "--off"], 0),
        (&["confirm", "west"], 0),
        (&["confirm", "--off"], 0),
        (&["ack"], 0),
        (&["raise-token", "--above", "1", "--yes"], 0),
        (&["remove-ghosts"], 0),
        (&["cancel", "r-0000000007"], 1),
        (&["assert", "--token", "1"], 1),
        (&["drain", "nowhere"], 64),
        (&["switchover", "--to", "east-1"], 0),
        (&["switchover", "--wait"], 0),
        (&["failover", "--wait"], 0),
        (&["switchover", "--dry-run"], 0),
        (&["config", "show"], 78),
        (&["config", "check"], 78),
    ] {
        let outcome = stage.operator(&[verb, &["--output", "json"]].concat());
        assert_eq!(outcome.code, Some(code), "{verb:?}: {}", outcome.stderr);
        assert_eq!(outcome.stdout.lines().count(), 1, "{verb:?}: {}", outcome.stdout);
        let object: Value = serde_json::from_str(&outcome.stdout).expect("one object");
        let error = if code == 0 { Value::Null } else { json!(code) };
        assert_eq!(object["error"]["code"], error, "{verb:?}: {object}");
    }
}
