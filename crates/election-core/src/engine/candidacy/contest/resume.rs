//! A candidacy that continues in another process: see [`Resumption`](crate::engine::Resumption).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Before, ContestCandidacy, ContestStep};
use crate::{
    engine::{
        core::Core,
        own::{OwnContestZnode, OwnZnode},
        recipe::QueueFormat,
    },
    record::Previous,
    time::Time,
};

/// A candidacy at rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContestAtRest {
    /// The format of the queue; none in the single recipe.
    queue: Option<String>,
    part: Step,
    own: Option<Box<OwnZnode>>,
    before: Option<Box<Before>>,
    attempts: u32,
    failures: u32,
    /// Times since the clock's origin.
    join_at: Option<Duration>,
    serving_since: Option<Duration>,
    has_waited: bool,
    previous: Option<Box<Previous>>,
}

/// The steps in which a candidacy is at rest.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    Waiting,
    Leading,
    Pausing,
}

impl ContestAtRest {
    /// Whether it is a candidacy under the recipe of this configuration.
    pub(crate) fn is_of(&self, core: &Core) -> bool {
        self.queue.as_deref() == core.queue_format().map(QueueFormat::as_str)
    }
}

impl ContestCandidacy {
    /// What crosses, if nothing is being looked for and nothing is in doubt.
    pub(crate) fn at_rest(&self, core: &Core) -> Option<ContestAtRest> {
        let part = match self.step {
            ContestStep::Waiting => Step::Waiting,
            ContestStep::Leading => Step::Leading,
            ContestStep::Pausing => Step::Pausing,
            _ => return None,
        };
        let is_behind = self.before.as_ref().is_none_or(|before| !before.gone);
        if self.unanswered || self.look_again || !is_behind || core.own.contest.ranks_again {
            return None;
        }
        Some(ContestAtRest {
            queue: core.queue_format().map(|format| format.as_str().to_owned()),
            part,
            own: core.own.contest.znode.clone(),
            before: self.before.clone(),
            attempts: self.attempts,
            failures: self.failures,
            join_at: self.join_at.map(Time::since_origin),
            serving_since: self.serving_since.map(Time::since_origin),
            has_waited: self.has_waited,
            previous: self.previous.clone(),
        })
    }

    /// Continues in another process. The watches read the own znode, and the one before it or the leader znode, as soon as
    /// the session is resumed; until then nothing is done.
    pub(crate) fn resume(core: &mut Core, from: ContestAtRest) -> Self {
        core.own.contest = OwnContestZnode { znode: from.own, ..OwnContestZnode::default() };
        Self {
            step: match from.part {
                Step::Waiting => ContestStep::Waiting,
                Step::Leading => ContestStep::Leading,
                Step::Pausing => ContestStep::Pausing,
            },
            before: from.before,
            attempts: from.attempts,
            failures: from.failures,
            join_at: from.join_at.map(Time::from_origin),
            serving_since: from.serving_since.map(Time::from_origin),
            has_waited: from.has_waited,
            previous: from.previous,
            ..Self::default()
        }
    }
}
