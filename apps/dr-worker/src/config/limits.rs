//! What a job may take of its host.

use job_guard::{Limits, Size};
use rustix::process::{Resource, getrlimit};

use super::table::{optional, table};
use crate::host_fault::HostFault;

/// Fewer would not start a program.
const FEWEST_FILES: u64 = 16;

/// Less would not start a program.
const LEAST_MEMORY: Size = Size(16 << 20);

table! {
    #[derive(Clone)]
    pub(super) struct LimitKeys {
        /// Open files of each process.
        open_files: Option<u64> = None => optional().example("1024").check(|number: &u64| {
            let wrong = format!("{number} is too low; {FEWEST_FILES} or more is valid");
            (*number < FEWEST_FILES).then_some(wrong)
        });
        /// Processes and threads: of the job, or without a cgroup of its own those of its user.
        processes: Option<u64> = None => optional().example("64").check(|number: &u64| {
            (*number == 0).then(|| "0 would allow no process; 1 or more is valid".to_owned())
        });
        /// Memory: of the job, or without a cgroup of its own the address space of each process.
        memory: Option<Size> = None => optional().example("\"1GiB\"").check(|size: &Size| {
            let wrong = format!("{size} is too small; {LEAST_MEMORY} or more is valid");
            (*size < LEAST_MEMORY).then_some(wrong)
        });
    }
}

impl From<LimitKeys> for Limits {
    fn from(LimitKeys { open_files, processes, memory }: LimitKeys) -> Self {
        Self { open_files, processes, memory: memory.map(|size| size.0) }
    }
}

/// Whether this process may set them.
///
/// # Errors
/// The key, and what is wrong and what to do.
pub(super) fn check_limits(limits: &Limits) -> Result<(), (&'static str, HostFault)> {
    let hard = getrlimit(Resource::Nofile).maximum;
    match limits.open_files.zip(hard) {
            Some((wanted, hard)) if wanted > hard => Err((
                "limits.open_files",
                format!(
                    "{wanted} is above the hard limit of this process, {hard}: raise that (LimitNOFILE= in a systemd \
                     unit, ulimit -Hn in a shell)"
                )
                .into(),
            )),
            _ => Ok(()),
        }
}
