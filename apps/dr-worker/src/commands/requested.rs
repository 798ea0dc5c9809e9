//! What is answered to a request: that it was filed, or why there is nothing to file.

use election_core::{
    config::MemberId,
    internals::{
        calendar::utc,
        record::{Current, FiledRequest, RequestState},
    },
};
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::schema::{Object, schema_of};

use super::operation::{Done, Outcome};

/// A request that was filed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Filed {
    /// The job.
    pub(crate) election: String,
    /// Its id, for `/requests/{id}`.
    pub(crate) request: String,
    /// Its progress.
    #[schemars(with = "Object")]
    pub(crate) outcome: RequestState,
    /// The time of a planned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) planned_for: Option<String>,
}

impl Filed {
    pub(crate) fn new(job: &str, filed: &FiledRequest) -> Self {
        Self::in_state(job, filed, filed.request.state.clone())
    }

    /// The same, after it was filed.
    pub(crate) fn in_state(job: &str, filed: &FiledRequest, outcome: RequestState) -> Self {
        let planned_for = match outcome {
            RequestState::Planned { at_ms } => Some(utc(at_ms)),
            _ => None,
        };
        Self { election: job.to_owned(), request: filed.which.name.clone(), outcome, planned_for }
    }
}

/// The requested state is reached already.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Needless {
    /// The job.
    election: String,
    request: (),
    outcome: ReachedBy,
}

/// Who has reached it.
#[derive(Serialize, JsonSchema)]
struct ReachedBy {
    #[serde(flatten)]
    state: Done,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    leader: Option<MemberId>,
}

impl Needless {
    /// `leader`: the one that leads already, of a move.
    pub(crate) fn new(job: &str, leader: Option<&Current>) -> Self {
        let (term, member) = (leader.map(|leader| leader.term), leader.map(|leader| leader.member.clone()));
        let outcome = ReachedBy { state: Done::Done, term, leader: member };
        Self { election: job.to_owned(), request: (), outcome }
    }
}

/// Leadership was taken at once, where the recipe has no elector.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Taken {
    /// The job.
    pub(crate) election: String,
    pub(crate) request: (),
    /// The former leader.
    #[schemars(with = "String")]
    pub(crate) taken_from: MemberId,
}

/// What is answered to a requested move.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Moved {
    Filed(Filed),
    Needless(Needless),
    Taken(Taken),
}

/// What is answered to a request to stop or to start the job.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Halted {
    Filed(Filed),
    Needless(Needless),
}

impl Outcome for Filed {
    fn answers() -> Vec<(u16, Schema)> {
        vec![(202, schema_of::<Self>())]
    }
}

impl Outcome for Halted {
    fn answers() -> Vec<(u16, Schema)> {
        vec![(202, schema_of::<Filed>()), (200, schema_of::<Needless>())]
    }
}

impl Outcome for Moved {
    fn answers() -> Vec<(u16, Schema)> {
        let mut answers = Halted::answers();
        answers.push((200, schema_of::<Taken>()));
        answers
    }
}
