//! A history in files.

use std::fs;
use std::path::Path;

use robustness::checker::Report;
use robustness::history::{Event, Files, History, Leadership, Line, Setup};

use crate::good;
use crate::logs::{entry, log, znode};

/// What is said of a history in a file or a directory, and whether every promise has held.
fn check(path: &Path) -> Result<(bool, String), String> {
    let history = files(path).read().map_err(|error| error.to_string())?;
    let report = Report::of(&history);
    Ok((report.held(), report.text(&history)))
}

fn files(path: &Path) -> Files {
    Files {
        histories: vec![path.to_owned()],
        logs: Vec::new(),
        root: "/dr".to_owned(),
        job: "orders".to_owned(),
        ahead: None,
        tolerance: History::TOLERANCE,
    }
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

#[test]
fn what_shows_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = check(dir.path()).unwrap_err();
    assert!(refused.ends_with("no file there is named *.jsonl"), "{refused}");
    fs::write(dir.path().join("test.jsonl"), "").unwrap();
    let refused = check(dir.path()).unwrap_err();
    assert!(refused.ends_with("no line is in it"), "{refused}");

    let history = dir.path().join("test.jsonl");
    let finished = Line { at: 1_000_000_000, by: "test".into(), event: Event::Finished };
    fs::write(&history, text(&[finished])).unwrap();
    let logs = dir.path().join("version-2");
    fs::create_dir(&logs).unwrap();
    let with_logs = Files { logs: vec![logs.clone()], ..files(&history) };
    let refused = |files: &Files| files.read().unwrap_err().to_string();
    assert!(refused(&with_logs).ends_with("no file there is named log.*"));
    let elected = r#"{"slots":[{"named":null,"given":{"term":1,"cause":"startup"}}],"token_base":0}"#;
    let decided = |at_ms| log(&[entry(7, 20, at_ms, 1, &znode("/dr/orders/leader/elected", elected))]);
    fs::write(logs.join("log.1"), decided(1000)).unwrap();
    assert_eq!(with_logs.read().unwrap().lines().len(), 2);
    let other = Files { job: "ledger".into(), ..with_logs.clone() };
    assert!(refused(&other).ends_with("nothing in the logs is about the job ledger below /dr"));
    let later = Files { ahead: Some(-1_000_000_000), ..with_logs };
    assert!(refused(&later).contains("no time in common"), "{}", refused(&later));
}

#[test]
fn the_setup_has_the_difference_of_the_clocks() {
    let dir = tempfile::tempdir().unwrap();
    let (history, log_file) = (dir.path().join("test.jsonl"), dir.path().join("log.1"));
    let of = |event| Line { at: 2_004_000_000, by: "job".into(), event };
    let (job, member) = ("orders".to_owned(), "east-1".to_owned());
    let leadership = Leadership { job, slot: 0, member, term: 1, token: 20 };
    let setup = Setup { session_timeout_ms: 6000, leaderless_timeouts: 5, ahead: Some(500_000_000) };
    let begun = Line { at: 1_000_000_000, ..of(Event::Lead(leadership.clone())) };
    let lines = [Line { at: 0, ..of(Event::Setup(setup)) }, begun, of(Event::Act(leadership))];
    fs::write(&history, text(&lines)).unwrap();
    let current = r#"{"member":"east-1","slot":0,"term":1}"#;
    let entries =
        [entry(7, 20, 1400, 1, &znode("/dr/orders/leader/current", current)), entry(7, 21, 2500, -11, &[])];
    fs::write(&log_file, log(&entries)).unwrap();
    let strict = Files { logs: vec![log_file.clone()], ..files(&history) };
    let broken = |files: &Files| Report::of(&files.read().unwrap()).broken().collect::<Vec<_>>();
    // It acts 4 ms after its znode is gone.
    assert_eq!(broken(&strict), ["ends-with-its-znode"]);
    assert_eq!(broken(&Files { tolerance: 5_000_000, ..strict.clone() }), <[&str; 0]>::default());
    assert_eq!(broken(&Files { ahead: Some(400_000_000), ..strict.clone() }), <[&str; 0]>::default());
    // A history that has the lines of the servers already has them once.
    let read = strict.read().unwrap();
    fs::write(&history, text(read.lines())).unwrap();
    assert_eq!(strict.read().unwrap(), read);
}
