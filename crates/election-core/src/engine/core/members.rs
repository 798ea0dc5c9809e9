//! This member's part among the others.
//!
//! # Calls
//! Most members are neither elector nor leader, named, nor first in line, and nothing they know moves leadership: they are
//! passive ([`Engine::is_passive`](crate::engine::Engine::is_passive)) and read nothing unless they are called. A decision
//! that names such a member, or makes it the first in line, sets its ballot, and each member watches its own ballot. That is
//! in the transaction of the decision, with two exceptions, which must not fail if the called member is lost as well: a
//! successor calls the next one in line after its own READY, and a decision that was deleted and is written again is
//! followed by its calls. A member that misses a call is named later, by a decision that calls it again.

use std::collections::BTreeMap;

use super::Core;
use crate::{
    engine::{
        io::EndReason,
        ops::Pending,
        recipe::{Incarnation, fingerprint},
        transaction::{Transaction, ZnodeWrite},
        witnesses::witnesses,
        znode::Known,
    },
    ids::Ballot,
    record::{Current, Elected, Named, Remembered},
};

impl Core {
    /// The path of the own record.
    pub(crate) fn own_node(&self) -> String {
        self.config.paths.node(&self.config.member.member)
    }

    /// This incarnation of this member, on the present session.
    pub(crate) fn incarnation(&self) -> Incarnation {
        let member = fingerprint(&self.config.member.member);
        Incarnation { session: self.session_id(), member, number: self.number }
    }

    /// Whether this incarnation has drawn the ballot on the present session.
    pub(crate) fn is_own(&self, ballot: &Ballot) -> bool {
        let format = self.queue_format().unwrap_or_default();
        ballot.as_str().starts_with(&format.incarnation_stem(self.incarnation()))
    }

    /// Whether this incarnation has created what was read of a leader znode: by its session, and since other members can share
    /// that, by its czxid or by the name in its record.
    pub(crate) fn is_own_leader_znode(&self, known: &Known<Current>) -> bool {
        let Some((meta, session)) = known.meta().zip(self.session.as_ref()) else { return false };
        let is_named = || known.record().is_some_and(|current| self.is_own(&current.ballot));
        meta.owner == session.id && (session.created.has(meta.czxid) || is_named())
    }

    /// This engine is known to have created this leader znode.
    pub(crate) fn has_created(&mut self, czxid: i64) {
        if let Some(session) = &mut self.session {
            session.created.add(czxid);
        }
    }

    /// Another incarnation of this member lives at this address, and holds this znode.
    pub(crate) fn duplicate(&self, path: String, address: Option<String>) -> EndReason {
        EndReason::DuplicateMember { member: self.config.member.member.clone(), path, address }
    }

    /// This member as it would be named with `ballot`.
    pub(crate) fn named(&self, ballot: &Ballot) -> Named {
        let member = &self.config.member;
        Named { member: member.member.clone(), ballot: ballot.clone(), site: member.site.clone() }
    }

    /// The configured attributes, overridden by the measured ones.
    pub(crate) fn attributes(&self) -> BTreeMap<String, String> {
        let mut all = self.config.member.attributes.clone();
        all.extend(self.own.reports.measured.clone());
        all
    }

    /// Makes a request that is applied only while the own ballot exists. A version does not identify one creation of
    /// a znode. After an administrator has deleted the election and it has begun again, or after a request was
    /// replaced by another one of the same name, a late write can find the version that it requires. The ballots are
    /// deleted with that tree, and the name of a ballot is never used twice. If only the decision is deleted, the ballots
    /// remain. Then the [`generation`](Elected::generation) of a decision is another than that of the deleted one.
    pub(crate) fn as_candidate(&self, request: Transaction) -> Transaction {
        match &self.own.ballot.name {
            Some(ballot) => request.only_while(self.config.paths.ballot(ballot), None),
            None => request,
        }
    }

    /// Sets the ballot of each other member that must know this decision at once, in the same transaction, with the data that
    /// it has. Such a member was passive: it reads the decision later, or not at all. But it watches its ballot. The next in
    /// line are left out if they are called [apart](Self::call).
    pub(crate) fn calling(&self, elected: &Elected, apart: bool, request: Transaction) -> Transaction {
        // The first decision has no passive members.
        let Some(last) = self.reading.view.elected.record() else { return request };
        let (mut called, next) = elected.called(Some(last));
        called.extend(next.into_iter().filter(|_| !apart));
        // A decision that only raises the term, or the base of the tokens, can name a member that is gone.
        let members = self.reading.view.electors().members.iter().flatten();
        let lives = |named: &Named| members.clone().any(|member| member.ballot == named.ballot);
        called.retain(|named| self.is_another(named) && lives(named));
        request.and_call(&called, &self.config.paths)
    }

    /// Sets the ballots of the others that must know the decision, where that was no part of the transaction that wrote it: it
    /// must not fail if one of them is lost, or if the decision is written again that names members of former times.
    pub(crate) fn call(&mut self) {
        let Some(elected) = self.reading.view.elected.record() else { return };
        let (named, next) = elected.called(None);
        let called = named.into_iter().chain(next).filter(|named| self.is_another(named));
        let calls: Vec<_> = called.map(|named| ZnodeWrite::call(named, &self.config.paths)).collect();
        for call in calls {
            self.perform(call, Pending::GivenUp);
        }
    }

    fn is_another(&self, named: &Named) -> bool {
        self.own.ballot.name.as_ref() != Some(&named.ballot)
    }

    /// The latest decision that it has seen, while the decision in ZooKeeper is missing or older.
    pub(crate) fn remembers(&self) -> Option<Remembered> {
        self.reading.remembers()
    }

    /// Whether this member decides: its ballot is the lowest, or it has lost the member with the ballot before its
    /// own.
    pub(crate) fn watches_membership(&self) -> bool {
        !self.is_contest() && (self.own.ballot.is_lowest() || self.has_lost_its_predecessor())
    }

    fn has_lost_its_predecessor(&self) -> bool {
        self.config.policy.may_suspect()
            && self.own.ballot.predecessor().is_some_and(|before| self.own.reports.reach.has_lost(before))
    }

    /// Whether every member with a lower ballot is a suspect, as far as the membership has been read.
    pub(crate) fn acts_for_the_elector(&self) -> bool {
        let (Some(mine), Some(members)) = (&self.own.ballot.name, &self.reading.view.electors().members)
        else {
            return false;
        };
        let mut lower = members.iter().filter(|m| m.ballot < *mine);
        lower.all(|m| witnesses(members, &m.ballot, &m.site).is_some())
    }
}
