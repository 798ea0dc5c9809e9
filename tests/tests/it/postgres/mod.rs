//! `examples/postgres`: PostgreSQL in two sites. Clients write at both nodes all the time and count each acknowledged row; the
//! rows are looked for on each new primary.
//!
//! Without Debian's package `postgresql` the tests are skipped; with `CI` set they fail.

#[allow(unreachable_pub, reason = "a module of a test program")]
mod stage;
#[allow(unreachable_pub, reason = "a module of a test program")]
mod writer;

use std::time::{Duration, Instant};

use e2e::{Leader, SOON, kill_pid, wait_for};
use stage::{LONG, MEMBERS, Stage};

/// How often a move is made, unless `POSTGRES_MOVES` is set.
const MOVES: usize = 2;

/// The WAL of so much time may be missing in a measurement: the interval of the command, its timeout, and the publication.
const UNMEASURED: Duration = Duration::from_secs(7);

/// The limit of the example's gate, in bytes.
const LIMIT: i64 = 1 << 20;

fn moves() -> usize {
    std::env::var("POSTGRES_MOVES").map_or(MOVES, |moves| moves.parse().expect("POSTGRES_MOVES is a number"))
}

fn other(leader: &Leader) -> &'static str {
    MEMBERS.into_iter().find(|member| *member != leader.member).unwrap()
}

fn same(leader: &Leader) -> &'static str {
    MEMBERS.into_iter().find(|member| *member == leader.member).unwrap()
}

/// The number after this text.
fn number_after(text: &str, before: &str) -> i64 {
    let found = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text:?}")).1;
    let digits: String = found.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {before:?} in {text:?}"))
}

/// How often this member has declined, because it lacks the end of the former primary's WAL.
fn declined(stage: &mut Stage, member: &str) -> usize {
    let log = stage.cluster.worker(member).log_text();
    log.matches("the former primary's last WAL has not arrived").count()
}

