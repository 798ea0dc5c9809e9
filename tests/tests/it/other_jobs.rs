//! Jobs that are led beside another job or apart from it, and that start after it and stop before it.

use std::path::Path;

use e2e::{Cluster, Driver, JOB, SOON, Setup, Worker, wait_for};

/// The job that goes by the usual one.
const WEB: &str = "web";

fn two_sites() -> Setup {
    Setup::new(Driver::Native)
        .workers(&[("east-1", "east"), ("east-2", "east"), ("west-1", "west")])
        .set("policy.min_tenure", "0s")
        .set("policy.failback_after", "0s")
        .set("job.web.command", vec!["sleep", "3600"])
        .set("job.web.stop_timeout", "1s")
}

fn with_job(strength: &str, place: &str) -> Setup {
    let stage =
        format!("{{ stage = 'with-job', job = '{JOB}', place = '{place}', strength = '{strength}' }}");
    let pipeline: toml::Table =
        toml::from_str(&format!("pipeline = [{stage}, 'site-order', 'incumbent']")).unwrap();
    two_sites().set("job.web.policy.pipeline", pipeline["pipeline"].clone())
}

fn site_of(member: &str) -> &str {
    member.split('-').next().unwrap()
}

/// Waits until the leaders of the two jobs are in one site or in two, and returns them.
async fn led(cluster: &mut Cluster, together: bool) -> (String, String) {
    let what = if together { "both jobs in one site" } else { "the jobs in two sites" };
    wait_for(what, SOON, async || {
        let orders = cluster.leader_of(JOB).await?.member;
        let web = cluster.leader_of(WEB).await?.member;
        if (site_of(&orders) == site_of(&web)) == together {
            Ok((orders, web))
        } else {
            Err(format!("{orders} and {web}"))
        }
    })
    .await
}

async fn switch_over(cluster: &Cluster, options: &[&str]) {
    let command = ["switchover", "--wait", "--job"].iter().chain(options).copied().collect::<Vec<_>>();
    cluster.operator().done(&command).await;
}

#[tokio::test]
async fn a_job_follows_another_and_stays_where_it_is_while_that_one_is_paused() {
    let mut cluster = Cluster::of(with_job("require", "site")).await;
    let (orders, _) = led(&mut cluster, true).await;
    let other = if site_of(&orders) == "east" { "west-1" } else { "east-1" };
    // No automatic moves are configured: what it requires moves it all the same.
    switch_over(&cluster, &[JOB, "--to", other]).await;
    let (orders, _) = led(&mut cluster, true).await;
    assert_eq!(orders, other);
    let explained = cluster.operator().done(&["explain", "--job", WEB]).await.stdout;
    let follows = format!("follows {JOB}, which leads in {}", site_of(other));
    assert!(explained.contains(&follows), "{explained}");

    cluster.operator().done(&["pause", "--job", JOB]).await;
    let back = if other == "west-1" { "east-1" } else { "west-1" };
    let before = cluster.leader_of(WEB).await.unwrap();
    switch_over(&cluster, &[JOB, "--to", back]).await;
    assert_eq!(cluster.leader_of(WEB).await.unwrap().term, before.term, "a paused job moves no other");
    cluster.operator().done(&["resume", "--job", JOB]).await;
    let (orders, _) = led(&mut cluster, true).await;
    assert_eq!(orders, back);
    cluster.end().await;
}

#[tokio::test]
async fn a_job_without_a_fit_member_beside_the_other_stays_and_says_why() {
    let mut cluster = Cluster::of(with_job("require", "site")).await;
    let (orders, _) = led(&mut cluster, true).await;
    if site_of(&orders) == "west" {
        switch_over(&cluster, &[JOB, "--to", "east-1"]).await;
        led(&mut cluster, true).await;
    }
    cluster.operator().done(&["drain", "west", "--job", WEB]).await;
    switch_over(&cluster, &[JOB, "--to", "west-1"]).await;
    let (_, web) = led(&mut cluster, false).await;
    let explained = cluster.operator().done(&["explain", "--job", WEB]).await.stdout;
    assert!(explained.contains(&format!("it must lead beside {JOB} which leads in west")), "{explained}");
    assert!(explained.contains("site west is drained"), "{explained}");
    // Without a leader there is none until a member may lead there.
    cluster.worker(&web).kill();
    let alone = wait_for("no leader", SOON, async || match cluster.leader_of(WEB).await {
        Ok(leader) => Err(format!("{leader:?}")),
        Err(none) => Ok(none),
    });
    alone.await;
    cluster.operator().done(&["drain", "west", "--off", "--job", WEB]).await;
    led(&mut cluster, true).await;
    cluster.end().await;
}

