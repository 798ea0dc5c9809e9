//! Is there a leader in the end, and does every request of an operator end? From a given state on, faults stop, and all
//! possible events happen, in a fixed and fair order.
//!
//! The check is made twice. In the first, everything is repaired: processes start again, machines and connections come
//! back. The second is for states in which a member is dead, frozen or cut off. There nothing is repaired: those
//! members never return, and the survivors must continue without them.
//!
//! The checker makes this check from every state that it reaches. If a path ends well, all states on it are good, so
//! most checks end after a few steps.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use election_core::internals::{
    Node,
    record::{AdminRequest, Record},
};

use crate::model::{
    process::{Link, Member},
    server::children,
    settings::Setting,
    steps::{Move, Step},
    world::World,
};

/// More steps than any recovery takes.
const STEPS: usize = 800;

/// More ticks than all timeouts of a recovery together.
const TICKS: u32 = 30;

/// States which are known to have a leader in the end.
#[derive(Debug, Default)]
pub(crate) struct Good(Mutex<HashSet<u64>>);

impl Good {
    fn has(&self, fingerprint: u64) -> bool {
        self.0.lock().is_ok_and(|known| known.contains(&fingerprint))
    }

    /// Whether there is a leader in the end, from `world` on, if all members come back.
    pub(crate) fn leads(&self, setting: &Setting, world: &World) -> bool {
        self.ends_well(setting, world, 0)
    }

    /// The same if the lost members never come back, provided that there is a survivor that may lead.
    pub(crate) fn survivors_lead(&self, setting: &Setting, world: &World) -> bool {
        let lost = world.casualties();
        lost == 0 || !world.has_candidate(setting, lost) || self.ends_well(setting, world, lost)
    }

    fn ends_well(&self, setting: &Setting, world: &World, lost: u8) -> bool {
        if world.broken.is_some() {
            return true;
        }
        let mut path = Vec::new();
        let ends_well = run(setting, world, lost, |calm| {
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

/// Lets all possible events happen, without a fault. `known` returns whether a state is known to end well. The last
/// state is in `World::settle`.
fn run(setting: &Setting, world: &World, lost: u8, mut known: impl FnMut(&World) -> bool) -> bool {
    let mut calm = world.clone();
    calm.calm = true;
    calm.lost = lost;
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

/// How the path continues from a state that does not end well.
pub(crate) fn goes_on(setting: &Setting, world: &World, lost: u8) -> Vec<(World, Option<Move>)> {
    const ENOUGH: usize = 40;
    let mut path = Vec::new();
    let mut before: Option<World> = None;
    run(setting, world, lost, |calm| {
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
    /// Whether this member never comes back.
    pub(crate) fn is_lost(&self, m: usize) -> bool {
        self.lost & (1 << m) != 0
    }

    /// Who is dead, frozen, or cut off from most servers, a bit each. A connection that the client
    /// knows to be lost is not among them: it is on its way to another server.
    pub(crate) fn casualties(&self) -> u8 {
        let lost = |member: &Member| {
            let dead = member.process.is_none() && member.life > 0;
            let cut_off = member.client().is_some_and(|c| c.link == Link::Silent || c.minority);
            dead || member.frozen || cut_off
        };
        self.members.iter().enumerate().map(|(m, member)| u8::from(lost(member)) << m).sum()
    }

    /// Whether a member that is not lost may lead, now or once it has started.
    fn has_candidate(&self, setting: &Setting, lost: u8) -> bool {
        self.members.iter().enumerate().any(|(m, member)| {
            let leaves = member.process.as_ref().is_some_and(|process| process.leaving);
            lost & (1 << m) == 0 && !leaves && !setting.broken.contains(&setting.members[m].0)
        })
    }

    /// One leads, and every request of an operator has ended.
    fn is_well(&self, setting: &Setting) -> bool {
        let requests = setting.paths().requests();
        let ended = |(name, node): (&str, &Arc<Node>)| {
            AdminRequest::decode(name, &node.data).is_ok_and(|request| request.state.is_final())
        };
        self.is_led(setting)
            && self.is_remembered(setting)
            && children(&self.server.tree, &requests).all(ended)
    }

    /// The next event when there are no further faults.
    fn next_calm(&self, setting: &Setting) -> Option<Step> {
        let mut moves = Vec::new();
        self.moves(setting, &mut moves);
        // A client that is connected again has no reason to give up.
        let next = moves
            .into_iter()
            .map(|m| m.step)
            .find(|step| !matches!(step, Step::GiveUp(m) if !self.is_lost(*m)));
        // There is a leader, and nothing is due except an elector's write once it has a lease again.
        next.or_else(|| (self.is_led(setting) && !self.is_well(setting)).then_some(Step::Tick))
    }

    /// Starts all members, and waits until there is a leader and time changes nothing further.
    pub(crate) fn settle(&mut self, setting: &Setting) {
        self.calm = true;
        for _ in 0..STEPS {
            match self.next_calm(setting) {
                Some(Step::Tick) | None if self.is_led(setting) => {
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
