//! The runs of the checker: what may go wrong in each, and how often.

use election_core::internals::record::RequestKind;

use crate::model::{
    election::Election,
    settings::{Ask, Fault, Kind, Setting, Start, THREE, THREE_TWO_EAST},
};

/// More states than any run has.
pub(crate) const MOST: usize = 20_000_000;

/// All faults that can happen by themselves.
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
    Ask { kind, to, force, now: false }
}

pub(crate) const MOVE: &[Ask] = &[ask(RequestKind::Switchover, None, false)];
pub(crate) const FORCE: &[Ask] = &[ask(RequestKind::Failover, None, true)];
const FORCE_NOW: &[Ask] = &[Ask { now: true, ..FORCE[0] }];
const MOVES: &[Ask] =
    &[ask(RequestKind::Failover, Some("b"), false), ask(RequestKind::Switchover, Some("a"), false)];

pub(crate) const TO_AND_FRO: &[Ask] = &[
    ask(RequestKind::Switchover, Some("b"), false),
    ask(RequestKind::Switchover, Some("a"), false),
    ask(RequestKind::Switchover, Some("b"), false),
];

/// Three members race for the leader znode while a switchover is carried out: one lags, the work of
/// another ends. Both faults may hit any member, at any moment, and in either order.
pub(crate) const RACE: Setting = Setting {
    members: THREE,
    asks: MOVE,
    start: Start::Asked,
    once: true,
    race: true,
    ..Setting::new("a race of three", 2, 1, &[Fault::Lag, Fault::JobEnds])
};

/// The same if a member leaves, including the one that the switchover names.
const LEAVES: Setting =
    Setting { name: "a race of three, one leaves", kinds: &[Fault::Lag, Fault::Leave], ..RACE };

/// The recipes without an elector.
pub(crate) const QUEUE: Setting =
    Setting { recipe: Kind::Queue, ..Setting::new("queue, a fault, out of turn", 1, 1, ANY) };
pub(crate) const QUEUE_OF_THREE: Setting =
    Setting { members: THREE, name: "queue of three, a fault, out of turn", ..QUEUE };
pub(crate) const SINGLE: Setting =
    Setting { recipe: Kind::Single, name: "single, a fault, out of turn", ..QUEUE };

/// Two leaders of one election, and no other member, or one.
pub(crate) const SLOTS: Setting = Setting { slots: 2, ..Setting::new("two slots, a fault", 1, 0, ANY) };
pub(crate) const SLOTS_OF_THREE: Setting =
    Setting { members: THREE, name: "two slots of three, a fault", ..SLOTS };

/// An administrator deletes everything, before a switchover, in the midst of it, or after it.
pub(crate) const DELETED: Setting =
    Setting { asks: MOVE, ..Setting::new("everything is deleted, a switchover", 1, 0, &[Fault::DeleteAll]) };

/// And a member dies, before or after that.
pub(crate) const DELETED_AND_DEATH: Setting = Setting {
    once: true,
    ..Setting::new("everything is deleted, a death", 2, 0, &[Fault::DeleteAll, Fault::Crash])
};
pub(crate) const QUEUE_DELETED: Setting =
    Setting { recipe: Kind::Queue, name: "queue, everything is deleted, a death", ..DELETED_AND_DEATH };

/// What a member has read arrives after it has written, and has learned the outcome.
pub(crate) const LATE: Setting =
    Setting { asks: MOVES, ..Setting::new("a reading arrives late, two requests", 1, 0, &[Fault::Late]) };
pub(crate) const SINGLE_LATE: Setting = Setting {
    recipe: Kind::Single,
    start: Start::Nothing,
    ..Setting::new("single, a reading arrives late", 1, 0, &[Fault::Late])
};

/// The leader is asked before a switchover, and may call it off, around any fault.
pub(crate) const CALLED_OFF: Setting = Setting {
    asks: MOVE,
    calls_off: true,
    ..Setting::new("a switchover that may be called off, a fault", 1, 0, &[Fault::Crash, Fault::Freeze])
};

