//! Histories without a fault of the product: a small world by a seed.

use fastrand::Rng;
use robustness::history::{Answer, Call, Event, History, Leadership, Line, RequestState, STALE, Setup};

const MEMBERS: [&str; 4] = ["east-1", "east-2", "west-1", "west-2"];
const MS: u64 = 1_000_000;
pub(crate) const TIMEOUT_MS: u64 = 6000;
pub(crate) const STORE: &str = "orders";

/// How a leadership ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Killed,
    CutOff,
    Switchover,
}

struct World {
    rng: Rng,
    lines: Vec<Line>,
    /// In milliseconds.
    now: u64,
    ops: u64,
    values: Vec<(u64, u64)>,
}

/// A history of some leaderships, each of which ends in its own way.
pub(crate) fn history(seed: u64) -> History {
    let mut world =
        World { rng: Rng::with_seed(seed), lines: Vec::new(), now: 1000, ops: 0, values: Vec::new() };
    let setup = Setup { session_timeout_ms: TIMEOUT_MS, leaderless_timeouts: 5, ahead: None };
    world.push(0, "test", Event::Setup(setup));
    let mut next =
        Leadership { job: "orders".into(), slot: 0, member: MEMBERS[0].into(), term: 1, token: 100 };
    world.decided(&next, "startup");
    // Each way once, in any order.
    let mut ways = [Way::Killed, Way::CutOff, Way::Switchover, Way::Killed, Way::Switchover];
    world.rng.shuffle(&mut ways);
    for (fault, way) in ways.into_iter().enumerate() {
        next = world.leads(&next, way, fault as u64);
    }
    world.takes_over(&next);
    world.acts(&next, 2000);
    let end = world.now + 100;
    let values = world.values.clone();
    world.op(end, end + 5, "test", Call::Read { store: STORE.into() }, Some(Answer::Values { values }));
    world.push(end + 10, "test", Event::Finished);
    History::of(world.lines)
}

impl World {
    fn push(&mut self, at_ms: u64, by: &str, event: Event) {
        // No two lines at the same time.
        let at = at_ms * MS + self.lines.len() as u64;
        self.lines.push(Line { at, by: by.to_owned(), event });
    }

    /// An operation; without an answer nobody learns its outcome.
    fn op(&mut self, from: u64, to: u64, by: &str, call: Call, answer: Option<Answer>) {
        self.ops += 1;
        let op = self.ops;
        self.push(from, by, Event::Invoke { op, call });
        if let Some(answer) = answer {
            self.push(to, by, Event::Ok { op, answer });
        }
    }

    fn refused(&mut self, from: u64, to: u64, by: &str, call: Call) {
        self.ops += 1;
        let op = self.ops;
        self.push(from, by, Event::Invoke { op, call });
        self.push(to, by, Event::Fail { op, reason: STALE.to_owned() });
    }

    fn decided(&mut self, next: &Leadership, cause: &str) {
        let Leadership { job, slot, term, member, .. } = next.clone();
        let (member, cause) = (Some(member), cause.to_owned());
        self.push(self.now, "zookeeper", Event::Decided { job, slot, term, member, cause });
    }

    fn requested(&mut self, at_ms: u64, request: &str, state: RequestState) {
        let (request, kind) = (request.to_owned(), Some("switchover".to_owned()));
        self.push(at_ms, "zookeeper", Event::Request { request, kind, state });
    }

    fn takes_over(&mut self, leader: &Leadership) {
        self.now += self.rng.u64(5..50);
        self.push(self.now, "zookeeper", Event::Acquired(leader.clone()));
        self.now += self.rng.u64(5..50);
        self.push(self.now, &leader.member, Event::Lead(leader.clone()));
        let call = Call::Claim { store: STORE.into(), token: leader.token };
        self.op(self.now + 1, self.now + 3, &leader.member, call, Some(Answer::Done));
        self.now += 4;
    }

