//! What a test breaks, and when: drawn from a seed beforehand, and stored as data.

use std::ops::Range;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Everything that a run does by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// What it was drawn from.
    pub seed: u64,
    /// How long it takes, in milliseconds. After that everything is healed, and somebody must lead.
    pub length_ms: u64,
    /// Keys of the workers' configuration, and their values.
    pub settings: Vec<(String, String)>,
    /// How the job ends.
    #[serde(default)]
    pub job: JobEnd,
    /// What happens, in the order of time.
    pub steps: Vec<Step>,
}

/// How the job ends when it is asked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobEnd {
    /// At once.
    #[default]
    Prompt,
    /// It acts on for most of its stop timeout.
    Slow,
    /// It leaves a process that acts on until it is killed.
    Child,
}

impl JobEnd {
    /// Its name, as in a stored schedule.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Slow => "slow",
            Self::Child => "child",
        }
    }
}

/// Something that is broken for a while, or ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When, in milliseconds after the beginning.
    pub at_ms: u64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// What.
    #[serde(flatten)]
    pub act: Act,
}

/// What is broken or ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Act {
    /// SIGKILL.
    Kill {
        /// Of a member.
        of: Victim,
        /// These processes.
        what: Processes,
    },
    /// SIGSTOP, later SIGCONT.
    Freeze {
        /// Of a member.
        of: Victim,
        /// These processes.
        what: Processes,
    },
    /// The host reaches no other one.
    CutOff {
        /// The member.
        of: Victim,
    },
    /// The host receives, and what it sends is lost.
    Mute {
        /// The member.
        of: Victim,
    },
    /// The host loses some of the packets that it receives.
    Lossy {
        /// The member.
        of: Victim,
        /// How many of a hundred.
        percent: u8,
    },
    /// SIGKILL; later the server is started again.
    KillServer {
        /// The server.
        server: Which,
    },
    /// SIGSTOP, later SIGCONT.
    FreezeServer {
        /// The server.
        server: Which,
    },
    /// The server reaches no other server, and its clients reach it.
    IsolateServer {
        /// The server.
        server: Which,
    },
    /// The members and the server of a site reach nothing outside.
    CutSite {
        /// The site.
        site: String,
    },
    /// A command of an operator that does not last.
    Command {
        /// The words of the command.
        words: Vec<String>,
    },
    /// A POST.
    Post {
        /// The path.
        path: String,
        /// The body.
        body: String,
    },
    /// An order that is withdrawn later.
    Order {
        /// The words that give it.
        words: Vec<String>,
        /// The words that withdraw it.
        withdrawn: Vec<String>,
    },
}

/// A member, by what it is when it is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// The leader.
    Leader,
    /// The one of this number among all.
    Member(usize),
}

/// A server of ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// The one that leads the others.
    Leading,
    /// The one of this number among all.
    Server(usize),
}

/// Processes on a member's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// The worker.
    Worker,
    /// Its guards.
    Guards,
    /// The job.
    Job,
    /// All of them.
    All,
}

