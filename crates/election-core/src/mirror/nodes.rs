//! Znodes by path, in one piece of memory: most elections have three, and a `BTreeMap` keeps room for eleven.

use crate::engine::Node;

/// Znodes, in the order of their paths.
#[derive(Debug, Default)]
pub(super) struct Nodes(Vec<(String, Box<Node>)>);

impl Nodes {
    fn find(&self, path: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(path))
    }

    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.find(path).ok().map(|at| &*self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.find(path).ok().map(|at| &mut *self.0[at].1)
    }

    pub(super) fn insert(&mut self, path: String, node: Node) {
        match self.find(&path) {
            Ok(at) => *self.0[at].1 = node,
            Err(at) => self.0.insert(at, (path, Box::new(node))),
        }
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, path: &str) -> bool {
        self.find(path).is_ok_and(|at| {
            self.0.remove(at);
            true
        })
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(path, _)| keep(path));
    }

    /// The children of a znode with their paths.
    pub(super) fn children(&self, parent: &str) -> impl Iterator<Item = (&str, &Node)> {
        let prefix = format!("{parent}/");
        let first = self.0.partition_point(|(path, _)| *path < prefix);
        let all = self.0[first..].iter().map(|(path, node)| (path.as_str(), &**node));
        all.take_while(move |(path, _)| path.starts_with(&prefix))
    }
}
