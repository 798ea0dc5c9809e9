//! Hooks: run to their end, bounded, and leaving nothing behind.

use std::future::pending;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Tree, env, guards, spec as spec_of, until};
use dr_worker::config::{Hook, HookMode, HookName, JobSpec};
use dr_worker::worker::job::{AsyncHooks, HookProblem, HookRuns, JobError, run_hook};
use job_guard::{Deadline, Exit};
use tokio::sync::watch;
use zk_session::BootTime;

fn with_hook(tree: &Tree, script: &str, timeout: Duration) -> JobSpec {
    let mut spec = spec_of(tree, "");
    spec.hooks.before_takeover =
        Some(Hook { command: vec!["sh".into(), "-c".into(), script.into()], timeout, mode: HookMode::Sync });
    spec
}

async fn run(spec: &JobSpec, by: Option<BootTime>) -> Result<(), JobError> {
    // Nobody renews it.
    let by = by.map(|by| Deadline::at(watch::channel(by).1));
    run_hook(spec, HookName::BeforeTakeover, &env(), &guards(), by, pending()).await
}

#[tokio::test]
async fn a_hook_gets_the_jobs_surroundings() {
    let tree = Tree::new();
    let script = "echo $DR_JOB $DR_TERM $DR_FENCING_TOKEN $DR_MEMBER $DR_HOOK: $DR_REASON > words; \
                  echo $((DR_DEADLINE_MS - $(date +%s%3N))) > left";
    let spec = with_hook(&tree, script, Duration::from_secs(20));
    run(&spec, None).await.expect("it works");
    assert_eq!(tree.read("words"), "orders 7 42 east-1 before_takeover: it is the first\n");
    let left_ms = || tree.read("left").trim().parse::<u64>().expect("a number");
    assert!((1..=20_000).contains(&left_ms()), "{}", left_ms());
    // The lease is shorter than the timeout.
    run(&spec, Some(BootTime::now() + Duration::from_secs(10))).await.expect("it works");
    assert!((1..=10_000).contains(&left_ms()), "{}", left_ms());
    // Others are not configured: nothing to do.
    run_hook(&spec, HookName::AfterStop, &env(), &guards(), None, pending()).await.expect("nothing to do");
}

#[tokio::test]
async fn a_hook_that_fails_is_named_with_its_exit_and_last_words() {
    let tree = Tree::new();
    let script = "yes noise | head -c 100000 >&2; echo 'no such volume' >&2; exit 3";
    let spec = with_hook(&tree, script, Duration::from_secs(20));
    let error = run(&spec, None).await.expect_err("it fails");
    let words = error.to_string();
    assert!(
        words.starts_with(
            "hook before_takeover of job orders failed with exit code 3; its standard error: ..."
        )
    );
    assert!(words.ends_with("no such volume"), "{words}");
    assert!(words.len() < 5000, "the whole of it is not wanted");
    let JobError::Hook { hook, problem, .. } = error else { panic!("{error}") };
    assert_eq!((hook, problem), (HookName::BeforeTakeover, HookProblem::Failed(Exit::Code(3))));
}

#[tokio::test]
async fn only_a_hook_that_can_refuse_declines_leadership() {
    let tree = Tree::new();
    let mut spec = with_hook(&tree, "echo 'no room here' >&2; exit 75", Duration::from_secs(20));
    let declined = run(&spec, None).await.expect_err("it refuses").to_string();
    let expected = "hook before_takeover of job orders declined leadership (exit code 75); its standard error: no room here";
    assert_eq!(declined, expected);
    spec.hooks.after_stop = spec.hooks.before_takeover.take();
    let failed = run_hook(&spec, HookName::AfterStop, &env(), &guards(), None, pending()).await;
    assert!(failed.expect_err("it fails").to_string().contains("failed with exit code 75"));
}

/// A job whose hooks of that kind run until `go` exists, and write down when they begin and end.
fn with_slow_hook(tree: &Tree, name: HookName) -> JobSpec {
    let mut spec = spec_of(tree, "");
    let script =
        "echo $DR_SLOT $DR_TERM >> runs; while [ ! -e go ]; do sleep 0.02; done; echo $DR_TERM >> done";
    let command = vec!["sh".into(), "-c".into(), script.into()];
    let hook = Some(Hook { command, timeout: Duration::from_secs(600), mode: HookMode::Async });
    match name {
        HookName::OnLeaderChanged => spec.hooks.on_leader_changed = hook,
        _ => spec.hooks.after_stop = hook,
    }
    spec
}

