use std::{collections::BTreeMap, sync::Arc, time::Duration};

use election_core::OnPause;
use job_guard::{ExitCodes, ReadyProbe, RestartPolicy, StopSignal};

use super::{
    check::read_checks,
    drill_orders::{DrillConfig, JobDrill},
    fence::Fence,
    hook::Hooks,
    identity::{read_as_worker, read_run_as},
    limits::read_limits,
    output::read_output,
    parse::{Mismatch, Parse, choice},
    policy::PolicyConfig,
    probe::{READY, read_probe},
    reader::Section,
    spec::{JobSpec, Measure},
    tree::{Node, Origin},
};

/// `[job.NAME]`: a program that runs on the leader, and its election.
#[derive(Clone, Debug, PartialEq)]
pub struct JobConfig {
    /// How the leader is found.
    pub recipe: Recipe,
    /// Whether the resource that the program writes to checks fencing tokens.
    pub fenced: bool,
    /// How much of its capacity it takes of the node that leads it.
    pub load: u32,
    /// When and where its leadership moves.
    pub policy: PolicyConfig,
    /// The program, its hooks and its checks.
    pub spec: Arc<JobSpec>,
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
    later: []
}

impl Parse for StopSignal {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let name = String::parse(node)?;
        name.parse().map_err(|e| Mismatch::from(format!("{e}")))
    }

    fn show(&self) -> String {
        self.to_string().show()
    }

    #[cfg(test)]
    fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::schema(generator)
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);
/// Between two runs of a program whose output is written to ZooKeeper.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

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

    pub(super) fn read(
        name: &str,
        section: &mut Section<'_>,
        policy: &PolicyConfig,
        drill: &DrillConfig,
    ) -> Option<Self> {
        if let Err(wrong) = election_core::Paths::new("/x", name) {
            section.problem_here(wrong.to_string());
        }
        let recipe = section.or("recipe", Recipe::Elector);
        let command = section.required(
            "command",
            "the program to run on the leader and its arguments, such as [\"/usr/bin/job\", \"--fast\"]",
        );
        let env = section.or("env", BTreeMap::new());
        let working_dir = section.optional("working_dir");
        let no_new_privileges = section.optional("no_new_privileges");
        let run_as = read_run_as(section);
        let as_worker = read_as_worker(section, run_as.as_ref());
        let limits = section.table("limits", read_limits);
        let stop_signal = section.or("stop_signal", StopSignal::default());
        let stop_timeout = section.duration("stop_timeout", Duration::from_secs(2), Duration::ZERO..=HOUR);
        let ready = section.table("ready", |section| {
            read_probe(section, &READY, |section| ReadyProbe::None {
                after: section.duration("after", Duration::from_secs(1), Duration::ZERO..=HOUR),
            })
        });
        let restart = section.table("restart", read_restart);
        let exit_codes = section.table("exit_codes", read_exit_codes);
        let output = section.table("output", read_output);
        let hooks = section.table("hooks", Hooks::read);
        let fence = section.optional_table("fence", Fence::read).flatten();
        let (liveness, fitness) = read_checks(section);
        let fenced = section.or("fenced", false);
        let measure = section.optional_table("measure", read_measure).flatten();
        if measure.is_some() && recipe != Recipe::Elector {
            let recipe = recipe.as_str();
            let message = format!("the recipe {recipe:?} does not use it; only \"elector\" does");
            section.problem("measure", message);
        }
        let drill = JobDrill::read(section, drill);
        let load = Self::read_load(section);
        let policy = Self::read_policy_for(recipe, section, policy).for_job(name, load);
        if let Some(ReadyProbe::None { after }) = ready
            && after >= policy.election.takeover_timeout
        {
            let timeout = policy.election.takeover_timeout;
            let wrong =
                format!("after is {after:?}, but a takeover fails after {timeout:?} (takeover_timeout)");
            section.problem("ready", wrong);
        }
        if let Some(fence) =
            fence.as_ref().filter(|fence| fence.longest() >= policy.election.takeover_timeout)
        {
            let (longest, timeout) = (fence.longest(), policy.election.takeover_timeout);
            let wrong = format!(
                "its commands may take {longest:?} in all, but a takeover fails after {timeout:?} (takeover_timeout): \
                 shorten their timeouts, or set policy.takeover_timeout to more than {longest:?} and the start of the job"
            );
            section.problem("fence", wrong);
        }
        Some(Self {
            recipe,
            fenced,
            load,
            spec: Arc::new(JobSpec {
                name: name.to_owned(),
                command: command?,
                env,
                working_dir,
                no_new_privileges,
                run_as,
                as_worker,
                limits,
                stop_signal,
                stop_timeout,
                freezes: matches!(policy.election.on_pause, OnPause::Freeze { .. }),
                ready: ready?,
                restart,
                exit_codes,
                output: output.clone()?.0,
                output_limit: output?.1,
                hooks,
                fence,
                measure,
                liveness,
                fitness,
                drill,
            }),
            policy,
        })
    }

    /// Only the job's policy, for programs that do not run it.
    pub(super) fn read_policy(name: &str, section: &mut Section<'_>, base: &PolicyConfig) -> PolicyConfig {
        let load = Self::read_load(section);
        Self::read_policy_for(Recipe::Elector, section, base).for_job(name, load)
    }

    fn read_load(section: &mut Section<'_>) -> u32 {
        let load = section.or("load", DEFAULT_LOAD);
        if load > MAX_LOAD {
            section.problem("load", format!("{load} is out of range; 0 to {MAX_LOAD} is valid"));
        }
        load.min(MAX_LOAD)
    }

    fn read_policy_for(recipe: Recipe, section: &mut Section<'_>, base: &PolicyConfig) -> PolicyConfig {
        let unset = Origin::Inherited("policy".to_owned());
        section.table_over("policy", unset, |section| {
            if recipe != Recipe::Elector {
                PolicyConfig::refuse_what_takes_an_elector(section, recipe.as_str());
            }
            PolicyConfig::read(section, base)
        })
    }
}

