//! What an elector knows of its election's znodes, and what it has to read: changes and answers in, results out, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Event, Node, OpId, Outcome, Request, Watched};

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// The names of a znode's children.
    Names(String),
    /// A znode.
    Node(String),
}

/// What was read.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Read::Names`]; none if the znode does not exist.
    Names(Vec<String>),
    /// To [`Read::Node`].
    Node(Option<Node>),
}

/// What a request sets or creates.
#[derive(Clone, Debug)]
pub struct Write {
    /// The znode.
    pub path: String,
    /// Its data then.
    pub data: Vec<u8>,
    /// The version that it replaces; `None` if it creates the znode.
    pub over: Option<i32>,
    /// The session that owns the znode that it creates, 0 if that is persistent.
    pub owner: i64,
    /// The number of changes that watches report of it.
    pub changes: u8,
}

impl Write {
    /// All that a request of this session writes, apart from sequential znodes.
    pub fn all_of(request: &Request, session: i64) -> Vec<Self> {
        match request {
            Request::Create { path, data, ephemeral } => {
                let owner = if *ephemeral { session } else { 0 };
                vec![Self { path: path.clone(), data: data.clone(), over: None, owner, changes: 1 }]
            }
            Request::Set { path, data, version } => vec![Self::set(path, data, *version)],
            Request::While { request, .. } => Self::of_transaction(request, session),
            Request::Together { request, path, data, version } => {
                let other = Self::set(path, data, *version);
                Self::of_transaction(request, session).into_iter().chain([other]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A transaction sets what it creates: servers before 3.9 do not answer otherwise in which transaction that was.
    fn of_transaction(request: &Request, session: i64) -> Vec<Self> {
        let mut writes = Self::all_of(request, session);
        for write in writes.iter_mut().filter(|write| write.over.is_none()) {
            write.changes = 2;
        }
        writes
    }

    fn set(path: &str, data: &[u8], version: i32) -> Self {
        Self { path: path.to_owned(), data: data.to_owned(), over: Some(version), owner: 0, changes: 1 }
    }

    /// The znode after this outcome of the request, if that is known; `before` is the znode as it was.
    pub fn done(&self, outcome: &Outcome, before: Option<&Node>) -> Option<Node> {
        let data = self.data.clone();
        match (outcome, self.over) {
            (Outcome::Created { czxid, version, .. }, None) => {
                let (zxid, owner) = (*czxid, self.owner);
                Some(Node {
                    data,
                    version: *version,
                    czxid: zxid,
                    mzxid: zxid,
                    owner,
                    ctime_ms: 0,
                    mtime_ms: 0,
                })
            }
            // All of a transaction is of one moment.
            (Outcome::Created { czxid: mzxid, .. } | Outcome::Changed { mzxid, .. }, Some(over)) => {
                let before = before.filter(|before| before.version == over)?;
                Some(Node { data, version: over + 1, mzxid: *mzxid, ..before.clone() })
            }
            _ => None,
        }
    }
}

/// The znodes that the engine watches, as far as they are known.
///
/// Changes say what to read, except for deletions, which say all there is to know. The order matters: a change is noted
/// after the answer to every read that was answered before it, and no read is under way while changes are noted. Then a
/// deletion can't be overruled by an older read. A read may be newer than changes that are noted after it: a znode that
/// was deleted and created again is removed first, and read once more.
///
/// An own write says all there is to know as well, so the changes that it causes are not read. Servers report them before
/// they answer the write, and whoever notes them may still learn of the answer first. If they have not come a moment
/// later, the znode is read after all. Any further change is somebody else's.
#[derive(Debug, Default)]
pub struct Mirror {
    wants: Vec<Want>,
    /// Those that exist, by path.
    nodes: BTreeMap<String, Node>,
    /// What has changed, or may have changed.
    unread: BTreeSet<Read>,
    /// The last write of each znode, until it has ended and its changes are noted. Of none that is unread.
    writes: Vec<OwnWrite>,
    /// Whether changes are reported by now.
    is_armed: bool,
}

#[derive(Debug)]
struct Want {
    watched: Watched,
    /// Whether what is known differs from what was taken last.
    news: bool,
}

#[derive(Debug)]
struct OwnWrite {
    op: OpId,
    write: Write,
    /// How many of its changes are noted.
    noted: u8,
    has_ended: bool,
}

impl OwnWrite {
    fn is_noted(&self) -> bool {
        self.noted >= self.write.changes
    }
}

impl Mirror {
    /// What the engine watches from now on. What is new in it is read and taken once, changed or not. Returns whether
    /// anything is new.
    pub fn want(&mut self, set: &[Watched]) -> bool {
        self.wants.retain(|want| set.contains(&want.watched));
        let kept = self.wants.len();
        for watched in set {
            if !self.wants.iter().any(|want| want.watched == *watched) {
                self.unread.insert(read_of(watched));
                self.wants.push(Want { watched: watched.clone(), news: true });
            }
        }
        let wants = &self.wants;
        self.nodes.retain(|path, _| includes(wants, path));
        self.unread.retain(|read| match read {
            Read::Names(parent) => has_tree(wants, parent),
            Read::Node(path) => includes(wants, path),
        });
        let unread = &self.unread;
        let is_read = |path: &String| !unread.contains(&Read::Node(path.clone()));
        self.writes.retain(|own| includes(wants, &own.write.path) && is_read(&own.write.path));
        self.wants.len() > kept
    }

    /// Changes are reported from now on, or may have been missed.
    pub fn gap(&mut self) {
        self.is_armed = true;
        self.writes.clear();
        self.unread = self.wants.iter().map(|want| read_of(&want.watched)).collect();
    }

    /// This znode has changed: it was created, set or deleted.
    pub fn changed(&mut self, path: &str, is_deleted: bool) {
        if !includes(&self.wants, path) {
            return;
        }
        let own = self.take_write(path);
        if is_deleted {
            // The deletion came before a creation of which no change is noted.
            if let Some(own) = own.filter(|own| own.write.over.is_none() && own.noted == 0) {
                let has_ended = own.has_ended;
                self.writes.push(own);
                if has_ended {
                    return;
                }
            }
            // Otherwise it is not there, or must be read anyhow.
            if self.nodes.remove(path).is_some() {
                self.unread.remove(&Read::Node(path.to_owned()));
                self.has_news(path);
            }
            return;
        }
        match own {
            Some(mut own) if !own.is_noted() => {
                own.noted += 1;
                if !(own.is_noted() && own.has_ended) {
                    self.writes.push(own);
                }
            }
            _ => {
                self.unread.insert(Read::Node(path.to_owned()));
            }
        }
    }

    /// What to read, if anything is.
    pub fn to_read(&self) -> Option<Vec<Read>> {
        let reads = || self.unread.iter().cloned().collect();
        (self.is_armed && !self.unread.is_empty()).then(reads)
    }

    /// Notes the answers to reads that were begun together.
    pub fn has_read(&mut self, answers: Vec<(Read, Answer)>) {
        for (read, answer) in answers {
            // Otherwise it is not wanted any more, or was deleted and need not be read.
            if !self.unread.remove(&read) {
                continue;
            }
            match (read, answer) {
                (Read::Names(parent), Answer::Names(names)) => self.has_names(&parent, names),
                (Read::Node(path), Answer::Node(node)) => self.has_node(path, node),
                (Read::Names(_), Answer::Node(_)) | (Read::Node(_), Answer::Names(_)) => {}
            }
        }
    }

    fn has_names(&mut self, parent: &str, names: Vec<String>) {
        let there: BTreeSet<_> = names.into_iter().map(|name| format!("{parent}/{name}")).collect();
        let gone: Vec<_> = children(&self.nodes, parent)
            .map(|(path, _)| path.clone())
            .filter(|path| !there.contains(path))
            .collect();
        for path in gone {
            self.has_node(path, None);
        }
        for path in there {
            self.take_write(&path);
            self.unread.insert(Read::Node(path));
        }
    }

    fn has_node(&mut self, path: String, node: Option<Node>) {
        let state = |node: &Node| (node.czxid, node.mzxid);
        if self.nodes.get(&path).map(state) != node.as_ref().map(state) {
            self.has_news(&path);
        }
        match node {
            Some(node) => self.nodes.insert(path, node),
            None => self.nodes.remove(&path),
        };
    }

    fn has_news(&mut self, path: &str) {
        for want in &mut self.wants {
            want.news |= is_part_of(path, &want.watched);
        }
    }

    // ---- own writes ----

    /// A request of this member's own is about to write this znode.
    pub fn begins(&mut self, op: OpId, write: Write) {
        let path = &write.path;
        let alone =
            self.wants.iter().any(|want| matches!(&want.watched, Watched::Node(node) if node == path));
        // The elector's view of members and requests contains times, which the outcome of a write does not have.
        let in_tree = parent(path).is_some_and(|parent| has_tree(&self.wants, parent));
        let read = Read::Node(path.clone());
        if !self.is_armed || !alone || in_tree || self.unread.contains(&read) {
            return;
        }
        match self.take_write(path) {
            None => self.writes.push(OwnWrite { op, write, noted: 0, has_ended: false }),
            // Which change is whose is not known then.
            Some(earlier) if earlier.noted > 0 => {
                self.unread.insert(read);
            }
            Some(_) => {}
        }
    }

    /// A request has ended, which perhaps wrote something.
    pub fn ended(&mut self, op: OpId, outcome: &Outcome) {
        let (ended, others): (Vec<_>, _) =
            std::mem::take(&mut self.writes).into_iter().partition(|own| own.op == op);
        self.writes = others;
        for own in ended {
            let path = own.write.path.clone();
            match own.write.done(outcome, self.nodes.get(&path)) {
                Some(node) => {
                    self.has_node(path, Some(node));
                    if !own.is_noted() {
                        self.writes.push(OwnWrite { has_ended: true, ..own });
                    }
                }
                // Then the change that was noted is somebody else's, or what was written is not known.
                None if own.noted > 0 => {
                    self.unread.insert(Read::Node(path));
                }
                None => {}
            }
        }
    }

    fn take_write(&mut self, path: &str) -> Option<OwnWrite> {
        let at = self.writes.iter().position(|own| own.write.path == path)?;
        Some(self.writes.swap_remove(at))
    }

    /// Whether a write has ended whose changes are not all noted.
    pub fn awaits_change(&self) -> bool {
        self.writes.iter().any(|own| own.has_ended)
    }

    /// The changes of writes that have ended did not come: their znodes are read.
    pub fn stop_awaiting(&mut self) {
        let late = self.writes.extract_if(.., |own| own.has_ended);
        self.unread.extend(late.map(|own| Read::Node(own.write.path)));
    }

    // ---- out ----

    /// The next result that is complete and was not taken yet.
    pub fn take(&mut self, epoch: u64) -> Option<Event> {
        let unread = &self.unread;
        let is_read = |watched: &Watched| match watched {
            Watched::Node(_) => !unread.contains(&read_of(watched)),
            Watched::Tree(tree) => !unread.iter().any(|read| match read {
                Read::Names(parent) => parent == tree,
                Read::Node(path) => parent(path) == Some(tree.as_str()),
            }),
        };
        let want = self.wants.iter_mut().find(|want| want.news && is_read(&want.watched))?;
        want.news = false;
        Some(match want.watched.clone() {
            Watched::Node(path) => {
                let node = self.nodes.get(&path).cloned();
                Event::Seen { epoch, path, node }
            }
            Watched::Tree(parent) => {
                let name = |path: &String| path[parent.len() + 1..].to_owned();
                let nodes = children(&self.nodes, &parent).map(|(path, node)| (name(path), node.clone()));
                Event::SeenTree { epoch, nodes: nodes.collect(), parent }
            }
        })
    }
}

fn read_of(watched: &Watched) -> Read {
    match watched.clone() {
        Watched::Node(path) => Read::Node(path),
        Watched::Tree(parent) => Read::Names(parent),
    }
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

fn is_part_of(path: &str, watched: &Watched) -> bool {
    match watched {
        Watched::Node(node) => node == path,
        Watched::Tree(tree) => parent(path) == Some(tree.as_str()),
    }
}

fn includes(wants: &[Want], path: &str) -> bool {
    wants.iter().any(|want| is_part_of(path, &want.watched))
}

fn has_tree(wants: &[Want], parent: &str) -> bool {
    wants.iter().any(|want| matches!(&want.watched, Watched::Tree(tree) if tree == parent))
}

fn children<'a>(
    nodes: &'a BTreeMap<String, Node>,
    parent: &str,
) -> impl Iterator<Item = (&'a String, &'a Node)> {
    let prefix = format!("{parent}/");
    nodes.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const EPOCH: u64 = 1;
    const TREE: &str = "/b/nodes";
    const PATHS: [&str; 6] =
        ["/b/elected", "/b/leader", "/b/nodes/a", "/b/nodes/b", "/b/nodes/c", "/b/other"];

    fn wants() -> Vec<Watched> {
        // One of the children by itself as well, and one znode is of no interest.
        let nodes = ["/b/elected", "/b/leader", "/b/nodes/a"].map(|path| Watched::Node(path.to_owned()));
        nodes.into_iter().chain([Watched::Tree(TREE.to_owned())]).collect()
    }

    fn armed() -> Mirror {
        let mut mirror = Mirror::default();
        mirror.want(&wants());
        assert_eq!(mirror.to_read(), None, "a change could be missed");
        mirror.gap();
        mirror
    }

    fn node(zxid: i64) -> Node {
        Node {
            data: zxid.to_be_bytes().into(),
            version: 0,
            czxid: zxid,
            mzxid: zxid,
            owner: 0,
            ctime_ms: 0,
            mtime_ms: 0,
        }
    }

    /// A server: what is there, the changes that were not delivered yet, and the outcomes of this member's own writes.
    #[derive(Default)]
    struct Server {
        nodes: BTreeMap<String, Node>,
        changes: VecDeque<(String, bool)>,
        outcomes: VecDeque<(OpId, Outcome)>,
        zxid: i64,
    }

    impl Server {
        fn change(&mut self, path: &str, delete: bool) {
            self.zxid += 1;
            let zxid = self.zxid;
            let is_deleted = match self.nodes.get_mut(path) {
                Some(_) if delete => {
                    self.nodes.remove(path);
                    true
                }
                Some(old) => {
                    *old = Node {
                        data: zxid.to_be_bytes().into(),
                        version: old.version + 1,
                        mzxid: zxid,
                        ..*old
                    };
                    false
                }
                None => {
                    self.nodes.insert(path.to_owned(), node(zxid));
                    false
                }
            };
            self.changes.push_back((path.to_owned(), is_deleted));
        }

        /// As a request to set this version, or to create the znode.
        fn own_write(&mut self, op: OpId, write: &Write) {
            let there = self.nodes.get(&write.path).map(|node| node.version);
            let outcome = match (there, write.over) {
                (Some(version), Some(over)) if version == over => {
                    self.change(&write.path, false);
                    let node = self.nodes.get_mut(&write.path).unwrap();
                    node.data.clone_from(&write.data);
                    Outcome::Changed { version: over + 1, mzxid: self.zxid }
                }
                (None, None) => {
                    self.change(&write.path, false);
                    // In a transaction it is created first, and set then.
                    for _ in 1..write.changes {
                        self.changes.push_back((write.path.clone(), false));
                    }
                    let node = self.nodes.get_mut(&write.path).unwrap();
                    node.data.clone_from(&write.data);
                    Outcome::Created { path: write.path.clone(), czxid: self.zxid, version: 0 }
                }
                (None, Some(_)) => Outcome::Missing,
                (Some(_), None) => Outcome::Exists,
                (Some(_), Some(_)) => Outcome::Stale,
            };
            self.outcomes.push_back((op, outcome));
        }

        fn deliver(&mut self, mirror: &mut Mirror, most: usize) {
            for _ in 0..most {
                let Some((path, is_deleted)) = self.changes.pop_front() else { return };
                mirror.changed(&path, is_deleted);
            }
        }

        fn deliver_outcome(&mut self, mirror: &mut Mirror) {
            if let Some((op, outcome)) = self.outcomes.pop_front() {
                mirror.ended(op, &outcome);
            }
        }

        fn answer(&self, mirror: &mut Mirror) -> bool {
            let Some(reads) = mirror.to_read() else { return false };
            let answers = reads.into_iter().map(|read| {
                let answer = match &read {
                    Read::Names(parent) => Answer::Names(
                        children(&self.nodes, parent)
                            .map(|(path, _)| path[parent.len() + 1..].to_owned())
                            .collect(),
                    ),
                    Read::Node(path) => Answer::Node(self.nodes.get(path).cloned()),
                };
                (read, answer)
            });
            mirror.has_read(answers.collect());
            true
        }

        /// What a watch of this would report.
        fn shows(&self, watched: &Watched) -> BTreeMap<String, Node> {
            let part = self.nodes.iter().filter(|(path, _)| is_part_of(path, watched));
            part.map(|(path, node)| (path.clone(), node.clone())).collect()
        }
    }

    type Taken = BTreeMap<Watched, BTreeMap<String, Node>>;

    fn take(mirror: &mut Mirror, taken: &mut Taken) {
        while let Some(event) = mirror.take(EPOCH) {
            match event {
                Event::Seen { path, node, .. } => {
                    let nodes = node.map(|node| (path.clone(), node)).into_iter().collect();
                    taken.insert(Watched::Node(path), nodes);
                }
                Event::SeenTree { parent, nodes, .. } => {
                    let nodes = nodes.into_iter().map(|(name, node)| (format!("{parent}/{name}"), node));
                    taken.insert(Watched::Tree(parent.clone()), nodes.collect());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The state that was taken last is the server's once all is delivered and read, whatever the order was.
    #[test]
    fn the_newest_state_is_never_missed() {
        let seed = std::env::var("MIRROR_SEED").ok().and_then(|seed| seed.parse().ok());
        for seed in seed.map_or(0..30_000, |seed| seed..seed + 1) {
            let (mut server, mut mirror, mut taken) = (Server::default(), armed(), Taken::new());
            let mut random = fastrand::Rng::with_seed(seed);
            let mut own: VecDeque<(OpId, Write)> = VecDeque::new();
            for step in 0..random.u64(1..50) {
                let path = PATHS[random.usize(..PATHS.len())];
                match random.u8(..12) {
                    0..4 => server.change(path, random.bool()),
                    4 => server.deliver(&mut mirror, random.usize(1..4)),
                    5 if random.u8(..4) == 0 => {
                        // Changes are lost, with a connection or in a burst, and a connection loses outcomes too.
                        server.changes.clear();
                        if random.bool() {
                            let lost = server.outcomes.drain(..).map(|(op, _)| op).collect::<Vec<_>>();
                            lost.into_iter()
                                .for_each(|op| mirror.ended(op, &Outcome::Unknown(String::new())));
                        }
                        mirror.gap();
                    }
                    6 if random.u8(..4) == 0 => {
                        // One of them is watched anew, another one is given up for a while.
                        let mut some = wants();
                        let which = random.usize(..some.len());
                        let one = some.remove(which);
                        mirror.want(&some);
                        taken.remove(&one);
                        if random.bool() {
                            mirror.want(&wants());
                        }
                    }
                    7 | 8 => {
                        let over =
                            server.nodes.get(path).map(|node| node.version + i32::from(random.u8(..6) == 0));
                        let changes = if over.is_none() { random.u8(1..=2) } else { 1 };
                        let write = Write {
                            path: path.to_owned(),
                            data: vec![random.u8(..)],
                            over,
                            owner: 0,
                            changes,
                        };
                        mirror.begins(OpId(step), write.clone());
                        own.push_back((OpId(step), write));
                    }
                    9 => {
                        if let Some((op, write)) = own.pop_front() {
                            server.own_write(op, &write);
                        }
                    }
                    10 => server.deliver_outcome(&mut mirror),
                    11 if random.u8(..4) == 0 => mirror.stop_awaiting(),
                    // An answer: the changes before it may be delivered before it or after it.
                    _ => _ = server.answer(&mut mirror),
                }
                take(&mut mirror, &mut taken);
                let is_unread = |own: &OwnWrite| mirror.unread.contains(&Read::Node(own.write.path.clone()));
                assert!(!mirror.writes.iter().any(is_unread), "{mirror:?}, MIRROR_SEED={seed}");
            }
            mirror.want(&wants());
            for (op, write) in own {
                server.own_write(op, &write);
            }
            while !server.outcomes.is_empty() {
                server.deliver_outcome(&mut mirror);
            }
            server.deliver(&mut mirror, usize::MAX);
            while server.answer(&mut mirror) {}
            take(&mut mirror, &mut taken);
            for watched in wants() {
                assert_eq!(
                    taken.get(&watched),
                    Some(&server.shows(&watched)),
                    "{watched:?}, MIRROR_SEED={seed}"
                );
            }
        }
    }

    fn settled(mirror: &mut Mirror, server: &mut Server) -> Taken {
        server.deliver(mirror, usize::MAX);
        while server.answer(mirror) {}
        let mut taken = Taken::new();
        take(mirror, &mut taken);
        taken
    }

    #[test]
    fn what_has_not_changed_is_not_taken_again() {
        let (mut server, mut mirror) = (Server::default(), armed());
        server.change("/b/nodes/a", false);
        assert_eq!(settled(&mut mirror, &mut server).len(), wants().len());
        server.change("/b/other", false);
        mirror.gap();
        assert!(mirror.take(EPOCH).is_none(), "nothing is taken while it is to be read");
        assert_eq!(settled(&mut mirror, &mut server), Taken::new());
        server.change("/b/nodes/a", false);
        assert_eq!(settled(&mut mirror, &mut server).len(), 2, "as a znode, and as a child");
        mirror.want(&wants()[1..]);
        mirror.want(&wants());
        assert_eq!(settled(&mut mirror, &mut server).len(), 1, "what is watched anew is");
    }

    #[test]
    fn a_deletion_needs_no_read() {
        let (mut server, mut mirror) = (Server::default(), armed());
        server.change("/b/nodes/b", false);
        server.change("/b/leader", false);
        settled(&mut mirror, &mut server);
        for path in ["/b/nodes/b", "/b/leader"] {
            server.change(path, false);
            server.change(path, true);
        }
        server.deliver(&mut mirror, 4);
        assert_eq!(mirror.to_read(), None);
        assert_eq!(settled(&mut mirror, &mut server).values().flatten().count(), 0);
    }

    #[test]
    fn an_own_write_needs_no_read_whether_its_change_or_its_outcome_is_noted_first() {
        for change_first in [true, false] {
            let (mut server, mut mirror) = (Server::default(), armed());
            settled(&mut mirror, &mut server);
            for (op, over, changes) in [(OpId(1), None, 2), (OpId(2), Some(0), 1)] {
                let write =
                    Write { path: "/b/leader".to_owned(), data: b"me".to_vec(), over, owner: 0, changes };
                mirror.begins(op, write.clone());
                server.own_write(op, &write);
                if change_first {
                    server.deliver(&mut mirror, 2);
                }
                server.deliver_outcome(&mut mirror);
                assert_eq!(mirror.awaits_change(), !change_first);
                server.deliver(&mut mirror, 2);
                assert_eq!(mirror.to_read(), None);
                let taken = settled(&mut mirror, &mut server);
                let watched = Watched::Node("/b/leader".to_owned());
                assert_eq!(taken, Taken::from([(watched.clone(), server.shows(&watched))]));
            }
            // The next change is another's.
            server.change("/b/leader", false);
            server.deliver(&mut mirror, 1);
            assert_eq!(mirror.to_read(), Some(vec![Read::Node("/b/leader".to_owned())]));
        }
    }

    #[test]
    fn an_own_write_whose_change_does_not_come_is_read() {
        let (mut server, mut mirror) = (Server::default(), armed());
        settled(&mut mirror, &mut server);
        let write =
            Write { path: "/b/elected".to_owned(), data: Vec::new(), over: None, owner: 0, changes: 1 };
        mirror.begins(OpId(1), write.clone());
        server.own_write(OpId(1), &write);
        server.deliver_outcome(&mut mirror);
        assert_eq!(mirror.to_read(), None);
        mirror.stop_awaiting();
        assert_eq!(mirror.to_read(), Some(vec![Read::Node("/b/elected".to_owned())]));
        assert!(!mirror.awaits_change());
    }
}
