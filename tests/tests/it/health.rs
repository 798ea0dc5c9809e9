//! Jobs that run and do not serve, unfit members, and members without a check.

use std::fs;
use std::path::Path;

use e2e::{Cluster, Driver, SOON, Setup, wait_for};
use serde_json::Value;

/// How often a check runs, and how long it may take: a busy machine must not make a check that passes one that fails.
const ANSWERS: &str = "3s";

const WORKERS: [(&str, &str); 3] = [("east-1", "east"), ("east-2", "east"), ("west-1", "west")];

/// Passes on members without a file of their name.
fn unless_marked(files: &Path, why: &str) -> Vec<String> {
    let script = format!("[ ! -e {}/$DR_MEMBER ] || {{ echo {why} >&2; exit 1; }}", files.display());
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

/// `check` is `liveness` or `fitness`.
fn setup(check: &str, files: &Path, why: &str) -> Setup {
    let key = |name: &str| format!("job.orders.{check}.{name}");
    Setup::new(Driver::Native)
        .workers(&WORKERS)
        .set("policy.on_leader_failure", "same-site-first")
        .set(&key("kind"), "exec")
        .set(&key("command"), unless_marked(files, why))
        .set(&key("interval"), ANSWERS)
        .set(&key("timeout"), ANSWERS)
        .set(&key("failures"), 2)
}

fn member<'a>(listed: &'a Value, id: &str) -> &'a Value {
    let members = listed["members"].as_array().unwrap();
    members.iter().find(|member| member["member"] == id).unwrap_or(&Value::Null)
}

async fn healths_are(cluster: &Cluster, expected: &[(&str, &str)]) {
    wait_for(&format!("the health of {expected:?}"), SOON, async || {
        // There may be no election yet.
        let said = cluster.operator().run(&["--output", "json", "list"]).await;
        if said.code != Some(0) {
            return Err(said.stderr);
        }
        let listed = said.json();
        let as_expected = |(id, health): &(&str, &str)| member(&listed, id)["health"] == *health;
        if expected.iter().all(as_expected) { Ok(()) } else { Err(format!("{:#}", listed["members"])) }
    })
    .await;
}

/// The program runs, holds leadership, and does not answer.
#[tokio::test]
async fn a_job_that_stops_answering_is_started_again_and_then_moved() {
    let files = tempfile::tempdir().unwrap();
    let setup = setup("liveness", files.path(), "nobody answers")
        .set("job.orders.restart.max", 1)
        .set("job.orders.restart.backoff", "10ms");
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    assert_eq!(first.site, "east");
    let other = if first.member == "east-1" { "east-2" } else { "east-1" };
    cluster.acts(first.token).await;

    fs::write(files.path().join(&first.member), "").unwrap();
    let words = "liveness: the probe ended: exit code 1 nobody answers";
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(second.member, other);
    // On its own node first, under the same token.
    assert_eq!(cluster.journal().acting(first.token).unwrap().mains.len(), 2);
    let listed = cluster.operator().done(&["list"]).await.stdout;
    assert!(listed.contains(words), "{listed}");
    let elected = cluster.znodes().await.decision("orders").await;
    let excluded = elected["exclusions"][0].clone();
    assert_eq!(excluded["member"], first.member, "{elected:#}");
    assert!(excluded["reason"].as_str().unwrap().contains(words), "{excluded}");
    let history = cluster.operator().done(&["history"]).await.stdout;
    assert!(history.contains(words), "{history}");
    let status = cluster.worker(&first.member).status().await.unwrap();
    let process = &status["jobs"]["orders"]["process"];
    assert_eq!((&process["state"], &process["problem"]), (&"fatal".into(), &words.into()), "{process:#}");
    let (_, metrics) = cluster.worker(&first.member).get("/metrics").await.unwrap();
    let counted = metrics.lines().find(|line| line.starts_with("dr_liveness_failures_total{"));
    assert!(counted.is_some_and(|line| line.ends_with(" 2")), "{metrics}");
    cluster.journal().assert_one_at_a_time();
    // The members have no fitness check.
    healths_are(&cluster, &WORKERS.map(|(id, _)| (id, "unchecked"))).await;
    cluster.end().await;
}

