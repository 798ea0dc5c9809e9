//! Each rule is dropped alone: the checker must find a failure for each missing rule.
//!
//! If the checker finds no failure without a rule, the rule is a second line: something else prevents the same failure,
//! and the recorded reason names it. Second lines are checked in the same way, so that a rule which becomes the first
//! line is noticed.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use election_core::internals::record::RequestKind;

use crate::{
    model::{
        election::{Election, Report, SURVIVORS},
        runs::{
            DELETED, DELETED_AND_DEATH, FORCE, LATE, MOST, MOVE, QUEUE, QUEUE_DELETED, QUEUE_OF_THREE, RACE,
            SINGLE, SINGLE_LATE, SLOTS, SLOTS_OF_THREE, ask, chosen, hold, long, short,
        },
        settings::{Ask, Fault, Kind, Outside, Setting, Start, THREE},
    },
    mutations::RULES,
};

const FAILOVER: &[Ask] = &[ask(RequestKind::Failover, None, false)];
const TO_B_THEN_FORCE: &[Ask] =
    &[ask(RequestKind::Switchover, Some("b"), false), ask(RequestKind::Failover, Some("a"), true)];
const TO_C_AND_BACK: &[Ask] =
    &[ask(RequestKind::Switchover, Some("c"), false), ask(RequestKind::Switchover, Some("a"), false)];
const TWINS: &[(&str, &str)] = &[("a", "east"), ("b", "east")];

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
    /// Without a rule of the engine, in the runs that check the end.
    fn inside(self) -> Self {
        match self {
            // The two questions of the end would both find it, and which one first may change.
            Breaks(END, setting) => Breaks(END, Setting { survivors: false, ..setting }),
            Breaks(what, setting) => {
                Breaks(what, Setting { survivors: setting.survivors && setting.liveness, ..setting })
            }
            holds @ Holds(..) => holds,
        }
    }
}

const END: &str = "one leader in the end";

