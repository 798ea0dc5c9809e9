//! Tests that a change needs only if it touches what they depend on. `--full` runs them always.

use std::process::Command;

use super::filter::LeftOut;

/// What they test, the tests, and the files and directories that they depend on.
const WHEN_CHANGED: [(&str, &[LeftOut], &[&str]); 3] = [
    (
        "packages, and a deployment from one",
        &[("e2e", "package::"), ("e2e", "first_deployment::")],
        &[
            "Cargo.toml",
            "apps/dr-worker/Cargo.toml",
            "apps/dr-worker/package",
            "docs/first-deployment.md",
            "docs/tutorial.md",
            "tests/tests/it/first_deployment.rs",
            "tests/tests/it/package.rs",
            "xtask/src/dist",
        ],
    ),
    ("the site of the documents", &[("book", "")], &["Cargo.toml", "book.toml", "xtask/book", "*.md"]),
    (
        "tables of simulated weeks and years",
        &[("policy-world", "year::the_documents"), ("strategies", "flapping::")],
        &["benches/policies", "crates/election-core/src", "crates/strategies", "docs/policies.md"],
    ),
];

/// Of these tests, those of which no file differs from the branch `TEST_BASE`, else `origin/main`: what they test, and
/// which they are. None if that can't be told.
pub(super) fn untouched() -> Vec<(&'static str, &'static [LeftOut])> {
    let Some(changed) = changed_since(&base()) else { return Vec::new() };
    let is_touched =
        |paths: &[&str]| changed.lines().any(|file| paths.iter().any(|path| is_below(file, path)));
    let untouched = WHEN_CHANGED.into_iter().filter(|(_, _, paths)| !is_touched(paths));
    untouched.map(|(what, tests, _)| (what, tests)).collect()
}

/// What this version is compared with.
pub(super) fn base() -> String {
    std::env::var("TEST_BASE").unwrap_or_else(|_| "origin/main".to_owned())
}

/// The files that differ, with those that no commit has yet.
fn changed_since(base: &str) -> Option<String> {
    let fork = git(&["merge-base", base, "HEAD"])?;
    let new = git(&["ls-files", "--others", "--exclude-standard", "--full-name", ":/"])?;
    Some(git(&["diff", "--name-only", fork.trim()])? + &new)
}

pub(super) fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_below(file: &str, path: &str) -> bool {
    path.strip_prefix('*').map_or_else(|| file.starts_with(path), |end| file.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_what_is_there() {
        for (what, _, paths) in WHEN_CHANGED {
            for path in paths.iter().filter(|path| !path.starts_with('*')) {
                assert!(crate::cargo::root().join(path).exists(), "{what}: {path}");
            }
        }
    }

    #[test]
    fn a_file_is_below_its_directory_or_ends_so() {
        assert!(is_below("docs/weeks.md", "*.md") && is_below("xtask/src/dist/deb.rs", "xtask/src/dist"));
        assert!(!is_below("docs/weeks.rs", "*.md") && !is_below("README.md", "docs"));
    }

    #[test]
    fn nothing_is_left_out_if_the_base_is_not_known() {
        assert_eq!(changed_since("no-such-branch"), None);
    }
}
