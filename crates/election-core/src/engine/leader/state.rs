//! The state of the leader's side.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        appointment::{By, Claim},
        io::{EnteredLeadership, Epoch, StopReason},
        own::{HeldSummary, LeadershipSummary},
    },
    record::{Elected, limits},
    time::Time,
};

#[derive(Clone, Debug, Default, Hash)]
pub(crate) enum LeadershipState {
    /// Nothing is held, and nothing is being done.
    #[default]
    Idle,
    /// Nothing is held. The leader znode is read, to see whether it is a left-over of this very session.
    Cleaning,
    Acquiring(Box<Acquiring>),
    Held(Box<HeldLeadership>),
    Stopping(Box<Stopping>),
    Releasing(Box<Releasing>),
}

/// Named, or stepping in: until the leader znode is held and the application prepared.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Acquiring {
    pub(super) claim: Claim,
    pub(super) prepared: Prepared,
    pub(super) step: AcquireStep,
    /// The version of the decision on which the creation of the leader znode depends.
    pub(super) over: Option<i32>,
    /// The decision that a successor, or an elector that names itself, writes with it.
    pub(super) written: Option<Box<Elected>>,
    /// How often the creation was refused because the leader znode exists, since it was last read as present.
    pub(super) refused: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Prepared {
    No,
    Running,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AcquireStep {
    /// The leader znode belongs to another member.
    Waiting,
    /// Creates the leader znode, while the decision is the known one. A successor writes the next decision in the same
    /// transaction, and an elector that names itself the first one.
    Creating,
    /// The decision has changed: it is read.
    ReadElected,
    /// It has not: the version of the ballots' parent is read first.
    ReadGeneration,
    /// After a lost reply, or if the leader znode exists: reads whose it is.
    Looking,
    /// It is held, by a creation whose reply was lost. Reads whether the decision still names this member.
    Rereading(HeldZnode),
    /// Held and entitled.
    Entitled(HeldZnode),
}

/// The own leader znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct HeldZnode {
    pub(super) czxid: i64,
    pub(super) version: i32,
    /// The term in its record.
    pub(super) term: u64,
    /// When it was seen to be free, and when it was created, in milliseconds since
    /// the Unix epoch.
    pub(super) free_ms: u64,
    pub(super) created_ms: u64,
    /// When it was created, by the steady clock. A process that continues in it is READY.
    #[serde(skip)]
    pub(super) created: Reported,
}

/// A time that is only reported: no step depends on it, so it distinguishes no states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported(pub(super) Time);

impl Hash for Reported {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Leadership that has been entered.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct HeldLeadership {
    #[serde(rename = "appointment")]
    pub(super) claim: Claim,
    #[serde(with = "limits::token")]
    pub(crate) fencing_token: u64,
    pub(super) znode: HeldZnode,
    #[serde(skip)]
    pub(super) stage: HeldStage,
    #[serde(skip)]
    pub(crate) epoch: Epoch,
    /// A watch reports that the leader znode is not this one any more; it is read again.
    #[serde(skip)]
    pub(super) doubted: bool,
    /// The application is asked whether this leadership may move as planned.
    #[serde(skip)]
    pub(super) asks: bool,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub(super) ready_ms: Option<u64>,
}

/// How far a leadership has come. One that crosses to another process leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum HeldStage {
    TakingOver,
    /// READY is being written.
    Announcing,
    #[default]
    Leading,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Stopping {
    pub(super) reason: StopReason,
    /// The session on which it led, and what is held there.
    pub(super) epoch: Epoch,
    pub(super) hold: LeftZnode,
    pub(crate) term: u64,
    pub(crate) token: Option<u64>,
}

/// What may remain in ZooKeeper when leadership is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeftZnode {
    Nothing,
    Znode(HeldZnode),
    /// Its creation is under way.
    Creating,
    /// The outcome of its creation is unknown.
    Unsure,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Releasing {
    pub(super) epoch: Epoch,
    pub(super) step: ReleaseStep,
    /// The version of the decision that a deletion of unknown outcome requires, which may still be applied.
    pub(super) unsure: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReleaseStep {
    /// Its creation is under way: a znode that does not exist yet can't be deleted.
    AwaitCreation,
    /// This member gave up, and the elector is to name the next leader first: whoever is first in line would take the
    /// free leader znode for that of a lost leader.
    AwaitDecision {
        znode: HeldZnode,
        term: u64,
        until: Time,
    },
    /// In this version, and while the decision (in a contest the parent) has that version, if one is given.
    Delete {
        version: i32,
        unchanged: Option<i32>,
    },
    /// The decision is read before the leader znode, so that the leader znode is known to be the own one in every
    /// decision up to that.
    ReadElected,
    /// The decision is being written again as it is, so that an earlier deletion can't be applied any more.
    RenewElected,
    Look {
        unchanged: Option<i32>,
    },
}

/// The stages for which an application may need time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Preparing,
    TakingOver,
}

impl Acquiring {
    pub(super) fn term(&self) -> u64 {
        self.claim.appointment.term
    }
}

impl HeldLeadership {
    pub(crate) fn leads(&self) -> bool {
        self.stage == HeldStage::Leading
    }

    pub(crate) fn term(&self) -> u64 {
        self.claim.appointment.term
    }

    pub(super) fn entered(&self, work_until: Time) -> EnteredLeadership {
        let Claim { appointment, ballot, .. } = self.claim.clone();
        EnteredLeadership { appointment, ballot, fencing_token: self.fencing_token, work_until }
    }
}

impl Releasing {
    pub(super) fn state(epoch: Epoch, step: ReleaseStep) -> LeadershipState {
        LeadershipState::Releasing(Box::new(Self { epoch, step, unsure: None }))
    }
}

impl LeadershipState {
    pub(crate) fn held(&self) -> Option<&HeldLeadership> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(crate) fn held_mut(&mut self) -> Option<&mut HeldLeadership> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    /// A summary for the other parts of the engine.
    pub(super) fn duty(&self, slot: usize) -> LeadershipSummary {
        let held = self.held().map(|held| HeldSummary {
            slot: held.claim.appointment.slot,
            ballot: held.claim.ballot.clone(),
            created_ms: held.znode.created_ms,
            ready_ms: held.ready_ms,
            leads: held.leads(),
        });
        let is_idle = matches!(self, Self::Idle);
        let (is_working, names_itself) = match self {
            Self::Held(_) | Self::Stopping(_) => (true, false),
            Self::Acquiring(acquiring) => {
                (acquiring.prepared != Prepared::No, acquiring.claim.by == By::FirstDecision)
            }
            Self::Idle | Self::Cleaning | Self::Releasing(_) => (false, false),
        };
        let wants_lease = !matches!(self, Self::Idle | Self::Cleaning | Self::Releasing(_));
        LeadershipSummary { slot: (!is_idle).then_some(slot), is_working, wants_lease, names_itself, held }
    }

    /// Whether the end of the lease requires an action.
    pub(crate) fn heeds_lease_end(&self) -> bool {
        match self {
            Self::Stopping(stopping) => !stopping.reason.is_urgent(),
            _ => self.held().is_some(),
        }
    }

    /// The stage that the application must complete.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match self {
            Self::Acquiring(acquiring) if acquiring.prepared == Prepared::Running => Some(Stage::Preparing),
            Self::Held(held) if held.stage == HeldStage::TakingOver => Some(Stage::TakingOver),
            _ => None,
        }
    }
}