/// Whatever it does, it delays nothing, and no crowd of it gathers.
#[tokio::test]
async fn an_asynchronous_hook_runs_once_at_a_time_and_the_latest_waits() {
    let tree = Tree::new();
    let (spec, hooks) = (Arc::new(with_slow_hook(&tree, HookName::AfterStop)), AsyncHooks::default());
    let start = |slot, term| {
        let env = dr_worker::worker::job::JobEnv { slot, term, ..env() };
        hooks.start(Arc::clone(&spec), HookName::AfterStop, env, guards())
    };
    assert!(!start(0, 1));
    until("it runs", || tree.read("runs") == "0 1\n").await;
    let dropped: Vec<_> = (2..=4).map(|term| start(0, term)).collect();
    assert_eq!(dropped, [false, true, true]);
    // That of another slot does not wait for it.
    assert!(!start(1, 5));
    until("the other one runs", || tree.read("runs") == "0 1\n1 5\n").await;
    std::fs::write(tree.file("go"), "").expect("written");
    // In any order: they are of two slots.
    until("both and the latest have run", || {
        tree.read("done").len() == 6 && tree.read("done").contains("4\n")
    })
    .await;
    assert_eq!(tree.read("runs"), "0 1\n1 5\n0 4\n");
    assert!(!start(0, 6), "none runs any more");
    until("it runs", || tree.read("done").ends_with("6\n")).await;
}

#[tokio::test]
async fn a_newer_leader_does_not_wait_for_the_hook_of_an_older_one() {
    let tree = Tree::new();
    let (spec, hooks) = (Arc::new(with_slow_hook(&tree, HookName::OnLeaderChanged)), AsyncHooks::default());
    let start = |term| {
        let env = dr_worker::worker::job::JobEnv { term, ..env() };
        hooks.start(Arc::clone(&spec), HookName::OnLeaderChanged, env, guards())
    };
    for term in 1..=4 {
        assert!(!start(term));
        until("it runs beside the others", || tree.lines("runs").len() == term as usize).await;
    }
    assert!(start(5), "the oldest is ended for it");
    until("it runs", || tree.lines("runs").len() == 5).await;
    std::fs::write(tree.file("go"), "").expect("written");
    until("the others have run", || tree.lines("done").len() == 4).await;
    until("nothing else runs", || tree.is_gone()).await;
    let mut done = tree.lines("done");
    done.sort();
    assert_eq!(done, ["2", "3", "4", "5"]);
}