    /// For so many milliseconds.
    fn acts(&mut self, leader: &Leadership, ms: u64) {
        let (until, by) = (self.now + ms, leader.member.clone());
        while self.now < until {
            self.now += self.rng.u64(50..150);
            self.push(self.now, &by, Event::Act(leader.clone()));
            let value = self.rng.u64(..);
            match self.rng.u8(0..4) {
                0 => {
                    let call = Call::Read { store: STORE.into() };
                    let count = self.values.len() as u64;
                    self.op(self.now + 1, self.now + 9, &by, call, Some(Answer::Count { count }));
                }
                1 => {
                    for member in MEMBERS {
                        let leads = member == leader.member;
                        let (code, leadership) =
                            if leads { (200, Some(leader.clone())) } else { (503, None) };
                        let call = Call::Leader { member: member.into(), job: leader.job.clone() };
                        let answer = Answer::Status { code, leadership };
                        self.op(self.now + 1, self.now + 5, "test", call, Some(answer));
                    }
                }
                _ => {
                    let call = Call::Write { store: STORE.into(), token: leader.token, value };
                    self.values.push((leader.token, value));
                    self.op(self.now + 1, self.now + 9, &by, call, Some(Answer::Done));
                }
            }
            self.now += 10;
        }
    }

    /// Returns the next leadership, which has been decided.
    fn leads(&mut self, leader: &Leadership, way: Way, fault: u64) -> Leadership {
        self.takes_over(leader);
        let ms = self.rng.u64(1000..4000);
        self.acts(leader, ms);
        let next = Leadership {
            member: MEMBERS[self.rng.usize(..MEMBERS.len())].to_owned(),
            term: leader.term + 1,
            token: leader.token + self.rng.u64(1..100),
            ..leader.clone()
        };
        let begun = self.now;
        let what = format!("{} is lost", leader.member);
        match way {
            Way::Killed => {
                self.push(
                    begun,
                    "test",
                    Event::Fault { fault, what, member: Some(leader.member.clone()), excuses: vec![] },
                );
                // Nobody knows whether it was written: it was.
                let value = self.rng.u64(..);
                self.values.push((leader.token, value));
                let call = Call::Write { store: STORE.into(), token: leader.token, value };
                self.op(begun, begun, &leader.member, call, None);
                self.now += 400;
            }
            Way::CutOff => {
                self.push(
                    begun,
                    "test",
                    Event::Fault { fault, what, member: Some(leader.member.clone()), excuses: vec![] },
                );
                self.acts(leader, TIMEOUT_MS / 2);
                self.now = begun + TIMEOUT_MS + 500;
            }
            Way::Switchover => {
                let request = format!("r-{fault:010}");
                self.requested(begun, &request, RequestState::Pending);
                self.now += 20;
            }
        }
        if way == Way::Switchover {
            return self.switched(leader, next, fault, begun);
        }
        self.push(self.now, "zookeeper", Event::Released(leader.clone()));
        self.now += 10;
        self.decided(&next, "leader-lost");
        if way == Way::CutOff {
            // Its late write, after the next one has claimed its token.
            let (late, value) = (self.now + 1000, self.rng.u64(..));
            let call = Call::Write { store: STORE.into(), token: leader.token, value };
            self.refused(late, late + 5, &leader.member, call);
        }
        self.push(self.now + 1500, "test", Event::Healed { fault });
        next
    }

    fn switched(&mut self, leader: &Leadership, next: Leadership, fault: u64, begun: u64) -> Leadership {
        let request = format!("r-{fault:010}");
        let term = next.term;
        // As a failover by force does: the slot is vacated first.
        if self.rng.bool() {
            let Leadership { job, slot, term, .. } = leader.clone();
            let (term, cause) = (term + 1000, "switchover".to_owned());
            self.push(self.now, "zookeeper", Event::Decided { job, slot, term, member: None, cause });
            self.requested(self.now, &request, RequestState::Accepted { term });
        }
        self.decided(&next, "switchover");
        self.requested(self.now, &request, RequestState::Accepted { term });
        self.now += 30;
        self.push(self.now, &leader.member, Event::End(leader.clone()));
        self.now += 10;
        self.push(self.now, "zookeeper", Event::Released(leader.clone()));
        let state = RequestState::Done { term, leader: next.member.clone() };
        let done = self.now + 200;
        self.requested(done, &request, state.clone());
        let arguments = vec!["--to".to_owned(), next.member.clone()];
        let call = Call::Operator { verb: "switchover".to_owned(), arguments, excuses: vec![] };
        let answer = Answer::Told { code: 0, request: Some(request), state: Some(state) };
        self.op(begun, done + 10, "operator", call, Some(answer));
        next
    }
}
