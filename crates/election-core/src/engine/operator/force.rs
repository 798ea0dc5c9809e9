//! Forcing a failover from outside, when no elector does it: the same three steps, planned by the same code, for any
//! client that can read and write the znodes.

use std::{cell::RefCell, time::Duration};

use crate::{
    engine::{
        elector::{
            decided::{NoSlot, Undecided, counted_by, grace},
            pass::{Pass, Question},
            requests::{NotNow, forbidden, slot_of},
            writing,
        },
        policy::Policy,
        transaction::Transaction,
    },
    ids::MemberId,
    paths::Paths,
    record::{
        AdminRequest, Cause, Control, Current, Elected, FiledRequest, MemberRecord, RecordError, Remembered,
        RequestState,
    },
    strategy::Strategy,
    time::{Now, Time},
};

/// The next step of a forced failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceStep {
    /// Compare-and-set the decision. In the same transaction, set the request, which must be pending, to its new
    /// state: a request that was cancelled meanwhile is not begun.
    Begin(Box<Elected>, Box<AdminRequest>),
    /// Compare-and-set the decision.
    Write(Box<Elected>),
    /// Delete the leader znode in this version, and only while the decision has the version in which it was read, once
    /// the caller has seen that decision for the time `after`.
    Vacate {
        /// The slot of the leader znode.
        slot: usize,
        /// The version that it must have.
        version: i32,
        /// The holder's stop budget: its work may not have ended before.
        after: Duration,
    },
    /// This request has named a member, and the leader znode is free or that member's own.
    Named,
    /// It can't be done.
    Refused(Unforced),
}

/// Why a failover can't be forced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unforced {
    /// Its request is about no slot.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// Its request has ended.
    #[error("{}", .0.failure().unwrap_or_default())]
    Ended(RequestState),
    /// The standing orders forbid it.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// No member is named.
    #[error(transparent)]
    Undecided(#[from] Undecided),
    /// This member has created the leader znode meanwhile.
    #[error("{0} has taken the leader znode meanwhile")]
    Taken(MemberId),
    /// A later request was decided.
    #[error("overtaken by term {term}: {sentence}")]
    Overtaken {
        /// The term of the decision.
        term: u64,
        /// Why it was made.
        sentence: String,
    },
    /// It was decided, and the decision was deleted.
    #[error("the decision about it was deleted; if it is still wanted, ask again")]
    DecisionDeleted,
}

/// What writes a decision over the one that was read, in this version, if there was one; with the request that it begins,
/// if it begins one: its name, its new state, and the version that it must have. `generation` is the version that the ballots'
/// parent had before the decision was read.
///
/// # Errors
/// A record that has no room.
pub fn decision(
    paths: &Paths,
    elected: &mut Elected,
    over: Option<(&Elected, i32)>,
    generation: i32,
    begun: Option<(&str, &AdminRequest, i32)>,
) -> Result<Transaction, RecordError> {
    let request = writing(paths, elected, over.map(|(_, version)| version), generation, begun)?;
    let (mut called, next) = elected.called(over.map(|(last, _)| last));
    called.extend(next);
    Ok(request.and_call(&called, paths))
}

/// A forced failover, and the election as it was read just now.
#[derive(Clone, Copy, Debug)]
pub struct ForcedFailover<'a> {
    /// The request that it carries out.
    pub filed: &'a FiledRequest,
    /// How the election behaves.
    pub policy: &'a Policy,
    /// The strategy: which member should lead.
    pub strategy: &'a dyn Strategy,
    /// The wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The living members, lowest ballot first.
    pub members: &'a [MemberRecord],
    /// The latest transaction that wrote any member's record.
    pub newest_zxid: i64,
    /// The standing orders.
    pub control: &'a Control,
    /// The decision.
    pub elected: Option<&'a Elected>,
    /// The leader znode of each slot, and the version of its record.
    pub current: &'a [Option<(&'a Current, i32)>],
    /// The latest request that the caller has seen decided in an earlier step. With it, a request is not begun again
    /// after its decision was deleted.
    pub seen: Option<i64>,
}

