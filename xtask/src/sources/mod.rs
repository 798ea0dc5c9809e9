//! The sources of the workspace as graphs: which file of a crate names an item of which other one.
//!
//! An edge goes to the file that defines the item, also where a parent module exports it again. So a module that only
//! declares and exports others has no edge. Tests and comments are left out.

#[cfg(test)]
mod api;
mod graph;
mod module;

pub(crate) use graph::{Circle, Graph};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

#[cfg(test)]
use api::Api;
#[cfg(test)]
use module::Import;
use module::{Module, Named};

/// The modules of one library or program.
#[derive(Debug)]
pub(crate) struct Sources {
    /// By their path from the root, which has the empty one.
    modules: BTreeMap<Vec<String>, (PathBuf, Module)>,
}

/// One file names an item of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    pub(crate) line: usize,
    pub(crate) name: String,
}

impl Edge {
    /// A file may use what the `mod.rs` of its own folder defines: such an edge makes no circle.
    fn is_to_own_folder(&self) -> bool {
        self.to.file_name().is_some_and(|name| name == "mod.rs") && self.from.parent() == self.to.parent()
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside =
            |file: &Path| file.strip_prefix(crate::cargo::root()).unwrap_or(file).display().to_string();
        write!(f, "{}:{} -> {} ({})", inside(&self.from), self.line, inside(&self.to), self.name)
    }
}

