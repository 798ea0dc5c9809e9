//! Recipes without an elector: a znode alone settles who leads.
//!
//! ```text
//!   what was read ──┐                      ┌──▶ znode operations, watches
//!   outcomes ───────┼──▶ Contest ── place ─┴──▶ Office ──▶ prepare, take over, lead, stop
//!   health, time ───┘       ▲                      │
//!                           └──────── let go ──────┘
//! ```
//!
//! The contest stands for this member until a znode of its own is the place of the
//! leader: in the queue once nobody is before it, in the single recipe once it has
//! been created. It hands that place to the [office](super::office) as a claim that is
//! held already, and from then on everything is as it is under an elector: prepare,
//! take over, READY, the lease and its end, stopping, and deleting the place after
//! that. When the office stands idle again, the contest begins anew, with another
//! znode.
//!
//! **The fencing token is the place's czxid.** Single: each leadership is one creation of
//! the znode, and creations are numbered by czxid. Queue: numbers are given out in the
//! order of creation, and only the first one leads. So when one leader follows
//! another, its znode was either behind the former one's already, or created after
//! that: created later either way. A member that stands again does so with a new
//! znode, behind everyone; and a parent that was deleted and made again, which
//! begins at number 0, had no child then, so all znodes after it were created later
//! than all before. Not covered: 2^31 znodes in one queue (the counter wraps),
//! znodes that somebody makes by hand, and an ensemble restored from a copy. There is
//! no decision to count terms, so the token is also the term.
//!
//! **Versions begin at 0 in every life of a znode**, so the place of the single recipe is
//! counted: each creation sets the parent, in one transaction, and whoever deletes a place
//! does so only while the parent has the version that the creation gave it. So a deletion
//! that comes late, or is tried again, never hits the place of the next leader.
//!
//! **A znode without a member behind it would block everyone** as long as its session
//! lives. So a creation without an answer is looked for, by the guid in its name or
//! as this session's, and adopted; and whatever else of this session is found is deleted, before
//! another one is made and before this member is gone.
//!
//! Nobody oversees a leader here, so it watches itself: a takeover that lasts too long
//! is given up, and after a failure it stands again only after a pause, which doubles
//! with each failure in a row.

mod names;
mod office;
mod steps;

use std::time::Duration;

use super::{
    Engine,
    io::{Level, Node, NoteKind, OpId, Watched},
    office::Stage,
    recipe::{QueueFormat, Recipe},
    registration::Leftovers,
    verification::Verified,
};
use crate::{
    ids::Ballot,
    record::{Contender, ContenderStatus, Health, Previous, Record},
    time::Time,
};

/// How long to wait before an operation is tried again that could not be applied.
const RETRY: Duration = Duration::from_millis(300);

/// How long to wait where the numbers of a queue are used up, which an operator has to mend.
const USED_UP: Duration = Duration::from_secs(30);

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How far this member is with standing for a place.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Contest {
    step: Step,
    op: Option<OpId>,
    retry_at: Option<Time>,
    /// Znodes that were begun to be created in this session.
    attempts: u32,
    /// The last of them was not answered: if it is found, it is this member's.
    unanswered: bool,
    /// The own znode.
    own: Option<Own>,
    /// Queue: the path of the one before, and what it said of itself.
    before: Option<Before>,
    /// The one before has gone: who is before it now?
    look_again: bool,
    /// Whether this one is still the first in the queue is to be read before it leads.
    ranks_again: bool,
    /// What of the own znode the creation under way writes.
    written: Vec<u8>,
    failures: u32,
    stand_at: Option<Time>,
    /// Since when the application is at this.
    stage: Option<(Stage, Time)>,
    serving_since: Option<Time>,
    /// Somebody else was seen to lead, or to stand before this one.
    has_waited: bool,
    previous: Option<Previous>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own {
    path: String,
    node: Node,
    /// Single: which creation of the place it is.
    count: Option<i32>,
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
enum Step {
    /// There is no session.
    #[default]
    Idle,
    /// Looking for what a former process of this member has left in the queue.
    ListLeftovers,
    LookAtLeftover(Vec<String>),
    DropLeftover(String, Vec<String>),
    /// Looking for znodes of this very session that nobody stands for.
    Seek(Then),
    /// Found under the guid of a creation that was not answered.
    Adopt(String),
    /// Single: the place is this session's. Which creation is it? Read before the place is once
    /// more: if that one is newer, the count is too low, and nothing is deleted by it.
    Count(Then),
    Look(Then, i32),
    /// With its version and its count, if it is the place.
    Drop(String, Option<(i32, i32)>, Then),
    Create,
    /// Queue: who is before this one?
    Rank,
    /// Somebody else is before this one.
    Waiting,
    /// Nobody is before this one; the office may still be busy with what was.
    First,
    /// The office has it.
    InOffice,
    /// Not standing for a while.
    Pausing,
    Gone,
}

/// What follows once nothing is left that nobody stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Stand,
    Pause,
    Leave,
}

impl Contest {
    /// Begins anew, but for the memory of failures.
    fn reset(&mut self, step: Step) {
        *self = Self { step, failures: self.failures, stand_at: self.stand_at, ..Self::default() };
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.step, Step::Idle | Step::Gone)
    }

    /// Whether nothing of this session can stand yet.
    fn is_preparing(&self) -> bool {
        matches!(self.step, Step::ListLeftovers | Step::LookAtLeftover(_) | Step::DropLeftover(..))
    }
}

