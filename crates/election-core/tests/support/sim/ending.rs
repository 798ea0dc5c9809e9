//! When all faults are mended: does the election come to rest, and with whom?

use election_core::{
    Ballot,
    engine::{QueueFormat, Recipe, Role},
    record::{Current, Elected, Record, Request, Status},
};

use super::{Due, Sim, host::Host, job};
use crate::invariants::one_leader_in_the_end::Calm;

impl Sim {
    /// All faults are mended; from now on time is running.
    pub(super) fn calm(&mut self) {
        self.trace.line(self.now, || "ALL FAULTS ARE MENDED".to_owned());
        self.mend_all();
        let policy = &self.settings.policy;
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let phases = ms(policy.takeover_timeout) + ms(policy.acquire_timeout) + ms(policy.release_timeout);
        let bound = 6 * self.settings.timeout
            + 2 * phases
            + ms(policy.max_takeovers.within)
            + ms(policy.cooldown)
            + 30_000;
        self.checks.calm = Some(Calm::new(self.now, bound));
        self.after(500, Due::Look);
    }

    pub(super) fn look(&mut self) {
        let leader = self.only_leader();
        if let Some(calm) = &mut self.checks.calm {
            match calm.look(self.now, leader) {
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

    /// The one who is READY, named, and the only one that leads.
    fn only_leader(&self) -> Result<usize, String> {
        let role = |h: &Host| h.process.as_ref().map(|p| p.engine.role());
        let leading: Vec<_> =
            (0..self.hosts.len()).filter(|h| role(&self.hosts[*h]) == Some(Role::Leader)).collect();
        let [leader] = leading[..] else {
            return Err(format!("{} members lead", leading.len()));
        };
        if self.hosts[leader].process.as_ref().map(|p| p.job.phase) != Some(job::Phase::Serving) {
            return Err(format!("{} leads, and its job has ended", self.name(leader)));
        }
        let busy = self.hosts.iter().find(|h| {
            !matches!(role(h), None | Some(Role::Leader | Role::Standby | Role::Excluded)) || h.restarting
        });
        if let Some(busy) = busy {
            return Err(format!("{} is {:?}", busy.member, role(busy)));
        }
        if self.has_elector() { self.is_in_office(leader) } else { self.holds_the_place(leader) }
    }

    /// Its session owns the place.
    fn holds_the_place(&self, leader: usize) -> Result<usize, String> {
        let session = self.hosts[leader].process.as_ref().and_then(|p| Some(p.client.as_ref()?.session));
        match self.zk.get(&self.place()) {
            Some(node) if Some(node.owner) == session => Ok(leader),
            Some(node) => {
                Err(format!("{} leads, and session {:#x} has the place", self.name(leader), node.owner))
            }
            None => Err(format!("{} leads, and nobody has the place", self.name(leader))),
        }
    }

    /// It is named, stands in office and says READY; and every request has its outcome.
    fn is_in_office(&self, leader: usize) -> Result<usize, String> {
        let read = |path: &str| self.zk.get(path).map(|n| n.data.clone()).unwrap_or_default();
        let current = Current::decode(&self.paths.current(), &read(&self.paths.current()));
        let elected = Elected::decode(&self.paths.elected(), &read(&self.paths.elected()));
        let (Ok(current), Ok(elected)) = (current, elected) else {
            return Err("the decision or the place can't be read".to_owned());
        };
        if current.status != Status::Ready || elected.named().map(|n| &n.ballot) != Some(&current.ballot) {
            return Err(format!("{} stands in office, and {:?} is named", current.member, elected.named()));
        }
        if current.member != self.hosts[leader].member {
            return Err(format!("{} stands in office, and {} leads", current.member, self.name(leader)));
        }
        let requests = self.zk.tree_at(&self.paths.requests(), self.zk.zxid());
        for (name, node) in requests {
            if let Ok(request) = Request::decode(&name, &node.data)
                && !request.state.is_final()
            {
                return Err(format!("{name} is still {:?}", request.state));
            }
        }
        Ok(leader)
    }

    pub(super) fn has_elector(&self) -> bool {
        matches!(self.settings.recipe, Recipe::Elector(_))
    }

    /// Where the leader's znode is: in a queue, whoever was created first.
    pub(super) fn place(&self) -> String {
        let Some(parent) = self.queue() else {
            return self.paths.current();
        };
        let queue = self.zk.tree_at(&parent, self.zk.zxid());
        let first = queue.into_iter().filter(|(_, n)| n.owner != 0).min_by_key(|(_, node)| node.czxid);
        first.map_or(parent.clone(), |(name, _)| format!("{parent}/{name}"))
    }

    pub(super) fn ballot_path(&self, ballot: &Ballot) -> String {
        match (self.queue(), &self.settings.recipe) {
            (Some(parent), _) => format!("{parent}/{ballot}"),
            (None, Recipe::Single) => self.paths.current(),
            (None, _) => self.paths.ballot(ballot),
        }
    }

    fn queue(&self) -> Option<String> {
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
