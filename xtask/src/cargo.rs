//! Cargo, as a child.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::group::Group;

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// `cargo`, started in the root of the workspace.
pub(crate) fn cargo<I>(args: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = program(cargo);
    command.args(args).current_dir(root());
    command
}

/// A program without input.
pub(crate) fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    // Set by `cargo run` for xtask itself; they would make other packages rebuild.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a program to its end; dropping the future ends it.
pub(crate) async fn run(command: &mut Command) -> anyhow::Result<ExitStatus> {
    Group::start(command)?.status().await
}

/// Runs a program to its end, which must be a success. Else the error is about `what`.
pub(crate) async fn succeed(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let status = run(command).await?;
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}

/// A program that cargo has built.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) target: CargoTarget,
    pub(crate) is_test: bool,
    pub(crate) executable: PathBuf,
    /// The package's. Cargo starts its tests there.
    pub(crate) directory: PathBuf,
}

/// Runs a command that builds, and gives the programs.
pub(crate) async fn build(command: &mut Command) -> anyhow::Result<Vec<Built>> {
    let mut output = tempfile::tempfile().context("cannot make a temporary file")?;
    command.args(["--message-format", "json-render-diagnostics"]).stdout(output.try_clone()?);
    succeed(command, "cargo cannot build").await?;
    output.rewind()?;
    let (targets, mut built) = (targets()?, Vec::new());
    for line in BufReader::new(output).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let text = |value: &Value| value.as_str().map(PathBuf::from);
        let name = &message["target"]["name"];
        let (Some(executable), Some(manifest), Some(source)) = (
            text(&message["executable"]),
            text(&message["manifest_path"]),
            text(&message["target"]["src_path"]),
        ) else {
            continue;
        };
        let target = targets.iter().find(|target| target.source == source && *name == *target.name);
        let target = target.with_context(|| format!("{name} is not in the workspace"))?.clone();
        let is_test = message["profile"]["test"] == true;
        built.push(Built { target, is_test, executable, directory: manifest.with_file_name("") });
    }
    Ok(built)
}

/// A target of a package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CargoTarget {
    pub(crate) package: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The file of its root module.
    pub(crate) source: PathBuf,
}

impl CargoTarget {
    /// Whether it is a test program, of a package's `tests` directory.
    pub(crate) fn is_test(&self) -> bool {
        self.kind == "test"
    }
}

/// All targets of the workspace.
pub(crate) fn targets() -> anyhow::Result<Vec<CargoTarget>> {
    let metadata = metadata()?;
    let mut targets = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            targets.push(CargoTarget {
                package: text(&package["name"]),
                kind: text(&target["kind"][0]),
                name: text(&target["name"]),
                source: PathBuf::from(text(&target["src_path"])),
            });
        }
    }
    Ok(targets)
}

/// Cargo's target directory.
pub(crate) fn target_directory() -> anyhow::Result<PathBuf> {
    metadata()?["target_directory"].as_str().map(PathBuf::from).context("cargo metadata: no target directory")
}

/// The output of `cargo metadata` for the packages of the workspace. It reads no registry.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let output =
        cargo(["metadata", "--no-deps", "--format-version", "1"]).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}
