//! Incidents of a real week, with real workers: those of docs/weeks.md, which have virtual time.
//!
//! The sixth, a rolling upgrade over both sites, is `a_rolling_restart_moves_leadership_as_planned` in failover.rs.

use std::{fs, path::Path, time::Duration};

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, own_ensemble, wait_for};
use zk_testkit::Network;

const TWO: [(&str, &str); 2] = [("east-1", "east"), ("west-1", "west")];

/// The time for the end of the session, its detection, and the policy's waiting time.
const MOVED_WITHIN: Duration = Duration::from_secs(60);

/// Waits until the elector reports this reason for deciding nothing.
async fn elector_says(cluster: &Cluster, what: &str) -> String {
    wait_for(&format!("an elector that says {what:?}"), MOVED_WITHIN, async || {
        let listed = cluster.operator().run(&["list"]).await.stdout;
        if listed.contains(what) { Ok(listed) } else { Err(listed) }
    })
    .await
}

async fn led_by(cluster: &mut Cluster, member: &str, after: &Leader) -> Leader {
    let is_it = |leader: &Leader| leader.member == member && leader.token > after.token;
    cluster.leader_is(&format!("{member}, after {after:?}"), MOVED_WITHIN, is_it).await
}

/// The causes of the changes of leadership, oldest first.
async fn causes(cluster: &Cluster) -> Vec<String> {
    let history = cluster.operator().json(&["history", "--job", JOB]).await;
    let leaderships = history["leaderships"].as_array().cloned().unwrap_or_default();
    leaderships.iter().filter_map(|l| Some(l["cause"].as_str()?.to_owned())).collect()
}

/// How long the present leader had been better, by its decision.
async fn was_better_for(cluster: &Cluster) -> String {
    let sentence = cluster.znodes().await.decision("orders").await["sentence"].to_string();
    let (_, rest) = sentence.split_once("has been better for ").unwrap_or_else(|| panic!("{sentence}"));
    rest.split(':').next().unwrap_or_default().to_owned()
}

fn touch(dir: &Path, name: &str) {
    fs::write(dir.join(name), "").unwrap();
}

#[tokio::test]
async fn a_bad_deployment_in_one_site_then_in_both_then_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        format!("while ! test -e {}/broken-$DR_SITE; do sleep 0.1; done; exit 1", dir.path().display());
    let setup = Setup::new(Driver::Native)
        .workers(&TWO)
        .unset("policy.max_takeovers")
        .set("policy.exclusion", "1s")
        .set("policy.max_exclusion", "1s")
        .set("job.orders.ready.after", "300ms")
        .set("job.orders.restart.max", 1)
        .set("job.orders.command", vec!["sh", "-c", &script]);
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.leader_is("east-1", SOON, |leader| leader.member == "east-1").await;
    cluster.standing_by(1).await;

    touch(dir.path(), "broken-east");
    let second = led_by(&mut cluster, "west-1", &first).await;
    touch(dir.path(), "broken-west");
    elector_says(&cluster, "ON HOLD until ").await;
    assert!(cluster.leader().await.is_err(), "it fails everywhere");

    // Rolled back, without an operator's command.
    fs::remove_file(dir.path().join("broken-east")).unwrap();
    fs::remove_file(dir.path().join("broken-west")).unwrap();
    let third = cluster.leader_is("one that serves again", Duration::from_secs(90), |_| true).await;
    assert!(third.token > second.token);
    let causes = causes(&cluster).await;
    assert_eq!(causes[0], "startup", "{causes:?}");
    assert!(causes.iter().any(|cause| cause == "work-failed"), "{causes:?}");
    cluster.end().await;
}

