//! What follows a change of the leader on the other members: the standby is told, and the hook runs.

use std::{collections::BTreeMap, sync::Arc};

use election_core::{Leaders, Paths};
use parking_lot::Mutex;
use zk_session::Session;

use crate::{
    config::HookName,
    worker::{
        job::{JobEnv, SeenLeader, variables},
        state::JobSlot,
    },
};

/// Tells the standby and the hook of a job who leads.
pub(super) struct LeaderNews {
    pub(super) slot: Arc<JobSlot>,
    /// Whether the recipe is a queue, whose leaders are [followed](Self::follow_queue) beside the election.
    pub(super) is_queue: bool,
    newest: NewestLeaders,
}

impl LeaderNews {
    pub(super) fn new(slot: Arc<JobSlot>, is_queue: bool) -> Self {
        Self { slot, is_queue, newest: NewestLeaders::default() }
    }

    /// The leader of this slot of the election has changed, or there is none.
    pub(super) fn tell(&self, slot: usize, leader: Option<&SeenLeader>) {
        let (term, fencing_token) = self.newest.with(slot, leader);
        let other = leader.filter(|leader| leader.is_ready && leader.member.as_str() != self.slot.member);
        if let (Some(standby), Some(leader)) = (self.slot.standby(), other) {
            standby.leader_changed(leader);
        }
        if self.slot.spec().hooks.on_leader_changed.is_none() {
            return;
        }
        let env = JobEnv { slot, term, fencing_token, ..self.slot.env_of_member() };
        let text = |text: Option<String>| text.unwrap_or_default();
        let values = [text(leader.map(|l| l.member.to_string())), text(leader.map(|l| l.site.to_string()))];
        let more = variables(["DR_LEADER", "DR_LEADER_SITE"], values);
        self.slot.tell_hook(HookName::OnLeaderChanged, env, more);
    }

    /// Tells of the leaders of a queue until the session is closed: a candidate in it knows only the one before it.
    pub(super) async fn follow_queue(self: Arc<Self>, session: Session, paths: Paths) {
        let mut leaders = Leaders::follow(&session, paths);
        while let Some(change) = leaders.next().await {
            match change {
                Ok(change) => self.tell(change.slot, change.leader.as_ref().map(SeenLeader::from).as_ref()),
                Err(error) => tracing::warn!(job = self.slot.name(), "can't read who leads: {error}"),
            }
        }
    }
}

/// The term and the token of the last leader of each slot: they order an event among those that other members report.
#[derive(Default)]
struct NewestLeaders(Mutex<BTreeMap<usize, (u64, u64)>>);

impl NewestLeaders {
    /// Those of this leader, or if there is none those of the last one. A leader has no token before it is READY.
    fn with(&self, slot: usize, leader: Option<&SeenLeader>) -> (u64, u64) {
        let mut all = self.0.lock();
        let (term, token) = all.entry(slot).or_default();
        if let Some(leader) = leader {
            (*term, *token) = (leader.term, leader.fencing_token.unwrap_or(*token));
        }
        (*term, *token)
    }
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::Current;

    use super::*;

    fn leader(term: u64, fencing_token: Option<u64>) -> SeenLeader {
        let record = serde_json::json!({
            "v": 1, "member": "east-1", "ballot": "b-0000000001", "site": "east", "slot": 0, "term": term,
            "status": "PROGRESS", "since_ms": 0,
        });
        let mut leader: Current = serde_json::from_value(record).unwrap();
        leader.fencing_token = fencing_token;
        SeenLeader::from(&leader)
    }

    #[test]
    fn an_event_has_the_term_and_the_token_of_the_last_leader() {
        let newest = NewestLeaders::default();
        assert_eq!(newest.with(0, None), (0, 0));
        for (leader, expected) in [
            (Some(leader(5, None)), (5, 0)),
            (Some(leader(5, Some(50))), (5, 50)),
            (None, (5, 50)),
            (Some(leader(6, None)), (6, 50)),
            (Some(leader(6, Some(60))), (6, 60)),
        ] {
            assert_eq!(newest.with(0, leader.as_ref()), expected);
        }
        assert_eq!(newest.with(1, None), (0, 0), "each slot has its own");
    }
}
