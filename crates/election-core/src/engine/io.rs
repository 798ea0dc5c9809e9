//! What comes in and what goes out.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{Ballot, MemberId},
    record::{Cause, Current, Health, Previous, RoundTrips},
    time::Time,
};

/// Which session of this process: 1 for the first, then counting.
pub type Epoch = u64;

/// Names an operation between [`Action::Perform`] and [`Event::Done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

impl Hash for OpId {
    /// As a signed 128-bit number, which nothing else is written as: so a model checker can
    /// number the operations that are under way from the first on.
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_i128(i128::from(self.0));
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A new session is active. Only after everything of the former one has
    /// stopped, see [`Engine::is_clear`](super::Engine::is_clear).
    SessionStarted {
        /// Which.
        epoch: Epoch,
        /// Its id at the ensemble.
        session_id: i64,
        /// The timeout that the server granted.
        granted: Duration,
    },
    /// The connection is lost; the session may live.
    SessionPaused {
        /// Which.
        epoch: Epoch,
    },
    /// The same session is connected again.
    SessionResumed {
        /// Which.
        epoch: Epoch,
    },
    /// The session is over, with everything ephemeral of it.
    SessionOver {
        /// Which.
        epoch: Epoch,
    },
    /// Until when the session is proved to be alive.
    Lease {
        /// Of which session.
        epoch: Epoch,
        /// Until when.
        valid_until: Time,
    },
    /// What a watched znode holds, `None` when it is absent.
    Seen {
        /// Read on which session.
        epoch: Epoch,
        /// The path.
        path: String,
        /// What is there.
        node: Option<Node>,
    },
    /// What the children of a watched znode hold, by name.
    SeenTree {
        /// Read on which session.
        epoch: Epoch,
        /// The parent's path.
        parent: String,
        /// The children.
        nodes: BTreeMap<String, Node>,
    },
    /// An operation has ended.
    Done {
        /// Which.
        op: OpId,
        /// How.
        outcome: Outcome,
    },
    /// The application answers.
    App(AppEvent),
    /// This member's health has changed.
    Health(Health),
    /// What this member says of its whole site has changed.
    SiteHealth(Option<Health>),
    /// This member has measured anew how far away others are.
    RoundTrips(RoundTrips),
    /// What this member measures of itself has changed: this is all of it. It goes before what is
    /// configured under the same name.
    Measured(BTreeMap<String, String>),
    /// A round of probes of the other members has ended. Said after each round, also
    /// when nothing has changed, and heeded only where
    /// [`Policy::may_suspect`](super::Policy::may_suspect).
    Probed {
        /// Everyone who has not answered, by ballot.
        unanswered: BTreeSet<Ballot>,
    },
    /// What this member wants of itself.
    Wish(Wish),
    /// Leave the election: stop the work, release, deregister.
    Leave {
        /// Whether what it leads is handed over first, as far as somebody can be named: it works on until the next leader
        /// has prepared, or [`Policy::acquire_timeout`](super::Policy::acquire_timeout) and two seconds have passed.
        /// `false` ends such a wait.
        hand_over: bool,
    },
    /// Time has passed; due at [`Engine::wakeup`](super::Engine::wakeup).
    Tick,
}

/// What a member wants of itself. Reasons are for people, and cut at 500 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wish {
    /// To give up the leadership that it has, or is on its way to, if any. It stands
    /// again: after [`Policy::exclusion`](super::Policy::exclusion), or as soon as nobody
    /// else may lead.
    Resign {
        /// Why.
        reason: String,
    },
    /// To have ended the leadership that it has by then, its work included; or as soon as
    /// the stop budget allows, if that is later. Says nothing of any later leadership.
    ResignBy {
        /// By when.
        by: Time,
        /// Why.
        reason: String,
    },
    /// To give up leadership, and not to be named until it rejoins, even if no other member is left.
    Withdraw {
        /// Why.
        reason: String,
    },
    /// To be a candidate again.
    Rejoin,
    /// Not to hand over as planned: switchovers are refused with this reason, and leadership does not move
    /// to a better member. Failovers and forced steps are not blocked.
    BlockSwitchover {
        /// Why.
        reason: String,
    },
    /// To hand over again.
    AllowSwitchover,
}

/// What the application answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AppEvent {
    /// `prepare` went well.
    Prepared,
    /// `prepare` failed.
    PrepareFailed(String),
    /// `takeover` went well: it serves.
    TakenOver,
    /// `takeover` failed.
    TakeoverFailed(String),
    /// The work ended by itself, or could not be kept running.
    WorkFailed(String),
    /// The work is finished.
    WorkFinished,
    /// Everything that was begun has ended.
    Stopped,
}

