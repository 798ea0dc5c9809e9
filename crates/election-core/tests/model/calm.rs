//! Does somebody lead in the end, and does every request of an operator end? From a state on
//! faults stop, and everything that can happen does, in a fixed and fair order.
//!
//! The checker asks this of every state that it reaches. A path that ends well makes
//! all states on it good, so most questions are answered after a few steps.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use election_core::{
    engine::Node,
    record::{Record, Request},
};

use crate::{
    server::children,
    settings::Setting,
    steps::{Move, Step},
    world::World,
};

/// More steps than any recovery takes.
const STEPS: usize = 800;

/// More ticks than all timeouts of a recovery together.
const TICKS: u32 = 30;

/// States from which it is known that somebody leads in the end.
#[derive(Debug, Default)]
pub(crate) struct Good(Mutex<HashSet<u64>>);

impl Good {
    fn has(&self, fingerprint: u64) -> bool {
        self.0.lock().is_ok_and(|known| known.contains(&fingerprint))
    }

    /// Whether somebody leads in the end, from `world` on.
    pub(crate) fn leads(&self, setting: &Setting, world: &World) -> bool {
        if world.broken.is_some() {
            return true;
        }
        let mut path = Vec::new();
        let ends_well = run(setting, world, |calm| {
            let fingerprint = calm.fingerprint();
            path.push(fingerprint);
            self.has(fingerprint)
        });
        if ends_well && let Ok(mut known) = self.0.lock() {
            known.extend(path);
        }
        ends_well
    }
}

/// Lets everything happen that can, without a fault; `known` says of a state that it
/// ends well. The last state stands in `World::settle`.
fn run(setting: &Setting, world: &World, mut known: impl FnMut(&World) -> bool) -> bool {
    let mut calm = world.clone();
    calm.calm = true;
    calm.faults = 0;
    calm.overtakes = 0;
    let mut ticks = 0;
    for _ in 0..STEPS {
        if known(&calm) {
            return true;
        }
        match calm.next_calm(setting) {
            None => return calm.is_well(setting),
            Some(Step::Tick) if calm.is_well(setting) => return true,
            Some(Step::Tick) if ticks == TICKS => return false,
            Some(step) => {
                ticks += u32::from(step == Step::Tick);
                calm.take(setting, step);
            }
        }
    }
    false
}

/// How it goes on from a state that does not end well.
pub(crate) fn goes_on(setting: &Setting, world: &World) -> Vec<(World, Option<Move>)> {
    const ENOUGH: usize = 40;
    let mut path = Vec::new();
    let mut before: Option<World> = None;
    run(setting, world, |calm| {
        if let Some(before) = before.replace(calm.clone()) {
            let step = before.next_calm(setting).map(|step| Move { step, overtakes: false });
            path.push((before, step));
        }
        path.len() == ENOUGH
    });
    path.extend(before.map(|last| (last, None)));
    path
}

impl World {
    /// One leads, and every request of an operator has ended.
    fn is_well(&self, setting: &Setting) -> bool {
        let requests = setting.paths().requests();
        let ended = |(name, node): (&str, &Arc<Node>)| {
            Request::decode(name, &node.data).is_ok_and(|request| request.state.is_final())
        };
        self.leader(setting).is_some() && children(&self.server.tree, &requests).all(ended)
    }

    /// The next thing that happens when nothing goes wrong any more.
    fn next_calm(&self, setting: &Setting) -> Option<Step> {
        let mut moves = Vec::new();
        self.moves(setting, &mut moves);
        // A client that is connected again has no reason to give up.
        let next = moves.into_iter().map(|m| m.step).find(|step| !matches!(step, Step::GiveUp(_)));
        // One leads, and nothing is due but what an elector writes once it has a lease again.
        next.or_else(|| (self.leader(setting).is_some() && !self.is_well(setting)).then_some(Step::Tick))
    }

    /// Starts everybody, and waits until one leads and time changes nothing any more.
    pub(crate) fn settle(&mut self, setting: &Setting) {
        self.calm = true;
        for _ in 0..STEPS {
            match self.next_calm(setting) {
                Some(Step::Tick) | None if self.leader(setting).is_some() => {
                    self.calm = false;
                    return;
                }
                Some(step) => self.take(setting, step),
                None => break,
            }
        }
        let glance = self.glance(setting);
        panic!("{}: no rest, though nothing is wrong: {glance}; {:?}", setting.name, self.broken);
    }
}
