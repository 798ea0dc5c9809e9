//! `cargo xtask chaos`.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::cargo::{self, cargo};
use crate::packages;

/// Builds what a run needs, and starts it.
pub(crate) async fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    packages::ensure_zookeeper().await?;
    let mut build = cargo(["build", "--bins", "--package", "chaos", "--package", "dr-worker"]);
    let built = cargo::build(&mut build).await?;
    let program = built.iter().find(|built| built.target.name == "chaos");
    let program = program.context("cargo has built no program chaos")?;
    let status = cargo::run(cargo::program(&program.executable).args(args)).await?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
