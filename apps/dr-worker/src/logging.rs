//! The log: on standard error, for people on a terminal and as JSON for machines.

use std::io::{self, IsTerminal as _};

use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _,
    filter::{Targets, filter_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The target of a client crate that logs a session's password when it connects.
const TELLS_PASSWORD: &str = "zookeeper_async";

/// What is logged when nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// What a daemon does.
    Daemon,
    /// Only what is wrong: a command's result speaks for itself.
    Command,
}

/// Reads a level, or levels by target: `info`, `warn,election_core=debug`.
///
/// # Errors
/// What is wrong with it.
pub fn parse(levels: &str) -> Result<Targets, String> {
    let targets: Targets = levels
        .parse()
        .map_err(|e| format!("{e}; write for instance \"info\" or \"info,zk_session=debug\""))?;
    Ok(targets)
}

/// Starts the log.
pub fn init(levels: Option<Targets>, usual: Usual) {
    let levels = levels.unwrap_or_else(|| match usual {
        Usual::Daemon => Targets::new().with_default(Level::INFO).with_target("zookeeper", Level::WARN),
        Usual::Command => Targets::new().with_default(LevelFilter::ERROR),
    });
    // Whatever was asked for.
    let safe = filter_fn(|metadata| {
        !metadata.target().starts_with(TELLS_PASSWORD) || *metadata.level() <= Level::WARN
    });
    let is_terminal = io::stderr().is_terminal();
    let format = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = if is_terminal || usual == Usual::Command {
        let colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        format.with_ansi(colours).with_target(false).boxed()
    } else {
        format.json().flatten_event(true).boxed()
    };
    tracing_subscriber::registry().with(layer.with_filter(levels).with_filter(safe)).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_by_target_are_understood() {
        assert!(parse("info").is_ok());
        assert!(parse("warn,election_core=debug").is_ok());
        let error = parse("info,zk_session=loud").unwrap_err();
        assert!(error.contains("write for instance"), "{error}");
    }
}
