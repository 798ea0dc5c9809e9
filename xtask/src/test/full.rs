//! What `cargo xtask test --full` does beside the tests that are ignored otherwise.

use std::process::{Command, Stdio};

use super::bare;
use crate::cargo::{self, cargo};

/// How much of the same the tests do, unless these variables are set already.
pub(super) const LONG: [(&str, &str); 6] = [
    ("CUTS", "20"),
    ("ROLLING_RESTARTS", "10"),
    ("SIM_SEEDS", "20000"),
    ("TREES", "60"),
    ("ZK_TESTKIT_DIFFERENTIAL_SECONDS", "60"),
    ("ZK_TESTKIT_FUZZ_SECONDS", "30"),
];

/// Of zk-session: with all of them on, what one lacks without the others does not show.
const FEATURES: [&str; 4] = ["", "zookeeper-async", "tls", "sasl"];

/// What is wrong with what is no test of a program.
///
/// # Errors
/// That a program could not be started.
pub(super) async fn checks() -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for features in FEATURES {
        let args =
            ["test", "-p", "zk-session", "--no-default-features", "--features", features, "--doc", "--quiet"];
        if !cargo::run(&mut cargo(args)).await?.success() {
            complaints.push(format!("zk-session with the features {features:?} alone: its doctests fail"));
        }
    }
    if !is_there(cargo(["deny", "--version"])) {
        eprintln!("cargo-deny is not installed: licences, duplicates and sources are not checked");
    } else if !cargo::run(&mut cargo(["deny", "--all-features", "check", "bans", "licenses", "sources"]))
        .await?
        .success()
    {
        complaints.push("cargo deny found something, see above".to_owned());
    }
    complaints.extend(bare::check().await?);
    Ok(complaints)
}

fn is_there(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