/// Where a rule is missed.
fn missed(rule: &str) -> Without {
    use Fault::{Crash, Cut, Freeze, JobFails, JobHangs, Reset};
    let new = Setting::new;
    let settings = match rule {
        "Lease" => Breaks("at most one", new("", 1, 0, &[Cut])),
        "DeadlineFirst" => Holds(
            "the deadline is looked at once more when the event has been taken in, before anything is done",
            new("", 1, 1, &[Freeze, Cut]),
        ),
        "Ballots" => Breaks(END, new("", 1, 0, &[Crash])),
        "OwnerChecked" => Holds(
            "a member is a candidate only after its former record is gone, and its former leader znode went with that",
            new("", 1, 1, &[Crash, Reset, Cut]),
        ),
        "AdoptOwnZnode" => Holds(
            "the takeover times out, and the leader znode is removed before the member enters the next term",
            Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset]) },
        ),
        "NamedAtCreation" => Breaks("leads as decided", RACE),
        "Commit" => Breaks(END, new("", 1, 0, &[Crash])),
        "CommitFirst" => Breaks(END, Setting { start: Start::Nothing, ..new("", 0, 0, &[]) }),
        "SeenLeading" => Breaks(
            "a successor follows a leader",
            Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset, Freeze]) },
        ),
        "CompareAndSet" => Breaks("one decision per term", RACE),
        "ExclusionsInDecision" => Breaks(
            END,
            Setting { members: TWINS, broken: &["a"], start: Start::Nothing, ..new("", 0, 0, &[]) },
        ),
        "ExclusionsEnd" => Breaks("exclusions end", new("", 1, 0, &[Fault::JobEnds])),
        "LastCandidate" => Breaks(END, new("", 2, 0, &[Fault::JobEnds, JobFails])),
        // The reply to READY is lost, so the version that is known is an older one.
        "DeleteOwnOnly" => Breaks(END, Setting { asks: MOVE, ..new("", 1, 1, &[Reset]) }),
        "ElectorLease" => Holds(
            "what it writes is a compare-and-set, and dies with its session",
            new("", 1, 1, &[Cut, Fault::Minority, Freeze]),
        ),
        "LevelTriggered" => Breaks(END, Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset]) }),
        "DecidedOnce" => Breaks(END, Setting { asks: FAILOVER, ..new("", 0, 0, &[]) }),
        "SweepBallots" => Breaks(END, Setting { start: Start::Nothing, ..new("", 1, 0, &[Reset]) }),
        "WorkEndsFirst" => Breaks("at most one", Setting { asks: MOVE, ..new("", 1, 0, &[JobHangs]) }),
        "TimerPerPhase" => Breaks("blames the right one", Setting { asks: MOVE, ..new("", 1, 0, &[Freeze]) }),
        "TakeoverTimeout" => {
            Breaks(END, Setting { broken: &["a"], start: Start::Nothing, ..new("", 0, 0, &[]) })
        }
        "ReadyOnOwnZnode" => Breaks(
            "place is its owner's",
            Setting { asks: TO_B_THEN_FORCE, script: &[(Freeze, 1)], ..new("", 1, 0, &[]) },
        ),
        "VacateExcludedOnly" => Holds(
            "another member that creates the leader znode reads the decision before it acts, and lets go by itself",
            Setting { asks: FORCE, ..new("", 1, 0, &[Crash, Freeze]) },
        ),
        "ForceWaits" => Breaks("at most one", Setting { asks: FORCE, ..new("", 1, 0, &[JobHangs]) }),
        "StandDown" => Breaks(END, Setting { asks: MOVE, ..new("", 0, 0, &[]) }),
        "WitnessesOfTwoSites" => Breaks(
            "never on one site's word",
            Setting { members: THREE, suspicion: true, ..new("", 1, 0, &[Freeze]) },
        ),
        "TokenBaseKept" => Holds(
            "members remember the base, and say so where a decision has a lower one",
            Setting { start: Start::Nothing, restored: true, ..new("", 0, 0, &[]) },
        ),
        "Remembered" => Breaks("leads as decided", Setting { liveness: false, ..DELETED }),
        "MemoryShared" => Breaks(END, DELETED_AND_DEATH),
        "OneSlot" | "SlotsCarried" | "TermOfSlot" => {
            Breaks("others undisturbed", Setting { start: Start::Nothing, liveness: false, ..SLOTS })
        }
        "RanksAgain" => Breaks("at most one", Setting { liveness: false, ..QUEUE_OF_THREE }),
        "OlderReadings" => Breaks("others undisturbed", LATE),
        "DoubtedFirst" => Breaks("others undisturbed", SINGLE_LATE),
        "FitSuccessor" => Breaks(
            "fit when named",
            Setting { standbys: true, once: true, ..new("", 2, 0, &[Fault::StandbyEnds, Crash]) },
        ),
        // Neither the elector nor the first in line, who keep their leases anyway.
        "LeaseWhileStopping" => Breaks(
            "planned stops have time",
            Setting { standbys: true, members: THREE, asks: TO_C_AND_BACK, ..new("", 0, 0, &[]) },
        ),
        _ => panic!("there is no run without the rule {rule}"),
    };
    settings.inside()
}

/// Rules that are missed in other recipes, or where there are several slots, as well.
fn missed_elsewhere() -> Vec<(&'static str, Without)> {
    let safety = |setting| Setting { liveness: false, ..setting };
    let outside = |rule, setting| Setting { without_outside: Some(rule), ..setting };
    vec![
        ("Lease, queue", Breaks("at most one", QUEUE).inside()),
        ("Lease, single", Breaks("at most one", SINGLE).inside()),
        (
            "OwnerChecked, single",
            Breaks(
                "others undisturbed",
                Setting {
                    recipe: Kind::Single,
                    members: &[("a", "east")],
                    start: Start::Nothing,
                    ..Setting::new("", 2, 1, &[Fault::Stray, Fault::Kill])
                },
            ),
        ),
        ("Ballots, two slots", Breaks(END, SLOTS).inside()),
        ("Lease, two slots", Breaks("at most one", safety(SLOTS_OF_THREE)).inside()),
        ("Tokens, queue", Breaks("fencing", outside(Outside::Tokens, QUEUE_DELETED))),
        (
            "Tokens, single",
            Breaks("fencing", outside(Outside::Tokens, Setting { recipe: Kind::Single, ..QUEUE_DELETED })),
        ),
    ]
}

