//! `cargo xtask bench`.

use std::process::ExitCode;

use anyhow::{bail, ensure};

use crate::cargo::{self, CargoTarget, cargo};
use crate::{bench_postgres, packages};

/// A benchmark that is no target of cargo. Only by its name: it takes long.
const POSTGRES: &str = "postgres";

pub(crate) async fn run(name: Option<&str>, args: &[String]) -> anyhow::Result<ExitCode> {
    if name == Some(POSTGRES) {
        return bench_postgres::run(args).await;
    }
    let targets = cargo::targets()?;
    let benches: Vec<_> = targets.iter().filter_map(|target| Some((benchmark(target)?, target))).collect();
    let chosen: Vec<_> = benches.iter().filter(|(its, _)| name.is_none_or(|name| *its == name)).collect();
    if let Some(name) = name
        && chosen.is_empty()
    {
        let mut known: Vec<&str> = benches.iter().map(|(name, _)| *name).chain([POSTGRES]).collect();
        known.sort_unstable();
        bail!("unknown benchmark {name}; known: {}", known.join(", "));
    }
    packages::ensure_zookeeper().await?;
    for (name, bench) in chosen {
        let programs = started(name, bench);
        if !programs.is_empty() {
            let mut build = cargo(["build", "--release", "--bins"]);
            build.args(programs.iter().flat_map(|package| ["--package", package]));
            ensure!(cargo::run(&mut build).await?.success(), "cannot build the programs to be measured");
        }
        let mut command = match bench.kind.as_str() {
            "bin" => cargo(["run", "--release", "--package", &bench.package, "--bin", &bench.name]),
            _ => cargo(["bench", "--package", &bench.package, "--bench", &bench.name]),
        };
        cargo::succeed(command.arg("--").args(args), &format!("benchmark {name}")).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The packages whose programs a benchmark starts, apart from its own.
fn started(name: &str, bench: &CargoTarget) -> &'static [&'static str] {
    match name {
        _ if bench.package == "e2e" => &["dr-worker", "ledger", "e2e"],
        "footprint" => &["dr-worker"],
        _ => &[],
    }
}

/// The name of the benchmark, if the target is one: cargo's own kind, or a program whose name ends so.
fn benchmark(target: &CargoTarget) -> Option<&str> {
    match target.kind.as_str() {
        "bench" => Some(&target.name),
        "bin" => target.name.strip_suffix("-bench"),
        _ => None,
    }
}
