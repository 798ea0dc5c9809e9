//! The job's store, read by the program `ledger`.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::program;

/// The orders and the store of a cluster.
#[derive(Clone, Debug)]
pub struct Ledger {
    orders: PathBuf,
    store: String,
    pace: Duration,
}

impl Ledger {
    /// Generates the orders.
    pub(crate) async fn make(dir: &Path, orders: u32, pace: Duration) -> Self {
        let path = dir.join("orders.csv");
        let count = orders.to_string();
        let mut command = Command::new(program("ledger"));
        command.args(["generate", "--seed", "1", "--orders", &count, "--out"]).arg(&path);
        let status = command.status().await.expect("start ledger");
        assert!(status.success(), "ledger generate: {status}");
        Self { orders: path, store: format!("sqlite:{}", dir.join("ledger.db").display()), pace }
    }

    /// The job's command.
    pub(crate) fn command(&self) -> Vec<String> {
        let mut command = vec![program("ledger").display().to_string(), "run".to_owned()];
        command.extend(["--orders".to_owned(), self.orders.display().to_string()]);
        command.extend(["--store".to_owned(), self.store.clone()]);
        command.extend(["--pace".to_owned(), format!("{}ms", self.pace.as_millis())]);
        command
    }

    /// Its progress: `booked`, `token`, `member`, `refused`; `Null` without a store.
    pub async fn progress(&self) -> Value {
        let output = self.ask(&["status"]).await;
        if !output.status.success() {
            return Value::Null;
        }
        serde_json::from_slice(&output.stdout).expect("`ledger status` prints JSON")
    }

    /// The result of `ledger check`.
    ///
    /// # Panics
    /// If it can't be run.
    pub async fn check(&self) -> Value {
        let orders = self.orders.display().to_string();
        let output = self.ask(&["check", "--output", "json", "--orders", &orders]).await;
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Claims with a token older than any, which the store must refuse, to find out whether the store accepts writes: a
    /// client that is frozen inside its transaction blocks all others.
    pub async fn is_locked(&self) -> bool {
        let orders = self.orders.display().to_string();
        let nobody = ["--token", "1", "--member", "nobody", "--patience", "300ms"];
        let mut args = vec!["run", "--orders", &orders];
        args.extend(nobody);
        let output = self.ask(&args).await;
        let words = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(69) => true,
            Some(77) => false,
            code => panic!("a claim with token 1 ended with {code:?}: {words}"),
        }
    }

    async fn ask(&self, args: &[&str]) -> Output {
        let mut command = Command::new(program("ledger"));
        command.args(args).args(["--store", &self.store]).kill_on_drop(true);
        command.output().await.expect("start ledger")
    }
}
