use std::{sync::Arc, time::Duration};

use election_core::config::OnPause;
use job_guard::ReadyProbe;

use super::{
    drill_orders::{DrillConfig, JobDrill},
    fence::Fence,
    hook::HookMode,
    key::Reach,
    output::OutputKeys,
    parse::choice,
    policy::PolicyConfig,
    reader::Section,
    spec::JobSpec,
    table::{UNDER_WAY, flat, nested, table, value},
};

table! {
    /// `[job.NAME]`: a program that runs on the leader, and its election.
    #[derive(Clone, Debug, PartialEq)]
    pub struct JobConfig {
        /// How the leader is found: "elector" (by the policy), "queue" (the member that has waited longest)
        /// or "single" (the fastest member).
        /// Only "elector" has policies and switchovers. All workers of a job must use the same.
        pub recipe: Recipe = Recipe::Elector => value().worker("members with different recipes could both lead").fixed();
        /// Whether the job's resource refuses fencing tokens older than the newest it has seen. The ledger's stores do.
        pub fenced: bool = false => value().worker(UNDER_WAY).set("true");
        /// Load of the job on the node that leads it, for the stage "capacity".
        pub load: u32 = DEFAULT_LOAD => value().applied().overlay(Reach::Safe).within(0..=MAX_LOAD);
        /// The program, its hooks and its checks.
        pub spec: Arc<JobSpec> = Arc::default() => flat();
        /// Where the job's output goes. `dr-worker logs` shows the last lines in any case. See docs/configuration.md.
        output: OutputKeys = OutputKeys::default() => nested().applied().overlay(Reach::Node);
        /// Policy of this job where it differs from `policy`. See docs/policies.md for stages that depend on other jobs or on
        /// the time of day.
        pub policy: PolicyConfig = PolicyConfig::default() => nested().overlay(Reach::Safe).inherits("policy").example("{ auto_moves = \"all\" }");
    }
    check JobConfig::check;
}

choice! {
    /// How the leader is found.
    pub enum Recipe {
        /// The member with the lowest ballot decides by policy.
        Elector = "elector",
        /// The member that has waited longest follows.
        Queue = "queue",
        /// The first member to create the leader znode follows.
        Single = "single",
    }
}

/// The load of a job by default.
pub(super) const DEFAULT_LOAD: u32 = 1;
const MAX_LOAD: u32 = 1_000_000;

impl JobConfig {
    /// Its name, and its election's.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// How soon members that are out of reach are suspected. `None` if no leader is replaced before its session has ended.
    pub fn suspect_after(&self) -> Option<Duration> {
        let policy = self.policy.engine(self.spec.stop_budget(), self.fenced);
        (self.recipe == Recipe::Elector && policy.may_suspect()).then_some(policy.suspect_after)
    }

    /// What a job of this name has by default.
    pub(super) fn named(name: &str, policy: &PolicyConfig, drill: &DrillConfig) -> Self {
        let allow = drill.allow.clone();
        let drill = JobDrill { allow, ..JobDrill::default() };
        let spec = JobSpec { name: name.to_owned(), drill, ..JobSpec::default() };
        Self { spec: Arc::new(spec), policy: policy.clone(), ..Self::default() }
    }

    fn check(&mut self, section: &mut Section<'_>) {
        if let Err(wrong) = election_core::Paths::new("/x", self.name()) {
            section.problem_here(wrong.to_string());
        }
        if self.recipe != Recipe::Elector {
            let recipe = self.recipe.as_str();
            if self.spec.measure.is_some() {
                let message = format!("the recipe {recipe:?} does not use it; only \"elector\" does");
                section.problem("measure", message);
            }
            section.again("policy", |section| PolicyConfig::refuse_what_takes_an_elector(section, recipe));
        }
        let asked = self.spec.hooks.before_stop.as_ref().filter(|hook| hook.mode == HookMode::Sync);
        let longer = self.spec.planned_stop_timeout().saturating_sub(self.spec.stop_timeout)
            + self.spec.demote_timeout()
            + asked.map_or(Duration::ZERO, |hook| hook.timeout);
        self.policy =
            std::mem::take(&mut self.policy).for_job(&self.spec.name, self.load).releasing_within(longer);
        let timeout = self.policy.election.takeover_timeout;
        let spec = Arc::make_mut(&mut self.spec);
        spec.freezes = matches!(self.policy.election.on_pause, OnPause::Freeze { .. });
        (spec.output, spec.output_limit) = self.output.clone().output();
        // Each is started once the one before has run for so long.
        let runs_for = |program: JobSpec| match program.ready {
            ReadyProbe::None { after } => after,
            _ => Duration::ZERO,
        };
        let after: Duration = spec.programs().into_iter().map(runs_for).sum();
        if after >= timeout {
            let key = if spec.processes.is_empty() { "ready" } else { "process" };
            let wrong =
                format!("after is {after:?}, but a takeover fails after {timeout:?} (takeover_timeout)");
            section.problem(key, wrong);
        }
        if let Some(longest) = spec.fence.as_ref().map(Fence::longest).filter(|longest| *longest >= timeout) {
            let wrong = format!(
                "its commands may take {longest:?} in all, but a takeover fails after {timeout:?} (takeover_timeout): \
                 shorten their timeouts, or set policy.takeover_timeout to more than {longest:?} plus the start of the job"
            );
            section.problem("fence", wrong);
        }
    }
}
