//! `cargo xtask test`.

mod filter;
mod totals;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;

use crate::cargo::{self, Stream, cargo};
use crate::packages;
use filter::Choice;
use totals::Totals;

pub(crate) async fn run(filters: &[String]) -> anyhow::Result<ExitCode> {
    packages::ensure_zookeeper().await?;
    let choice = Choice::of(filters, &cargo::targets()?);
    let packages = choice.packages();
    if packages.as_ref().is_none_or(|packages| packages.contains("election-core")) {
        packages::offer_contenders().await;
    }
    let starts_programs = |packages: &BTreeSet<&str>| packages.contains("e2e");
    if choice.packages().as_ref().is_none_or(starts_programs) {
        // All of the workspace's at once, so that they are built with the same
        // features as the tests are.
        let mut build = cargo(["build", "--workspace", "--bins", "--all-features"]);
        if !cargo::run(&mut build).await?.success() {
            bail!("the workspace does not build");
        }
    }
    let (mut totals, mut sound) = if has_nextest() {
        nextest(&choice).await?
    } else {
        eprintln!("cargo-nextest is not installed; `cargo test` it is");
        plain(&choice).await?
    };
    if has_nextest() && choice.is_everything() {
        // cargo-nextest can't run them; `cargo test` has done so above.
        let (doctests, passed) = doctests().await?;
        totals = totals + doctests;
        sound &= passed;
    }
    if totals.is_empty() {
        eprintln!("no test fits {}", filters.join(" "));
        sound = false;
    }
    println!("{totals}");
    Ok(if sound && totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_nextest() -> bool {
    Command::new("cargo-nextest")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

async fn nextest(choice: &Choice) -> anyhow::Result<(Totals, bool)> {
    let mut command = cargo(["nextest", "run", "--all-features", "--no-tests", "pass"]);
    match choice.packages() {
        Some(packages) => command.args(packages.iter().flat_map(|name| ["--package", name])),
        None => command.arg("--workspace"),
    };
    if std::io::stderr().is_terminal() {
        command.args(["--color", "always"]);
    }
    if let Some(expression) = choice.nextest_expression() {
        command.args(["--filterset", &expression]);
    }
    let (totals, success) = counted(&mut command, Stream::Stderr, Totals::add_nextest_line).await?;
    // What the filter leaves out was not skipped but not asked for.
    let skipped = if choice.is_everything() { totals.skipped } else { 0 };
    Ok((Totals { skipped, ..totals }, success))
}

async fn plain(choice: &Choice) -> anyhow::Result<(Totals, bool)> {
    let mut all = (Totals::default(), true);
    for args in choice.cargo_test_arguments() {
        let mut command = cargo(["test", "--all-features", "--no-fail-fast"]);
        command.args(args);
        let (totals, success) = counted(&mut command, Stream::Stdout, Totals::add_libtest_line).await?;
        all = (all.0 + totals, all.1 && success);
    }
    Ok(all)
}

async fn doctests() -> anyhow::Result<(Totals, bool)> {
    let mut command = cargo(["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
    counted(&mut command, Stream::Stdout, Totals::add_libtest_line).await
}

async fn counted(
    command: &mut Command,
    stream: Stream,
    add: fn(&mut Totals, &str),
) -> anyhow::Result<(Totals, bool)> {
    let totals = Arc::new(Mutex::new(Totals::default()));
    let counting = Arc::clone(&totals);
    let look = move |line: &str| {
        add(&mut counting.lock().unwrap_or_else(PoisonError::into_inner), line);
    };
    let status = cargo::run_and_read(command, stream, look).await?;
    let totals = *totals.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((totals, status.success()))
}
