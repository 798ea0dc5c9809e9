//! Drills between the command and real workers: who begins when, and what the command does without its reservation.

use std::time::Duration;

use crate::support::{
    Background, LONG, Outcome,
    stage::{Stage, leads},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use zk_session::{AclEntry, CreateMode, Id, Session, permission};

const ROOT: &str = "/drill-members";

fn path(of: &str) -> String {
    format!("{ROOT}/orders/{of}")
}

async fn record(session: &Session, of: &str) -> Option<Value> {
    let node = session.get(&path(of)).await.expect("it may be read")?;
    Some(serde_json::from_slice(&node.data).expect("JSON"))
}

/// Whether anyone may read the history.
async fn open_history(session: &Session, is_open: bool) {
    let permissions = if is_open { permission::ALL } else { permission::ALL & !permission::READ };
    let anyone = AclEntry { permissions, id: Id::new("world", "anyone") };
    session.set_acl(&path("history"), &[anyone], None).await.expect("it is there");
}

#[test]
fn members_begin_together_and_a_command_conducts_only_its_own_drill() {
    let stage = Stage::new(ROOT);
    let (_file, tokens) = stage.tokens("0123456789abcdef0123\n");
    let settings = [
        "policy.min_tenure=0s",
        "drill.allow=[\"rehearse\", \"kill-job\", \"cut-site\"]",
        // A rehearsal is never ready.
        "job.orders.ready={ kind = \"exec\", command = [\"sh\", \"-c\", \"test -z \\\"$DR_REHEARSAL\\\"\"] }",
        "job.orders.restart.backoff=2s",
        &tokens,
        "http.access.status=token",
    ];
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    let other = stage.worker("east-2", "east", &settings);
    let west = stage.worker("west-1", "west", &settings);
    until("both are standby", || [&other, &west].iter().all(|worker| worker.code("/standby") == 200));
    let drill = |plan: &str, options: &[&str]| {
        let plan = format!("--set=drill.it={{ job = \"orders\", stay = \"1s\", {plan} }}");
        let mut command = stage.command(&["policy.min_tenure=0s"]);
        command.args([&plan, "--output", "json", "drill", "--plan", "it", "--yes"]).args(options);
        command
    };

    // The command may read neither the leader's status nor the history.
    Stage::with_session(async |session| open_history(&session, false).await);
    let said = Outcome::of(&mut drill("mode = \"kill-job\"", &[]));
    said.assert(0, &["the history could not be read"]);
    Stage::with_session(async |session| open_history(&session, true).await);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert!(report["phases"]["takeover_ms"].as_u64() >= Some(2_000), "{report:#}");
    let run = report["run"].as_str().expect("its id");
    assert_eq!(stage.json(&["drill", "show", run]), report, "it is kept");

    // Another command has ended the drill, and begun its own.
    Stage::with_session(async |session| {
        let drill = Background::of(&mut drill("mode = \"rehearse\", to_site = \"west\"", &[]));
        let by = std::time::Instant::now() + LONG;
        let order = loop {
            match record(&session, "drill/order").await.filter(|order| order["go"] == true) {
                Some(order) => break order,
                None => assert!(std::time::Instant::now() < by, "the members were not let begin"),
            }
            // Between two looks, until the deadline above.
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let kept = format!("drill/runs/{}", order["run"].as_str().expect("its id"));
        let mut report = record(&session, &kept).await.expect("a report");
        (report["outcome"], report["sentence"]) = (json!("interrupted"), json!("its command was lost"));
        session.set(&path(&kept), report.to_string(), None).await.expect("it is there");
        session.delete(&path("drill/conductor"), None).await.expect("it is there");
        session.create(&path("drill/conductor"), "d-other", CreateMode::Ephemeral).await.expect("it is free");
        let said = drill.outcome();
        said.assert(1, &["the session of this command has ended", "another command has ended drill"]);
        assert_eq!(record(&session, &kept).await.expect("a report"), report);
        let conductor = session.get(&path("drill/conductor")).await.expect("it may be read");
        assert_eq!(conductor.expect("that of the other command").data, b"d-other");
    });

    // One of the site does not answer: the other is not cut off.
    other.signal(Signal::SIGSTOP);
    let said = Outcome::of(&mut drill("mode = \"cut-site\", to_site = \"west\"", &[]));
    other.signal(Signal::SIGCONT);
    said.assert(75, &["east-2 did not answer within 10s", "nothing was moved"]);
    let answer = Stage::with_session(async |session| record(&session, "drill/answers/east-1").await);
    let answer = answer.expect("it has agreed");
    let steps = answer["steps"].as_array().expect("steps").iter().map(|step| &step["state"]);
    assert_eq!(steps.collect::<Vec<_>>(), ["accepted", "failed"]);
    assert!(leads(&east));
}
