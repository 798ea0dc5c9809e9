//! Circles in a graph of files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Edge;

/// Units of which each one reaches every other one.
pub(crate) type Circle = BTreeSet<String>;

/// The files of a crate, or the units of one of its folders, and which names items of which. A file may use what the
/// `mod.rs` of its own folder defines; that is left out.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    next: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Each file by itself, named by its path from the folder of the crate's root.
    pub(crate) fn of_files(edges: &[Edge], folder: &Path) -> Self {
        Self::of(edges, |file| Some(file.strip_prefix(folder).ok()?.display().to_string()))
    }

    /// The units of a folder: each module in it with all that is below it. `name.rs` and the folder `name` are one.
    pub(crate) fn of_folder(edges: &[Edge], folder: &Path) -> Self {
        Self::of(edges, |file| unit(file, folder))
    }

    fn of(edges: &[Edge], name: impl Fn(&Path) -> Option<String>) -> Self {
        let mut graph = Self::default();
        for edge in edges {
            if let (Some(from), Some(to)) = (name(&edge.from), name(&edge.to))
                && from != to
                && !edge.is_to_own_folder()
            {
                graph.next.entry(from).or_default().insert(to);
            }
        }
        graph
    }

    /// The strongly connected components of more than one unit.
    pub(crate) fn circles(&self) -> BTreeSet<Circle> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.next.keys().map(|unit| (unit.as_str(), self.reached_from(unit))).collect();
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
        let in_circles = reached.iter().filter(|(unit, reached)| reached.contains(*unit));
        let circle = |unit: &str, reached: &BTreeSet<&str>| {
            reached.iter().filter(|other| reaches(other, unit)).map(ToString::to_string).collect()
        };
        in_circles.map(|(unit, reached)| circle(unit, reached)).collect()
    }

    fn reached_from<'a>(&'a self, unit: &'a str) -> BTreeSet<&'a str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![unit]);
        while let Some(unit) = open.pop() {
            for next in self.next.get(unit).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// The module in that folder to which a file belongs.
pub(super) fn unit(file: &Path, folder: &Path) -> Option<String> {
    let first = file.strip_prefix(folder).ok()?.components().next()?;
    Some(PathBuf::from(first.as_os_str()).with_extension("").display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(&str, &str)]) -> Vec<Edge> {
        let edge = |(from, to): &(&str, &str)| Edge {
            from: PathBuf::from(from),
            to: PathBuf::from(to),
            line: 1,
            name: String::new(),
        };
        pairs.iter().map(edge).collect()
    }

    fn circles(graph: &Graph) -> Vec<String> {
        graph.circles().iter().map(|circle| circle.iter().cloned().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn folders_can_be_in_a_circle_whose_files_are_not() {
        let edges =
            edges(&[("src/a/x.rs", "src/b.rs"), ("src/b.rs", "src/a/y.rs"), ("src/b.rs", "src/c.rs")]);
        assert_eq!(circles(&Graph::of_folder(&edges, Path::new("src"))), ["a b"]);
        assert!(circles(&Graph::of_files(&edges, Path::new("src"))).is_empty());
    }

    #[test]
    fn a_module_and_its_folder_are_one() {
        let edges = edges(&[("src/a.rs", "src/a/x.rs"), ("src/a/x.rs", "src/a.rs")]);
        assert!(circles(&Graph::of_folder(&edges, Path::new("src"))).is_empty());
        assert_eq!(circles(&Graph::of_files(&edges, Path::new("src"))), ["a.rs a/x.rs"]);
    }

    #[test]
    fn a_file_may_use_the_module_of_its_own_folder_alone() {
        let own = edges(&[("src/a/mod.rs", "src/a/x.rs"), ("src/a/x.rs", "src/a/mod.rs")]);
        assert!(circles(&Graph::of_folder(&own, Path::new("src/a"))).is_empty());
        assert!(circles(&Graph::of_files(&own, Path::new("src"))).is_empty());
        let deeper = edges(&[("src/a/mod.rs", "src/a/b/x.rs"), ("src/a/b/x.rs", "src/a/mod.rs")]);
        assert_eq!(circles(&Graph::of_folder(&deeper, Path::new("src/a"))), ["b mod"]);
        let files = edges(&[("src/a/x.rs", "src/a/y.rs"), ("src/a/y.rs", "src/a/x.rs")]);
        assert_eq!(circles(&Graph::of_folder(&files, Path::new("src/a"))), ["x y"]);
    }
}