fn read_restart(section: &mut Section<'_>) -> RestartPolicy {
    let base = RestartPolicy::default();
    let limits = MILLISECOND..=24 * HOUR;
    let restart = RestartPolicy {
        max: section.or("max", base.max),
        within: section.duration("within", base.within, limits.clone()),
        backoff: section.duration("backoff", base.backoff, limits.clone()),
        backoff_max: section.duration("backoff_max", base.backoff_max, limits),
    };
    if restart.backoff_max < restart.backoff {
        section.problem("backoff_max", "it is shorter than backoff");
    }
    restart
}

fn read_exit_codes(section: &mut Section<'_>) -> ExitCodes {
    let mut read = |key| {
        let codes: Vec<u32> = section.or(key, Vec::new());
        if let Some(code) = codes.iter().find(|code| **code > 255) {
            section.problem(key, format!("{code} is no exit code; 0 to 255 is valid"));
        }
        codes.into_iter().map(u32::cast_signed).collect::<Vec<_>>()
    };
    let codes = ExitCodes { stay_down: read("stay_down"), not_here: read("not_here") };
    if let Some(code) = codes.not_here.iter().find(|code| codes.stay_down.contains(code)) {
        section.problem("not_here", format!("{code} is in stay_down too; it can mean only one of them"));
    }
    codes
}

fn read_measure(section: &mut Section<'_>) -> Option<Measure> {
    let command = section.required(
        "command",
        "the program to run and its arguments; it prints name=value lines or a JSON object",
    );
    let interval = section.duration("interval", Duration::from_secs(10), SHORTEST_INTERVAL..=HOUR);
    let timeout = section.duration("timeout", Duration::from_secs(5), MILLISECOND..=HOUR);
    let keep = section.duration("keep", Duration::from_secs(60), Duration::ZERO..=24 * HOUR);
    Some(Measure { command: command?, interval, timeout, keep })
}
