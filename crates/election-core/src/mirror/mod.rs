//! What an elector knows of its election's znodes, and what it has to read: changes and answers in, results out, no I/O.

#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};

pub use write::Write;

use crate::engine::{Event, Node, OpId, Outcome, Watched};

/// The number of znodes that one request reads at most. Their records have a few hundred bytes each.
pub const BATCH: usize = 256;

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

/// The znodes that the engine watches, as far as they are known.
///
/// Changes say what to read, except for deletions, which say all there is to know. The order matters: a change is noted
/// after the answer to every read that was answered before it, and no read is under way while changes are noted. Then a
/// deletion can't be overruled by an older read. A read may be newer than changes that are noted after it: a znode that
/// was deleted and created again is removed first, and read once more.
///
/// An own write says all there is to know as well, so the changes that it causes are not read. Servers report these changes
/// before they answer the write, but the answer can be noted first. Changes that are not noted a moment later are read
/// after all. Any further change was made by another member.
#[derive(Debug, Default)]
pub struct Mirror {
    wants: Vec<Want>,
    /// Those that exist, by path.
    nodes: BTreeMap<String, Box<Node>>,
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
        if self.unread.is_empty() {
            // An empty set keeps room for eleven.
            self.unread = BTreeSet::new();
        }
    }

    fn has_names(&mut self, parent: &str, names: Vec<String>) {
        let there: BTreeSet<_> = names.into_iter().map(|name| format!("{parent}/{name}")).collect();
        let known = children(&self.nodes, parent).map(|(path, _)| path);
        let gone: Vec<_> = known.filter(|path| !there.contains(*path)).cloned().collect();
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
        if self.nodes.get(&path).map(|node| state(node)) != node.as_ref().map(state) {
            self.has_news(&path);
        }
        match node {
            Some(node) => self.nodes.insert(path, Box::new(node)),
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
            self.wants.iter().any(|want| matches!(&want.watched, Watched::Node(node) if **node == **path));
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
            match own.write.done(outcome, self.nodes.get(&path).map(|node| &**node)) {
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
                Read::Names(parent) => **parent == **tree,
                Read::Node(path) => parent(path) == Some(tree),
            }),
        };
        let want = self.wants.iter_mut().find(|want| want.news && is_read(&want.watched))?;
        want.news = false;
        Some(match want.watched.clone() {
            Watched::Node(path) => {
                let in_tree = parent(&path).is_some_and(|parent| has_tree(&self.wants, parent));
                let node = self.nodes.get_mut(&*path).map(|node| match in_tree {
                    true => Node::clone(node),
                    // Its data is not needed again: it is read before the next result.
                    false => Node { data: std::mem::take(&mut node.data), ..Node::clone(node) },
                });
                Event::Seen { epoch, path: path.as_ref().into(), node }
            }
            Watched::Tree(parent) => {
                let name = |path: &str| path[parent.len() + 1..].to_owned();
                let nodes =
                    children(&self.nodes, &parent).map(|(path, node)| (name(path), Node::clone(node)));
                Event::SeenTree { epoch, nodes: nodes.collect(), parent: parent.as_ref().into() }
            }
        })
    }
}

/// The children of a znode, by path.
fn children<'n>(
    nodes: &'n BTreeMap<String, Box<Node>>,
    parent: &str,
) -> impl Iterator<Item = (&'n String, &'n Box<Node>)> + use<'n> {
    let prefix = format!("{parent}/");
    nodes.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix))
}

fn read_of(watched: &Watched) -> Read {
    match watched {
        Watched::Node(path) => Read::Node(path.as_ref().into()),
        Watched::Tree(parent) => Read::Names(parent.as_ref().into()),
    }
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

fn is_part_of(path: &str, watched: &Watched) -> bool {
    match watched {
        Watched::Node(node) => **node == *path,
        Watched::Tree(tree) => parent(path) == Some(tree),
    }
}

fn includes(wants: &[Want], path: &str) -> bool {
    wants.iter().any(|want| is_part_of(path, &want.watched))
}

fn has_tree(wants: &[Want], parent: &str) -> bool {
    wants.iter().any(|want| matches!(&want.watched, Watched::Tree(tree) if **tree == *parent))
}