/// A znode as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its data.
    pub data: Vec<u8>,
    /// The version of the data.
    pub version: i32,
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that last changed it.
    pub mzxid: i64,
    /// The session that it lives with; 0 if it is persistent.
    pub owner: i64,
    /// When it was created, by the clock of the servers, in milliseconds since the Unix epoch; 0 if that
    /// is not known.
    pub ctime_ms: i64,
    /// When it was last changed, likewise.
    pub mtime_ms: i64,
}

impl Node {
    /// As it was created by this member itself, when is not known.
    pub(in crate::engine) const fn created(data: Vec<u8>, czxid: i64, owner: i64) -> Self {
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
    },
    /// Created, and counted.
    Counted {
        /// The transaction that created it.
        czxid: i64,
        /// Which creation it is: the version of the znode that counts.
        count: i32,
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
    /// There is such a znode already.
    Exists,
    /// There is no such znode.
    Missing,
    /// The version was another one.
    Stale,
    /// It was certainly not applied: no connection in time, or refused.
    NotApplied(String),
    /// It may have been applied.
    Unknown(String),
}

/// An operation on a znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Create a znode, and the persistent znodes above it where they are missing: not
    /// made yet, or deleted.
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// Whether it lives with the session.
        ephemeral: bool,
    },
    /// Create a sequential znode, and what is missing above it. `prefix` or `data` is unique,
    /// so that a lost reply can be mended by looking for it.
    CreateSequential {
        /// What the number is appended to.
        prefix: String,
        /// Its data.
        data: Vec<u8>,
        /// Whether it lives with the session.
        ephemeral: bool,
        /// Whether the prefix is what makes it unique; else the data.
        unique_prefix: bool,
    },
    /// Create an ephemeral znode, and count that in the version of another one, both in one
    /// transaction; and what is missing above it. Answered with [`Outcome::Counted`].
    CreateCounted {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// The znode that counts: it is set to no data.
        counter: String,
    },
    /// Set the data of this version.
    Set {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// The version that must stand.
        version: i32,
    },
    /// Delete it in this version.
    Delete {
        /// Its path.
        path: String,
        /// The version that must stand, or any.
        version: Option<i32>,
    },
    /// Delete it in this version, but only while another znode has that version: all
    /// in one transaction, for the versions of every znode begin at 0, and a late
    /// deletion could hit what stands there next. `Stale` if either version is another,
    /// or the other znode is not there.
    DeleteWhile {
        /// Its path.
        path: String,
        /// The version that must stand.
        version: i32,
        /// The other znode.
        unchanged: String,
        /// The version that must stand there.
        unchanged_version: i32,
    },
    /// Set or create one znode, and set another one of this version, in one transaction; `Stale` if the
    /// other one has another version, or is not there. Answered as the first.
    Together {
        /// A [`Request::Set`] or a [`Request::Create`].
        request: Box<Request>,
        /// The other znode's path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// The version that must stand there.
        version: i32,
    },
    /// Carry this out, but only while the znode `there` is there: both in one transaction; `Stale` if
    /// it is not. For what sets or deletes.
    While {
        /// The znode that must be there.
        there: String,
        /// What is to be done.
        request: Box<Request>,
    },
    /// Read it.
    Get {
        /// Its path.
        path: String,
    },
    /// Read the names of its children.
    Children {
        /// Its path.
        path: String,
    },
}

/// Something to watch, durably: the runtime reads it at once and after every gap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// One znode: [`Event::Seen`].
    Node(String),
    /// The children of a znode with their data: [`Event::SeenTree`].
    Tree(String),
}

/// Something that should happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Perform an operation on this session and no other; answer with [`Event::Done`].
    Perform {
        /// Its name.
        op: OpId,
        /// On which session.
        epoch: Epoch,
        /// What.
        request: Request,
    },
    /// Watch exactly this, on this session. What is watched already goes on; once a
    /// watch is given up it tells nothing more, so that nothing that it read before
    /// can follow the first word of a later one.
    Watch {
        /// On which session.
        epoch: Epoch,
        /// What.
        set: Vec<Watched>,
    },
    /// Keep the lease renewed by heartbeats, or let it go.
    KeepLease(bool),
    /// Prepare to lead; answer with `Prepared` or `PrepareFailed`.
    Prepare(Nomination),
    /// Take over; answer with `TakenOver` or `TakeoverFailed`.
    TakeOver(Grant),
    /// READY is announced: lead on; answer with `WorkFailed` or `WorkFinished` if it ends.
    Lead,
    /// The work may go on until then, and must have ended by then.
    WorkUntil(Time),
    /// End whatever was begun, in time before the last `WorkUntil`; answer with `Stopped`.
    Stop(StopReason),
    /// Another leader, or none, stands in the place of this slot.
    LeaderChanged(usize, Option<Current>),
    /// Something worth a line in the log.
    Note(Note),
    /// This member's part is over; nothing follows.
    End(EndReason),
}