#[tokio::test]
async fn a_member_that_is_not_fit_makes_room_and_is_not_elected() {
    let files = tempfile::tempdir().unwrap();
    let mark = |id: &str| fs::write(files.path().join(id), "").unwrap();
    let unmark = |id: &str| fs::remove_file(files.path().join(id)).unwrap();
    // Unfit from the start, and first in order: it never leads.
    mark("east-1");
    let why = "fitness: the probe ended: exit code 1 the disk is full";
    let mut cluster = Cluster::of(setup("fitness", files.path(), "the disk is full")).await;
    let first = cluster.first_leader().await;
    assert_eq!((first.member.as_str(), first.term), ("east-2", 1));
    healths_are(&cluster, &[("east-1", why), ("east-2", "healthy"), ("west-1", "healthy")]).await;
    assert_eq!(cluster.worker("east-1").code("/standby").await, Some(503));
    let status = cluster.worker("east-1").status().await.unwrap();
    assert_eq!(status["jobs"]["orders"]["health"], why);
    let explained = cluster.as_worker("east-1").done(&["explain"]).await.stdout;
    assert!(explained.contains(&format!("unhealthy: {why}")), "{explained}");
    let (_, metrics) = cluster.worker("east-1").get("/metrics").await.unwrap();
    let gauge = metrics.lines().find(|line| line.starts_with("dr_healthy{"));
    assert!(gauge.is_some_and(|line| line.ends_with(" 0")), "{metrics}");

    // On the leader: leadership moves to the only other fit member, though another member of its site is preferred.
    mark("east-2");
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(second.member, "west-1");
    let elected = cluster.znodes().await.decision("orders").await;
    assert_eq!(elected["cause"], "unhealthy", "{elected:#}");
    assert!(elected["sentence"].as_str().unwrap().contains(why), "{elected:#}");
    assert!(cluster.operator().done(&["history"]).await.stdout.contains(why));

    // Without another fit member it keeps leading.
    mark("west-1");
    healths_are(&cluster, &[("east-1", why), ("east-2", why), ("west-1", why)]).await;
    wait_for("a leader that is not fit and leads on", SOON, async || {
        let explained = cluster.as_worker("west-1").done(&["explain"]).await.stdout;
        if explained.contains("no other member may lead now") { Ok(()) } else { Err(explained) }
    })
    .await;
    assert_eq!(cluster.leader().await.unwrap().token, second.token);
    // After one success a member is elected again.
    unmark("east-1");
    let third = cluster.successor_of(&second, SOON).await;
    assert_eq!(third.member, "east-1");
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// A restart begins with a check: all wait for one result, and no longer.
#[tokio::test]
async fn a_member_is_not_elected_before_its_first_answer() {
    let files = tempfile::tempdir().unwrap();
    let answers = format!("while [ ! -e {}/go ]; do sleep 0.05; done", files.path().display());
    let setup = setup("fitness", files.path(), "-")
        .workers(&WORKERS[..1])
        .set("policy.startup_wait", "0s")
        .set("job.orders.fitness.command", vec!["sh".to_owned(), "-c".to_owned(), answers])
        .set("job.orders.fitness.interval", "10m")
        .set("job.orders.fitness.timeout", "10m");
    let mut cluster = Cluster::of(setup).await;
    healths_are(&cluster, &[("east-1", "unknown")]).await;
    wait_for("an elector that waits", SOON, async || {
        let status = cluster.worker("east-1").status().await.ok_or("no answer")?;
        let note = status["jobs"]["orders"]["note"].as_str().unwrap_or_default().to_owned();
        if note.contains("has not been answered yet") { Ok(()) } else { Err(format!("{status:#}")) }
    })
    .await;
    assert!(cluster.leader().await.is_err(), "there is a leader");
    assert_eq!(cluster.worker("east-1").code("/standby").await, Some(503));
    fs::write(files.path().join("go"), "").unwrap();
    let first = cluster.first_leader().await;
    healths_are(&cluster, &[("east-1", "healthy")]).await;
    assert_eq!(first.term, 1);
    cluster.end().await;
}
