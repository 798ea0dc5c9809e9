//! A candidacy that continues in another process: see [`Resumption`](crate::engine::Resumption).

use serde::{Deserialize, Serialize};

use super::{ContestCandidacy, ContestStep};
use crate::engine::{
    core::Core,
    own::{OwnContestZnode, OwnZnode},
    recipe::QueueFormat,
};

/// A candidacy at rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContestAtRest {
    /// The format of the queue; none in the single recipe.
    queue: Option<String>,
    own: Option<Box<OwnZnode>>,
    candidacy: Box<ContestCandidacy>,
}

impl ContestAtRest {
    /// Whether it is a candidacy at rest under the recipe of this configuration.
    pub(crate) fn is_of(&self, core: &Core) -> bool {
        let is_same = self.queue.as_deref() == core.queue_format().map(QueueFormat::as_str);
        is_same && self.candidacy.is_at_rest()
    }

    /// Continues in another process. The watches read the own znode, and the one before it or the leader znode, as soon as
    /// the session is resumed; until then nothing is done.
    pub(crate) fn resume(self, core: &mut Core) -> ContestCandidacy {
        core.own.contest = OwnContestZnode { znode: self.own, ..OwnContestZnode::default() };
        // What is not at rest does not cross.
        ContestCandidacy {
            refused: 0,
            written: Vec::new(),
            stage: None,
            suspected: None,
            duplicate_of: None,
            ..*self.candidacy
        }
    }
}

impl ContestCandidacy {
    fn is_at_rest(&self) -> bool {
        matches!(self.step, ContestStep::Waiting | ContestStep::Leading | ContestStep::Pausing)
    }

    /// What crosses, if nothing is being looked for and nothing is in doubt.
    pub(crate) fn at_rest(&self, core: &Core) -> Option<ContestAtRest> {
        let is_behind = self.before.as_ref().is_none_or(|before| !before.gone);
        let is_sure = !self.unanswered && !self.look_again && is_behind && !core.own.contest.ranks_again;
        (is_sure && self.is_at_rest()).then(|| ContestAtRest {
            queue: core.queue_format().map(|format| format.as_str().to_owned()),
            own: core.own.contest.znode.clone(),
            candidacy: Box::new(self.clone()),
        })
    }
}
