//! The weak points of the published algorithm, and the rule that removes each.

/// The rules that the published algorithm lacks. Each is a rule of this crate, or of the programs around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Remedy {
    /// V1: a leader znode that this session owns is adopted.
    Adopt,
    /// V2: work ends before the session can, by the local clock.
    Deadline,
    /// V3: a process that wakes checks its deadline first.
    DeadlineFirst,
    /// V4: only the owner deletes.
    OwnerDeletes,
    /// V5: the resource refuses older tokens.
    Tokens,
    /// V6: the token is shown to the resource before anything is read there.
    Claim,
    /// V7: the leader is an incarnation, not a name.
    Incarnation,
    /// V8: the elector compares with its decision, not with the present leader.
    CompareWithDecision,
    /// V9: the elector makes a pass after everything that happens.
    LevelTriggered,
    /// V12: the leader znode is deleted with the session.
    Ephemeral,
    /// V14: stopping has a budget within the session's timeout, and is ended with it.
    StopBudget,
    /// V16: the program ends with its daemon.
    Guard,
    /// V18: exclusions are forgotten when the last candidate would go.
    LastCandidate,
}

impl Remedy {
    pub(crate) const ALL: [Self; 13] = [
        Self::Adopt,
        Self::Deadline,
        Self::DeadlineFirst,
        Self::OwnerDeletes,
        Self::Tokens,
        Self::Claim,
        Self::Incarnation,
        Self::CompareWithDecision,
        Self::LevelTriggered,
        Self::Ephemeral,
        Self::StopBudget,
        Self::Guard,
        Self::LastCandidate,
    ];

    /// Its weak point, and the rule as text.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Adopt => ("V1", "a leader znode that this session owns is adopted; its czxid is the token"),
            Self::Deadline => ("V2", "work ends by a local deadline, before the session can"),
            Self::DeadlineFirst => ("V3", "a process that wakes checks its deadline before anything else"),
            Self::OwnerDeletes => ("V4", "the leader znode is deleted only by the session that owns it"),
            Self::Tokens => ("V5", "the resource refuses tokens older than the newest it was shown"),
            Self::Claim => ("V6", "the token is shown to the resource before anything is read there"),
            Self::Incarnation => ("V7", "a leader is an incarnation, never a name"),
            Self::CompareWithDecision => {
                ("V8", "the elector compares with its decision, not with the present leader")
            }
            Self::LevelTriggered => ("V9", "the elector makes a pass after every event and every reconnect"),
            Self::Ephemeral => ("V12", "the leader znode is ephemeral"),
            Self::StopBudget => {
                ("V14", "stopping has a budget within the session's timeout, and is ended with it")
            }
            Self::Guard => ("V16", "the program ends with its daemon"),
            Self::LastCandidate => ("V18", "exclusions are forgotten when the last candidate would go"),
        }
    }

    /// A rule that hides the failure without this one, so that both must be missing.
    pub(crate) const fn covered_by(self) -> Option<Self> {
        match self {
            Self::CompareWithDecision => Some(Self::LevelTriggered),
            _ => None,
        }
    }

    /// The corresponding rule of this project, by the names of `docs/model.md`.
    pub(crate) const fn in_the_engine(self) -> &'static str {
        match self {
            Self::Adopt => "In the engine: `AdoptOwnZnode`.",
            Self::Deadline => "In the engine: `Lease`, which rests on `Heartbeats`.",
            Self::DeadlineFirst => "In the engine: `DeadlineFirst`; and `Guard` and `SessionPin` around it.",
            Self::OwnerDeletes => "In the engine: `DeleteOwnOnly` and `OwnerChecked`.",
            Self::Tokens => "At the resource: `Tokens`.",
            Self::Claim => "In the program's takeover: `Claim`.",
            Self::Incarnation => "In the engine: `Ballots`.",
            Self::CompareWithDecision => {
                "In the engine: there is nothing to switch off, a decision is made from the one before."
            }
            Self::LevelTriggered => "In the engine: `LevelTriggered`.",
            Self::Ephemeral => {
                "In the engine: there is nothing to switch off: the leader znode is always created as an ephemeral."
            }
            Self::StopBudget => {
                "In the engine: the budget ends with the lease, and is checked against the granted timeout; `Guard` ends what takes longer."
            }
            Self::Guard => "Around the engine: `Guard`.",
            Self::LastCandidate => {
                "In the engine: `LastCandidate`; and `ExclusionsInDecision`, for where the elector changes."
            }
        }
    }
}
