//! The published algorithm, unchanged, in the same checker. The checker must find its failures, and none after the
//! missing rules are added.
//!
//! `docs/published-algorithm.md` has the traces. A test fails if they differ from those found now.

mod events;
mod narrate;
mod rules;
mod system;
mod written;

use stateright::{Checker, HasDiscoveries, Model, Property};

use events::{Event, Trouble};
use narrate::{from_then_on, tell};
use rules::Remedy;
use system::{AT_MOST_ONE, LATE_WRITE, NOBODY, OLD_WRITE, System};

/// One run: the algorithm with some of the rules, and what goes wrong.
#[derive(Debug)]
struct Published {
    remedies: Vec<Remedy>,
    /// The member that is preferred at first.
    preferred: usize,
    troubles: &'static [Trouble],
    /// The failure that is searched for; all failures if `None`.
    looks_for: Option<&'static str>,
}

impl Published {
    fn has(&self) -> impl Fn(Remedy) -> bool {
        |remedy| self.remedies.contains(&remedy)
    }
}

impl Model for Published {
    type State = System;
    type Action = Event;

    fn init_states(&self) -> Vec<System> {
        let begun = System::new(self.preferred, self.troubles);
        // There are no faults until there is a leader.
        let settled = begun.when_nothing_goes_wrong(&self.has(), 100).pop();
        vec![settled.map_or(begun, |(_, system)| system)]
    }

    fn actions(&self, system: &System, events: &mut Vec<Event>) {
        if system.broken.is_none() {
            events.extend(system.next());
            events.extend(system.troubles());
        }
    }

    fn next_state(&self, system: &System, event: Event) -> Option<System> {
        let mut next = system.clone();
        next.take(&self.has(), event);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let all = vec![
            Property::always(AT_MOST_ONE, |_, s: &System| s.broken != Some(AT_MOST_ONE)),
            Property::always(OLD_WRITE, |_, s: &System| s.broken != Some(OLD_WRITE)),
            Property::always(LATE_WRITE, |_, s: &System| s.broken != Some(LATE_WRITE)),
            Property::always(NOBODY, |p: &Self, s: &System| s.ends_well(&p.has())),
        ];
        all.into_iter().filter(|property| self.looks_for.is_none_or(|name| name == property.name)).collect()
    }
}

/// The failure, and the shortest path to it.
type Found = Option<(&'static str, Vec<String>)>;

fn check(run: Published) -> (usize, Found) {
    let model = Published { remedies: run.remedies.clone(), ..run };
    let checker = run.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries().into_iter().min_by_key(|(_, path)| path.clone().into_actions().len());
    let found = found.map(|(what, path)| {
        let last = path.last_state().clone();
        let mut steps = tell(&path.into_vec());
        if what == NOBODY {
            steps.extend(from_then_on(&model.has(), last));
        }
        (what, steps)
    });
    (checker.unique_state_count(), found)
}

/// What goes wrong without a rule, where all the others hold.
fn weak_point(lacks: Remedy) -> (&'static str, usize, &'static [Trouble]) {
    use Trouble::{Crash, Cut, Fails, Freeze, Move, Write};
    match lacks {
        Remedy::Adopt => (NOBODY, 1, &[Cut, Crash]),
        Remedy::Deadline => (AT_MOST_ONE, 0, &[Cut]),
        Remedy::DeadlineFirst => (AT_MOST_ONE, 0, &[Freeze]),
        Remedy::OwnerDeletes => (AT_MOST_ONE, 0, &[Cut, Move, Move]),
        Remedy::Tokens => (OLD_WRITE, 0, &[Write, Freeze]),
        Remedy::Claim => (LATE_WRITE, 0, &[Write, Freeze]),
        Remedy::Incarnation => (AT_MOST_ONE, 0, &[Crash, Move]),
        Remedy::CompareWithDecision => (NOBODY, 0, &[Move, Crash]),
        Remedy::LevelTriggered => (NOBODY, 1, &[Crash, Cut]),
        Remedy::Ephemeral => (NOBODY, 0, &[Crash]),
        Remedy::StopBudget => (AT_MOST_ONE, 0, &[Move, Cut]),
        Remedy::Guard => (AT_MOST_ONE, 0, &[Crash]),
        Remedy::LastCandidate => (NOBODY, 0, &[Fails, Fails, Move]),
    }
}

/// A trace as the document has it.
fn in_full((what, steps): &(&str, Vec<String>)) -> String {
    let mut text = format!("*{}{}:*\n\n", what[..1].to_uppercase(), &what[1..]);
    steps.iter().enumerate().for_each(|(at, step)| text.push_str(&format!("{}. {step}\n", at + 1)));
    text
}

/// As published, it breaks all promises. If the leader znode outlives its session there is no failover at all, so the
/// znode is assumed to be ephemeral for all promises but the last.
#[test]
fn to_the_letter() {
    use Trouble::{Crash, Cut, Freeze, Write};
    let runs: [(_, _, &[Trouble]); 4] = [
        (AT_MOST_ONE, vec![Remedy::Ephemeral], &[Cut]),
        (OLD_WRITE, vec![Remedy::Ephemeral], &[Write, Freeze]),
        (LATE_WRITE, vec![Remedy::Ephemeral], &[Write, Freeze]),
        (NOBODY, vec![], &[Crash]),
    ];
    let mut parts = Vec::new();
    for (what, remedies, troubles) in runs {
        let (_, found) = check(Published { remedies, preferred: 0, troubles, looks_for: Some(what) });
        let found = found.unwrap_or_else(|| panic!("'{what}' was to be found"));
        assert_eq!(found.0, what);
        parts.push(in_full(&found));
    }
    written::compare("to the letter", &parts.join("\n"));
}

/// Each weak point is found where its rule alone is missing, and not where it holds.
#[test]
fn each_weak_point_is_found() {
    let (mut parts, mut wrong) = (Vec::new(), Vec::new());
    for lacks in Remedy::ALL {
        let (what, preferred, troubles) = weak_point(lacks);
        let rest =
            Remedy::ALL.into_iter().filter(|remedy| *remedy != lacks && lacks.covered_by() != Some(*remedy));
        let remedies: Vec<_> = rest.collect();
        let with = remedies.iter().copied().chain([lacks]).collect();
        let (states, found) = check(Published { remedies, preferred, troubles, looks_for: Some(what) });
        let (all, held) = check(Published { remedies: with, preferred, troubles, looks_for: None });
        let (point, rule) = lacks.words();
        match found {
            Some(found) if found.0 == what => parts.push(format!(
                "### {point}: {rule}\n\n{}\n\n{states} states without it, {all} with it.\n\n{}",
                lacks.in_the_engine(),
                in_full(&found)
            )),
            found => {
                let found = found.map(|(found, _)| found);
                wrong.push(format!("{point}: '{what}' was to be found, and {found:?} was"));
            }
        }
        if let Some((what, steps)) = held {
            wrong.push(format!("{point} with its rule: {what}:\n{}", steps.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    written::compare("one weak point at a time", &parts.join("\n"));
}
