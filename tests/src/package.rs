//! The packages, and the tools of their tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::program;

/// Whether a test can run: with these tools, and as root where it needs that. In CI it has to.
///
/// # Panics
/// If it can't, and `CI` is set.
pub fn can_run(tools: &[&str], as_root: bool) -> bool {
    let has = |tool: &&str| {
        Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let mut missing: Vec<_> = tools.iter().copied().filter(|tool| !has(tool)).collect();
    if as_root && !nix::unistd::geteuid().is_root() {
        missing.push("root");
    }
    if missing.is_empty() {
        return true;
    }
    zk_testkit::skip(format_args!("this test needs {}", missing.join(", ")));
    false
}

/// The standard output of a command that must succeed.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{text}{}", String::from_utf8_lossy(&stderr));
    text
}

/// Builds the Debian package with the program of the tests.
///
/// # Panics
/// If `cargo xtask dist` fails.
pub fn debian_package(out: &Path, revision: &str) -> PathBuf {
    package(out, revision, &[])
}

/// Builds the RPM package with the program of the tests.
///
/// # Panics
/// If `cargo xtask dist` fails.
pub fn rpm_package(out: &Path, revision: &str) -> PathBuf {
    package(out, revision, &["--rpm"])
}

fn package(out: &Path, revision: &str, more: &[&str]) -> PathBuf {
    // That of the builder has no effect on the package.
    let mut dist = Command::new("sh");
    dist.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(program("xtask"));
    dist.args(["dist", "--fast", "--revision", revision, "--out"]).arg(out).args(more);
    let printed = succeeds(dist.arg("--program").arg(program("dr-worker")));
    PathBuf::from(printed.lines().last().expect("the path of the package"))
}