/// The same for the rules outside the engine.
fn missed_outside(rule: Outside) -> Without {
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

/// The same runs with every rule, each as far as the last failure without a rule was found: only what fails without a rule and
/// holds with it shows that the rule is necessary. The runs of [`runs`](crate::model::runs) are made whole by other tests.
#[derive(Default)]
struct Controls(BTreeMap<String, (Setting, usize)>);

impl Controls {
    fn add(&mut self, setting: &Setting, steps: usize) {
        let setting = Setting { name: "", without_outside: None, ..setting.clone() };
        let whole = |run: &Setting| {
            let run = Setting { name: "", liveness: true, survivors: true, ..run.clone() };
            format!("{run:?}")
        };
        if !short().iter().chain(&long()).any(|run| whole(run) == whole(&setting)) {
            let (_, most) = self.0.entry(format!("{setting:?}")).or_insert((setting, 0));
            *most = steps.max(*most);
        }
    }

    /// What breaks with every rule, too.
    fn run(self) -> Vec<String> {
        let wrong = self.0.into_iter().filter_map(|(name, (setting, steps))| {
            let report = check("", setting, steps + 1000);
            println!("{:<21} control     {} states, {:.1} s", "", report.states, report.seconds);
            report.found.map(|found| format!("it breaks with every rule too: {name}: {found:?}"))
        });
        wrong.collect()
    }
}

/// One rule can be dropped at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs `run` without the rule of the engine that has this name, if there is one.
fn without<T>(rule: &str, run: impl FnOnce() -> T) -> T {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    election_core::drop_rule(RULES.iter().position(|known| known.name == rule));
    let found = run();
    election_core::drop_rule(None);
    found
}

/// One thread: with two, which of several failures is found first is a matter of time.
fn check(rule: &str, setting: Setting, most: usize) -> Report {
    without(rule, || Election::new(setting).check(most, 1))
}

/// `name`: the rule, and after a comma where it is missed.
fn verify(name: &str, without: Without, controls: &mut Controls) -> Result<(), String> {
    let (expected, why, setting) = match without {
        Breaks(what, setting) => (Some(what), what, setting),
        Holds(why, setting) => (None, why, setting),
    };
    let rule = name.split(',').next().unwrap_or_default();
    let report = check(rule, setting.clone(), MOST);
    let verdict = if expected.is_some() { "breaks" } else { "second line" };
    println!("{name:<21} {verdict:<11} {why}; {} states, {:.1} s", report.states, report.seconds);
    if std::env::var("MODEL_TRACE").is_ok() {
        println!("{report}");
    }
    match (expected, &report.found) {
        (Some(what), Some(found)) if found.what.starts_with(what) => {
            controls.add(&setting, report.steps);
            Ok(())
        }
        (Some(what), found) => Err(format!("{name}: '{what}' was to break, and it did not: {found:?}")),
        (None, Some(found)) => Err(format!("{name} is more than a second line: {found:?}")),
        (None, None) => Ok(()),
    }
}

/// The check for the survivors must be able to fail by itself: without the commit, the last survivor never becomes
/// READY.
#[test]
fn survivors_that_do_not_elect_are_found() {
    let new = Setting::new("", 1, 0, &[Fault::Crash, Fault::Freeze]);
    let setting = Setting { liveness: false, ..new };
    let mut controls = Controls::default();
    assert_eq!(verify("Commit", Breaks(SURVIVORS, setting), &mut controls), Ok(()));
    assert_eq!(controls.run(), [""; 0]);
}

/// Without each rule there is a failure, or the rule is listed as a second line. `MODEL_RULE=NamedAtCreation MODEL_TRACE=1`
/// checks one rule and shows the failure.
#[test]
fn each_rule_is_missed() {
    let only = std::env::var("MODEL_RULE").unwrap_or_default();
    let rules = RULES.iter().map(|rule| (rule.name.to_owned(), missed(rule.name)));
    let outside = OUTSIDE.into_iter().map(|rule| (format!("{rule:?}"), missed_outside(rule)));
    let elsewhere = missed_elsewhere().into_iter().map(|(name, without)| (name.to_owned(), without));
    let all = rules.chain(outside).chain(elsewhere).filter(|(name, _)| name.contains(&only));
    let mut controls = Controls::default();
    let mut verify = |(name, without): (String, _)| verify(&name, without, &mut controls).err();
    let mut wrong: Vec<_> = all.filter_map(&mut verify).collect();
    wrong.extend(controls.run());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every run without the rule that `MODEL_WITHOUT` names, if it names one: `cargo xtask model --without RULE`.
#[test]
#[ignore = "takes half an hour"]
fn every_run_without_a_rule() {
    let Ok(rule) = std::env::var("MODEL_WITHOUT") else { return };
    let known: Vec<_> = RULES.iter().map(|known| known.name).collect();
    assert!(known.contains(&&*rule), "there is no rule {rule}; there are: {}", known.join(", "));
    let (settings, most) = chosen();
    without(&rule, || hold(settings, most));
}
