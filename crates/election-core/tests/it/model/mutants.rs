//! Each rule is switched off alone: the checker must find a failure for each missing rule.
//!
//! If the checker finds no failure without a rule, the rule is a second line: something else prevents the same failure,
//! and the recorded reason names it. Second lines are checked in the same way, so that a rule which becomes the first
//! line is noticed.

use election_core::internals::Rule;

use crate::model::{
    election::{Election, SURVIVORS},
    runs::{
        DELETED, DELETED_AND_DEATH, FAILOVER, FORCE, LATE, MOVE, QUEUE, QUEUE_DELETED, QUEUE_OF_THREE, RACE,
        SINGLE, SINGLE_LATE, SLOTS, SLOTS_OF_THREE, TO_B_THEN_FORCE, long, short,
    },
    settings::{Fault, Kind, Outside, Setting, Start, THREE, TWINS},
};

/// All rules of the engine.
pub(crate) const ALL: [Rule; 35] = [
    Rule::Lease,
    Rule::DeadlineFirst,
    Rule::Ballots,
    Rule::OwnerChecked,
    Rule::AdoptOwnZnode,
    Rule::NamedAtCreation,
    Rule::Commit,
    Rule::CommitFirst,
    Rule::SeenLeading,
    Rule::CompareAndSet,
    Rule::ExclusionsInDecision,
    Rule::ExclusionsEnd,
    Rule::LastCandidate,
    Rule::DeleteOwnOnly,
    Rule::ElectorLease,
    Rule::LevelTriggered,
    Rule::DecidedOnce,
    Rule::SweepBallots,
    Rule::WorkEndsFirst,
    Rule::TimerPerPhase,
    Rule::TakeoverTimeout,
    Rule::ReadyOnOwnZnode,
    Rule::VacateExcludedOnly,
    Rule::ForceWaits,
    Rule::StandDown,
    Rule::WitnessesOfTwoSites,
    Rule::TokenBaseKept,
    Rule::Remembered,
    Rule::MemoryShared,
    Rule::OneSlot,
    Rule::SlotsCarried,
    Rule::TermOfSlot,
    Rule::RanksAgain,
    Rule::OlderReadings,
    Rule::DoubtedFirst,
];

/// The rules outside the engine.
const OUTSIDE: [Outside; 5] =
    [Outside::Claim, Outside::Tokens, Outside::SessionPin, Outside::Guard, Outside::Heartbeats];

