//! When all faults are repaired: does the election become stable, and with which leader?

use std::time::Duration;

use election_core::{
    config::{QueueFormat, Recipe},
    internals::{
        calendar::Windows,
        record::{AdminRequest, Current, Elected, MemberRecord, Record, RequestRef, Status},
    },
    status::{Ballot, Role},
};

use super::{Due, Sim, host::Host, job, settings};
use crate::invariants::one_leader_in_the_end::Calm;

/// No better candidate waits that long in a run.
const LONG: Duration = Duration::from_secs(600);

impl Sim {
    /// All faults are mended; from now on time is running.
    pub(super) fn calm(&mut self) {
        self.trace.line(self.now, || "ALL FAULTS ARE MENDED".to_owned());
        self.mend_all();
        let policy = &self.settings.policy;
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let phases = ms(policy.takeover_timeout) + ms(policy.acquire_timeout) + ms(policy.release_timeout);
        let slots = self.read::<Elected>(&self.paths.elected()).map_or(1, |(e, _)| e.slots.len());
        let slots = slots.max(policy.slots) as u64;
        // A leader that stops, and its next standby.
        let slow = 2 * (self.settings.app.stop + self.settings.app.standby.unwrap_or(0));
        let bound = 6 * self.settings.timeout
            + slow
            + 2 * phases
            // All slots together have so many takeovers in a window, and each may need one, or one more.
            + ms(policy.max_takeovers.within) * slots
            + ms(policy.max_exclusion)
            + 30_000;
        // A better candidate, or one whose site is no longer barred, may still replace the leader.
        let window = settings::WINDOW_ENDS.saturating_sub(self.now);
        let window = if policy.failback_windows == Windows::default() { 0 } else { window };
        let moves = ms(policy.max_site_failures.within).max(window)
            + slow
            + if policy.better_after < LONG {
                // Longer where leaders were lost, but not longer than that is remembered.
                ms(policy.better_after.max(policy.penalty_window)) + ms(policy.min_tenure)
            } else {
                0
            };
        let rests_by = self.now + bound;
        self.checks.calm = Some(Calm::new(rests_by, rests_by + moves, self.settings.stays));
        self.after(500, Due::Look);
    }

    pub(super) fn look(&mut self) {
        self.recall_tokens();
        let leaders = self.leaders();
        if let Some(calm) = &mut self.checks.calm {
            match calm.look(self.now, leaders) {
                Ok(true) => self.settled = true,
                Ok(false) => self.after(500, Due::Look),
                Err(why) => {
                    let states: Vec<_> = (0..self.hosts.len()).map(|h| self.state_of(h)).collect();
                    self.require(Err(format!("{why}\n  {}", states.join("\n  "))));
                }
            }
        }
    }

    pub(super) fn is_calm(&self) -> bool {
        self.checks.calm.is_some()
    }

    /// All who lead, by slot: READY, named, as many as there are slots or members.
    fn leaders(&self) -> Result<Vec<usize>, String> {
        let role = |h: &Host| h.process.as_ref().map(|p| p.engine.role());
        let leading: Vec<_> =
            (0..self.hosts.len()).filter(|h| role(&self.hosts[*h]) == Some(Role::Leader)).collect();
        for leader in &leading {
            if self.hosts[*leader].process.as_ref().map(|p| p.job.phase) != Some(job::Phase::Serving) {
                return Err(format!("{} leads, and its job has ended", self.name(*leader)));
            }
            if self.hosts[*leader].process.as_ref().is_some_and(|p| p.job.suspended) {
                return Err(format!("{} leads, and its job is suspended", self.name(*leader)));
            }
        }
        // A leader that hangs in a drained site without another candidate continues to hang.
        let busy = self.hosts.iter().filter(|h| self.settings.drained.as_ref() != Some(&h.site)).find(|h| {
            !matches!(role(h), None | Some(Role::Leader | Role::Standby | Role::Excluded)) || h.restarting
        });
        if let Some(busy) = busy {
            return Err(format!("{} is {:?}", busy.member, role(busy)));
        }
        if self.has_elector() {
            return self.are_leading(leading);
        }
        match leading[..] {
            [leader] => self.holds_the_place(leader),
            _ => Err(format!("{} members lead", leading.len())),
        }
    }

    /// Its session owns the leader znode.
    fn holds_the_place(&self, leader: usize) -> Result<Vec<usize>, String> {
        let session = self.hosts[leader].process.as_ref().and_then(|p| Some(p.client.as_ref()?.session));
        match self.zk.get(&self.place()) {
            Some(node) if Some(node.owner) == session => Ok(vec![leader]),
            Some(node) => {
                Err(format!("{} leads, and session {:#x} has the place", self.name(leader), node.owner))
            }
            None => Err(format!("{} leads, and nobody has the place", self.name(leader))),
        }
    }

