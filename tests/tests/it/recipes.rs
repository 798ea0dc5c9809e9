//! Jobs without an elector.

use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, JOB, SOON, Setup, wait_for};

e2e::with_both_drivers!(in_a_queue_whoever_has_waited_follows, of_a_single_place_whoever_is_quickest_follows,);

async fn in_a_queue_whoever_has_waited_follows(driver: Driver) {
    leadership_is_lost_and_taken(driver, "queue").await;
}

async fn of_a_single_place_whoever_is_quickest_follows(driver: Driver) {
    leadership_is_lost_and_taken(driver, "single").await;
}

async fn leadership_is_lost_and_taken(driver: Driver, recipe: &str) {
    let setup = Setup::new(driver)
        .workers(&[("east-1", "east"), ("west-1", "west")])
        .set("job.orders.recipe", recipe)
        // The session is so long that a wait for its end would show.
        .set("zookeeper.session_timeout", "10s");
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    let waiting = if first.member == "east-1" { "west-1" } else { "east-1" };
    cluster.acts(first.token).await;

    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    assert_eq!((&list["recipe"], &list["term"]), (&recipe.into(), &first.token.into()), "{list:#}");
    assert_eq!(list["slots"][0]["leader"]["member"], first.member, "{list:#}");
    assert_eq!(list["slots"][0]["decision"], serde_json::Value::Null, "{list:#}");
    if recipe == "queue" {
        assert_eq!(list["members"][1]["member"], waiting, "{list:#}");
        assert_eq!(list["members"][1]["next"], 1, "{list:#}");
    }

    // Commands that need an elector are refused, and change nothing.
    for (verb, word) in [
        (&["switchover"][..], "End the leader's worker"),
        (&["switchover", "--to", waiting], "--to and --to-site need the recipe"),
        (&["failover", "--force", "--yes", "--to-site", "west"], "--to and --to-site need the recipe"),
        (&["failover"], "--force --now"),
        (&["failover", "--force", "--yes"], "add --now"),
    ] {
        cluster.operator().run(verb).await.with_code(64).complains_of(&[recipe, word]);
    }
    // So is a worker that would elect another leader beside this one.
    let elsewhere = format!("node.state_dir={}", cluster.dir().join("elsewhere").display());
    let stranger = ["--set", "job.orders.recipe=elector", "--set", "node.id=other", "--set", &elsewhere];
    let stranger = [&stranger[..], &["--set", "http.listen=127.0.0.1:0", "run"]].concat();
    cluster.as_worker(waiting).run(&stranger).await.with_code(75).complains_of(&["recipe", recipe]);
    assert_eq!(cluster.leader().await.unwrap(), first);

    // Killed and restarted: its lock proves that no process of it lives, so its znode in a queue is removed at once.
    // The single znode is not, because a late deletion would hit the next leader's.
    let killed = Instant::now();
    cluster.worker(&first.member).kill();
    cluster.worker(&first.member).start();
    let second = cluster.successor_of(&first, SOON).await;
    let took = killed.elapsed();
    println!("{driver}: a member leads again {took:?} after SIGKILL");
    if recipe == "queue" {
        assert!(took < Duration::from_secs(9), "it waited for the old session: {took:?}");
        assert_eq!(second.member, waiting);
    }
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.standing_by(1).await;

    let said = cluster.operator().done(&["failover", "--force", "--now", "--yes", "--wait"]).await;
    let third = cluster.successor_of(&second, SOON).await;
    assert!(
        said.stdout.contains(&format!("{} leads {JOB} in term {}", third.member, third.term)),
        "{said:?}"
    );
    if recipe == "queue" {
        assert_ne!(third.member, second.member);
    }
    cluster.acts(third.token).await;
    cluster.standing_by(1).await;
    wait_for("all leaderships in the history", SOON, async || {
        let history = cluster.operator().json(&["history", "--job", JOB]).await;
        let tokens: Vec<_> =
            history["leaderships"].as_array().unwrap().iter().map(|l| l["fencing_token"].clone()).collect();
        if tokens == [first.token, second.token, third.token] { Ok(()) } else { Err(history.to_string()) }
    })
    .await;
    cluster.end().await;
}
