//! The paths of the programs that the tests start.

use std::path::PathBuf;

/// The usual worker.
pub(crate) const DR_WORKER: &str = "dr-worker";

/// The path of a built program of the workspace: `dr-worker`, `my-worker`, `ledger` or `e2e-job`.
///
/// Cargo gives a test the paths of its own package's programs only. The others are beside it, in the directory of this
/// profile.
///
/// # Panics
/// If it is missing, with the command that builds it.
pub fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("the path of this test");
    // Tests, benchmarks and doctests are in deeper directories than programs.
    let found = this.ancestors().skip(1).take(3).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "there is no program {name} near {}. `cargo xtask test` builds all that is needed; by hand: \
             cargo build -p dr-worker -p own-stage -p ledger -p e2e --bins{}",
            this.display(),
            if this.components().any(|part| part.as_os_str() == "release") { " --release" } else { "" },
        )
    })
}
