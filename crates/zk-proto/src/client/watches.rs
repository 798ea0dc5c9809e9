//! The watches of a session on its server, and the callers that wait for each.
//!
//! The server holds one watch for a path and a kind, for any number of callers. A one-shot watch that has been given up
//! stays on the server until it fires, because a path is often watched again soon; the number of these is bounded, and
//! beyond it the oldest is removed.
//!
//! Servers before 3.9 keep one mode of a path for a session, the last one requested. So a path that is watched in both
//! lasting modes is watched recursively there, and the events of a persistent watch about children are derived from the
//! events of the children themselves.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::ancestors;
use crate::codec::{EventKind, Request, WatcherType};

/// Names one watch. Chosen by the caller, and never used again within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// What a watch saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// The data was replaced.
    DataChanged,
    /// A child was created or deleted. A watch of a tree reports the child itself instead.
    ChildrenChanged,
    /// Events may have been missed: read what matters again.
    Gap,
}

/// What a watch looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Look {
    /// The data of a znode that exists, once.
    Data,
    /// A znode that does not exist, once.
    Absence,
    /// The children of a znode, once.
    Children,
    /// The znode and its children, until it is given up.
    Persistent,
    /// The znode and all below it, until it is given up.
    Recursive,
}

impl Look {
    const ALL: [Self; 5] = [Self::Data, Self::Absence, Self::Children, Self::Persistent, Self::Recursive];

    const fn is_once(self) -> bool {
        matches!(self, Self::Data | Self::Absence | Self::Children)
    }
}

/// How many bytes of paths go into one request that sets watches again at most; well below the usual limit of servers.
const PATHS_PER_REQUEST: usize = 128 << 10;
/// The most one-shot watches on the server that have been given up.
const MOST_STALE: usize = 64;

/// Armed watches, in the order of the wire.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// By path; a path without a list is not watched. Thousands of paths may be watched, and most by one watch.
    /// In the order of the paths: the same watches are set again by the same bytes.
    by_path: BTreeMap<Arc<str>, SmallVec<[(Look, WatchId); 1]>>,
    paths: HashMap<WatchId, Arc<str>>,
    /// Armed on the server and given up, oldest first.
    stale: VecDeque<(Arc<str>, Look)>,
    /// Paths that the server watches recursively, perhaps for a persistent watch alone that has been left over.
    recursive: HashSet<String>,
}

/// The watches and the event for each.
pub(super) type Fired = Vec<WatchId>;

impl Watches {
    /// The server watches it recursively from now on.
    pub(super) fn note_recursive(&mut self, path: &str) {
        self.recursive.insert(path.to_owned());
    }

    /// Whether the server watches it recursively.
    pub(super) fn is_recursive(&self, path: &str) -> bool {
        self.recursive.contains(path)
    }

    pub(super) fn arm(&mut self, look: Look, path: &str, id: WatchId) {
        self.stale.retain(|(stale, kind)| *kind != look || **stale != *path);
        let known = self.by_path.get_key_value(path).map(|(known, _)| Arc::clone(known));
        let path = known.unwrap_or_else(|| Arc::from(path));
        self.by_path.entry(Arc::clone(&path)).or_default().push((look, id));
        self.paths.insert(id, path);
    }

    /// Whether events of the znode itself come from a watch that a one-shot watch on it would replace: servers before 3.9
    /// keep one mode for a path, the last one requested.
    pub(super) fn has_lasting(&self, path: &str) -> bool {
        self.holders(path, |look| !look.is_once()).next().is_some()
    }

    /// The watches for this event, with or without the lasting ones. One-shot watches among them are no longer armed.
    pub(super) fn fire(&mut self, kind: EventKind, path: &str, lasting: bool) -> (WatchKind, Fired) {
        let (told, looks): (_, &[Look]) = match kind {
            EventKind::CREATED => (WatchKind::Created, &[Look::Absence, Look::Data]),
            EventKind::DATA_CHANGED => (WatchKind::DataChanged, &[Look::Data, Look::Absence]),
            EventKind::CHILDREN_CHANGED => (WatchKind::ChildrenChanged, &[Look::Children]),
            EventKind::DELETED => (WatchKind::Deleted, &[Look::Data, Look::Absence, Look::Children]),
            // Of a newer server: every watch of that path reports a possible change.
            _ => (WatchKind::Gap, &[Look::Data, Look::Absence, Look::Children]),
        };
        self.stale.retain(|(stale, look)| **stale != *path || !looks.contains(look));
        let mut fired = self.take(path, looks);
        if !lasting {
            return (told, fired);
        }
        // Servers from 3.9 on keep a one-shot or persistent watch beside the recursive one, and report the children for
        // them: the recursive one has reported the child itself, and so its parent.
        let told_already = kind == EventKind::CHILDREN_CHANGED && self.is_recursive(path);
        if !told_already {
            fired.extend(self.holders(path, |look| !look.is_once()));
        }
        if matches!(kind, EventKind::CREATED | EventKind::DELETED | EventKind::DATA_CHANGED) {
            for above in ancestors(path) {
                fired.extend(self.holders(above, |look| look == Look::Recursive));
            }
        }
        (told, fired)
    }

