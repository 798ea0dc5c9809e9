//! Where a job's own znodes are, beside those of its election.

use election_core::{Paths, config::MemberId};

/// Where plans about several elections are, among the elections of their root.
pub(crate) const PLANS: &str = "plans";

/// The paths of what only workers write.
pub(crate) trait WorkerPaths {
    /// The overlay over the configuration of the job.
    fn config(&self) -> String;

    /// A version of the overlay.
    fn config_version(&self, version: u64) -> String;

    /// What the leader's program does, for the jobs after this one.
    fn halted(&self) -> String;

    /// The drill under way.
    fn drill_order(&self) -> String;

    /// The parent of the members' answers to the drill.
    fn drill_answers(&self) -> String;

    /// A member's answer to the drill.
    fn drill_answer(&self, member: &MemberId) -> String;

    /// The ephemeral znode of the command that conducts the drill.
    fn drill_conductor(&self) -> String;

    /// The parent of the reports of drills.
    fn drill_runs(&self) -> String;

    /// The report of a drill.
    fn drill_run(&self, run: &str) -> String;

    /// Below [`PLANS`]: the evacuation of a site.
    fn evacuation(&self) -> String;

    /// Below [`PLANS`]: the ephemeral znode of the worker that carries it out.
    fn evacuation_carrier(&self) -> String;
}

impl WorkerPaths for Paths {
    fn config(&self) -> String {
        format!("{}/config", self.base())
    }

    fn config_version(&self, version: u64) -> String {
        format!("{}/config/v-{version:010}", self.base())
    }

    fn halted(&self) -> String {
        format!("{}/halted", self.base())
    }

    fn drill_order(&self) -> String {
        format!("{}/drill/order", self.base())
    }

    fn drill_answers(&self) -> String {
        format!("{}/drill/answers", self.base())
    }

    fn drill_answer(&self, member: &MemberId) -> String {
        format!("{}/drill/answers/{member}", self.base())
    }

    fn drill_conductor(&self) -> String {
        format!("{}/drill/conductor", self.base())
    }

    fn drill_runs(&self) -> String {
        format!("{}/drill/runs", self.base())
    }

    fn drill_run(&self, run: &str) -> String {
        format!("{}/drill/runs/{run}", self.base())
    }

    fn evacuation(&self) -> String {
        format!("{}/evacuation", self.base())
    }

    fn evacuation_carrier(&self) -> String {
        format!("{}/carrier", self.base())
    }
}
