//! Recipes without an elector: a znode alone decides who leads.
//!
//! ```text
//!   what was read ──┐                      ┌──▶ znode operations, watches
//!   outcomes ───────┼──▶ Contest ── place ─┴──▶ Office ──▶ prepare, take over, lead, stop
//!   health, time ───┘       ▲                      │
//!                           └──────── let go ──────┘
//! ```
//!
//! The contest is this member's candidacy until a znode of its own is the leader znode: in the queue once no
//! candidate is before it, in the single recipe once it has been created. It hands that znode to the
//! [leader's side](crate::engine::leader) as a mandate. From then on everything is as it is under an elector:
//! prepare, take over, READY, the lease and its end, stopping, and deleting the leader znode after
//! that. When the leader's side is idle again, the contest begins anew with another znode.
//!
//! **The fencing token is the czxid of the leader znode.** Single: each leadership is one creation of
//! the znode, and creations are numbered by czxid. Queue: numbers are given out in the
//! order of creation, and only the first one leads. When one leader follows another, its znode was either
//! behind the former one already, or created after that: it was created later in both cases. A member that
//! rejoins does so with a new znode, behind all others. A parent that was deleted and made again, which
//! begins at number 0, had no child then, so all its znodes were created later
//! than all before. Not covered: 2^31 znodes in one queue (the counter wraps),
//! znodes that are made by hand, and an ensemble restored from a copy. There is
//! no decision to count terms, so the token is also the term.
//!
//!
//! **Versions begin at 0 in every life of a znode**, so the creations of the leader znode of the single recipe are
//! counted: each creation sets the parent, in one transaction, and a deletion is applied
//! only while the parent has the version that the creation gave it. So a deletion
//! that comes late, or is retried, never removes the next leader's znode.
//!
//! **A znode without a member behind it would block everyone** as long as its session
//! lives. So a creation without an answer is looked for, by the guid in its name or
//! as this session's, and adopted; and whatever else of this session is found is deleted, before
//! another one is made and before this member is gone.
//!
//! No elector oversees a leader here, so it oversees itself: a takeover that takes too long
//! is given up, and after a failure the member rejoins only after a pause, which doubles
//! with each failure in a row.

mod oversight;
mod steps;

use std::time::Duration;

use crate::{
    engine::{
        core::Core,
        io::{Level, Node, NoteKind, Watched},
        leader::{Leader, Stage},
        ops::{Part, Pending},
        own::{OwnZnode, Seat},
        recipe::{Leftovers, QueueFormat, Recipe},
        znode::Znode,
    },
    ids::Ballot,
    record::{Contender, ContenderStatus, Previous, Record},
    time::Time,
};

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How far this member's candidacy is.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct Contest {
    step: ContestStep,
    /// Znodes that were begun to be created in this session.
    attempts: u32,
    /// The last of them was not answered: if it is found, it is this member's.
    unanswered: bool,
    /// Queue: the path of the one before, and the content of its record.
    before: Option<Before>,
    /// The one before has gone: who is before it now?
    look_again: bool,
    /// What of the own znode the creation under way writes.
    written: Vec<u8>,
    failures: u32,
    join_at: Option<Time>,
    /// Since when the application is at this.
    stage: Option<(Stage, Time)>,
    serving_since: Option<Time>,
    /// Another member was seen to lead, or to be before this one.
    has_waited: bool,
    previous: Option<Previous>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Before {
    path: String,
    /// It is the very first, as far as is known.
    first: bool,
    /// It was seen to have gone.
    gone: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum ContestStep {
    /// There is no session.
    #[default]
    Idle,
    /// Looking for what a former process of this member has left in the queue.
    ListLeftovers,
    LookAtLeftover(Vec<String>),
    DropLeftover(String, Vec<String>),
    /// Looking for znodes of this very session that belong to no candidacy.
    Seek(Then),
    /// Found under the guid of a creation that was not answered.
    Adopt(String),
    /// Single: the leader znode is this session's. Which creation is it? Read before the leader znode is once
    /// more: if that one is newer, the count is too low, and nothing is deleted by it.
    Count(Then),
    Look(Then, i32),
    /// With its version and its count, if it is the leader znode.
    Drop(String, Option<(i32, i32)>, Then),
    Create,
    /// Queue: who is before this one?
    Rank,
    /// Another candidate is before this one.
    Waiting,
    /// No candidate is before this one; the leader's side may still be busy with the former leadership.
    First,
    /// The leader's side has it.
    Leading,
    /// No candidate for a while.
    Pausing,
    Gone,
}

/// What follows once no znode is left that belongs to no candidacy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Join,
    Pause,
    Leave,
}

impl Contest {
    /// Begins anew, but for the memory of failures.
    fn reset(&mut self, core: &mut Core, step: ContestStep) {
        core.ops.give_up_all(Part::Contest);
        core.own.seat = Seat::default();
        *self = Self { step, failures: self.failures, join_at: self.join_at, ..Self::default() };
    }

    pub(in crate::engine) fn is_gone(&self) -> bool {
        matches!(self.step, ContestStep::Idle | ContestStep::Gone)
    }

    /// Whether no znode of this session can be there yet.
    fn is_preparing(&self) -> bool {
        matches!(
            self.step,
            ContestStep::ListLeftovers | ContestStep::LookAtLeftover(_) | ContestStep::DropLeftover(..)
        )
    }
}

impl Contest {
    /// A session has begun: this member becomes a candidate, with nothing of a former session.
    pub(in crate::engine) fn begin(&mut self, core: &mut Core) {
        let first = match (core.config.leftovers, core.queue_format()) {
            (Leftovers::Remove, Some(_)) => ContestStep::ListLeftovers,
            // It is there most likely: a read, rather than a creation that is refused.
            (Leftovers::Remove, None) => ContestStep::Seek(Then::Join),
            (Leftovers::Wait, _) => ContestStep::Create,
        };
        self.reset(core, first);
        if core.own.gave_up.is_some() {
            self.pause_after_failure(core, false);
        }
    }

