//! `dr-worker`'s commands, as an operator types them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::process::Command;

/// The limit for one command; with `--wait` it waits for a takeover.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// The program and the options before every command.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) program: PathBuf,
    pub(crate) options: Vec<String>,
}

impl Operator {
    /// Runs a command and returns its output.
    ///
    /// # Errors
    /// The exit code is not 0; with the whole output.
    pub(crate) async fn run(&self, verb: &[&str]) -> anyhow::Result<String> {
        let shown = format!("dr-worker {}", verb.join(" "));
        let mut command = Command::new(&self.program);
        without_settings(command.as_std_mut());
        command.args(&self.options).args(verb).env("NO_COLOR", "1").kill_on_drop(true);
        let output = tokio::time::timeout(ENDS_WITHIN, command.output())
            .await
            .with_context(|| format!("`{shown}` did not end within {ENDS_WITHIN:?}"))?
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let words = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("`{shown}`: {}\n{words}\n{}", output.status, errors.trim_end());
        }
        Ok(words)
    }

    /// Runs a command with `--output json`.
    pub(crate) async fn json(&self, verb: &[&str]) -> anyhow::Result<Value> {
        let mut all = vec!["--output", "json"];
        all.extend(verb);
        let text = self.run(&all).await?;
        serde_json::from_str(&text).with_context(|| format!("`dr-worker {}` printed {text}", all.join(" ")))
    }
}

/// Removes settings of other workers, which the environment of the demo may have, from a command's environment.
pub(crate) fn without_settings(command: &mut std::process::Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DR_WORKER__") {
            command.env_remove(name);
        }
    }
}
