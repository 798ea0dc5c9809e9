//! Hours of a session that must leave a lost server within 300 ms, in virtual time: on a server that pauses, over a network
//! that loses packets, beside writes that wait for slow disks. None of that makes the server suspicious; its loss does.
//!
//! `ZK_PROTO_SEED=<printed> cargo test -p zk-proto --test it noise` repeats a run.

use std::collections::VecDeque;
use std::time::Duration;

use zk_proto::{Connection, ErrorCode, Input, Limits, Output, Reply, Request, xid};

use super::{answer, ms, outputs, ticket, written};

const SUSPECT_AFTER: Duration = Duration::from_millis(300);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// The longest pause of the server, as for a garbage collection, and the longest time of a write.
const PAUSE: f64 = 150.0;
const WRITE: f64 = 450.0;

/// A session, and the server and the network that it talks to.
struct World {
    random: fastrand::Rng,
    connection: Connection<u32>,
    now: Duration,
    /// What the server is going to answer, in this order: when, and which request.
    answers: VecDeque<(Duration, i32)>,
    /// The server does nothing until then.
    pauses_until: Duration,
    next_pause: Duration,
    next_heartbeat: Duration,
    next_write: Duration,
    next_read: Duration,
    /// Answers come later than this.
    slowest: Duration,
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits { suspect_after: Some(SUSPECT_AFTER), ..Limits::default() };
        let mut connection = Connection::new(ms(0), ticket(), limits);
        outputs(&mut connection);
        let start = ms(0);
        Self {
            random: fastrand::Rng::with_seed(seed),
            connection,
            now: start,
            answers: VecDeque::new(),
            pauses_until: start,
            next_pause: start,
            next_heartbeat: start,
            next_write: start,
            next_read: start,
            slowest: start,
        }
    }

    /// Milliseconds that mostly lie around `median`, and never beyond `most`.
    fn around(&mut self, median: f64, spread: f64, most: f64) -> Duration {
        // Nearly normal.
        let normal = ((0..3).map(|_| self.random.f64()).sum::<f64>() - 1.5) * 2.0;
        Duration::from_secs_f64((median * (spread * normal).exp()).min(most) / 1000.0)
    }

    fn in_about(&mut self, mean: Duration) -> Duration {
        self.now + mean.mul_f64(-(1.0 - self.random.f64()).ln())
    }

    /// Takes the time to the next event; `lost`: the server and all that it has not answered yet.
    fn step(&mut self, lost: bool) {
        let due = [self.next_pause, self.next_heartbeat, self.next_write, self.next_read];
        let answer_at = self.answers.front().filter(|_| !lost).map(|(at, _)| *at);
        let next = due.into_iter().chain(self.connection.deadline()).chain(answer_at).min().unwrap();
        self.now = self.now.max(next);
        if answer_at.is_some_and(|at| at <= self.now) {
            let (_, number) = self.answers.pop_front().unwrap();
            let (code, reply) = match number {
                xid::PING => (ErrorCode::OK, Reply::Empty),
                _ => (ErrorCode::NO_NODE, Reply::Empty),
            };
            answer(&mut self.connection, self.now, number, code, &reply);
        }
        if self.next_pause <= self.now {
            self.pauses_until = self.now + self.around(12.0, 0.9, PAUSE);
            self.next_pause = self.in_about(ms(10_000));
        }
        let none = Request::Delete { path: "/none/none".into(), version: -1 };
        let read = Request::Exists { path: "/".into(), watch: false };
        if self.next_heartbeat <= self.now {
            self.ask(&none, true);
            self.next_heartbeat = self.now + ms(2500);
        }
        if self.next_write <= self.now {
            self.ask(&none, false);
            self.next_write = self.in_about(ms(1000));
        }
        if self.next_read <= self.now {
            self.ask(&read, false);
            self.next_read = self.in_about(ms(700));
        }
        self.connection.handle(self.now, Input::Tick);
        if !self.connection.outgoing().is_empty() {
            for (number, op, _) in written(&mut self.connection, self.now) {
                self.serve(number, op.needs_quorum());
            }
        }
        while let Some(output) = self.connection.poll() {
            assert!(matches!(output, Output::Ended { .. }), "{output:?}");
        }
    }

    fn ask(&mut self, request: &Request<'_>, heartbeat: bool) {
        self.connection.handle(self.now, Input::Request { request, watch: None, heartbeat, tag: 0 });
    }

    fn serve(&mut self, number: i32, is_write: bool) {
        let mut took = self.around(0.5, 0.6, 20.0);
        // TCP repeats a lost packet once the one after it has arrived: a check's.
        if self.random.f64() < 1e-4 {
            took += SUSPECT_AFTER / 4 + ms(2);
        }
        if is_write {
            took += self.around(3.0, 0.5, 30.0);
            if self.random.f64() < 1e-3 {
                took += self.around(200.0, 0.5, WRITE - 100.0);
            }
        }
        let before = self.answers.back().map_or(self.now, |(at, _)| *at);
        let at = (self.now.max(self.pauses_until) + took).max(before);
        self.slowest = self.slowest.max(at - self.now);
        self.answers.push_back((at, number));
    }
}

fn seed() -> u64 {
    let seed = std::env::var("ZK_PROTO_SEED").map_or(18, |seed| seed.parse().unwrap());
    println!("ZK_PROTO_SEED={seed}");
    seed
}

/// `NOISE_HOURS=24` is the long form.
#[test]
fn hours_of_noise_make_no_server_suspicious() {
    let hours =
        std::env::var("NOISE_HOURS").map_or(2, |hours| hours.parse().expect("NOISE_HOURS is a number"));
    let mut world = World::new(seed());
    let mut steps = 0;
    while world.now < HOUR * hours {
        world.step(false);
        assert!(!world.connection.suspects(world.now), "after {:?}: {:?}", world.now, world.answers);
        steps += 1;
    }
    println!("{steps} steps, the slowest answer took {:?}", world.slowest);
    assert!(world.slowest > SUSPECT_AFTER / 2, "there was no noise to speak of");
}

#[test]
fn amid_the_noise_a_lost_server_is_suspected_in_time() {
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut longest, mut behind_writes) = (ms(0), 0);
    for _ in 0..500 {
        let mut world = World::new(random.u64(..));
        let cut = ms(random.u64(5_000..20_000));
        while world.now < cut {
            world.step(false);
        }
        // Writes wait for a quorum, and so does what is behind them. What this server has answered is on its way.
        let waits = world.connection.is_busy();
        // Until its loss shows, the session begins nothing new.
        let never = HOUR * 24;
        (world.next_heartbeat, world.next_write, world.next_read) = (never, never, never);
        let lost = world.now;
        while !world.connection.suspects(world.now) {
            world.step(true);
        }
        let took = world.now - lost;
        if waits {
            behind_writes += 1;
            assert!(took <= super::TIMEOUT / 4, "{took:?}");
        } else {
            longest = longest.max(took);
        }
    }
    println!("suspected after {longest:?} at most; {behind_writes} were behind a write");
    assert!(longest <= SUSPECT_AFTER * 7 / 8 + ms(1), "{longest:?}");
    assert!(behind_writes < 100, "{behind_writes}");
}