/// A member is fit only with a ready standby, so not for a while after it has led; and a leader may stop for longer than its lease
/// lasts by itself.
pub(crate) const STANDBYS: Setting = Setting {
    asks: MOVE,
    standbys: true,
    ..Setting::new("standbys, a switchover and a fault", 1, 0, &[Fault::Crash, Fault::StandbyEnds])
};

/// A write reaches the ensemble after the connection was lost over which it was sent.
pub(crate) const STRAY: Setting = Setting {
    start: Start::Nothing,
    ..Setting::new("a write arrives late, from the start", 1, 0, &[Fault::Stray])
};

/// The runs of an ordinary test: each takes seconds.
pub(crate) fn short() -> Vec<Setting> {
    use Fault::{Crash, Freeze, JobHangs, Kill, Lag, Reset};
    vec![
        Setting::new("a fault, out of turn", 1, 1, ANY),
        Setting::new("a process dies twice", 2, 0, &[Crash]),
        Setting::new("sessions of killed workers are closed", 2, 0, &[Kill]),
        Setting::new("a server lags, a connection is lost", 2, 0, &[Lag, Reset]),
        Setting::new("two jobs that fail", 2, 0, JOB),
        Setting { start: Start::Nothing, ..Setting::new("a fault at the start", 1, 0, &[Reset, Freeze]) },
        Setting { asks: MOVE, ..Setting::new("a switchover and a fault", 1, 0, &[Crash, Freeze]) },
        Setting { asks: MOVES, ..Setting::new("two requests, out of turn", 0, 1, &[]) },
        CALLED_OFF,
        STANDBYS,
        Setting { asks: FORCE, ..Setting::new("force and a job or a death", 1, 0, &[Crash, JobHangs]) },
        Setting { asks: FORCE, ..Setting::new("force and a fault", 1, 0, &[Crash, Freeze]) },
        Setting { asks: FORCE_NOW, ..Setting::new("force now and a fault", 1, 0, &[Crash, JobHangs]) },
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
        QUEUE,
        QUEUE_OF_THREE,
        SINGLE,
        SINGLE_LATE,
        Setting {
            kinds: &[Kill],
            name: "queue of three, a session is closed, out of turn",
            ..QUEUE_OF_THREE
        },
        Setting { kinds: &[Kill], name: "single, a session is closed, out of turn", ..SINGLE },
        SLOTS,
        DELETED,
        LATE,
        STRAY,
        Setting { asks: MOVES, start: Start::Settled, name: "a write arrives late, two requests", ..STRAY },
        Setting {
            recipe: Kind::Queue,
            overtakes: 1,
            name: "queue, a write arrives late, out of turn",
            ..STRAY
        },
        Setting {
            recipe: Kind::Single,
            overtakes: 1,
            name: "single, a write arrives late, out of turn",
            ..STRAY
        },
    ]
}

