//! What is wrong with an election that its members can't repair, or have not repaired yet.

use std::collections::BTreeMap;

use crate::{
    ghosts::{self, Ghost},
    observer::{Decision, Observer, Snapshot},
    record::Breadcrumb,
};
use election_core::{
    Paths,
    config::MemberId,
    internals::{
        Layout, ReadError,
        record::{HistoryEntry, Remembered},
    },
};

/// What is wrong with an election. See [`Observer::problems`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A znode whose session is over and which blocks an elector, a leader or a member.
    /// [`remove_ghost`](crate::remove_ghost) removes it.
    Ghost(Ghost),
    /// The decision has been deleted, or replaced by an older one. The elector writes a new one by itself, above what
    /// members have seen.
    OldDecision(OldDecision),
    /// A leader's fencing token is older than an earlier one, so a resource that has seen the earlier one refuses the
    /// leader. In an election with an elector, [`raise_tokens`](crate::raise_tokens) repairs it.
    LowToken {
        /// The slot of the leader.
        slot: usize,
        /// Its token.
        token: u64,
        /// The newest token of the slot, in the history that is kept.
        newest: u64,
    },
    /// A former leader has vanished, and was not fenced since: its work may still run.
    NotFenced(Breadcrumb),
    /// Members can't apply the present overlay of their configuration.
    RefusedOverlay {
        /// Its version.
        version: u64,
        /// These members.
        members: Vec<MemberId>,
        /// Why the first of them can't.
        reason: String,
    },
    /// Members are configured with another policy than the elector, so the next elector may decide otherwise.
    OtherPolicy {
        /// The elector.
        elector: MemberId,
        /// The members with another policy.
        members: Vec<MemberId>,
    },
}

/// A decision that is missing, or older than what members have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldDecision {
    /// The term of the decision; `None` if the decision is missing.
    pub term: Option<u64>,
    /// The latest term that members have seen.
    pub seen: u64,
    /// The newest fencing token that members have seen.
    pub token: u64,
}

impl Observer {
    /// What is wrong with the election of this snapshot. Problems in the snapshot are read once more, because they may
    /// have ended by now.
    ///
    /// Three reads, and one for each entry of the history.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn problems(&self, paths: &Paths, snapshot: &Snapshot) -> Result<Vec<Problem>, ReadError> {
        let mut problems = Vec::new();
        if snapshot.layout == Layout::Elector {
            problems.extend(ghosts::find(self, paths, snapshot).await?.into_iter().map(Problem::Ghost));
        }
        problems.extend(refused_overlays(snapshot));
        problems.extend(other_policy(snapshot));
        problems.extend(snapshot.former().cloned().map(Problem::NotFenced));
        if let Some(old) = old_decision(snapshot) {
            // The next term will have tokens above all that members have seen.
            problems.push(Problem::OldDecision(old));
            return Ok(problems);
        }
        let (history, _) = self.history(paths).await?;
        if low_tokens(snapshot, &history).next().is_some() {
            // A leader that is newer than the snapshot may be in the history already.
            problems.extend(low_tokens(&self.snapshot(paths).await?, &history));
        }
        Ok(problems)
    }
}

fn refused_overlays(snapshot: &Snapshot) -> Vec<Problem> {
    let mut all: BTreeMap<u64, (Vec<MemberId>, String)> = BTreeMap::new();
    for member in &snapshot.members {
        let Some(refused) = member.config.as_ref().and_then(|config| config.refused.as_ref()) else {
            continue;
        };
        let (members, _) = all.entry(refused.version).or_insert_with(|| (Vec::new(), refused.reason.clone()));
        members.push(member.member.clone());
    }
    let problem = |(version, (members, reason))| Problem::RefusedOverlay { version, members, reason };
    all.into_iter().map(problem).collect()
}

fn other_policy(snapshot: &Snapshot) -> Option<Problem> {
    let lowest = snapshot.lowest.as_ref()?;
    let elector = snapshot.members.iter().find(|member| member.ballot == *lowest)?;
    let says = |policy: &str| !policy.is_empty();
    let differs = |policy: &str| says(policy) && says(&elector.policy) && policy != elector.policy;
    let others = snapshot.members.iter().filter(|member| differs(&member.policy));
    let members: Vec<_> = others.map(|member| member.member.clone()).collect();
    (!members.is_empty()).then(|| Problem::OtherPolicy { elector: elector.member.clone(), members })
}

