//! `cargo xtask chaos`.

mod sabotage;

use std::process::{ExitCode, ExitStatus};

use anyhow::Context as _;

use crate::cargo::{self, cargo};
use crate::cli::ChaosArgs;
use crate::packages;

/// Builds what a run needs, and starts it.
pub(crate) async fn run(ChaosArgs { sabotage, args }: &ChaosArgs) -> anyhow::Result<ExitCode> {
    packages::ensure_zookeeper().await?;
    if let Some(name) = sabotage {
        return sabotage::run(name, args).await;
    }
    let mut build = cargo(["build", "--bins", "--package", "chaos", "--package", "dr-worker"]);
    let built = cargo::build(&mut build).await?;
    let program = built.iter().find(|built| built.target.name == "chaos");
    let program = program.context("cargo did not build the program chaos")?;
    Ok(exit_code(cargo::run(cargo::program(&program.executable).args(args)).await?))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