impl Engine {
    /// Whether a znode alone settles who leads.
    pub(super) fn is_contest(&self) -> bool {
        !matches!(self.config.recipe, Recipe::Elector(_))
    }

    /// A session has begun: this member stands, with nothing of a former one.
    pub(super) fn begin_contest(&mut self) {
        let first = match (self.config.leftovers, self.queue_format()) {
            (Leftovers::Remove, Some(_)) => Step::ListLeftovers,
            // It is there most likely: a read, rather than a creation that is refused.
            (Leftovers::Remove, None) => Step::Seek(Then::Stand),
            (Leftovers::Wait, _) => Step::Create,
        };
        self.contest.reset(first);
        if self.gave_up.is_some() {
            self.pause_after_failure(false);
        }
    }

    /// The connection was lost, and is back: with an older copy of the ensemble those may be back who stood before
    /// this one in the queue.
    pub(super) fn contest_resumed(&mut self) {
        if self.queue_format().is_none() {
            return;
        }
        match self.contest.step {
            Step::First => self.contest.step = Step::Rank,
            Step::InOffice => self.contest.ranks_again = self.office.held().is_none(),
            _ => {}
        }
    }

    pub(super) fn contest_session_over(&mut self) {
        let served = self.contest.serving_since.map(|since| self.now.time.since(since));
        if served.is_some_and(|served| served >= self.config.policy.min_tenure) {
            self.contest.failures = 0;
        }
        self.contest.reset(Step::Idle);
    }

    fn queue_format(&self) -> Option<QueueFormat> {
        match self.config.recipe {
            Recipe::Queue(format) => Some(format),
            Recipe::Elector(_) | Recipe::Single => None,
        }
    }

    /// When the contest goes on even if nothing happens.
    pub(super) fn contest_wake(&self) -> Option<Time> {
        if !self.is_contest() {
            return None;
        }
        let contest = &self.contest;
        let active = self.session_is_active();
        let retry = contest.retry_at.filter(|_| contest.op.is_none() && active);
        let stand =
            contest.stand_at.filter(|at| contest.step == Step::Pausing && active && *at > self.now.time);
        let stage = contest.stage.map(|(_, since)| since + self.config.policy.takeover_timeout);
        [retry, stand, stage].into_iter().flatten().min()
    }

    /// The own znode's name, once this member stands; in the single recipe, where the
    /// place has no name of its own, one made from its session.
    pub(super) fn contest_ballot(&self) -> Option<Ballot> {
        match (&self.contest.step, &self.contest.own) {
            (_, Some(own)) => self.ballot_at(&own.path, own.node.owner),
            (Step::Waiting, None) => self.ballot_at("", self.session_id()),
            _ => None,
        }
    }

    /// The name of the incarnation that holds a place.
    pub(super) fn ballot_at(&self, path: &str, owner: i64) -> Option<Ballot> {
        match self.config.recipe {
            Recipe::Queue(_) => Ballot::new(path.rsplit('/').next().unwrap_or_default()).ok(),
            _ => Ballot::of_session(owner),
        }
    }

