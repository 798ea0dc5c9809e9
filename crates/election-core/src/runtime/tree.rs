//! The children of one znode with their data: one lasting watch of all of them, and reads of many at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt};
use tokio::time::timeout;
use tracing::warn;
use zk_session::{Change, ChangeKind, ChangeWatch, Closed, Epoch, Incarnation, OpError, Session};

use super::operations::get_all;
use crate::engine::Node;

/// How long to wait before a read is repeated that has failed.
const RETRY: Duration = Duration::from_secs(1);

/// What is known of the children, and what has to be read.
///
/// Changes say what to read, except for deletions, which say all there is to know. The order matters: a change is noted
/// after the result of every read that was answered before it, and no read is under way while changes are noted. Then a
/// deletion can't be overruled by an older read. A read may be newer than changes that are noted after it: a znode that
/// was deleted and created again is removed first, and read once more.
#[derive(Debug, Default)]
struct Mirror {
    known: BTreeMap<String, Node>,
    /// Children that have changed, or may have changed.
    unread: BTreeSet<String>,
    /// Whether the names are known.
    listed: bool,
    /// Whether what is known differs from what was taken last.
    news: bool,
}

/// What to read next.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Names,
    Nodes(Vec<String>),
}

impl Mirror {
    /// Of another session: nothing is known, and what is there is taken once, changed or not.
    fn new() -> Self {
        Self { news: true, ..Self::default() }
    }

    /// Changes may have been missed.
    fn gap(&mut self) {
        self.listed = false;
        self.unread.clear();
    }

    /// This child has changed.
    fn changed(&mut self, name: &str, kind: ChangeKind) {
        if kind == ChangeKind::Deleted {
            self.unread.remove(name);
            self.news |= self.known.remove(name).is_some();
        } else {
            self.unread.insert(name.to_owned());
        }
    }

    fn next_read(&self) -> Option<Read> {
        if !self.listed {
            return Some(Read::Names);
        }
        (!self.unread.is_empty()).then(|| Read::Nodes(self.unread.iter().cloned().collect()))
    }

    fn has_names(&mut self, names: Vec<String>) {
        self.listed = true;
        self.unread = names.into_iter().collect();
        let before = self.known.len();
        self.known.retain(|name, _| self.unread.contains(name));
        self.news |= self.known.len() != before;
    }

    fn has_nodes(&mut self, nodes: impl IntoIterator<Item = (String, Option<Node>)>) {
        for (name, node) in nodes {
            self.unread.remove(&name);
            let state = |node: &Node| (node.czxid, node.mzxid);
            self.news |= self.known.get(&name).map(state) != node.as_ref().map(state);
            match node {
                Some(node) => drop(self.known.insert(name, node)),
                None => drop(self.known.remove(&name)),
            }
        }
    }

    /// All children, if they are known and were not taken yet.
    fn take(&mut self) -> Option<BTreeMap<String, Node>> {
        let is_complete = self.listed && self.unread.is_empty();
        (is_complete && std::mem::take(&mut self.news)).then(|| self.known.clone())
    }
}

/// The children of a znode and their changes, across reconnects and new sessions. States in between may be skipped; the
/// newest is never missed.
pub(super) struct TreeWatch {
    session: Session,
    parent: String,
    changes: ChangeWatch,
    mirror: Mirror,
    epoch: Option<Epoch>,
    /// The last read has failed. It is repeated, also if nothing changes.
    has_failed: bool,
}

impl TreeWatch {
    pub(super) fn new(session: Session, parent: String) -> Self {
        let changes = session.watch_tree(parent.clone());
        Self { session, parent, changes, mirror: Mirror::new(), epoch: None, has_failed: false }
    }

    /// All children with their data, at first and after changes.
    pub(super) async fn next(&mut self) -> Result<(Epoch, BTreeMap<String, Node>), Closed> {
        loop {
            self.wait().await?;
            let session = self.session.active().await?;
            // Otherwise the watch will report a gap on the new session.
            if Some(session.epoch()) != self.epoch {
                continue;
            }
            let read = self.read(&session).await;
            if let Err(error) = &read
                && !self.has_failed
                && !error.is_session_over()
            {
                warn!(path = %self.parent, %error, "cannot read the znodes below, retrying");
            }
            self.has_failed = read.is_err();
            if let Some(nodes) = self.mirror.take() {
                return Ok((session.epoch(), nodes));
            }
        }
    }

    /// Waits for a change, and notes all that there are, so that one read covers them. As a stream: a request that sets
    /// the watch continues while nobody waits for it.
    async fn wait(&mut self) -> Result<(), Closed> {
        let first = StreamExt::next(&mut self.changes);
        let mut change = match self.has_failed {
            false => Some(first.await),
            true => timeout(RETRY, first).await.ok(),
        };
        while let Some(next) = change {
            self.note(&next.ok_or(Closed)?);
            change = StreamExt::next(&mut self.changes).now_or_never();
        }
        Ok(())
    }

