use std::path::PathBuf;

use job_guard::RotatedFile;
use serde::Deserializer;
use tracing_subscriber::filter::Targets;

use super::{
    Config, Sources,
    output::Rotation,
    parse::{Parse, made},
    table::{flat, flat_as, optional, table},
};

table! {
    /// `[log]`: the worker's own log.
    #[derive(Clone, Debug, PartialEq)]
    pub struct LogConfig {
        /// Log level: a level, or levels by target. --log and DR_LOG override it. Default: "info"; "warn" for
        /// zookeeper.
        pub levels: Option<Targets> = None => optional().applied().example("\"info,zk_session=debug\"");
        /// Where it goes instead of standard error.
        pub file: Option<RotatedFile> = None => flat_as(FileKeys::default());
    }
}

table! {
    struct FileKeys {
        /// File to log to instead of standard error. It is renamed to PATH.1, PATH.2, ... when it is large or old.
        file: Option<PathBuf> = None => optional().example("\"/var/log/dr-worker/worker.log\"");
        rotation: Rotation = Rotation::default() => flat();
    }
}

impl From<FileKeys> for Option<RotatedFile> {
    fn from(FileKeys { file, rotation }: FileKeys) -> Self {
        file.map(|path| rotation.of(path))
    }
}

impl LogConfig {
    /// Reads nothing but this. Whatever is wrong is found when the whole configuration is read: the log comes first.
    pub(crate) fn load(sources: &Sources) -> Self {
        let (config, problems) =
            Config::read_leniently(sources, |key| key.is_none_or(|key| key.starts_with("log")));
        if problems.is_empty() { config.log } else { Self::default() }
    }
}

/// Reads a level, or levels by target: `info`, `warn,election_core=debug`.
///
/// # Errors
/// Why it is invalid.
pub(crate) fn read_levels(levels: &str) -> Result<Targets, String> {
    levels.parse().map_err(|e| format!("{e}; for example \"info\" or \"info,zk_session=debug\""))
}

impl Parse for Targets {
    const IS_TEXT: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        made(from, |levels: String| read_levels(&levels))
    }

    fn show(&self) -> String {
        self.to_string().show()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_by_target_are_understood() {
        assert!(read_levels("info").is_ok());
        assert!(read_levels("warn,election_core=debug").is_ok());
        let error = read_levels("info,zk_session=loud").unwrap_err();
        assert!(error.contains("for example"), "{error}");
    }
}
