//! How often leadership moves on values that waver, setting by setting: the table in
//! `docs/policies.md`.
//!
//! `cargo run -p strategies --example flapping`
//!
//! A day in steps of ten seconds. Three members publish how fit they are, from 0 to 1000, and
//! what they publish wavers; the policy is asked who is better, and the rest is as the engine
//! does it: somebody must have been better without a break for `failback_after`, the leader
//! be one for `min_tenure`, and the window of `max_takeovers` have room. Nothing is random but what a seed says.

use std::fmt::Write as _;

use election_core::{
    internals::record::Record as _,
    strategy::{Ballot, Cause, MemberRecord, Round, Strategy},
};
use strategies::PolicySpec;

const STEP: u64 = 10;
const DAY: u64 = 24 * 3600;
/// How long one member is better than it usually is.
const TURN: u64 = 2 * 3600;
/// By how much.
const GAIN: u64 = 100;
/// What is published is wrong by up to so much, upwards or downwards.
const NOISE: u64 = 60;
const SEED: u64 = 20_261_121;

#[allow(dead_code, reason = "a test takes the table from here")]
fn main() {
    print!("{}\n{}", table(), failing());
}

/// What keeps leadership still; times in seconds.
#[derive(Clone, Copy, Default)]
struct Setting {
    margin: u64,
    tolerance: u64,
    failback_after: u64,
    min_tenure: u64,
    /// So many within ten minutes.
    max_takeovers: Option<usize>,
}

impl Setting {
    fn words(&self) -> String {
        let times = [("failback_after", self.failback_after), ("min_tenure", self.min_tenure)];
        let counts = [("margin", self.margin), ("tolerance", self.tolerance)];
        let counts = counts.iter().filter(|(_, n)| *n > 0).map(|(key, n)| format!("`{key}` {n}"));
        let times = times.iter().filter(|(_, n)| *n > 0).map(|(key, n)| match n % 60 {
            0 => format!("`{key}` {}m", n / 60),
            _ => format!("`{key}` {n}s"),
        });
        let limit = self.max_takeovers.map(|n| format!("`max_takeovers` {n} in 10m"));
        match counts.chain(times).chain(limit).collect::<Vec<_>>() {
            none if none.is_empty() => "nothing".to_owned(),
            all => all.join(", "),
        }
    }

    fn strategy(&self) -> std::sync::Arc<dyn Strategy> {
        let text = format!(
            "auto_moves = 'all'\npipeline = [{{ stage = 'score', margin = {}, tolerance = {}, \
             attributes = {{ fitness = {{ worst = 0, best = 1000 }} }} }}, 'incumbent']",
            self.margin, self.tolerance
        );
        let spec: PolicySpec = toml::from_str(&text).expect("a policy");
        spec.strategy()
    }
}

/// What came of it.
struct Outcome {
    moves: u32,
    /// How much less fit the leader was than the fittest, on average.
    lost: u64,
}

/// The table, as Markdown.
pub(crate) fn table() -> String {
    let none = Setting::default();
    let usual = Setting { failback_after: 600, min_tenure: 60, max_takeovers: Some(5), ..none };
    let settings = [
        none,
        Setting { tolerance: 50, ..none },
        Setting { tolerance: 200, ..none },
        Setting { margin: 50, ..none },
        Setting { margin: 100, ..none },
        Setting { margin: 130, ..none },
        Setting { margin: 200, ..none },
        Setting { margin: 250, ..none },
        Setting { min_tenure: 600, ..none },
        Setting { max_takeovers: Some(5), ..none },
        Setting { failback_after: 60, ..none },
        Setting { failback_after: 600, ..none },
        Setting { margin: 50, failback_after: 60, ..none },
        usual,
        Setting { margin: 50, ..usual },
    ];
    let mut out = String::from(
        "| setting | moves | points lost | moves, 11 of them useful | points lost |\n|---|---|---|---|---|\n",
    );
    for setting in settings {
        let (noise, real) = (day(&setting, 0), day(&setting, GAIN));
        writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            setting.words(),
            noise.moves,
            noise.lost,
            real.moves,
            real.lost
        )
        .expect("a string takes everything");
    }
    out
}

/// What keeps a member from being tried again and again, times in seconds.
#[derive(Clone, Copy)]
struct Penalty {
    window: u64,
    most: u64,
    max_takeovers: Option<usize>,
}

