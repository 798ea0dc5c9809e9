use std::path::PathBuf;

use job_guard::RotatedFile;
use tracing_subscriber::filter::Targets;

use super::{
    Sources, layers,
    output::read_rotated,
    parse::{Mismatch, Parse},
    reader::{Findings, Section},
    tree::Node,
};

/// `[log]`: the worker's own log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogConfig {
    /// What is logged, unless the command line says so.
    pub levels: Option<Targets>,
    /// Where it goes instead of standard error.
    pub file: Option<RotatedFile>,
}

impl LogConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let levels = section.optional("levels");
        let path: Option<PathBuf> = section.optional("file");
        let file = read_rotated(section, path.clone().unwrap_or_default());
        Self { levels, file: path.map(|_| file) }
    }

    /// Reads nothing but this. Whatever is wrong is found when the whole configuration is read: the log comes first.
    pub(crate) fn load(sources: &Sources) -> Self {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        let read = Section::read_root(&root, &mut findings, |root| {
            root.leave_rest();
            root.table("log", Self::read)
        });
        if findings.problems.is_empty() { read } else { Self::default() }
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
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        read_levels(&String::parse(node)?).map_err(Mismatch::from)
    }

    fn show(&self) -> String {
        self.to_string().show()
    }

    #[cfg(test)]
    fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::schema(generator)
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
