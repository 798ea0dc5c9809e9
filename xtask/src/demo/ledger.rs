//! The job's store, read by the program `ledger`.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::process::Command;

use super::narrator::Seen;

/// The orders, the store, and the program that reads them.
#[derive(Debug)]
pub(crate) struct Ledger {
    program: PathBuf,
    orders: PathBuf,
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

/// The result of `ledger check`.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) sound: bool,
    pub(crate) words: String,
}

impl Ledger {
    pub(crate) fn new(program: &Path, orders: &Path, dir: &Path) -> Self {
        Self {
            program: program.to_owned(),
            orders: orders.to_owned(),
            store: format!("sqlite:{}", dir.join("ledger.db").display()),
        }
    }

    /// The job's command. The pause makes the orders last for the whole demo.
    pub(crate) fn job(&self) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut command = vec![text(&self.program), "run".to_owned()];
        command.extend(["--orders".to_owned(), text(&self.orders)]);
        command.extend(["--store".to_owned(), self.store.clone()]);
        command.extend(["--pace".to_owned(), "1ms".to_owned()]);
        command
    }

    /// The number of orders.
    pub(crate) fn orders(&self) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(&self.orders)
            .with_context(|| format!("cannot read {}", self.orders.display()))?;
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
        let orders = self.orders.display().to_string();
        let run = ["run", "--orders", &orders, "--exit-when-done", "--token", &token, "--member", member];
        let output = self.ask(&run).await?;
        if output.status.success() {
            bail!("the store accepted a write under the old token {token}");
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Ok(words.lines().last().unwrap_or_default().to_owned())
    }

    /// Verifies all orders.
    pub(crate) async fn check(&self) -> anyhow::Result<Verdict> {
        let orders = self.orders.display().to_string();
        let output = self.ask(&["check", "--orders", &orders]).await?;
        let mut words = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            words.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Ok(Verdict { sound: output.status.success(), words: words.trim_end().to_owned() })
    }

    async fn ask(&self, args: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--store", &self.store]).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot start {}", self.program.display()))
    }
}