impl ForcedFailover<'_> {
    /// The next step.
    ///
    /// Level-triggered: call it again after each step, and after every lost race, with what is read then, including
    /// the request. Each step is a compare-and-set, so an elector that becomes active meanwhile and does the same
    /// does no harm.
    pub fn next_step(&self) -> ForceStep {
        self.plan().unwrap_or_else(ForceStep::Refused)
    }

    fn plan(&self) -> Result<ForceStep, Unforced> {
        let &Self { filed, policy, strategy, unix_ms, members, newest_zxid, control, elected, current, seen } =
            self;
        let FiledRequest { which, request } = filed;
        let leader_znodes: Vec<_> = current.iter().map(|c| c.map(|(c, _)| c)).collect();
        let holders: Vec<_> = leader_znodes.iter().map(|c| c.map(|c| &c.ballot)).collect();
        let ours = elected.and_then(|e| Some((e, e.slot_for(which)?)));
        let slot = match ours {
            Some((_, slot)) => slot,
            None => slot_of(request, elected, &leader_znodes)?,
        };
        let current = current.get(slot).copied().flatten();
        let above = members.iter().filter_map(|member| member.remembers).reduce(Remembered::or_newer);
        let decided_up_to = match elected {
            Some(elected) => counted_by(elected.last_request, newest_zxid),
            None => counted_by(above.and_then(|remembered| remembered.last_request), newest_zxid).max(seen),
        };
        let timers = RefCell::default();
        let now = Now::new(Time::from_millis(unix_ms), unix_ms);
        let pass = Pass::new(now, &request.by, policy, strategy, &timers);
        let pass = Pass { members, control, elected, holders, latest: above, decided_up_to, ..pass };
        let ordered = Some((which, request));
        let question = Question { ordered, ..pass.question(slot, unix_ms, Cause::Failover) };
        if let Some((elected, _)) = ours {
            match (elected.named(slot), current) {
                (Some(_), _) => return Ok(ForceStep::Named),
                (None, Some((current, version)))
                    if elected.exclusions.iter().any(|e| e.ballot == current.ballot) =>
                {
                    let after = grace(Cause::Failover, Some(request), members, &current.ballot);
                    return Ok(ForceStep::Vacate { slot, version, after });
                }
                (None, Some((current, _))) => return Err(Unforced::Taken(current.member.clone())),
                (None, None) => {}
            }
        } else {
            if decided_up_to >= Some(which.czxid) {
                return Err(match elected {
                    Some(elected) => Unforced::Overtaken { term: elected.term, sentence: elected.sentence() },
                    None => Unforced::DecisionDeleted,
                });
            }
            if request.state.failure().is_some() {
                return Err(Unforced::Ended(request.state.clone()));
            }
            if request.state != RequestState::Pending {
                return Err(Unforced::DecisionDeleted);
            }
            if let Some(why) = forbidden(control) {
                return Err(why.into());
            }
        }
        let what = format!("failover forced by {}", request.by);
        let decided = question.decide_ordered(&what, current.map(|(current, _)| current))?;
        if ours.is_some() {
            return Ok(ForceStep::Write(decided));
        }
        let state = RequestState::Accepted { term: decided.term };
        Ok(ForceStep::Begin(decided, Box::new(AdminRequest { state, ..request.clone() })))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        record::{Outgoing, RequestKind, RequestRef, Target},
        strategy::{Ranked, Ranking, Round},
    };

    #[derive(Debug)]
    struct Anyone;

    impl Strategy for Anyone {
        fn rank(&self, round: &Round<'_>) -> Ranking {
            let order =
                round.candidates.iter().map(|member| Ranked::new(member.named(), Vec::new())).collect();
            Ranking { order, ..Ranking::default() }
        }
    }

    const FILED: i64 = 20;

    fn member() -> MemberRecord {
        let member = json!({ "v": 1, "member": "a", "site": "east", "ballot": "x-0000000001" });
        serde_json::from_value(member).unwrap()
    }

    /// The next step if there is no decision, and one member remembers `remembered` as decided.
    fn step(remembered: Option<i64>, newest_zxid: i64, seen: Option<i64>) -> ForceStep {
        let mut member = member();
        member.remembers = remembered.map(|last| Remembered {
            term: 4,
            mzxid: last,
            token: 9,
            token_base: 0,
            last_request: Some(last),
        });
        next(member, Outgoing::Only, &[None], newest_zxid, seen)
    }

    fn next(
        member: MemberRecord,
        from: Outgoing,
        current: &[Option<(&Current, i32)>],
        newest_zxid: i64,
        seen: Option<i64>,
    ) -> ForceStep {
        let (id, by) = ("1".to_owned(), "ann".to_owned());
        let request = AdminRequest {
            from,
            force: true,
            ..AdminRequest::new(id, RequestKind::Failover, Target::Any, by, 1)
        };
        let filed = FiledRequest { which: RequestRef { czxid: FILED, name: "r-0".to_owned() }, request };
        let (policy, control) = (Policy { slots: 2, ..Policy::default() }, Control::default());
        let failover = ForcedFailover {
            filed: &filed,
            policy: &policy,
            strategy: &Anyone,
            unix_ms: 1,
            members: &[member],
            newest_zxid,
            control: &control,
            elected: None,
            current,
            seen,
        };
        failover.next_step()
    }

    #[test]
    fn no_slot_is_made_that_the_policy_does_not_have() {
        let step = |slot| next(member(), Outgoing::Slot(slot), &[None, None], 30, None);
        assert!(matches!(step(1), ForceStep::Begin(..)));
        assert!(matches!(step(2), ForceStep::Refused(_)));
    }

    /// The decision that carried out a request can be deleted.
    #[test]
    fn a_request_that_was_decided_is_not_decided_again() {
        let writes = |step| matches!(step, ForceStep::Begin(..));
        assert!(writes(step(None, 30, None)));
        assert!(writes(step(Some(FILED - 1), 30, Some(FILED - 1))));
        assert!(!writes(step(Some(FILED), 30, None)), "a member remembers that it was decided");
        assert!(!writes(step(None, 30, Some(FILED))), "this very command has decided it");
        // Counted before the ensemble's transactions were numbered from the start again.
        assert!(writes(step(Some(1 << 40), 30, None)));
    }
}
