//! What a member does about an order. Pure: facts go in, duties and steps come out.

use crate::{
    config::job_key,
    znodes::{DrillMode, DrillOrder, DrillState},
};
use election_core::{
    config::{MemberId, SiteId},
    status::Role,
};

/// What a member knows of itself.
pub(super) struct DrillFacts<'a> {
    pub(super) job: &'a str,
    pub(super) me: &'a MemberId,
    pub(super) role: Role,
    /// The modes that the job allows on this node.
    pub(super) allowed: &'a [DrillMode],
    /// Another job of this worker that does not allow this mode.
    pub(super) vetoed_by: Option<&'a str>,
    /// Whether this node rehearses the job.
    pub(super) rehearses: bool,
    /// Whether something starts this worker again when it was killed.
    pub(super) is_restarted: bool,
    /// The main process of the job.
    pub(super) process: Option<u32>,
    /// The main process of its standby, if that is ready.
    pub(super) standby: Option<u32>,
    /// A standby runs here, and there is no other program for a rehearsal.
    pub(super) lacks_rehearsal: bool,
}

/// What a member has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing but to probe, if it is a prober.
    Probe,
    /// To answer that it does not carry the order out, and why.
    Refuse(String),
    /// To answer that it agrees: something else carries it out.
    Agree,
    /// To start the job without a leadership, and to stop it.
    Rehearse,
    /// To kill this process.
    KillJob(u32),
    /// To kill this process of its standby.
    KillStandby(u32),
    /// To kill itself.
    KillWorker,
    /// To cut itself off.
    Cut,
}

/// What a member with these facts does about an order.
pub(super) fn duty(order: &DrillOrder, facts: &DrillFacts<'_>) -> Duty {
    if !order.concerns(facts.me) {
        return Duty::Probe;
    }
    match hindrance(order.mode, facts) {
        Some(reason) => Duty::Refuse(reason),
        None => match order.mode {
            DrillMode::Rehearse => Duty::Rehearse,
            DrillMode::KillWorker => Duty::KillWorker,
            DrillMode::CutSite => Duty::Cut,
            DrillMode::KillStandby => facts.standby.map_or(Duty::Agree, Duty::KillStandby),
            DrillMode::KillJob => facts.process.map_or(Duty::Agree, Duty::KillJob),
            DrillMode::Switchover | DrillMode::Unknown => Duty::Agree,
        },
    }
}

/// Why this member does not carry it out.
fn hindrance(mode: DrillMode, facts: &DrillFacts<'_>) -> Option<String> {
    let (job, name, role) = (job_key(facts.job), mode.as_str(), facts.role);
    if mode == DrillMode::Unknown {
        return Some("this version of dr-worker does not know the mode of this drill; upgrade it".to_owned());
    }
    if !facts.allowed.contains(&mode) {
        return Some(format!(
            "{name} is not allowed on this node: add {name:?} to drill.allow, or to {job}.drill.allow"
        ));
    }
    match mode {
        DrillMode::KillWorker | DrillMode::CutSite => {
            if let Some(other) = facts.vetoed_by {
                return Some(format!(
                    "{name} also affects job {other} of this worker, which does not allow it: add {name:?} to \
                     {}.drill.allow",
                    job_key(other)
                ));
            }
            (mode == DrillMode::KillWorker && !facts.is_restarted).then(|| {
                "nothing is known that would start this worker again: it is not the main process of a systemd service; \
                 if something else starts it, set drill.restarted = true"
                    .to_owned()
            })
        }
        DrillMode::Rehearse if !facts.rehearses => Some(format!("{job}.rehearsal.enabled is false")),
        DrillMode::Rehearse if !matches!(role, Role::Standby | Role::Excluded) => {
            Some(format!("this member is {role}; only a standby member rehearses"))
        }
        DrillMode::Rehearse if facts.lacks_rehearsal => {
            Some(format!("a standby of the job runs here: set {job}.rehearsal.command"))
        }
        DrillMode::KillStandby if !matches!(role, Role::Standby | Role::Excluded) => {
            Some(format!("this member is {role}; only a member that does not lead has a standby"))
        }
        DrillMode::KillStandby if facts.standby.is_none() => {
            Some("no standby of the job is ready on this member".to_owned())
        }
        DrillMode::KillJob if role != Role::Leader => {
            Some(format!("this member is {role}, and not the leader"))
        }
        DrillMode::KillJob if facts.process.is_none() => Some("the job has no process".to_owned()),
        _ => None,
    }
}

