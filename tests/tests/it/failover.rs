//! Moves of leadership after the loss of a process or a site.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use e2e::{Cluster, Driver, JOB, SOON, Setup, wait_for, wall_ahead};
use serde_json::Value;
use zk_session::BootTime;

e2e::with_both_drivers!(
    the_job_moves_when_the_leading_worker_is_killed,
    with_each_recipe_the_job_moves_from_a_lost_host_once_its_session_has_ended,
    the_job_moves_to_the_backup_site_when_its_site_is_lost,
    leadership_stays_when_the_preferred_site_returns,
    a_rolling_restart_moves_leadership_as_planned,
    a_restart_of_all_returns_to_where_it_was,
    a_wall_clock_that_is_a_day_ahead_holds_nothing_up,
);

/// The session timeout of the tests.
const SESSION: Duration = Duration::from_secs(6);

/// Session timeout + 2 s, as documented, twice, for a busy machine.
const MOVED_WITHIN: Duration = Duration::from_secs(16);

async fn the_job_moves_when_the_leading_worker_is_killed(driver: Driver) {
    let mut cluster = Cluster::start(driver).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;

    let killed = BootTime::now();
    cluster.worker(&first.member).kill();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    let acting = cluster.acts(second.token).await;
    let took = acting.from.duration_since(killed);
    println!("{driver}: the next job acted {took:?} after SIGKILL");
    // Its guard closes its session.
    assert!(took < SESSION, "the move waited for the session timeout: {took:?}");
    assert_ne!(second.member, first.member);
    assert_eq!(second.site, "west", "who fails is followed by another site: {second:?}");

    // The same member, restarted, is another incarnation and joins as a candidate.
    cluster.worker(&first.member).start();
    cluster.standing_by(3).await;
    assert_eq!(cluster.leader().await.expect("a leader").token, second.token);

    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// Nobody closes the session of a lost host: its timeout passes, and what a job needs to start.
async fn with_each_recipe_the_job_moves_from_a_lost_host_once_its_session_has_ended(driver: Driver) {
    for recipe in ["elector", "queue", "single"] {
        let setup = Setup::new(driver)
            .workers(&[("east-1", "east"), ("west-1", "west")])
            .set("job.orders.recipe", recipe)
            .not_started();
        let mut cluster = Cluster::of(setup).await;
        let began = BootTime::now();
        cluster.workers().iter_mut().for_each(e2e::Worker::start);
        let first = cluster.settled().await;
        let start = cluster.acts(first.token).await.from.duration_since(began);

        let lost = BootTime::now();
        cluster.worker(&first.member).kill_with_guards();
        let second = cluster.successor_of(&first, SOON).await;
        assert_ne!(second.member, first.member, "{recipe}");
        let took = cluster.acts(second.token).await.from.duration_since(lost);
        println!(
            "{driver}, {recipe}: the first job acted after {start:?}, the next one {took:?} after the loss"
        );
        // The servers expire sessions by ticks, and have got the last heartbeat up to a third of the timeout before.
        assert!(took > SESSION / 2, "{recipe}: its session was closed, as on a living host: {took:?}");
        assert!(took < SESSION + SESSION / 3 + start, "{recipe}: {took:?}, and a start took {start:?}");
        cluster.journal().assert_one_at_a_time();
        cluster.end().await;
    }
}

/// The number of restarts of every node, unless `ROLLING_RESTARTS` is set.
const ROUNDS: u32 = 2;

async fn a_rolling_restart_moves_leadership_as_planned(driver: Driver) {
    let rounds = std::env::var("ROLLING_RESTARTS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    // Fewer than the moves, which are no takeovers.
    let mut cluster = Cluster::of(Setup::new(driver).set("policy.max_takeovers.count", 1)).await;
    let mut leader = cluster.settled().await;
    cluster.acts(leader.token).await;
    let others = cluster.workers().len() - 1;
    let mut ids: Vec<_> = cluster.workers().iter().map(|worker| worker.id().to_owned()).collect();
    let mut planned = 0;
    for round in 0..rounds {
        // The worst order begins with the leader: each of its site leads in turn. The best one ends with it.
        let (is_best, most) = if round % 2 == 0 { (false, 2) } else { (true, 1) };
        ids.sort();
        ids.sort_by_key(|id| is_best == (*id == leader.member));
        let (moves, first) = (planned, leader.token);
        for id in &ids {
            // As `systemctl restart` does it, once it may be taken down.
            wait_for(&format!("{id} may be taken down"), SOON, async || {
                let said = cluster.operator().run(&["can-restart", id]).await;
                if said.code == Some(0) { Ok(()) } else { Err(said.stderr) }
            })
            .await;
            cluster.worker(id).ask_to_end();
            let status = cluster.worker(id).ended_by(Instant::now() + SOON);
            let status = status.unwrap_or_else(|| panic!("{id} did not end"));
            assert!(status.success(), "{id}: {status}");
            cluster.worker(id).start();
            if *id == leader.member {
                leader = cluster.successor_of(&leader, SOON).await;
                // Each time another member of its site could lead.
                assert_eq!(leader.site, "east", "{leader:?}");
                planned += 1;
            }
        }
        cluster.standing_by(others).await;
        assert_eq!(planned - moves, most, "as few moves as in this order are possible: {ids:?}");
        cluster.acts(leader.token).await;
        let actings = cluster.journal().actings();
        let actings: Vec<_> = actings.iter().filter(|acting| acting.token >= first).collect();
        let gaps = actings.windows(2).map(|pair| pair[1].from.duration_since(pair[0].to));
        let gaps: Vec<_> = gaps.collect();
        println!("{driver}: four nodes were restarted in {}, the job was down for {gaps:?}", ids.join(", "));
        // A leader that is only lost is missed for a session timeout.
        assert!(gaps.iter().all(|gap| *gap < SESSION / 2), "{gaps:?}");
    }
    let history = cluster.operator().json(&["history", "--job", JOB]).await;
    let leaderships = history["leaderships"].as_array().unwrap();
    let causes: Vec<_> = leaderships.iter().map(|leadership| &leadership["cause"]).collect();
    let (first, moves) = causes.split_first().unwrap();
    assert_eq!(*first, "startup", "{history:#}");
    assert_eq!(moves.len(), planned, "{history:#}");
    assert!(moves.iter().all(|cause| *cause == "leader-shutdown"), "{history:#}");
    let list = cluster.operator().json(&["list"]).await;
    for empty in ["exclusions", "failures", "site_failures", "failed_sites", "problems"] {
        assert_eq!(list[empty], Value::Array(Vec::new()), "{empty}: {list:#}");
    }
    assert_eq!(list["term"], 1 + planned, "no term without a leader, as a hold would be: {list:#}");

    cluster.journal().assert_one_at_a_time();
    let actings = cluster.journal().actings();
    assert_eq!(actings.len(), 1 + planned);
    assert!(actings.iter().all(|acting| acting.mains.len() == 1), "restarted under a leader: {actings:?}");
    cluster.end().await;
}

async fn a_restart_of_all_returns_to_where_it_was(driver: Driver) {
    let setup = Setup::new(driver).workers(&[("east-1", "east"), ("west-1", "west")]);
    let mut cluster = Cluster::of(setup.set("policy.startup_wait", "60s")).await;
    let first = cluster.leader_is("east-1", SOON, |leader| leader.member == "east-1").await;
    cluster.standing_by(1).await;
    cluster.operator().done(&["switchover", "--to", "west-1", "--wait"]).await;
    let second = cluster.successor_of(&first, SOON).await;
    for id in ["east-1", "west-1"] {
        cluster.worker(id).ask_to_end();
        let ended = cluster.worker(id).ended_by(Instant::now() + SOON);
        assert!(ended.is_some_and(|status| status.success()), "{id}: {ended:?}");
    }
    // The first site in order returns first, and waits for the site that led last.
    cluster.worker("east-1").start();
    wait_for("a wait for west", SOON, async || {
        let status = cluster.worker("east-1").status().await.ok_or("no answer")?;
        let note = status["jobs"]["orders"]["note"].as_str().unwrap_or_default().to_owned();
        let waits = "site west had the last leader and none of its members can lead yet";
        if note.contains(waits) { Ok(()) } else { Err(format!("{status:#}")) }
    })
    .await;
    cluster.worker("west-1").start();
    let third = cluster.successor_of(&second, SOON).await;
    assert_eq!(third.member, "west-1", "{third:?}");
    cluster.acts(third.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// A day in seconds.
const DAY: u32 = 86_400;

async fn a_wall_clock_that_is_a_day_ahead_holds_nothing_up(driver: Driver) {
    let setup = Setup::new(driver).workers(&[("east-1", "east"), ("west-1", "west")]).not_started();
    // The defaults.
    let setup = setup.set("policy.max_takeovers.count", 5).set("policy.max_takeovers.within", "10m");
    let mut cluster = Cluster::of(setup).await;
    let ahead = wall_ahead(cluster.dir(), DAY);
    cluster.worker("east-1").set_env(ahead);
    cluster.worker("east-1").start();
    let mut leader = cluster.first_leader().await;
    let elected = cluster.znodes().await.decision(JOB).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let decided = Duration::from_millis(elected["decided_at_ms"].as_u64().unwrap());
    assert!(decided > now + Duration::from_secs((DAY / 2).into()), "its clock is not ahead: {elected:#}");
    cluster.worker("west-1").start();
    cluster.standing_by(1).await;
    let first = leader.term;
    // The clock of the last lost member is right again.
    for (lost, next, is_killed) in [
        ("east-1", "west-1", true),
        ("west-1", "east-1", true),
        ("east-1", "west-1", false),
        ("west-1", "east-1", true),
    ] {
        cluster.acts(leader.token).await;
        if is_killed {
            cluster.worker(lost).kill();
        } else {
            cluster.worker(lost).ask_to_end();
            let ended = cluster.worker(lost).ended_by(Instant::now() + SOON);
            assert!(ended.is_some_and(|status| status.success()), "{lost}: {ended:?}");
            cluster.worker(lost).set_env(Vec::new());
        }
        leader = cluster.successor_of(&leader, MOVED_WITHIN).await;
        assert_eq!(leader.member, next);
        cluster.worker(lost).start();
        cluster.standing_by(1).await;
    }
    cluster.acts(leader.token).await;
    assert_eq!(leader.term, first + 4, "a move is a term, and nothing else is one");
    assert_eq!(leader.restarts, 0);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// Enough orders for both leaderships.
const ORDERS: u32 = 600;

fn ledger(driver: Driver) -> Setup {
    Setup::new(driver).ledger(ORDERS, Duration::from_millis(6))
}

async fn the_job_moves_to_the_backup_site_when_its_site_is_lost(driver: Driver) {
    let mut cluster = Cluster::of(ledger(driver)).await;
    let first = cluster.settled().await;
    assert_eq!(first.site, "east");
    booked_under(&cluster, first.token).await;

    cluster.site("east").for_each(|worker| worker.kill());
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    assert_eq!(second.site, "west");
    booked_under(&cluster, second.token).await;

    let check = all_booked(&cluster).await;
    let tokens: Vec<_> = check["leaderships"].as_array().unwrap().iter().map(|l| &l["token"]).collect();
    assert_eq!(tokens, [first.token, second.token], "{check:#}");
    cluster.end().await;
}

async fn leadership_stays_when_the_preferred_site_returns(driver: Driver) {
    // Only the policy keeps leadership in place.
    let setup = Setup::new(driver).set("policy.min_tenure", "0s");
    let workers = [("east-1", "east"), ("west-1", "west")];
    let mut cluster = Cluster::of(setup.workers(&workers)).await;
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");
    cluster.acts(first.token).await;
    cluster.worker("east-1").kill();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    assert_eq!(second.member, "west-1");

    cluster.worker("east-1").start();
    cluster.standing_by(1).await;
    // Once the returned member is in the line of succession, the elector has seen it, and has made the pass that would
    // have moved leadership.
    wait_for("east-1 in the line of succession", SOON, async || {
        let elected = cluster.znodes().await.decision("orders").await;
        assert_eq!(elected["term"], second.term, "leadership has moved again: {elected:#}");
        let line = elected["succession"].as_array().cloned().unwrap_or_default();
        if line.iter().any(|named| named["member"] == "east-1") { Ok(()) } else { Err(elected.to_string()) }
    })
    .await;
    assert_eq!(cluster.leader().await.expect("it still leads"), second);

    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    assert_eq!(cluster.journal().actings().len(), 2);
    cluster.end().await;
}

async fn booked_under(cluster: &Cluster, token: u64) {
    let (mut before, mut seen) = (None, 0);
    wait_for(&format!("some orders booked under token {token}"), SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["token"] == token {
            seen = progress["booked"].as_u64().unwrap_or(0);
            if seen > *before.get_or_insert(seen) {
                return Ok(());
            }
        }
        Err(progress.to_string())
    })
    .await;
}

async fn all_booked(cluster: &Cluster) -> serde_json::Value {
    wait_for("every order booked", SOON, async || {
        let progress = cluster.ledger().progress().await;
        if progress["booked"] == ORDERS { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    let check = cluster.ledger().check().await;
    assert_eq!(check["ok"], true, "{check:#}");
    assert_eq!(check["late_accepted"], 0, "{check:#}");
    check
}
