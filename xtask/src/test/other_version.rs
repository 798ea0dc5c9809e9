//! dr-worker in the version that was landed before this one, for the tests of upgrades between two versions.

use std::path::PathBuf;

use super::changed::git;
use super::filter::LeftOut;
use crate::cargo::{self, cargo};
use crate::dist::succeed;

/// The tests that need it, and the variable that names the program to them.
pub(super) const TESTS: LeftOut = ("e2e", "two_versions::");
pub(super) const VARIABLE: &str = "E2E_OTHER_VERSION";

/// Builds it in a worktree and a target directory of its own. None if git has no such commit, as in a shallow clone: then the
/// tests are skipped.
///
/// # Errors
/// It can't be checked out or built.
pub(super) async fn build() -> anyhow::Result<Option<PathBuf>> {
    let Some(commit) = landed_before() else { return Ok(None) };
    let dir = cargo::target_directory()?.join("other-version");
    let (source, target) = (dir.join("source"), dir.join("target"));
    // One that is there keeps its files' times, so that only what differs is compiled again.
    let mut checkout = cargo::program("git");
    if source.is_dir() {
        checkout.arg("-C").arg(&source).args(["checkout", "--quiet", "--force", "--detach"]);
    } else {
        checkout.current_dir(cargo::root());
        checkout.args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(&source);
    }
    succeed(checkout.arg(&commit)).await?;
    println!("building dr-worker of {commit} for the tests of upgrades");
    let mut build = cargo(["build", "-p", "dr-worker", "--all-features", "--bins", "--manifest-path"]);
    succeed(build.arg(source.join("Cargo.toml")).arg("--target-dir").arg(&target)).await?;
    Ok(Some(target.join("debug/dr-worker")))
}

/// The branch `TEST_BASE`, else `origin/main`; if that is this commit, or is not there, the commit before this one.
fn landed_before() -> Option<String> {
    let commit = |name: &str| git(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")]);
    let head = commit("HEAD")?;
    let base = commit(&super::changed::base()).filter(|base| *base != head);
    base.or_else(|| commit("HEAD^")).map(|commit| commit.trim().to_owned())
}
