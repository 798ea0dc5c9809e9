//! Watches: who wants to hear of which path.
//!
//! As in Apache ZooKeeper there are two tables, one for a znode itself and one for
//! its children, and a connection has one mode in each table for each path: the
//! last one that it asked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zk_proto::{Acl, EventKind};

/// A connection.
pub(crate) type Watcher = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Once,
    Persistent,
    Recursive,
}

/// A watch that has been triggered. Whoever may not read the znode does not hear of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) watcher: Watcher,
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    pub(crate) acl: Arc<[Acl]>,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    data: Table,
    child: Table,
}

impl Watches {
    pub(crate) fn watch_data(&mut self, path: &str, watcher: Watcher) {
        self.data.add(path, watcher, Mode::Once);
    }

    pub(crate) fn watch_children(&mut self, path: &str, watcher: Watcher) {
        self.child.add(path, watcher, Mode::Once);
    }

    pub(crate) fn watch_both(&mut self, path: &str, watcher: Watcher, mode: Mode) {
        self.data.add(path, watcher, mode);
        self.child.add(path, watcher, mode);
    }

    /// Whether there was one.
    pub(crate) fn remove_data(&mut self, path: &str, watcher: Watcher) -> bool {
        self.data.remove(path, watcher)
    }

    /// Whether there was one.
    pub(crate) fn remove_children(&mut self, path: &str, watcher: Watcher) -> bool {
        self.child.remove(path, watcher)
    }

    /// Whether anyone watches that path.
    pub(crate) fn data_watched(&self, path: &str) -> bool {
        self.data.by_path.contains_key(path)
    }

    /// As [`data_watched`](Self::data_watched).
    pub(crate) fn children_watched(&self, path: &str) -> bool {
        self.child.by_path.contains_key(path)
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, watcher: Watcher) {
        self.data.forget(watcher);
        self.child.forget(watcher);
    }

    /// How many watches there are.
    pub(crate) fn count(&self) -> usize {
        self.data.count() + self.child.count()
    }

    pub(crate) fn created(
        &mut self,
        path: &str,
        acl: &Arc<[Acl]>,
        parent: &str,
        parent_acl: &Arc<[Acl]>,
        notices: &mut Vec<Notice>,
    ) {
        tell(self.data.trigger(path, EventKind::CREATED), EventKind::CREATED, path, acl, notices);
        self.children_changed(parent, parent_acl, notices);
    }

    pub(crate) fn deleted(
        &mut self,
        path: &str,
        acl: &Arc<[Acl]>,
        parent: &str,
        parent_acl: &Arc<[Acl]>,
        notices: &mut Vec<Notice>,
    ) {
        let told = self.data.trigger(path, EventKind::DELETED);
        // Who watches both hears it once.
        let mut more = self.child.trigger(path, EventKind::DELETED);
        more.retain(|watcher| !told.contains(watcher));
        tell(told, EventKind::DELETED, path, acl, notices);
        tell(more, EventKind::DELETED, path, acl, notices);
        self.children_changed(parent, parent_acl, notices);
    }

    pub(crate) fn data_changed(&mut self, path: &str, acl: &Arc<[Acl]>, notices: &mut Vec<Notice>) {
        tell(self.data.trigger(path, EventKind::DATA_CHANGED), EventKind::DATA_CHANGED, path, acl, notices);
    }

    fn children_changed(&mut self, parent: &str, acl: &Arc<[Acl]>, notices: &mut Vec<Notice>) {
        let parent = if parent.is_empty() { "/" } else { parent };
        let watchers = self.child.trigger(parent, EventKind::CHILDREN_CHANGED);
        tell(watchers, EventKind::CHILDREN_CHANGED, parent, acl, notices);
    }
}

fn tell(watchers: Vec<Watcher>, kind: EventKind, path: &str, acl: &Arc<[Acl]>, notices: &mut Vec<Notice>) {
    notices.extend(watchers.into_iter().map(|watcher| Notice {
        watcher,
        kind,
        path: path.to_owned(),
        acl: Arc::clone(acl),
    }));
}

#[derive(Debug, Default)]
struct Table {
    by_path: HashMap<String, Vec<(Watcher, Mode)>>,
    by_watcher: HashMap<Watcher, HashSet<String>>,
    recursive: usize,
}

impl Table {
    fn add(&mut self, path: &str, watcher: Watcher, mode: Mode) {
        self.remove(path, watcher);
        self.by_path.entry(path.to_owned()).or_default().push((watcher, mode));
        self.by_watcher.entry(watcher).or_default().insert(path.to_owned());
        self.recursive += usize::from(mode == Mode::Recursive);
    }

    fn remove(&mut self, path: &str, watcher: Watcher) -> bool {
        let Some(paths) = self.by_watcher.get_mut(&watcher) else {
            return false;
        };
        if !paths.remove(path) {
            return false;
        }
        if paths.is_empty() {
            self.by_watcher.remove(&watcher);
        }
        self.take_from_path(path, watcher);
        true
    }

