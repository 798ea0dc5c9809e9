//! How this binary is started again as a guard, and as the stage before a job.

/// This very image, whatever has become of its file: an upgrade replaces the file while the process
/// runs, and worker, guard and launcher must speak the same protocol.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";

/// The option of a guard. Its orders come on standard input, a socket, on which it reports as well: a job
/// of the same user could open a pipe anew by way of `/proc`, and give orders; a socket it can't.
pub(crate) const OVER_STDIN: &str = "--over-stdin";

/// The verb of a guard.
pub(crate) const VERB: &str = "guard";

/// The exit code of a guard with arguments that it does not know.
pub(super) const EXIT_USAGE: u8 = 64;

/// The option of the stage between the guard and the job's program.
pub(super) const EXEC: &str = "--exec";
