//! The suite over SQLite, and the tests for SQLite alone.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use crate::suite::process::Ledger;
use crate::suite::{Bench, Place, wait_until};
use nix::sys::signal::Signal;
use rusqlite::Connection;

crate::suite::whole_suite!(with_files);

fn with_files(scenario: impl FnOnce(&dyn Fn() -> Database)) {
    scenario(&Database::new);
}

struct Database {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Database {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { path: directory.path().join("ledger.db"), _directory: directory }
    }

    fn connect(&self, patience: Duration) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(patience).unwrap();
        connection
    }
}

impl Place for Database {
    fn address(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    fn execute(&self, statements: &str) -> Result<u64, String> {
        let connection = self.connect(crate::suite::DEADLINE);
        // `changes` keeps the figure of an earlier statement if the last one
        // changed nothing at all.
        let before = connection.total_changes();
        connection.execute_batch(statements).map_err(|error| error.to_string())?;
        let touched = connection.total_changes() - before;
        Ok(if touched == 0 { 0 } else { connection.changes() })
    }

    fn is_locked(&self) -> bool {
        self.connect(Duration::ZERO).execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
    }
}

/// A process that is frozen inside its transaction keeps the file's write lock. Its successor must wait until it wakes
/// or is killed.
#[test]
fn a_writer_frozen_inside_its_transaction_delays_the_successor_until_it_is_killed() {
    let bench = Bench::new(Database::new(), 10_000);
    let frozen = bench.start(1, &["--pace", "0s"]);
    bench.wait_booked(10);
    let tries = Cell::new(0);
    wait_until("it is frozen inside a transaction", || {
        tries.set(tries.get() + 1);
        frozen.freeze();
        let inside = bench.place.is_locked();
        if !inside {
            frozen.thaw();
        }
        inside
    });
    println!("frozen inside a transaction at try {}", tries.get());

    let waited = bench.start(2, &["--patience", "300ms"]).end();
    assert_eq!(waited.code, Some(69), "{}", waited.stderr);
    assert!(waited.stderr.contains("locked by another process"), "{}", waited.stderr);
    assert_eq!(bench.status()["token"], 1);

    assert_eq!(frozen.kill().code, None);
    bench.book_all(2);
    let report = bench.assert_right();
    assert_eq!(report["refused"]["bookings"], 0);
}

/// A program that waits for a lock can still be stopped.
#[test]
fn a_stop_request_ends_the_wait_for_a_locked_file() {
    let bench = Bench::new(Database::new(), 10);
    bench.book_all(1);
    let holder = bench.place.connect(Duration::from_secs(5));
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = bench.start(2, &["--patience", "1h"]);
    waiting.wait_listening();
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.end().code, Some(0));
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(bench.status()["token"], 1);
}

#[test]
fn a_file_that_holds_something_else_is_left_alone() {
    let place = Database::new();
    place.execute("CREATE TABLE recipes (name TEXT)").unwrap();
    let bench = Bench::new(place, 10);
    let ended = bench.start(1, &[]).end();
    assert_eq!(ended.code, Some(78), "{}", ended.stderr);
    assert!(bench.place.execute("SELECT * FROM claim").is_err(), "tables were made in a strange file");
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let bench = Bench::new(Database::new(), 10);
    std::fs::write(&bench.place.path, "no database, but long enough to be looked at".repeat(40)).unwrap();
    let ended = bench.start(1, &[]).end();
    assert_eq!(ended.code, Some(69), "{}", ended.stderr);
    assert!(ended.stderr.contains("ledger.db: file is not a database"), "{}", ended.stderr);
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking() {
    let place = Database::new();
    let ended = Ledger::spawn(&["status", "--store", &place.address()]).end();
    assert_eq!(ended.code, Some(69));
    assert!(ended.stderr.contains("there is no ledger yet"), "{}", ended.stderr);
    assert!(!place.path.exists());
}