/// The table of a day on which the member of the preferred site fails each time, as Markdown.
pub(crate) fn failing() -> String {
    let none = Penalty { window: 0, most: EXCLUSION, max_takeovers: None };
    let hours = |window: u64, most: u64| Penalty { window: window * 3600, most: most * 3600, ..none };
    let rows = [
        ("`penalty_window` 0s", none),
        ("`penalty_window` 0s, `max_takeovers` 5 in 10m", Penalty { max_takeovers: Some(5), ..none }),
        ("`penalty_window` 1h, `max_exclusion` 1h", hours(1, 1)),
        ("`penalty_window` 6h, `max_exclusion` 1h", hours(6, 1)),
        (
            "`penalty_window` 6h, `max_exclusion` 1h, `max_takeovers` 5 in 10m",
            Penalty { max_takeovers: Some(5), ..hours(6, 1) },
        ),
        ("`penalty_window` 24h, `max_exclusion` 6h", hours(24, 6)),
    ];
    let mut out =
        String::from("| setting | takeovers that failed | minutes without a leader |\n|---|---|---|\n");
    for (words, penalty) in rows {
        let (failed, lost) = failing_day(penalty);
        writeln!(out, "| {words} | {failed} | {lost} |").expect("a string takes everything");
    }
    out
}

/// An exclusion, how long a takeover takes to fail, and for how long a better one must have been
/// there: the defaults, but for the last.
const EXCLUSION: u64 = 300;
const TAKEOVER: u64 = 60;
const BETTER_AFTER: u64 = 300;

/// How often the preferred member is tried in vain, and how long nobody leads meanwhile.
fn failing_day(penalty: Penalty) -> (usize, u64) {
    let mut failures: Vec<u64> = Vec::new();
    let mut attempts: Vec<u64> = Vec::new();
    // It fits from here on.
    let mut fit = 0;
    let mut lost = 0;
    for now in (0..DAY).step_by(usize::try_from(STEP).unwrap_or(1)) {
        let recent = attempts.iter().filter(|at| *at + 600 > now).count();
        let held = penalty.max_takeovers.is_some_and(|most| recent >= most);
        if now < fit + BETTER_AFTER || held {
            continue;
        }
        // It is named, fails after a while, and the other one leads again.
        let failed = now + TAKEOVER;
        let before = failures.iter().filter(|at| *at + penalty.window > failed).count();
        let exclusion = (EXCLUSION << before.min(20)).min(penalty.most.max(EXCLUSION));
        attempts.extend([now, failed]);
        failures.push(failed);
        fit = failed + exclusion;
        lost += TAKEOVER;
    }
    (failures.len(), lost / 60)
}

/// A day with members of which each in turn is better by `gain`.
fn day(setting: &Setting, gain: u64) -> Outcome {
    let strategy = setting.strategy();
    let mut noise = SEED;
    let mut members = [0, 1, 2].map(member);
    let (mut leader, mut since, mut better) = (0, 0, None);
    let mut moves: Vec<u64> = Vec::new();
    let (mut lost, mut steps) = (0, 0);
    for now in (0..DAY).step_by(usize::try_from(STEP).unwrap_or(1)) {
        let turn = usize::try_from(now / TURN).unwrap_or(0) % 3;
        let fitness = [0, 1, 2].map(|n| 500 + if n == turn { gain } else { 0 });
        for (member, fitness) in members.iter_mut().zip(fitness) {
            let published = fitness + next(&mut noise) % (2 * NOISE + 1) - NOISE;
            member.attributes.insert("fitness".to_owned(), published.to_string());
        }
        let first = best(strategy.as_ref(), &members, leader);
        // As the engine goes about it.
        better = if first == leader {
            None
        } else {
            better.filter(|(who, _)| *who == first).or(Some((first, now)))
        };
        let ripe = better.is_some_and(|(_, from)| now - from >= setting.failback_after);
        let served = now - since >= setting.min_tenure;
        let recent = moves.iter().filter(|at| *at + 600 > now).count();
        if ripe && served && setting.max_takeovers.is_none_or(|most| recent < most) {
            (leader, since, better) = (first, now, None);
            moves.push(now);
        }
        lost += fitness.into_iter().max().unwrap_or(0) - fitness[leader];
        steps += 1;
    }
    Outcome { moves: u32::try_from(moves.len()).unwrap_or(u32::MAX), lost: lost / steps }
}

fn member(number: usize) -> MemberRecord {
    let json = format!(r#"{{"v":1, "member":"n-{number}", "site":"east", "ballot":"b-{number:010}"}}"#);
    MemberRecord::decode("/nodes", json.as_bytes()).expect("a record")
}

fn best(strategy: &dyn Strategy, members: &[MemberRecord], leader: usize) -> usize {
    let ballot: &Ballot = &members[leader].ballot;
    let round = Round::new(Cause::BetterCandidate, 0, members).with(|round| round.incumbent = Some(ballot));
    let ranking = strategy.rank(&round);
    let first = ranking.first().map(|first| &first.named.ballot);
    members.iter().position(|m| Some(&m.ballot) == first).unwrap_or(leader)
}

/// Splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
