//! The command line: its environment variables, and its messages for invalid input.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a directory of its own, with nothing but these variables.
fn ledger(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ledger"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(directory)
        .output()
        .unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn with_orders(count: u32) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let made = ledger(
        directory.path(),
        &["generate", "--orders", &count.to_string(), "--seed", "7", "--out", "orders.csv"],
        &[],
    );
    assert!(made.status.success(), "{}", words(&made));
    directory
}

const RUN: [&str; 6] = ["run", "--orders", "orders.csv", "--exit-when-done", "--pace", "0s"];

#[test]
fn the_leadership_comes_from_the_environment() {
    let directory = with_orders(10);
    let environment = [
        ("DR_FENCING_TOKEN", "4294967311"),
        ("DR_TERM", "12"),
        ("DR_MEMBER", "east-1"),
        ("DR_SITE", "east"),
        ("LEDGER_STORE", "sqlite:ledger.db"),
    ];
    let run = ledger(directory.path(), &RUN, &environment);
    assert!(run.status.success(), "{}", words(&run));
    let status = ledger(directory.path(), &["status"], &environment);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let expected = serde_json::json!({
        "booked": 10, "token": 4294967311_i64, "term": 12, "member": "east-1", "site": "east",
        "refused": { "claims": 0, "bookings": 0 },
    });
    assert_eq!(status, expected);

    let check = ledger(directory.path(), &["check", "--orders", "orders.csv"], &environment);
    assert!(check.status.success(), "{}", words(&check));
    let report = String::from_utf8(check.stdout).unwrap();
    assert!(report.contains("Token 4294967311 (term 12): east-1 of site east claimed it at 20"), "{report}");
    assert!(report.contains("and booked 10."), "{report}");
    assert!(report.ends_with("Every order is booked once, and every balance agrees.\n"), "{report}");
}

#[test]
fn without_a_usable_token_nothing_is_started() {
    let directory = with_orders(10);
    let store = ("LEDGER_STORE", "sqlite:ledger.db");
    for token in ["", "0", "-1", "seven", "0x10", "9223372036854775808", "18446744073709551616"] {
        let run = ledger(directory.path(), &RUN, &[store, ("DR_FENCING_TOKEN", token)]);
        assert_eq!(run.status.code(), Some(64), "token {token:?}: {}", words(&run));
        assert!(words(&run).contains("--token"), "{}", words(&run));
    }
    let run = ledger(directory.path(), &RUN, &[store]);
    assert_eq!(run.status.code(), Some(64), "{}", words(&run));
    assert!(!directory.path().join("ledger.db").exists());
}

#[test]
fn bad_input_is_named_with_its_exit_code() {
    let directory = with_orders(10);
    std::fs::write(directory.path().join("bad.csv"), "order_id\nSO-1\n").unwrap();
    let store = ["--store", "sqlite:ledger.db"];
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "--token", "1", "--orders", "bad.csv", store[0], store[1]], 65, "bad.csv:2: not an order"),
        (
            &["run", "--token", "1", "--orders", "none.csv", store[0], store[1]],
            65,
            "none.csv: can't be opened",
        ),
        (
            &["run", "--token", "1", "--orders", "orders.csv", "--store", "mysql:x"],
            64,
            "a store is `sqlite:PATH`",
        ),
        (
            &["run", "--token", "1", "--orders", "orders.csv", store[0], store[1], "--pace", "fast"],
            64,
            "--pace <DURATION>",
        ),
        (
            &["run", "--token", "1", "--orders", "orders.csv", "--store", "sqlite:/nonexistent/ledger.db"],
            69,
            "sqlite:/nonexistent/ledger.db: unable to open",
        ),
        (
            &["wait", store[0], store[1], "--booked", "1", "--timeout", "10ms"],
            75,
            "0 orders are booked after 10ms",
        ),
        (
            &["wait", "--store", "sqlite:none.db", "--booked", "1", "--timeout", "10ms"],
            75,
            "0 orders are booked",
        ),
        (
            &["generate", "--orders", "1", "--seed", "1", "--out", "/nonexistent/o.csv"],
            70,
            "/nonexistent/o.csv",
        ),
        (&["nonsense"], 64, "nonsense"),
    ];
    for (arguments, code, part) in cases {
        let output = ledger(directory.path(), arguments, &[]);
        let words = words(&output);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {words}");
        assert!(words.contains(part), "{arguments:?} should say {part:?}: {words}");
    }
}

#[test]
fn help_tells_the_exit_codes() {
    let help = ledger(Path::new("/"), &["--help"], &[]);
    assert!(help.status.success());
    assert!(String::from_utf8(help.stdout).unwrap().contains("77  deposed"));
}
