//! The runs of the checker: what may go wrong in each, and how often.

use election_core::record::RequestKind;

use crate::settings::{Ask, Fault, Setting, Start, THREE, THREE_TWO_EAST};

/// Whatever can go wrong by itself.
pub(crate) const ANY: &[Fault] = &[
    Fault::Crash,
    Fault::Freeze,
    Fault::Cut,
    Fault::Reset,
    Fault::Minority,
    Fault::Lag,
    Fault::JobFails,
    Fault::JobHangs,
    Fault::JobEnds,
    Fault::Leave,
];

const JOB: &[Fault] = &[Fault::JobFails, Fault::JobHangs, Fault::JobEnds, Fault::Leave, Fault::Clock];

/// An operator's request.
pub(crate) const fn ask(kind: RequestKind, to: Option<&'static str>, force: bool) -> Ask {
    Ask { kind, to, force }
}

pub(crate) const MOVE: &[Ask] = &[ask(RequestKind::Switchover, None, false)];
pub(crate) const FAILOVER: &[Ask] = &[ask(RequestKind::Failover, None, false)];
pub(crate) const FORCE: &[Ask] = &[ask(RequestKind::Failover, None, true)];
const MOVES: &[Ask] =
    &[ask(RequestKind::Failover, Some("b"), false), ask(RequestKind::Switchover, Some("a"), false)];

pub(crate) const TO_B_THEN_FORCE: &[Ask] =
    &[ask(RequestKind::Switchover, Some("b"), false), ask(RequestKind::Failover, Some("a"), true)];

/// Those of an ordinary test run: each takes seconds.
pub(crate) fn short() -> Vec<Setting> {
    use Fault::{Crash, Freeze, Lag, Reset};
    vec![
        Setting::new("a fault, out of turn", 1, 1, ANY),
        Setting::new("a process dies twice", 2, 0, &[Crash]),
        Setting::new("a server lags, a connection is lost", 2, 0, &[Lag, Reset]),
        Setting::new("two jobs that fail", 2, 0, JOB),
        Setting { start: Start::Nothing, ..Setting::new("a fault at the start", 1, 0, &[Reset, Freeze]) },
        Setting { asks: MOVE, ..Setting::new("a switchover and a fault", 1, 0, &[Crash, Freeze]) },
        Setting { asks: MOVES, ..Setting::new("two requests, out of turn", 0, 1, &[]) },
        Setting { asks: FORCE, ..Setting::new("force and a fault", 1, 0, &[Crash, Freeze]) },
        Setting {
            start: Start::Nothing,
            restored: true,
            ..Setting::new("restored from a copy, a fault", 1, 0, &[Crash])
        },
        Setting { members: THREE, ..Setting::new("three members, a fault", 1, 0, ANY) },
        Setting {
            members: THREE_TWO_EAST,
            suspicion: true,
            ..Setting::new("a leader that two have lost", 1, 0, &[Crash, Freeze])
        },
    ]
}

/// Those of `cargo xtask model` besides: each takes minutes.
pub(crate) fn long() -> Vec<Setting> {
    use Fault::{Crash, Cut, Freeze, Lag, Minority, Reset};
    vec![
        Setting::new("a fault, twice out of turn", 1, 2, ANY),
        Setting::new("processes die or stand still", 2, 0, &[Crash, Freeze]),
        Setting::new("servers and connections", 2, 0, &[Reset, Minority, Lag]),
        Setting::new("connections and processes", 2, 0, &[Cut, Crash]),
        Setting::new("a process dies twice, out of turn", 2, 1, &[Crash]),
        Setting::new("a machine stands still twice, out of turn", 2, 1, &[Freeze]),
        Setting { start: Start::Nothing, ..Setting::new("any fault at the start", 1, 0, ANY) },
        Setting { asks: MOVE, ..Setting::new("a switchover and any fault", 1, 0, ANY) },
        Setting { asks: MOVES, ..Setting::new("two requests, twice out of turn", 0, 2, &[]) },
        Setting { asks: FORCE, ..Setting::new("force and any fault", 1, 0, ANY) },
        Setting { members: THREE, ..Setting::new("three members, a fault, out of turn", 1, 1, ANY) },
        Setting {
            members: THREE_TWO_EAST,
            suspicion: true,
            ..Setting::new("members that two have lost", 2, 0, &[Crash, Freeze])
        },
        Setting {
            members: THREE,
            asks: MOVE,
            ..Setting::new("three members, a switchover and a fault", 1, 0, &[Crash, Freeze, Cut, Lag])
        },
        Setting { members: THREE, ..Setting::new("three members, two faults", 2, 0, &[Crash, Freeze]) },
    ]
}
