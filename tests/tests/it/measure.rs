//! Measurements of a job's own command: a member that lags too far behind does not lead, and fluctuating values are no
//! order.

use std::fs;

use e2e::{Cluster, Driver, SOON, Setup, wait_for};

const WORKERS: [(&str, &str); 3] = [("east-1", "east"), ("west-1", "west"), ("west-2", "west")];

fn setup(files: &tempfile::TempDir) -> Setup {
    let files = files.path().display();
    let limit: toml::Table = toml::from_str(
        "pipeline = [{ stage = 'limit', attribute = 'lag', at_most = 10 }, 'site-order', 'incumbent']",
    )
    .unwrap();
    // The file of each member; without it the command fails.
    let command = vec!["sh".to_owned(), "-c".to_owned(), format!("cat {files}/$DR_MEMBER")];
    Setup::new(Driver::Native)
        .workers(&WORKERS)
        .set("policy.pipeline", limit["pipeline"].clone())
        .set("job.orders.measure.command", command)
        .set("job.orders.measure.interval", "100ms")
        .set("job.orders.measure.keep", "500ms")
}

async fn line_is(cluster: &Cluster, line: &[&str]) {
    wait_for(&format!("the line {line:?}"), SOON, async || {
        let elected = cluster.znodes().await.decision("orders").await;
        let succession = elected["succession"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = succession.iter().filter_map(|named| named["member"].as_str()).collect();
        if names == line { Ok(()) } else { Err(format!("{elected:#}")) }
    })
    .await;
}

#[tokio::test]
async fn who_lags_behind_does_not_lead_unless_an_operator_accepts_the_loss() {
    let files = tempfile::tempdir().unwrap();
    let say = |member: &str, text: &str| {
        // Atomic, because it is read all the time.
        let new = files.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, files.path().join(member)).unwrap();
    };
    // Nobody else may follow at first: whoever measures first is named first.
    say("east-1", "lag=0");
    say("west-1", "lag=50");
    say("west-2", "{\"lag\": 50}");
    let mut cluster = Cluster::of(setup(&files)).await;
    let first = cluster.first_leader().await;
    assert_eq!(first.member, "east-1");
    say("west-2", "{\"lag\": 3}");
    line_is(&cluster, &["west-2"]).await;
    let listed = cluster.operator().done(&["list"]).await.stdout;
    assert!(listed.contains("lag=50") && listed.contains("lag=3"), "{listed}");
    let (_, metrics) = cluster.worker("west-1").get("/metrics").await.unwrap();
    let gauge = metrics.lines().find(|line| line.starts_with("dr_measured{"));
    assert!(gauge.is_some_and(|line| line.contains("name=\"lag\"") && line.ends_with(" 50")), "{metrics}");

    cluster.worker("east-1").kill();
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(second.member, "west-2");
    let elected = cluster.znodes().await.decision("orders").await;
    let sentence = elected["sentence"].as_str().unwrap();
    assert!(sentence.contains("lag 3 of at most 10"), "{sentence}");

    // Not by an operator's request either: only if the operator accepts the loss, which is recorded.
    let refused = cluster.operator().run(&["switchover", "--to", "west-1", "--wait"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let why = "west-1: lag is 50 and the limit is 10); a failover with accept_loss names one";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    cluster.operator().done(&["failover", "--to", "west-1", "--accept-loss", "--wait"]).await;
    let third = cluster.successor_of(&second, SOON).await;
    assert_eq!(third.member, "west-1");
    let accepted = "the loss is accepted: lag is 50 and the limit is 10";
    let history = cluster.operator().json(&["history"]).await.to_string();
    assert!(history.contains(accepted), "{history}");

    // The lag of west-2 is unknown: it does not follow.
    fs::remove_file(files.path().join("west-2")).unwrap();
    line_is(&cluster, &[]).await;
    cluster.worker("west-1").kill();
    wait_for("no candidate", SOON, async || {
        let status = cluster.worker("west-2").status().await.ok_or("no answer")?;
        let note = status["jobs"]["orders"]["note"].as_str().unwrap_or_default().to_owned();
        if note.contains("west-2: lag is missing") { Ok(()) } else { Err(format!("{status:#}")) }
    })
    .await;
    assert!(cluster.leader().await.is_err(), "there is a leader");
    say("west-2", "lag=9");
    let fourth = cluster.successor_of(&third, SOON).await;
    assert_eq!(fourth.member, "west-2");
    let log = cluster.worker("west-2").log_text();
    assert_eq!(log.matches("the measure command failed").count(), 1, "it is said once: {log}");
    assert_eq!(log.matches("the measure command works again").count(), 1);
    cluster.end().await;
}

/// A measurement against each leader in turn would move the job in every interval if it were an order.
#[tokio::test]
async fn a_measured_never_moves_nobody_at_once() {
    let pipeline: toml::Table = toml::from_str("pipeline = ['class', 'site-order', 'incumbent']").unwrap();
    let command = ["sh", "-c", "[ $DR_ROLE = leader ] && echo class=never || echo class=prefer"];
    let setup = Setup::new(Driver::Native)
        .set("policy.pipeline", pipeline["pipeline"].clone())
        .set("job.orders.measure.command", command.map(str::to_owned).to_vec())
        .set("job.orders.measure.interval", "100ms");
    let mut cluster = Cluster::of(setup).await;
    // Whoever measures first.
    let first = cluster.first_leader().await;
    let seen = |explained: &str| explained.contains("failback_after") || explained.contains("better-after");
    wait_for("a better member", SOON, async || {
        let explained = cluster.operator().done(&["explain"]).await.stdout;
        let listed = cluster.operator().done(&["list"]).await.stdout;
        if listed.contains("class=never") && seen(&explained) { Ok(()) } else { Err(explained + &listed) }
    })
    .await;
    assert_eq!(cluster.leader().await.unwrap().term, first.term);
    // A command that has ended is not taken for a lost one.
    for worker in cluster.workers() {
        let log = worker.log_text();
        assert!(!log.contains("a guard has ended before its job"), "{log}");
    }
    cluster.end().await;
}
