use std::{ops::RangeInclusive, time::Duration};

use election_core::record::DrillMode;
use job_guard::ReadyProbe;

use super::{
    parse::Words,
    probe::{Tried, read_probe},
    reader::Section,
    tree::Origin,
};

/// `[drill]`: which orders of a drill this worker obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillConfig {
    /// The modes that jobs allow which set none.
    pub allow: Vec<DrillMode>,
    /// Whether something else than systemd starts this worker again when it was killed.
    pub restarted: bool,
}

/// `[job.NAME.drill]` and `[job.NAME.rehearsal]`: what drills may do with a job on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDrill {
    /// The modes that are allowed.
    pub allow: Vec<DrillMode>,
    /// How the job's service is probed during a drill, as its users reach it; `None`: not at all.
    pub probe: Option<ReadyProbe>,
    /// Whether this member rehearses the job.
    pub rehearses: bool,
    /// The program of a rehearsal and its arguments; the job's own if `None`.
    pub command: Option<Vec<String>>,
    /// Whether the hook `prepare` is a part of the rehearsal.
    pub prepares: bool,
    /// How long the rehearsal may take until it is ready.
    pub timeout: Duration,
}

impl Words for DrillMode {
    const WORDS: &[(&str, Self)] = &[
        ("rehearse", Self::Rehearse),
        ("switchover", Self::Switchover),
        ("kill-job", Self::KillJob),
        ("kill-worker", Self::KillWorker),
        ("cut-site", Self::CutSite),
    ];
}

/// What moves nothing, and what an operator with access to ZooKeeper can do without a drill.
const SAFE: [DrillMode; 2] = [DrillMode::Rehearse, DrillMode::Switchover];

/// How long a rehearsal may take by default, as a takeover.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Default for JobDrill {
    fn default() -> Self {
        Self {
            allow: SAFE.to_vec(),
            probe: None,
            rehearses: true,
            command: None,
            prepares: false,
            timeout: TIMEOUT,
        }
    }
}

const PROBE: Tried = Tried {
    says: "that the job's users are served",
    interval: Duration::from_millis(100),
    timeout: Duration::from_millis(500),
};

const TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

impl DrillConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self { allow: section.or("allow", SAFE.to_vec()), restarted: section.or("restarted", false) }
    }
}

impl JobDrill {
    pub(super) fn read(section: &mut Section<'_>, node: &DrillConfig) -> Self {
        let unset = Origin::Inherited("drill".to_owned());
        let (allow, probe) = section.table_over("drill", unset, |section| {
            let allow = section.or("allow", node.allow.clone());
            let probe = section.table("probe", |section| {
                let probe = read_probe(section, &PROBE, |_| ReadyProbe::None { after: Duration::ZERO });
                if probe == Some(ReadyProbe::Notify) {
                    section.problem(
                        "kind",
                        "users of a job send no notification; \"exec\", \"http\" and \"tcp\" are valid",
                    );
                }
                probe
            });
            (allow, probe.filter(|probe| probe.pace().is_some()))
        });
        section.table("rehearsal", |section| Self {
            allow,
            probe,
            rehearses: section.or("enabled", true),
            command: section.optional("command"),
            prepares: section.or("prepare", false),
            timeout: section.duration("timeout", TIMEOUT, TIMEOUTS),
        })
    }
}
