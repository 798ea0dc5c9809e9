//! The program `check-trace`.

use std::fs;
use std::process::{Command, Output};

use robustness::history::{Event, Line};

use crate::good;

fn check(args: &[&str]) -> (Option<i32>, String) {
    let output: Output =
        Command::new(env!("CARGO_BIN_EXE_check-trace")).args(args).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect()
}

#[test]
fn it_prints_held_or_the_lines_that_break_a_promise() {
    let dir = std::env::temp_dir().join(format!("check-trace-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let mut lines = good::history(1).lines().to_vec();
    // Several writers, each with its own file.
    let (ours, others): (Vec<_>, Vec<_>) = lines.iter().cloned().partition(|line| line.by == "test");
    fs::write(dir.join("test.jsonl"), text(&ours)).unwrap();
    fs::write(dir.join("others.jsonl"), text(&others)).unwrap();
    let directory = dir.display().to_string();
    let (code, said) = check(&[&directory]);
    assert!(code == Some(0) && said.ends_with("\nheld\n"), "{code:?} {said}");

    let end = lines.last().unwrap().at;
    let event = Event::Left { pid: 77, command: "ledger run".into() };
    lines.push(Line { at: end + 1, by: "test".into(), event });
    let spoiled = dir.join("spoiled");
    fs::write(&spoiled, text(&lines)).unwrap();
    let (code, said) = check(&[&spoiled.display().to_string()]);
    assert!(code == Some(1) && said.ends_with("\nbroken\n"), "{code:?} {said}");
    assert!(said.contains("process 77 still runs: ledger run"), "{said}");

    fs::write(&spoiled, "no JSON\n").unwrap();
    let (code, said) = check(&[&spoiled.display().to_string()]);
    assert!(code == Some(64) && said.contains("line 1"), "{code:?} {said}");
    assert_eq!(check(&[]).0, Some(64));
    fs::remove_dir_all(&dir).unwrap();
}
