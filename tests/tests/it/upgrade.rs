//! Workers that execute a new program in place, and new programs that fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, is_there, program, wait_for};
use serde_json::Value;
use zk_session::BootTime;

e2e::with_both_drivers!(
    a_worker_is_upgraded_again_and_again_and_its_job_does_not_notice,
    jobs_without_an_elector_do_not_notice_either,
    an_upgraded_worker_still_restarts_its_job_and_hands_it_over,
    a_program_that_cannot_continue_is_refused_and_the_worker_goes_on,
    a_new_program_that_ends_at_once_costs_the_leadership_and_nothing_overlaps,
    a_new_program_that_hangs_costs_the_leadership_before_the_lease_ends,
    there_is_no_upgrade_while_a_member_takes_over,
);

/// The number of upgrades, unless `UPGRADES` is set. Then other processes compute meanwhile.
const UPGRADES: u32 = 10;

/// Two workers, of which the preferred one leads.
fn two(driver: Driver) -> Setup {
    Setup::new(driver).workers(&[("east-1", "east"), ("west-1", "west")])
}

async fn history(cluster: &Cluster) -> Value {
    cluster.operator().json(&["history"]).await
}

async fn upgrade(cluster: &Cluster, member: &str) -> Value {
    cluster.as_worker(member).json(&["upgrade"]).await
}

/// The ballot of a member, in its record.
async fn ballot(cluster: &mut Cluster, member: &str) -> Option<String> {
    let list = cluster.operator().json(&["list"]).await;
    let text = list.to_string();
    let at = text.find(&format!("\"member\":\"{member}\""))?;
    let rest = &text[at..];
    let ballot = rest.split("\"ballot\":\"").nth(1)?;
    ballot.split('"').next().map(str::to_owned)
}

