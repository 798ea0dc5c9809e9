//! What the engine asks of a candidacy, whatever its recipe.

use crate::{
    engine::{
        core::Core,
        io::{EndReason, Node, Outcome, Watched},
        leader::OwnLeadership,
    },
    ids::Ballot,
    time::Time,
};

/// A candidacy under one recipe.
pub(crate) trait ByRecipe {
    // ---- the session ----

    /// A session has begun: this member joins the election. Nothing of a former session is kept.
    fn begin(&mut self, core: &mut Core);

    fn session_paused(&mut self) {}

    /// The connection was lost, and has returned.
    fn session_resumed(&mut self, core: &mut Core);

    fn session_over(&mut self, core: &mut Core);

    /// This process did not run for a while.
    fn look_again(&mut self) {}

    // ---- taking the next steps ----

    /// Takes the next step towards joining or leaving the election, if none is under way.
    fn advance(&mut self, core: &mut Core, leader: &mut OwnLeadership);

    /// The elector's pass.
    fn decide(&mut self, _: &mut Core) {}

    /// The step that was under way has ended.
    fn done(&mut self, core: &mut Core, leader: &mut OwnLeadership, outcome: &Outcome);

    /// A watch has read a znode of this member's own, or the znode before it.
    fn saw(&mut self, core: &mut Core, leader: &mut OwnLeadership, path: &str, node: Option<&Node>);

    // ---- reading the state ----

    /// The znodes to watch for it.
    fn watched(&self, core: &Core) -> Vec<Watched>;

    /// The path of the znode right before the own one, while that exists as far as is known.
    fn predecessor(&self, core: &Core) -> Option<String>;

    /// Whether no znode of this member is left in the election.
    fn is_gone(&self) -> bool;

    /// How this member's part has ended, once it is gone.
    fn end(&self, _: &Core) -> EndReason {
        EndReason::Left
    }

    /// The name of the own znode, once this member is a candidate.
    fn ballot(&self, core: &Core) -> Option<Ballot>;

    /// When it continues even without an event, apart from retries.
    fn wake(&self, core: &Core) -> Option<Time>;

    /// Whether it is a candidate that pauses after a failure, or is not fit.
    fn is_paused(&self) -> bool {
        false
    }

    /// Whether this member may have to lead soon by this recipe alone.
    fn keeps_lease(&self) -> bool {
        false
    }
}
