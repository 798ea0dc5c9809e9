//! The record of an evacuation: what moves out of a site, in which order, and how far it is.
//!
//! What follows from it is in `commands/evacuation/course.rs`.

use std::collections::BTreeSet;

use election_core::{
    config::{MemberId, SiteId},
    internals::{
        record::{Record, VERSION, limits},
        text,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{is_false, is_zero};

/// The last evacuation of a site, in `plans/evacuation`: one for all elections of a root. Each step is begun once, by a
/// transaction that writes this record and the request to the job's election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evacuation {
    /// Format version.
    pub v: u32,
    /// The site that is emptied.
    #[schemars(with = "String")]
    pub site: SiteId,
    /// The site to which everything moves; the best one for each job if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub to_site: Option<SiteId>,
    /// Move by forced failovers: the site is lost.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// With `force`: do not wait until leaders have stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub now: bool,
    /// Whether what was moved moves back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undo: bool,
    /// Whether the move back was given up: an evacuation of another site may replace this one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub abandoned: bool,
    /// The operator who gave the last order about it.
    #[serde(with = "text::line")]
    #[schemars(with = "String")]
    pub by: String,
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    #[schemars(with = "Option<String>")]
    pub reason: Option<String>,
    /// When it began, in milliseconds since the Unix epoch. No other evacuation of this root has the same time.
    #[serde(with = "limits::ms")]
    #[schemars(with = "u64")]
    pub at_ms: u64,
    /// The jobs, in the order in which they are listed.
    pub steps: Vec<EvacuationStep>,
}

/// The move of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvacuationStep {
    /// The job.
    #[serde(with = "text::line")]
    #[schemars(with = "String")]
    pub job: String,
    /// The jobs of this evacuation that it follows.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "text::line")]
    #[schemars(with = "BTreeSet<String>")]
    pub after: BTreeSet<String>,
    /// Who led the job before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<EvacuationLeader>,
    /// Who was expected to lead then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<EvacuationLeader>,
    /// How long a move may take by the policy of the job, in milliseconds; absent if the program that began the evacuation does
    /// not have that policy.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    #[schemars(with = "Option<u64>")]
    pub longest_ms: Option<u64>,
    /// How far it is.
    pub state: EvacuationState,
    /// Whether the present move, or the last one, is the one back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub back: bool,
    /// Whether this evacuation has drained the site for the job.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drained: bool,
    /// How often a move was begun.
    #[serde(default, with = "limits::count")]
    #[schemars(with = "u64")]
    pub tries: u64,
    /// How many of these moves were begun before the last order about the evacuation.
    #[serde(default, skip_serializing_if = "is_zero", with = "limits::count")]
    #[schemars(with = "u64")]
    pub tries_before: u64,
    /// The name of the request of the last move.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    #[schemars(with = "Option<String>")]
    pub request: Option<String>,
    /// The term of the job's decision when the last move began.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::decided")]
    #[schemars(with = "Option<u64>")]
    pub term: Option<u64>,
    /// When the last move began, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    #[schemars(with = "Option<u64>")]
    pub begun_ms: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    #[schemars(with = "Option<u64>")]
    pub ended_ms: Option<u64>,
    /// Who leads the job since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<EvacuationLeader>,
    /// Why it failed, or why nothing had to be moved.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    #[schemars(with = "Option<String>")]
    pub why: Option<String>,
}

/// A leader of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvacuationLeader {
    /// The member.
    #[schemars(with = "String")]
    pub member: MemberId,
    /// Its site.
    #[schemars(with = "String")]
    pub site: SiteId,
}

/// How far the move of a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvacuationState {
    /// It has not begun.
    #[default]
    Waiting,
    /// Its request is filed.
    Begun,
    /// The job is where it should be.
    Done,
    /// It has failed.
    Failed,
    /// It takes no part: an evacuation before this one has moved it, it was given up, or it had not begun when the evacuation
    /// was undone.
    Skipped,
}

impl EvacuationState {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Begun => "moving",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl EvacuationStep {
    /// The most moves of one job in one evacuation.
    pub const MAX_TRIES: u64 = 999;

    /// A move that has not begun.
    pub fn new(job: &str, after: BTreeSet<String>) -> Self {
        Self { job: job.to_owned(), after, ..Self::default() }
    }
}

impl Record for Evacuation {
    fn version(&self) -> u32 {
        self.v
    }

    fn check(&self) -> Result<(), String> {
        match self.steps.iter().find(|step| step.tries > EvacuationStep::MAX_TRIES) {
            Some(step) => {
                Err(format!("{} was moved more than {} times", step.job, EvacuationStep::MAX_TRIES))
            }
            None => Ok(()),
        }
    }
}

impl Evacuation {
    /// An evacuation without a step.
    pub fn new(site: SiteId, by: &str, at_ms: u64) -> Self {
        Self {
            v: VERSION,
            site,
            to_site: None,
            force: false,
            now: false,
            undo: false,
            abandoned: false,
            by: by.to_owned(),
            reason: None,
            at_ms,
            steps: Vec::new(),
        }
    }
}
