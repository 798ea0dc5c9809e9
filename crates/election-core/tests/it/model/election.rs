//! The system as stateright sees it: states, steps, and what must hold.

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::model::{
    calm::{self, Good},
    process::Link,
    settings::{Setting, Start},
    steps::Move,
    stopwatch::Stopwatch,
    world::World,
};

type Holds = fn(&Election, &World) -> bool;

/// The property that is checked for the survivors.
pub(crate) const SURVIVORS: &str = "the survivors elect";

/// Every invariant, by the part of its sentence before the colon.
const INVARIANTS: [(&str, Holds); 16] = [
    ("at most one", |_, w| w.keeps("at most one")),
    ("fencing", |_, w| w.keeps("fencing")),
    ("one decision per term", |_, w| w.keeps("one decision per term")),
    ("exclusions end", |_, w| w.keeps("exclusions end")),
    ("requests once", |_, w| w.keeps("requests once")),
    ("a successor follows a leader", |_, w| w.keeps("a successor follows a leader")),
    ("leads as decided", |_, w| w.keeps("leads as decided")),
    ("never on one site's word", |_, w| w.keeps("never on one")),
    ("one life", |_, w| w.keeps("one life")),
    ("place is its owner's", |_, w| w.keeps("place is its owner's")),
    ("blames the right one", |_, w| w.keeps("blames the right one")),
    ("fit when named", |_, w| w.keeps("fit when named")),
    ("planned stops have time", |_, w| w.keeps("planned stops have time")),
    ("others undisturbed", |_, w| w.keeps("others undisturbed")),
    ("one leader in the end", |e, w| !e.setting.liveness || e.good.leads(&e.setting, w)),
    (SURVIVORS, |e, w| !e.setting.survivors || e.good.survivors_lead(&e.setting, w)),
];

/// One run of the checker.
#[derive(Debug)]
pub(crate) struct Election {
    pub(crate) setting: Setting,
    good: Good,
}

/// What a run of the checker has seen.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) depth: usize,
    pub(crate) seconds: f64,
    /// Every state that can be reached was looked at.
    pub(crate) complete: bool,
    /// The failure, and the path to it.
    pub(crate) found: Option<Found>,
}

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) what: String,
    pub(crate) steps: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, states, steps, depth, seconds, complete, found } = self;
        let all = if *complete { "" } else { "  (not all)" };
        write!(f, "{name:<44} {states:>8} states {steps:>9} steps  depth {depth:>3} {seconds:>7.1} s{all}")?;
        if let Some(found) = found {
            write!(f, "\n{}", found.what)?;
            found.steps.iter().enumerate().try_for_each(|(at, step)| write!(f, "\n{:>4}  {step}", at + 1))?;
        }
        Ok(())
    }
}

impl World {
    fn keeps(&self, invariant: &str) -> bool {
        !self.broken.as_ref().is_some_and(|what| what.starts_with(invariant))
    }
}

impl Model for Election {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new(&self.setting);
        if self.setting.start != Start::Nothing {
            world.settle(&Setting { broken: &[], ..self.setting.clone() });
        }
        if self.setting.start == Start::Asked {
            world.ask(&self.setting);
        }
        vec![world]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        if world.broken.is_none() {
            world.moves(&self.setting, moves);
        }
    }

    fn next_state(&self, world: &World, next: Move) -> Option<World> {
        let mut world = world.clone();
        world.make(&self.setting, next);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        INVARIANTS.into_iter().map(|(name, holds)| Property::always(name, holds)).collect()
    }
}

impl Election {
    pub(crate) fn new(setting: Setting) -> Self {
        Self { setting, good: Good::default() }
    }

    /// Looks at all states, or at `most` of them, breadth first.
    pub(crate) fn check(self, most: usize, threads: usize) -> Report {
        let setting = self.setting.clone();
        let checker =
            self.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).target_state_count(most);
        let clock = Stopwatch::start();
        let checker = checker.spawn_bfs().join();
        report(&setting, &checker, clock.seconds(), most)
    }
}

fn report(setting: &Setting, checker: &impl Checker<Election>, seconds: f64, most: usize) -> Report {
    let found = checker.discoveries().into_iter().min_by_key(|(_, path)| path.clone().into_actions().len());
    let found = found.map(|(invariant, path)| {
        let last_state = path.last_state().clone();
        let what = last_state.broken.clone().unwrap_or_else(|| {
            format!("{invariant}: nobody leads, or a request never ends, however long one waits")
        });
        let calm = match last_state.broken {
            Some(_) => Vec::new(),
            None => {
                let lost = if invariant == SURVIVORS { last_state.casualties() } else { 0 };
                calm::goes_on(setting, &last_state, lost)
            }
        };
        let mut steps = crate::model::narrate::tell(setting, path.into_vec());
        if !calm.is_empty() {
            steps.push("from here on nothing goes wrong any more".to_owned());
        }
        steps.extend(crate::model::narrate::tell(setting, calm));
        Found { what, steps }
    });
    Report {
        name: setting.name,
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        seconds,
        complete: found.is_none() && checker.state_count() < most,
        found,
    }
}

impl World {
    /// A short text about every member, for a trace.
    pub(crate) fn glance(&self, setting: &Setting) -> String {
        let words = self.members.iter().enumerate().map(|(m, member)| {
            let name = setting.members[m].0;
            let Some(process) = &member.process else { return format!("{name}: down") };
            let link = match member.link() {
                None | Some(Link::Over) => " without session",
                Some(Link::Connected) => "",
                Some(Link::Silent | Link::Paused) => " cut off",
            };
            let frozen = if member.frozen { " frozen" } else { "" };
            let acts = if process.job.token.is_some() { ", its job acts" } else { "" };
            format!("{name}: {}{link}{frozen}{acts}", process.engine.role())
        });
        words.collect::<Vec<_>>().join("; ")
    }
}
