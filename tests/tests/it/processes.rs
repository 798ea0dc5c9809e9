//! The processes of a job, and jobs that can't be started.

use std::time::Duration;

use e2e::{Acting, Cluster, Driver, Event, JOB, PACE, SOON, Setup, is_there, wait_for};
use serde_json::Value;
use zk_session::BootTime;

e2e::with_both_drivers!(
    a_job_that_ignores_sigterm_is_killed_with_its_grandchildren_within_its_budget,
    nothing_of_the_job_outlives_a_worker_that_is_killed,
    a_takeover_that_fails_is_taken_over_by_the_next_candidate,
    a_takeover_that_hangs_is_taken_over_by_the_next_candidate,
);

/// The job, its child, its child with its own session, and one that was forked twice.
const PROCESSES: usize = 4;

fn stubborn(driver: Driver) -> Setup {
    Setup::new(driver).job_options(&["--ignore-term", "--offspring"])
}

/// All of a stubborn job's processes act.
async fn all_act(cluster: &Cluster, token: u64) -> Acting {
    wait_for("all processes of the job", SOON, async || {
        let acting = cluster.journal().acting(token).ok_or("none")?;
        // One more process was started and ended meanwhile.
        let living = acting.pids.iter().filter(|pid| is_there(**pid)).count();
        if living == PROCESSES { Ok(acting) } else { Err(format!("{acting:?}")) }
    })
    .await
}

async fn a_job_that_ignores_sigterm_is_killed_with_its_grandchildren_within_its_budget(driver: Driver) {
    const STOP: Duration = Duration::from_secs(3);
    let setup = stubborn(driver).set("zookeeper.session_timeout", "10s");
    let mut cluster = Cluster::of(setup.set("job.orders.stop_timeout", "3s")).await;
    let first = cluster.settled().await;
    let acting = all_act(&cluster, first.token).await;

    cluster.operator().done(&["switchover", "--to-site", "west", "--wait"]).await;
    let left: Vec<_> = acting.pids.iter().filter(|pid| is_there(**pid)).collect();
    assert!(left.is_empty(), "of the old job are left: {left:?}");
    let second = cluster.successor_of(&first, SOON).await;
    all_act(&cluster, second.token).await;
    cluster.journal().assert_one_at_a_time();

    let stamps: Vec<_> = cluster.journal().stamps().into_iter().filter(|s| s.token == first.token).collect();
    let asked = stamps.iter().find(|s| s.event == Event::Asked);
    let asked = asked.expect("it was asked before it was killed").at;
    let acted_on = cluster.journal().acting(first.token).unwrap().to.duration_since(asked);
    // Between two acts a process rests for `PACE`. What a busy machine adds to the time adds nothing to the rests, because it
    // holds up the job as well as its guard.
    let acts = stamps.iter().filter(|s| s.is_main && s.at >= asked && s.event == Event::Act).count();
    let rested = PACE * u32::try_from(acts).unwrap();
    println!("{driver}: acted on for {acted_on:?} after SIGTERM, and rested for {rested:?} of it");
    assert!(acted_on > STOP.mul_f64(0.9), "it was not given its stop timeout: {acted_on:?}");
    assert!(rested < STOP.mul_f64(1.2), "it was not killed after it: {rested:?} of {acted_on:?}");
    cluster.end().await;
}

