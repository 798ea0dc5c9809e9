//! Cleans up after a test process that could not do it itself.
//!
//! `Drop` runs when a test ends or panics, not when it aborts or is killed. So
//! each ensemble has a reaper: a shell that waits on a pipe whose other end this
//! process holds. However this process ends, the kernel closes that end, and the
//! reaper ends the servers and removes the files. (The parent-death signal would
//! be shorter, but it is sent when the *thread* that started the child ends, and
//! the servers of a shared ensemble outlive the test thread that started them.)

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Error;
use crate::error::Context as _;

/// A process is ended only if its command line still names a file in the
/// directory: process ids are used again. The second round meets a server that
/// was just being started when the first one looked.
const SCRIPT: &str = r#"
read -r _
for round in 1 2; do
    for file in "$ENSEMBLE_DIR"/server-*/pid; do
        pid=$(cat "$file" 2>/dev/null) || continue
        if grep -qsF "$ENSEMBLE_DIR/" "/proc/$pid/cmdline"; then
            kill -9 "$pid" 2>/dev/null
        fi
    done
    [ "$round" = 2 ] || sleep 1
done
[ "$ENSEMBLE_KEEP" = yes ] || rm -rf "$ENSEMBLE_DIR"
"#;

/// The shell, and the pipe on which it waits for this process to end.
#[derive(Debug)]
pub(crate) struct Reaper {
    shell: Child,
}

impl Reaper {
    pub(crate) fn start(dir: &Path, keep: bool) -> Result<Self, Error> {
        let shell = watching_shell("zk-testkit-reaper", SCRIPT)
            // Not as an argument: then it would find itself by its command line.
            .env("ENSEMBLE_DIR", dir)
            .env("ENSEMBLE_KEEP", if keep { "yes" } else { "no" })
            .spawn()
            .context(|| "cannot start /bin/sh to watch over the ensemble".to_owned())?;
        Ok(Self { shell })
    }
}

/// A shell that can wait on its standard input for this process to end.
pub(crate) fn watching_shell(name: &str, script: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, name]).current_dir("/");
    // Neither Ctrl-C nor a runner that kills the test's group reaches it.
    shell.process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

impl Drop for Reaper {
    /// Sends it home: nothing is left to be cleaned up.
    fn drop(&mut self) {
        // It is this process's child and not reaped, so the pid is its own.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
