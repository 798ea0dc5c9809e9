//! Which watches a session has on its server, and who waits for each.
//!
//! The server holds one watch for a path and a kind, however many wait for it. A one-shot watch that nobody waits for any
//! more stays on the server until it fires, because a path that was watched once is mostly watched again soon; the number
//! of these is bounded, and beyond it the oldest is removed.
//!
//! Of one path servers before 3.9 keep one mode for a session, the last one that was asked for. So a path that is watched
//! in both lasting ways is watched recursively there, and what a persistent watch has to tell of the children is taken
//! from the events of the children themselves.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use crate::codec::{EventKind, Request, WatchMode, WatcherType};

/// Names one watch. Chosen by the caller, and never used again within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// What a watch saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// The data was replaced.
    DataChanged,
    /// A child was created or deleted.
    ChildrenChanged,
    /// Something may have happened that was not told: read again.
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

impl From<WatchMode> for Look {
    fn from(mode: WatchMode) -> Self {
        match mode {
            WatchMode::Persistent => Self::Persistent,
            WatchMode::Recursive => Self::Recursive,
        }
    }
}

/// How many bytes of paths go into one request that sets watches again; well below what any server takes.
const PATHS_PER_REQUEST: usize = 128 << 10;
/// How many one-shot watches may stay on the server that nobody waits for.
const MOST_STALE: usize = 64;

/// Armed watches, in the order of the wire.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// By path; a path without a list is none.
    by_path: HashMap<String, Vec<(Look, WatchId)>>,
    paths: HashMap<WatchId, String>,
    /// Armed on the server for nobody, oldest first.
    stale: VecDeque<(String, Look)>,
    /// Paths that the server watches recursively, perhaps for a persistent watch alone that has been left over.
    recursive: HashSet<String>,
}

