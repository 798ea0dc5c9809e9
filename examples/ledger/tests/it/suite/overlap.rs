//! Two leaders at once: the purpose of fencing.

use super::{Bench, Place, wait_until};

const ORDERS: u32 = 400;

pub fn of_two_at_once_the_older_is_refused<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), ORDERS);
    let older = bench.start(1, &["--pace", "20ms"]);
    bench.wait_booked(20);
    let newer = bench.start(2, &["--pace", "1ms", "--exit-when-done"]).end();
    assert_eq!(newer.code, Some(0), "{}", newer.stderr);

    let older = older.end();
    assert_eq!(older.code, Some(77), "{}", older.stderr);
    assert!(older.stderr.contains("deposed: the store has seen token 2, mine is 1"), "{}", older.stderr);

    let report = bench.assert_right();
    assert_eq!(report["refused"]["bookings"], 1);
    let booked: Vec<u64> = shares(&report);
    assert!(booked[0] >= 20 && booked[1] > 0, "{report:#}");
    assert_eq!(booked.iter().sum::<u64>(), u64::from(ORDERS));
}

pub fn a_frozen_writer_is_refused_when_it_wakes<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), ORDERS);
    let frozen = bench.start(1, &["--pace", "20ms"]);
    bench.wait_booked(10);
    // Frozen inside a transaction it may hold a lock, which another test covers.
    wait_until("it is frozen between two transactions", || {
        frozen.freeze();
        let between = !bench.place.is_locked();
        if !between {
            frozen.thaw();
        }
        between
    });
    bench.book_all(2);

    frozen.thaw();
    let woken = frozen.end();
    assert_eq!(woken.code, Some(77), "{}", woken.stderr);
    assert!(woken.stderr.contains("deposed: the store has seen token 2, mine is 1"), "{}", woken.stderr);
    let report = bench.assert_right();
    assert_eq!(report["refused"]["bookings"], 1);
    assert_eq!(report["late_accepted"], 0);
    assert_eq!(shares(&report).len(), 2);
}

/// The worker restarts a job that died. Requests of the first process may still arrive. Both may book; the order's
/// unique id makes it once.
pub fn two_lives_under_one_token_book_nothing_twice<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), ORDERS);
    let options = ["--pace", "1ms", "--exit-when-done"];
    let lives = [bench.start(1, &options), bench.start(1, &options)];
    for life in lives {
        let ended = life.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    bench.assert_right();
}

pub fn many_start_on_an_empty_store_at_once<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), ORDERS);
    let started: Vec<_> =
        (1..=6).map(|token| bench.start(token, &["--pace", "1ms", "--exit-when-done"])).collect();
    let mut codes: Vec<_> = started
        .into_iter()
        .map(|run| {
            let ended = run.end();
            assert!(matches!(ended.code, Some(0 | 77)), "{:?}: {}", ended.code, ended.stderr);
            ended.code
        })
        .collect();
    assert_eq!(codes.pop(), Some(Some(0)), "the newest token must win");
    bench.assert_right();
}

/// Bookings by token, oldest first.
fn shares(report: &serde_json::Value) -> Vec<u64> {
    let leaderships = report["leaderships"].as_array().unwrap();
    leaderships.iter().map(|share| share["booked"].as_u64().unwrap()).collect()
}
