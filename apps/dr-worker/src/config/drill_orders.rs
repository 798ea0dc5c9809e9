use std::{collections::BTreeMap, time::Duration};

use crate::znodes::DrillMode;
use job_guard::ReadyProbe;

use super::{
    drill_plan::DrillPlan,
    parse::{HOUR, MILLISECOND, SECOND, Words},
    probe::{ProbeKeys, ProbeKind},
    reader::Section,
    table::{flat, nested_as, optional, rest, table, value},
};

table! {
    /// `[drill]`: which orders of a drill this worker obeys, and the plans of drills.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DrillConfig {
        /// The modes that this worker accepts, for each job without its own list: "rehearse", "switchover", "kill-standby" (its
        /// process), "kill-job" (its process), "kill-worker" (this process), "cut-site" (this worker cuts itself off for a time).
        /// The last two affect all jobs of the worker, so each of them has to allow them.
        pub allow: Vec<DrillMode> = SAFE.to_vec() => value();
        /// Whether something starts this worker again after "kill-worker". A systemd service is recognised without it.
        pub restarted: bool = false => value();
        /// Plan of a practised failover, by a name of your choice: `dr-worker drill --plan quarterly` runs it, `drill check`
        /// evaluates it. See docs/drills.md.
        pub plans: BTreeMap<String, DrillPlan> = BTreeMap::new() => rest(DrillPlan::default()).name("quarterly");
    }
}

table! {
    /// `[job.NAME.drill]`: what drills may do with a job on this node.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct JobDrill {
        /// The modes, where they differ from drill.allow.
        pub allow: Vec<DrillMode> = SAFE.to_vec() => value();
        /// Probe of its service from each site during a drill, by the way that users reach it; "none": no probe.
        pub probe: Option<ReadyProbe> = None => nested_as(DrillProbe::default()).shows(
            "that the job's users are served"
        ).example("{ kind = \"http\", url = \"http://orders.example:8080/health\" }");
    }
}

table! {
    /// `[job.NAME.rehearsal]`: how a standby member rehearses the job.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Rehearsal {
        /// Whether this member rehearses the job.
        pub enabled: bool = true => value();
        /// Another program for it. Default: that of the job.
        pub command: Option<Vec<String>> = None => optional().example("[\"/usr/bin/ledger-check\"]");
        /// Whether the hook `prepare` runs before it. No other hook runs.
        pub prepares as prepare: bool = false => value();
        /// How long it may take until it is ready.
        pub timeout: Duration = 60 * SECOND => value().within(SECOND..=HOUR);
    }
}

table! {
    #[derive(Clone)]
    struct DrillProbe {
        probe: ProbeKeys = ProbeKeys {
            interval: 100 * MILLISECOND,
            timeout: 500 * MILLISECOND,
            ..ProbeKeys::default()
        } => flat();
    }
    check DrillProbe::check;
}

impl DrillProbe {
    fn check(&mut self, section: &mut Section<'_>) {
        if self.probe.kind == ProbeKind::Notify {
            let message = "users of a job send no notification; \"exec\", \"http\" and \"tcp\" are valid";
            section.problem("kind", message);
        }
    }
}

impl From<DrillProbe> for Option<ReadyProbe> {
    fn from(DrillProbe { probe }: DrillProbe) -> Self {
        probe.into()
    }
}

impl Words for DrillMode {
    const WORDS: &[(&str, Self)] = Self::WORDS;
}

/// What moves nothing, and what an operator with access to ZooKeeper can do without a drill.
const SAFE: [DrillMode; 2] = [DrillMode::Rehearse, DrillMode::Switchover];
