//! Workers of two versions: this one, and the one that was landed before it, which `cargo xtask test --full` builds.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::{Cluster, Driver, Leader, SOON, Setup, Worker, program};

/// The program of the other version; none, with the reason, if it was not built.
fn other_version() -> Option<PathBuf> {
    let path = std::env::var_os("E2E_OTHER_VERSION").map(PathBuf::from);
    if path.is_none() {
        zk_testkit::skip("no program of another version: `cargo xtask test --full two_versions` builds one");
    }
    path
}

/// The program of a worker, as a package manager replaces it.
fn install(link: &Path, to: &Path) {
    let new = link.with_extension("new");
    symlink(to, &new).unwrap();
    fs::rename(&new, link).unwrap();
}

/// Two workers of the other version, of which east-1 leads, and the links to their programs.
async fn of_the_other_version(recipe: &str, other: &Path) -> (Cluster, Leader, [PathBuf; 2]) {
    let setup = Setup::new(Driver::Native)
        .workers(&[("east-1", "east"), ("west-1", "west")])
        .set("job.orders.recipe", recipe)
        .not_started();
    let mut cluster = Cluster::of(setup).await;
    let links = ["east-1", "west-1"].map(|id| cluster.worker(id).link_program());
    links.iter().for_each(|link| install(link, other));
    cluster.workers().iter_mut().for_each(Worker::start);
    let first = cluster.settled().await;
    cluster.acts(first.token).await;
    (cluster, first, links)
}

fn ends(worker: &mut Worker) {
    worker.ask_to_end();
    assert!(worker.ended_by(Instant::now() + SOON).is_some(), "{} does not end", worker.id());
}

/// The program that a process runs.
fn runs(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

/// The job goes on, under its guard of the old version, which the new worker orders later.
#[tokio::test]
#[ignore = "it needs a program of another version; cargo xtask test --full"]
async fn a_worker_is_upgraded_in_place_from_the_other_version_with_its_guard() {
    let Some(other) = other_version() else { return };
    for recipe in ["elector", "queue", "single"] {
        let (mut cluster, first, links) = of_the_other_version(recipe, &other).await;
        let pids = ["east-1", "west-1"].map(|id| cluster.worker(id).pid());
        let guards = cluster.worker(&first.member).guards();
        let old = runs(pids[0]);
        assert!(guards.len() == 1 && runs(guards[0]) == old, "{recipe}: {guards:?}");
        let history = cluster.operator().json(&["history"]).await;

        // One after the other: meanwhile there are two versions.
        for (id, link) in ["east-1", "west-1"].into_iter().zip(&links) {
            install(link, &program("dr-worker"));
            let said = cluster.as_worker(id).json(&["upgrade"]).await;
            let led = said["jobs"].as_array().unwrap().iter().map(|job| &job["fencing_token"]);
            let expected = if id == first.member { vec![first.token] } else { vec![] };
            assert_eq!(led.collect::<Vec<_>>(), expected, "{recipe}: {said}");
            assert_eq!(cluster.leader().await, Ok(first.clone()), "{recipe}: {id} was upgraded");
        }
        assert_eq!(["east-1", "west-1"].map(|id| cluster.worker(id).pid()), pids, "{recipe}");
        assert!(pids.iter().all(|pid| runs(*pid) != old), "{recipe}: a worker runs the old program");
        assert_eq!(cluster.worker(&first.member).guards(), guards, "{recipe}");
        assert_eq!(runs(guards[0]), old, "{recipe}: the guard was not replaced");
        assert_eq!(cluster.operator().json(&["history"]).await, history, "{recipe}: no leadership has begun");
        let acting = cluster.acts(first.token).await;
        assert!(acting.mains.len() == 1 && !acting.was_asked, "{recipe}: {acting:?}");

        // The old guard takes the orders of the new worker.
        ends(cluster.worker(&first.member));
        let second = cluster.successor_of(&first, SOON).await;
        cluster.acts(second.token).await;
        assert!(cluster.journal().acting(first.token).unwrap().was_asked, "{recipe}");
        cluster.journal().assert_one_at_a_time();
        cluster.end().await;
    }
}

/// A rolling upgrade that restarts workers: each version follows the other.
#[tokio::test]
#[ignore = "it needs a program of another version; cargo xtask test --full"]
async fn workers_of_two_versions_follow_each_other() {
    let Some(other) = other_version() else { return };
    for recipe in ["elector", "queue", "single"] {
        let (mut cluster, first, links) = of_the_other_version(recipe, &other).await;
        let old = first.member.clone();
        let (new, link) = if old == "east-1" { ("west-1", &links[1]) } else { ("east-1", &links[0]) };
        ends(cluster.worker(new));
        install(link, &program("dr-worker"));
        cluster.worker(new).start();
        cluster.standing_by(1).await;
        // The new version follows the old one, which follows it in turn.
        let mut leader = first;
        for next in [new, &old] {
            cluster.worker(&leader.member).kill();
            let successor = cluster.successor_of(&leader, SOON).await;
            assert_eq!(successor.member, next, "{recipe}");
            cluster.acts(successor.token).await;
            cluster.worker(&leader.member).start();
            cluster.standing_by(1).await;
            leader = successor;
        }
        ends(cluster.worker(&old));
        let successor = cluster.successor_of(&leader, SOON).await;
        assert_eq!(successor.member, new, "{recipe}");
        links.iter().for_each(|link| install(link, &program("dr-worker")));
        cluster.worker(&old).start();
        cluster.standing_by(1).await;
        cluster.acts(successor.token).await;
        cluster.journal().assert_one_at_a_time();
        cluster.end().await;
    }
}
