//! Jobs that are led beside another job, or apart from it.

use e2e::{Cluster, Driver, JOB, SOON, Setup, wait_for};

/// The job whose policy uses the leader of the usual one.
const WEB: &str = "web";

fn setup(stage: &str, auto: bool) -> Setup {
    let pipeline = format!("pipeline = [{{ stage = '{stage}', job = '{JOB}' }}, 'site-order', 'incumbent']");
    let pipeline: toml::Table = toml::from_str(&pipeline).unwrap();
    let setup = Setup::new(Driver::Native)
        .workers(&[("east-1", "east"), ("east-2", "east"), ("west-1", "west")])
        .set("policy.min_tenure", "0s")
        .set("policy.failback_after", "0s")
        .set("job.web.command", vec!["sleep", "3600"])
        .set("job.web.stop_timeout", "1s")
        .set("job.web.policy.on_leader_failure", "prefer-order")
        .set("job.web.policy.pipeline", pipeline["pipeline"].clone());
    if auto { setup.set("job.web.policy.auto_moves", "all") } else { setup }
}

/// Waits until one member or two lead the two jobs, and returns the leaders.
async fn led(cluster: &mut Cluster, together: bool) -> (String, String) {
    let what = if together { "one leader of both" } else { "a leader of each" };
    wait_for(what, SOON, async || {
        let orders = cluster.leader_of(JOB).await?.member;
        let web = cluster.leader_of(WEB).await?.member;
        if (orders == web) == together { Ok((orders, web)) } else { Err(format!("{orders} and {web}")) }
    })
    .await
}

/// Waits until a member publishes in the election of `WEB` that it leads the other job.
async fn says_it_leads(cluster: &Cluster, member: &str) {
    wait_for("what is published", SOON, async || {
        let record = cluster.znodes().await.json(&format!("{WEB}/nodes/{member}")).await;
        let is_measured = record["measured"].as_array().is_some_and(|all| all.contains(&"dr.leads".into()));
        let says = record["attributes"]["dr.leads"] == JOB && is_measured;
        if says { Ok(()) } else { Err(format!("{record:#}")) }
    })
    .await;
}

async fn switch_over(cluster: &Cluster, options: &[&str]) {
    let command = ["switchover", "--wait", "--job"].iter().chain(options).copied().collect::<Vec<_>>();
    cluster.operator().done(&command).await;
}

#[tokio::test]
async fn a_job_keeps_apart_from_another_and_makes_room_for_it() {
    let mut cluster = Cluster::of(setup("apart-from", true)).await;
    // Both may be elected at the same moment: then the job moves once that is known.
    let (orders, web) = led(&mut cluster, false).await;
    says_it_leads(&cluster, &orders).await;
    switch_over(&cluster, &[JOB, "--to", &web]).await;
    let (orders, web) = led(&mut cluster, false).await;
    let explained = cluster.operator().done(&["explain", "--job", WEB]).await.stdout;
    assert!(explained.contains("apart-from") && explained.contains(&format!("leads {JOB}")), "{explained}");

    // The successor is not the leader of the other job.
    says_it_leads(&cluster, &orders).await;
    cluster.worker(&web).kill();
    let heir = wait_for("who follows", SOON, async || {
        let heir = cluster.leader_of(WEB).await?.member;
        if heir == web { Err(heir) } else { Ok(heir) }
    })
    .await;
    assert_ne!(heir, orders);
    cluster.end().await;
}

#[tokio::test]
async fn a_job_follows_another_where_it_may_move_by_itself() {
    let mut cluster = Cluster::of(setup("with-leader-of", true)).await;
    led(&mut cluster, true).await;
    switch_over(&cluster, &[JOB, "--to", "west-1"]).await;
    let (orders, _) = led(&mut cluster, true).await;
    assert_eq!(orders, "west-1");
    cluster.end().await;
}

#[tokio::test]
async fn a_job_that_waits_for_an_operator_follows_at_the_next_election() {
    let mut cluster = Cluster::of(setup("with-leader-of", false)).await;
    let first = wait_for("a leader", SOON, async || cluster.leader_of(WEB).await).await;
    let last = wait_for("a leader", SOON, async || cluster.leader_of(JOB).await).await;
    let other = if first.member == "west-1" { "east-1" } else { "west-1" };
    if last.member != other {
        switch_over(&cluster, &[JOB, "--to", other]).await;
    }
    says_it_leads(&cluster, other).await;
    // The elector of the job has read it, and does not move the leader.
    wait_for("what the elector makes of it", SOON, async || {
        let listed = cluster.operator().done(&["list", "--job", WEB]).await.stdout;
        if listed.contains("dr.leads=orders") { Ok(()) } else { Err(listed) }
    })
    .await;
    assert_eq!(cluster.leader_of(WEB).await.unwrap().term, first.term);
    switch_over(&cluster, &[WEB]).await;
    let (_, web) = led(&mut cluster, true).await;
    assert_eq!(web, other);
    cluster.end().await;
}
