//! Breaks things, and repairs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use robustness::history::{Event, Excuse};
use zk_testkit::{Refusal, Which};

use crate::member::Member;
use crate::network::{Broken, Network};
use crate::plan::{Act, Plan, SERVERS};
use crate::trace::Trace;

/// Who breaks them, in the history.
const BY: &str = "faults";
const LATE: Duration = Duration::from_millis(700);
const REORDERED: Duration = Duration::from_millis(50);

/// The members and what is broken.
pub(crate) struct Faults {
    pub(crate) plan: Arc<Plan>,
    pub(crate) network: Arc<Network>,
    pub(crate) trace: Arc<Trace>,
    /// `None` while it is away.
    pub(crate) members: Vec<Option<Member>>,
    lives: usize,
    /// By their numbers.
    active: BTreeMap<u64, Act>,
    next: u64,
}

/// A member or a server, which is broken by one fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Member(usize),
    Server(usize),
    Nothing,
}

impl Act {
    fn part(self) -> Part {
        match self {
            Self::Cut(member)
            | Self::Mute(member)
            | Self::Reset(member)
            | Self::Crash(member)
            | Self::Leave(member) => Part::Member(member),
            Self::Isolate(server)
            | Self::Freeze(server)
            | Self::Stop(server)
            | Self::HoldCommits(server)
            | Self::Answers(server, _)
            | Self::Refuses(server) => Part::Server(server),
            Self::LoseReplies(_) | Self::LateReplies(_) | Self::Reorder => Part::Nothing,
        }
    }
}

impl Faults {
    pub(crate) fn new(plan: Arc<Plan>, network: Arc<Network>, trace: Arc<Trace>) -> Self {
        let (members, active) = (Vec::new(), BTreeMap::new());
        Self { plan, network, trace, members, lives: 0, active, next: 0 }
    }

    /// Has a member join.
    pub(crate) async fn join(&mut self, member: usize) {
        self.lives += 1;
        let (plan, network, trace) = (self.plan.clone(), self.network.clone(), self.trace.clone());
        let joined = Member::join(plan, network, trace, format!("m{member}"), self.lives).await;
        if self.members.len() <= member {
            self.members.resize_with(member + 1, || None);
        }
        self.members[member] = Some(joined);
    }

    /// Breaks something, unless its part is broken. Returns the number of the fault.
    pub(crate) async fn begin(&mut self, act: Act) -> Option<u64> {
        let broken: BTreeSet<Part> = self.active.values().map(|act| act.part()).collect();
        if act.part() != Part::Nothing && broken.contains(&act.part()) {
            return None;
        }
        let fault = self.next;
        self.next += 1;
        self.active.insert(fault, act);
        let excuses = self.nobody_can_lead().into_iter().collect();
        let member = match act.part() {
            Part::Member(member) => Some(format!("m{member}")),
            Part::Server(_) | Part::Nothing => None,
        };
        self.trace.record(BY, Event::Fault { fault, what: format!("{act:?}"), member, excuses });
        let faults = self.network.servers.faults();
        match act {
            Act::Cut(member) => self.at(member, |broken, life| {
                broken.deaf.insert(life.clone());
                broken.mute.insert(life);
            }),
            Act::Mute(member) => self.at(member, |broken, life| {
                broken.mute.insert(life);
            }),
            Act::Reset(member) => self.at(member, |broken, life| {
                broken.resets += 1;
                broken.reset = life;
            }),
            Act::Crash(member) => {
                if let Some(dead) = self.members[member].take() {
                    dead.die(&self.network);
                }
            }
            Act::Leave(member) => {
                if let Some(leaving) = self.members[member].take() {
                    tokio::spawn(leaving.leave());
                }
            }
            Act::Isolate(server) => faults.isolate(server),
            Act::Freeze(server) => {
                faults.isolate(server);
                self.network.broken.send_modify(|broken| {
                    broken.frozen.insert(server);
                });
            }
            Act::Stop(server) => {
                let _ = self.network.servers.stop(server).await;
            }
            Act::HoldCommits(server) => faults.hold_commits(server, true),
            Act::Answers(server, code) => faults.refuse_clients(server, Some(Refusal::Error(code))),
            Act::Refuses(server) => faults.refuse_clients(server, Some(Refusal::Credentials)),
            Act::LoseReplies(count) => {
                (0..count).for_each(|_| drop(faults.lose_reply(Which::write())));
            }
            Act::LateReplies(count) => {
                (0..count).for_each(|_| drop(faults.delay_reply(Which::any(), LATE)));
            }
            Act::Reorder => faults.reorder_requests(Some(REORDERED)),
        }
        Some(fault)
    }

    /// Repairs a fault.
    pub(crate) async fn end(&mut self, fault: u64) {
        let Some(act) = self.active.remove(&fault) else { return };
        let faults = self.network.servers.faults();
        match act {
            Act::Cut(member) | Act::Mute(member) => self.at(member, |broken, life| {
                broken.deaf.remove(&life);
                broken.mute.remove(&life);
            }),
            Act::Crash(member) | Act::Leave(member) => self.join(member).await,
            Act::Isolate(server) => faults.rejoin(server),
            Act::Freeze(server) => {
                self.network.broken.send_modify(|broken| {
                    broken.frozen.remove(&server);
                });
                faults.rejoin(server);
            }
            Act::Stop(server) => {
                let _ = self.network.servers.start_server(server).await;
            }
            Act::HoldCommits(server) => faults.hold_commits(server, false),
            Act::Answers(server, _) | Act::Refuses(server) => faults.refuse_clients(server, None),
            Act::Reorder => faults.reorder_requests(None),
            Act::Reset(_) | Act::LoseReplies(_) | Act::LateReplies(_) => {}
        }
        self.trace.record(BY, Event::Healed { fault });
    }

    pub(crate) async fn end_all(&mut self) {
        while let Some(fault) = self.active.keys().next().copied() {
            self.end(fault).await;
        }
    }

    fn at(&self, member: usize, change: impl FnOnce(&mut Broken, String)) {
        if let Some(life) = self.members[member].as_ref().map(|member| member.life.clone()) {
            self.network.broken.send_modify(|broken| change(broken, life));
        }
    }

    /// Nobody can be expected to lead: the servers have no quorum, or no member is whole.
    fn nobody_can_lead(&self) -> Option<Excuse> {
        let broken: BTreeSet<Part> = self.active.values().map(|act| act.part()).collect();
        let servers = broken.iter().filter(|part| matches!(part, Part::Server(_))).count();
        let is_whole = |member| !broken.contains(&Part::Member(member));
        let is_out = servers * 2 > SERVERS || !(0..self.plan.members).any(is_whole);
        is_out.then_some(Excuse::NoLeader)
    }
}
