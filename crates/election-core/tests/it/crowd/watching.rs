//! The members' watches, with the requests and the delays of the runtime: `runtime/watches.rs` and `runtime/base_watch.rs`,
//! the second with the same [`Mirror`].

use std::collections::BTreeMap;

use election_core::internals::{Answer, Event, Mirror, Node, OpId, Outcome, Read, Watched, Write, ZkOp};

use super::{Crowd, Due, EPOCH, Kind, server::Message};
use crate::zookeeper::Millis;

/// How long a passive member waits before it reads a change: as long at most, and at least half of it.
pub(crate) const COALESCED: Millis = 250;

/// How long the change that an own write causes may come after its outcome.
const LATE: Millis = 50;

/// The watches of a member: single ones by path, or one of the whole election.
#[derive(Debug, Default)]
pub(super) struct Watching {
    nodes: BTreeMap<String, NodeWatch>,
    whole: Option<Whole>,
    /// How many there have been.
    count: u64,
}

/// A watch of one znode. `number` distinguishes it from an earlier watch of the same znode.
#[derive(Debug)]
struct NodeWatch {
    number: u64,
    step: Step,
    /// The creation and the last change of what was reported last; `None` if nothing was reported.
    last: Option<Option<(i64, i64)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reads,
    Armed,
    /// It has fired, and is read at once.
    Fired,
    /// It has fired, and is read a moment later, or when the member is not passive any more.
    Waits,
}

/// A watch of the whole election.
#[derive(Debug, Default)]
struct Whole {
    /// Distinguishes its reads from earlier ones.
    number: u64,
    mirror: Mirror,
    /// Changes that were reported and are not noted yet, and whether each is a deletion.
    changes: Vec<(String, bool)>,
    is_reading: bool,
}

impl Crowd {
    fn node_watch(&mut self, member: usize, path: &str, number: u64) -> Option<&mut NodeWatch> {
        let watch = self.members[member].watching.nodes.get_mut(path)?;
        Some(watch).filter(|watch| watch.number == number)
    }

    /// Watches exactly this set.
    pub(super) fn watch(&mut self, member: usize, set: Vec<Watched>) {
        if set.iter().any(|watched| matches!(watched, Watched::Tree(_))) {
            return self.watch_whole(member, &set);
        }
        let it = &mut self.members[member];
        it.watching.nodes.retain(|path, _| set.contains(&Watched::node(path.as_str())));
        let looks_for_its_rank = it.engine.looks_for_its_rank();
        if it.watching.whole.take().is_some() {
            self.send(member, Message::Unwatch);
        }
        for watched in set {
            let watching = &mut self.members[member].watching;
            if let Watched::Node(path) = watched
                && !looks_for_its_rank
                && !watching.nodes.contains_key(&*path)
            {
                let path = path.to_string();
                watching.count += 1;
                let number = watching.count;
                watching.nodes.insert(path.clone(), NodeWatch { number, step: Step::Reads, last: None });
                self.send(member, Message::Node { path, number, absent: false });
            }
        }
    }

    fn watch_whole(&mut self, member: usize, set: &[Watched]) {
        let Watching { nodes, whole, count } = &mut self.members[member].watching;
        nodes.clear();
        let begins = whole.is_none();
        let whole = whole.get_or_insert_default();
        if whole.mirror.want(set) {
            *count += 1;
            whole.number = *count;
            whole.is_reading = false;
        }
        if begins {
            self.send(member, Message::Whole);
        }
        self.follow_whole(member);
    }

    /// A notification arrives.
    pub(super) fn changed(&mut self, member: usize, path: &str, is_deleted: bool) {
        if let Some(whole) = &mut self.members[member].watching.whole {
            whole.changes.push((path.to_owned(), is_deleted));
            return self.follow_whole(member);
        }
        let engine = &self.members[member].engine;
        let waits = engine.is_passive() && engine.reports_leaders(&Watched::node(path));
        let Some(watch) = self.members[member].watching.nodes.get_mut(path) else { return };
        if watch.step != Step::Armed {
            return;
        }
        let number = watch.number;
        if waits {
            watch.step = Step::Waits;
            if self.kind != Kind::AllFollow {
                return;
            }
            let delay = self.rng.u64(COALESCED / 2..=COALESCED);
            return self.after(delay, member, Due::Reads(path.to_owned(), number));
        }
        watch.step = Step::Fired;
        // The notification of a deletion says all that there is to know.
        if is_deleted && watch.last.replace(None) != Some(None) {
            self.feed(member, Event::Seen { epoch: EPOCH, path: path.to_owned(), node: None });
        }
        if self.node_watch(member, path, number).is_some_and(|watch| watch.step == Step::Fired) {
            self.read_node(member, path, number, is_deleted);
        }
    }