    /// The connection was lost, and is back: with an older copy of the ensemble candidates may be back that were before
    /// this one in the queue.
    pub(in crate::engine) fn session_resumed(&mut self, core: &mut Core) {
        if core.queue_format().is_none() {
            return;
        }
        match self.step {
            ContestStep::First => self.step = ContestStep::Rank,
            ContestStep::Leading => core.own.seat.ranks_again = core.own.duty.held.is_none(),
            _ => {}
        }
    }

    pub(in crate::engine) fn session_over(&mut self, core: &mut Core) {
        let served = self.serving_since.map(|since| core.now.time.since(since));
        if served.is_some_and(|served| served >= core.config.policy.min_tenure) {
            self.failures = 0;
        }
        self.reset(core, ContestStep::Idle);
    }

    /// When the contest goes on even if nothing happens, beside trying again.
    pub(in crate::engine) fn wake(&self, core: &Core) -> Option<Time> {
        let pauses = self.step == ContestStep::Pausing && core.session_is_active();
        let stand = self.join_at.filter(|at| pauses && *at > core.now.time);
        let stage = self.stage.map(|(_, since)| since + core.config.policy.takeover_timeout);
        [stand, stage].into_iter().flatten().min()
    }

    /// The name of the own znode, once this member is a candidate; in the single recipe, where the
    /// place has no name of its own, one made from its session.
    pub(in crate::engine) fn ballot(&self, core: &Core) -> Option<Ballot> {
        match (&self.step, &core.own.seat.own) {
            (_, Some(own)) => core.ballot_at(&own.path, own.node.owner),
            (ContestStep::Waiting, None) => core.ballot_at("", core.session_id()),
            _ => None,
        }
    }

    pub(in crate::engine) fn is_paused(&self) -> bool {
        matches!(
            self.step,
            ContestStep::Pausing
                | ContestStep::Seek(Then::Pause)
                | ContestStep::Count(Then::Pause)
                | ContestStep::Look(Then::Pause, _)
                | ContestStep::Drop(_, _, Then::Pause)
        )
    }

    /// Whether this member may have to lead soon. Where that is not known, it may: proving
    /// a lease takes a heartbeat and a tick, which a takeover would otherwise wait for.
    pub(in crate::engine) fn keeps_lease(&self, core: &Core) -> bool {
        match self.step {
            ContestStep::Idle | ContestStep::Gone | ContestStep::Pausing => false,
            ContestStep::Waiting if core.queue_format() == Some(QueueFormat::Native) => {
                self.before.as_ref().is_some_and(|before| before.first)
            }
            _ => true,
        }
    }

    pub(in crate::engine) fn watched(&self, core: &Core) -> Vec<Watched> {
        let mut watched = Vec::new();
        match core.config.recipe {
            Recipe::Single if !self.is_gone() => {
                watched.push(Watched::Node(core.config.paths.leader_znode(0)));
            }
            Recipe::Queue(_) => {
                watched.extend(core.own.seat.own.iter().map(|own| Watched::Node(own.path.clone())));
                watched.extend(self.before.iter().map(|before| Watched::Node(before.path.clone())));
            }
            _ => {}
        }
        watched
    }

    /// A watch has read the own znode or the one before.
    pub(in crate::engine) fn saw(
        &mut self,
        core: &mut Core,
        leader: &mut Leader,
        path: &str,
        node: Option<&Node>,
    ) {
        let own = core.own.seat.own.as_ref().filter(|own| own.path == path);
        if core.queue_format().is_none() {
            if path == core.config.paths.leader_znode(0) {
                leader_znode_seen(core, leader, node);
            }
        } else if let Some(own) = own {
            let stands = node.filter(|n| n.owner == own.node.owner && n.czxid == own.node.czxid);
            if self.step == ContestStep::Leading {
                leader_znode_seen(core, leader, node);
            } else if let Some(node) = stands {
                let node = node.clone();
                core.own.seat.own = Some(OwnZnode { path: path.to_owned(), node, count: None });
            } else {
                self.own_lost(core, "the own znode in the queue is gone");
            }
        } else if self.before.as_ref().is_some_and(|before| before.path == path) {
            self.saw_before(node);
        }
    }

    /// The one before has changed: it leads now, or it has gone.
    fn saw_before(&mut self, node: Option<&Node>) {
        let Some(before) = &mut self.before else { return };
        let Some(node) = node else {
            before.gone = true;
            self.look_again = true;
            return;
        };
        let Ok(record) = Contender::decode(&before.path, &node.data) else { return };
        if record.status == ContenderStatus::Ready {
            before.first = true;
            let name = before.path.rsplit('/').next().unwrap_or_default();
            self.previous = Ballot::new(name).ok().map(|ballot| Previous {
                member: record.member,
                ballot,
                site: record.site,
            });
        }
    }

    /// Rejoins with a new znode.
    fn own_lost(&mut self, core: &mut Core, why: &str) {
        core.note(Level::Warn, NoteKind::Registration, format!("{why}; standing anew"));
        core.own.seat.own = None;
        self.before = None;
        core.ops.give_up(&Pending::Contest);
        self.step = ContestStep::Seek(Then::Join);
    }
}

fn leader_znode_seen(core: &mut Core, leader: &mut Leader, node: Option<&Node>) {
    core.reading.rereading.watch_told(Znode::Leader(0), node);
    core.see_leader_znode(0, node);
    leader.saw_leader_znode(core, 0, node);
}
