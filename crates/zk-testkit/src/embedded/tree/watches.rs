//! Watches: the watchers of each path.
//!
//! As in Apache ZooKeeper there are two tables, one for a znode itself and one for
//! its children. Before 3.9 a connection has one mode in each table for each path, the
//! last one that it asked for; from then on it has each that it asked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zk_proto::{Acl, EventKind, ancestors};

/// A connection.
pub(crate) type Watcher = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    Once,
    Persistent,
    Recursive,
}

/// A watch that has fired. Clients that may not read the znode get no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) watcher: Watcher,
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    pub(crate) acl: Arc<[Acl]>,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    pub(crate) data: Table,
    pub(crate) child: Table,
    notices: Vec<Notice>,
}

impl Watches {
    /// Whether a connection has one mode for a path, or several.
    pub(crate) fn new(several_modes: bool) -> Self {
        let table = || Table { several_modes, ..Table::default() };
        Self { data: table(), child: table(), notices: Vec::new() }
    }

    pub(crate) fn add_both(&mut self, path: &str, watcher: Watcher, mode: WatchMode) {
        self.data.add(path, watcher, mode);
        self.child.add(path, watcher, mode);
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

    /// What has been triggered since it was taken last.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub(crate) fn created(&mut self, path: &str, acl: &Arc<[Acl]>, parent: &str, parent_acl: &Arc<[Acl]>) {
        let told = self.data.trigger(path, EventKind::CREATED);
        self.notify(told, EventKind::CREATED, path, acl);
        self.children_changed(parent, parent_acl);
    }

    pub(crate) fn deleted(&mut self, path: &str, acl: &Arc<[Acl]>, parent: &str, parent_acl: &Arc<[Acl]>) {
        let mut told = self.data.trigger(path, EventKind::DELETED);
        // A client that watches both gets one event.
        let mut more = self.child.trigger(path, EventKind::DELETED);
        more.retain(|watcher| !told.contains(watcher));
        told.extend(more);
        self.notify(told, EventKind::DELETED, path, acl);
        self.children_changed(parent, parent_acl);
    }

    pub(crate) fn data_changed(&mut self, path: &str, acl: &Arc<[Acl]>) {
        let told = self.data.trigger(path, EventKind::DATA_CHANGED);
        self.notify(told, EventKind::DATA_CHANGED, path, acl);
    }

    fn children_changed(&mut self, parent: &str, acl: &Arc<[Acl]>) {
        let parent = if parent.is_empty() { "/" } else { parent };
        let told = self.child.trigger(parent, EventKind::CHILDREN_CHANGED);
        self.notify(told, EventKind::CHILDREN_CHANGED, parent, acl);
    }

    /// A client that reconnects with its watches gets the event, whether it may read the znode or not.
    pub(crate) fn missed(&mut self, watcher: Watcher, kind: EventKind, path: &str) {
        let to_anyone: Arc<[Acl]> = Arc::new([]);
        self.notify(vec![watcher], kind, path, &to_anyone);
    }

    fn notify(&mut self, watchers: Vec<Watcher>, kind: EventKind, path: &str, acl: &Arc<[Acl]>) {
        self.notices.extend(watchers.into_iter().map(|watcher| Notice {
            watcher,
            kind,
            path: path.to_owned(),
            acl: Arc::clone(acl),
        }));
    }
}

/// The watches of one of the two kinds.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_path: HashMap<String, Vec<(Watcher, WatchMode)>>,
    by_watcher: HashMap<Watcher, HashSet<String>>,
    recursive: usize,
    several_modes: bool,
}

impl Table {
    pub(crate) fn add(&mut self, path: &str, watcher: Watcher, mode: WatchMode) {
        self.remove(path, watcher, self.several_modes.then_some(mode));
        self.by_path.entry(path.to_owned()).or_default().push((watcher, mode));
        self.by_watcher.entry(watcher).or_default().insert(path.to_owned());
        self.recursive += usize::from(mode == WatchMode::Recursive);
    }

    /// Of one mode, or of any. Whether there was one.
    pub(crate) fn remove(&mut self, path: &str, watcher: Watcher, mode: Option<WatchMode>) -> bool {
        let Some(paths) = self.by_watcher.get_mut(&watcher).filter(|paths| paths.contains(path)) else {
            return false;
        };
        let Some(watchers) = self.by_path.get_mut(path) else { return false };
        let before = watchers.len();
        let mut is_left = false;
        watchers.retain(|(held, its_mode)| {
            let goes = *held == watcher && mode.is_none_or(|mode| mode == *its_mode);
            self.recursive -= usize::from(goes && *its_mode == WatchMode::Recursive);
            is_left |= *held == watcher && !goes;
            !goes
        });
        let removed = watchers.len() != before;
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        if !is_left {
            paths.remove(path);
            if paths.is_empty() {
                self.by_watcher.remove(&watcher);
            }
        }
        removed
    }

    /// Whether anyone, or that connection, watches that path in that mode, or in any.
    pub(crate) fn has(&self, path: &str, watcher: Option<Watcher>, mode: Option<WatchMode>) -> bool {
        let watchers = self.by_path.get(path).into_iter().flatten();
        watchers.into_iter().any(|(held, its_mode)| {
            watcher.is_none_or(|watcher| watcher == *held) && mode.is_none_or(|mode| mode == *its_mode)
        })
    }

    fn forget(&mut self, watcher: Watcher) {
        for path in self.by_watcher.get(&watcher).cloned().unwrap_or_default() {
            self.remove(&path, watcher, None);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.by_watcher.values().map(HashSet::len).sum()
    }

    /// Who watches, and which paths.
    pub(crate) fn watchers(&self) -> impl Iterator<Item = (Watcher, &HashSet<String>)> {
        self.by_watcher.iter().map(|(watcher, paths)| (*watcher, paths))
    }

    /// What is watched, and by whom.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&String, impl Iterator<Item = Watcher>)> {
        self.by_path.iter().map(|(path, watchers)| (path, watchers.iter().map(|(watcher, _)| *watcher)))
    }

    /// The watchers, in the order in which they set their watches.
    fn trigger(&mut self, path: &str, kind: EventKind) -> Vec<Watcher> {
        let mut told = Vec::new();
        let mut once = Vec::new();
        for (watcher, mode) in self.by_path.get(path).into_iter().flatten() {
            if *mode == WatchMode::Recursive && kind == EventKind::CHILDREN_CHANGED {
                continue;
            }
            if !self.several_modes || !told.contains(watcher) {
                told.push(*watcher);
            }
            if *mode == WatchMode::Once {
                once.push(*watcher);
            }
        }
        for watcher in once {
            self.remove(path, watcher, Some(WatchMode::Once));
        }
        if self.recursive > 0 && kind != EventKind::CHILDREN_CHANGED {
            for above in ancestors(path) {
                for (watcher, mode) in self.by_path.get(above).into_iter().flatten() {
                    if *mode == WatchMode::Recursive && !told.contains(watcher) {
                        told.push(*watcher);
                    }
                }
            }
        }
        told
    }
}
