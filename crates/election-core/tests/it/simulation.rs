//! Elections in virtual time, thousands of them, each from one seed. Half of the seeds are the same in every run, and half
//! come from the id of the commit that is tested.
//!
//! `SIM_SEEDS=100000 cargo test --release -p election-core --no-default-features --test it simulation` is the long form,
//! and with `SIM_FIRST` all seeds begin at that one; `SIM_SEED=42 cargo test -p election-core --test it run_of_the_elector --
//! --nocapture` replays one, and prints all its events. The other recipes
//! are `run_of_the_queue` and `run_of_the_single`.

use std::{
    env, panic,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::sim::{Kind, Summary};

/// How many seeds an ordinary run takes.
const SEEDS: u64 = 800;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, and is {text:?}")))
}

/// Runs one seed; a panic counts as a violation.
fn run(kind: Kind, seed: u64, trace: bool) -> Result<Summary, String> {
    let result = panic::catch_unwind(|| crate::sim::run(kind, seed, trace));
    let why = match result {
        Ok(Ok(summary)) => return Ok(summary),
        Ok(Err(violation)) => format!("{:.3} s: {}", violation.at as f64 / 1000.0, violation.what),
        Err(_) => "it panicked, see above".to_owned(),
    };
    Err(format!(
        "seed {seed}: {why}\n  replay: SIM_SEED={seed} cargo test -p election-core --no-default-features \
         --test it run_of_the_{} -- --nocapture",
        kind.as_str()
    ))
}

fn add(total: &mut Summary, one: &Summary) {
    total.virtual_ms += one.virtual_ms;
    total.terms += one.terms;
    total.leaderships += one.leaderships;
    total.other_slots += one.other_slots;
    total.resized += one.resized;
    total.successions += one.successions;
    total.sessions += one.sessions;
    total.resumed += one.resumed;
    total.acts += one.acts;
    total.refused += one.refused;
    total.requests_done += one.requests_done;
    total.requests_expired += one.requests_expired;
    total.requests_cancelled += one.requests_cancelled;
    total.vacated += one.vacated;
    total.excluded += one.excluded;
    total.held += one.held;
    total.duplicates += one.duplicates;
    total.left += one.left;
    total.unknown += one.unknown;
    total.strays += one.strays;
    total.drifts += one.drifts;
    total.lost_tails += one.lost_tails;
    total.failed_over += one.failed_over;
    total.guard_kills += one.guard_kills;
    total.called_off += one.called_off;
    total.closed_by_guards += one.closed_by_guards;
    total.suspected += one.suspected;
    total.stand_ins += one.stand_ins;
    total.raised += one.raised;
    total.obeyed += one.obeyed;
    total.penalties += one.penalties;
    total.acknowledged += one.acknowledged;
    total.site_failed += one.site_failed;
    total.remembered += one.remembered;
    total.barred += one.barred;
    total.deleted += one.deleted;
    total.forgotten += one.forgotten;
    total.restored += one.restored;
    total.better += one.better;
    total.upgrades += one.upgrades;
    total.led_on += one.led_on;
    total.operations += one.operations;
    total.standbys += one.standbys;
    total.long_stops += one.long_stops;
    total.overdue += one.overdue;
    total.nobody += one.nobody;
}

/// What never happens in thousands of runs is not tested by them.
fn check_coverage(kind: Kind, total: &Summary) {
    let everywhere = [
        ("leaderships", total.leaderships),
        ("sessions that were resumed", total.resumed),
        ("writes that the resource refused", total.refused),
        ("members that left", total.left),
        ("ensembles that were restored from a copy", total.restored),
        ("operations of unknown outcome", total.unknown),
        ("writes that arrived after their connection was lost", total.strays),
        ("clocks whose rate changed", total.drifts),
        ("ensembles that lost their latest transactions", total.lost_tails),
        ("stores that forgot their tokens", total.failed_over),
        ("jobs that their guard ended", total.guard_kills),
        ("sessions of dead workers that their guards closed", total.closed_by_guards),
        ("members that continued in another process", total.upgrades),
        ("leaders that did", total.led_on),
        ("standbys that were started", total.standbys),
        ("planned stops that took longer than a session lasts by itself", total.long_stops),
    ];
    let with_an_elector = [
        ("leaderships of other slots than the first", total.other_slots),
        ("elections that got more or fewer slots", total.resized),
        ("moves that a leader called off", total.called_off),
        ("successions", total.successions),
        ("requests that were carried out", total.requests_done as u64),
        ("requests that expired", total.requests_expired as u64),
        ("requests that were cancelled", total.requests_cancelled as u64),
        ("places that were vacated", total.vacated),
        ("exclusions", total.excluded),
        ("holds after too many takeovers", total.held),
        ("duplicates that gave way", total.duplicates),
        ("leaders that were suspected", total.suspected),
        ("leaders that were put out by one who acts for the elector", total.stand_ins),
        ("bases of tokens that were raised", total.raised),
        ("leaders that made room for a standing order", total.obeyed),
        ("exclusions of members that had failed before", total.penalties),
        ("acknowledgements that ended a hold", total.acknowledged),
        ("leaders that made room for their site had failed", total.site_failed),
        ("failures of sites that were remembered", total.remembered),
        ("sites that were gone back to for want of another", total.barred),
        ("decisions that were deleted", total.deleted),
        ("moves to somebody better", total.better),
        ("releases that took too long", total.overdue),
        ("times without a member that may lead", total.nobody),
    ];
    let with_an_elector = with_an_elector.into_iter().filter(|_| kind == Kind::Elector);
    for (what, count) in everywhere.into_iter().chain(with_an_elector) {
        assert!(count > 0, "no {what} in all these runs: the simulation has lost its teeth");
    }
}

