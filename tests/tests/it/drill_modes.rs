//! What workers do in a drill. A small helper writes the order's znode.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, Znodes, wait_for, when_gone};
use serde_json::{Value, json};
use zk_session::{BootTime, CreateMode};

e2e::with_both_drivers!(
    a_standby_rehearses_without_a_token_while_the_leader_serves_on,
    a_rehearsal_ends_before_a_real_takeover_and_with_its_order,
    a_killed_job_is_seen_from_both_sites,
    a_worker_kills_itself_once_and_only_where_something_restarts_it,
    a_site_that_is_cut_off_returns_by_itself,
);

/// An order of a drill, as an operator's program writes it. Only the test deletes it.
struct Order<'a> {
    run: &'a str,
    mode: &'a str,
    members: &'a [&'a str],
    valid_for: Duration,
    more: Value,
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

async fn give(znodes: &Znodes, order: Order<'_>) {
    let at_ms = unix_ms();
    let until_ms = at_ms + u64::try_from(order.valid_for.as_millis()).unwrap();
    let mut record = json!({
        "v": 1, "run": order.run, "by": "a test", "at_ms": at_ms, "until_ms": until_ms,
        "mode": order.mode, "members": order.members, "go": true, "probe": true,
    });
    record.as_object_mut().unwrap().extend(order.more.as_object().cloned().unwrap_or_default());
    let session = znodes.session();
    let drill = znodes.path(&format!("{JOB}/drill"));
    for path in [format!("{drill}/answers"), drill.clone()] {
        session.create_parents(&format!("{path}/x")).await.unwrap();
    }
    let data = record.to_string().into_bytes();
    session.create(&format!("{drill}/order"), data, CreateMode::Persistent).await.unwrap();
}

/// Lets the members carry the order out.
async fn go(znodes: &Znodes) {
    let path = znodes.path(&format!("{JOB}/drill/order"));
    let node = znodes.session().get(&path).await.unwrap().unwrap();
    let mut record: Value = serde_json::from_slice(&node.data).unwrap();
    record["go"] = json!(true);
    znodes.session().set(&path, record.to_string().into_bytes(), Some(node.stat.version)).await.unwrap();
}

async fn withdraw(znodes: &Znodes) {
    let path = znodes.path(&format!("{JOB}/drill/order"));
    znodes.session().delete(&path, None).await.unwrap();
}

/// Waits for an answer to this run that satisfies the condition.
async fn answer(
    znodes: &Znodes,
    run: &str,
    member: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    wait_for(&format!("the answer of {member} to {run}: {what}"), SOON, async || {
        let data = znodes.get(&format!("{JOB}/drill/answers/{member}")).await.ok_or("none")?;
        let answer: Value = serde_json::from_slice(&data).unwrap();
        if answer["run"] == run && wanted(&answer) { Ok(answer) } else { Err(format!("{answer:#}")) }
    })
    .await
}

fn states(answer: &Value) -> Vec<&str> {
    answer["steps"].as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect()
}

fn last_is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |answer| states(answer).last() == Some(&state)
}