/// Connects to an address all the time, and counts the refusals.
fn knock(
    at: std::net::SocketAddr,
    ends: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
) -> std::thread::JoinHandle<u32> {
    std::thread::spawn(move || {
        let mut knocks = 0;
        while !ends.load(Ordering::Relaxed) {
            knocks += 1;
            if std::net::TcpStream::connect(at).is_err() {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        knocks
    })
}

/// Processes that compute, ended when this is dropped.
struct Load(Vec<std::process::Child>);

impl Load {
    fn of(processes: usize) -> Self {
        let compute = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Self((0..processes).map(compute).map(Result::unwrap).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program that answers the check as the usual one, and then does this.
fn replace_by(link: &Path, then: &str) {
    let real = program("dr-worker");
    let real = real.display();
    replace(
        link,
        &format!("#!/bin/sh\ncase \"$*\" in *--resume-check*) exec {real} \"$@\";; esac\n{then}\n"),
    );
}

/// A file in the place of the program, as a package manager puts it there.
fn replace(link: &Path, text: &str) {
    let new = link.with_extension("new");
    zk_testkit::write_program(&new, text);
    fs::rename(&new, link).unwrap();
}

async fn a_worker_is_upgraded_again_and_again_and_its_job_does_not_notice(driver: Driver) {
    let rounds = std::env::var("UPGRADES").map(|rounds| rounds.parse().unwrap());
    let _load = Load::of(if rounds.is_ok() { 2 } else { 0 });
    let rounds = rounds.unwrap_or(UPGRADES);
    let mut cluster = Cluster::of(two(driver)).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    let before = history(&cluster).await;
    let pids = [cluster.worker("east-1").pid(), cluster.worker("west-1").pid()];
    let guards = cluster.worker(&first.member).guards();
    let standby = if first.member == "east-1" { "west-1" } else { "east-1" };
    let ballots = [ballot(&mut cluster, &first.member).await, ballot(&mut cluster, standby).await];
    let (ends, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let knocking = knock(cluster.worker(&first.member).http(), Arc::clone(&ends), Arc::clone(&refused));

    let mut upgrading = Vec::new();
    for round in 0..rounds {
        let began = BootTime::now();
        let said = upgrade(&cluster, &first.member).await;
        upgrading.push((began, BootTime::now()));
        assert_eq!(said["jobs"][0]["term"], first.term, "round {round}: {said}");
        assert_eq!(said["jobs"][0]["fencing_token"], first.token, "round {round}: {said}");
        let standbys = upgrade(&cluster, standby).await;
        assert_eq!(standbys["jobs"], serde_json::json!([]), "round {round}: {standbys}");
        let now = cluster.leader_is("the same one", SOON, |_| true).await;
        assert_eq!(now, first, "round {round}");
    }
    ends.store(true, Ordering::Relaxed);
    let knocks = knocking.join().unwrap();
    assert_eq!(refused.load(Ordering::Relaxed), 0, "of {knocks} connections");

    assert_eq!([cluster.worker("east-1").pid(), cluster.worker("west-1").pid()], pids);
    assert_eq!(cluster.worker(&first.member).guards(), guards);
    assert_eq!([ballot(&mut cluster, &first.member).await, ballot(&mut cluster, standby).await], ballots);
    assert_eq!(history(&cluster).await, before, "no leadership has begun");
    let acting = cluster.acts(first.token).await;
    assert_eq!(acting.mains.len(), 1, "the job was not started again");
    assert!(!acting.was_asked, "the job was not asked to stop");
    // A job that was stopped or suspended for an upgrade would pause in each.
    let stamps: Vec<_> = cluster.journal().stamps().into_iter().map(|stamp| stamp.at).collect();
    let gap = |&(from, to): &(BootTime, BootTime)| {
        let acts = stamps.iter().filter(|at| (from..=to).contains(at));
        let all: Vec<_> = [from].into_iter().chain(acts.copied()).chain([to]).collect();
        all.windows(2).map(|two| two[1].duration_since(two[0])).max().unwrap()
    };
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let mut gaps: Vec<_> = upgrading.iter().map(gap).collect();
    let mut took: Vec<_> = upgrading.iter().map(|(from, to)| to.duration_since(*from)).collect();
    println!("{driver}: the longest gaps between two acts of the job, by upgrade: {gaps:?}");
    let (gap, took) = (median(&mut gaps), median(&mut took));
    assert!(gap < took / 4, "the job rests for {gap:?} of the {took:?} of an upgrade");
    cluster.journal().assert_never_moved();
    cluster.end().await;
}

async fn jobs_without_an_elector_do_not_notice_either(driver: Driver) {
    for recipe in ["queue", "single"] {
        let mut cluster = Cluster::of(two(driver).set("job.orders.recipe", recipe)).await;
        let first = cluster.settled().await;
        let standby = if first.member == "east-1" { "west-1" } else { "east-1" };
        let acting = cluster.acts(first.token).await;
        let before = history(&cluster).await;
        for member in [&first.member, standby, &first.member, standby] {
            let said = upgrade(&cluster, member).await;
            let led = said["jobs"].as_array().unwrap().iter().map(|job| &job["fencing_token"]);
            let expected = if *member == *first.member { vec![first.token] } else { vec![] };
            assert_eq!(led.collect::<Vec<_>>(), expected, "{recipe}: {said}");
        }
        assert_eq!(cluster.leader().await, Ok(first.clone()), "{recipe}");
        assert_eq!(history(&cluster).await, before, "{recipe}: no leadership has begun");
        assert_eq!(
            cluster.acts(first.token).await.mains,
            acting.mains,
            "{recipe}: the job was not started again"
        );

        // The one that has waited since before its upgrade follows, and is upgraded in turn.
        cluster.worker(&first.member).kill();
        let second = cluster.successor_of(&first, SOON).await;
        assert_eq!(second.member, standby, "{recipe}");
        cluster.worker(&first.member).start();
        cluster.standing_by(1).await;
        upgrade(&cluster, &second.member).await;
        upgrade(&cluster, &first.member).await;
        assert_eq!(cluster.leader().await, Ok(second.clone()), "{recipe}");
        assert_eq!(cluster.acts(second.token).await.mains.len(), 1, "{recipe}");
        cluster.journal().assert_one_at_a_time();
        cluster.end().await;
    }
}

async fn an_upgraded_worker_still_restarts_its_job_and_hands_it_over(driver: Driver) {
    let mut cluster = Cluster::of(two(driver)).await;
    let first = cluster.settled().await;
    let acting = cluster.acts(first.token).await;
    upgrade(&cluster, &first.member).await;

    // Its job ends: it is restarted.
    e2e::kill_pid(acting.mains[0]);
    let restarted = cluster
        .leader_is("with a restarted job", SOON, |leader| leader.restarts == 1 && leader.pid.is_some())
        .await;
    assert_eq!(Leader { pid: first.pid, restarts: 0, ..restarted.clone() }, first);
    upgrade(&cluster, &first.member).await;
    let kept = cluster.leader_is("with its restarts", SOON, |leader| leader.pid == restarted.pid).await;
    assert_eq!(kept.restarts, 1);
    // An operator restarts it, and stops it; a stopped job is no obstacle either.
    cluster.operator().done(&["restart", "--wait"]).await;
    cluster.operator().done(&["stop", "--wait"]).await;
    upgrade(&cluster, &first.member).await;
    cluster.operator().done(&["start", "--wait"]).await;
    // It hands over as any other, and the worker that follows is the one that has just been on standby.
    upgrade(&cluster, &first.member).await;
    cluster.operator().done(&["switchover", "--wait"]).await;
    let second = cluster.successor_of(&first, SOON).await;
    assert_ne!(second.member, first.member);
    // A worker that is killed after its upgrade: its guard, of the program before, ends the job and closes the session.
    let acting = cluster.acts(second.token).await;
    upgrade(&cluster, &second.member).await;
    let killed = Instant::now();
    cluster.worker(&second.member).kill();
    let third = cluster.successor_of(&second, SOON).await;
    println!("{driver}: READY {:?} after SIGKILL", killed.elapsed());
    assert!(acting.pids.iter().all(|pid| !is_there(*pid)));
    assert_eq!(third.member, first.member);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn a_program_that_cannot_continue_is_refused_and_the_worker_goes_on(driver: Driver) {
    let mut cluster = Cluster::of(two(driver).not_started()).await;
    let link = cluster.worker("east-1").link_program();
    cluster.workers().iter_mut().for_each(e2e::Worker::start);
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");
    let refused = async |cluster: &Cluster, code: i32, why: &str| {
        let said = cluster.as_worker("east-1").run(&["upgrade"]).await.with_code(code);
        assert!(said.stderr.contains(why), "{why}: {said:#?}");
    };
    replace(&link, "this is no program\n");
    refused(&cluster, 1, "it can't continue: exit code 127").await;
    fs::set_permissions(&link, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&cluster, 1, "Permission denied").await;
    replace(&link, "#!/bin/sh\nexit 0\n");
    refused(&cluster, 1, "can't continue a running worker").await;
    replace(&link, "#!/bin/sh\necho \"$@\"\n");
    refused(&cluster, 1, "can't continue a running worker").await;
    replace(&link, "#!/bin/sh\nexit 64\n");
    refused(&cluster, 1, "can't continue a running worker").await;
    replace(&link, "#!/bin/sh\nsleep 60\n");
    refused(&cluster, 1, "did not answer within").await;
    fs::remove_file(&link).unwrap();
    refused(&cluster, 1, "No such file").await;
    // The program is well again, and its configuration is not.
    std::os::unix::fs::symlink(program("dr-worker"), &link).unwrap();
    let config = cluster.worker("east-1").configs()[1].clone();
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{good}\n[job.bills]\ncommand = []\n")).unwrap();
    let said = cluster.operator().run(&["--config", config.to_str().unwrap(), "upgrade"]).await.with_code(78);
    assert!(said.stderr.contains("job.bills.command"), "{said:#?}");
    fs::write(&config, good.replace("\"east-1\"", "\"east-9\"")).unwrap();
    let other = config.with_file_name("as-before.toml");
    fs::write(&other, &good).unwrap();
    let said = cluster.operator().run(&["--config", other.to_str().unwrap(), "upgrade"]).await.with_code(78);
    assert!(said.stderr.contains("node.id"), "{said:#?}");
    fs::write(&config, good).unwrap();

    assert_eq!(cluster.leader().await, Ok(first.clone()));
    assert_eq!(upgrade(&cluster, "east-1").await["jobs"][0]["fencing_token"], first.token);
    assert_eq!(cluster.acts(first.token).await.mains.len(), 1);
    // Without a worker there is nothing to upgrade.
    cluster.worker("west-1").ask_to_end();
    assert!(cluster.worker("west-1").ended_by(Instant::now() + SOON).is_some());
    let said = cluster.as_worker("west-1").run(&["upgrade"]).await.with_code(1);
    assert!(said.stderr.contains("no worker of west-1"), "{said:#?}");
    cluster.end().await;
}

async fn a_new_program_that_ends_at_once_costs_the_leadership_and_nothing_overlaps(driver: Driver) {
    let (mut cluster, first, link) = leading_by_link(two(driver)).await;
    replace_by(&link, "exit 3");
    let said = cluster.as_worker("east-1").run(&["upgrade"]).await.with_code(1);
    assert!(said.stderr.contains("has ended during the upgrade"), "{said:#?}");
    let status = cluster.worker("east-1").ended_by(Instant::now() + SOON).unwrap();
    assert_eq!(status.code(), Some(3));
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(second.member, "west-1");
    cluster.acts(second.token).await;
    assert!(cluster.journal().acting(first.token).unwrap().was_asked, "the guard has asked the job to end");
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn a_new_program_that_hangs_costs_the_leadership_before_the_lease_ends(driver: Driver) {
    let (mut cluster, first, link) = leading_by_link(two(driver)).await;
    replace_by(&link, "exec sleep 3600");
    let pid = cluster.worker("east-1").pid();
    let operator = cluster.as_worker("east-1");
    let upgrading = tokio::spawn(async move { operator.run(&["upgrade"]).await });
    wait_for("the new program", SOON, async || {
        let name = e2e::name_of(pid);
        if name.as_deref() == Some("sleep") { Ok(()) } else { Err(format!("{name:?}")) }
    })
    .await;
    // It does not answer, so it is left out while the others are asked who leads.
    let second = wait_for("another leader", SOON, async || {
        let status = cluster.worker("west-1").status().await.ok_or("no answer")?;
        let said = &status["jobs"][JOB];
        if said["role"] == "leader" {
            Ok(said["fencing_token"].as_u64().unwrap())
        } else {
            Err(said.to_string())
        }
    })
    .await;
    assert!(second > first.token);
    cluster.acts(second).await;
    cluster.journal().assert_one_at_a_time();
    cluster.worker("east-1").kill();
    let said = upgrading.await.unwrap().with_code(1);
    assert!(said.stderr.contains("has ended during the upgrade"), "{said:#?}");
    cluster.end().await;
}

/// What was checked is what is used.
#[tokio::test]
async fn what_has_changed_after_the_check_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let credentials = dir.path().join("credentials");
    fs::write(&credentials, "dr:secret").unwrap();
    fs::set_permissions(&credentials, fs::Permissions::from_mode(0o600)).unwrap();
    let setup = two(Driver::Native)
        .set("zookeeper.acl", "open")
        .set_for("east-1", "zookeeper.auth.scheme", "digest")
        .set_for("east-1", "zookeeper.auth.credentials_file", credentials.to_str().unwrap());
    let (mut cluster, first, link) = leading_by_link(setup).await;
    let config = cluster.worker("east-1").configs()[1].clone();
    let good = fs::read_to_string(&config).unwrap();
    let real = program("dr-worker");
    let accepts = format!("{} \"$@\"; echo >> \"$0\"; exit", real.display());
    replace(&link, &format!("#!/bin/sh\ncase \"$*\" in *--resume-check*) {accepts};; esac\nexit 1\n"));
    let said = cluster.as_worker("east-1").run(&["upgrade"]).await.with_code(75);
    assert!(said.stderr.contains("was replaced after it had accepted"), "{said:#?}");

    replace_by(
        &link,
        &format!(
            "echo 'no configuration' | tee {} > {}\nexec {} \"$@\"",
            credentials.display(),
            config.display(),
            real.display()
        ),
    );
    assert_eq!(upgrade(&cluster, "east-1").await["jobs"][0]["fencing_token"], first.token);
    assert!(fs::read_to_string(&config).unwrap().contains("no configuration"));
    assert_eq!(cluster.leader().await, Ok(first.clone()));
    assert_eq!(cluster.acts(first.token).await.mains.len(), 1);
    // Once it has started it reads the file again.
    let other = config.with_file_name("as-before.toml");
    fs::write(&other, &good).unwrap();
    let said = cluster.operator().run(&["--config", other.to_str().unwrap(), "upgrade"]).await.with_code(78);
    assert!(said.stderr.contains("this is not valid TOML"), "{said:#?}");
    assert_eq!(cluster.leader().await, Ok(first));
    cluster.journal().assert_never_moved();
    cluster.end().await;
}

/// As an operator and a package manager may ask at the same time.
#[tokio::test]
async fn upgrades_that_are_asked_for_at_once_all_report_that_it_was_done() {
    let (mut cluster, first, _) = leading_by_link(two(Driver::Native)).await;
    let ask = async || upgrade(&cluster, "east-1").await;
    let (one, two, three, four) = tokio::join!(ask(), ask(), ask(), ask());
    for said in [one, two, three, four] {
        assert_eq!(said["jobs"][0]["fencing_token"], first.token);
    }
    assert_eq!(cluster.leader().await, Ok(first));
    cluster.journal().assert_never_moved();
    cluster.end().await;
}

async fn leading_by_link(setup: Setup) -> (Cluster, Leader, std::path::PathBuf) {
    let mut cluster = Cluster::of(setup.not_started()).await;
    let link = cluster.worker("east-1").link_program();
    cluster.workers().iter_mut().for_each(e2e::Worker::start);
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");
    cluster.acts(first.token).await;
    (cluster, first, link)
}

async fn there_is_no_upgrade_while_a_member_takes_over(driver: Driver) {
    let mut cluster = Cluster::of(two(driver).set("job.orders.ready.after", "25s")).await;
    wait_for("a takeover", SOON, async || {
        let status = cluster.worker("east-1").status().await.ok_or("no answer")?;
        let role = &status["jobs"][JOB]["role"];
        if role == "taking-over" { Ok(()) } else { Err(role.to_string()) }
    })
    .await;
    let said = cluster.as_worker("east-1").run(&["upgrade"]).await.with_code(75);
    assert!(said.stderr.contains("taking over or stepping down"), "{said:#?}");
    let first = cluster.first_leader().await;
    upgrade(&cluster, &first.member).await;
    assert_eq!(cluster.leader().await, Ok(first));
    cluster.end().await;
}
