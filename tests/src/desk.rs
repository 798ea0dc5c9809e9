//! Configuration files and the program, without any servers.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::operator::Operator;
use crate::process::Tree;
use crate::programs::DR_WORKER;

/// A directory with configuration files, and the program that reads them.
#[derive(Debug)]
pub struct Desk {
    operator: Operator,
    dir: TempDir,
}

impl Desk {
    /// The files as `(name, content)`, in the order of their layers.
    ///
    /// # Panics
    /// If they can't be written.
    pub fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("dr-e2e-").tempdir().expect("a temporary directory");
        let mut paths = Vec::new();
        for (name, content) in files {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            paths.push(path);
        }
        Self { operator: Operator::new(DR_WORKER, &paths, Tree::new(dir.path())), dir }
    }

    /// The program with those files.
    pub fn dr_worker(&self) -> &Operator {
        &self.operator
    }

    /// A path among the files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Asserts that the program has left no process and has created no file.
    ///
    /// # Panics
    /// If it has.
    pub fn assert_untouched(&self, files: &[&str]) {
        assert_eq!(self.operator.tree.living(), Vec::<u32>::new(), "processes are left");
        let there = std::fs::read_dir(self.dir.path()).expect("the directory").flatten();
        let more: Vec<_> = there
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !files.contains(&name.as_str()))
            .collect();
        assert_eq!(more, Vec::<String>::new(), "files were made");
    }
}
