//! Checks of `cargo xtask test --full` beside the ignored tests.

use std::process::{Command, Stdio};

use super::filter::LeftOut;
use crate::cargo::{self, cargo};
use crate::published;

/// The length of repeated tests, unless these variables are set. A night's run on a hosted machine sets longer ones, in
/// .github/workflows.
pub(super) const LONG: [(&str, &str); 11] = [
    ("CROWD", "5000"),
    ("CUTS", "20"),
    ("NOISE_HOURS", "24"),
    ("POSTGRES_MOVES", "6"),
    ("ROLLING_RESTARTS", "10"),
    ("UPGRADES", "30"),
    ("SHAPES", "all"),
    ("SIM_SEEDS", "4000"),
    ("TREES", "60"),
    ("ZK_TESTKIT_DIFFERENTIAL_SECONDS", "60"),
    ("ZK_TESTKIT_FUZZ_SECONDS", "30"),
];

/// Every run of the model takes longer than all other tests together: `cargo xtask model` has them.
pub(super) const MODEL: LeftOut = ("election-core", "model::every_run");

/// Features of zk-session. With all of them on, a missing dependency of a single one does not show.
const FEATURES: [&str; 5] = ["", "zookeeper-async", "tls", "sasl", "drill"];

/// Crates without their features, beside zk-session, which every change checks: of zk-proto another crate of the same
/// program may enable more, the pure engine, and a worker without TLS.
const WITHOUT_FEATURES: [&[&str]; 3] = [
    &["-p", "zk-session", "-p", "zk-proto", "--no-default-features", "--features", "zk-proto/sasl"],
    &["-p", "election-core", "--no-default-features"],
    &["-p", "dr-worker", "--no-default-features", "--lib"],
];

/// The complaints of checks that are no test programs.
///
/// # Errors
/// A program can't be started.
pub(super) async fn checks() -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for features in FEATURES {
        let args =
            ["test", "-p", "zk-session", "--no-default-features", "--features", features, "--doc", "--quiet"];
        if !cargo::run(&mut cargo(args)).await?.success() {
            complaints.push(format!("zk-session with the features {features:?} alone: its doctests fail"));
        }
    }
    for crates in WITHOUT_FEATURES {
        let lints = ["clippy", "--quiet"].iter().chain(crates).chain(&["--", "-D", "warnings"]);
        if !cargo::run(&mut cargo(lints)).await?.success() {
            complaints.push(format!("cargo clippy {}: see above", crates.join(" ")));
        }
    }
    if let Err(error) = published::check().await {
        complaints.push(format!("packages of the crates: {error:#}"));
    }
    if !is_there(cargo(["deny", "--version"])) {
        eprintln!("cargo-deny is not installed: licences, duplicates and sources are not checked");
    } else if !cargo::run(&mut cargo(["deny", "--all-features", "check", "bans", "licenses", "sources"]))
        .await?
        .success()
    {
        complaints.push("cargo deny reports errors, see above".to_owned());
    }
    Ok(complaints)
}

fn is_there(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
