use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::engine::ZnodeWrite;

const EPOCH: u64 = 1;
const TREE: &str = "/b/nodes";
const PATHS: [&str; 6] = ["/b/elected", "/b/leader", "/b/nodes/a", "/b/nodes/b", "/b/nodes/c", "/b/other"];

fn wants() -> Vec<Watched> {
    // One of the children by itself as well, and one znode is of no interest.
    let nodes = ["/b/elected", "/b/leader", "/b/nodes/a"].map(Watched::node);
    nodes.into_iter().chain([Watched::tree(TREE)]).collect()
}

fn armed() -> Mirror {
    let mut mirror = Mirror::default();
    mirror.want(&wants());
    assert_eq!(mirror.to_read(), None, "a change could be missed");
    mirror.gap();
    mirror
}

fn node(zxid: i64) -> Node {
    Node::created(zxid.to_be_bytes().into(), zxid, 0)
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
                *old =
                    Node { data: zxid.to_be_bytes().into(), version: old.version + 1, mzxid: zxid, ..*old };
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
                Read::Names(tree) => {
                    let paths = self.nodes.keys().filter(|path| parent(path) == Some(tree));
                    Answer::Names(paths.map(|path| path[tree.len() + 1..].to_owned()).collect())
                }
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
                taken.insert(Watched::node(path), nodes);
            }
            Event::SeenTree { parent, nodes, .. } => {
                let nodes = nodes.into_iter().map(|(name, node)| (format!("{parent}/{name}"), node));
                taken.insert(Watched::tree(parent.as_str()), nodes.collect());
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
                        lost.into_iter().for_each(|op| mirror.ended(op, &Outcome::Unknown(String::new())));
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
                    let write =
                        Write { path: path.to_owned(), data: vec![random.u8(..)], over, owner: 0, changes };
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
            assert_eq!(taken.get(&watched), Some(&server.shows(&watched)), "{watched:?}, MIRROR_SEED={seed}");
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
            let write = Write { path: "/b/leader".to_owned(), data: b"me".to_vec(), over, owner: 0, changes };
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
            let watched = Watched::node("/b/leader");
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
    let write = Write { path: "/b/elected".to_owned(), data: Vec::new(), over: None, owner: 0, changes: 1 };
    mirror.begins(OpId(1), write.clone());
    server.own_write(OpId(1), &write);
    server.deliver_outcome(&mut mirror);
    assert_eq!(mirror.to_read(), None);
    mirror.stop_awaiting();
    assert_eq!(mirror.to_read(), Some(vec![Read::Node("/b/elected".to_owned())]));
    assert!(!mirror.awaits_change());
}

#[test]
fn a_decision_that_is_created_with_a_leader_znode_is_known_as_it_is() {
    let path = |name: &str| format!("/b/{name}");
    let create = ZnodeWrite::create_ephemeral(path("leader"), "me").only_while(path("ballot"), None);
    let request = create.and(ZnodeWrite::create(path("elected"), "first")).into();
    let outcome = Outcome::Created { path: path("leader"), czxid: 7, version: 1 };
    let known = Write::all_of(&request, 5).into_iter().map(|write| {
        let node = write.done(&outcome, None).unwrap();
        (write.path.clone(), write.changes, node.version, node.czxid, node.owner)
    });
    assert_eq!(known.collect::<Vec<_>>(), [(path("leader"), 2, 1, 7, 5), (path("elected"), 1, 0, 7, 0)]);
}
