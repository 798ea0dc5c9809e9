//! What a run does: drawn from its seed beforehand.

use fastrand::Rng;

/// The recipes, by their names.
pub const RECIPES: [&str; 3] = ["elector", "queue", "single"];
/// The error codes that a server may answer: unknown ones of each sign, and those of Apache ZooKeeper.
const CODES: [i32; 25] = [
    -128, -999, 7, -1, -2, -3, -4, -5, -6, -7, -8, -9, -13, -100, -102, -108, -110, -111, -113, -114, -115,
    -118, -119, -122, -124,
];

/// Everything that a run does by itself.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// The recipe.
    pub recipe: &'static str,
    /// How many members there are.
    pub members: usize,
    /// How long a chunk of bytes is under way at most, in milliseconds.
    pub latency_ms: u64,
    /// How long a job acts at most after the order to stop, in milliseconds.
    pub stop_ms: u64,
    /// How long it takes, in milliseconds.
    pub length_ms: u64,
    /// In the order of time.
    pub steps: Vec<Step>,
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Step {
    /// When, in milliseconds.
    pub at_ms: u64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// What.
    pub act: Act,
}

/// What is broken. Members and servers are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A member and the servers do not hear each other.
    Cut(usize),
    /// The servers do not hear a member, which hears them.
    Mute(usize),
    /// The connections of a member are closed.
    Reset(usize),
    /// A member dies with its job, and another incarnation follows.
    Crash(usize),
    /// A member leaves, and joins again.
    Leave(usize),
    /// A server reaches no other server, and its clients reach it.
    Isolate(usize),
    /// A server does nothing.
    Freeze(usize),
    /// A server is ended, and started later.
    Stop(usize),
    /// A server hears of no change.
    HoldCommits(usize),
    /// A server answers every request by this code.
    Answers(usize, i32),
    /// A server refuses credentials, or closes the connection of whoever needs none.
    Refuses(usize),
    /// The answers to so many of the next writes are lost.
    LoseReplies(usize),
    /// The answers to so many of the next requests come late.
    LateReplies(usize),
    /// The requests of all clients are carried out in another order.
    Reorder,
}

const KINDS: usize = 14;
pub(crate) const SERVERS: usize = 3;
const LENGTH: u64 = 60_000;
/// The longest fault: more than two session timeouts.
const LONGEST: f64 = 12_000.0;
/// In one of three seeds some rounds are followed by such a calm, in which a leader must come: more than the five session
/// timeouts that it may take.
const REST: u64 = 30_000;

impl Plan {
    /// Draws one. The weights of what can happen are drawn anew for each seed, because a rare combination of faults would
    /// hardly ever come with the same ones.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let recipe = RECIPES[rng.usize(..RECIPES.len())];
        let (members, latency_ms, stop_ms) = (rng.usize(3..=6), rng.u64(0..20), rng.u64(..400));
        let weights: Vec<f64> = (0..KINDS).map(|_| rng.f64().powi(3)).collect();
        let (most, calm) = (rng.usize(1..=3), rng.u64(1000..8000));
        // Of its own, so that all else is drawn as without.
        let mut rests = Rng::with_seed(!seed);
        let (mut steps, mut now) = (Vec::new(), 4000);
        while now < LENGTH {
            let mut end = now;
            for _ in 0..rng.usize(1..=most) {
                let at_ms = now + rng.u64(..3000);
                // As many short ones as long ones.
                let for_ms = duration(&mut rng);
                steps.push(Step { at_ms, for_ms, act: act(&mut rng, &weights, members) });
                end = end.max(at_ms + for_ms);
            }
            now = end + rng.u64(calm / 2..calm * 2) + 1;
            if seed.is_multiple_of(3) && rests.bool() {
                now += REST;
            }
        }
        steps.sort_by_key(|step| step.at_ms);
        Self { seed, recipe, members, latency_ms, stop_ms, length_ms: LENGTH, steps }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds")]
fn duration(rng: &mut Rng) -> u64 {
    (100.0 * (LONGEST / 100.0).powf(rng.f64())) as u64
}

fn act(rng: &mut Rng, weights: &[f64], members: usize) -> Act {
    let mut left = rng.f64() * weights.iter().sum::<f64>();
    let kind = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    let (member, server, few) = (rng.usize(..members), rng.usize(..SERVERS), rng.usize(1..5));
    match kind.unwrap_or(0) {
        0 => Act::Cut(member),
        1 => Act::Mute(member),
        2 => Act::Reset(member),
        3 => Act::Crash(member),
        4 => Act::Leave(member),
        5 => Act::Isolate(server),
        6 => Act::Freeze(server),
        7 => Act::Stop(server),
        8 => Act::HoldCommits(server),
        9 => Act::Answers(server, CODES[rng.usize(..CODES.len())]),
        10 => Act::Refuses(server),
        11 => Act::LoseReplies(few),
        12 => Act::LateReplies(few),
        _ => Act::Reorder,
    }
}
