//! The global arguments, and the runtime of a verb.

use std::path::PathBuf;

use clap::Args;
use strategies::Registry;
use tracing_subscriber::filter::Targets;

use super::output::Output;
use crate::{
    config::Sources,
    error::Error,
    logging::{self, LogFormat},
};

#[derive(Debug, Args)]
pub(super) struct Global {
    /// TOML file, or directory of *.toml files; repeatable, later ones override [default: /etc/dr-worker].
    #[arg(long = "config", value_name = "PATH", global = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Setting that overrides files and environment, such as zookeeper.root=/dr; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE", global = true)]
    pub(super) sets: Vec<String>,
    /// Format of results.
    #[arg(long, value_enum, default_value_t = Output::Pretty, global = true)]
    pub(super) output: Output,
    /// Log level, or levels by target: info,zk_session=debug.
    #[arg(long = "log", value_name = "LEVELS", env = "DR_LOG", value_parser = logging::parse, global = true)]
    pub(super) levels: Option<Targets>,
    /// Format of the log [default: text on a terminal and for commands, else json].
    #[arg(long, value_name = "FORMAT", env = "DR_LOG_FORMAT", value_enum, global = true)]
    pub(super) log_format: Option<LogFormat>,
}

impl Global {
    pub(super) fn sources(&self, registry: &Registry) -> Sources {
        Sources::with_environment(self.paths.clone(), self.sets.clone()).with_registry(registry.clone())
    }
}

/// Runs a command to its end.
pub(super) fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().map_err(|e| Error::Internal(format!("no runtime: {e}")))?;
    let result = runtime.block_on(command);
    // Background work of a client crate must not delay the exit.
    runtime.shutdown_background();
    result
}
