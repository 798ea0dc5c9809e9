//! Which pipeline for which cause.

use std::collections::BTreeMap;

use election_core::{
    record::Cause,
    strategy::{Ranking, Round, Strategy},
};

use crate::pipeline::Pipeline;

/// Chooses a pipeline by the cause of a round: the first rule that names the cause
/// decides, and where none does, the default.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<(Vec<Cause>, Pipeline)>,
    otherwise: Pipeline,
}

impl Rules {
    /// No rules yet: every cause gets `otherwise`.
    pub fn new(otherwise: Pipeline) -> Self {
        Self { rules: Vec::new(), otherwise }
    }

    /// Adds a rule behind the rules that are there.
    #[must_use]
    pub fn when(mut self, causes: impl IntoIterator<Item = Cause>, pipeline: Pipeline) -> Self {
        self.rules.push((causes.into_iter().collect(), pipeline));
        self
    }

    /// Adds a rule before the rules that are there.
    pub(crate) fn ahead(mut self, causes: impl IntoIterator<Item = Cause>, pipeline: Pipeline) -> Self {
        self.rules.insert(0, (causes.into_iter().collect(), pipeline));
        self
    }

    /// The pipeline that ranks for `cause`.
    pub fn pipeline(&self, cause: Cause) -> &Pipeline {
        self.rules
            .iter()
            .find(|(causes, _)| causes.contains(&cause))
            .map_or(&self.otherwise, |(_, pipeline)| pipeline)
    }
}

impl Strategy for Rules {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        self.pipeline(round.cause).rank(round)
    }

    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        self.pipeline(cause).remark(attributes, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::{Healthy, OldestBallot};

    #[test]
    fn the_first_rule_that_names_the_cause_decides() {
        let rules = Rules::new(Pipeline::bare())
            .when([Cause::Startup], Pipeline::bare().filter(Healthy))
            .when([Cause::Startup, Cause::LeaderLost], Pipeline::bare().compare(OldestBallot));
        let stages = |cause| rules.pipeline(cause).stages().collect::<Vec<_>>();
        assert_eq!(stages(Cause::Startup), ["healthy", "member-id"]);
        assert_eq!(stages(Cause::LeaderLost), ["oldest-ballot", "member-id"]);
        assert_eq!(stages(Cause::Switchover), ["member-id"]);
    }
}
