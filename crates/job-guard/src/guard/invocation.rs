//! How this binary is started again as a guard, and as the stage before a job.

/// The running image, even if an upgrade has replaced its file: worker, guard and launcher must use the same protocol.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";

/// The option of a guard. Orders come on standard input, a socket, which carries the reports as well. A job of the same
/// user could reopen a pipe through `/proc` and give orders, but not a socket.
pub(crate) const OVER_STDIN: &str = "--over-stdin";

/// The option of the process that carries out the last will of a dead worker, which comes on standard input.
pub(super) const LAST_WILL: &str = "--last-will";

/// The verb of a guard.
pub(crate) const VERB: &str = "guard";

/// The exit code of a guard with arguments that it does not know.
pub(super) const EXIT_USAGE: u8 = 64;

/// The option of the stage between the guard and the job's program.
pub(super) const EXEC: &str = "--exec";