    /// The watches for the children of a znode that the server watches recursively, which reports the children one by one;
    /// with or without the lasting ones.
    pub(super) fn fire_parent(
        &mut self,
        kind: EventKind,
        path: &str,
        lasting: bool,
    ) -> Option<(String, Fired)> {
        let parent = ancestors(path).next()?;
        if !self.is_recursive(parent) || !matches!(kind, EventKind::CREATED | EventKind::DELETED) {
            return None;
        }
        let mut fired = self.take(parent, &[Look::Children]);
        fired.extend(self.holders(parent, |look| lasting && look == Look::Persistent));
        (!fired.is_empty()).then(|| (parent.to_owned(), fired))
    }

    /// Gives up a watch. Returns the request for the server, and the one-shot watches that end with it, if necessary.
    ///
    /// `is_wanted` returns whether a request for a lasting watch on that path is under way: the server carries it out
    /// first, and would remove that one too.
    pub(super) fn forget(&mut self, id: WatchId, is_wanted: impl FnOnce(&str) -> bool) -> Option<Removal> {
        let path = self.paths.remove(&id)?;
        let held = self.by_path.get_mut(&path)?;
        let at = held.iter().position(|(_, other)| *other == id)?;
        let (look, _) = held.remove(at);
        let needed = held.iter().any(|(other, _)| *other == look);
        let lasting = held.iter().any(|(other, _)| !other.is_once());
        if held.is_empty() {
            self.by_path.remove(&path);
        }
        if needed {
            return None;
        }
        if look.is_once() {
            // If a lasting watch covers the path, the server holds none of the other kind.
            if !lasting {
                self.stale.push_back((path, look));
            }
            return None;
        }
        if lasting || is_wanted(&path) {
            return None;
        }
        self.recursive.remove(&*path);
        let gaps = self.take(&path, &[Look::Data, Look::Absence, Look::Children]);
        Some(Removal { path: path.to_string(), kind: WatcherType::Any, gaps })
    }

    /// The oldest watch that has been given up, once there are too many of them. `is_wanted` returns whether a request
    /// under way is about to arm that path: removing it then would remove the new one.
    pub(super) fn excess(&mut self, is_wanted: impl Fn(&str) -> bool) -> Option<Removal> {
        if self.stale.len() <= MOST_STALE {
            return None;
        }
        let (path, look) = self.stale.pop_front()?;
        let kind = if look == Look::Children { WatcherType::Children } else { WatcherType::Data };
        // Servers before 3.9 hold a lasting watch in the place of both kinds of one-shot watches, and would remove that.
        let shared = |other: Look| !other.is_once() || (other == Look::Children) == (look == Look::Children);
        if self.holders(&path, shared).next().is_some() {
            return None;
        }
        if is_wanted(&path) {
            self.stale.push_back((path, look));
            return None;
        }
        Some(Removal { path: path.to_string(), kind, gaps: Vec::new() })
    }

    /// The requests that arm all watches on another connection, none of more than `limit` bytes. For each one-shot watch the
    /// server compares with `relative_zxid`, and if something happened since, it sends the event at once; lasting ones it only
    /// records: [`lasting`](Self::lasting) have a gap.
    pub(super) fn set_again(&mut self, relative_zxid: i64, limit: usize, mut send: impl FnMut(&Request<'_>)) {
        // The other half has room for what is not a path.
        let most = PATHS_PER_REQUEST.min(limit / 2);
        self.stale.clear();
        self.recursive.clear();
        let mut lists: [Vec<Cow<'_, str>>; 5] = Default::default();
        let mut size = 0;
        let mut flush = |lists: &mut [Vec<Cow<'_, str>>; 5]| {
            let [data, exist, child, persistent, recursive] = std::mem::take(lists);
            send(&Request::SetWatches { relative_zxid, data, exist, child, persistent, recursive });
        };
        for (path, held) in &self.by_path {
            let holds = |look| held.iter().any(|(held, _)| *held == look);
            if holds(Look::Recursive) {
                self.recursive.insert(path.to_string());
            }
            for (list, look) in Look::ALL.into_iter().enumerate() {
                if holds(look) && !(look == Look::Persistent && holds(Look::Recursive)) {
                    let more = path.len() + 4;
                    if size > 0 && size + more > most {
                        flush(&mut lists);
                        size = 0;
                    }
                    lists[list].push(Cow::Borrowed(path));
                    size += more;
                }
            }
        }
        if size > 0 {
            flush(&mut lists);
        }
    }

    /// The persistent and recursive ones, with their paths.
    pub(super) fn lasting(&self) -> Vec<(WatchId, String)> {
        let mut lasting = Vec::new();
        for path in self.by_path.keys() {
            lasting.extend(self.holders(path, |look| !look.is_once()).map(|id| (id, path.to_string())));
        }
        lasting
    }

    fn holders(&self, path: &str, is_meant: impl Fn(Look) -> bool) -> impl Iterator<Item = WatchId> {
        let held = self.by_path.get(path).into_iter().flatten();
        held.filter(move |(look, _)| is_meant(*look)).map(|(_, id)| *id)
    }

    fn take(&mut self, path: &str, looks: &[Look]) -> Fired {
        let Some(held) = self.by_path.get_mut(path) else { return Vec::new() };
        let mut fired = Vec::new();
        held.retain(|(look, id)| {
            let fires = looks.contains(look);
            if fires {
                self.paths.remove(id);
                fired.push(*id);
            }
            !fires
        });
        if held.is_empty() {
            self.by_path.remove(path);
        }
        fired
    }
}

/// A watch to be removed on the server, and the one-shot watches that the server reported only because of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) path: String,
    pub(super) kind: WatcherType,
    pub(super) gaps: Fired,
}
