//! Where a job's own znodes are, beside those of its election.

use election_core::{Paths, config::MemberId};

/// Where plans about several elections are, among the elections of their root.
pub(crate) const PLANS: &str = "plans";

/// The paths of what only workers write.
pub(crate) trait WorkerPaths {
    /// The parent of all of them.
    fn base(&self) -> &str;

    /// The overlay over the configuration of the job.
    fn config(&self) -> String {
        format!("{}/config", self.base())
    }

    /// A version of the overlay.
    fn config_version(&self, version: u64) -> String {
        format!("{}/config/v-{version:010}", self.base())
    }

    /// What the leader's program does, for the jobs after this one.
    fn halted(&self) -> String {
        format!("{}/halted", self.base())
    }

    /// The drill under way.
    fn drill_order(&self) -> String {
        format!("{}/drill/order", self.base())
    }

    /// The parent of the members' answers to the drill.
    fn drill_answers(&self) -> String {
        format!("{}/drill/answers", self.base())
    }

    /// A member's answer to the drill.
    fn drill_answer(&self, member: &MemberId) -> String {
        format!("{}/drill/answers/{member}", self.base())
    }

    /// The ephemeral znode of the command that conducts the drill.
    fn drill_conductor(&self) -> String {
        format!("{}/drill/conductor", self.base())
    }

    /// The parent of the reports of drills.
    fn drill_runs(&self) -> String {
        format!("{}/drill/runs", self.base())
    }

    /// The report of a drill.
    fn drill_run(&self, run: &str) -> String {
        format!("{}/drill/runs/{run}", self.base())
    }

    /// Below [`PLANS`]: the evacuation of a site.
    fn evacuation(&self) -> String {
        format!("{}/evacuation", self.base())
    }

    /// Below [`PLANS`]: the ephemeral znode of the worker that carries it out.
    fn evacuation_carrier(&self) -> String {
        format!("{}/carrier", self.base())
    }
}

impl WorkerPaths for Paths {
    fn base(&self) -> &str {
        Paths::base(self)
    }
}