#[tokio::test]
async fn a_link_that_flaps_is_gone_back_to_more_slowly_each_time() {
    if !Network::available_or_skip() {
        return;
    }
    let setup = Setup::new(Driver::Native)
        .workers(&TWO)
        .set("policy.auto_moves", "all")
        .set("policy.failback_after", "3s")
        .set("policy.min_tenure", "0s")
        .set("policy.max_site_failures.count", 0);
    let mut cluster =
        Cluster::on(own_ensemble(|builder| builder.in_namespaces(true)).await, setup.on_hosts()).await;
    let mut leader = cluster.leader_is("east-1", SOON, |leader| leader.member == "east-1").await;
    cluster.standing_by(1).await;
    for times in 1..=3 {
        cluster.worker("east-1").cut_off();
        leader = led_by(&mut cluster, "west-1", &leader).await;
        cluster.worker("east-1").plug_in();
        leader = led_by(&mut cluster, "east-1", &leader).await;
        let patience = 3 << (times - 1);
        assert_eq!(was_better_for(&cluster).await, format!("{patience}s"), "the return number {times}");
        cluster.standing_by(1).await;
    }
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn the_primary_site_comes_back_with_stale_data_and_waits_until_it_has_caught_up() {
    let files = tempfile::tempdir().unwrap();
    let say = |member: &str, lag: u32| {
        // Atomic, because it is read all the time.
        let new = files.path().join("new");
        fs::write(&new, format!("lag={lag}")).unwrap();
        fs::rename(new, files.path().join(member)).unwrap();
    };
    let limit =
        "pipeline = [{ stage = 'limit', attribute = 'lag', at_most = 1000 }, 'site-order', 'incumbent']";
    let limit: toml::Table = toml::from_str(limit).unwrap();
    let command = format!("cat {}/$DR_MEMBER", files.path().display());
    let setup = Setup::new(Driver::Native)
        .set("policy.pipeline", limit["pipeline"].clone())
        .set("policy.auto_moves", "all")
        .set("policy.failback_after", "1s")
        .set("policy.min_tenure", "0s")
        .set("job.orders.measure.command", vec!["sh", "-c", &command])
        .set("job.orders.measure.interval", "100ms");
    for member in ["east-1", "east-2", "west-1", "west-2"] {
        say(member, 0);
    }
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.leader_is("one of east", SOON, |leader| leader.site == "east").await;
    cluster.standing_by(3).await;

    cluster.site("east").for_each(|worker| worker.kill());
    let is_west = |leader: &Leader| leader.site == "west" && leader.token > first.token;
    let second = cluster.leader_is("one of west", MOVED_WITHIN, is_west).await;
    say("east-1", 9_000_000);
    say("east-2", 9_000_000);
    cluster.site("east").for_each(|worker| worker.start());
    cluster.standing_by(3).await;
    wait_for("members of east that are refused", SOON, async || {
        let explained = cluster.operator().run(&["explain"]).await.stdout;
        let refused = explained.matches("lag is 9000000 and the limit is 1000").count();
        if refused == 2 { Ok(()) } else { Err(explained) }
    })
    .await;
    // Not by a switchover either, and the message names the remedy.
    let refused = cluster.operator().run(&["switchover", "--to-site", "east", "--wait"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("a failover with accept_loss names one"), "{}", refused.stderr);
    assert_eq!(cluster.leader().await.unwrap(), second);

    say("east-1", 20);
    let third = led_by(&mut cluster, "east-1", &second).await;
    let sentence = cluster.znodes().await.decision("orders").await["sentence"].to_string();
    assert!(sentence.contains("lag 20 of at most 1000"), "{sentence}");
    assert!(third.token > second.token);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn the_site_with_zookeepers_minority_is_led_from_no_more_until_it_is_back() {
    let ensemble = own_ensemble(|builder| builder).await;
    let addresses = ensemble.addresses();
    let of = |servers: &[usize]| {
        servers.iter().map(|server| addresses[*server].to_string()).collect::<Vec<_>>().join(",")
    };
    let setup = Setup::new(Driver::Native)
        .set_for("east-1", "zookeeper.connect", of(&[0]))
        .set_for("east-2", "zookeeper.connect", of(&[0]))
        .set_for("west-1", "zookeeper.connect", of(&[1, 2]))
        .set_for("west-2", "zookeeper.connect", of(&[1, 2]));
    let mut cluster = Cluster::on(ensemble.clone(), setup).await;
    let first = cluster.leader_is("one of east", SOON, |leader| leader.site == "east").await;
    cluster.standing_by(3).await;
    cluster.ensemble().kill(0).await.unwrap();
    let is_west = |leader: &Leader| leader.site == "west" && leader.token > first.token;
    let second = cluster.leader_is("one of west", MOVED_WITHIN, is_west).await;
    cluster.acts(second.token).await;

    cluster.ensemble().start_server(0).await.unwrap();
    cluster.ensemble().wait_serving(MOVED_WITHIN).await.unwrap();
    cluster.standing_by(3).await;
    // An operator decides about the return.
    assert_eq!(cluster.leader().await.unwrap(), second);
    assert_eq!(causes(&cluster).await, ["startup", "leader-lost"]);
    cluster.operator().done(&["switchover", "--to-site", "east", "--wait"]).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn a_disk_that_is_slow_again_and_again_moves_leadership_less_often_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let check = format!("! test -e {}/slow-$DR_MEMBER", dir.path().display());
    let slow = dir.path().join("slow-east-1");
    let setup = Setup::new(Driver::Native)
        .workers(&TWO)
        .set("policy.auto_moves", "all")
        .set("policy.failback_after", "2s")
        .set("policy.min_tenure", "0s")
        .set("job.orders.fitness.kind", "exec")
        .set("job.orders.fitness.command", vec!["sh", "-c", &check])
        // So long that a busy machine does not make a check that passes one that fails.
        .set("job.orders.fitness.interval", "3s")
        .set("job.orders.fitness.timeout", "3s");
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.leader_is("east-1", SOON, |leader| leader.member == "east-1").await;
    cluster.standing_by(1).await;
    touch(dir.path(), "slow-east-1");
    let second = led_by(&mut cluster, "west-1", &first).await;
    elector_says(&cluster, "fitness: ").await;
    fs::remove_file(&slow).unwrap();
    let third = led_by(&mut cluster, "east-1", &second).await;
    assert_eq!(was_better_for(&cluster).await, "2s");
    cluster.standing_by(1).await;
    touch(dir.path(), "slow-east-1");
    let fourth = led_by(&mut cluster, "west-1", &third).await;
    fs::remove_file(&slow).unwrap();
    led_by(&mut cluster, "east-1", &fourth).await;
    assert_eq!(was_better_for(&cluster).await, "4s", "twice as long as the first time");
    let expected = ["startup", "unhealthy", "better-candidate", "unhealthy", "better-candidate"];
    assert_eq!(causes(&cluster).await, expected);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
