//! The job's store, read by the program `ledger`.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use super::narrator::Seen;

/// The orders, the store, and the program that reads them.
#[derive(Debug)]
pub(crate) struct Ledger {
    program: PathBuf,
    orders: String,
    store: String,
}

/// The progress of the ledger, and the holder of the token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) booked: u64,
    pub(crate) token: u64,
    pub(crate) member: String,
    pub(crate) site: String,
}

impl Ledger {
    pub(crate) fn new(program: &Path, orders: &Path, dir: &Path) -> Self {
        Self {
            program: program.to_owned(),
            orders: orders.display().to_string(),
            store: format!("sqlite:{}", dir.join("ledger.db").display()),
        }
    }

    /// The job's command as an array of TOML: JSON's escapes are TOML's too. The pause makes the orders last for the whole
    /// demo.
    pub(crate) fn job(&self) -> String {
        let program = self.program.display().to_string();
        json!([program, "run", "--orders", self.orders, "--store", self.store, "--pace", "1ms"]).to_string()
    }

    /// The number of orders.
    pub(crate) fn orders(&self) -> anyhow::Result<u64> {
        let text =
            std::fs::read_to_string(&self.orders).with_context(|| format!("cannot read {}", self.orders))?;
        // The first line names the columns.
        Ok(text.lines().count().saturating_sub(1) as u64)
    }

    /// Without a store nothing is booked.
    pub(crate) async fn progress(&self) -> anyhow::Result<Progress> {
        let output = self.ask(&["status"]).await?;
        if !output.status.success() {
            return Ok(Progress::default());
        }
        let status: Value = serde_json::from_slice(&output.stdout).context("`ledger status`")?;
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        Ok(Progress {
            booked: status["booked"].as_u64().unwrap_or(0),
            token: status["token"].as_u64().unwrap_or(0),
            member: text("member"),
            site: text("site"),
        })
    }

    /// Whether more than `booked` orders are booked under a newer token than `token`.
    pub(crate) async fn booked_under_newer(&self, token: u64, booked: u64) -> anyhow::Result<Seen<Progress>> {
        let progress = self.progress().await?;
        if progress.token > token && progress.booked > booked {
            return Ok(Seen::There(progress));
        }
        Ok(Seen::NotYet(format!(
            "{} orders are booked, the newest token is {} of {}",
            progress.booked, progress.token, progress.member
        )))
    }

    /// Books under an old token, as a deposed leader that has not noticed. Returns the store's refusal.
    ///
    /// # Errors
    /// The store accepts the write.
    pub(crate) async fn book_late(&self, token: u64, member: &str) -> anyhow::Result<String> {
        let token = token.to_string();
        let run =
            ["run", "--orders", &self.orders, "--exit-when-done", "--token", &token, "--member", member];
        let output = self.ask(&run).await?;
        if output.status.success() {
            bail!("the store accepted a write under the old token {token}");
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Ok(words.lines().last().unwrap_or_default().to_owned())
    }

    /// Verifies all orders, and returns the verdict.
    ///
    /// # Errors
    /// The ledger is wrong.
    pub(crate) async fn check(&self) -> anyhow::Result<String> {
        let output = self.ask(&["check", "--orders", &self.orders]).await?;
        let mut words = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            words.push_str(&String::from_utf8_lossy(&output.stderr));
            bail!("the ledger is wrong:\n{}", words.trim_end());
        }
        Ok(words.trim_end().to_owned())
    }

    async fn ask(&self, args: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--store", &self.store]).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot start {}", self.program.display()))
    }
}
