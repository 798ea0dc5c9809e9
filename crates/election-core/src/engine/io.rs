//! The inputs and the outputs of the engine.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::transaction::{Transaction, ZnodeWrite};
use crate::{
    ids::{Ballot, MemberId},
    record::{Cause, Current, Health, Previous, RoundTrips, limits},
    time::Time,
};

/// The number of a session in this process: 1 for the first, then counting.
pub type Epoch = u64;

/// Names an operation between [`Action::Perform`] and [`Event::Done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

impl Hash for OpId {
    /// As a signed 128-bit number, a type that nothing else here is hashed as. So a model checker can number the
    /// operations under way from the first one.
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_i128(i128::from(self.0));
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A new session is active. Only after everything on the former session has stopped, see
    /// [`Engine::is_clear`](super::Engine::is_clear).
    SessionStarted {
        /// Which.
        epoch: Epoch,
        /// Its id at the ensemble.
        session_id: i64,
        /// The timeout that the server granted.
        granted: Duration,
    },
    /// The connection is lost; the session may still live.
    SessionPaused(Epoch),
    /// The same session is connected again.
    SessionResumed(Epoch),
    /// The session is over, with all its ephemeral znodes.
    SessionOver(Epoch),
    /// Until when the session is proved to live.
    Lease {
        /// The session.
        epoch: Epoch,
        /// The end of the lease.
        valid_until: Time,
    },
    /// The content of a watched znode; `None` if it does not exist.
    Seen {
        /// The session on which it was read.
        epoch: Epoch,
        /// The path.
        path: String,
        /// The znode.
        node: Option<Node>,
    },
    /// The contents of the children of a watched znode, by name.
    SeenTree {
        /// The session on which they were read.
        epoch: Epoch,
        /// The parent's path.
        parent: String,
        /// The children.
        nodes: BTreeMap<String, Node>,
    },
    /// An operation has ended.
    Done {
        /// The operation.
        op: OpId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// A reply of the application.
    App(AppEvent),
    /// This member's health has changed.
    Health(Health),
    /// What this member reports about its whole site has changed.
    SiteHealth(Option<Health>),
    /// This member has measured the round trips to others again.
    RoundTrips(RoundTrips),
    /// This member's measurements of itself have changed: these are all of them. A measured attribute overrides a
    /// configured one of the same name.
    Measured(BTreeMap<String, String>),
    /// A round of probes of the other members has ended. Report it after each round, also when nothing has changed.
    /// It is only used if [`Policy::may_suspect`](super::Policy::may_suspect).
    ///
    /// With all members that have not answered, by ballot.
    Probed(BTreeSet<Ballot>),
    /// A wish of this member.
    Wish(Wish),
    /// Leave the election: stop the work, release, deregister.
    Leave {
        /// Whether to hand over leadership first, as far as another member can be named: this member continues its
        /// work until the next leader has prepared, or until
        /// [`Policy::acquire_timeout`](super::Policy::acquire_timeout) and two seconds have passed. `false` ends such
        /// a wait.
        hand_over: bool,
    },
    /// Time has passed; due at [`Engine::wakeup`](super::Engine::wakeup).
    Tick,
}

/// A wish of a member about its own part. The reasons that it has are for people, and are cut at 500 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wish {
    /// To give up the leadership that it has, or is acquiring, if any. It may be named again after
    /// [`Policy::exclusion`](super::Policy::exclusion), or as soon as no other member may lead.
    Resign(String),
    /// To have ended the leadership that it has by this time, including its work; or as soon as the stop budget
    /// allows, if that is later. It does not apply to a later leadership.
    ResignBy {
        /// The deadline.
        by: Time,
        /// The reason.
        reason: String,
    },
    /// To give up leadership, and not to be named until it rejoins, even if no other member is left.
    Withdraw(String),
    /// To be a candidate again.
    Rejoin,
    /// Not to hand over as planned: switchovers are refused with this reason, and leadership does not move
    /// to a better member. Failovers and forced steps are not blocked.
    BlockSwitchover(String),
    /// To be asked before each planned move of its leadership: [`Action::AskBeforeMove`].
    AskBeforeMoves,
    /// To permit planned handovers again.
    AllowSwitchover,
}

