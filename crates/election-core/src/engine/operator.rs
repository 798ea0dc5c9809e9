//! Forcing a failover from outside, when no elector does it: the same three steps,
//! planned by the same code, for whoever can read and write the znodes.

use super::{
    decision::{Question, Undecided},
    policy::Policy,
    requests::slot_of,
    rules::Rules,
};
use crate::{
    record::{Cause, Control, Current, Elected, MemberRecord, NEWEST, Request},
    strategy::Strategy,
};

/// The next step of a forced failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceStep {
    /// Compare-and-set the decision.
    Write(Box<Elected>),
    /// Delete the leader's place in this version, and only while the decision has the
    /// version in which it was read.
    Vacate {
        /// Which slot's.
        slot: usize,
        /// The version that must stand.
        version: i32,
    },
    /// Somebody is named by this request, and the place is free or its own.
    Named,
    /// It can't be done.
    Refused(String),
}

/// What the next step of the forced failover `name` is, from what was read just now.
///
/// Level-triggered: call it again after each step, and after every lost race, with
/// what is read then. Each step is a compare-and-set, so an elector that wakes up
/// meanwhile and does the same does no harm. `current` is who holds each slot's place,
/// and the version of its record.
#[allow(clippy::too_many_arguments)]
pub fn force_step(
    name: &str,
    request: &Request,
    decider: &str,
    unix_ms: u64,
    policy: &Policy,
    strategy: &dyn Strategy,
    members: &[MemberRecord],
    control: &Control,
    elected: Option<&Elected>,
    current: &[Option<(&Current, i32)>],
) -> ForceStep {
    let holders: Vec<_> = current.iter().map(|c| c.map(|(c, _)| &c.ballot)).collect();
    let ours = elected.and_then(|e| Some((e, e.slot_for(name)?)));
    let slot = match ours {
        Some((_, slot)) => slot,
        None => {
            let offices: Vec<_> = current.iter().map(|c| c.map(|(c, _)| c)).collect();
            match slot_of(request, elected, &offices) {
                Ok(slot) => slot,
                Err(why) => return ForceStep::Refused(why),
            }
        }
    };
    let current = current.get(slot).copied().flatten();
    let question = Question {
        unix_ms,
        noticed_at_ms: unix_ms,
        decider,
        policy,
        strategy,
        members,
        control,
        elected,
        slot,
        holders: &holders,
        newest: NEWEST,
        rules: Rules::default(),
        notebook: None,
    };
    let ordered = Some((name, request));
    if let Some((elected, _)) = ours {
        match (elected.named(slot), current) {
            (Some(_), _) => return ForceStep::Named,
            (None, Some((current, version)))
                if elected.exclusions.iter().any(|e| e.ballot == current.ballot) =>
            {
                return ForceStep::Vacate { slot, version };
            }
            (None, Some((current, _))) => {
                return ForceStep::Refused(format!("{} has taken the place meanwhile", current.member));
            }
            (None, None) => {}
        }
    } else if let Some(elected) = elected
        && elected.last_request.as_deref() >= Some(name)
    {
        return ForceStep::Refused(format!("overtaken by term {}: {}", elected.term, elected.sentence));
    }
    let what = format!("failover forced by {}", request.by);
    let decided = match question.decide(Cause::Failover, &what, None, ordered) {
        Ok(decided) => decided,
        Err(Undecided::Nobody(why) | Undecided::TargetUnfit(why) | Undecided::WorthWaiting(why)) => {
            return ForceStep::Refused(why);
        }
        Err(Undecided::Held { sentence, .. }) => return ForceStep::Refused(sentence),
    };
    // Without force a leader that lives is named away, and lets go by itself.
    let holder = current.filter(|(c, _)| decided.named(slot).is_some_and(|n| n.ballot != c.ballot));
    match holder.filter(|_| request.force) {
        Some((current, _)) => ForceStep::Write(Box::new(question.vacate(&current.named(), ordered))),
        None => ForceStep::Write(Box::new(decided)),
    }
}