#[test]
fn every_promise_holds_in_every_run_of_the_elector() {
    every_promise_holds(Kind::Elector);
}

#[test]
fn every_promise_holds_in_every_run_of_the_queue() {
    every_promise_holds(Kind::Queue);
}

#[test]
fn every_promise_holds_in_every_run_of_the_single_place() {
    every_promise_holds(Kind::Single);
}

/// `NOISE_HOURS=24` is the long form.
#[test]
fn noise_moves_no_leader() {
    let hours = number("NOISE_HOURS").unwrap_or(1);
    let run = |seed, hours, suspect_after| {
        let total = crate::sim::noise::run(seed, hours, Duration::from_millis(suspect_after));
        let total = total.unwrap_or_else(|violation| panic!("{violation:?}"));
        println!(
            "{hours} h, suspect_after {suspect_after} ms: {} probes lost, {} pauses and cuts, {} moves",
            total.lost_probes,
            total.noises,
            total.terms - 1
        );
        total
    };
    let total = run(1, hours, 300);
    assert_eq!((total.terms, total.suspected), (1, 0), "a leader that lives was replaced");
    // The same noise is too much for a shorter one.
    assert!((1..=4).any(|seed| run(seed, 1, 100).suspected > 0), "the noise has lost its teeth");
}

/// So many seeds: from `SIM_FIRST` on, or half of them fixed and half by the commit. Shown, so that they can be run again.
fn seeds(count: u64) -> Vec<u64> {
    let (fixed, first) = match number("SIM_FIRST") {
        Some(first) => (0, first),
        // Without git they are all fixed.
        None => (count / 2, commit().unwrap_or(count / 2)),
    };
    println!("seeds 0..{fixed}, and {} from SIM_FIRST={first} on", count - fixed);
    (0..fixed).chain((first..).take(usize::try_from(count - fixed).expect("a number of seeds"))).collect()
}

/// A number made of the id of the commit that is checked out.
fn commit() -> Option<u64> {
    let git = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=8", "HEAD"])
        .output()
        .ok()
        .filter(|git| git.status.success())?;
    // Far from the fixed ones.
    Some(u64::from_str_radix(String::from_utf8(git.stdout).ok()?.trim().get(..8)?, 16).ok()? << 24)
}

fn every_promise_holds(kind: Kind) {
    if let Some(seed) = number("SIM_SEED") {
        println!("{:#?}", run(kind, seed, true).unwrap_or_else(|why| panic!("{why}")));
        return;
    }
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    let all = seeds(count);
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Summary::default(), Vec::new()));
    let work = || {
        loop {
            let Some(&seed) = all.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let result = run(kind, seed, false);
            let mut results = results.lock().expect("no thread panics while it counts");
            match result {
                Ok(one) => add(&mut results.0, &one),
                Err(why) => results.1.push((seed, why)),
            }
            if results.1.len() >= 20 {
                return;
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (total, mut failed) = results.into_inner().expect("no thread panics while it counts");
    failed.sort();
    let failed: Vec<_> = failed.into_iter().map(|(_, why)| why).collect();
    println!("{}: {total:#?}", kind.as_str());
    if count >= SEEDS {
        check_coverage(kind, &total);
    }
    assert!(failed.is_empty(), "{} seeds failed\n{}", failed.len(), failed.join("\n"));
}