/// A reply of the application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AppEvent {
    /// `prepare` succeeded.
    Prepared,
    /// `prepare` failed.
    PrepareFailed(String),
    /// `takeover` succeeded: the application serves.
    TakenOver,
    /// The same, with a remark for the history.
    TakenOverWith(String),
    /// `takeover` failed.
    TakeoverFailed(String),
    /// `prepare` or `takeover` declined: this member is not to lead now. That is no failure.
    Declined(String),
    /// The planned move may go on: the work is stopped next.
    MoveAccepted,
    /// The planned move is called off, for this reason: this member leads on.
    MoveDeclined(String),
    /// The work ended by itself, or could not be kept running.
    WorkFailed(String),
    /// The work is finished.
    WorkFinished,
    /// Everything that was started has ended.
    Stopped,
}

/// A znode as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// Its data.
    pub data: Vec<u8>,
    /// The version of the data.
    pub version: i32,
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that last changed it.
    pub mzxid: i64,
    /// The session that owns it, if it is ephemeral; 0 if it is persistent.
    pub owner: i64,
    /// When it was created, by the clock of the servers, in milliseconds since the Unix epoch; 0 if that
    /// is not known.
    pub ctime_ms: i64,
    /// When it was last changed, in the same unit.
    pub mtime_ms: i64,
}

impl Node {
    /// As this member itself created it; the time is not known.
    pub(crate) const fn created(data: Vec<u8>, czxid: i64, owner: i64) -> Self {
        Self { data, version: 0, czxid, mzxid: czxid, owner, ctime_ms: 0, mtime_ms: 0 }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Created, under this path (with the number, if sequential).
    Created {
        /// Its whole path.
        path: String,
        /// The transaction that created it.
        czxid: i64,
        /// The version of its data: 0 or 1.
        version: i32,
    },
    /// Set; the data now has this version.
    Changed {
        /// The version now.
        version: i32,
        /// The transaction that changed it.
        mzxid: i64,
    },
    /// Deleted.
    Ok,
    /// Read.
    Got(Option<Node>),
    /// The names of the children.
    Names(Vec<String>),
    /// The znode exists already.
    Exists,
    /// The znode does not exist.
    Missing,
    /// The znode has another version.
    Stale,
    /// It was certainly not applied: there was no connection in time, or it was refused.
    NotApplied(String),
    /// It may have been applied.
    Unknown(String),
    /// It was not applied: the election has members of this other recipe.
    OtherRecipe(&'static str),
}

impl fmt::Display for Outcome {
    /// For the log, where an outcome was not expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created { .. } => "the znode was created",
            Self::Changed { .. } => "the znode was set",
            Self::Ok => "it was done",
            Self::Got(Some(_)) => "the znode is there",
            Self::Got(None) | Self::Missing => "the znode does not exist",
            Self::Names(_) => "it has the names of the children",
            Self::Exists => "the znode exists already",
            Self::Stale => "the znode has another version",
            Self::NotApplied(why) | Self::Unknown(why) => why,
            Self::OtherRecipe(recipe) => return write!(f, "members use the recipe {recipe}"),
        })
    }
}

/// An operation that the engine asks of ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ZkOp {
    /// Read the znode at this path.
    Get(String),
    /// Read the names of the children of the znode at this path.
    Children(String),
    /// Create a sequential znode, and the missing znodes above it. `prefix` is unique, so that the znode can be found
    /// after a lost reply.
    CreateSequential {
        /// What the number is appended to.
        prefix: String,
        /// Its data.
        data: Vec<u8>,
        /// Whether it is ephemeral.
        ephemeral: bool,
    },
    /// Apply all of these writes, or none.
    Multi(Transaction),
}

impl ZkOp {
    /// Whether it only reads.
    pub const fn reads(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Children(_))
    }

    /// The path of what it is for.
    pub fn path(&self) -> &str {
        match self {
            Self::Get(path) | Self::Children(path) | Self::CreateSequential { prefix: path, .. } => path,
            Self::Multi(transaction) => &transaction.subject().path,
        }
    }
}

impl From<Transaction> for ZkOp {
    fn from(writes: Transaction) -> Self {
        Self::Multi(writes)
    }
}

impl From<ZnodeWrite> for ZkOp {
    fn from(write: ZnodeWrite) -> Self {
        Self::Multi(write.into())
    }
}

/// A durable watch: the runtime reads it at once and after every gap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// One znode: [`Event::Seen`].
    Node(Arc<str>),
    /// The children of a znode with their data: [`Event::SeenTree`].
    Tree(Arc<str>),
}