/// The further runs of `cargo xtask model`: each takes minutes.
pub(crate) fn long() -> Vec<Setting> {
    use Fault::{Crash, Cut, Freeze, Kill, Lag, Leave, Minority, Reset};
    vec![
        Setting::new("a fault, twice out of turn", 1, 2, ANY),
        Setting::new("processes die or freeze", 2, 0, &[Crash, Freeze]),
        Setting::new("servers and connections", 2, 0, &[Reset, Minority, Lag]),
        Setting::new("connections and processes", 2, 0, &[Cut, Crash]),
        Setting::new("a process dies twice, out of turn", 2, 1, &[Crash]),
        Setting::new("sessions of killed workers are closed, out of turn", 2, 1, &[Kill]),
        Setting {
            members: THREE,
            ..Setting::new("three members, a session is closed, a death", 2, 0, &[Kill, Crash])
        },
        Setting::new("a machine is frozen twice, out of turn", 2, 1, &[Freeze]),
        Setting { start: Start::Nothing, ..Setting::new("any fault at the start", 1, 0, ANY) },
        Setting {
            start: Start::Nothing,
            ..Setting::new("a fault at the start, out of turn", 1, 1, &[Reset, Leave])
        },
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
        RACE,
        LEAVES,
        Setting { overtakes: 1, name: "a write arrives late, from the start, out of turn", ..STRAY },
        Setting {
            faults: 2,
            kinds: &[Fault::Stray, Crash],
            name: "a write arrives late, a death",
            once: true,
            ..STRAY
        },
        Setting {
            asks: FORCE,
            start: Start::Settled,
            name: "a write arrives late, force",
            faults: 2,
            kinds: &[Fault::Stray, Freeze],
            once: true,
            ..STRAY
        },
        Setting {
            members: THREE,
            asks: MOVE,
            name: "three members, a write arrives late, a switchover",
            ..STRAY
        },
        Setting {
            recipe: Kind::Queue,
            members: THREE,
            faults: 2,
            kinds: &[Fault::Stray, Crash, Cut],
            name: "queue of three, a write arrives late, a fault",
            ..STRAY
        },
        Setting { members: THREE, ..Setting::new("three members, two faults", 2, 0, &[Crash, Freeze]) },
        SLOTS_OF_THREE,
        Setting { faults: 1, overtakes: 1, name: "two slots, a fault, out of turn", ..SLOTS },
        Setting { name: "two slots of three, two faults", faults: 2, kinds: &[Crash], ..SLOTS_OF_THREE },
        Setting {
            members: THREE,
            name: "everything is deleted, three members, a death",
            ..DELETED_AND_DEATH
        },
        DELETED_AND_DEATH,
        Setting { asks: TO_AND_FRO, name: "a reading arrives late, three requests", ..LATE },
        Setting { faults: 2, overtakes: 0, kinds: &[Crash, Cut, Leave], name: "queue, two faults", ..QUEUE },
        Setting {
            faults: 2,
            overtakes: 0,
            kinds: &[Crash, Leave],
            name: "queue of three, two faults",
            ..QUEUE_OF_THREE
        },
        Setting { faults: 2, overtakes: 0, kinds: &[Crash, Leave], name: "single, two faults", ..SINGLE },
        Setting { members: THREE, name: "single of three, a fault, out of turn", ..SINGLE },
        QUEUE_DELETED,
        Setting { recipe: Kind::Single, name: "single, everything is deleted, a death", ..QUEUE_DELETED },
        Setting {
            restored: true,
            overtakes: 1,
            name: "everything is deleted, tokens were raised",
            ..DELETED
        },
    ]
}

/// The runs that `MODEL_RUN` chooses, or all of them, within the bounds that the environment gives; and how many states
/// each may have.
pub(crate) fn chosen() -> (Vec<Setting>, usize) {
    let text = |name: &str| std::env::var(name).ok();
    let number = |name: &str| {
        text(name)
            .map(|n| n.parse::<usize>().unwrap_or_else(|_| panic!("{name} must be a number, and is {n}")))
    };
    let small = |name: &str| number(name).map(|n| u8::try_from(n).unwrap_or(u8::MAX));
    let only = text("MODEL_RUN").unwrap_or_default();
    let mut settings: Vec<_> = short().into_iter().chain(long()).collect();
    settings.retain(|setting| setting.name.contains(&only));
    for setting in &mut settings {
        setting.faults = small("MODEL_FAULTS").unwrap_or(setting.faults);
        setting.overtakes = small("MODEL_OVERTAKES").unwrap_or(setting.overtakes);
    }
    (settings, number("MODEL_STATES").unwrap_or(MOST))
}

/// Makes these runs, and prints what they have seen.
///
/// # Panics
///
/// A promise does not hold, or a run has more states than `most`.
pub(crate) fn hold(settings: Vec<Setting>, most: usize) {
    let mut wrong = 0;
    for setting in settings {
        let report = Election::new(setting).check(most, 2);
        println!("{report}");
        wrong += usize::from(!report.complete);
    }
    assert_eq!(wrong, 0, "runs in which a promise does not hold, or with more than {most} states: see above");
}