/// What becomes of an election without a rule.
#[derive(Debug)]
enum Without {
    /// This promise is broken in this run.
    Breaks(&'static str, Setting),
    /// It is a second line: no promise is broken in this run, with the reason.
    Holds(&'static str, Setting),
}

use Without::{Breaks, Holds};

impl Without {
    fn of(self, rule: Rule) -> Self {
        match self {
            // The two questions of the end would both find it, and which one first may change.
            Breaks(END, setting) => Breaks(END, Setting { without: Some(rule), survivors: false, ..setting }),
            Breaks(what, setting) => Breaks(
                what,
                Setting { without: Some(rule), survivors: setting.survivors && setting.liveness, ..setting },
            ),
            Holds(why, setting) => Holds(why, Setting { without: Some(rule), ..setting }),
        }
    }
}

const END: &str = "one leader in the end";

/// Where a rule is missed.
fn without(rule: Rule) -> Without {
    use Fault::{Crash, Cut, Freeze, JobFails, JobHangs, Reset};
    let new = Setting::new;
    let settings = match rule {
        Rule::Lease => Breaks("at most one", new("", 1, 0, &[Cut])),
        Rule::DeadlineFirst => Holds(
            "the deadline is looked at once more when the event has been taken in, before anything is done",
            new("", 1, 1, &[Freeze, Cut]),
        ),
        Rule::Ballots => Breaks(END, new("", 1, 0, &[Crash])),
        Rule::OwnerChecked => Holds(
            "a member is a candidate only after its former record is gone, and its former leader znode went with that",
            new("", 1, 1, &[Crash, Reset, Cut]),
        ),
        Rule::AdoptOwnZnode => Holds(
            "the takeover times out, and the leader znode is removed before the member enters the next term",
            Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset]) },
        ),
        Rule::NamedAtCreation => Breaks("leads as decided", RACE),
        Rule::Commit => Breaks(END, new("", 1, 0, &[Crash])),
        Rule::CommitFirst => Breaks(END, Setting { start: Start::Nothing, ..new("", 0, 0, &[]) }),
        Rule::SeenLeading => Breaks(
            "a successor follows a leader",
            Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset, Freeze]) },
        ),
        Rule::CompareAndSet => Breaks("one decision per term", RACE),
        Rule::ExclusionsInDecision => Breaks(
            END,
            Setting { members: TWINS, broken: &["a"], start: Start::Nothing, ..new("", 0, 0, &[]) },
        ),
        Rule::ExclusionsEnd => Breaks("exclusions end", new("", 1, 0, &[Fault::JobEnds])),
        Rule::LastCandidate => Breaks(END, new("", 2, 0, &[Fault::JobEnds, JobFails])),
        // The reply to READY is lost, so the version that is known is an older one.
        Rule::DeleteOwnOnly => Breaks(END, Setting { asks: MOVE, ..new("", 1, 1, &[Reset]) }),
        Rule::ElectorLease => Holds(
            "what it writes is a compare-and-set, and dies with its session",
            new("", 1, 1, &[Cut, Fault::Minority, Freeze]),
        ),
        Rule::LevelTriggered => Breaks(END, Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset]) }),
        Rule::DecidedOnce => Breaks(END, Setting { asks: FAILOVER, ..new("", 0, 0, &[]) }),
        Rule::SweepBallots => Breaks(END, Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset]) }),
        Rule::WorkEndsFirst => Breaks("at most one", Setting { asks: MOVE, ..new("", 1, 0, &[JobHangs]) }),
        Rule::TimerPerPhase => {
            Breaks("blames the right one", Setting { asks: MOVE, ..new("", 1, 0, &[Freeze]) })
        }
        Rule::TakeoverTimeout => {
            Breaks(END, Setting { broken: &["a"], start: Start::Nothing, ..new("", 0, 0, &[]) })
        }
        Rule::ReadyOnOwnZnode => Breaks(
            "place is its owner's",
            Setting { asks: TO_B_THEN_FORCE, script: &[(Freeze, 1)], ..new("", 1, 0, &[]) },
        ),
        Rule::VacateExcludedOnly => Holds(
            "another member that creates the leader znode reads the decision before it acts, and lets go by itself",
            Setting { asks: FORCE, ..new("", 1, 0, &[Crash, Freeze]) },
        ),
        Rule::ForceWaits => Breaks("at most one", Setting { asks: FORCE, ..new("", 1, 0, &[JobHangs]) }),
        Rule::StandDown => Breaks(END, Setting { asks: MOVE, ..new("", 0, 0, &[]) }),
        Rule::WitnessesOfTwoSites => Breaks(
            "never on one site's word",
            Setting { members: THREE, suspicion: true, ..new("", 1, 0, &[Freeze]) },
        ),
        Rule::TokenBaseKept => Holds(
            "members remember the base, and say so where a decision has a lower one",
            Setting { start: Start::Nothing, restored: true, ..new("", 0, 0, &[]) },
        ),
        Rule::Remembered => Breaks("leads as decided", DELETED),
        Rule::MemoryShared => Breaks(END, DELETED_AND_DEATH),
        Rule::OneSlot | Rule::SlotsCarried | Rule::TermOfSlot => {
            Breaks("others undisturbed", Setting { start: Start::Nothing, liveness: false, ..SLOTS })
        }
        Rule::RanksAgain => Breaks("at most one", Setting { liveness: false, ..QUEUE_OF_THREE }),
        Rule::OlderReadings => Breaks("others undisturbed", LATE),
        Rule::DoubtedFirst => Breaks("others undisturbed", SINGLE_LATE),
    };
    settings.of(rule)
}

/// Rules that are missed in other recipes, or where there are several slots, as well.
fn without_elsewhere() -> Vec<(&'static str, Without)> {
    let safety = |setting| Setting { liveness: false, ..setting };
    let outside = |rule, setting| Setting { without_outside: Some(rule), ..setting };
    vec![
        ("Lease, queue", Breaks("at most one", QUEUE).of(Rule::Lease)),
        ("Lease, single", Breaks("at most one", SINGLE).of(Rule::Lease)),
        ("OwnerChecked, single", Breaks("fencing", safety(SINGLE)).of(Rule::OwnerChecked)),
        ("Ballots, two slots", Breaks(END, SLOTS).of(Rule::Ballots)),
        ("Lease, two slots", Breaks("at most one", safety(SLOTS_OF_THREE)).of(Rule::Lease)),
        ("Tokens, queue", Breaks("fencing", outside(Outside::Tokens, QUEUE_DELETED))),
        (
            "Tokens, single",
            Breaks("fencing", outside(Outside::Tokens, Setting { recipe: Kind::Single, ..QUEUE_DELETED })),
        ),
    ]
}

