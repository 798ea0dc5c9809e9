//! A leader that did not leave cleanly is fenced before the job starts elsewhere, and any other leader is not.

use std::fs;
use std::path::PathBuf;

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, wait_for};
use serde_json::json;
use zk_session::BootTime;

e2e::with_both_drivers!(
    a_leader_that_vanishes_is_fenced_once_and_no_other,
    a_leader_of_a_queue_is_fenced_too,
    what_can_not_be_fenced_keeps_the_job_down_until_it_can,
    who_comes_back_or_is_confirmed_as_off_is_not_fenced,
    who_was_not_fenced_is_fenced_by_a_later_leader,
    no_record_of_a_stranger_chooses_who_is_fenced,
    who_does_not_let_go_is_fenced_when_leadership_is_forced_away,
);

/// Two commands that record their calls. The second one does what a file says: `ok`, `fail` or `hang`.
struct Fence {
    dir: tempfile::TempDir,
}

impl Fence {
    fn new() -> Self {
        let fence = Self { dir: tempfile::tempdir().unwrap() };
        fence.does("ok");
        fence
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn does(&self, how: &str) {
        // A command that reads it meanwhile finds the former word, or this one.
        fs::write(self.file("how.next"), how).unwrap();
        fs::rename(self.file("how.next"), self.file("how")).unwrap();
    }

    /// The setup with these commands.
    fn of(&self, setup: Setup, on_failure: &str) -> Setup {
        let (calls, how) = (self.file("calls").display().to_string(), self.file("how").display().to_string());
        let who = "$DR_FENCE $DR_MEMBER: $DR_PREVIOUS_LEADER $DR_PREVIOUS_SITE $DR_PREVIOUS_ADDRESS \
                   $DR_PREVIOUS_TERM $DR_TERM";
        let first = format!("echo {who} >> {calls}; echo \"$DR_FENCE_REASON\" > {calls}.reason");
        let second = format!(
            "case $(cat {how}) in \
             fail) echo no answer from the power supply >&2; exit 1;; \
             hang) trap '' TERM; setsid sleep 1000 & sleep 1000;; esac; \
             echo {who} $(cut -d ' ' -f 1 /proc/uptime) >> {calls}"
        );
        let script = |name: &str, text: String| {
            toml::Value::from(toml::Table::from_iter([
                ("name".to_owned(), name.into()),
                ("command".to_owned(), vec!["sh".to_owned(), "-c".to_owned(), text].into()),
                ("timeout".to_owned(), "2s".into()),
            ]))
        };
        let commands = vec![script("first", first), script("second", second)];
        setup.set("job.orders.fence.commands", commands).set("job.orders.fence.on_failure", on_failure)
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Who was fenced, by both commands: `MEMBER: FORMER`.
    fn done(&self) -> Vec<String> {
        let calls = self.calls();
        let second = calls.iter().filter_map(|line| line.strip_prefix("second "));
        second.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

/// Whose job may still run, by the record.
async fn left(cluster: &Cluster) -> Vec<String> {
    let record = cluster.znodes().await.json(&format!("{JOB}/breadcrumbs")).await;
    let all = record["leaderships"].as_array().unwrap();
    all.iter().map(|left| left["member"].as_str().unwrap().to_owned()).collect()
}

async fn is_left(cluster: &Cluster, members: &[&str]) {
    wait_for(&format!("the record of {members:?}"), SOON, async || {
        let left = left(cluster).await;
        if left == members { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// Kills the leader's worker; its guards end the job and its session.
fn kill(cluster: &mut Cluster, leader: &Leader) {
    cluster.worker(&leader.member).kill();
}

fn two(driver: Driver) -> Setup {
    Setup::new(driver).workers(&[("east-1", "east"), ("west-1", "west")])
}

async fn a_leader_that_vanishes_is_fenced_once_and_no_other(driver: Driver) {
    let fence = Fence::new();
    let mut cluster = Cluster::of(fence.of(two(driver), "stop")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    is_left(&cluster, &[&first.member]).await;
    // Planned moves.
    for to in ["west-1", "east-1"] {
        cluster.operator().done(&["switchover", "--to", to, "--wait"]).await;
        is_left(&cluster, &[to]).await;
    }
    // A restart, a stop and a start of the job, and of the leader's worker: it leaves cleanly.
    for verb in ["restart", "stop", "start"] {
        cluster.operator().done(&[verb, "--wait"]).await;
    }
    let second = cluster.leader_is("east-1", SOON, |leader| leader.member == "east-1").await;
    cluster.worker("east-1").ask_to_end();
    wait_for("the end of east-1", SOON, async || {
        cluster.worker("east-1").ended().map(drop).ok_or_else(|| "it runs".to_owned())
    })
    .await;
    let third = cluster.successor_of(&second, SOON).await;
    cluster.worker("east-1").start();
    cluster.standing_by(1).await;
    cluster.acts(third.token).await;
    assert_eq!(fence.calls(), Vec::<String>::new());
    is_left(&cluster, &["west-1"]).await;

    kill(&mut cluster, &third);
    let fourth = cluster.successor_of(&third, SOON).await;
    let acting = cluster.acts(fourth.token).await;
    let calls = fence.calls();
    let call = format!("east-1: west-1 west 127.0.0.1 {} {}", third.term, fourth.term);
    assert_eq!(calls[0], format!("first {call}"));
    let fenced_at = calls[1].strip_prefix(&format!("second {call} ")).unwrap_or_else(|| panic!("{calls:?}"));
    let fenced_at = BootTime::from_duration(std::time::Duration::from_secs_f64(fenced_at.parse().unwrap()));
    assert!(fenced_at < acting.from, "the job acted {acting:?}, before the fence at {fenced_at:?}");
    assert_eq!(calls.len(), 2, "{calls:?}");
    let reason = fs::read_to_string(fence.file("calls.reason")).unwrap();
    let expected = format!(
        "west-1 of site west led in term {} and has not reported that its job has ended\n",
        third.term
    );
    assert_eq!(reason, expected);
    is_left(&cluster, &["east-1"]).await;
    assert_eq!(cluster.worker("east-1").counted("dr_fences_total", "outcome=\"done\"").await, 1);

    // A clean move after it.
    cluster.worker("west-1").start();
    cluster.standing_by(1).await;
    cluster.operator().done(&["switchover", "--to", "west-1", "--wait"]).await;
    assert_eq!(fence.calls().len(), 2);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn a_leader_of_a_queue_is_fenced_too(driver: Driver) {
    let fence = Fence::new();
    let setup = two(driver).set("job.orders.recipe", "queue");
    let mut cluster = Cluster::of(fence.of(setup, "stop")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    kill(&mut cluster, &first);
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    assert_eq!(fence.done(), [format!("{}: {}", second.member, first.member)]);
    is_left(&cluster, &[&second.member]).await;
    cluster.end().await;
}

async fn what_can_not_be_fenced_keeps_the_job_down_until_it_can(driver: Driver) {
    let fence = Fence::new();
    let mut cluster = Cluster::of(fence.of(two(driver), "stop")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    fence.does("hang");
    kill(&mut cluster, &first);
    wait_for("the reason in `list`", SOON, async || {
        let list = cluster.operator().done(&["list"]).await.stdout;
        let says = |text: &str| list.contains(text);
        let is_there = says("second did not end within 2s and was killed")
            && says(&format!("not-fenced: {} of site {} led", first.member, first.site))
            && says("fix: `dr-worker ack --job orders --fenced`");
        if is_there { Ok(()) } else { Err(list) }
    })
    .await;
    cluster.leader().await.unwrap_err();
    let other = if first.member == "east-1" { "west-1" } else { "east-1" };
    assert!(cluster.worker(other).counted("dr_fences_total", "outcome=\"failed\"").await > 0);
    assert!(cluster.worker(other).counted("dr_takeover_failures_total", "").await > 0);
    fence.does("fail");
    wait_for("the other reason in `explain`", SOON, async || {
        let explain = cluster.operator().done(&["explain"]).await.stdout;
        if explain.contains("second failed with exit code 1: no answer") { Ok(()) } else { Err(explain) }
    })
    .await;
    assert_eq!(fence.done(), Vec::<String>::new());

    fence.does("ok");
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    assert_eq!(fence.done(), [format!("{other}: {}", first.member)]);
    let list = cluster.operator().done(&["list"]).await.stdout;
    assert!(!list.contains("not-fenced"), "{list}");
    cluster.journal().assert_one_at_a_time();
    // No process of a command that hung is left.
    cluster.end().await;
}

async fn who_comes_back_or_is_confirmed_as_off_is_not_fenced(driver: Driver) {
    let fence = Fence::new();
    fence.does("fail");
    let mut cluster = Cluster::of(fence.of(two(driver), "stop")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    kill(&mut cluster, &first);
    wait_for("a try to fence it", SOON, async || {
        if fence.calls().is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    // Its next worker proves that nothing of the job is left there.
    cluster.worker(&first.member).start();
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    is_left(&cluster, &[&second.member]).await;

    let before = fence.calls().len();
    kill(&mut cluster, &second);
    wait_for("a try to fence the next one", SOON, async || {
        let calls = fence.calls();
        if calls.len() > before { Ok(()) } else { Err(format!("{calls:?}")) }
    })
    .await;
    let said = cluster.operator().done(&["ack", "--fenced"]).await.stdout;
    assert!(
        said.starts_with(&format!("orders: confirmed as off, so not fenced: {}; ", second.member)),
        "{said}"
    );
    let third = cluster.successor_of(&second, SOON).await;
    cluster.acts(third.token).await;
    is_left(&cluster, &[&third.member]).await;
    let again = cluster.operator().json(&["ack", "--fenced"]).await;
    assert_eq!(again["fenced"], json!([]), "{again}");
    is_left(&cluster, &[&third.member]).await;
    assert_eq!(fence.done(), Vec::<String>::new());
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn who_was_not_fenced_is_fenced_by_a_later_leader(driver: Driver) {
    let fence = Fence::new();
    fence.does("fail");
    let setup = Setup::new(driver).workers(&[("east-1", "east"), ("west-1", "west"), ("west-2", "west")]);
    let mut cluster = Cluster::of(fence.of(setup, "continue")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    kill(&mut cluster, &first);
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    is_left(&cluster, &[&first.member, &second.member]).await;
    let history = cluster.operator().json(&["history", "--job", JOB]).await.to_string();
    let remark =
        format!("started without a fence: {} is not fenced: second failed with exit code 1", first.member);
    assert!(history.contains(&remark), "{history}");
    assert!(
        cluster
            .worker(&second.member)
            .log_text()
            .contains("the job is started although it may still run there")
    );

    fence.does("ok");
    kill(&mut cluster, &second);
    let third = cluster.successor_of(&second, SOON).await;
    cluster.acts(third.token).await;
    let expected = [&first, &second].map(|former| format!("{}: {}", third.member, former.member));
    assert_eq!(fence.done(), expected);
    is_left(&cluster, &[&third.member]).await;
    cluster.end().await;
}

/// Everyone who can write that one record could have the host of another cluster switched off, or give an option to a program.
async fn no_record_of_a_stranger_chooses_who_is_fenced(driver: Driver) {
    let fence = Fence::new();
    let mut cluster = Cluster::of(fence.of(two(driver), "stop")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    let path = format!("{JOB}/breadcrumbs");
    let left = |member: &str| {
        json!({
            "member": member, "site": "east", "address": "-oProxyCommand=touch x\u{0}\n", "term": 1, "fencing_token": 1, "since_ms": 1,
        })
    };
    let forge = async |cluster: &Cluster, members: &[&str]| {
        let mut record = cluster.znodes().await.json(&path).await;
        let all = record["leaderships"].as_array_mut().unwrap();
        all.extend(members.iter().map(|member| left(member)));
        cluster.znodes().await.put(&path, record.to_string().as_bytes()).await;
    };
    forge(&cluster, &["db-prod-7"]).await;
    let other = if first.member == "east-1" { "west-1" } else { "east-1" };
    let moving = ["switchover", "--to", other, "--wait"];
    wait_for("the refusal", SOON, async || {
        let moved = cluster.operator().run(&moving).await;
        let is_refused = format!("{moved:?}")
            .contains("db-prod-7 is not fenced: no other record of the election names it");
        if is_refused { Ok(()) } else { Err(format!("{moved:?}")) }
    })
    .await;
    assert_eq!(fence.calls(), Vec::<String>::new());
    cluster.operator().done(&["ack", "--fenced"]).await;

    // Of a member the address is a host's, or none.
    let leader = cluster.leader_is("any", SOON, |_| true).await;
    let other = if leader.member == "east-1" { "west-1" } else { "east-1" };
    cluster.acts(leader.token).await;
    forge(&cluster, &[&leader.member]).await;
    cluster.operator().done(&["switchover", "--to", other, "--wait"]).await;
    let calls = fence.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].starts_with(&format!("first {other}: {} east 1 ", leader.member)), "{calls:?}");
    cluster.end().await;
}

async fn who_does_not_let_go_is_fenced_when_leadership_is_forced_away(driver: Driver) {
    let fence = Fence::new();
    let hang: toml::Table = toml::from_str("command = [\"sleep\", \"600\"]\ntimeout = \"10m\"").unwrap();
    let setup = two(driver).set("job.orders.hooks.after_stop", hang).set("policy.release_timeout", "1s");
    let mut cluster = Cluster::of(fence.of(setup, "stop")).await;
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    // Its worker is alive, and has not cleaned up when the next one takes over.
    let other = if first.member == "east-1" { "west-1" } else { "east-1" };
    cluster.operator().done(&["failover", "--to", other, "--force", "--yes", "--wait"]).await;
    let second = cluster.successor_of(&first, SOON).await;
    cluster.acts(second.token).await;
    assert_eq!(fence.done(), [format!("{other}: {}", first.member)]);
    is_left(&cluster, &[other]).await;
    cluster.end_hastily().await;
}