/// Who is to be told what.
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

    pub(super) fn arm(&mut self, look: Look, path: String, id: WatchId) {
        self.stale.retain(|(stale, kind)| *kind != look || *stale != path);
        self.by_path.entry(path.clone()).or_default().push((look, id));
        self.paths.insert(id, path);
    }

    /// Whether events of the znode itself come from a watch that a one-shot watch on it would take the place of: servers
    /// before 3.9 keep one mode for a path, the last one that was asked for.
    pub(super) fn has_lasting(&self, path: &str) -> bool {
        self.by_path.get(path).is_some_and(|held| held.iter().any(|(look, _)| !look.is_once()))
    }

    /// Who waits for this event, with or without the lasting ones. One-shot watches among them are armed no longer.
    pub(super) fn fire(&mut self, kind: EventKind, path: &str, lasting: bool) -> (WatchKind, Fired) {
        let (told, looks): (_, &[Look]) = match kind {
            EventKind::CREATED => (WatchKind::Created, &[Look::Absence, Look::Data]),
            EventKind::DATA_CHANGED => (WatchKind::DataChanged, &[Look::Data, Look::Absence]),
            EventKind::CHILDREN_CHANGED => (WatchKind::ChildrenChanged, &[Look::Children]),
            EventKind::DELETED => (WatchKind::Deleted, &[Look::Data, Look::Absence, Look::Children]),
            // Of a server that is newer than this: whoever watches that path had better look.
            _ => (WatchKind::Gap, &[Look::Data, Look::Absence, Look::Children]),
        };
        self.stale.retain(|(stale, look)| stale != path || !looks.contains(look));
        let mut fired = self.take(path, looks);
        if !lasting {
            return (told, fired);
        }
        // Servers from 3.9 on keep a one-shot or persistent watch beside the recursive one, and tell of the children on
        // their account: the recursive one has told of the child itself, and by that of its parent.
        let told_already = kind == EventKind::CHILDREN_CHANGED && self.is_recursive(path);
        if let Some(held) = self.by_path.get(path).filter(|_| !told_already) {
            fired.extend(held.iter().filter(|(look, _)| !look.is_once()).map(|(_, id)| *id));
        }
        if matches!(kind, EventKind::CREATED | EventKind::DELETED | EventKind::DATA_CHANGED) {
            for above in ancestors(path) {
                if let Some(held) = self.by_path.get(above) {
                    let recursive = held.iter().filter(|(look, _)| *look == Look::Recursive);
                    fired.extend(recursive.map(|(_, id)| *id));
                }
            }
        }
        (told, fired)
    }

    /// Those who wait for news of the children of a znode that the server watches recursively, which tells of the children
    /// one by one.
    pub(super) fn fire_parent(&mut self, kind: EventKind, path: &str) -> Option<(String, Fired)> {
        let parent = ancestors(path).next()?;
        if !self.is_recursive(parent) || !matches!(kind, EventKind::CREATED | EventKind::DELETED) {
            return None;
        }
        let mut fired = self.take(parent, &[Look::Children]);
        if let Some(held) = self.by_path.get(parent) {
            fired.extend(held.iter().filter(|(look, _)| *look == Look::Persistent).map(|(_, id)| *id));
        }
        (!fired.is_empty()).then(|| (parent.to_owned(), fired))
    }

    /// Nobody waits for it any more. Answers the request that tells the server, and the one-shot watches that end with
    /// it, where there is need of either.
    ///
    /// `is_wanted` says whether a request for a lasting watch on that path is under way: the server carries it out first,
    /// and would remove that one too.
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
            // Where a lasting watch tells of the path, the server holds none of the other kind.
            if !lasting {
                self.stale.push_back((path, look));
            }
            return None;
        }
        if lasting || is_wanted(&path) {
            return None;
        }
        self.recursive.remove(&path);
        let gaps = self.take(&path, &[Look::Data, Look::Absence, Look::Children]);
        Some(Removal { path, kind: WatcherType::Any, gaps })
    }

    /// The oldest watch that nobody waits for, once there are too many of them. `is_wanted` says whether a request under
    /// way is about to arm that path: removing it then would remove the new one.
    pub(super) fn excess(&mut self, is_wanted: impl Fn(&str) -> bool) -> Option<Removal> {
        if self.stale.len() <= MOST_STALE {
            return None;
        }
        let (path, look) = self.stale.pop_front()?;
        let kind = if look == Look::Children { WatcherType::Children } else { WatcherType::Data };
        let shared = |other: &Look| (*other == Look::Children) == (look == Look::Children);
        let needed = self.by_path.get(&path).is_some_and(|held| held.iter().any(|(other, _)| shared(other)));
        if needed {
            return None;
        }
        if is_wanted(&path) {
            self.stale.push_back((path, look));
            return None;
        }
        Some(Removal { path, kind, gaps: Vec::new() })
    }

    /// The requests that arm all watches on another connection, each below the size limit. For each one-shot watch the
    /// server compares with `last_zxid`, and where something happened since, it sends the event at once; of lasting ones
    /// it only takes note: [`lasting`](Self::lasting) have a gap.
    pub(super) fn set_again(&mut self, last_zxid: i64, mut send: impl FnMut(&Request<'_>)) {
        self.stale.clear();
        self.recursive.clear();
        let mut lists: [Vec<Cow<'_, str>>; 5] = Default::default();
        let mut size = 0;
        let mut flush = |lists: &mut [Vec<Cow<'_, str>>; 5]| {
            let [data, exist, child, persistent, recursive] = std::mem::take(lists);
            send(&Request::SetWatches {
                relative_zxid: last_zxid,
                data,
                exist,
                child,
                persistent,
                recursive,
            });
        };
        for (path, held) in &self.by_path {
            let holds = |look| held.iter().any(|(held, _)| *held == look);
            if holds(Look::Recursive) {
                self.recursive.insert(path.clone());
            }
            for (list, look) in lists.iter_mut().zip(Look::ALL) {
                if holds(look) && !(look == Look::Persistent && holds(Look::Recursive)) {
                    list.push(Cow::Borrowed(path));
                    size += path.len() + 4;
                }
            }
            if size > PATHS_PER_REQUEST {
                flush(&mut lists);
                size = 0;
            }
        }
        if size > 0 {
            flush(&mut lists);
        }
    }

    /// The persistent and recursive ones, with their paths.
    pub(super) fn lasting(&self) -> Vec<(WatchId, String)> {
        let mut lasting = Vec::new();
        for (path, held) in &self.by_path {
            let here = held.iter().filter(|(look, _)| !look.is_once());
            lasting.extend(here.map(|(_, id)| (*id, path.clone())));
        }
        lasting
    }

    fn take(&mut self, path: &str, looks: &[Look]) -> Fired {
        let Some(held) = self.by_path.get_mut(path) else { return Vec::new() };
        let mut fired = Vec::new();
        held.retain(|(look, id)| {
            let fires = looks.contains(look);
            if fires {
                fired.push(*id);
            }
            !fires
        });
        if held.is_empty() {
            self.by_path.remove(path);
        }
        for id in &fired {
            self.paths.remove(id);
        }
        fired
    }
}

/// A watch to be removed on the server, and the one-shot watches that the server told of only because of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) path: String,
    pub(super) kind: WatcherType,
    pub(super) gaps: Fired,
}

