//! The protocol of the README, from outside: every mode with every recipe.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod support;

use nix::sys::signal::Signal;
use support::{Contestant, Server};

/// Three candidates of one election: leadership passes through all, and each can join again.
fn candidates(recipe: &str) {
    let server = Server::start();
    let mut one = Contestant::start(
        &server.connect(),
        "/bench/one",
        &["--n", "3", "--mode", "cand", "--prefix", "a", "--recipe", recipe],
    );
    let leader = one.hear("LEADER");
    let announced = one.hear("ANNOUNCED");
    assert_eq!(announced.candidate, leader.candidate);
    assert!(announced.at >= leader.at);
    one.hear("READY");
    let first = leader.candidate.unwrap();
    let mut led = vec![first];
    for _ in 0..2 {
        let leads = *led.last().unwrap();
        one.say(&format!("release {leads}"));
        let release = one.hear("RELEASE");
        let next = one.hear("LEADER");
        let released = one.hear("RELEASED");
        assert_eq!((release.candidate, released.candidate), (Some(leads), Some(leads)));
        assert!(release.at < next.at, "{release:?} {next:?}");
        assert!(!led.contains(&next.candidate.unwrap()), "{led:?} {next:?}");
        led.push(next.candidate.unwrap());
    }
    // Only the last one is left; the first comes back, and follows it.
    one.say(&format!("rejoin {first}"));
    one.say(&format!("release {}", led[2]));
    assert_eq!(one.hear("LEADER").candidate, Some(first));
    assert!(one.hear_within("LOST", std::time::Duration::ZERO).is_none(), "nobody has lost anything");
    // Another process takes over once this one is gone.
    let mut other = Contestant::start(
        &server.connect(),
        "/bench/one",
        &["--n", "1", "--mode", "cand", "--prefix", "b", "--recipe", recipe],
    );
    other.hear("READY");
    one.say("quit");
    let (status, rest) = one.ended();
    assert!(status.success(), "{status} {rest:?}");
    other.hear("LEADER");
    other.signal(Signal::SIGTERM);
    assert!(other.ended().0.success());
}

/// Candidates that crash lose leadership when their sessions end, and can join again with other sessions.
fn crashed(recipe: &str) {
    let server = Server::start();
    let rest = ["--n", "3", "--mode", "cand", "--recipe", recipe];
    let mut all = Contestant::start(&server.connect(), "/bench/crashed", &rest);
    let first = all.hear("ANNOUNCED").candidate.unwrap();
    all.hear("LEADER");
    all.hear("READY");
    let idle = (0..3).find(|candidate| *candidate != first).unwrap();
    all.say(&format!("crash {first} {idle}"));
    let next = all.hear("LEADER");
    assert_eq!(next.candidate, Some(3 - first - idle), "the others are gone");
    let mut gone: Vec<_> = (0..2).map(|_| all.hear("CRASH").candidate.unwrap()).collect();
    gone.sort_unstable();
    assert_eq!(gone, [first.min(idle), first.max(idle)]);
    assert!(all.hear_within("LOST", std::time::Duration::ZERO).is_none(), "who has crashed says nothing");
    all.say(&format!("crash {first}"));
    all.hear("ERR");
    all.say(&format!("rejoin {first}"));
    assert_eq!(all.hear("ENROLLED").candidate, Some(first));
    all.say(&format!("crash {}", 3 - first - idle));
    assert_eq!(all.hear("LEADER").candidate, Some(first));
    all.say("quit");
    assert!(all.ended().0.success());
}

/// A process that is frozen past its session has lost leadership, and reports it when it wakes.
fn frozen(recipe: &str) {
    let server = Server::start();
    let start = |prefix| {
        let rest = ["--n", "1", "--mode", "cand", "--prefix", prefix, "--recipe", recipe];
        Contestant::start(&server.connect(), "/bench/frozen", &rest)
    };
    let mut one = start("a");
    one.hear("ANNOUNCED");
    let mut other = start("b");
    other.hear("READY");
    one.signal(Signal::SIGSTOP);
    other.hear("LEADER");
    one.signal(Signal::SIGCONT);
    let lost = one.hear("LOST");
    assert_eq!(lost.candidate, Some(0));
    other.say("release 0");
    other.hear("RELEASED");
    one.hear("LEADER");
}

fn multi(recipe: &str) {
    let server = Server::start();
    let mut all = Contestant::start(
        &server.connect(),
        "/bench/multi",
        &["--n", "3", "--mode", "multi", "--recipe", recipe],
    );
    all.hear("READY");
    let mut led: Vec<_> = (0..3).map(|_| all.hear("LEADER").candidate.unwrap()).collect();
    led.sort_unstable();
    assert_eq!(led, [0, 1, 2]);
    all.end_of_input();
    assert!(all.ended().0.success());
}

fn many(recipe: &str) {
    let server = Server::start();
    let start = |prefix| {
        let rest = ["--n", "20", "--mode", "many", "--prefix", prefix, "--recipe", recipe];
        Contestant::start(&server.connect(), "/bench/many", &rest)
    };
    let mut all = start("x");
    let connected = all.hear("CONNECTED");
    all.say("go");
    let begun = all.hear("START");
    assert!(connected.at < begun.at);
    all.hear("READY");
    let mut led: Vec<_> = (0..20).map(|_| all.hear("ANNOUNCED").candidate.unwrap()).collect();
    led.sort_unstable();
    assert_eq!(led, (0..20).collect::<Vec<_>>());
    // Another prefix, other elections.
    let mut others = start("y");
    others.hear("CONNECTED");
    others.say("go");
    for _ in 0..20 {
        others.hear("LEADER");
    }
    all.signal(Signal::SIGINT);
    assert!(all.ended().0.success());
}

macro_rules! with_every_recipe {
    ($($name:ident),*) => {$(
        mod $name {
            #[test]
            fn elector() {
                super::$name("elector");
            }

            #[test]
            fn queue() {
                super::$name("queue");
            }

            #[test]
            fn single() {
                super::$name("single");
            }
        }
    )*};
}

with_every_recipe!(candidates, crashed, frozen, multi, many);

/// Errors are reported, and do not end what works.
#[test]
fn words_that_mean_nothing_are_answered() {
    let server = Server::start();
    let mut one =
        Contestant::start(&server.connect(), "/bench/words", &["--mode", "many", "--recipe", "queue"]);
    one.hear("CONNECTED");
    for word in ["release 0", "sing"] {
        one.say(word);
        one.hear("ERR");
    }
    one.say("go");
    one.hear("LEADER");
    for word in ["go", "release 7", "release", "rejoin 0", "crash", "crash x", "crash 7"] {
        one.say(word);
        one.hear("ERR");
    }
    one.say("quit");
    assert!(one.ended().0.success());
}

#[test]
fn nobody_at_the_other_end_is_an_error() {
    // Nothing listens on the discard port.
    let one = Contestant::start("127.0.0.1:9", "/bench/nobody", &["--mode", "cand"]);
    let (status, said) = one.ended();
    assert!(!status.success());
    assert!(said.iter().any(|line| line.starts_with("ERR ") && line.contains("127.0.0.1:9")), "{said:?}");
}