impl Sources {
    /// Reads the file of a crate's root, and those of the modules that it declares.
    ///
    /// # Errors
    /// A file that can't be read, or is not Rust.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut sources = Self { modules: BTreeMap::new() };
        sources.add(Vec::new(), root)?;
        Ok(sources)
    }

    fn add(&mut self, path: Vec<String>, file: &Path) -> anyhow::Result<()> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let module = Module::parse(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        let is_folder = path.is_empty() || file.file_name().is_some_and(|name| name == "mod.rs");
        let folder = if is_folder { file.with_file_name("") } else { file.with_extension("") };
        self.insert(path, file, &folder, module)
    }

    fn insert(
        &mut self,
        path: Vec<String>,
        file: &Path,
        folder: &Path,
        mut module: Module,
    ) -> anyhow::Result<()> {
        for (name, body) in &mut module.children {
            let child: Vec<String> = path.iter().chain([name]).cloned().collect();
            let files = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
            match (body.take(), files.iter().find(|file| file.exists())) {
                (Some(body), _) => self.insert(child, file, &folder.join(name), body)?,
                (None, Some(file)) => self.add(child, file)?,
                // `#[path]`: a file of another crate's.
                (None, None) => {}
            }
        }
        self.modules.insert(path, (file.to_owned(), module));
        Ok(())
    }

    /// How many items and fields are declared `pub`.
    pub(crate) fn public(&self) -> usize {
        self.modules.values().map(|(_, module)| module.public).sum()
    }

    /// How many lines are neither blank, nor a comment, nor of a test.
    pub(crate) fn code_lines(&self) -> usize {
        self.modules.values().map(|(_, module)| module.code_lines).sum()
    }

    /// What the crate offers to others: the names that its public modules export, and each public item with its members,
    /// wherever it is defined.
    #[cfg(test)]
    pub(crate) fn api(&self) -> String {
        let declares = |path: &[String], name: &String| {
            self.modules.get(path).is_some_and(|(_, module)| module.public_children.contains(name))
        };
        let is_public =
            |path: &[String]| path.iter().enumerate().all(|(at, name)| declares(&path[..at], name));
        let offered = Api::lines(self.modules.values().map(|(_, module)| &module.api));
        let mut lines: BTreeSet<String> = offered.into_iter().map(str::to_owned).collect();
        for (path, (_, module)) in self.modules.iter().filter(|(path, _)| is_public(path)) {
            let place: String = path.iter().map(|part| format!("{part}::")).collect();
            for Import { name, target, .. } in module.imports.iter().filter(|import| import.is_public) {
                let last = target.path.last().filter(|last| *last != name);
                let of = last.map(|last| format!(" = {last}")).unwrap_or_default();
                lines.insert(format!("use {place}{name}{of}"));
            }
            lines.extend(module.public_children.iter().map(|name| format!("mod {place}{name}")));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// The names that the crate's root exports, its modules among them.
    pub(crate) fn root(&self) -> usize {
        let root = self.modules.get(&[][..]).map(|(_, module)| module);
        root.map_or(0, |root| root.exports())
    }

    /// Which files name items of which: each pair once, with the first line.
    pub(crate) fn edges(&self) -> Vec<Edge> {
        let mut edges: BTreeMap<(&Path, &Path), &Named> = BTreeMap::new();
        for (path, (file, module)) in &self.modules {
            // An import that is exported can be there for others alone; its name is among the paths where it is used.
            let imports =
                module.imports.iter().filter(|import| !import.is_exported).map(|import| &import.target);
            for named in imports.chain(&module.paths) {
                if let Some(module) = self.resolve(path, &named.path, 0)
                    && let Some((to, _)) = self.modules.get(&module)
                    && to != file
                {
                    let first = edges.entry((file, to)).or_insert(named);
                    if named.line < first.line {
                        *first = named;
                    }
                }
            }
        }
        let edge = |((from, to), named): ((&Path, &Path), &Named)| Edge {
            from: from.to_owned(),
            to: to.to_owned(),
            line: named.line,
            name: named.path.join("::"),
        };
        edges.into_iter().map(edge).collect()
    }

    /// Types and traits that several files define under one name, with those files.
    pub(crate) fn ambiguous_types(&self) -> BTreeMap<&str, BTreeSet<&Path>> {
        let mut files: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
        for (file, module) in self.modules.values() {
            // Constants are in capitals, functions in small letters.
            let is_type =
                |name: &&String| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
            for name in module.definitions.iter().filter(is_type) {
                files.entry(name).or_default().insert(file);
            }
        }
        files.retain(|_, files| files.len() > 1);
        files
    }

    /// The circles between the units of each folder, with the folder.
    pub(crate) fn circles(&self, root: &Path) -> Vec<(PathBuf, Circle)> {
        let edges = self.edges();
        let files: BTreeSet<&Path> = edges.iter().flat_map(|edge| [&*edge.from, &*edge.to]).collect();
        let folders: BTreeSet<&Path> = files
            .iter()
            .flat_map(|file| file.ancestors().skip(1))
            .filter(|folder| folder.starts_with(root))
            .collect();
        let circles_of = |folder: &Path| Graph::of_folder(&edges, folder).circles();
        let of_each = folders.into_iter().map(|folder| (folder, circles_of(folder)));
        of_each
            .flat_map(|(folder, circles)| circles.into_iter().map(|circle| (folder.to_owned(), circle)))
            .collect()
    }

    /// The edges between the units of a circle.
    pub(crate) fn edges_in(&self, folder: &Path, circle: &Circle) -> Vec<Edge> {
        let mut edges = self.edges();
        edges.retain(|edge| {
            let units = [&edge.from, &edge.to].map(|file| graph::unit(file, folder));
            !edge.is_to_own_folder()
                && units[0] != units[1]
                && units.iter().flatten().filter(|unit| circle.contains(*unit)).count() == 2
        });
        edges
    }

    /// The module with the item that a path leads to which is written in a module; none where that is a module, or in
    /// another crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        // A name that is imported from itself ends here.
        if depth > 16 {
            return None;
        }
        let (_, here) = self.modules.get(module)?;
        let first = path.first()?;
        let import = || here.imports.iter().find(|import| import.name == *first);
        match first.as_str() {
            "crate" => self.below(&[], &path[1..], depth),
            "self" => self.below(module, &path[1..], depth),
            "super" => {
                let parent = module.split_last().map(|(_, parent)| parent)?;
                match path.get(1).map(String::as_str) {
                    Some("super") => self.resolve(parent, &path[1..], depth + 1),
                    _ => self.below(parent, &path[1..], depth),
                }
            }
            _ if path.len() > 1 && here.children.contains_key(first) => self.below(module, path, depth),
            _ => {
                let Named { path: target, .. } = &import()?.target;
                let full: Vec<String> = target.iter().chain(&path[1..]).cloned().collect();
                self.resolve(module, &full, depth + 1)
            }
        }
    }

    /// The same of a path that begins in a module.
    fn below(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let (_, here) = self.modules.get(module)?;
        let first = path.first()?;
        let is_defined = here.definitions.contains(first);
        if here.children.contains_key(first) && (path.len() > 1 || !is_defined) {
            let child: Vec<String> = module.iter().chain([first]).cloned().collect();
            return self.below(&child, &path[1..], depth);
        }
        if !is_defined && here.imports.iter().any(|import| import.name == *first) {
            return self.resolve(module, path, depth + 1);
        }
        Some(module.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_goes_to_the_file_that_defines_an_item() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::Thing;"),
            ("a.rs", "use crate::{Thing, b}; fn f() { b::inner::g() }"),
            ("b/mod.rs", "mod inner; pub use inner::Thing;"),
            ("b/inner.rs", "use super::super::a; pub struct Thing; #[cfg(test)] use crate::a::f;"),
        ];
        std::fs::create_dir(folder.path().join("b"))?;
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text)?;
        }
        let edges = Sources::read(&folder.path().join("lib.rs"))?.edges();
        let inside = |file: &Path| file.strip_prefix(folder.path()).unwrap_or(file).display().to_string();
        let edges: Vec<_> = edges.iter().map(|edge| (inside(&edge.from), inside(&edge.to))).collect();
        assert_eq!(edges, [("a.rs".to_owned(), "b/inner.rs".to_owned())]);
        Ok(())
    }
}
