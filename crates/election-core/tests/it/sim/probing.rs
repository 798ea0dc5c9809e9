//! Members that probe each other, where suspicion decides, and what may follow.

use std::collections::{BTreeMap, BTreeSet};

use election_core::{
    internals::{
        Event, Node,
        record::{Cause, Current, Elected, MemberRecord, Record},
    },
    status::Ballot,
};

use super::{Due, Sim, ToWorker, host::Unseen};
use crate::{
    invariants::never_on_one_sites_word::{self, Witness},
    zookeeper::Millis,
};

/// The reports of each member.
#[derive(Debug, Default)]
pub(crate) struct Probing {
    /// When each node last received the report that a ballot did not answer.
    unanswered: BTreeMap<(usize, Ballot), Millis>,
    /// The latest term that was judged.
    judged: u64,
    /// The members' records as they were at this zxid.
    registered: Option<(i64, BTreeMap<String, MemberRecord>)>,
}

impl Probing {
    /// What there is at a zxid may be something else from now on, and the decision one of this term, which was judged
    /// when it was made: who was not reached then may have been forgotten.
    pub(crate) fn restored(&mut self, term: u64) {
        self.registered = None;
        self.judged = term;
    }
}

impl Sim {
    /// A node asks all others whether they are there.
    pub(super) fn probe(&mut self, host: usize) {
        let Some(every) = self.settings.probe_every else {
            return;
        };
        let delay = self.rng.u64(every / 2..=every * 3 / 2);
        self.after(delay, Due::Probe(host));
        if self.hosts[host].process.is_none() || self.hosts[host].frozen.is_some() {
            return;
        }
        let others = (0..self.hosts.len()).filter(|other| *other != host);
        let mut answering: BTreeSet<Ballot> = others.filter_map(|other| self.answers(host, other)).collect();
        if self.settings.lost_probes > 0.0 {
            let all = answering.len();
            answering.retain(|_| self.rng.f64() >= self.settings.lost_probes);
            self.summary.lost_probes += (all - answering.len()) as u64;
        }
        let mut unanswered = BTreeSet::new();
        for record in self.registered().into_values() {
            if record.member != self.hosts[host].member && !answering.contains(&record.ballot) {
                self.probing.unanswered.insert((host, record.ballot.clone()), self.now);
                unanswered.insert(record.ballot);
            }
        }
        self.tell_worker(host, 1, ToWorker::Event(Event::Probed(unanswered)));
    }

    /// Under which ballot a node answers another one's probes.
    fn answers(&self, from: usize, to: usize) -> Option<Ballot> {
        let (from, to) = (&self.hosts[from], &self.hosts[to]);
        let seen = match &to.net.unseen {
            Unseen::Nobody => true,
            Unseen::All => false,
            Unseen::Site(site) => *site != from.site || from.site == to.site,
        };
        let reached = seen && to.frozen.is_none() && !from.net.cut && !to.net.cut;
        to.process.as_ref().filter(|_| reached).and_then(|process| process.engine.ballot())
    }

    fn registered(&mut self) -> BTreeMap<String, MemberRecord> {
        let zxid = self.zk.zxid();
        if self.probing.registered.as_ref().is_none_or(|(at, _)| *at != zxid) {
            let nodes = self.zk.tree_at(&self.paths.nodes(), zxid);
            let usable = |(name, node): (String, Node)| {
                let record = MemberRecord::decode(&name, &node.data).ok()?;
                Some((name, record))
            };
            self.probing.registered = Some((zxid, nodes.into_iter().filter_map(usable).collect()));
        }
        self.probing.registered.as_ref().map(|(_, members)| members.clone()).unwrap_or_default()
    }

    /// A decision was written: did it rest on enough of the others?
    pub(super) fn check_suspicion(&mut self, elected: &Elected) {
        let vacates = |slot: &usize| elected.named(*slot).is_none() && elected.term_of(*slot) == elected.term;
        let vacated = (0..elected.slots.len()).find(vacates);
        let Some(slot) = vacated.filter(|_| elected.cause() == Cause::Suspected) else {
            return;
        };
        self.summary.suspected += 1;
        let Some(suspect) =
            elected.latest().and_then(|given| given.previous.as_ref()).map(|p| p.ballot.clone())
        else {
            return;
        };
        let lowest = self.registered().into_values().min_by(|a, b| a.ballot.cmp(&b.ballot));
        self.summary.stand_ins +=
            u64::from(lowest.is_some_and(|lowest| lowest.member.as_str() != elected.decided_by));
        let place = self.zk.get(&self.paths.leader_znode(slot)).cloned();
        if let Some(place) = place
            && Current::decode("current", &place.data).is_ok_and(|c| c.ballot == suspect)
        {
            self.depose(&place);
        }
        if std::mem::replace(&mut self.probing.judged, elected.term) == elected.term {
            return;
        }
        // What an elector knows can be as old as its lease is long, and the slowest watch.
        let since = self.now.saturating_sub(2 * self.settings.timeout + 12_000);
        let mut witnesses = Vec::new();
        for ((host, ballot), at) in &self.probing.unanswered {
            if *ballot == suspect && *at >= since {
                witnesses.push(Witness { host: *host, site: self.hosts[*host].site.clone() });
            }
        }
        let sites: BTreeSet<_> = self.registered_for_long(since).map(|m| m.site).collect();
        let verdict = never_on_one_sites_word::check(&suspect, &witnesses, &sites);
        self.require(verdict);
    }

    /// The members that have been there since before `since`, so all others know them.
    fn registered_for_long(&self, since: Millis) -> impl Iterator<Item = MemberRecord> {
        let before = self.zk.zxid_at(since);
        let nodes = self.zk.tree_at(&self.paths.nodes(), self.zk.zxid());
        let old = nodes.into_iter().filter(move |(_, node)| node.czxid <= before);
        old.filter_map(|(name, node)| MemberRecord::decode(&name, &node.data).ok())
    }
}
