//! `cargo xtask dashboard`.

use std::process::ExitCode;

use anyhow::ensure;

use crate::cargo::{self, cargo};

/// The tests that compare the files with the list write them instead.
pub(crate) async fn run() -> anyhow::Result<ExitCode> {
    let mut test = cargo(["test", "--quiet", "--package", "dr-worker", "--lib", "metrics"]);
    ensure!(cargo::run(test.env("UPDATE_METRICS", "1")).await?.success(), "the files were not written");
    println!("docs/metrics.md and config/grafana/dr-worker.json are up to date");
    Ok(ExitCode::SUCCESS)
}