fn reason(answer: &Value) -> &str {
    answer["steps"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap_or_default()
}

fn is_closed(answer: &Value) -> bool {
    answer["closed"] == true
}

const ALL: [&str; 5] = ["rehearse", "switchover", "kill-job", "kill-worker", "cut-site"];

/// A setup whose job rehearses with this script, which gets the directory as `$1`.
fn rehearsing(driver: Driver, script: &str, dir: &std::path::Path) -> Setup {
    let command = ["sh", "-c", script, "sh", dir.to_str().unwrap()];
    Setup::new(driver).set("job.orders.rehearsal.command", command.map(str::to_owned).to_vec())
}

/// Writes its pid and its environment, and lives until it is asked to end.
const REHEARSES: &str =
    "env > $1/env.new; mv $1/env.new $1/env; echo $$ > $1/pid.new; mv $1/pid.new $1/pid; exec sleep 1000";

async fn pid_in(dir: &std::path::Path) -> u32 {
    wait_for("a rehearsal that runs", SOON, async || {
        let text = std::fs::read_to_string(dir.join("pid")).map_err(|error| error.to_string())?;
        text.trim().parse().map_err(|_| text)
    })
    .await
}

fn standby_of<'a>(leader: &Leader, all: &'a [&'a str]) -> &'a str {
    all.iter().find(|id| **id != leader.member).unwrap()
}

const WORKERS: [&str; 4] = ["west-1", "east-1", "west-2", "east-2"];

async fn a_standby_rehearses_without_a_token_while_the_leader_serves_on(driver: Driver) {
    let dir = tempfile::tempdir().unwrap();
    // The real job is ready at once, the rehearsal once it has written everything.
    let ready = format!("test -z \"$DR_REHEARSAL\" || test -e {}/pid", dir.path().display());
    let setup = rehearsing(driver, REHEARSES, dir.path())
        .unset("job.orders.ready")
        .set("job.orders.ready.kind", "exec")
        .set("job.orders.ready.command", ["sh", "-c", &ready].map(str::to_owned).to_vec())
        .set_for("west-2", "job.orders.rehearsal.enabled", false);
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.settled().await;
    let znodes = cluster.znodes().await.clone();
    let members = ["west-1", "west-2", &leader.member];
    let valid_for = Duration::from_secs(30);
    give(&znodes, Order { run: "r1", mode: "rehearse", members: &members, valid_for, more: json!({}) }).await;

    let done = answer(&znodes, "r1", "west-1", "ended", last_is("ended")).await;
    assert_eq!(states(&done), ["accepted", "started", "ready", "ended"], "{done:#}");
    let refused = answer(&znodes, "r1", &leader.member, "refused", last_is("refused")).await;
    assert!(reason(&refused).contains("this member is leader"), "{refused:#}");
    let refused = answer(&znodes, "r1", "west-2", "refused", last_is("refused")).await;
    assert!(reason(&refused).contains("rehearsal.enabled"), "{refused:#}");

    let env = std::fs::read_to_string(dir.path().join("env")).unwrap();
    let value = |name: &str| env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    assert_eq!(
        (value("DR_REHEARSAL"), value("DR_JOB"), value("DR_MEMBER")),
        (Some("1"), Some(JOB), Some("west-1"))
    );
    assert_eq!((value("DR_FENCING_TOKEN"), value("DR_TERM")), (None, None));
    let pid = pid_in(dir.path()).await;
    assert!(!e2e::is_there(pid), "the rehearsal has ended");
    assert_eq!(cluster.leader().await.unwrap(), leader, "nothing in production moved");
    let acted = cluster.journal().actings();
    assert_eq!(acted.len(), 1, "the job itself ran on the leader alone: {acted:?}");

    withdraw(&znodes).await;
    answer(&znodes, "r1", "west-1", "closed", is_closed).await;
    cluster.end().await;
}

async fn a_rehearsal_ends_before_a_real_takeover_and_with_its_order(driver: Driver) {
    let dir = tempfile::tempdir().unwrap();
    // It never becomes ready, and takes its time to end.
    let script = "trap 'sleep 0.5; exit' TERM; echo $$ > $1/pid.new; mv $1/pid.new $1/pid; while :; do sleep 0.05; done";
    // The ready check of the real job passes at once; that of the rehearsal fails.
    let ready = ["sh", "-c", "test -z \"$DR_REHEARSAL\""].map(str::to_owned).to_vec();
    let setup = rehearsing(driver, script, dir.path())
        .unset("job.orders.ready")
        .set("job.orders.ready.kind", "exec")
        .set("job.orders.ready.command", ready)
        .workers(&[("east-1", "east"), ("west-1", "west")]);
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    let znodes = cluster.znodes().await.clone();
    let members = [standby_of(&first, &WORKERS[..2])];
    let order =
        |run, valid_for| Order { run, mode: "rehearse", members: &members, valid_for, more: json!({}) };

    give(&znodes, order("r1", Duration::from_secs(120))).await;
    let pid = pid_in(dir.path()).await;
    let gone = when_gone(BTreeSet::from([pid]));
    cluster.operator().done(&["switchover", "--to", members[0], "--wait"]).await;
    let second = cluster.successor_of(&first, SOON).await;
    let begun = cluster.acts(second.token).await.from;
    let gone = gone.join().unwrap();
    assert!(gone < begun, "the rehearsal was there for {:?} after that", gone.duration_since(begun));
    let failed = answer(&znodes, "r1", members[0], "failed", last_is("failed")).await;
    assert!(reason(&failed).contains("takes over"), "{failed:#}");
    cluster.journal().assert_one_at_a_time();
    withdraw(&znodes).await;
    answer(&znodes, "r1", members[0], "closed", is_closed).await;

    cluster.standing_by(1).await;
    // This one is not withdrawn: its program is gone.
    std::fs::remove_file(dir.path().join("pid")).unwrap();
    let members = [first.member.as_str()];
    let order = Order {
        run: "r2",
        mode: "rehearse",
        members: &members,
        valid_for: Duration::from_secs(5),
        more: json!({}),
    };
    give(&znodes, order).await;
    let pid = pid_in(dir.path()).await;
    let failed = answer(&znodes, "r2", members[0], "closed", is_closed).await;
    assert_eq!(states(&failed), ["accepted", "started", "failed"], "{failed:#}");
    assert!(!e2e::is_there(pid), "it ended with its order");
    assert_eq!(cluster.leader().await.unwrap(), second);
    cluster.end().await;
}

/// How long the sites probe before the job is killed.
const PROBED: Duration = Duration::from_secs(2);

/// A file that exists while the job is served, which the job's hook of every member makes: the probe looks at it.
fn served_file(dir: &std::path::Path) -> PathBuf {
    dir.join("served")
}

async fn a_killed_job_is_seen_from_both_sites(driver: Driver) {
    let dir = tempfile::tempdir().unwrap();
    // The service as users see it: the main process of the job, by its pid.
    let served = served_file(dir.path());
    // In the directory of the job.
    let probe = "kill -0 $(cat served)";
    let setup = Setup::new(driver)
        .set("job.orders.drill.allow", vec!["kill-job"])
        .set("job.orders.restart.backoff", "1s")
        .set("job.orders.drill.probe.kind", "exec")
        .set("job.orders.working_dir", dir.path().to_str().unwrap())
        .set("job.orders.drill.probe.command", ["sh", "-c", probe].map(str::to_owned).to_vec())
        .set("job.orders.drill.probe.timeout", "5s");
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.settled().await;
    let znodes = cluster.znodes().await.clone();
    let pid = leader.pid.unwrap();
    std::fs::write(&served, pid.to_string()).unwrap();

    let members = [leader.member.as_str()];
    let valid_for = Duration::from_secs(60);
    let more = json!({ "go": false });
    give(&znodes, Order { run: "k1", mode: "kill-job", members: &members, valid_for, more }).await;
    answer(&znodes, "k1", &leader.member, "accepted", last_is("accepted")).await;
    tokio::time::sleep(PROBED).await;
    let agreed = answer(&znodes, "k1", &leader.member, "any", |_| true).await;
    assert_eq!(states(&agreed), ["accepted"], "{agreed:#}");
    go(&znodes).await;
    let done = answer(&znodes, "k1", &leader.member, "ended", last_is("ended")).await;
    assert_eq!(states(&done), ["accepted", "started", "ready", "ended"], "{done:#}");
    assert!(reason(&done).contains(&pid.to_string()), "{done:#}");
    let again =
        cluster.leader_is("the restarted job", SOON, |now| now.pid.is_some_and(|now| now != pid)).await;
    assert_eq!(
        (&again.member, again.token, again.restarts),
        (&leader.member, leader.token, leader.restarts + 1)
    );
    std::fs::write(&served, again.pid.unwrap().to_string()).unwrap();

    // The lowest id of each site probes.
    let saw_it = |answer: &Value| answer["probes"]["outages"][0]["served_from_ms"].is_u64();
    for prober in ["east-1", "west-1"] {
        let saw = answer(&znodes, "k1", prober, "an outage that is over", saw_it).await;
        let outage = &saw["probes"]["outages"][0];
        assert!(outage["served_until_ms"].is_u64() && outage["count"].as_u64() >= Some(1), "{saw:#}");
        assert!(saw["probes"]["longest_gap_ms"].as_u64().unwrap() >= 500, "{saw:#}");
    }
    assert_eq!(znodes.get(&format!("{JOB}/drill/answers/west-2")).await, None, "it has nothing to do");
    withdraw(&znodes).await;
    for prober in ["east-1", "west-1"] {
        let closed = answer(&znodes, "k1", prober, "closed", is_closed).await;
        assert_eq!(states(&closed).last(), Some(&"ended"), "{closed:#}");
    }

    // Not allowed here.
    let valid_for = Duration::from_secs(30);
    give(&znodes, Order { run: "c1", mode: "cut-site", members: &members, valid_for, more: json!({}) }).await;
    let refused = answer(&znodes, "c1", &leader.member, "refused", last_is("refused")).await;
    assert!(reason(&refused).contains("job.orders.drill.allow"), "{refused:#}");
    cluster.end().await;
}

async fn a_worker_kills_itself_once_and_only_where_something_restarts_it(driver: Driver) {
    let setup =
        Setup::new(driver).set("drill.allow", ALL.to_vec()).set_for("east-1", "drill.restarted", true);
    let setup = setup.workers(&[("east-1", "east"), ("west-1", "west")]);
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");
    let znodes = cluster.znodes().await.clone();
    let order = Order {
        run: "w1",
        mode: "kill-worker",
        members: &["east-1", "west-1"],
        valid_for: Duration::from_secs(120),
        more: json!({}),
    };
    give(&znodes, order).await;
    let refused = answer(&znodes, "w1", "west-1", "refused", last_is("refused")).await;
    assert!(reason(&refused).contains("drill.restarted"), "{refused:#}");
    wait_for("the worker's end", SOON, async || {
        let ended = cluster.worker("east-1").ended();
        ended
            .map(|status| assert!(status.code().is_none(), "killed, not {status}"))
            .ok_or("it lives".to_owned())
    })
    .await;
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    assert_eq!(second.member, "west-1");

    // As its service manager would: it sees the same order, and does not kill itself again.
    cluster.worker("east-1").start();
    let done = answer(&znodes, "w1", "east-1", "ended", last_is("ended")).await;
    assert_eq!(states(&done), ["accepted", "started", "ended"], "{done:#}");
    cluster.standing_by(1).await;
    withdraw(&znodes).await;
    answer(&znodes, "w1", "east-1", "closed", is_closed).await;
    cluster.end().await;
}

async fn a_site_that_is_cut_off_returns_by_itself(driver: Driver) {
    let mut cluster = Cluster::of(Setup::new(driver).set("drill.allow", ALL.to_vec())).await;
    let first = cluster.settled().await;
    assert_eq!(first.site, "east");
    let znodes = cluster.znodes().await.clone();
    let lasts = Duration::from_secs(25);
    let order = Order {
        run: "s1",
        mode: "cut-site",
        members: &["east-1", "east-2"],
        valid_for: Duration::from_secs(300),
        more: json!({ "cut_ms": u64::try_from(lasts.as_millis()).unwrap() }),
    };
    give(&znodes, order).await;
    for member in ["east-1", "east-2"] {
        answer(&znodes, "s1", member, "started", |answer| states(answer).contains(&"started")).await;
    }
    let began = BootTime::now();
    wait_for("a site that does not answer", SOON, async || {
        let codes = [
            cluster.worker("east-1").code("/liveness").await,
            cluster.worker("east-2").code("/liveness").await,
        ];
        if codes == [None, None] { Ok(()) } else { Err(format!("{codes:?}")) }
    })
    .await;
    // The program that ordered it is gone, and so is the order. The workers can't see that.
    withdraw(&znodes).await;
    // One is restarted in between: it starts normally.
    let restarted = if first.member == "east-1" { "east-2" } else { "east-1" };
    cluster.worker(restarted).kill();
    let second = cluster.leader_is("one of the other site", SOON, |leader| leader.token > first.token).await;
    assert_eq!(second.site, "west");
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    assert!(BootTime::now() < began + lasts, "the failover took longer than the cut: make it longer");
    cluster.worker(restarted).start();
    cluster.leader_is("the same", SOON, |leader| leader.token == second.token).await;
    wait_for("the restarted one", SOON, async || {
        let code = cluster.worker(restarted).code("/readiness").await;
        if code == Some(200) { Ok(()) } else { Err(format!("{code:?}")) }
    })
    .await;

    cluster.standing_by(3).await;
    let back = answer(&znodes, "s1", &first.member, "closed", is_closed).await;
    assert_eq!(states(&back), ["accepted", "started", "ended"], "{back:#}");
    let after = |at: usize| Duration::from_millis(back["steps"][at]["after_ms"].as_u64().unwrap());
    assert!(after(2) - after(1) >= lasts, "it was back before its time: {back:#}");
    assert_eq!(cluster.leader().await.unwrap(), second);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