fn old_decision(snapshot: &Snapshot) -> Option<OldDecision> {
    let is_newer = |remembered: &Remembered| {
        let than = |decision: &Decision| remembered.is_newer_than(&decision.record, decision.mzxid);
        snapshot.elected.as_ref().is_none_or(than)
    };
    let remembered = snapshot.members.iter().filter_map(|member| member.remembers);
    let remembered = remembered.filter(is_newer).map(|seen| (seen.term, seen.token));
    // A member acquires leadership only after a decision.
    let leader_znodes = snapshot.leader_znodes.iter().enumerate().filter(|_| snapshot.elected.is_none());
    let led = leader_znodes.filter_map(|(slot, leader_znode)| {
        Some((leader_znode.as_ref()?.record.term, snapshot.fencing_token(slot).unwrap_or(0)))
    });
    let (seen, token) = remembered.chain(led).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    let is_elector = snapshot.layout == Layout::Elector;
    is_elector.then(|| OldDecision { term: snapshot.decided().map(|elected| elected.term), seen, token })
}

fn low_tokens<'a>(snapshot: &'a Snapshot, history: &'a [HistoryEntry]) -> impl Iterator<Item = Problem> + 'a {
    (0..snapshot.leader_znodes.len()).filter_map(|slot| {
        let token = snapshot.fencing_token(slot)?;
        let given = history.iter().filter(|entry| entry.slot == slot).map(|entry| entry.fencing_token);
        let newest = given.max().filter(|newest| *newest > token)?;
        Some(Problem::LowToken { slot, token, newest })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

    use serde_json::json;

    use super::{super::observer::LeaderZnode, *};
    use election_core::internals::record::{Current, Elected, MemberRecord, Record as _};

    fn member(remembers: serde_json::Value) -> MemberRecord {
        let record = json!({ "v": 1, "member": "east-1", "ballot": "s1.1-0000000001", "site": "east", "remembers": remembers });
        MemberRecord::decode("/nodes/east-1", record.to_string().as_bytes()).unwrap()
    }

    fn decision(term: u64) -> Decision {
        let record = json!({
            "v": 1, "term": term, "slots": [], "decided_by": "east-1",
        });
        let record = Elected::decode("/leader/elected", record.to_string().as_bytes()).unwrap();
        Decision { record, version: 0, mzxid: 70 }
    }

    fn leader_znode(term: u64) -> LeaderZnode {
        let record = json!({
            "v": 1, "member": "east-1", "ballot": "s1.1-0000000001", "site": "east", "term": term,
            "status": "READY", "since_ms": 0, "fencing_token": 66,
        });
        let record = Current::decode("/leader/current", record.to_string().as_bytes()).unwrap();
        LeaderZnode { record, version: 0, czxid: 66 }
    }

    fn old(
        elected: Option<Decision>,
        leader_znodes: Vec<Option<LeaderZnode>>,
        seen: serde_json::Value,
    ) -> Option<OldDecision> {
        old_decision(&Snapshot { members: vec![member(seen)], elected, leader_znodes, ..Snapshot::default() })
    }

    #[test]
    fn a_decision_is_old_where_somebody_has_seen_more() {
        let seen = || json!({ "term": 57, "mzxid": 60, "token": 88 });
        assert_eq!(
            old(Some(decision(3)), vec![], seen()),
            Some(OldDecision { term: Some(3), seen: 57, token: 88 })
        );
        assert_eq!(old(None, vec![], seen()), Some(OldDecision { term: None, seen: 57, token: 88 }));
        // A leader has seen a decision, and its leader znode has the term.
        let led = Some(OldDecision { term: None, seen: 58, token: 66 });
        assert_eq!(old(None, vec![Some(leader_znode(58))], json!(null)), led);
    }

    #[test]
    fn members_with_another_policy_than_the_electors_are_named() {
        let member = |id: &str, number: u32, policy: &str| {
            let record = json!({ "v": 1, "member": id, "ballot": format!("s-{number:010}"), "site": "east", "policy": policy });
            MemberRecord::decode("/nodes", record.to_string().as_bytes()).unwrap()
        };
        let of = |policies: [&str; 3]| {
            let members: Vec<_> = (1..)
                .zip(policies)
                .map(|(number, policy)| member(&format!("e-{number}"), number, policy))
                .collect();
            let lowest = members.first().map(|member| member.ballot.clone());
            other_policy(&Snapshot { members, lowest, ..Snapshot::default() })
        };
        assert_eq!(of(["a", "a", "a"]), None);
        assert_eq!(of(["a", "", "a"]), None, "one that doesn't say");
        assert_eq!(of(["", "a", "b"]), None, "there is nothing to compare with");
        let [elector, other] = ["e-1", "e-3"].map(|id| MemberId::new(id).unwrap());
        assert_eq!(of(["a", "a", "b"]), Some(Problem::OtherPolicy { elector, members: vec![other] }));
    }

    #[test]
    fn a_decision_that_has_caught_up_is_not_old() {
        // The member has not removed its memory yet, or can't because it is frozen.
        assert_eq!(old(Some(decision(58)), vec![], json!({ "term": 57, "mzxid": 60, "token": 88 })), None);
        assert_eq!(old(Some(decision(58)), vec![Some(leader_znode(58))], json!(null)), None);
        // Before the first decision.
        assert_eq!(old(None, vec![None], json!(null)), None);
    }
}
