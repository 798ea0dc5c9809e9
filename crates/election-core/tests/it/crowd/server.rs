//! The servers: what each message costs, and who is notified of a change.

use std::collections::BTreeSet;

use election_core::internals::{Answer as Found, BATCH, Node, OpId, Outcome, Read, Time, Write, ZkOp};

use super::Crowd;

/// From a member to its server.
#[derive(Debug)]
pub(super) enum Message {
    Perform(OpId, ZkOp),
    Heartbeat(Time),
    /// Reads a znode and watches it. If it is probably `absent`, the member asks for its creation first.
    Node {
        path: String,
        number: u64,
        absent: bool,
    },
    /// Watches the whole election.
    Whole,
    /// Reads all of this.
    Reads {
        number: u64,
        reads: Vec<Read>,
    },
    /// Ends the watch of the whole election.
    Unwatch,
}

/// From a server to a member.
#[derive(Debug)]
pub(super) enum Answer {
    Done(OpId, Outcome),
    Acknowledged(Time),
    Node { path: String, number: u64, node: Option<Node> },
    Armed,
    Read { number: u64, answers: Vec<(Read, Found)> },
    Changed { path: String, is_deleted: bool },
}

impl Crowd {
    /// A message reaches a server, which has applied everything.
    pub(super) fn arrives(&mut self, member: usize, message: Message) {
        let counts = &mut self.members[member].counts;
        let answer = match message {
            Message::Perform(op, request) => {
                let is_read = request.reads();
                *if is_read { &mut counts.reads } else { &mut counts.writes } += 1;
                let session = self.members[member].session;
                let mut applied = self.zk.apply(self.now, session, self.zk.zxid(), &request);
                // A transaction sets what it creates, and both are reported.
                for write in Write::all_of(&request, session) {
                    if write.changes > 1 && applied.changed.contains(&write.path) {
                        applied.changed.push(write.path);
                    }
                }
                if let Outcome::Names(names) = &applied.outcome {
                    self.members[member].counts.names += names.len() as u64;
                }
                // A client is notified of a change before it gets its own answer.
                self.notify(&applied.changed);
                Answer::Done(op, applied.outcome)
            }
            Message::Heartbeat(sent) => {
                counts.heartbeats += 1;
                Answer::Acknowledged(sent)
            }
            Message::Node { path, number, absent } => {
                let node = self.zk.get(&path).cloned();
                // Against expectation it needs another request: for the data, or for the watch on the creation.
                counts.reads += if absent == node.is_none() { 1 } else { 2 };
                self.watched.entry(path.clone()).or_default().insert(member);
                Answer::Node { path, number, node }
            }
            Message::Whole => {
                counts.reads += 1;
                self.whole.insert(member);
                Answer::Armed
            }
            Message::Reads { number, reads } => {
                counts.reads += reads.len().div_ceil(BATCH) as u64;
                let answers = reads.into_iter().map(|read| {
                    let found = match &read {
                        Read::Names(parent) => {
                            let names: Vec<_> = self.zk.tree_at(parent, self.zk.zxid()).into_keys().collect();
                            counts.names += names.len() as u64;
                            Found::Names(names)
                        }
                        Read::Node(path) => Found::Node(self.zk.get(path).cloned()),
                    };
                    (read, found)
                });
                Answer::Read { number, answers: answers.collect() }
            }
            Message::Unwatch => {
                counts.reads += 1;
                self.whole.remove(&member);
                return;
            }
        };
        self.answer(member, answer);
    }

    /// Notifies each member that watches one of these znodes, and those that watch the whole election.
    pub(super) fn notify(&mut self, changed: &[String]) {
        for path in changed {
            let is_deleted = self.zk.get(path).is_none();
            let told: BTreeSet<usize> = self.watched.remove(path).unwrap_or_default();
            for member in told.union(&self.whole).copied().collect::<Vec<_>>() {
                if !self.members[member].is_gone {
                    self.members[member].counts.events += 1;
                    self.answer(member, Answer::Changed { path: path.clone(), is_deleted });
                }
            }
        }
    }
}
