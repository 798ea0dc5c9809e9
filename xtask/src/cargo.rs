//! Cargo, as a child.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::group::Group;

const PIPE_ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

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
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root()).stdin(Stdio::null());
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

/// Which of a child's streams is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Runs a program, passes its output on and gives each line of one stream to `look`.
pub(crate) async fn run_and_read(
    command: &mut Command,
    stream: Stream,
    mut look: impl FnMut(&str) + Send + 'static,
) -> anyhow::Result<ExitStatus> {
    match stream {
        Stream::Stdout => command.stdout(Stdio::piped()),
        Stream::Stderr => command.stderr(Stdio::piped()),
    };
    let mut group = Group::start(command)?;
    let pipe: Box<dyn std::io::Read + Send> = match stream {
        Stream::Stdout => Box::new(group.child().stdout.take().context("no pipe")?),
        Stream::Stderr => Box::new(group.child().stderr.take().context("no pipe")?),
    };
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            // The count continues without a terminal.
            let _ = match stream {
                Stream::Stdout => std::io::stdout().write_all(&line),
                Stream::Stderr => std::io::stderr().write_all(&line),
            };
            look(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    });
    let status = group.status().await?;
    // The pipe ends with the program, unless a process that it left behind holds it open.
    let deadline = Instant::now() + PIPE_ENDS_WITHIN;
    while !reader.is_finished() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
    Ok(status)
}

/// Builds the named packages' binaries and gives their paths by name.
pub(crate) async fn build(packages: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut command = cargo(["build", "--message-format", "json-render-diagnostics"]);
    for package in packages {
        command.args(["--package", package]);
    }
    command.arg("--bins");
    let output = tempfile::tempfile().context("cannot make a temporary file")?;
    command.stdout(output.try_clone()?);
    let status = run(&mut command).await?;
    if !status.success() {
        bail!("cargo cannot build {}: {status}", packages.join(", "));
    }
    let mut output = output;
    std::io::Seek::rewind(&mut output)?;
    let mut binaries = BTreeMap::new();
    for line in BufReader::new(output).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        if let (Some(name), Some(path)) = (message["target"]["name"].as_str(), message["executable"].as_str())
        {
            binaries.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(binaries)
}

/// A target of a package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) package: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The file of its root module.
    pub(crate) source: PathBuf,
}

impl Target {
    /// Whether it is a test program, of a package's `tests` directory.
    pub(crate) fn is_test(&self) -> bool {
        self.kind == "test"
    }
}

/// All targets of the workspace.
pub(crate) fn targets() -> anyhow::Result<Vec<Target>> {
    let metadata = metadata()?;
    let mut targets = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            targets.push(Target {
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
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}