impl Watched {
    /// One znode.
    pub fn node(path: impl Into<Arc<str>>) -> Self {
        Self::Node(path.into())
    }

    /// The children of a znode with their data.
    pub fn tree(parent: impl Into<Arc<str>>) -> Self {
        Self::Tree(parent.into())
    }
}

/// A command to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Perform an operation on this session and no other; answer with [`Event::Done`].
    Perform {
        /// Its name.
        op: OpId,
        /// The session.
        epoch: Epoch,
        /// The request.
        request: ZkOp,
    },
    /// Watch exactly this set, on this session. A watch that exists already continues. A watch that was given up
    /// reports nothing more, so that no earlier result can follow the first result of a later watch.
    Watch {
        /// The session.
        epoch: Epoch,
        /// The znodes.
        set: Vec<Watched>,
    },
    /// Keep the lease renewed by heartbeats, or stop renewing it.
    KeepLease(bool),
    /// Prepare to lead; answer with `Prepared` or `PrepareFailed`.
    Prepare(Arc<Appointment>),
    /// Take over; answer with `TakenOver` or `TakeoverFailed`.
    TakeOver(EnteredLeadership),
    /// Another member is named as planned, for this reason. The work continues; answer with `MoveAccepted` or `MoveDeclined`. A
    /// `Stop` ends the question. Only after [`Wish::AskBeforeMoves`].
    AskBeforeMove(StopReason),
    /// READY is announced: lead on; answer with `WorkFailed` or `WorkFinished` if it ends.
    Lead,
    /// The work may continue until this time, and must have ended by then.
    WorkUntil(Time),
    /// Suspend the work, or continue it. Only with [`OnPause::Freeze`](super::OnPause::Freeze). Work that is suspended when
    /// it is to stop is not continued for that.
    Suspend(bool),
    /// End everything that was started, before the last `WorkUntil`; answer with `Stopped`.
    Stop(StopReason),
    /// The leader znode of this slot has another leader, or none.
    LeaderChanged(usize, Option<Arc<Current>>),
    /// A note for the log.
    Note(Note),
    /// This member's part is over; nothing follows.
    End(EndReason),
}

/// Which leadership a member is to acquire, and why; known before the leader znode is free.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Appointment {
    /// The slot; 0 if there is only one.
    #[serde(with = "limits::slot")]
    pub slot: usize,
    /// The term.
    #[serde(with = "limits::term")]
    pub term: u64,
    /// Why leadership changes.
    pub cause: Cause,
    /// The sentence of the decision.
    pub sentence: Cow<'static, str>,
    /// The previous leader.
    pub previous: Option<Box<Previous>>,
}

/// Leadership that has been entered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnteredLeadership {
    /// Why this leadership came about.
    pub appointment: Arc<Appointment>,
    /// The ballot that it was given to.
    pub ballot: Ballot,
    /// The fencing token.
    pub fencing_token: u64,
    /// Until when the work may continue, as known now.
    pub work_until: Time,
}

/// Why the work must end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum StopReason {
    /// Another member, or another term, is named.
    #[error("{0}")]
    NotNamed(String),
    /// Leadership is taken by force: its leader znode is deleted once the stop budget is over, or at once.
    #[error("{0}")]
    Removed(String),
    /// The lease nears its end without a renewal.
    #[error("the lease nears its end and could not be renewed")]
    LeaseEnds,
    /// The session is over.
    #[error("the ZooKeeper session is over")]
    SessionOver,
    /// The own leader znode is gone.
    #[error("the leader znode is gone")]
    LeaderZnodeLost,
    /// The own ballot is gone.
    #[error("the own ballot is gone")]
    BallotLost,
    /// Taking over failed.
    #[error("taking over failed: {0}")]
    TakeoverFailed(String),
    /// The work could not be kept running.
    #[error("the work could not be kept up: {0}")]
    WorkFailed(String),
    /// The work is finished.
    #[error("the work is finished")]
    WorkFinished,
    /// The member resigned by its own wish.
    #[error("it gives up leadership: {0}")]
    Resigned(String),
    /// The member leaves the election.
    #[error("this member leaves the election")]
    Leaving,
}

impl StopReason {
    /// Whether another member may already lead, or will once the stop budget is over. Then the stop must not wait for
    /// anything, such as hooks.
    pub const fn is_urgent(&self) -> bool {
        matches!(self, Self::Removed(_) | Self::LeaseEnds | Self::SessionOver | Self::LeaderZnodeLost)
    }
}