#[tokio::test]
async fn planned_switchovers_lose_nothing() {
    let Some(mut stage) = Stage::start(false).await else { return };
    let mut leader = stage.cluster.leader().await.unwrap();
    for _ in 0..moves() {
        let to = other(&leader);
        stage.fits(to).await;
        stage.writes_on().await;
        stage.cluster.operator().done(&["switchover", "--to", to, "--wait"]).await;
        leader = stage.successor_of(&leader).await;
        assert_eq!(stage.lost(&leader).len(), 0);
        stage.writes_on().await;
    }

    // The last WAL can't arrive: the standby declines, and the former primary leads again.
    let to = other(&leader);
    stage.fits(to).await;
    stage.cut_replication(&leader.member);
    stage.writes_on().await;
    let refused = stage.cluster.operator().run(&["switchover", "--to", to, "--wait"]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let again = stage.cluster.leader_is("the former one", LONG, |now| now.token > leader.token).await;
    assert_eq!(again.member, leader.member);
    assert_eq!(stage.lost(&again).len(), 0);
    assert_ne!(declined(&mut stage, to), 0);
    stage.writes_on().await;

    // The primary is to go, and may not return, so the standby is named again as often as it declines: by no planned move.
    stage.mend_replication(&again.member);
    stage.fits(to).await;
    stage.cut_replication(&again.member);
    stage.writes_on().await;
    // Its exclusion ends before it is named again, and the gate must not refuse it.
    stage.writers.pause(true);
    let before = declined(&mut stage, to);
    stage.cluster.operator().done(&["maintenance", &again.member]).await;
    wait_for("the standby has declined three times", LONG, async || {
        let times = declined(&mut stage, to) - before;
        if times >= 3 { Ok(()) } else { Err(format!("{times} times")) }
    })
    .await;
    stage.cluster.operator().done(&["maintenance", &again.member, "--off"]).await;
    let last = stage.cluster.leader_is("the former one", LONG, |now| now.token > again.token).await;
    assert_eq!(last.member, again.member);
    assert_eq!(stage.lost(&last).len(), 0);
    stage.writers.pause(false);
    stage.writes_on().await;
    stage.mend_replication(&last.member);
    stage.fits(to).await;
    stage.end().await;
}

#[tokio::test]
async fn a_forced_failover_loses_no_more_than_the_gate_reports() {
    let Some(mut stage) = Stage::start(false).await else { return };
    let mut leader = stage.cluster.leader().await.unwrap();
    for round in 0..moves() {
        let (from, to) = (same(&leader), other(&leader));
        stage.fits(to).await;
        stage.writes_on().await;
        // Leadership alternates between the nodes: in four rounds each of them is lost in either way.
        let under_load = [0, 3].contains(&(round % 4));
        let reported = if under_load {
            // The host is lost under load.
            let at = Instant::now();
            stage.lose(from);
            leader = stage.successor_of(&leader).await;
            assert_eq!(stage.cluster.worker(to).counted("dr_fences_total", "outcome=\"done\"").await, 1);
            // What the gate promises, of what was measured.
            let lost = stage.lost(&leader);
            let measured = lost.iter().filter(|ack| ack.ended + UNMEASURED < at).count();
            let reported = number_after(&stage.sentence().await, "lag ");
            println!("round {round}: {} rows lost, reported {reported}", lost.len());
            assert!(measured == 0 || reported > 0, "{lost:?}");
            LIMIT
        } else {
            // No replication for a while, and too much is written.
            stage.writers.size(7000);
            stage.cut_replication(from);
            wait_for("a lag above the limit", LONG, async || {
                let lag = stage.lag(to).await;
                if lag.is_some_and(|lag| lag > LIMIT) { Ok(()) } else { Err(format!("{lag:?}")) }
            })
            .await;
            stage.writers.pause(true);
            // PostgreSQL itself writes now and then.
            wait_for("a measurement of all that was written", LONG, async || {
                let end = stage.sql(from, "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')")?;
                let got = "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')";
                let got = stage.sql(to, got)?;
                let number = |text: &str| text.trim().parse::<i64>().unwrap();
                let (lag, missing) = (stage.lag(to).await, number(&end) - number(&got));
                if lag >= Some(missing) { Ok(()) } else { Err(format!("{lag:?} of {missing}")) }
            })
            .await;
            stage.lose(from);
            stage.no_leader(to, "and the limit is 1048576").await;
            let refused = stage.cluster.operator().run(&["failover", "--to", to, "--wait"]).await;
            assert_eq!(refused.code, Some(1), "{refused:?}");
            stage.cluster.operator().done(&["failover", "--to", to, "--accept-loss", "--wait"]).await;
            leader = stage.successor_of(&leader).await;
            let sentence = stage.sentence().await;
            assert!(sentence.contains("the loss is accepted"), "{sentence}");
            stage.writers.pause(false);
            stage.writers.size(100);
            number_after(&sentence, "the loss is accepted: lag is ")
        };
        let lost = stage.lost(&leader);
        let ends = lost.iter().map(|ack| ack.wal);
        let bytes = ends.clone().max().unwrap_or(0) - ends.min().unwrap_or(0);
        println!(
            "round {round}: {} rows in {bytes} bytes of WAL are lost, of at most {reported}",
            lost.len()
        );
        assert!(bytes <= reported, "{bytes} bytes are lost, {reported} were reported");
        assert!(under_load || !lost.is_empty(), "the lag was real");
        stage.writers.forget(&lost);
        // The former primary is rewound, and leads again in the next round.
        stage.return_of(from);
        stage.writes_on().await;
    }
    stage.fits(other(&leader)).await;
    for member in MEMBERS {
        // The second node was cloned at the beginning.
        let clones = stage.cluster.worker(member).log_text().matches("cloning 127").count();
        assert_eq!(clones, usize::from(member == "west-1"), "{member} was cloned again");
    }
    assert_eq!(stage.lost(&leader).len(), 0);
    stage.end().await;
}

#[tokio::test]
async fn with_a_synchronous_standby_a_killed_primary_loses_nothing() {
    let Some(mut stage) = Stage::start(true).await else { return };
    let mut leader = stage.cluster.leader().await.unwrap();
    for _ in 0..moves() {
        let from = same(&leader);
        stage.fits(other(&leader)).await;
        stage.writes_on().await;
        stage.lose(from);
        leader = stage.successor_of(&leader).await;
        assert_eq!(stage.lost(&leader).len(), 0);
        // Commits wait for the other node.
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        wait_for("a commit that waits", SOON, async || {
            let waiting = stage.sql(&leader.member, waits)?;
            if waiting.trim() == "1" { Ok(()) } else { Err(waiting) }
        })
        .await;
        stage.return_of(from);
        stage.writes_on().await;
    }
    // PostgreSQL alone is killed: it is started again on its node.
    stage.fits(other(&leader)).await;
    kill_pid(stage.cluster.leader().await.unwrap().pid.unwrap());
    wait_for("another run of the job", LONG, async || {
        let now = stage.cluster.leader().await?;
        if now.restarts > 0 { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    stage.writes_on().await;
    assert_eq!(stage.lost(&leader).len(), 0);
    stage.end().await;
}

/// No server runs on the node then, and no worker or standby can be asked.
#[tokio::test]
async fn a_node_that_leads_without_zookeeper_has_all_rows_and_commits_alone() {
    let Some(mut stage) = Stage::start(true).await else { return };
    let first = stage.cluster.leader().await.unwrap();
    let west = stage.cluster.worker("west-1");
    west.ask_to_end();
    assert!(west.ended_by(Instant::now() + LONG).unwrap().success());
    stage.lose("east-1");
    stage.cluster.worker("west-1").lead_alone("I have fenced: member east-1, site east");
    stage.writes_on().await;
    assert_eq!(stage.lost(&Leader { member: "west-1".to_owned(), ..first }).len(), 0);
    stage.end().await;
}

#[tokio::test]
async fn a_frozen_worker_leaves_no_primary_behind() {
    let Some(mut stage) = Stage::start(false).await else { return };
    let first = stage.cluster.leader().await.unwrap();
    stage.cluster.worker("east-1").freeze();
    // Its guard ends PostgreSQL before the lease ends: the clients of both nodes are the witnesses.
    let second = stage.successor_of(&first).await;
    stage.writes_on().await;
    stage.writers.forget(&stage.lost(&second));
    stage.cluster.worker("east-1").thaw();
    stage.fits("east-1").await;
    stage.end().await;
}

#[tokio::test]
async fn a_member_that_was_not_synchronous_does_not_lead() {
    let Some(mut stage) = Stage::start(true).await else { return };
    let first = stage.cluster.leader().await.unwrap();
    stage.cut_replication("east-1");
    let count = stage.writers.acks().len();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_for("a commit that waits", SOON, async || {
        let waiting = stage.sql("east-1", waits)?;
        if waiting.trim() == "1" { Ok(()) } else { Err(waiting) }
    })
    .await;
    assert!(stage.writers.acks().len() <= count + 20);

    let refused = stage.run_script("east-1", &["alone", "on"]).unwrap_err();
    assert_eq!(refused, "first: dr-worker maintenance west-1\n");
    stage.cluster.operator().done(&["maintenance", "west-1"]).await;
    stage.run_script("east-1", &["alone", "on"]).unwrap();
    stage.writes_on().await;

    // It lacks these rows, and does not lead when the primary is lost: not by itself, nor if asked.
    stage.lose("east-1");
    stage.no_leader("west-1", "it is in maintenance").await;
    let refused = stage.cluster.operator().run(&["failover", "--to", "west-1", "--wait"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    refused.complains_of(&["it is in maintenance"]);
    stage.return_of("east-1");
    let second = stage.cluster.leader_is("the primary again", LONG, |now| now.token > first.token).await;
    assert_eq!(second.member, "east-1");
    assert_eq!(stage.lost(&second).len(), 0);

    // In the new term commits wait for west-1 again, and it confirms them.
    stage.mend_replication("east-1");
    stage.writes_on().await;
    stage.cluster.operator().done(&["maintenance", "west-1", "--off"]).await;
    stage.fits("west-1").await;

    // A client that has seen the newer token refuses an older server.
    let require = |token: u64| stage.sql("east-1", &format!("SELECT dr.require({token})"));
    assert_eq!(require(first.token).unwrap().trim(), second.token.to_string());
    let old = require(second.token + 1).unwrap_err();
    assert!(old.contains("a newer one was seen"), "{old}");
    stage.end().await;
}

/// By the check that is the liveness of the standby, and restarts it.
#[tokio::test]
async fn a_standby_whose_timeline_has_diverged_is_found_and_rewound() {
    let Some(mut stage) = Stage::start(false).await else { return };
    let leader = stage.cluster.leader().await.unwrap();
    assert_eq!(leader.member, "east-1");
    stage.writers.pause(true);
    let attached = |stage: &Stage| stage.run_script("west-1", &["attached"]);
    assert_eq!(attached(&stage), Ok(String::new()));
    stage.sql("west-1", "SELECT pg_promote()").unwrap();
    assert_eq!(attached(&stage), Err("nothing comes from the leader, which answers\n".to_owned()));
    stage.cluster.operator().done(&["restart", "--standby", "west-1", "--wait"]).await;
    stage.fits("west-1").await;
    assert_eq!(attached(&stage), Ok(String::new()));
    assert!(stage.cluster.worker("west-1").log_text().contains("rewound:"));
    stage.writers.pause(false);
    stage.writes_on().await;
    assert_eq!(stage.lost(&leader).len(), 0);
    stage.end().await;
}