    /// They are named, their leader znodes are READY, and every request has its outcome.
    fn are_leading(&self, leading: Vec<usize>) -> Result<Vec<usize>, String> {
        let read = |path: &str| self.zk.get(path).map(|n| n.data.clone()).unwrap_or_default();
        let is_closed = |h: &Host| self.settings.drained.as_ref() == Some(&h.site);
        let open = self.hosts.iter().filter(|h| h.process.is_some() && !is_closed(h)).count();
        if open == 0 && leading.is_empty() && self.zk.get(&self.paths.elected()).is_none() {
            // It was deleted, or never made, and all who live are of the drained site.
            return Ok(Vec::new());
        }
        let Ok(elected) = Elected::decode(&self.paths.elected(), &read(&self.paths.elected())) else {
            return Err("the decision can't be read".to_owned());
        };
        let mut leaders = Vec::new();
        for leader in leading {
            let process = self.hosts[leader].process.as_ref();
            let slot = process.and_then(|p| p.engine.slot()).ok_or("a leader has a slot")?;
            let place = self.paths.leader_znode(slot);
            let Ok(current) = Current::decode(&place, &read(&place)) else {
                // With the pause mode `keep` a leader continues until another is named, and a member of a drained site
                // can't be named.
                if self.settings.drained.as_ref() == Some(&self.hosts[leader].site) {
                    continue;
                }
                return Err(format!("{place} can't be read"));
            };
            let named = elected.named(slot);
            if current.status != Status::Ready || named.map(|n| &n.ballot) != Some(&current.ballot) {
                return Err(format!("{} stands in slot {slot}, and {named:?} is named", current.member));
            }
            if current.member != self.hosts[leader].member {
                return Err(format!("{} has slot {slot}, and {} leads", current.member, self.name(leader)));
            }
            leaders.push((slot, leader));
        }
        leaders.sort_unstable();
        let slots = elected.slots.len();
        let living = self.hosts.iter().filter(|h| h.process.is_some()).count();
        // Leaders of a drained site continue while there is no other candidate, and are not named again.
        if !(slots.min(open)..=slots.min(living)).contains(&leaders.len()) {
            return Err(format!(
                "{} members lead {slots} slots, and {living} live, {open} of them in open sites",
                leaders.len()
            ));
        }
        let against = leaders.iter().filter(|(_, leader)| is_closed(&self.hosts[*leader])).count();
        if against > slots.saturating_sub(open) {
            return Err(format!("{against} lead from the drained site, and others may lead"));
        }
        let nodes = self.zk.tree_at(&self.paths.nodes(), self.zk.zxid());
        let records = nodes.iter().filter_map(|(name, node)| MemberRecord::decode(name, &node.data).ok());
        if let Some(behind) = records.into_iter().find(|record| record.remembers.is_some()) {
            return Err(format!(
                "term {} stands, and {} remembers {:?}",
                elected.term, behind.member, behind.remembers
            ));
        }
        let requests = self.zk.tree_at(&self.paths.requests(), self.zk.zxid());
        for (name, node) in requests {
            let which = RequestRef { czxid: node.czxid, name: name.clone() };
            // A request whose leader has gone, without another candidate, may still be fulfilled.
            let waits =
                elected.slot_for(&which).is_some_and(|slot| leaders.iter().all(|(led, _)| *led != slot));
            if let Ok(request) = AdminRequest::decode(&name, &node.data)
                && !request.state.is_final()
                && !waits
            {
                return Err(format!("{name} is still {:?}", request.state));
            }
        }
        Ok(leaders.into_iter().map(|(_, leader)| leader).collect())
    }

    /// The leader znode of a random slot.
    pub(super) fn any_place(&mut self) -> String {
        if !self.has_elector() {
            return self.place();
        }
        self.paths.leader_znode(self.rng.usize(0..self.settings.policy.slots))
    }

    pub(super) fn has_elector(&self) -> bool {
        matches!(self.settings.recipe, Recipe::Elector(_))
    }

    /// The path of the leader znode; in a queue, the oldest one.
    pub(super) fn place(&self) -> String {
        let Some(parent) = self.queue() else {
            return self.paths.leader_znode(0);
        };
        let queue = self.zk.tree_at(&parent, self.zk.zxid());
        let first = queue.into_iter().filter(|(_, n)| n.owner != 0).min_by_key(|(_, node)| node.czxid);
        first.map_or(parent.clone(), |(name, _)| format!("{parent}/{name}"))
    }

    pub(super) fn ballot_path(&self, ballot: &Ballot) -> String {
        match (self.queue(), &self.settings.recipe) {
            (Some(parent), _) => format!("{parent}/{ballot}"),
            (None, Recipe::Single) => self.paths.leader_znode(0),
            (None, _) => self.paths.ballot(ballot),
        }
    }

    pub(super) fn queue(&self) -> Option<String> {
        match self.settings.recipe {
            Recipe::Queue(QueueFormat::Native) => Some(self.paths.queue()),
            Recipe::Queue(_) => Some(self.paths.base().to_owned()),
            _ => None,
        }
    }

    fn state_of(&self, host: usize) -> String {
        let target = &self.hosts[host];
        match &target.process {
            None => format!("{}: down", target.member),
            Some(p) => format!(
                "{}: {} elector={} session={:?} job={:?} sentence={:?}",
                target.member,
                p.engine.role(),
                p.engine.is_elector(),
                p.client.as_ref().map(|c| (c.session, c.link)),
                p.job.phase,
                p.engine.sentence()
            ),
        }
    }
}