    pub(super) fn contest_is_paused(&self) -> bool {
        matches!(
            self.contest.step,
            Step::Pausing
                | Step::Seek(Then::Pause)
                | Step::Count(Then::Pause)
                | Step::Look(Then::Pause, _)
                | Step::Drop(_, _, Then::Pause)
        )
    }

    /// Whether this member may have to lead soon. Where nobody can tell, it may: proving
    /// a lease takes a beat and a tick, which a takeover would otherwise wait for.
    pub(super) fn contest_keeps_lease(&self) -> bool {
        match self.contest.step {
            Step::Idle | Step::Gone | Step::Pausing => false,
            Step::Waiting if self.queue_format() == Some(QueueFormat::Native) => {
                self.contest.before.as_ref().is_some_and(|before| before.first)
            }
            _ => true,
        }
    }

    pub(super) fn contest_watched(&self) -> Vec<Watched> {
        let mut watched = Vec::new();
        match self.config.recipe {
            Recipe::Single if !self.contest.is_gone() => {
                watched.push(Watched::Node(self.config.paths.place(0)));
            }
            Recipe::Queue(_) => {
                watched.extend(self.contest.own.iter().map(|own| Watched::Node(own.path.clone())));
                watched.extend(self.contest.before.iter().map(|before| Watched::Node(before.path.clone())));
            }
            _ => {}
        }
        watched
    }

    /// What a watch says of the own znode or of the one before.
    pub(super) fn contest_saw(&mut self, path: &str, node: Option<&Node>) {
        let own = self.contest.own.as_ref().filter(|own| own.path == path);
        if self.queue_format().is_none() {
            if path == self.config.paths.place(0) {
                self.place_seen(node);
            }
        } else if let Some(own) = own {
            let stands = node.filter(|n| n.owner == own.node.owner && n.czxid == own.node.czxid);
            if self.contest.step == Step::InOffice {
                self.place_seen(node);
            } else if let Some(node) = stands {
                let node = node.clone();
                self.contest.own = Some(Own { path: path.to_owned(), node, count: None });
            } else {
                self.own_lost("the own znode in the queue is gone");
            }
        } else if self.contest.before.as_ref().is_some_and(|before| before.path == path) {
            self.saw_before(node);
        }
    }

    fn place_seen(&mut self, node: Option<&Node>) {
        self.verification.watch_told(Verified::Place(0), node);
        self.see_place(0, node);
        self.office_saw_place(0, node);
    }

    /// The one before has changed: it leads now, or it has gone.
    fn saw_before(&mut self, node: Option<&Node>) {
        let Some(before) = &mut self.contest.before else { return };
        let Some(node) = node else {
            before.gone = true;
            self.contest.look_again = true;
            return;
        };
        let Ok(record) = Contender::decode(&before.path, &node.data) else { return };
        if record.status == ContenderStatus::Ready {
            before.first = true;
            let name = before.path.rsplit('/').next().unwrap_or_default();
            self.contest.previous = Ballot::new(name).ok().map(|ballot| Previous {
                member: record.member,
                ballot,
                site: record.site,
            });
        }
    }

    /// Stands with a new znode.
    fn own_lost(&mut self, why: &str) {
        self.note(Level::Warn, NoteKind::Registration, format!("{why}; standing anew"));
        self.contest.own = None;
        self.contest.before = None;
        self.contest.op = None;
        self.contest.step = Step::Seek(Then::Stand);
    }

    fn ill_health(&self) -> Option<String> {
        match &self.health {
            Health::Unhealthy { reason } => Some(format!("it is not healthy: {reason}")),
            Health::Healthy | Health::Unchecked | Health::Unknown => {
                self.standing.withdrawn.as_ref().map(|why| format!("it has withdrawn: {why}"))
            }
        }
    }

    /// Why this member is no candidate now, if it isn't. That its health is not known yet ends no leadership.
    fn no_candidate(&self) -> Option<String> {
        let unknown = || "its first health check has not been answered yet".to_owned();
        self.ill_health().or_else(|| (self.health == Health::Unknown).then(unknown))
    }
}
