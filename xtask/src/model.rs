//! `cargo xtask model`.

use std::process::ExitCode;

use anyhow::bail;

use crate::cargo::{self, cargo};
use crate::cli::ModelArgs;

pub(crate) async fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let (package, test) = match args.without {
        None => ("election-core", "model::every_run"),
        Some(_) => ("election-mutants", "model::mutants::every_run_without_a_rule"),
    };
    let mut command = cargo(["test", "--package", package, "--all-features", "--test", "it"]);
    command.args(["--", "--exact", test, "--ignored", "--nocapture"]);
    let mut set = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            command.env(name, value);
        }
    };
    set("MODEL_RUN", args.run.clone());
    set("MODEL_FAULTS", args.faults.map(|n| n.to_string()));
    set("MODEL_OVERTAKES", args.overtakes.map(|n| n.to_string()));
    set("MODEL_STATES", args.states.map(|n| n.to_string()));
    set("MODEL_WITHOUT", args.without.clone());
    let status = cargo::run(&mut command).await?;
    if !status.success() {
        bail!("the model: {status}");
    }
    Ok(ExitCode::SUCCESS)
}
