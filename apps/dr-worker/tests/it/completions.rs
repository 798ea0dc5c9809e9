//! Completions and manual pages, as a shell and a packager get them.

use std::{collections::BTreeSet, fs, time::Duration};

use crate::support::{Outcome, Running, dr_worker, set, until};
use zk_testkit::TestServer;

const FILE: &str = r#"[node]
id = "east-1"
site = "east"

[zookeeper]
connect = "127.0.0.1:1"

[policy]
sites = ["east", "west"]

[job.orders]
command = ["/bin/sleep", "600"]

[job.bills]
command = ["/bin/sleep", "600"]
"#;

/// What bash offers for the last word of a line.
fn offered(line: &[&str]) -> BTreeSet<String> {
    let mut command = dr_worker();
    command.env("DR_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (line.len() - 1).to_string());
    command.env("_CLAP_IFS", "\n").arg("--").args(line);
    let outcome = Outcome::of(&mut command);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{line:?}");
    outcome.stdout.lines().map(|line| line.trim().to_owned()).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn jobs_and_sites_come_from_the_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("worker.toml");
    fs::write(&file, FILE).expect("a file");
    let file = file.to_str().expect("text");
    let at = |rest: &[&str]| offered(&[&["dr-worker", "--config", file], rest].concat());
    assert_eq!(at(&["list", "--job", ""]), names(&["bills", "orders"]));
    assert_eq!(at(&["history", "--job", "o"]), names(&["orders"]));
    assert_eq!(at(&["drain", ""]).iter().filter(|word| !word.starts_with('-')).count(), 2);
    assert_eq!(at(&["switchover", "--to-site", "w"]), names(&["west"]));
    assert!(at(&["swi"]).contains("switchover"));
    // Without servers, and without a file.
    assert_eq!(at(&["switchover", "--to", ""]), names(&[]));
    assert_eq!(offered(&["dr-worker", "--config", "/no/such/file", "list", "--job", ""]), names(&[]));
}

#[test]
fn members_come_from_zookeeper() {
    let tick = Duration::from_millis(500);
    let server = TestServer::builder().tick_time(tick).start_on_thread().expect("a server");
    let dir = tempfile::tempdir().expect("a directory");
    let connect = format!("zookeeper.connect={}", server.connect_string());
    let mut command = dr_worker();
    set(
        &mut command,
        &[
            &connect,
            "zookeeper.tick_time=500ms",
            "node.id=east-1",
            "node.site=east",
            &format!("node.state_dir={}", dir.path().display()),
            r#"job.orders.command=["/bin/sleep", "600"]"#,
            "job.orders.stop_timeout=1s",
        ],
    );
    let worker = Running::start(&mut command);
    until("it takes part", || worker.code("/readiness") == 200);
    let at = |rest: &[&str]| offered(&[&["dr-worker", "--set", &connect], rest].concat());
    assert_eq!(at(&["switchover", "--to", ""]), names(&["east-1"]));
    assert_eq!(at(&["switchover", "--to", "w"]), names(&[]));
    assert_eq!(at(&["failover", "--to-site", ""]), names(&["east"]));
    assert_eq!(at(&["list", "--job", ""]), names(&["orders"]));
}

#[test]
fn each_shell_gets_a_script_that_asks_this_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = Outcome::of(dr_worker().args(["completions", shell]));
        outcome.assert(0, &[]);
        assert!(outcome.stdout.contains("DR_COMPLETE"), "{shell}: {}", outcome.stdout);
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a directory");
    Outcome::of(dr_worker().arg("man").arg(dir.path())).assert(0, &[]);
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
    assert!(page("dr-worker.1").contains(".TH dr-worker 1"), "{}", page("dr-worker.1"));
    for verb in ["run", "list", "switchover", "failover", "init", "config-check", "explain"] {
        assert!(page(&format!("dr-worker-{verb}.1")).contains("SYNOPSIS"), "{verb}");
    }
    Outcome::of(dr_worker().args(["man", "/no/such/directory"])).assert(1, &["/no/such/directory"]);
}
