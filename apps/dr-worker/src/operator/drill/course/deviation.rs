//! Why a drill has left its plan.

use std::time::Duration;

use crate::znodes::{DrillMode, DrillState};
use election_core::{config::MemberId, internals::record::RequestState, strategy::in_words};

use super::{
    super::{
        script::Script,
        seen::{Leader, Seen},
    },
    Course, Stage,
};
use crate::commands::drill::{
    checks::{fits, target},
    report::Who,
};

impl Course {
    /// Why the drill has left the plan, if it has.
    pub(super) fn left_plan(&self, seen: &Seen, at: Duration) -> Option<String> {
        let Script { limit, agree_within, carriers, .. } = &self.script;
        let silent: Vec<_> = self.silent(seen).map(MemberId::as_str).collect();
        if !seen.is_conducted {
            return Some("the session of this command has ended, so another drill may begin".to_owned());
        }
        if let Some(signal) = seen.signals.first() {
            return Some(format!("the command received {signal}"));
        }
        if let Some(obstacle) = &seen.obstacle {
            return Some(obstacle.clone());
        }
        if !seen.is_ordered {
            return Some("another command has withdrawn the order".to_owned());
        }
        for member in carriers {
            let last = seen.answer(member).and_then(|answer| answer.steps.last());
            let failed = last.filter(|step| matches!(step.state, DrillState::Refused | DrillState::Failed));
            if let Some(step) = failed {
                let what = if step.state == DrillState::Refused { "refuses" } else { "fails" };
                return Some(format!("{member} {what}: {}", step.reason.as_deref().unwrap_or("no reason")));
            }
        }
        if let Some(why) = self.wrong_leader(seen) {
            return Some(why);
        }
        if let Some(failure) = seen.request.as_ref().and_then(RequestState::failure)
            && matches!(self.stage, Stage::Awaiting | Stage::MovingBack)
        {
            return Some(format!("the switchover was not carried out: {failure}"));
        }
        if self.stage == Stage::Agreeing && at >= *agree_within && !silent.is_empty() {
            let within = in_words(*agree_within);
            return Some(format!(
                "{} did not answer within {within}; the log of its worker may have the reason",
                silent.join(", ")
            ));
        }
        (at >= *limit)
            .then(|| format!("it was not over within {}: {}", in_words(*limit), self.waits_for(seen)))
    }

    fn waits_for(&self, seen: &Seen) -> String {
        let is_away = |member: &&MemberId| !seen.has_reached(member, DrillState::Ended);
        let stay = in_words(self.script.stay);
        match self.stage {
            Stage::Agreeing => "the members had not begun".to_owned(),
            Stage::Staying => format!("{} had not led for {stay} yet", self.leader.who),
            Stage::Settling => format!("{} had not led again for {stay} yet", self.leader.who),
            Stage::Returning => {
                let away = self.script.carriers.iter().filter(is_away).map(MemberId::as_str);
                format!("{} did not come back", away.collect::<Vec<_>>().join(", "))
            }
            Stage::MovingBack => "the job was not moved back".to_owned(),
            _ if self.script.mode == DrillMode::Rehearse => "the rehearsal did not end".to_owned(),
            _ if self.script.mode == DrillMode::KillStandby => "the standby was not ready again".to_owned(),
            _ if self.script.mode == DrillMode::KillJob => "the job was not ready again".to_owned(),
            _ => "no other member took over".to_owned(),
        }
    }

    /// Why the leader is not the one that the plan expects now.
    fn wrong_leader(&self, seen: &Seen) -> Option<String> {
        let Script { to, mode, from, .. } = &self.script;
        let is_expected =
            |leader: &Leader| (leader.term, &leader.ballot) == (self.leader.term, &self.leader.ballot);
        let moves = match self.stage {
            Stage::Awaiting => !mode.spares_leader(),
            Stage::MovingBack => true,
            _ => false,
        };
        match &seen.leader {
            None if moves => None,
            None => Some(format!("{} does not lead any more", self.leader.who)),
            Some(leader) if is_expected(leader) => None,
            Some(leader) if !moves => Some(format!("{} leads in term {}", leader.who, leader.term)),
            Some(leader) => {
                let Who { member, site } = &leader.who;
                let is_target = match self.stage {
                    Stage::MovingBack => *member == from.who.member,
                    // The killed job's member may acquire leadership again.
                    _ => fits(to, member, site),
                };
                let wanted = match self.stage {
                    Stage::MovingBack => from.who.member.to_string(),
                    _ => target(to),
                };
                (!is_target).then(|| format!("{} leads in term {}, not {wanted}", leader.who, leader.term))
            }
        }
    }
}
