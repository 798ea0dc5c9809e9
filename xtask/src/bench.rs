//! `cargo xtask bench`.

use std::process::ExitCode;

use anyhow::bail;

use crate::cargo::{self, cargo};
use crate::packages;

pub(crate) async fn run(name: Option<&str>, args: &[String]) -> anyhow::Result<ExitCode> {
    let benches: Vec<_> = cargo::targets()?.into_iter().filter(|target| target.kind == "bench").collect();
    let chosen: Vec<_> = benches.iter().filter(|bench| name.is_none_or(|name| bench.name == name)).collect();
    if chosen.is_empty() {
        let mut known: Vec<&str> = benches.iter().map(|bench| bench.name.as_str()).collect();
        known.sort_unstable();
        match (name, known.is_empty()) {
            (_, true) => bail!("there is no benchmark in this workspace"),
            (Some(name), _) => bail!("no benchmark is called {name}; there are: {}", known.join(", ")),
            (None, _) => {}
        }
    }
    packages::ensure_zookeeper().await?;
    for bench in chosen {
        // Some of them start the programs that they measure.
        if bench.package == "e2e" {
            let mut build =
                cargo(["build", "--release", "-p", "dr-worker", "-p", "ledger", "-p", "e2e", "--bins"]);
            if !cargo::run(&mut build).await?.success() {
                bail!("the programs to be measured could not be built");
            }
        }
        let mut command = cargo(["bench", "--package", &bench.package, "--bench", &bench.name]);
        command.arg("--").args(args);
        let status = cargo::run(&mut command).await?;
        if !status.success() {
            bail!("benchmark {}: {status}", bench.name);
        }
    }
    Ok(ExitCode::SUCCESS)
}