/// All paths above one, the nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
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

    fn again(watches: &mut Watches) -> Vec<[Vec<String>; 5]> {
        let mut requests = Vec::new();
        watches.set_again(8, |request| {
            let Request::SetWatches { relative_zxid: 8, data, exist, child, persistent, recursive } = request
            else {
                panic!("{request:?}")
            };
            requests.push([data, exist, child, persistent, recursive].map(|list| {
                let mut list: Vec<String> = list.iter().map(|path| path.to_string()).collect();
                list.sort();
                list
            }));
        });
        requests
    }

    #[test]
    fn an_event_fires_every_watch_of_its_kind_and_no_other() {
        let mut watches = Watches::default();
        watches.arm(Look::Data, "/a".into(), WatchId(1));
        watches.arm(Look::Data, "/a".into(), WatchId(2));
        watches.arm(Look::Children, "/a".into(), WatchId(3));
        watches.arm(Look::Absence, "/b".into(), WatchId(4));
        assert_eq!(watches.fire(EventKind::CHILDREN_CHANGED, "/b", true).1, []);
        assert_eq!(
            watches.fire(EventKind::DATA_CHANGED, "/a", true),
            (WatchKind::DataChanged, vec![WatchId(1), WatchId(2)])
        );
        assert_eq!(watches.fire(EventKind::DATA_CHANGED, "/a", true).1, []);
        assert_eq!(watches.fire(EventKind::DELETED, "/a", true), (WatchKind::Deleted, vec![WatchId(3)]));
        assert_eq!(watches.fire(EventKind(99), "/b", true), (WatchKind::Gap, vec![WatchId(4)]));
        assert!(watches.paths.is_empty() && watches.by_path.is_empty());
        assert!(again(&mut watches).is_empty());
    }

    #[test]
    fn a_lasting_watch_stays_and_a_recursive_one_hears_of_what_is_below() {
        let mut watches = Watches::default();
        watches.arm(Look::Persistent, "/a".into(), WatchId(1));
        watches.arm(Look::Recursive, "/a".into(), WatchId(2));
        watches.note_recursive("/a");
        watches.arm(Look::Children, "/a".into(), WatchId(3));
        assert_eq!(watches.fire(EventKind::DATA_CHANGED, "/a", true).1, [WatchId(1), WatchId(2)]);
        assert_eq!(watches.fire(EventKind::CREATED, "/a/b/c", true).1, [WatchId(2)]);
        assert_eq!(watches.fire_parent(EventKind::CREATED, "/a/b/c"), None);
        assert_eq!(
            watches.fire_parent(EventKind::CREATED, "/a/b"),
            Some(("/a".to_owned(), vec![WatchId(3), WatchId(1)]))
        );
        let here = || vec!["/a".to_owned()];
        assert_eq!(again(&mut watches), [[vec![], vec![], vec![], vec![], here()]]);
        assert_eq!(watches.lasting().len(), 2);
        // The server goes on as it is.
        assert_eq!(watches.forget(WatchId(2), |_| false), None);
        assert_eq!(watches.fire_parent(EventKind::DELETED, "/a/b").unwrap().1, [WatchId(1)]);
        assert_eq!(again(&mut watches), [[vec![], vec![], vec![], here(), vec![]]]);
        assert_eq!(watches.fire_parent(EventKind::CREATED, "/a/b"), None, "it tells of the children as such");
    }

    #[test]
    fn children_of_a_recursive_watch_are_told_of_once_whatever_the_server_keeps_beside_it() {
        let mut watches = Watches::default();
        watches.arm(Look::Children, "/a".into(), WatchId(1));
        watches.arm(Look::Persistent, "/a".into(), WatchId(2));
        watches.arm(Look::Recursive, "/a".into(), WatchId(3));
        watches.note_recursive("/a");
        assert_eq!(watches.fire(EventKind::CREATED, "/a/b", true).1, [WatchId(3)]);
        let parent = Some(("/a".to_owned(), vec![WatchId(1), WatchId(2)]));
        assert_eq!(watches.fire_parent(EventKind::CREATED, "/a/b"), parent);
        assert_eq!(watches.fire(EventKind::CHILDREN_CHANGED, "/a", true).1, []);
    }

    #[test]
    fn the_last_lasting_watch_of_a_path_is_removed_on_the_server() {
        let mut watches = Watches::default();
        watches.arm(Look::Persistent, "/a".into(), WatchId(1));
        watches.arm(Look::Persistent, "/a".into(), WatchId(2));
        watches.arm(Look::Data, "/a".into(), WatchId(3));
        assert_eq!(watches.forget(WatchId(1), |_| false), None);
        let removal = watches.forget(WatchId(2), |_| false).unwrap();
        assert_eq!((removal.path.as_str(), removal.kind), ("/a", WatcherType::Any));
        assert_eq!(removal.gaps, [WatchId(3)], "it was told of by the lasting one");
        assert_eq!(watches.forget(WatchId(2), |_| false), None);
    }

    #[test]
    fn one_shot_watches_that_are_given_up_are_removed_only_when_they_are_many() {
        let mut watches = Watches::default();
        for n in 0..=MOST_STALE as u64 {
            assert_eq!(watches.excess(|_| false), None, "{n}");
            watches.arm(Look::Absence, format!("/{n}"), WatchId(n));
            assert_eq!(watches.forget(WatchId(n), |_| false), None);
        }
        assert_eq!(watches.excess(|path| path == "/0"), None, "about to be armed again");
        watches.arm(Look::Data, "/2".into(), WatchId(1000));
        watches.arm(Look::Absence, "/new".into(), WatchId(1001));
        watches.forget(WatchId(1001), |_| false);
        let removal = watches.excess(|_| false).unwrap();
        assert_eq!((removal.path.as_str(), removal.kind), ("/1", WatcherType::Data));
        assert_eq!(watches.excess(|_| false), None, "/2 is watched by somebody else");
        // Armed once more, it is not stale any longer; nor is one that has fired.
        let before = watches.stale.len();
        watches.arm(Look::Absence, "/5".into(), WatchId(2000));
        watches.fire(EventKind::CREATED, "/6", true);
        assert_eq!(watches.stale.len(), before - 2);
    }

    #[test]
    fn many_watches_are_set_again_by_several_requests() {
        let mut watches = Watches::default();
        for n in 0..4000 {
            watches.arm(Look::Children, format!("/{n:0>100}"), WatchId(n));
        }
        let requests = again(&mut watches);
        assert!(requests.len() > 3);
        assert_eq!(requests.iter().map(|lists| lists[2].len()).sum::<usize>(), 4000);
        let longest = requests.iter().map(|lists| lists[2].len() * 105).max().unwrap();
        assert!(longest < 2 * PATHS_PER_REQUEST);
    }
}