/// The members of a run, and how many servers it has.
pub const MEMBERS: [(&str, &str); 4] =
    [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")];
/// One for each site, and one in a third.
pub const SERVERS: usize = 3;

/// Between the beginning and the first fault.
const BEFORE: u64 = 6000;
/// The first faults of a round begin within this.
const TOGETHER: u64 = 4000;
/// The longest fault: more than two session timeouts.
const LONGEST: u64 = 15_000;
/// In one of three seeds some rounds are followed by such a calm, in which a leader must come: more than the five session
/// timeouts that it may take.
const REST: Range<u64> = 40_000..60_000;

impl Schedule {
    /// Draws one. The weights of what can happen are drawn anew for each seed, because a rare combination of faults would
    /// hardly ever come with the same ones.
    #[must_use]
    pub fn draw(seed: u64, length_ms: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let weights: Vec<f64> = (0..KINDS).map(|_| rng.f64().powi(3)).collect();
        // How many faults there are at a time, and how long it is calm between them.
        let (most, calm) = (rng.usize(1..=3), rng.u64(2000..12_000));
        let leader_share = rng.f64();
        let on_pause = ["stop", "stop", "freeze"][rng.usize(..3)];
        let settings = vec![("policy.on_pause".to_owned(), on_pause.to_owned())];
        // Of its own, so that all else is drawn as without.
        let mut rests = Rng::with_seed(!seed);
        let (mut steps, mut now) = (Vec::new(), BEFORE);
        while now < length_ms {
            let mut end = now;
            for _ in 0..rng.usize(1..=most) {
                let at_ms = now + rng.u64(..TOGETHER);
                // As many short ones as long ones.
                let for_ms = (200.0 * (LONGEST as f64 / 200.0).powf(rng.f64())) as u64;
                let act = act(&mut rng, &weights, leader_share);
                if at_ms + for_ms < length_ms {
                    steps.push(Step { at_ms, for_ms, act });
                    end = end.max(at_ms + for_ms);
                }
            }
            now = end + rng.u64(calm / 2..calm * 2) + 1;
            if seed.is_multiple_of(3) && rests.bool() {
                now += rests.u64(REST);
            }
        }
        steps.sort_by_key(|step| step.at_ms);
        Self { seed, length_ms, settings, job: JobEnd::Prompt, steps }
    }
}

const KINDS: usize = 12;

fn act(rng: &mut Rng, weights: &[f64], leader_share: f64) -> Act {
    let mut left = rng.f64() * weights.iter().sum::<f64>();
    let kind = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    let of =
        if rng.f64() < leader_share { Victim::Leader } else { Victim::Member(rng.usize(..MEMBERS.len())) };
    let server = if rng.bool() { Which::Leading } else { Which::Server(rng.usize(..SERVERS)) };
    let what = [Processes::Worker, Processes::Guards, Processes::Job, Processes::All][rng.usize(..4)];
    let (member, site) = MEMBERS[rng.usize(..MEMBERS.len())];
    match kind.unwrap_or(0) {
        0 => Act::Kill { of, what },
        1 => Act::Freeze { of, what },
        2 => Act::CutOff { of },
        3 => Act::Mute { of },
        4 => Act::Lossy { of, percent: rng.u8(10..60) },
        5 => Act::KillServer { server },
        6 => Act::FreezeServer { server },
        7 => Act::IsolateServer { server },
        8 => Act::CutSite { site: site.to_owned() },
        9 => order(rng, member, site),
        10 => {
            let body = [format!("{{\"to_site\":\"{site}\"}}"), "{}".to_owned()][rng.usize(..2)].clone();
            let path = ["/switchover", "/failover", "/restart"][rng.usize(..3)];
            Act::Post { path: path.to_owned(), body: if path == "/restart" { "{}".to_owned() } else { body } }
        }
        _ => Act::Command { words: words(&command(rng, member, site)) },
    }
}

fn command(rng: &mut Rng, member: &str, site: &str) -> String {
    match rng.u8(..7) {
        0 => format!("switchover --to {member} --wait --timeout 20s"),
        1 => format!("switchover --to-site {site} --wait --timeout 20s"),
        2 => "switchover --wait --timeout 2s".to_owned(),
        3 => "failover --wait --timeout 20s".to_owned(),
        4 => "failover --force --wait --timeout 20s --yes".to_owned(),
        5 => "failover --force --now --wait --timeout 20s --yes".to_owned(),
        _ => "restart --wait --timeout 20s".to_owned(),
    }
}

fn order(rng: &mut Rng, member: &str, site: &str) -> Act {
    let (given, withdrawn) = match rng.u8(..3) {
        0 => (format!("drain {site} --yes"), format!("drain {site} --off")),
        1 => (format!("maintenance {member}"), format!("maintenance {member} --off")),
        _ => ("pause".to_owned(), "resume".to_owned()),
    };
    Act::Order { words: words(&given), withdrawn: words(&withdrawn) }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
