//! The suite over a real PostgreSQL server, which the tests start themselves, and the tests for PostgreSQL alone.
//!
//! Without a server's programs they are skipped with a message; with `CI` set they fail.

#![cfg(feature = "postgres")]

use std::sync::Arc;

use crate::server::Server;
use crate::suite::process::Ledger;
use crate::suite::{Bench, Place, wait_until};
use nix::sys::signal::Signal;

/// Runs a scenario with a function that creates databases, or prints why not.
fn with_server(scenario: impl FnOnce(&dyn Fn() -> Database)) {
    match Server::shared() {
        Ok(server) => scenario(&|| Database::new(&server)),
        Err(reason) => zk_testkit::skip(format_args!("PostgreSQL can't be started: {reason}")),
    }
}

crate::suite::whole_suite!(with_server);

struct Database {
    server: Arc<Server>,
    name: String,
}

impl Database {
    fn new(server: &Arc<Server>) -> Self {
        Self { server: Arc::clone(server), name: server.new_database() }
    }

    fn connect(&self) -> postgres::Client {
        let mut client = self.server.connect(&self.name).unwrap();
        client.batch_execute("SET search_path = ledger").unwrap();
        client
    }
}

impl Place for Database {
    fn address(&self) -> String {
        self.server.url(&self.name)
    }

    fn execute(&self, statements: &str) -> Result<u64, String> {
        let mut changed = 0;
        let mut client = self.connect();
        for statement in statements.split(';') {
            changed = client.execute(statement, &[]).map_err(|error| error.to_string())?;
        }
        Ok(changed)
    }
}

/// No statement leaves a lock: if a writer is frozen at any point, its successor does not wait.
#[test]
fn a_writer_frozen_anywhere_does_not_delay_the_successor() {
    const ORDERS: u32 = 1_000;
    /// Frozen at random points between two orders, or in the middle of one.
    const ROUNDS: usize = 5;
    with_server(|database| {
        let mut rounds = 0;
        wait_until("it was frozen often enough before its last order", || {
            let bench = Bench::new(database(), ORDERS);
            let frozen = bench.start(1, &["--pace", "0s"]);
            bench.wait_booked(10);
            frozen.freeze();
            // The server may have a booking that it has not committed yet. A writer without an order left tries nothing
            // when it wakes, so nothing can be refused.
            if bench.booked() + 1 >= u64::from(ORDERS) {
                frozen.kill();
                return false;
            }
            let newer = bench.start(2, &["--pace", "0s", "--patience", "0s", "--exit-when-done"]).end();
            assert_eq!(newer.code, Some(0), "{}", newer.stderr);
            frozen.thaw();
            assert_eq!(frozen.end().code, Some(77));
            bench.assert_right();
            rounds += 1;
            rounds == ROUNDS
        });
    });
}

/// The check and the write are one step: a claim during a booking waits for it, and then sees it. A program that reads
/// before it claims would not.
#[test]
fn a_claim_waits_for_a_booking_that_was_accepted() {
    with_server(|database| {
        let bench = Bench::new(database(), 10);
        let older = bench.start(1, &["--pace", "1h"]);
        bench.wait_booked(1);
        let mut late = bench.place.connect();
        let mut booking = late.transaction().unwrap();
        let insert = "INSERT INTO entries (order_id, account, currency, amount_cents, token, member)
                      VALUES ('SO-2026-000002', 'C-1', 'EUR', 100, 1, 'm-1')";
        assert_eq!(booking.execute(insert, &[]).unwrap(), 1);

        let impatient = bench.start(2, &["--patience", "0s"]).end();
        assert_eq!(impatient.code, Some(69), "{}", impatient.stderr);
        assert!(impatient.stderr.contains("locked by another process"), "{}", impatient.stderr);

        let newer = bench.start(2, &["--pace", "1h"]);
        let mut observer = bench.place.connect();
        wait_until("the claim waits for the booking", || {
            let waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database()
                           AND application_name = 'ledger' AND wait_event_type = 'Lock'";
            !observer.query(waiting, &[]).unwrap().is_empty()
        });
        booking.commit().unwrap();
        newer.wait_words("2 of 10 orders are booked, the next is SO-2026-000003");
        let before = observer.query_one("SELECT entries_before FROM claims WHERE token = 2", &[]).unwrap();
        assert_eq!(before.get::<_, i64>(0), 2);
        older.kill();
    });
}

/// A client may use any isolation level. One whose snapshot is older than the claim must not book because of it.
#[test]
fn an_old_snapshot_does_not_hide_a_newer_claim() {
    with_server(|database| {
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let bench = Bench::new(database(), 10);
            bench.book_all(1);
            let mut client = bench.place.connect();
            client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM claim")).unwrap();
            bench.book_all(2);
            let insert = "INSERT INTO entries (order_id, account, currency, amount_cents, token, member)
                          VALUES ('late', 'C-1', 'EUR', 100, 1, 'm-1')";
            let answer = client.execute(insert, &[]);
            assert!(!matches!(answer, Ok(1..)), "{level}: a late booking was accepted: {answer:?}");
            let _ = client.batch_execute("COMMIT");
            assert_eq!(bench.booked(), 10);
        }
    });
}

#[test]
fn a_server_that_goes_away_ends_the_program_with_an_error() {
    with_server(|database| {
        let bench = Bench::new(database(), 2_000);
        let run = bench.start(1, &["--pace", "1ms"]);
        bench.wait_booked(10);
        let name = &bench.place.name;
        let cut = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'ledger'"
        );
        bench.place.server.connect("postgres").unwrap().execute(&cut, &[]).unwrap();
        let ended = run.end();
        assert_eq!(ended.code, Some(69), "{}", ended.stderr);
        bench.book_all(1);
        bench.assert_right();
    });
}

#[test]
fn a_server_that_is_not_there_is_named_without_the_password() {
    let url = "postgres://app:s3cret@127.0.0.1:1/shop";
    let ended = Ledger::spawn(&["status", "--store", url]).end();
    assert_eq!(ended.code, Some(69));
    assert!(ended.stderr.contains("postgres://app@127.0.0.1:1/shop: "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
}

#[test]
fn a_database_without_a_ledger_gets_none_by_looking() {
    with_server(|database| {
        let place = database();
        let ended = Ledger::spawn(&["status", "--store", &place.address()]).end();
        assert_eq!(ended.code, Some(69));
        assert!(ended.stderr.contains("there is no ledger yet"), "{}", ended.stderr);
        let schema = place.connect().query_one("SELECT to_regnamespace('ledger')::text", &[]).unwrap();
        assert_eq!(schema.get::<_, Option<String>>(0), None);
        let bench = Bench::new(place, 10);
        let run = bench.start(1, &["--pace", "1h"]);
        bench.wait_booked(1);
        run.signal(Signal::SIGTERM);
        assert_eq!(run.end().code, Some(0));
    });
}