    fn note(&mut self, change: &Change) {
        if self.epoch != Some(change.epoch) {
            self.epoch = Some(change.epoch);
            self.mirror = Mirror::new();
        }
        if change.kind == ChangeKind::Gap {
            return self.mirror.gap();
        }
        // Not the parent itself: its end is that of each child, one by one. Nor what is further below.
        let below = change.path.strip_prefix(&self.parent).and_then(|path| path.strip_prefix('/'));
        if let Some(name) = below.filter(|name| !name.contains('/')) {
            self.mirror.changed(name, change.kind);
        }
    }

    /// Reads all that has to be read.
    async fn read(&mut self, session: &Incarnation) -> Result<(), OpError> {
        while let Some(read) = self.mirror.next_read() {
            match read {
                Read::Names => {
                    let children = session.children(&self.parent).await?;
                    self.mirror.has_names(children.map(|children| children.names).unwrap_or_default());
                }
                Read::Nodes(names) => {
                    let nodes = get_all(session, &self.parent, names).await?;
                    self.mirror.has_nodes(nodes);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// A server: what is there, and the changes that were not delivered yet.
    #[derive(Default)]
    struct Server {
        nodes: BTreeMap<String, Node>,
        changes: VecDeque<(String, ChangeKind)>,
        zxid: i64,
    }

    fn node(zxid: i64) -> Node {
        Node { data: Vec::new(), version: 0, czxid: zxid, mzxid: zxid, owner: 1, ctime_ms: 0, mtime_ms: 0 }
    }

    impl Server {
        fn change(&mut self, name: &str, random: &mut fastrand::Rng) {
            self.zxid += 1;
            let zxid = self.zxid;
            let kind = match self.nodes.get_mut(name) {
                Some(node) if random.bool() => {
                    node.mzxid = zxid;
                    ChangeKind::DataChanged
                }
                Some(_) => {
                    self.nodes.remove(name);
                    ChangeKind::Deleted
                }
                None => {
                    self.nodes.insert(name.to_owned(), node(zxid));
                    ChangeKind::Created
                }
            };
            self.changes.push_back((name.to_owned(), kind));
        }

        fn deliver(&mut self, mirror: &mut Mirror) {
            while let Some((name, kind)) = self.changes.pop_front() {
                mirror.changed(&name, kind);
            }
        }

        fn answer(&self, mirror: &mut Mirror) -> bool {
            match mirror.next_read() {
                None => return false,
                Some(Read::Names) => mirror.has_names(self.nodes.keys().cloned().collect()),
                Some(Read::Nodes(names)) => {
                    let nodes: Vec<_> = names
                        .into_iter()
                        .map(|name| (name.clone(), self.nodes.get(&name).cloned()))
                        .collect();
                    mirror.has_nodes(nodes);
                }
            }
            true
        }
    }

    /// The state that was taken last is the server's once all is delivered and read, whatever the order was.
    #[test]
    fn the_newest_state_is_never_missed() {
        let seed = std::env::var("TREE_SEED").ok().and_then(|seed| seed.parse().ok());
        for seed in seed.map_or(0..20_000, |seed| seed..seed + 1) {
            let (mut server, mut mirror) = (Server::default(), Mirror::new());
            let mut random = fastrand::Rng::with_seed(seed);
            let mut taken = None;
            for _ in 0..random.usize(1..40) {
                match random.u8(..8) {
                    0..4 => server.change(NAMES[random.usize(..NAMES.len())], &mut random),
                    4 => server.deliver(&mut mirror),
                    5 if random.u8(..4) == 0 => {
                        // Changes are lost, with a connection or in a burst.
                        server.changes.clear();
                        mirror.gap();
                    }
                    // An answer: the changes before it may be delivered before it or after it.
                    _ => _ = server.answer(&mut mirror),
                }
                taken = mirror.take().or(taken);
            }
            server.deliver(&mut mirror);
            while server.answer(&mut mirror) {}
            taken = mirror.take().or(taken);
            assert_eq!(taken, Some(server.nodes), "TREE_SEED={seed}");
        }
    }

    #[test]
    fn what_has_not_changed_is_not_taken_again() {
        let (mut server, mut mirror) = (Server::default(), Mirror::new());
        server.change("a", &mut fastrand::Rng::with_seed(1));
        while server.answer(&mut mirror) {}
        assert_eq!(mirror.take().map(|nodes| nodes.len()), Some(1));
        server.deliver(&mut mirror);
        mirror.gap();
        assert!(mirror.take().is_none(), "nothing is taken while anything is to be read");
        while server.answer(&mut mirror) {}
        assert_eq!(mirror.take(), None);
    }

    #[test]
    fn a_deletion_needs_no_read() {
        let (mut server, mut mirror) = (Server::default(), Mirror::new());
        server.change("a", &mut fastrand::Rng::with_seed(1));
        while server.answer(&mut mirror) {}
        let mut taken = || mirror.take().map(|nodes| nodes.len());
        assert_eq!((taken(), taken()), (Some(1), None));
        mirror.changed("a", ChangeKind::Deleted);
        assert_eq!(mirror.next_read(), None);
        assert_eq!(mirror.take().map(|nodes| nodes.len()), Some(0));
    }
}
