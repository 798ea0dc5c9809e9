//! The README is true: its commands run, its SQL is what the stores use.

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../README.md");

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opening = format!("```{language}\n");
    let blocks: Vec<_> =
        README.split(opening.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "the README has no block of {language}");
    blocks
}

#[test]
fn its_commands_do_what_it_says() {
    // In memory where that is possible: 10,000 commits to a busy disk take long.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    std::os::unix::fs::symlink(data, directory.path().join("data")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ledger")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());

    let output = Command::new("sh")
        .args(["-eu", "-c", &blocks("sh").concat()])
        .env("PATH", path)
        .env_remove("DR_MEMBER")
        .current_dir(directory.path())
        .output()
        .unwrap();
    let (results, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words}");
    assert!(results.contains("Every order is booked once"), "{results}");
    assert!(results.ends_with("exit code 77\n"), "{results}");
    assert!(words.contains("deposed: the store has seen token 2, mine is 1"), "{words}");
}

#[test]
fn its_sql_is_what_the_stores_use() {
    let schemas = [include_str!("../../src/store/sqlite.sql"), include_str!("../../src/store/postgres.sql")];
    for block in blocks("sql") {
        assert!(schemas.iter().any(|schema| schema.contains(block)), "no store uses this:\n{block}");
    }
}

#[test]
fn its_links_lead_somewhere() {
    for target in README.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
        assert!(path.exists(), "{target}");
    }
}
