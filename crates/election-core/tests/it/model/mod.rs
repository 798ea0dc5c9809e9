//! The engine in a model checker: every state that can be reached with a bounded number of faults, and of events out of
//! order.
//!
//! `docs/model.md` describes what is modelled, how time passes, and in which orders events happen.

mod calm;
mod canon;
mod election;
mod mutants;
mod narrate;
mod process;
mod published;
mod runs;
mod server;
mod settings;
mod steps;
mod stopwatch;
mod world;

use election::Election;
use settings::Setting;

/// More states than any run has.
const MOST: usize = 20_000_000;

fn holds(settings: Vec<Setting>, most: usize) {
    let mut wrong = 0;
    for setting in settings {
        let report = Election::new(setting).check(most, 2);
        println!("{report}");
        wrong += usize::from(!report.complete);
    }
    assert_eq!(wrong, 0, "runs in which a promise does not hold, or with more than {most} states: see above");
}

#[test]
fn every_promise_holds() {
    holds(runs::short(), MOST);
}

/// `cargo xtask model`.
#[test]
#[ignore = "takes half an hour"]
fn every_run() {
    let text = |name: &str| std::env::var(name).ok();
    let number = |name: &str| {
        text(name)
            .map(|n| n.parse::<usize>().unwrap_or_else(|_| panic!("{name} must be a number, and is {n}")))
    };
    let small = |name: &str| number(name).map(|n| u8::try_from(n).unwrap_or(u8::MAX));
    let without = text("MODEL_WITHOUT").map(|rule| {
        let known = mutants::ALL.into_iter().find(|known| format!("{known:?}") == rule);
        known.unwrap_or_else(|| panic!("there is no rule {rule}; there are: {:?}", mutants::ALL))
    });
    let only = text("MODEL_RUN").unwrap_or_default();
    let mut settings: Vec<_> = runs::short().into_iter().chain(runs::long()).collect();
    settings.retain(|setting| setting.name.contains(&only));
    for setting in &mut settings {
        setting.faults = small("MODEL_FAULTS").unwrap_or(setting.faults);
        setting.overtakes = small("MODEL_OVERTAKES").unwrap_or(setting.overtakes);
        setting.without = without;
    }
    holds(settings, number("MODEL_STATES").unwrap_or(MOST));
}