/// Who is to lead, and why; known before the place is free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Nomination {
    /// Which slot it is to lead; 0 where there is only one.
    pub slot: usize,
    /// The term.
    pub term: u64,
    /// Why leadership changes.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who led before.
    pub previous: Option<Previous>,
}

/// Leadership that has been entered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// How it came about.
    pub nomination: Nomination,
    /// The ballot that it was given to.
    pub ballot: Ballot,
    /// The fencing token.
    pub fencing_token: u64,
    /// Until when the work may go on, as known now.
    pub work_until: Time,
}

/// Why the work must end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Somebody else, or another term, is named.
    NotNamed(String),
    /// The lease nears its end without a renewal.
    LeaseEnds,
    /// The session is over.
    SessionOver,
    /// The own leader znode is gone.
    LeaderZnodeLost,
    /// The own ballot is gone.
    BallotLost,
    /// Taking over failed.
    TakeoverFailed(String),
    /// The work could not be kept up.
    WorkFailed(String),
    /// The work is finished.
    WorkFinished,
    /// It gives up by its own wish.
    Resigned(String),
    /// The member leaves the election.
    Leaving,
}

impl StopReason {
    /// Whether somebody else may already be leading, so that nothing but ending
    /// matters: no hooks, no patience.
    pub const fn is_urgent(&self) -> bool {
        matches!(self, Self::LeaseEnds | Self::SessionOver | Self::LeaderZnodeLost)
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotNamed(who) => f.write_str(who),
            Self::LeaseEnds => f.write_str("the lease nears its end and could not be renewed"),
            Self::SessionOver => f.write_str("the ZooKeeper session is over"),
            Self::LeaderZnodeLost => f.write_str("the leader znode is gone"),
            Self::BallotLost => f.write_str("the own ballot is gone"),
            Self::TakeoverFailed(why) => write!(f, "taking over failed: {why}"),
            Self::WorkFailed(why) => write!(f, "the work could not be kept up: {why}"),
            Self::WorkFinished => f.write_str("the work is finished"),
            Self::Resigned(why) => write!(f, "it gives up leadership: {why}"),
            Self::Leaving => f.write_str("this member leaves the election"),
        }
    }
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How loud.
    pub level: Level,
    /// Machine-readable kind, for metrics.
    pub kind: NoteKind,
    /// The sentence.
    pub text: String,
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
    /// Whether a leader is missing and nobody is named for now: after too many takeovers, or failures of the job. It tries
    /// again by itself.
    pub fn is_hold(&self) -> bool {
        matches!(self.reason, Reason::Held | Reason::Backoff)
    }
}

/// Why the elector decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// What it goes by is still being read.
    Reading,
    /// A record that it goes by can't be used.
    Unreadable,
    /// No member decides.
    NoElector,
    /// The mode is observe.
    Observe,
    /// The mode is manual.
    Manual,
    /// Somebody better may be about to join.
    StartupWait,
    /// All is as it should be.
    Steady,
    /// The member that is named has not created the leader znode yet.
    Acquire,
    /// The former leader has not let go yet.
    Release,
    /// It should have let go by now.
    ReleaseOverdue,
    /// The new leader is taking over.
    Takeover,
    /// An operator told the leader to stay.
    Stay,
    /// Another member has not been better for long enough.
    BetterAfter,
    /// The leader has not led for long enough.
    MinTenure,
    /// Leadership may not move to another site at this time.
    FailbackWindow,
    /// An operator is to confirm the move.
    Confirm,
    /// The leader does not hand over now.
    HeldByLeader,
    /// No member may lead.
    Nobody,
    /// On hold after too many moves.
    Held,
    /// On hold while the job fails on one member after another.
    Backoff,
    /// Leadership was given up twice in a row.
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

/// How loud a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Info,
    /// Somebody should look.
    Warn,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// Standing in the election.
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
    /// Another living process has the same id.
    DuplicateMember {
        /// The id.
        member: MemberId,
        /// The znode that the other one holds.
        path: String,
    },
}
