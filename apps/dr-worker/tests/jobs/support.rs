//! What these tests share.

#[path = "../../../../crates/job-guard/tests/support/tree.rs"]
#[allow(dead_code, unreachable_pub, reason = "job-guard's tests use the rest of it")]
mod tree;

use std::collections::BTreeMap;
use std::time::Duration;

use dr_worker::config::{
    ExitCodes, Hooks, JobDrill, JobOutput, JobSpec, Limits, ReadyProbe, RestartPolicy, StopSignal,
};
use dr_worker::worker::job::{JobEnv, new_guards};
use job_guard::Guards;

pub(crate) use tree::{Tree, until};

/// A shell job that runs in the directory of the tree.
pub(crate) fn spec(tree: &Tree, script: &str) -> JobSpec {
    JobSpec {
        name: "orders".into(),
        command: vec!["sh".into(), "-c".into(), script.into()],
        env: BTreeMap::from([tree.variable()]),
        working_dir: Some(tree.dir.path().to_owned()),
        no_new_privileges: None,
        run_as: None,
        as_worker: Vec::new(),
        limits: Limits::default(),
        stop_signal: StopSignal::Term,
        stop_timeout: Duration::from_millis(300),
        planned_stop_timeout: None,
        freezes: false,
        ready: ReadyProbe::None { after: Duration::ZERO },
        restart: RestartPolicy { max: 0, ..RestartPolicy::default() },
        exit_codes: ExitCodes::default(),
        output: JobOutput::Log,
        output_limit: None,
        hooks: Hooks::default(),
        fence: None,
        measure: None,
        liveness: None,
        fitness: None,
        standby: None,
        after: Vec::new(),
        restart_with: false,
        processes: Vec::new(),
        drill: JobDrill::default(),
        rehearsal: Default::default(),
    }
}

pub(crate) fn env() -> JobEnv {
    JobEnv {
        job: "orders".into(),
        member: "east-1".into(),
        site: "east".into(),
        slot: 0,
        term: 7,
        fencing_token: 42,
        cause: "startup".into(),
        previous_leader: None,
        previous_site: None,
        reason: "it is the first".into(),
        is_rehearsal: false,
    }
}

pub(crate) fn guards() -> Guards {
    new_guards().exe(env!("CARGO_BIN_EXE_dr-worker"))
}
