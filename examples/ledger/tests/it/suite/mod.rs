//! Tests for every store. [`sqlite`](crate::sqlite) and [`postgres`](crate::postgres) provide the store; each scenario gets
//! a new one.

#![allow(unreachable_pub, reason = "a module of a test program")]

pub mod claims;
pub mod crashes;
pub mod overlap;
pub mod process;
pub mod tampering;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use process::Ledger;
use serde_json::Value;

/// Longer than any step takes on a loaded machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// An empty store for a ledger.
pub trait Place {
    /// As for `--store`.
    fn address(&self) -> String;

    /// Runs statements as a client without tokens. Returns the rows that the last one changed.
    fn execute(&self, statements: &str) -> Result<u64, String>;

    /// Whether a process holds a lock that would delay a writer.
    fn is_locked(&self) -> bool {
        false
    }
}

/// A store, and orders to book into it.
pub struct Bench<P> {
    pub place: P,
    pub orders: PathBuf,
    directory: tempfile::TempDir,
}

impl<P: Place> Bench<P> {
    pub fn new(place: P, orders: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bench = Self { place, orders: directory.path().join("orders.csv"), directory };
        let path = bench.orders.to_str().unwrap();
        let made =
            Ledger::spawn(&["generate", "--orders", &orders.to_string(), "--seed", "7", "--out", path]).end();
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        bench
    }

    /// Starts `ledger run` under a token, as member `m-TOKEN`.
    pub fn start(&self, token: i64, more: &[&str]) -> Ledger {
        self.start_as(&format!("m-{token}"), token, more)
    }

    pub fn start_as(&self, member: &str, token: i64, more: &[&str]) -> Ledger {
        self.run(&self.orders, member, token, more)
    }

    fn run(&self, orders: &Path, member: &str, token: i64, more: &[&str]) -> Ledger {
        let (store, token) = (self.place.address(), token.to_string());
        let orders = orders.to_str().unwrap();
        let mut arguments = vec![
            "run", "--orders", orders, "--store", &store, "--token", &token, "--term", &token, "--member",
            member,
        ];
        arguments.extend_from_slice(more);
        Ledger::spawn(&arguments)
    }

    /// Books under a token until all is booked. The program must succeed.
    pub fn book_all(&self, token: i64) {
        self.book(&self.orders, token);
    }

    /// Books the first orders under a token, and no others.
    pub fn book_some(&self, token: i64, count: usize) {
        let all = std::fs::read_to_string(&self.orders).unwrap();
        let some = self.directory.path().join("some.csv");
        let lines: String = all.split_inclusive('\n').take(1 + count).collect();
        std::fs::write(&some, lines).unwrap();
        self.book(&some, token);
    }

    fn book(&self, orders: &Path, token: i64) {
        let member = format!("m-{token}");
        let ended = self.run(orders, &member, token, &["--pace", "0s", "--exit-when-done"]).end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    pub fn status(&self) -> Value {
        let ended = Ledger::spawn(&["status", "--store", &self.place.address()]).end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        serde_json::from_str(&ended.stdout).unwrap()
    }

    pub fn booked(&self) -> u64 {
        self.status()["booked"].as_u64().unwrap()
    }

    pub fn wait_booked(&self, count: u64) {
        let count = count.to_string();
        let ended = Ledger::spawn(&["wait", "--store", &self.place.address(), "--booked", &count]).end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    /// The result of `ledger check`: its exit code and its report.
    pub fn check(&self) -> (Option<i32>, Value) {
        let orders = self.orders.to_str().unwrap();
        let store = self.place.address();
        let ended =
            Ledger::spawn(&["check", "--orders", orders, "--store", &store, "--output", "json"]).end();
        let report =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("no report: {}", ended.stderr));
        (ended.code, report)
    }

    /// The ledger must be complete and correct. Returns the report.
    pub fn assert_right(&self) -> Value {
        let (code, report) = self.check();
        assert_eq!((code, &report["ok"]), (Some(0), &Value::Bool(true)), "{report:#}");
        report
    }
}

/// Waits for a condition; fails when it is not met in time.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One test per scenario. `$with` calls its argument with a function that creates an empty store, if it can create one.
macro_rules! over_a_store {
    ($with:expr; $($module:ident :: $scenario:ident),+ $(,)?) => {
        $(#[test]
        fn $scenario() {
            $with(|place| $crate::suite::$module::$scenario(place));
        })+
    };
}
pub(crate) use over_a_store;

/// All scenarios.
macro_rules! whole_suite {
    ($with:expr) => {
        $crate::suite::over_a_store! { $with;
            claims::a_lower_token_is_refused_an_equal_or_higher_one_accepted,
            claims::a_token_belongs_to_one_member,
            claims::the_claim_comes_before_the_orders_are_read,
            claims::a_client_that_knows_no_tokens_cannot_pass_the_fence,
            crashes::killed_at_any_instant_it_resumes_where_it_was,
            crashes::a_stop_request_ends_it_between_two_bookings,
            crashes::all_booked_it_stays_until_it_is_stopped,
            overlap::of_two_at_once_the_older_is_refused,
            overlap::a_frozen_writer_is_refused_when_it_wakes,
            overlap::two_lives_under_one_token_book_nothing_twice,
            overlap::many_start_on_an_empty_store_at_once,
            tampering::check_finds_each_kind_of_tampering,
            tampering::check_says_what_is_still_to_come,
        }
    };
}
pub(crate) use whole_suite;