    fn read_node(&mut self, member: usize, path: &str, number: u64, absent: bool) {
        if let Some(watch) = self.node_watch(member, path, number) {
            watch.step = Step::Reads;
            self.send(member, Message::Node { path: path.to_owned(), number, absent });
        }
    }

    /// The moment is over for which a passive member has waited.
    pub(super) fn read_late(&mut self, member: usize, path: &str, number: u64) {
        if self.node_watch(member, path, number).is_some_and(|watch| watch.step == Step::Waits) {
            self.read_node(member, path, number, false);
        }
    }

    /// A member that is not passive reads at once what it has not read yet.
    pub(super) fn read_at_once(&mut self, member: usize) {
        let Watching { nodes, .. } = &self.members[member].watching;
        if nodes.values().all(|watch| watch.step != Step::Waits) || self.members[member].engine.is_passive() {
            return;
        }
        let waiting = nodes.iter().filter(|(_, watch)| watch.step == Step::Waits);
        let waiting: Vec<_> = waiting.map(|(path, watch)| (path.clone(), watch.number)).collect();
        for (path, number) in waiting {
            self.read_node(member, &path, number, false);
        }
    }

    pub(super) fn has_read_node(&mut self, member: usize, path: String, number: u64, node: Option<Node>) {
        let Some(watch) = self.node_watch(member, &path, number) else { return };
        watch.step = Step::Armed;
        let seen = Some(node.as_ref().map(|node| (node.czxid, node.mzxid)));
        if watch.last != seen {
            watch.last = seen;
            self.feed(member, Event::Seen { epoch: EPOCH, path, node });
        }
    }

    /// Changes are reported to the watch of the whole election from now on.
    pub(super) fn is_armed(&mut self, member: usize) {
        if let Some(whole) = &mut self.members[member].watching.whole {
            whole.mirror.gap();
            self.follow_whole(member);
        }
    }

    pub(super) fn has_read_all(&mut self, member: usize, number: u64, answers: Vec<(Read, Answer)>) {
        let whole = &mut self.members[member].watching.whole;
        if let Some(whole) = whole.as_mut().filter(|whole| whole.number == number) {
            whole.mirror.has_read(answers);
            whole.is_reading = false;
            self.follow_whole(member);
        }
    }

    /// A request is made: the changes that it causes need not be read.
    pub(super) fn begins(&mut self, member: usize, op: OpId, request: &ZkOp) {
        let it = &mut self.members[member];
        if let Some(whole) = &mut it.watching.whole {
            for write in Write::all_of(request, it.session) {
                whole.mirror.begins(op, write);
            }
        }
    }

    pub(super) fn ended(&mut self, member: usize, op: OpId, outcome: &Outcome) {
        let Some(whole) = &mut self.members[member].watching.whole else { return };
        whole.mirror.ended(op, outcome);
        if whole.mirror.awaits_change() {
            self.after(LATE, member, Due::Late);
        }
    }

    /// The changes of own writes should have come by now.
    pub(super) fn stops_awaiting(&mut self, member: usize) {
        if let Some(whole) = &mut self.members[member].watching.whole {
            whole.mirror.stop_awaiting();
            self.follow_whole(member);
        }
    }

    /// Reports what is known, and reads by one request what has changed.
    pub(super) fn follow_whole(&mut self, member: usize) {
        loop {
            let whole = &mut self.members[member].watching.whole;
            let Some(whole) = whole.as_mut().filter(|whole| !whole.is_reading) else { return };
            for (path, is_deleted) in std::mem::take(&mut whole.changes) {
                whole.mirror.changed(&path, is_deleted);
            }
            if let Some(event) = whole.mirror.take(EPOCH) {
                self.feed(member, event);
                continue;
            }
            let Some(reads) = whole.mirror.to_read() else { return };
            whole.is_reading = true;
            let number = whole.number;
            return self.send(member, Message::Reads { number, reads });
        }
    }
}