    fn take_from_path(&mut self, path: &str, watcher: Watcher) {
        if let Some(watchers) = self.by_path.get_mut(path) {
            if let Some(at) = watchers.iter().position(|(held, _)| *held == watcher) {
                let (_, mode) = watchers.remove(at);
                self.recursive -= usize::from(mode == Mode::Recursive);
            }
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
        }
    }

    fn forget(&mut self, watcher: Watcher) {
        for path in self.by_watcher.remove(&watcher).unwrap_or_default() {
            self.take_from_path(&path, watcher);
        }
    }

    fn count(&self) -> usize {
        self.by_watcher.values().map(HashSet::len).sum()
    }

    /// Who is to hear of it, in the order in which they came to watch.
    fn trigger(&mut self, path: &str, kind: EventKind) -> Vec<Watcher> {
        let mut told = Vec::new();
        let mut once = Vec::new();
        for (watcher, mode) in self.by_path.get(path).into_iter().flatten() {
            match mode {
                Mode::Recursive if kind == EventKind::CHILDREN_CHANGED => {}
                Mode::Recursive | Mode::Persistent => told.push(*watcher),
                Mode::Once => {
                    told.push(*watcher);
                    once.push(*watcher);
                }
            }
        }
        for watcher in once {
            self.remove(path, watcher);
        }
        if self.recursive > 0 && kind != EventKind::CHILDREN_CHANGED {
            for above in parents(path) {
                for (watcher, mode) in self.by_path.get(above).into_iter().flatten() {
                    if *mode == Mode::Recursive && !told.contains(watcher) {
                        told.push(*watcher);
                    }
                }
            }
        }
        told
    }
}

/// All paths above one, the root last.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        Some(0) if path.len() > 1 => Some("/"),
        Some(slash) if slash > 0 => Some(&path[..slash]),
        _ => None,
    })
    .skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::tree::for_anyone;
    use zk_proto::permission;

    fn happened(
        watches: &mut Watches,
        what: impl Fn(&mut Watches, &mut Vec<Notice>),
    ) -> Vec<(Watcher, i32, String)> {
        let mut notices = Vec::new();
        what(watches, &mut notices);
        notices.into_iter().map(|notice| (notice.watcher, notice.kind.0, notice.path)).collect()
    }

    #[test]
    fn parents_end_at_the_root() {
        assert_eq!(parents("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(parents("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(parents("/").count(), 0);
        assert_eq!(parents("").count(), 0);
    }

    #[test]
    fn a_watch_of_once_fires_once() {
        let mut watches = Watches::default();
        let acl = for_anyone(permission::ALL);
        watches.watch_data("/a", 1);
        let change =
            |watches: &mut Watches, notices: &mut Vec<Notice>| watches.data_changed("/a", &acl, notices);
        assert_eq!(happened(&mut watches, change), [(1, 3, "/a".to_owned())]);
        assert_eq!(happened(&mut watches, change), []);
        assert_eq!(watches.count(), 0);
    }

    #[test]
    fn a_deletion_is_told_once_to_who_watches_both() {
        let mut watches = Watches::default();
        let acl = for_anyone(permission::ALL);
        watches.watch_data("/a/b", 1);
        watches.watch_children("/a/b", 1);
        watches.watch_children("/a/b", 2);
        watches.watch_children("/a", 2);
        let delete = |watches: &mut Watches, notices: &mut Vec<Notice>| {
            watches.deleted("/a/b", &acl, "/a", &acl, notices)
        };
        let told = happened(&mut watches, delete);
        let expected = [(1, 2, "/a/b"), (2, 2, "/a/b"), (2, 4, "/a")];
        assert_eq!(told, expected.map(|(watcher, event, path)| (watcher, event, path.to_owned())));
        assert_eq!(watches.count(), 0);
    }

    #[test]
    fn a_recursive_watch_hears_of_what_is_below_and_not_of_children() {
        let mut watches = Watches::default();
        let acl = for_anyone(permission::ALL);
        watches.watch_both("/", 1, Mode::Recursive);
        let create = |watches: &mut Watches, notices: &mut Vec<Notice>| {
            watches.created("/a/b", &acl, "/a", &acl, notices)
        };
        assert_eq!(happened(&mut watches, create), [(1, 1, "/a/b".to_owned())]);
        watches.forget(1);
        assert_eq!(happened(&mut watches, create), []);
    }

    #[test]
    fn the_last_mode_counts() {
        let mut watches = Watches::default();
        let acl = for_anyone(permission::ALL);
        watches.watch_both("/a", 1, Mode::Persistent);
        watches.watch_data("/a", 1);
        let change =
            |watches: &mut Watches, notices: &mut Vec<Notice>| watches.data_changed("/a", &acl, notices);
        assert_eq!(happened(&mut watches, change).len(), 1);
        assert_eq!(happened(&mut watches, change).len(), 0);
        assert!(!watches.remove_data("/a", 1));
        assert!(watches.remove_children("/a", 1));
    }
}