#[tokio::test]
async fn a_site_is_emptied_of_a_job_that_must_lead_beside_another() {
    let mut cluster = Cluster::of(with_job("require", "site")).await;
    let (orders, _) = led(&mut cluster, true).await;
    if site_of(&orders) == "west" {
        switch_over(&cluster, &[JOB, "--to", "east-1"]).await;
        led(&mut cluster, true).await;
    }
    let lost = cluster.operator().json(&["simulate", "--job", WEB, "--without-site", "east"]).await;
    assert_eq!(lost["slots"][0]["would_lead"]["site"], "west", "{lost:#}");
    let moved = cluster.operator().json(&["evacuate", "east", "--wait"]).await;
    assert_eq!((&moved["steps"][1]["job"], &moved["steps"][1]["after"][0]), (&WEB.into(), &JOB.into()));
    assert_eq!(led(&mut cluster, true).await, ("west-1".to_owned(), "west-1".to_owned()));

    // There is nothing left to move, and everything to move back.
    cluster.operator().done(&["evacuate", "east", "--wait"]).await;
    cluster.operator().done(&["evacuate", "east", "--undo", "--wait"]).await;
    let (orders, _) = led(&mut cluster, true).await;
    assert_eq!(site_of(&orders), "east");
    for job in [JOB, WEB] {
        let list = cluster.operator().json(&["list", "--job", job]).await;
        assert_eq!(list["drained"], serde_json::json!([]), "{list:#}");
    }

    cluster.site("east").for_each(Worker::kill_with_guards);
    let forced = cluster.operator().json(&["evacuate", "east", "--force", "--yes", "--wait"]).await;
    assert_eq!(forced["phase"], "done", "{forced:#}");
    assert_eq!(led(&mut cluster, true).await, ("west-1".to_owned(), "west-1".to_owned()));
    cluster.end().await;
}

#[tokio::test]
async fn a_job_keeps_apart_from_another_and_makes_room_for_it() {
    let places = [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")];
    let mut cluster = Cluster::of(with_job("apart", "site").workers(&places)).await;
    let (_, web) = led(&mut cluster, false).await;
    switch_over(&cluster, &[JOB, "--to", &web]).await;
    let (orders, _) = led(&mut cluster, false).await;
    assert_eq!(orders, web);
    // Its elector may be lost as well.
    cluster.worker(&orders).kill();
    led(&mut cluster, false).await;
    cluster.end().await;
}

/// What the programs have written, in order.
fn lines(log: &Path) -> Vec<String> {
    std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until the programs have written so many lines.
async fn written(log: &Path, count: usize) -> Vec<String> {
    wait_for("what the programs do", SOON, async || {
        let lines = lines(log);
        if lines.len() >= count { Ok(lines) } else { Err(format!("{lines:?}")) }
    })
    .await
}

/// A program that writes its start, and its end so many seconds after it is told to.
fn program(log: &Path, name: &str, before_end: &str) -> Vec<String> {
    let log = log.display();
    let script = format!(
        "trap 'sleep {before_end}; echo {name} stops >> {log}; exit' TERM; echo {name} starts >> {log}; \
         while :; do sleep 0.1; done"
    );
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

/// `web` starts after `db`.
fn after_db(log: &Path) -> Setup {
    let ready = toml::toml! { kind = "none" after = "500ms" };
    two_sites()
        .set("job.db.command", program(log, "db", "0"))
        .set("job.db.ready", ready)
        .set("job.db.stop_timeout", "1s")
        .set("job.db.planned_stop_timeout", "20s")
        .set("job.web.command", program(log, "web", "0.5"))
        .set("job.web.after", vec!["db"])
}

#[tokio::test]
async fn a_job_that_is_not_ready_yet_stops_before_another_and_when_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let (log, gate) = (dir.path().join("log"), dir.path().join("gate"));
    let is_ready = vec!["test", "-e", gate.to_str().unwrap()];
    let setup = after_db(&log)
        .set("job.web.ready.kind", "exec")
        .set("job.web.ready.command", is_ready)
        .set("job.web.ready.interval", "100ms")
        .set("job.web.policy.takeover_timeout", "60s");
    let mut cluster = Cluster::of(setup).await;
    assert_eq!(written(&log, 2).await, ["db starts", "web starts"]);
    let db = wait_for("a leader", SOON, async || cluster.leader_of("db").await).await;
    let other = if db.member == "west-1" { "east-1" } else { "west-1" };
    switch_over(&cluster, &["db", "--to", other]).await;
    assert_eq!(written(&log, 6).await[2..], ["web stops", "db stops", "db starts", "web starts"]);

    cluster.operator().done(&["stop", "--job", WEB]).await;
    assert_eq!(written(&log, 7).await[6..], ["web stops"]);
    let stopped = cluster.operator().json(&["list", "--job", WEB]).await;
    assert_eq!(stopped["requests"][0]["outcome"]["state"], "done", "{stopped:#}");
    std::fs::write(&gate, "").unwrap();
    cluster.operator().done(&["start", "--job", WEB]).await;
    assert_eq!(written(&log, 8).await[7..], ["web starts"]);
    cluster.end().await;
}

#[tokio::test]
async fn a_job_starts_after_another_stops_before_it_and_restarts_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let setup = after_db(&log)
        .set("job.web.stop_timeout", "1s")
        .set("job.web.planned_stop_timeout", "10s")
        .set("job.web.restart_with", true);
    let mut cluster = Cluster::of(setup).await;
    assert_eq!(written(&log, 2).await, ["db starts", "web starts"]);

    // A planned move.
    let db = wait_for("a leader", SOON, async || cluster.leader_of("db").await).await;
    let other = if db.member == "west-1" { "east-1" } else { "west-1" };
    switch_over(&cluster, &["db", "--to", other]).await;
    assert_eq!(written(&log, 6).await[2..], ["web stops", "db stops", "db starts", "web starts"]);

    // A failure: it runs on, and is restarted.
    let web = cluster.leader_of(WEB).await.unwrap().member;
    if web == other {
        let away = if other == "west-1" { "east-1" } else { "west-1" };
        switch_over(&cluster, &[WEB, "--to", away]).await;
        assert_eq!(written(&log, 8).await[6..], ["web stops", "web starts"]);
    }
    let before = lines(&log).len();
    cluster.worker(other).kill();
    let after = written(&log, before + 4).await;
    assert_eq!(after[before..], ["db stops", "db starts", "web stops", "web starts"]);
    cluster.end().await;
}