/// The step of a member that was restarted, or upgraded in place, while it carried an order out, with its reason. `None` if
/// it begins, or has nothing more to do.
pub(super) fn after_restart(mode: DrillMode, state: DrillState) -> Option<(DrillState, String)> {
    match (mode, state) {
        (DrillMode::Rehearse, DrillState::Started | DrillState::Ready) => {
            Some((DrillState::Failed, "the worker was restarted or upgraded during the rehearsal".to_owned()))
        }
        (DrillMode::KillStandby | DrillMode::KillJob, DrillState::Started) => {
            let why = "the worker was restarted or upgraded before what it had killed was ready again";
            Some((DrillState::Failed, why.to_owned()))
        }
        (_, DrillState::Started | DrillState::Ready) => {
            Some((DrillState::Ended, "the worker was started again".to_owned()))
        }
        _ => None,
    }
}

/// The last step of a member when the order ends, with its reason. `None` if it has taken its last step, or takes none.
pub(super) fn at_end(
    order: &DrillOrder,
    me: &MemberId,
    state: Option<DrillState>,
) -> Option<(DrillState, Option<String>)> {
    let failed = |reason: &str| Some((DrillState::Failed, Some(reason.to_owned())));
    match state? {
        DrillState::Accepted if order.mode == DrillMode::Switchover || !order.concerns(me) => {
            Some((DrillState::Ended, None))
        }
        DrillState::Accepted => failed("the drill has ended before this member began"),
        DrillState::Started if order.mode == DrillMode::Rehearse => {
            failed("the drill has ended before the job was ready")
        }
        DrillState::Started if order.mode == DrillMode::KillStandby => {
            failed("the drill has ended before the standby was ready again")
        }
        DrillState::Started | DrillState::Ready => Some((DrillState::Ended, None)),
        DrillState::Refused | DrillState::Ended | DrillState::Failed | DrillState::Unknown => None,
    }
}

