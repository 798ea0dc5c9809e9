//! Runs programs, each under a [guard](crate::guard): starts and restarts a job, probes it, stops it.
//!
//! Every process of a job (its program, exec probe, a command beside it) runs under its own guard. None of them outlives its
//! deadline, and none but a job that is to do so ([`Job::outlives`](crate::Job::outlives)) the worker. A worker starts each of its children by [`start_child`](crate::start_child):
//! [`adopt_orphans`](crate::adopt_orphans) relies on it.
//!
//! When [`JobRun::stop`](crate::JobRun::stop) returns, it has verified that the guard has no descendant left, or, if the guard
//! was lost, that the worker finds no process of the job.

mod begin;
pub(crate) mod cgroup;
mod group;
mod guard_process;
mod guarded;
pub(crate) mod guards;
pub(crate) mod handover;
mod http;
pub(crate) mod lease;
pub(crate) mod left;
mod lineup;
pub(crate) mod lock;
mod machine;
mod notify;
pub(crate) mod oneshot;
pub(crate) mod orphans;
pub(crate) mod output;
pub(crate) mod probe;
pub(crate) mod reporter;
mod restart;
pub(crate) mod run;
pub(crate) mod run_end;
pub(crate) mod status;
mod supervisor;
pub(crate) mod sweep;
pub(crate) mod tally;
