//! The right to write.

use super::{Bench, Place};

pub fn a_lower_token_is_refused_an_equal_or_higher_one_accepted<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), 10);
    bench.book_all(5);

    let lower = bench.start(4, &["--exit-when-done"]).end();
    assert_eq!(lower.code, Some(77));
    assert!(lower.stderr.contains("deposed: the store has seen token 5, mine is 4"), "{}", lower.stderr);

    bench.book_all(5);
    bench.book_all(9_000_000_000_000_000_000);
    let status = bench.status();
    assert_eq!(status["token"], 9_000_000_000_000_000_000_i64);
    assert_eq!(status["refused"]["claims"], 1);
    bench.assert_right();
}

pub fn a_token_belongs_to_one_member<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), 10);
    bench.book_all(5);
    let other = bench.start_as("somebody-else", 5, &["--exit-when-done"]).end();
    assert_eq!(other.code, Some(77));
    assert!(other.stderr.contains("claimed by member \"m-5\""), "{}", other.stderr);
}

pub fn the_claim_comes_before_the_orders_are_read<P: Place>(place: impl Fn() -> P) {
    let mut bench = Bench::new(place(), 10);
    bench.orders = "/nonexistent/orders.csv".into();
    let ended = bench.start(3, &[]).end();
    assert_eq!(ended.code, Some(65), "{}", ended.stderr);
    assert!(ended.stderr.contains("/nonexistent/orders.csv: can't be opened"), "{}", ended.stderr);
    assert_eq!(bench.status()["token"], 3);
}

pub fn a_client_that_knows_no_tokens_cannot_pass_the_fence<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), 10);
    bench.book_all(1);
    let insert = |order: &str, token: i64| {
        bench.place.execute(&format!(
            "INSERT INTO entries (order_id, account, currency, amount_cents, token, member)
             VALUES ('{order}', 'C-1', 'EUR', 100, {token}, 'naive')"
        ))
    };
    assert_eq!(insert("under the claimed token", 1), Ok(1));
    bench.book_all(2);

    assert_eq!(insert("under a token that is over", 1), Ok(0));
    assert_eq!(insert("under a token that nobody has claimed", 3), Ok(0));
    assert_eq!(bench.place.execute("UPDATE claim SET token = 1, member = 'naive'"), Ok(0));
    for forbidden in ["DELETE FROM claim", "DELETE FROM entries", "UPDATE entries SET token = 1"] {
        assert!(bench.place.execute(forbidden).is_err(), "{forbidden} was accepted");
    }
    let status = bench.status();
    assert_eq!(status["booked"], 11);
    assert_eq!(status["token"], 2);
    assert_eq!(status["refused"]["bookings"], 2);
    assert_eq!(status["refused"]["claims"], 1);
}