/// The hooks of several members run at the same time, in any order.
#[test]
fn the_documented_hook_keeps_the_newest_leader_in_a_shared_file() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md"));
    let document = document.expect("docs/clients.md");
    let (_, rest) = document.split_once("```sh\n").expect("a script");
    let (script, _) = rest.split_once("```").expect("its end");
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let events = [("5", "east-1"), ("5", ""), ("6", "west-1"), ("6", ""), ("7", "east-1"), ("7", "")];
    for last in [4, 5, 6] {
        for _ in 0..8 {
            let dir = tempfile::tempdir().expect("tempdir");
            let file = dir.path().join("leader");
            let mut events = events[..last].to_vec();
            let newest = *events.last().expect("an event");
            // Each of two members reports each.
            events.extend_from_within(..);
            random.shuffle(&mut events);
            let hooks = events.iter().map(|(term, leader)| {
                let mut hook = Command::new("sh");
                hook.arg("-c").arg(script).arg("hook").arg(&file);
                hook.env("DR_TERM", term).env("DR_LEADER", leader).spawn().expect("a shell")
            });
            for mut hook in hooks.collect::<Vec<_>>() {
                assert!(hook.wait().expect("its end").success());
            }
            let kept = std::fs::read_to_string(&file).expect("written");
            assert_eq!(kept.trim_end_matches('\n'), format!("{} {}", newest.0, newest.1), "{events:?}");
        }
    }
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_killed_with_its_children() {
    let tree = Tree::new();
    let script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo waiting >&2; echo > up; sleep 1000";
    let spec = with_hook(&tree, script, Duration::from_secs(1));
    let began = BootTime::now();
    let error = run(&spec, None).await.expect_err("it hangs");
    let took = BootTime::now().duration_since(began);
    assert!(tree.file("up").exists());
    assert_eq!(
        error.to_string(),
        "hook before_takeover of job orders did not end within 1s and was killed; its standard error: waiting"
    );
    assert!(tree.is_gone(), "{:?}", tree.living());
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_hook_has_no_longer_than_the_lease() {
    let tree = Tree::new();
    let spec = with_hook(&tree, "sleep 1000", Duration::from_secs(600));
    let by = BootTime::now() + Duration::from_secs(1);
    let error = run(&spec, Some(by)).await.expect_err("it hangs");
    assert!(BootTime::now() < by, "it outlived the lease");
    assert!(matches!(error, JobError::Hook { problem: HookProblem::TimedOut(_), .. }), "{error}");

    let error = run(&spec, Some(BootTime::now())).await.expect_err("no time");
    assert!(matches!(error, JobError::Hook { problem: HookProblem::TimedOut(_), .. }), "{error}");
}

#[tokio::test]
async fn a_lease_that_is_renewed_keeps_the_hook() {
    let tree = Tree::new();
    let spec =
        with_hook(&tree, "echo > up; while [ ! -e go ]; do sleep 0.02; done", Duration::from_secs(600));
    let first_end = BootTime::now() + Duration::from_secs(1);
    let (lease, by) = watch::channel(first_end);
    let (env, guards) = (env(), guards());
    let hook = run_hook(&spec, HookName::BeforeTakeover, &env, &guards, Some(Deadline::at(by)), pending());
    let renewals = async {
        until("the end of the first lease", || {
            lease.send_replace(BootTime::now() + Duration::from_secs(1));
            BootTime::now() > first_end
        })
        .await;
        std::fs::write(tree.file("go"), "").expect("written");
        // From here on nobody renews it.
    };
    let (ended, ()) = tokio::join!(hook, renewals);
    ended.expect("it had the time");
}

#[tokio::test]
async fn a_hook_that_is_no_longer_wanted_is_gone_when_it_is_said() {
    let tree = Tree::new();
    let spec =
        with_hook(&tree, "trap '' TERM; setsid sleep 1000 & echo > up; sleep 1000", Duration::from_secs(600));
    let unwanted = until("the hook", || tree.file("up").exists());
    let ended = run_hook(&spec, HookName::BeforeTakeover, &env(), &guards(), None, unwanted).await;
    assert!(tree.is_gone(), "{:?}", tree.living());
    ended.expect_err("it was killed");
}

/// Leadership is free only when nothing acts for it any more.
#[tokio::test]
async fn a_hook_that_nobody_waits_for_any_more_is_waited_for() {
    let tree = Tree::new();
    let spec = with_hook(&tree, "setsid sleep 1000 & echo > up; sleep 1000", Duration::from_secs(600));
    let hooks = HookRuns::default();
    hooks.gone().await;
    tokio::select! {
        ended = hooks.run(Arc::new(spec), HookName::BeforeTakeover, env(), guards(), None) => panic!("{ended:?}"),
        () = until("the hook", || tree.file("up").exists()) => {}
    }
    assert!(!tree.is_gone(), "nothing is left to wait for");
    hooks.gone().await;
    assert!(tree.is_gone(), "{:?}", tree.living());
}

#[tokio::test]
async fn what_a_hook_leaves_behind_ends_with_it() {
    let tree = Tree::new();
    let spec = with_hook(&tree, "setsid sleep 1000 & echo done > done", Duration::from_secs(20));
    run(&spec, None).await.expect("it works");
    assert_eq!(tree.read("done"), "done\n");
    assert!(tree.is_gone(), "{:?}", tree.living());
}

#[tokio::test]
async fn a_hook_that_cannot_be_started_says_why() {
    let tree = Tree::new();
    let mut spec = with_hook(&tree, "", Duration::from_secs(20));
    spec.hooks.before_takeover.as_mut().expect("set").command = vec!["./not-there".into()];
    let error = run(&spec, None).await.expect_err("it fails");
    let JobError::Hook { problem: HookProblem::NotStarted(words), .. } = &error else { panic!("{error}") };
    assert!(words.contains("can't run ./not-there"), "{words}");
}

#[tokio::test]
async fn a_hook_that_is_cancelled_is_killed() {
    let tree = Tree::new();
    let spec = with_hook(&tree, "echo > up; sleep 1000", Duration::from_secs(600));
    tokio::select! {
        ended = run(&spec, None) => panic!("{ended:?}"),
        () = until("the hook", || tree.file("up").exists()) => {}
    }
    until("the end of the hook", || tree.is_gone()).await;
}
