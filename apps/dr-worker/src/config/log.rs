use std::path::PathBuf;

use super::{
    Sources, layers,
    output::{RotatedFile, read_rotated},
    reader::{Findings, Section},
};

/// `[log]`: the worker's own log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// Where it goes instead of standard error.
    pub file: Option<RotatedFile>,
}

impl LogConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let path: Option<PathBuf> = section.optional("file");
        let file = read_rotated(section, path.clone().unwrap_or_default());
        Self { file: path.map(|_| file) }
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
