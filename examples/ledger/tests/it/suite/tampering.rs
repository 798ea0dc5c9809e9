//! The check can fail: every fault that it is for is made here by hand, and must be named.

use nix::sys::signal::Signal;

use super::{Bench, Place};

/// Tables without triggers and constraints, so that anything can be written.
const UNFENCE: &str = "
    CREATE TABLE kept_entries AS SELECT * FROM entries;
    DROP TABLE entries;
    CREATE TABLE entries AS SELECT * FROM kept_entries;
    CREATE TABLE kept_claim AS SELECT * FROM claim;
    DROP TABLE claim;
    CREATE TABLE claim AS SELECT * FROM kept_claim";

const LAST: &str = "(SELECT max(number) FROM kept_entries)";

struct Case<'a> {
    tampering: &'a str,
    /// The figure of the report that must show it, if one does.
    figure: Option<(&'a str, u64)>,
    /// The expected part of a sentence in the report.
    sentence: &'a str,
}

pub fn check_finds_each_kind_of_tampering<P: Place>(place: impl Fn() -> P) {
    let doubled = format!(
        "INSERT INTO entries
         SELECT {LAST} + 1, order_id, account, currency, amount_cents, 2, member, booked_at
         FROM kept_entries WHERE number = 7"
    );
    let older_token = format!("UPDATE entries SET token = 1 WHERE number = {LAST}");
    let unclaimed_token = format!("UPDATE entries SET token = 3 WHERE number = {LAST}");
    let cases = [
        Case {
            tampering: "DELETE FROM entries WHERE number = 7",
            figure: Some(("lost", 1)),
            sentence: "not booked",
        },
        Case { tampering: "DELETE FROM entries WHERE number = 7", figure: None, sentence: "without a gap" },
        Case { tampering: &doubled, figure: Some(("twice", 1)), sentence: "more than once" },
        Case {
            tampering: "UPDATE entries SET order_id = 'SO-1999-000001' WHERE number = 7",
            figure: Some(("unknown", 1)),
            sentence: "in no order",
        },
        Case {
            tampering: "UPDATE entries SET amount_cents = amount_cents + 1 WHERE number = 7",
            figure: Some(("altered", 1)),
            sentence: "another account, currency or amount",
        },
        Case {
            tampering: "UPDATE accounts SET balance_cents = balance_cents + 1
                        WHERE account = (SELECT min(account) FROM accounts)",
            figure: Some(("wrong_balances", 1)),
            sentence: "other than the sum",
        },
        Case {
            tampering: "DELETE FROM accounts WHERE account = (SELECT min(account) FROM accounts)",
            figure: Some(("wrong_balances", 1)),
            sentence: "missing, should be",
        },
        Case { tampering: &older_token, figure: Some(("late_accepted", 1)), sentence: "older token" },
        // The newer leader had claimed, but not booked yet: the tokens of the
        // entries alone don't show it.
        Case {
            tampering: "UPDATE claims SET entries_before = entries_before - 2 WHERE token = 2",
            figure: Some(("late_accepted", 2)),
            sentence: "older token",
        },
        Case { tampering: &unclaimed_token, figure: None, sentence: "was not claimed by then" },
        Case {
            tampering: "UPDATE claims SET entries_before = entries_before + 1 WHERE token = 1",
            figure: None,
            sentence: "was not claimed by then",
        },
        Case {
            tampering: "UPDATE claim SET token = 1",
            figure: None,
            sentence: "does not agree with the record of claims",
        },
    ];
    for Case { tampering, figure, sentence } in cases {
        let bench = Bench::new(place(), 40);
        booked_by_two(&bench);
        bench.place.execute(UNFENCE).unwrap();
        bench.assert_right();
        let changed = bench.place.execute(tampering).unwrap();
        assert_eq!(changed, 1, "{tampering}");

        let (code, report) = bench.check();
        assert_eq!(code, Some(1), "{tampering}: {report:#}");
        assert_eq!(report["ok"], false);
        if let Some((figure, expected)) = figure {
            assert_eq!(report[figure], expected, "{tampering}: {report:#}");
        }
        let problems = report["problems"].to_string();
        assert!(problems.contains(sentence), "{tampering}: {problems}");
    }
}

pub fn check_says_what_is_still_to_come<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), 40);
    let run = bench.start(1, &["--pace", "1h"]);
    bench.wait_booked(1);
    let (code, report) = bench.check();
    assert_eq!(code, Some(1));
    assert_eq!((&report["booked"], &report["lost"]), (&1.into(), &39.into()));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, Some(0));
}

/// Both tokens with some bookings each.
fn booked_by_two<P: Place>(bench: &Bench<P>) {
    bench.book_some(1, 10);
    bench.book_all(2);
}