async fn nothing_of_the_job_outlives_a_worker_that_is_killed(driver: Driver) {
    // The lease is so long that a wait for its end would show.
    let mut cluster = Cluster::of(stubborn(driver).set("zookeeper.session_timeout", "10s")).await;
    let first = cluster.settled().await;
    let acting = all_act(&cluster, first.token).await;
    let worker = cluster.worker(&first.member);
    let guards = worker.guards();
    assert_eq!(guards.len(), 1, "one guard for one job");

    let killed = BootTime::now();
    worker.kill();
    let of_the_worker: Vec<u32> = acting.pids.iter().chain(&guards).copied().collect();
    wait_for("the end of the guard and of all that it guards", SOON, async || {
        let left: Vec<_> = of_the_worker.iter().filter(|pid| is_there(**pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let took = BootTime::now().duration_since(killed);
    println!("{driver}: all gone {took:?} after SIGKILL to the worker");
    // The guard took the worker's death as the order to end the job. It asked long before the lease ended: that lasts for half
    // of the timeout at least, because a heartbeat is sent each quarter of it.
    let asked = cluster.journal().stamps().into_iter().find(|stamp| stamp.event == Event::Asked);
    let after = asked.expect("it was not even asked first").at.duration_since(killed);
    assert!(after < Duration::from_secs(10) / 2, "the guard waited for the lease: {after:?}");
    cluster.end().await;
}

async fn a_takeover_that_fails_is_taken_over_by_the_next_candidate(driver: Driver) {
    let mut setup = Setup::new(driver);
    for id in ["east-1", "east-2"] {
        setup = setup
            .set_for(id, "job.orders.command", vec!["sh", "-c", "exit 3"])
            .set_for(id, "job.orders.ready.after", "1s")
            .set_for(id, "job.orders.restart.max", 1);
    }
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.leader_is("one whose job runs", SOON, |_| true).await;
    assert_eq!(leader.site, "west");
    cluster.acts(leader.token).await;

    // The decision is the elector's, with the reason, or that of the first in line, which was faster and has only seen
    // that the leader znode is gone. Then the elector adds the reason.
    wait_for("an exclusion that says why", SOON, async || {
        let list = cluster.operator().json(&["list", "--job", JOB]).await;
        let cause = list["slots"][0]["decision"]["given"]["cause"].as_str().unwrap();
        assert!(["takeover-failed", "leader-lost"].contains(&cause), "{list:#}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(excluded) = list["exclusions"].get(0) else { return Err(format!("{list:#}")) };
        assert!(text(&excluded["member"]).starts_with("east-"), "{list:#}");
        assert!(text(&excluded["reason"]).contains("takeover-failed"), "{list:#}");
        Ok(())
    })
    .await;
    cluster.end().await;
}

async fn a_takeover_that_hangs_is_taken_over_by_the_next_candidate(driver: Driver) {
    // The job runs and acts, and never reports that it is ready.
    let mut setup = Setup::new(driver).set("policy.takeover_timeout", "4s").unset("job.orders.ready");
    for id in ["east-1", "east-2"] {
        setup = setup.set_for(id, "job.orders.ready.kind", "notify");
    }
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.leader_is("one whose job is ready", SOON, |_| true).await;
    assert_eq!(leader.site, "west");
    cluster.acts(leader.token).await;

    let actings = cluster.journal().actings();
    assert!(actings.len() >= 2, "the one that hung had acted: {actings:?}");
    assert!(actings[0].member.starts_with("east-"), "{actings:?}");
    let hung = actings[0].to.duration_since(actings[0].from);
    assert!(hung > Duration::from_secs(2), "the watchdog waits for takeover_timeout: {hung:?}");
    cluster.journal().assert_one_at_a_time();

    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    assert_eq!(list["exclusions"][0]["member"], actings[0].member, "{list:#}");
    assert_eq!(list["slots"][0]["decision"]["given"]["cause"], "takeover-failed", "{list:#}");
    let failed = gauge(&mut cluster, &actings[0].member, "dr_takeover_failures_total").await;
    assert_eq!(failed, Some(1.0), "it is counted where it has failed, and once");
    cluster.end().await;
}

async fn gauge(cluster: &mut Cluster, worker: &str, name: &str) -> Option<f64> {
    let (_, text) = cluster.worker(worker).get("/metrics").await?;
    let (start, job) = (format!("{name}{{"), format!("job=\"{JOB}\""));
    let line = text.lines().find(|line| line.starts_with(&start) && line.contains(&job))?;
    line.rsplit(' ').next()?.parse().ok()
}

async fn unled(cluster: &mut Cluster, worker: &str) -> Option<f64> {
    gauge(cluster, worker, "dr_seconds_since_ready_leader").await
}

/// A resource of all members is missing for a while, and the test only restores it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_comes_back_ends_the_hold_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (there, starts) = (dir.path().join("there"), dir.path().join("starts"));
    let script = format!(
        "echo >> {starts}; test -e {there} || exit 1; while :; do sleep 1; done",
        starts = starts.display(),
        there = there.display()
    );
    let setup = Setup::new(Driver::Native)
        .unset("job.orders.ready")
        .unset("policy.max_takeovers")
        .set("job.orders.command", vec!["sh", "-c", &script]);
    let mut cluster = Cluster::of(setup).await;
    let held = wait_for("a hold", SOON, async || {
        let statuses = cluster.statuses().await;
        let elector = statuses.iter().find(|(_, status)| status["jobs"][JOB]["elector"] == true);
        let (elector, status) = elector.ok_or("no elector")?;
        let sentence = status["jobs"][JOB]["skipped"]["sentence"].as_str().unwrap_or_default();
        let (held, unled) =
            (gauge(&mut cluster, elector, "dr_held").await, unled(&mut cluster, elector).await);
        let is_held = sentence.starts_with("on hold until ") && held == Some(1.0) && unled > Some(0.0);
        if is_held { Ok(sentence.to_owned()) } else { Err(format!("{held:?}, {unled:?}: {status}")) }
    })
    .await;
    std::fs::write(&there, "").unwrap();
    let leader = cluster.leader_is("one whose job runs", SOON, |_| true).await;
    wait_for("metrics that say so", SOON, async || {
        let held = gauge(&mut cluster, &leader.member, "dr_held").await;
        let unled = unled(&mut cluster, &leader.member).await;
        if (held, unled) == (Some(0.0), Some(0.0)) { Ok(()) } else { Err(format!("{held:?}, {unled:?}")) }
    })
    .await;
    let starts = std::fs::read_to_string(&starts).unwrap().lines().count();
    println!("{held}; {starts} starts until {} led", leader.member);
    cluster.end().await;
}
