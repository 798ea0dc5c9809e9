//! The global arguments, those that several verbs have, and the runtime of a verb.

use std::path::PathBuf;

use clap::Args;
use strategies::Registry;
use tracing_subscriber::filter::Targets;

use super::output::Output;
use crate::{
    config::{Sources, read_levels},
    error::Error,
    logging::LogFormat,
};

/// Apart from what belongs to a verb.
const HEADING: &str = "Global options";

#[derive(Debug, Args)]
pub(super) struct Global {
    /// Configuration file or directory; repeatable.
    ///
    /// A TOML file, or a directory of *.toml files. Later ones override [default: /etc/dr-worker].
    #[arg(short = 'c', long = "config", value_name = "PATH", global = true, help_heading = HEADING)]
    pub(super) paths: Vec<PathBuf>,
    /// Override a setting, such as zookeeper.root=/dr.
    ///
    /// It overrides files and environment. Repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE", global = true, help_heading = HEADING)]
    pub(super) sets: Vec<String>,
    /// Format of results: pretty or json.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Pretty, global = true)]
    #[arg(hide_possible_values = true, hide_default_value = true, help_heading = HEADING)]
    pub(super) output: Output,
    /// Log levels, such as zk_session=debug.
    #[arg(long = "log", value_name = "LEVELS", env = "DR_LOG", value_parser = read_levels, global = true)]
    #[arg(hide_env_values = true, help_heading = HEADING)]
    pub(super) levels: Option<Targets>,
    /// Format of the log.
    ///
    /// text or json. Default: text on a terminal and for commands, else json.
    #[arg(long, value_name = "FORMAT", env = "DR_LOG_FORMAT", value_enum, global = true)]
    #[arg(hide_possible_values = true, hide_env_values = true, help_heading = HEADING)]
    pub(super) log_format: Option<LogFormat>,
}

/// Of a verb about one job.
#[derive(Debug, Args)]
pub(super) struct OneJob {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
}

/// Of a verb about all jobs, unless one is named.
#[derive(Debug, Args)]
pub(super) struct AllJobs {
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
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