/// The same for the rules outside the engine.
fn without_outside(rule: Outside) -> Without {
    use Fault::{Crash, Cut, Freeze, Minority};
    let setting =
        |faults, kinds| Setting { without_outside: Some(rule), ..Setting::new("", faults, 0, kinds) };
    match rule {
        Outside::Claim => Breaks("fencing", setting(1, &[Freeze])),
        Outside::Tokens => Breaks("fencing", setting(1, &[Freeze])),
        Outside::SessionPin => Breaks("one life", Setting { overtakes: 1, ..setting(1, &[Cut, Freeze]) }),
        Outside::Guard => Breaks("at most one", setting(1, &[Freeze])),
        Outside::Heartbeats => Breaks("at most one", setting(1, &[Minority, Crash])),
    }
}

/// The same run with every rule, as far as the failure without the rule was found: only what fails without a rule and holds with
/// it shows that the rule is necessary. The runs of [`runs`](crate::model::runs) are made whole by other tests.
fn control(setting: &Setting, steps: usize) -> Result<(), String> {
    let setting = Setting { name: "", without: None, without_outside: None, ..setting.clone() };
    let whole = |run: &Setting| {
        let run = Setting { name: "", liveness: true, survivors: true, ..run.clone() };
        format!("{run:?}")
    };
    if short().iter().chain(&long()).any(|run| whole(run) == whole(&setting)) {
        return Ok(());
    }
    let report = Election::new(setting).check(steps + 1000, 1);
    println!("{:<21} control     {} states, {:.1} s", "", report.states, report.seconds);
    report.found.map_or(Ok(()), |found| Err(format!("it breaks with every rule too: {found:?}")))
}

fn verify(rule: &str, without: Without) -> Result<(), String> {
    let (expected, why, setting) = match without {
        Breaks(what, setting) => (Some(what), what, setting),
        Holds(why, setting) => (None, why, setting),
    };
    // One thread: with two, which of several failures is found first is a matter of time.
    let report = Election::new(setting.clone()).check(crate::model::MOST, 1);
    let verdict = if expected.is_some() { "breaks" } else { "second line" };
    println!("{rule:<21} {verdict:<11} {why}; {} states, {:.1} s", report.states, report.seconds);
    if std::env::var("MODEL_TRACE").is_ok() {
        println!("{report}");
    }
    match (expected, &report.found) {
        (Some(what), Some(found)) if found.what.starts_with(what) => {
            control(&setting, report.steps).map_err(|why| format!("{rule}: {why}"))
        }
        (Some(what), found) => Err(format!("{rule}: '{what}' was to break, and it did not: {found:?}")),
        (None, Some(found)) => Err(format!("{rule} is more than a second line: {found:?}")),
        (None, None) => Ok(()),
    }
}

/// The check for the survivors must be able to fail by itself: without the commit, the last survivor never becomes
/// READY.
#[test]
fn survivors_that_do_not_elect_are_found() {
    let new = Setting::new("", 1, 0, &[Fault::Crash, Fault::Freeze]);
    let setting = Setting { without: Some(Rule::Commit), liveness: false, ..new };
    let broken = verify("Commit", Breaks(SURVIVORS, setting.clone()));
    assert_eq!(broken, Ok(()));
    assert_eq!(verify("none", Holds("all rules hold", Setting { without: None, ..setting })), Ok(()));
}

/// Without each rule there is a failure, or the rule is listed as a second line. `MODEL_RULE=NamedAtCreation MODEL_TRACE=1`
/// checks one rule and shows the failure.
#[test]
fn each_rule_is_missed() {
    let only = std::env::var("MODEL_RULE").unwrap_or_default();
    let rules = ALL.into_iter().map(|rule| (format!("{rule:?}"), without(rule)));
    let outside = OUTSIDE.into_iter().map(|rule| (format!("{rule:?}"), without_outside(rule)));
    let elsewhere = without_elsewhere().into_iter().map(|(name, without)| (name.to_owned(), without));
    let all = rules.chain(outside).chain(elsewhere).filter(|(name, _)| name.contains(&only));
    let wrong: Vec<_> = all.filter_map(|(name, without)| verify(&name, without).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
