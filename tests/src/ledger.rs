//! The job's books, as the program `ledger` tells them.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::program;

/// Where the orders and the store of a cluster are.
#[derive(Clone, Debug)]
pub struct Ledger {
    orders: PathBuf,
    store: String,
    pace: Duration,
}

impl Ledger {
    /// Makes the orders; their seed is printed by a test that fails.
    pub(crate) async fn make(dir: &Path, orders: u32, pace: Duration) -> Self {
        let path = dir.join("orders.csv");
        let count = orders.to_string();
        let mut command = Command::new(program("ledger"));
        command.args(["generate", "--seed", "1", "--orders", &count, "--out"]).arg(&path);
        let status = command.status().await.expect("start ledger");
        assert!(status.success(), "ledger generate: {status}");
        Self { orders: path, store: format!("sqlite:{}", dir.join("ledger.db").display()), pace }
    }

    /// What a worker starts.
    pub(crate) fn command(&self) -> Vec<String> {
        let mut command = vec![program("ledger").display().to_string(), "run".to_owned()];
        command.extend(["--orders".to_owned(), self.orders.display().to_string()]);
        command.extend(["--store".to_owned(), self.store.clone()]);
        command.extend(["--pace".to_owned(), format!("{}ms", self.pace.as_millis())]);
        command
    }

    /// How far it is: `booked`, `token`, `member`, `refused`; `Null` while there is no store yet.
    pub async fn progress(&self) -> Value {
        let output = self.ask(&["status"]).await;
        if !output.status.success() {
            return Value::Null;
        }
        serde_json::from_slice(&output.stdout).expect("`ledger status` prints JSON")
    }

    /// What `ledger check` finds.
    ///
    /// # Panics
    /// If it can't be run.
    pub async fn check(&self) -> Value {
        let orders = self.orders.display().to_string();
        let output = self.ask(&["check", "--output", "json", "--orders", &orders]).await;
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Claims with a token that is older than any, which the store has to refuse, to learn whether the store
    /// can be written to at all: a client that is frozen inside its transaction keeps everybody out.
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
