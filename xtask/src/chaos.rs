//! `cargo xtask chaos`.

mod sabotage;

use std::path::PathBuf;
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
    Ok(exit_code(cargo::run(cargo::program(built().await?).args(args)).await?))
}

/// Builds what a run needs, and gives the path of the program `chaos`.
async fn built() -> anyhow::Result<PathBuf> {
    let mut build = cargo(["build", "--bins", "--package", "chaos", "--package", "dr-worker"]);
    let built = cargo::build(&mut build).await?;
    let program = built.into_iter().find(|built| built.target.name == "chaos");
    Ok(program.context("cargo did not build the program chaos")?.executable)
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
