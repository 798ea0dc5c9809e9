//! `dr-worker`'s commands, as an operator types them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::process::Tree;
use crate::program;

/// The limit for one command, under every fault.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The program with the options before every command: an operator's, or a worker's configuration for a second process
/// with the worker's identity.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) program: &'static str,
    pub(crate) options: Vec<String>,
    pub(crate) tree: Tree,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Said {
    /// The command line, for messages.
    pub command: String,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Operator {
    pub(crate) fn new(program: &'static str, configs: &[PathBuf], tree: Tree) -> Self {
        let options = configs.iter().flat_map(|path| ["--config".to_owned(), path.display().to_string()]);
        Self { program, options: options.collect(), tree }
    }

    /// The same commands of another program of the workspace.
    #[must_use]
    pub fn of(&self, program: &'static str) -> Self {
        Self { program, ..self.clone() }
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it does not end within a minute.
    pub async fn run(&self, verb: &[&str]) -> Said {
        let mut command = Command::new(program(self.program));
        let (name, value) = self.tree.mark();
        command.args(&self.options).args(verb).env(name, value).env("NO_COLOR", "1");
        // Wide, so that no table is folded.
        command.env("COLUMNS", "1000");
        command.stdin(Stdio::null()).kill_on_drop(true);
        let shown = format!("{} {}", self.program, verb.join(" "));
        let output = tokio::time::timeout(ENDS_WITHIN, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("`{shown}` did not end within {ENDS_WITHIN:?}"));
        let output = output.unwrap_or_else(|error| panic!("`{shown}`: {error}"));
        Said {
            command: shown,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    /// If it fails, with its whole output.
    pub async fn done(&self, verb: &[&str]) -> Said {
        self.run(verb).await.with_code(0)
    }

    /// Runs a command that must succeed with `--output json`.
    ///
    /// # Panics
    /// If it fails, or prints no JSON.
    pub async fn json(&self, verb: &[&str]) -> Value {
        let mut all = vec!["--output", "json"];
        all.extend(verb);
        self.done(&all).await.json()
    }
}

impl Said {
    /// # Panics
    /// If the program did not end with that code.
    #[must_use = "look at what it said, or drop it on purpose"]
    pub fn with_code(self, code: i32) -> Self {
        assert!(self.code == Some(code), "exit code {code} was expected: {self:#?}");
        self
    }

    /// Its standard output as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// # Panics
    /// Unless its standard error contains each of these.
    pub fn complains_of(&self, words: &[&str]) {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} was expected in its complaint: {self:#?}");
        }
    }
}
