//! Puts what was read into the view.

use std::{collections::BTreeMap, sync::Arc};

use super::Core;
use crate::{
    engine::{
        io::{Action, Node},
        recipe::{QueueFormat, Recipe},
        znode::{Known, Znode},
    },
    ids::{Ballot, share},
    record::{Contender, Current, Elected, MAX_SLOTS, Record, RecordError, Status, TokenBase, VERSION},
};

impl Core {
    pub(crate) fn saw_tree(&mut self, parent: &str, nodes: &BTreeMap<String, Node>) {
        if !self.watches_membership() {
            return;
        }
        let electors = self.reading.view.electors_mut();
        let reported = electors.unreadable.clone();
        if parent == self.config.paths.nodes() {
            electors.see_members(parent, nodes);
        } else if parent == self.config.paths.requests() {
            electors.see_requests(parent, nodes);
        }
        electors.count_validity(self.now.time);
        // Whoever may write a record that can't be used may write it again and again.
        let is_reported = |error: &RecordError| reported.iter().any(|before| before.path == error.path);
        let news = electors.unreadable.iter().filter(|error| !is_reported(error));
        let troubles: Vec<_> = news.map(ToString::to_string).collect();
        for trouble in troubles {
            self.trouble(trouble);
        }
    }

    pub(crate) fn see_elected(&mut self, node: Option<&Node>) {
        if !self.reading.view.elected.is_newer_than(node) {
            self.take_elected(node);
        }
    }

    /// Takes what was read of the decision into the view, regardless of its age.
    pub(crate) fn take_elected(&mut self, node: Option<&Node>) {
        let path = self.config.paths.elected();
        let known = Known::read(&path, node);
        let is_reported = self.reading.view.elected.error().is_some();
        self.know_elected(known);
        if let Some(error) = self.reading.view.elected.error().filter(|_| !is_reported) {
            let text = error.to_string();
            self.trouble(text);
        }
        if self.own.leaving.is_asked() {
            // No watch reads them any more.
            self.doubt_unread_leader_znodes();
        }
    }

    /// Replaces what is known of the decision.
    pub(crate) fn know_elected(&mut self, known: Known<Elected>) {
        self.reading.memory.keep(&self.reading.view.elected);
        self.reading.memory.compare(&known);
        let generation = |known: &Known<Elected>| known.record().map(|elected| elected.generation);
        if generation(&known) != generation(&self.reading.view.elected) {
            self.reading.generation_read = None;
        }
        self.reading.view.elected = known;
        self.reading.learn_tokens(self.is_contest());
        self.compare_view(Znode::Decision);
        self.reading.remember_tenures(self.slots_watched(), self.now.unix_ms);
    }

    /// The base of the tokens was read, in a contest.
    pub(crate) fn see_tokens(&mut self, node: Option<&Node>) {
        let known = Known::<TokenBase>::read(&self.config.paths.tokens(), node);
        let is_reported = self.reading.view.tokens.error().is_some();
        if let Some(error) = known.error().filter(|_| !is_reported) {
            self.trouble(error);
        }
        self.reading.memory.saw_token(known.record().map(|tokens| tokens.token_base));
        self.reading.view.tokens = known;
        self.reading.learn_tokens(self.is_contest());
    }

    /// The base of the tokens in a contest, and the version of its record: unknown until it was read. A queue in a foreign
    /// format has none.
    pub(crate) fn contest_base(&self) -> Option<(u64, Option<i32>)> {
        match &self.reading.view.tokens {
            _ if !self.config.recipe.is_native() => Some((0, None)),
            Known::Absent => Some((0, None)),
            Known::Present(tokens, meta) => Some((tokens.token_base, Some(meta.version))),
            Known::Unread | Known::Unreadable(..) => None,
        }
    }

    pub(crate) fn see_leader_znode(&mut self, slot: usize, node: Option<&Node>) {
        let known = self.read_leader_record(&self.leader_znode_path(slot), node);
        self.reading.view.see_leader_znode(slot, known, node);
        self.reading.learn_tokens(self.is_contest());
        self.compare_view(Znode::Leader(slot));
        // Without an elector, no decision names a leader.
        if !self.is_contest() {
            self.reading.remember_tenures(self.slots_watched(), self.now.unix_ms);
        }
        self.tell_leader(slot, self.reading.view.leader(slot).shared().cloned());
    }

    pub(crate) fn tell_leader(&mut self, slot: usize, leader: Option<Arc<Current>>) {
        self.out.leaders.grow(slot + 1);
        if self.out.leaders[slot] != leader {
            self.out.leaders[slot].clone_from(&leader);
            self.out.push(Action::LeaderChanged(slot, leader));
        }
    }