/// Whether this member probes for its site: the lowest id of the site does. A worker that is to be killed does not while
/// there is another one.
pub(super) fn is_prober(
    order: &DrillOrder,
    (me, site): (&MemberId, &SiteId),
    members: &[(MemberId, SiteId)],
) -> bool {
    let is_killed = |member: &MemberId| order.mode == DrillMode::KillWorker && order.concerns(member);
    let here = members.iter().filter(|(_, other)| other == site).map(|(member, _)| member);
    let first = here.chain([me]).min_by_key(|member| (is_killed(member), *member));
    order.probe && first == Some(me)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn order(mode: DrillMode, members: &[&str]) -> DrillOrder {
        let members = members.iter().map(|member| member.parse().unwrap()).collect();
        DrillOrder::new("r1", mode, members, "alice", 0, Duration::from_secs(60))
    }

    fn facts(me: &MemberId) -> DrillFacts<'_> {
        DrillFacts {
            job: "orders",
            me,
            role: Role::Standby,
            allowed: DrillMode::ALL,
            vetoed_by: None,
            rehearses: true,
            is_restarted: true,
            process: None,
            standby: None,
            lacks_rehearsal: false,
        }
    }

    fn played(mode: DrillMode, change: impl FnOnce(&mut DrillFacts<'_>)) -> Duty {
        let me = "west-1".parse().unwrap();
        let mut facts = facts(&me);
        change(&mut facts);
        duty(&order(mode, &["west-1"]), &facts)
    }

    fn refused(mode: DrillMode, change: impl FnOnce(&mut DrillFacts<'_>)) -> String {
        match played(mode, change) {
            Duty::Refuse(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_member_does_what_is_allowed_and_possible() {
        use DrillMode::{CutSite, KillJob, KillWorker, Rehearse, Switchover};
        let leads = |facts: &mut DrillFacts<'_>| (facts.role, facts.process) = (Role::Leader, Some(7));
        assert_eq!(played(Rehearse, |_| {}), Duty::Rehearse);
        assert_eq!(played(Switchover, |_| {}), Duty::Agree);
        assert_eq!(played(DrillMode::KillStandby, |facts| facts.standby = Some(8)), Duty::KillStandby(8));
        assert_eq!(played(KillJob, leads), Duty::KillJob(7));
        assert_eq!(played(KillWorker, leads), Duty::KillWorker);
        assert_eq!(played(CutSite, |_| {}), Duty::Cut);
        assert!(refused(CutSite, |facts| facts.allowed = &[]).contains("job.orders.drill.allow"));
        let other = "east-1".parse().unwrap();
        assert_eq!(duty(&order(KillWorker, &["west-1"]), &facts(&other)), Duty::Probe, "it is not named");
    }

    #[test]
    fn each_refusal_has_its_reason() {
        use DrillMode::{CutSite, KillJob, KillStandby, KillWorker, Rehearse, Unknown};
        for (role, word) in [
            (Role::Leader, "leader"),
            (Role::TakingOver, "taking-over"),
            (Role::SteppingDown, "stepping-down"),
        ] {
            assert!(refused(Rehearse, |facts| facts.role = role).contains(word));
        }
        assert!(refused(Rehearse, |facts| facts.rehearses = false).contains("rehearsal.enabled"));
        assert!(refused(Rehearse, |facts| facts.lacks_rehearsal = true).contains("rehearsal.command"));
        assert!(refused(KillStandby, |_| {}).contains("no standby of the job is ready"));
        let leads = |facts: &mut DrillFacts<'_>| (facts.role, facts.standby) = (Role::Leader, Some(8));
        assert!(refused(KillStandby, leads).contains("this member is leader"));
        assert!(refused(KillJob, |_| {}).contains("not the leader"));
        assert!(refused(KillJob, |facts| facts.role = Role::Leader).contains("no process"));
        assert!(refused(KillWorker, |facts| facts.is_restarted = false).contains("drill.restarted"));
        for mode in [KillWorker, CutSite] {
            assert!(refused(mode, |facts| facts.vetoed_by = Some("bills")).contains("job.bills.drill.allow"));
        }
        assert!(refused(Unknown, |_| {}).contains("does not know"));
    }

    #[test]
    fn nothing_is_done_twice() {
        use DrillState::{Accepted, Ended, Failed, Ready, Refused, Started};
        let after = |mode, state| after_restart(mode, state).map(|(state, _)| state);
        for &mode in DrillMode::ALL {
            assert_eq!(after(mode, Accepted), None, "it was not begun");
            assert_eq!(after(mode, Refused), None);
            let is_ready_later = mode.spares_leader() || mode == DrillMode::KillJob;
            let expected = if is_ready_later { Failed } else { Ended };
            assert_eq!(after(mode, Started), Some(expected));
        }
        assert_eq!(after(DrillMode::Rehearse, Ready), Some(Failed));
        assert_eq!(after(DrillMode::KillJob, Ready), Some(Ended));
    }

    #[test]
    fn each_answer_has_an_end() {
        use DrillState::{Accepted, Ended, Failed, Ready, Refused, Started};
        let end = |mode, me: &str, state| {
            at_end(&order(mode, &["west-1"]), &me.parse().unwrap(), state).map(|(state, _)| state)
        };
        let rehearse = DrillMode::Rehearse;
        assert_eq!(end(rehearse, "west-1", None), None);
        assert_eq!(end(rehearse, "west-1", Some(Accepted)), Some(Failed));
        assert_eq!(end(rehearse, "east-1", Some(Accepted)), Some(Ended), "it probed");
        assert_eq!(end(rehearse, "west-1", Some(Started)), Some(Failed));
        assert_eq!(end(rehearse, "west-1", Some(Ready)), Some(Ended));
        assert_eq!(end(DrillMode::Switchover, "west-1", Some(Accepted)), Some(Ended));
        assert_eq!(end(DrillMode::CutSite, "west-1", Some(Started)), Some(Ended));
        assert_eq!(end(DrillMode::KillStandby, "west-1", Some(Started)), Some(Failed));
        assert_eq!(end(DrillMode::KillStandby, "west-1", Some(Ready)), Some(Ended));
        for last in [Refused, Ended, Failed] {
            assert_eq!(end(rehearse, "west-1", Some(last)), None);
        }
    }

    #[test]
    fn one_member_of_each_site_probes() {
        let all = [("east-2", "east"), ("east-1", "east"), ("west-1", "west"), ("west-2", "west")];
        let members: Vec<(MemberId, SiteId)> =
            all.iter().map(|(member, site)| (member.parse().unwrap(), site.parse().unwrap())).collect();
        let probers = |mode, named: &[&str]| -> Vec<&str> {
            let order = DrillOrder { probe: true, ..order(mode, named) };
            let is_it = |(me, site): &(MemberId, SiteId)| is_prober(&order, (me, site), &members);
            all.iter().zip(&members).filter(|(_, member)| is_it(member)).map(|((id, _), _)| *id).collect()
        };
        assert_eq!(probers(DrillMode::KillJob, &["east-1"]), ["east-1", "west-1"]);
        assert_eq!(probers(DrillMode::KillWorker, &["east-1"]), ["east-2", "west-1"]);
        assert_eq!(probers(DrillMode::KillWorker, &["east-1", "east-2"]), ["east-1", "west-1"]);
        let (me, site) = ("south-1".parse().unwrap(), "south".parse().unwrap());
        let silent = order(DrillMode::KillJob, &[]);
        assert!(!is_prober(&silent, (&me, &site), &members), "no probes are ordered");
        let asked = DrillOrder { probe: true, ..silent };
        assert!(is_prober(&asked, (&me, &site), &members), "it has not seen itself yet");
    }
}
