//! Ends of the program: killed, asked to stop, done.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Bench, Place};

const LIVES: u32 = 20;
/// More orders than the processes can book in their time at their pace.
const ORDERS: u32 = 6_000;

pub fn killed_at_any_instant_it_resumes_where_it_was<P: Place>(place: impl Fn() -> P) {
    let seed = match std::env::var("LEDGER_TEST_SEED") {
        Ok(seed) => seed.parse().expect("LEDGER_TEST_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("replay: LEDGER_TEST_SEED={seed} cargo test -p ledger killed_at_any_instant");
    let mut random = fastrand::Rng::with_seed(seed);
    let bench = Bench::new(place(), ORDERS);
    let mut token = 1;
    let mut cut_short = 0;
    for number in 0..LIVES {
        // A restart within the leadership, or the start of the next one.
        token += i64::from(random.bool());
        let life = bench.start(token, &["--pace", "200us"]);
        // Half of them are killed while they book, half at any point after this time. It is not to win a race: the
        // instant is what is tested.
        let at_most = if number % 2 == 0 {
            life.wait_words("is claimed at");
            20_000
        } else {
            80_000
        };
        if number == 0 {
            bench.wait_booked(1);
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..at_most)));
        let ended = life.kill();
        assert_eq!(ended.code, None, "it ended by itself: {}", ended.stderr);
        cut_short += u32::from(ended.stderr.contains("is claimed at"));
    }
    let booked = bench.booked();
    println!(
        "{cut_short} of {LIVES} lives were cut short while booking; {booked} orders were booked in them"
    );
    assert!(cut_short >= LIVES / 2);
    assert!(booked < u64::from(ORDERS), "all was booked before the last kill");

    bench.book_all(token);
    let report = bench.assert_right();
    assert_eq!(report["refused"]["bookings"], 0);
}

pub fn a_stop_request_ends_it_between_two_bookings<P: Place>(place: impl Fn() -> P) {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let bench = Bench::new(place(), 10);
        let run = bench.start(1, &["--pace", "1h"]);
        bench.wait_booked(1);
        let asked = Instant::now();
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("stopped by {signal}")), "{}", ended.stderr);
        assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?} to stop", asked.elapsed());
        assert_eq!(bench.booked(), 1);
        bench.book_all(1);
        bench.assert_right();
    }
}

pub fn all_booked_it_stays_until_it_is_stopped<P: Place>(place: impl Fn() -> P) {
    let bench = Bench::new(place(), 10);
    let mut run = bench.start(1, &["--pace", "0s"]);
    run.wait_words("all 10 orders are booked");
    assert!(run.is_running());
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code, Some(0));
    bench.assert_right();
}
