//! A history in files.

use std::fs;
use std::path::Path;

use robustness::checker::Report;
use robustness::history::{Event, Files, Line};

use crate::good;

/// What is said of a history in a file or a directory, and whether every promise has held.
fn check(path: &Path) -> Result<(bool, String), String> {
    let (root, job) = ("/dr".to_owned(), "orders".to_owned());
    let files = Files { histories: vec![path.to_owned()], logs: Vec::new(), root, job, ahead: 0 };
    let history = files.read().map_err(|error| error.to_string())?;
    let report = Report::of(&history);
    Ok((report.held(), report.text(&history)))
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect()
}

#[test]
fn it_says_held_or_which_lines_break_a_promise() {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = good::history(1).lines().to_vec();
    // Several writers, each with its own file.
    let (ours, others): (Vec<_>, Vec<_>) = lines.iter().cloned().partition(|line| line.by == "test");
    fs::write(dir.path().join("test.jsonl"), text(&ours)).unwrap();
    fs::write(dir.path().join("others.jsonl"), text(&others)).unwrap();
    let (held, said) = check(dir.path()).unwrap();
    assert!(held && said.ends_with("\nheld\n"), "{said}");
    assert!(said.contains("one-actor: held (") && !said.contains("held (0"), "{said}");

    let end = lines.last().unwrap().at;
    let event = Event::Left { pid: 77, command: "ledger run".into() };
    lines.push(Line { at: end + 1, by: "test".into(), event });
    let spoiled = dir.path().join("spoiled");
    fs::write(&spoiled, text(&lines)).unwrap();
    let (held, said) = check(&spoiled).unwrap();
    assert!(!held && said.ends_with("\nbroken\n"), "{said}");
    assert!(said.contains("process 77 still runs: ledger run"), "{said}");

    fs::write(&spoiled, "no JSON\n").unwrap();
    let refused = check(&spoiled).unwrap_err();
    assert!(refused.contains("spoiled: line 1"), "{refused}");
}
