//! `cargo xtask build-figures`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use crate::cargo::{self, cargo};
use crate::group;
use anyhow::{Context as _, ensure};

/// The libraries that other programs depend on.
const PACKAGES: [&str; 3] = ["zk-session", "election-core", "strategies"];

pub(crate) async fn run(build: bool) -> anyhow::Result<ExitCode> {
    // The download is no part of a build.
    let is_fetched = !build || cargo::run(&mut cargo(["fetch", "--locked"])).await?.success();
    ensure!(is_fetched, "cargo cannot fetch the dependencies");
    for package in PACKAGES {
        println!("{package}: {} crates", crates(package)?);
        if build {
            for profile in ["dev", "release"] {
                let (elapsed, processor) = clean_build(package, profile).await?;
                println!("{package}: {profile}: {elapsed:.0} s, {processor:.0} s of processor time");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The number of crates that are compiled for it with its default features, itself and those of build scripts included.
fn crates(package: &str) -> anyhow::Result<usize> {
    let mut tree = cargo(["tree", "--locked", "-p", package, "-e", "normal,build", "--prefix", "none"]);
    let output = tree.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    // A repeated crate is marked.
    let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Ok(crates.len())
}

/// Seconds by the clock, which depend on other work of the machine, and of processor time, which hardly do.
async fn clean_build(package: &str, profile: &str) -> anyhow::Result<(f64, f64)> {
    let target = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mut build = cargo(["build", "--profile", profile, "--locked", "-p", package, "--target-dir"]);
    build.arg(target.path());
    let (begun, before) = (Instant::now(), group::processor_time()?);
    cargo::succeed(&mut build, &format!("cargo cannot build {package}")).await?;
    Ok((begun.elapsed().as_secs_f64(), group::processor_time()? - before))
}
