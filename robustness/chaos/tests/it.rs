//! A short run of the program, with real workers and real servers.

use std::process::Command;

use e2e::program;
use zk_testkit::Network;

/// A seed whose schedule has something for a quarter of a minute.
const SEED: &str = "7";

#[test]
fn a_short_run_holds() {
    if !Network::available_or_skip() {
        return;
    }
    let _it_is_built = program("dr-worker");
    let dir = tempfile::tempdir().unwrap();
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_chaos"));
    chaos.args(["--seed", SEED, "--minutes", "0.25", "--dir"]).arg(dir.path());
    let output = chaos.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // Both witnesses: the jobs with the store, and the servers' log.
    for check in ["one-actor", "ends-with-its-znode", "store-is-fenced", "one-answers-200", "leader-in-time"]
    {
        assert!(said.contains(&format!("{check}: held")), "{said}");
    }
}
