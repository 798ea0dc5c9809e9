//! What a job may take of its host.

use job_guard::{Limits, Size};
use rustix::process::{Resource, getrlimit};

use super::reader::Section;
use crate::host_fault::HostFault;

/// Fewer would not start a program.
const FEWEST_FILES: u32 = 16;

/// Less would not start a program.
const LEAST_MEMORY: Size = Size(16 << 20);

/// Reads `limits` of a job.
pub(super) fn read_limits(section: &mut Section<'_>) -> Limits {
    let open_files: Option<u32> = section.optional("open_files");
    if let Some(number) = open_files.filter(|number| *number < FEWEST_FILES) {
        section.problem("open_files", format!("{number} is too few; {FEWEST_FILES} or more is valid"));
    }
    let processes: Option<u32> = section.optional("processes");
    if processes == Some(0) {
        section.problem("processes", "0 would be no job; 1 or more is valid");
    }
    let memory: Option<Size> = section.optional("memory");
    if let Some(size) = memory.filter(|size| *size < LEAST_MEMORY) {
        section.problem("memory", format!("{size} is too small; {LEAST_MEMORY} or more is valid"));
    }
    Limits {
        open_files: open_files.map(u64::from),
        processes: processes.map(u64::from),
        memory: memory.map(|size| size.0),
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