    /// The number of leader znodes to watch: those of all slots that the decision has or will have, and the one that
    /// this member itself has not finished with.
    pub(crate) fn slots_watched(&self) -> usize {
        if self.is_contest() {
            return 1;
        }
        let decided = match &self.reading.view.elected {
            Known::Present(elected, _) => elected.slots.len(),
            Known::Absent => 0,
            // As many as before.
            Known::Unread | Known::Unreadable(..) => self.reading.view.leaders().count(),
        };
        let own = self.own.duty.slot.map_or(0, |slot| slot + 1);
        decided.min(MAX_SLOTS).max(self.config.policy.slots).max(own)
    }

    /// The slots from this one on are gone: their leader znodes are not read any more.
    pub(crate) fn forget_slots(&mut self, from: usize) {
        self.reading.view.forget_leader_znodes(from);
        self.reading.rereading.forget(from);
        for slot in from..self.out.leaders.len() {
            self.tell_leader(slot, None);
        }
        self.out.leaders.truncate(from);
    }

    // ---- the leader znode, by recipe ----

    /// Whether a znode alone decides who leads.
    pub(crate) fn is_contest(&self) -> bool {
        !matches!(self.config.recipe, Recipe::Elector(_))
    }

    pub(crate) fn queue_format(&self) -> Option<QueueFormat> {
        match self.config.recipe {
            Recipe::Queue(format) => Some(format),
            Recipe::Elector(_) | Recipe::Single => None,
        }
    }

    /// The znode whose holder leads `slot`.
    pub(crate) fn leader_znode_path(&self, slot: usize) -> String {
        match (&self.config.recipe, &self.own.contest.znode) {
            (Recipe::Queue(_), Some(own)) => own.path.as_ref().into(),
            // No znode is held then, and the path is not used.
            (Recipe::Queue(format), None) => format.parent(&self.config.paths),
            _ => self.config.paths.leader_znode(slot),
        }
    }

    /// Single: the number of the creation that made the own leader znode.
    pub(crate) fn creation_count(&self) -> Option<i32> {
        self.own.contest.znode.as_ref().and_then(|own| own.creation.as_ref()).map(|creation| creation.count)
    }

    /// The name of the incarnation that holds a leader znode, which is that of its znode in a queue.
    fn ballot_at(&self, path: &str, named: Option<&Ballot>) -> Option<Ballot> {
        let own = self.own.contest.znode.as_ref().map(|own| &own.ballot);
        match self.config.recipe {
            Recipe::Queue(_) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                own.filter(|own| own.as_str() == name).cloned().or_else(|| Ballot::new(name).ok())
            }
            _ => own.filter(|own| Some(*own) == named).or(named).cloned(),
        }
    }

    /// The content of the leader znode.
    pub(crate) fn read_leader_record(&self, path: &str, node: Option<&Node>) -> Known<Current> {
        let Some(node) = node.filter(|_| self.is_contest()) else {
            return Known::read(path, node);
        };
        if !self.config.recipe.is_native() {
            return match self.own_leader_record(path, node) {
                Some(current) => Known::Present(Arc::new(current), node.into()),
                None => Known::Unread,
            };
        }
        match Contender::decode(path, &node.data) {
            Ok(mut record) => {
                let Some(ballot) = self.ballot_at(path, record.ballot.as_ref()) else { return Known::Unread };
                let own = self.own.contest.znode.as_ref();
                if let Some(own) = own.filter(|own| *own.path == *path && own.node.czxid == node.czxid) {
                    // It may have been written before the base was known.
                    record.token_base = own.base;
                }
                share(&mut record.member, &self.config.member.member);
                share(&mut record.site, &self.config.member.site);
                Known::Present(Arc::new(record.to_current(ballot, node.czxid)), node.into())
            }
            Err(error) => Known::Unreadable(Box::new(error), node.into()),
        }
    }

    /// In a foreign format the leader znode holds only a name: this member adds the rest of its own record.
    fn own_leader_record(&self, path: &str, node: &Node) -> Option<Current> {
        let member = &self.config.member;
        let held = self.own.duty.held.as_ref();
        let ready_ms = held.and_then(|held| held.ready_ms);
        Some(Current {
            v: VERSION,
            member: member.member.clone(),
            ballot: self.ballot_at(path, None)?,
            site: member.site.clone(),
            slot: 0,
            term: u64::try_from(node.czxid).unwrap_or(0),
            status: if ready_ms.is_some() { Status::Ready } else { Status::Progress },
            endpoint: member.address.clone(),
            fencing_token: u64::try_from(node.czxid).ok(),
            since_ms: held.map_or(self.now.unix_ms, |held| held.created_ms),
            ready_ms,
        })
    }
}
