//! Moves by an operator.

use std::time::Duration;

use e2e::{Cluster, Driver, Event, JOB, SOON, Setup, is_there, wait_for};
use zk_session::BootTime;

e2e::with_both_drivers!(
    a_planned_switchover_ends_the_old_job_before_the_new_one_begins,
    a_planned_stop_takes_longer_than_the_stop_timeout_while_the_lease_is_renewed,
    a_switchover_to_nobody_fails_and_changes_nothing,
    a_forced_failover_moves_the_job_off_a_leader_whose_stop_hangs,
    a_forced_failover_waits_for_the_stop_budget_of_a_leader_that_lives,
);

async fn a_planned_switchover_ends_the_old_job_before_the_new_one_begins(driver: Driver) {
    // A job that needs half of its stop timeout to finish.
    let mut cluster = Cluster::of(Setup::new(driver).job_options(&["--stop-takes", "500"])).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;

    let asked = BootTime::now();
    let verb = ["switchover", "--to-site", "west", "--reason", "a test of it", "--wait"];
    let said = cluster.operator().done(&verb).await;
    println!("{driver}: switchover --wait took {:?}", BootTime::now().duration_since(asked));
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(second.site, "west");
    assert!(said.stdout.contains(&second.member), "{said:?}");

    // The old job received SIGTERM, finished, and ended by itself.
    let old: Vec<_> = cluster.journal().stamps().into_iter().filter(|s| s.token == first.token).collect();
    assert_eq!(old.last().unwrap().event, Event::End);
    let asked = old.iter().find(|stamp| stamp.event == Event::Asked).unwrap().at;
    assert!(old.last().unwrap().at.duration_since(asked) >= Duration::from_millis(500));
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();

    // The history has the move, and the former leader is on standby.
    let last = wait_for("the second leadership in the history", SOON, async || {
        let history = cluster.operator().json(&["history", "--job", JOB]).await;
        let last = history["leaderships"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        if last["fencing_token"] == second.token { Ok(last) } else { Err(history.to_string()) }
    })
    .await;
    assert_eq!(
        (&last["cause"], &last["previous"]["member"]),
        (&"switchover".into(), &first.member.clone().into())
    );
    assert!(last["sentence"].as_str().unwrap().contains("a test of it"), "{last:#}");
    cluster.standing_by(3).await;
    cluster.end().await;
}

async fn a_planned_stop_takes_longer_than_the_stop_timeout_while_the_lease_is_renewed(driver: Driver) {
    // Longer than the session timeout, and so than any one lease.
    let needs = Duration::from_secs(8);
    let setup = Setup::new(driver)
        .job_options(&["--stop-takes", "8000"])
        .set("job.orders.planned_stop_timeout", "1m")
        .set("policy.release_timeout", "1s");
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    let begun = BootTime::now();
    cluster.operator().done(&["switchover", "--to-site", "west"]).await;
    // What is waited for, and for how long.
    let shown = wait_for("the planned stop in `list`", SOON, async || {
        let list = cluster.operator().json(&["list", "--job", JOB]).await;
        let shown = list["planned_stops"][0].clone();
        if shown["member"] == first.member { Ok(shown) } else { Err(format!("{list:#}")) }
    })
    .await;
    let lasts = shown["until_ms"].as_u64().unwrap() - shown["since_ms"].as_u64().unwrap();
    assert_eq!(lasts, 60_000, "{shown:#}");
    let list = cluster.operator().done(&["list", "--job", JOB]).await.stdout;
    assert!(list.contains(&format!("{} is stopping the job since", first.member)), "{list}");

    let second = cluster.successor_of(&first, 2 * needs + SOON).await;
    let old: Vec<_> = cluster.journal().stamps().into_iter().filter(|s| s.token == first.token).collect();
    assert_eq!(old.last().unwrap().event, Event::End, "it ended by itself");
    assert!(BootTime::now().duration_since(begun) >= needs);
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();

    // A second one is cut short as soon as the leader is removed by force: the stop timeout counts.
    cluster.operator().done(&["switchover", "--to-site", "east"]).await;
    wait_for("the order to stop", SOON, async || {
        let asked =
            cluster.journal().stamps().iter().any(|s| s.token == second.token && s.event == Event::Asked);
        if asked { Ok(()) } else { Err("it works".to_owned()) }
    })
    .await;
    let forced = BootTime::now();
    cluster.operator().done(&["failover", "--to-site", "east", "--force", "--yes", "--wait"]).await;
    assert!(BootTime::now().duration_since(forced) < needs, "it waited for the planned stop");
    cluster.journal().assert_one_at_a_time();
    cluster.end_hastily().await;
}

async fn a_switchover_to_nobody_fails_and_changes_nothing(driver: Driver) {
    let mut cluster = Cluster::start(driver).await;
    let leader = cluster.settled().await;
    for target in [["--to", "nobody"], ["--to-site", "nowhere"]] {
        let said = cluster.operator().run(&["switchover", target[0], target[1], "--wait"]).await;
        said.clone().with_code(64).complains_of(&[target[1]]);
    }
    let already = cluster.operator().done(&["switchover", "--to", leader.member.as_str(), "--wait"]).await;
    assert!(already.stdout.contains("already"), "{already:?}");
    // A contradiction is bad usage too.
    let _ =
        cluster.operator().run(&["switchover", "--to", "west-1", "--to-site", "west"]).await.with_code(64);
    assert_eq!(cluster.leader().await.unwrap(), leader);
    assert_eq!(cluster.journal().actings().len(), 1);
    cluster.end().await;
}

async fn a_forced_failover_moves_the_job_off_a_leader_whose_stop_hangs(driver: Driver) {
    let hang: toml::Table = toml::from_str("command = [\"sleep\", \"600\"]\ntimeout = \"10m\"").unwrap();
    let mut cluster = Cluster::of(Setup::new(driver).set("job.orders.hooks.before_stop", hang)).await;
    let first = cluster.settled().await;
    let old_job = first.pid.unwrap();

    // Without force the failover waits for the leader's release, and reports that: neither done nor failed.
    let verb = ["failover", "--to-site", "west", "--wait", "--timeout", "3s"];
    cluster.operator().run(&verb).await.with_code(75).complains_of(&["still open", "don't repeat it"]);
    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    assert_eq!(list["slots"][0]["leader"]["member"], first.member, "{list:#}");
    let role = list["members"].as_array().unwrap().iter().find(|m| m["member"] == first.member).unwrap();
    assert_eq!(role["role"], "stepping-down", "{list:#}");
    assert_eq!(list["requests"][0]["outcome"]["state"], "accepted", "{list:#}");
    assert!(is_there(old_job), "the old job works on while its leader is asked");

    let forced = BootTime::now();
    let said =
        cluster.operator().done(&["failover", "--to-site", "west", "--force", "--yes", "--wait"]).await;
    let took = BootTime::now().duration_since(forced);
    println!("{driver}: failover --force --wait took {took:?}");
    assert!(took < Duration::from_secs(20), "the hook hangs for ten minutes; {took:?}: {said:?}");
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(second.site, "west");
    cluster.acts(second.token).await;

    // The removed leader notices it, and kills its job at once.
    wait_for("the end of the old job", SOON, async || {
        if is_there(old_job) { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .await;
    assert_eq!(cluster.leader().await.unwrap().token, second.token);
    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    assert_eq!(list["requests"][1]["outcome"]["state"], "done", "{list:#}");
    assert_eq!(list["exclusions"][0]["member"], first.member, "{list:#}");
    // The new leader's stop hangs as well: a second signal skips the hooks.
    cluster.end_hastily().await;
}

async fn a_forced_failover_waits_for_the_stop_budget_of_a_leader_that_lives(driver: Driver) {
    let mut cluster = Cluster::of(Setup::new(driver).job_options(&["--ignore-term"])).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    let forced = ["failover", "--to-site", "west", "--force", "--yes", "--wait"];
    cluster.operator().done(&forced).await;
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    // Its guard has killed the first job before the second one began.
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn no_order_moves_a_job_to_a_site_that_its_policy_forbids() {
    let setup = Setup::new(Driver::Native)
        .workers(&[("east-1", "east"), ("west-1", "west")])
        .set("job.orders.policy.forbidden_sites", vec!["west"]);
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");
    let why = "the policy forbids site west (forbidden_sites)";
    let verbs = [
        &["switchover", "--to", "west-1", "--wait"][..],
        &["switchover", "--to-site", "west", "--wait"],
        &["failover", "--to", "west-1", "--wait"],
    ];
    for verb in verbs {
        cluster.operator().run(verb).await.with_code(1).complains_of(&[why]);
    }
    assert_eq!(cluster.leader().await.unwrap().term, first.term);
    let without = cluster.operator().done(&["simulate", "--without", "east-1"]).await.stdout;
    assert!(without.contains("site-allowed") && without.contains(why), "{without}");
    cluster.end().await;
}
