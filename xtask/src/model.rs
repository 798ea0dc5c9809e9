//! `cargo xtask model`.

use std::process::ExitCode;

use crate::cargo::{self, cargo};
use crate::cli::ModelArgs;

pub(crate) async fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let (package, test) = match args.without {
        None => ("election-core", "model::every_run"),
        Some(_) => ("election-mutants", "model::mutants::every_run_without_a_rule"),
    };
    let mut command = cargo(["test", "--package", package, "--all-features", "--test", "it"]);
    command.args(["--", "--exact", test, "--ignored", "--nocapture"]);
    command.envs(args.run.as_ref().map(|run| ("MODEL_RUN", run)));
    command.envs(args.faults.map(|n| ("MODEL_FAULTS", n.to_string())));
    command.envs(args.overtakes.map(|n| ("MODEL_OVERTAKES", n.to_string())));
    command.envs(args.states.map(|n| ("MODEL_STATES", n.to_string())));
    command.envs(args.without.as_ref().map(|rule| ("MODEL_WITHOUT", rule)));
    cargo::succeed(&mut command, "the model").await?;
    Ok(ExitCode::SUCCESS)
}
