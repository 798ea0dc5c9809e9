#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod capabilities;
mod config;
mod guard;
mod job;
mod memory_file;
pub mod own_file;
mod program;
mod rotating;

pub use boot_time::{BootTime, sleep_until};
pub use config::{
    Check, ExitCodes, Identity, Job, JobOutput, JobProcess, KILL_RESERVE, Limits, NotASize, NotAStopSignal,
    OnExit, ReadyProbe, RestartPolicy, RotatedFile, RunAs, Size, StopSignal, UserError,
};
pub use guard::{
    cgroup::lack as missing_controller,
    frames::Stream,
    last_will::LastWill,
    memory::NEEDED as LOCKED_MEMORY_NEEDED,
    protocol::{Exit, Why},
    run_if_guard, run_if_guard_or,
    tree::is_alive,
};
pub use job::{
    cgroup::{delegated_cgroup, delegated_to},
    guards::Guards,
    handover::{HandedRun, RunState},
    lease::{Lease, WorkTime},
    left::{LeftRun, is_one_left, left_runs},
    lock::{LockError, StateLock, file_name, lock_path},
    oneshot::{Deadline, Finished, OneShot},
    orphans::{NoOthers, adopt_guards, adopt_orphans, no_guards_but, start_child, tend_orphans},
    output::{Followed, KeptLine, KeptOutput, flush as flush_output},
    probe::probe_once,
    reporter::Reporter,
    run::JobRun,
    run_end::RunEnd,
    status::{NamedStatus, ProcessState, ProcessStatus, Stopped},
    sweep::sweep,
    tally::Tally,
};
pub use memory_file::file_in_memory;
pub use rotating::{RotatingFile, reopen_rotating_files};