/// A note for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The log level.
    pub level: Level,
    /// Machine-readable kind, for metrics.
    pub kind: NoteKind,
    /// The sentence.
    pub text: Arc<str>,
}

/// Why the elector decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which of the reasons.
    pub reason: Reason,
    /// The sentence.
    pub sentence: String,
}

impl Skipped {
    /// Whether a leader is missing and no member is named for now: after too many takeovers, or failures of the job.
    /// The elector tries again by itself.
    pub fn is_hold(&self) -> bool {
        matches!(self.reason, Reason::Held | Reason::Backoff)
    }
}

/// Why the elector decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The elector's input is still being read.
    Reading,
    /// A record that the elector needs can't be used.
    Unreadable,
    /// No member decides.
    NoElector,
    /// The mode is observe.
    Observe,
    /// The mode is manual.
    Manual,
    /// A better candidate may be about to join.
    StartupWait,
    /// All is as it should be.
    Steady,
    /// The member that is named has not created the leader znode yet.
    Acquire,
    /// The former leader has not released leadership yet.
    Release,
    /// The former leader has not released leadership in time.
    ReleaseOverdue,
    /// The new leader is taking over.
    Takeover,
    /// An operator has ordered the leader to stay.
    Stay,
    /// Another member has not been better for long enough.
    BetterAfter,
    /// The leader has not led for long enough.
    MinTenure,
    /// Leadership may not move to another site at this time.
    FailbackWindow,
    /// An operator must confirm the move.
    Confirm,
    /// The leader blocks planned handovers now.
    HeldByLeader,
    /// No member may lead.
    Nobody,
    /// On hold after too many moves.
    Held,
    /// On hold while the job fails on one member after another.
    Backoff,
    /// Leadership was given up twice in a row, or by the only member that may lead.
    ResignedAgain,
    /// The leader shuts down, and no other member may lead.
    LeaderShutdown,
    /// The leader's site has failed, and no other member may lead.
    SiteFailed,
    /// The leader is not healthy, and no other member may lead.
    Unhealthy,
    /// Enough members can't reach the leader, and no other member may lead.
    Suspected,
}

impl Reason {
    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Unreadable => "unreadable",
            Self::NoElector => "no-elector",
            Self::Observe => "observe",
            Self::Manual => "manual",
            Self::StartupWait => "startup-wait",
            Self::Steady => "steady",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::ReleaseOverdue => "release-overdue",
            Self::Takeover => "takeover",
            Self::Stay => "stay",
            Self::BetterAfter => "better-after",
            Self::MinTenure => "min-tenure",
            Self::FailbackWindow => "failback-window",
            Self::Confirm => "confirm",
            Self::HeldByLeader => "held-by-leader",
            Self::Nobody => "nobody",
            Self::Held => "held",
            Self::Backoff => "backoff",
            Self::ResignedAgain => "resigned-again",
            Self::LeaderShutdown => "leader-shutdown",
            Self::SiteFailed => "site-failed",
            Self::Unhealthy => "unhealthy",
            Self::Suspected => "suspected",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The log level of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Info,
    /// An operator must look at it.
    Warn,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// Joining or leaving the election.
    Registration,
    /// A decision was written.
    Decided,
    /// Why nothing is decided.
    Skipped(Reason),
    /// Taking over, leading, stopping.
    Leadership,
    /// A takeover has failed.
    TakeoverFailed,
    /// READY, with how long each phase took.
    Ready {
        /// Why leadership changed.
        cause: Cause,
        /// How long each phase took.
        phases: crate::record::Phases,
    },
    /// A znode can't be read, or an operation is refused.
    Trouble,
}

/// Why this member's part is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It left.
    Left,
    /// Another living member of the election has the same id.
    DuplicateMember {
        /// The id.
        member: MemberId,
        /// The znode that the other one holds.
        path: String,
        /// The address of the other one, if it has published any.
        address: Option<String>,
    },
    /// The election has members of another recipe.
    OtherRecipe(&'static str),
}

/// Why a member can't continue in another process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unrest {
    /// Not now: a step is under way.
    #[error("{0}")]
    Now(&'static str),
    /// The other process has another recipe.
    #[error("it was a member under another recipe")]
    Recipe,
}
