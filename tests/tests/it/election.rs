//! Leadership without faults.

use e2e::{Cluster, Driver, JOB, SOON, Setup, wait_for};

e2e::with_both_drivers!(
    the_first_election_takes_the_preferred_site,
    jobs_of_one_worker_are_elected_apart_over_one_session,
);

async fn the_first_election_takes_the_preferred_site(driver: Driver) {
    // The backup site's workers start first.
    let workers = [("west-1", "west"), ("west-2", "west"), ("east-1", "east"), ("east-2", "east")];
    let mut cluster = Cluster::of(Setup::new(driver).workers(&workers)).await;
    let leader = cluster.settled().await;
    assert_eq!(leader.site, "east", "{leader:?}");

    let acting = cluster.acts(leader.token).await;
    assert_eq!((acting.member, acting.term), (leader.member.clone(), leader.term));
    assert_eq!(acting.mains, [leader.pid.expect("the job's pid in /status")]);

    for worker in cluster.workers() {
        let expected = if worker.id() == leader.member { (200, 503) } else { (503, 200) };
        let said = (worker.code("/leader").await.unwrap(), worker.code("/standby").await.unwrap());
        assert_eq!(said, expected, "/leader and /standby of {}", worker.id());
    }

    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    assert_eq!(list["slots"][0]["leader"]["member"], leader.member, "{list:#}");
    assert_eq!(list["slots"][0]["leader"]["fencing_token"], leader.token, "{list:#}");
    assert_eq!(list["slots"][0]["leader"]["status"], "READY", "{list:#}");
    assert_eq!(list["members"].as_array().map(Vec::len), Some(4), "{list:#}");
    assert!(
        list["slots"][0]["decision"]["given"]["sentence"].as_str().unwrap().contains(&leader.member),
        "{list:#}"
    );

    cluster.journal().assert_never_moved();
    cluster.end().await;
}

async fn jobs_of_one_worker_are_elected_apart_over_one_session(driver: Driver) {
    let setup = Setup::new(driver).not_started();
    let mut cluster = Cluster::of(setup).await;
    let journal = cluster.journal().path().display().to_string();
    // The second job prefers the other site.
    let second = format!(
        "[job.bills]\ncommand = [{program:?}, \"--journal\", {journal:?}]\nstop_timeout = \"1s\"\n\
         [job.bills.policy]\nsites = [\"west\", \"east\"]\n",
        program = e2e::program("e2e-job").display().to_string(),
    );
    let path = cluster.dir().join("bills.toml");
    std::fs::write(&path, second).unwrap();
    for worker in cluster.workers() {
        worker.add_config(&path);
        worker.start();
    }
    let orders = cluster.settled().await;
    let bills = wait_for("a leader of the second job", SOON, async || cluster.leader_of("bills").await).await;
    assert_eq!((orders.site.as_str(), bills.site.as_str()), ("east", "west"));

    // Each worker has one session for all its elections: the owner of its ephemerals is the same.
    let znodes = cluster.znodes().await;
    for member in ["east-1", "east-2", "west-1", "west-2"] {
        let mut owners = Vec::new();
        for job in [JOB, "bills"] {
            owners.push(znodes.owner(&format!("{job}/nodes/{member}")).await);
        }
        assert!(owners[0] != 0 && owners[0] == owners[1], "{member} has sessions {owners:x?}");
    }

    // A move of one does not affect the other.
    cluster.operator().done(&["switchover", "--job", "bills", "--to-site", "east", "--wait"]).await;
    let moved = wait_for("the second job in the east", SOON, async || {
        let leader = cluster.leader_of("bills").await?;
        if leader.site == "east" { Ok(leader) } else { Err(format!("{leader:?}")) }
    })
    .await;
    assert!(moved.token > bills.token);
    assert_eq!(cluster.leader().await.expect("it still leads"), orders);

    cluster.journal().assert_one_at_a_time();
    assert_eq!(cluster.journal().actings_of("bills").len(), 2);
    cluster.end().await;
}
