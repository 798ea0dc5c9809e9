//! A line of a history.

use serde::{Deserialize, Serialize};

/// The reason of a store that refuses a token because it has seen a newer one.
pub const STALE: &str = "older token";

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When, in nanoseconds on a clock that all lines share.
    pub at: u64,
    /// Who wrote it: an incarnation of a job, an operator, the test. Operations are numbered by each of them for itself.
    pub by: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The first line: what the checks have to know.
    Setup(Setup),
    /// A process of a leader has begun to act.
    Lead(Leadership),
    /// It has acted.
    Act(Leadership),
    /// It has ended by itself, and acts no more.
    End(Leadership),
    /// An operation begins.
    Invoke {
        /// Its number.
        op: u64,
        /// What is asked.
        #[serde(flatten)]
        call: Call,
    },
    /// It was carried out.
    Ok {
        /// Its number.
        op: u64,
        /// What was answered.
        #[serde(flatten)]
        answer: Answer,
    },
    /// It was refused, and had no effect.
    Fail {
        /// Its number.
        op: u64,
        /// The reason; [`STALE`] if the token was too old.
        reason: String,
    },
    /// Whether it had an effect is not known. An operation without a last line is the same.
    Unknown {
        /// Its number.
        op: u64,
        /// The reason.
        reason: String,
    },
    /// Something was broken.
    Fault {
        /// Its number.
        fault: u64,
        /// What was done to what.
        what: String,
        /// The member that it hits, if that is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<String>,
        /// What the documents do not promise while it lasts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        excuses: Vec<Excuse>,
    },
    /// It was repaired.
    Healed {
        /// The number of the fault.
        fault: u64,
    },
    /// The machine itself did nothing for this time, which ended now.
    Stall {
        /// In milliseconds.
        ms: u64,
    },
    /// A worker has ended that the test has not killed.
    Ended {
        /// Its member.
        member: String,
        /// Its exit code; without one a signal has ended it.
        code: Option<i32>,
        /// Whether it was asked to end.
        asked: bool,
    },
    /// A process is still there after everything was ended.
    Left {
        /// Its number.
        pid: u32,
        /// Its command line.
        command: String,
    },
    /// The end: all faults are healed, and somebody must lead until here.
    Finished,
    /// By the servers: a decision names a leader of a slot, or none.
    Decided {
        /// The job.
        job: String,
        /// The slot.
        slot: u64,
        /// The term in which the slot was decided.
        term: u64,
        /// Who is named.
        member: Option<String>,
        /// The cause, by its name in the records.
        cause: String,
    },
    /// By the servers: the leader znode was created.
    Acquired(Leadership),
    /// By the servers: that leader znode was deleted, or its session has ended.
    Released(Leadership),
    /// By the servers: the state of an operator's request was written.
    Request {
        /// Its id, such as `r-0000000000`.
        request: String,
        /// What is requested, such as `restart-standby`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// The state.
        #[serde(flatten)]
        state: RequestState,
    },
    /// By the servers: a record that can't be read, so the checks do not know it.
    Unread {
        /// Its znode.
        path: String,
    },
}

/// The setup of what is checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The session timeout that the servers grant, in milliseconds.
    pub session_timeout_ms: u64,
    /// For how many session timeouts a slot may be without an acting leader.
    pub leaderless_timeouts: u64,
    /// What the servers' wall clock shows more than the clock of the history, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<i64>,
}

/// One leadership: who leads what, and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Leadership {
    /// The job.
    pub job: String,
    /// The slot, counted from 0.
    pub slot: u64,
    /// The leader.
    pub member: String,
    /// Its term.
    pub term: u64,
    /// Its fencing token.
    pub token: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum Call {
    /// The store is to refuse all older tokens from now on.
    Claim {
        /// The store.
        store: String,
        /// The token.
        token: u64,
    },
    /// A value is appended to the store.
    Write {
        /// The store.
        store: String,
        /// The token.
        token: u64,
        /// The value, which nobody else writes.
        value: u64,
    },
    /// The number of values in the store, or all of them.
    Read {
        /// The store.
        store: String,
    },
    /// An operator asks for something.
    Operator {
        /// The command.
        verb: String,
        /// Its other words.
        #[serde(default)]
        arguments: Vec<String>,
        /// What the documents do not promise after it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        excuses: Vec<Excuse>,
    },
    /// GET `/leader` of a member.
    Leader {
        /// The member.
        member: String,
        /// The job.
        job: String,
    },
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Nothing more.
    Done,
    /// The number of values in the store.
    Count {
        /// The number.
        count: u64,
    },
    /// All values in the store, oldest first, each with its token.
    Values {
        /// Token and value.
        values: Vec<(u64, u64)>,
    },
    /// What an operator was told.
    Told {
        /// The exit code of a command, or the status code of an answer.
        code: i64,
        /// The id of the request.
        request: Option<String>,
        /// The outcome of the request, as far as it was told.
        state: Option<RequestState>,
    },
    /// The answer of `/leader`.
    Status {
        /// The status code.
        code: u16,
        /// The token of the leader, with 200.
        leadership: Option<Leadership>,
    },
}

/// The state of a request, with the names of the documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RequestState {
    /// It begins later.
    Planned,
    /// It has not begun.
    Pending,
    /// It has begun.
    Accepted {
        /// The term that carries it out.
        term: u64,
    },
    /// It was carried out.
    Done {
        /// The term that has carried it out.
        term: u64,
        /// The leader of that term.
        leader: String,
    },
    /// It failed.
    Failed,
    /// It has not begun in time.
    Expired,
    /// It was withdrawn before it began.
    Cancelled,
}

/// What the documents do not promise while something is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excuse {
    /// Two may act.
    Overlap,
    /// Nobody may lead.
    NoLeader,
}
