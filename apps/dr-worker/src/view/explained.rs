use election_admin::{Layout, Snapshot};
use election_core::{
    config::{MemberId, SiteId},
    internals::{
        explain::{Explanation, NextStep, Obstacle, Proposal, SlotExplanation, explain},
        record::{Cause, Mode, Named, RecordError, Status},
    },
    status::{Ballot, Skipped},
    strategy::{Decider, Ranked, Ranking, Refused},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::ProblemRow;
use crate::{advice, config::OperatorConfig, schema::Object};

/// Why the current leaders lead.
///
/// The fields are in the order of the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explained {
    /// The election's name: the job.
    pub election: String,
    /// The recipe: `elector`, `queue` or `single`.
    pub recipe: &'static str,
    /// The time of this view, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The mode: whether the elector decides on its own.
    #[schemars(with = "String")]
    pub mode: Mode,
    /// The elector.
    #[schemars(with = "Option<String>")]
    pub elector: Option<MemberId>,
    /// What an elector with this configuration does next.
    #[schemars(with = "Object")]
    pub next: NextStep,
    /// Why the elector itself decides nothing, if it answered.
    #[schemars(with = "Option<Object>")]
    pub skipped: Option<Skipped>,
    /// Whether the written line of succession differs from the line by this configuration: it is being updated, or the
    /// workers have another policy.
    pub other_line: bool,
    /// Whether the elector has another policy than this configuration.
    pub other_policy: bool,
    /// How its policy goes by other jobs, such as `follows db, which leads in west`.
    pub other_jobs: Vec<String>,
    /// The slots.
    pub slots: Vec<ExplainedSlot>,
    /// Problems of the election, and the commands that fix them.
    pub problems: Vec<ProblemRow>,
    /// Unreadable znodes.
    #[schemars(with = "Vec<Object>")]
    pub unreadable: Vec<RecordError>,
}

/// The hold of an election, with the command that lifts it; `None` if it is not on hold.
pub fn hold_of(skipped: &Skipped, election: &str) -> Option<String> {
    let sentence = || skipped.sentence.replacen("on hold", "ON HOLD", 1);
    skipped.is_hold().then(|| advice::beside(skipped.reason, &sentence(), election))
}

/// One slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedSlot {
    /// Counted from 0.
    pub slot: usize,
    /// The question that the elector asks now; `None` without an elector.
    #[schemars(with = "Option<String>")]
    pub question: Option<Cause>,
    /// The elected member.
    #[schemars(with = "Option<String>")]
    pub named: Option<MemberId>,
    /// The leader.
    pub leader: Option<CurrentLeader>,
    /// All members, ranked for that question: those that may lead, best first, then those that may not.
    pub candidates: Vec<Candidate>,
    /// Who follows if the leader is lost: the order in which, then those that may not. Empty if no member is elected.
    pub if_lost: Vec<Candidate>,
    /// Who would lead by a switchover now, best first, then those that may not. Empty without a leader.
    pub switchover: Vec<Candidate>,
    /// Whether an operator has ordered the leader to stay until the next change of leader.
    pub stays: bool,
    /// The decision if nothing blocked it.
    #[schemars(with = "Option<Object>")]
    pub proposal: Option<Proposal>,
    /// What blocks the decision.
    #[schemars(with = "Vec<Object>")]
    pub obstacles: Vec<Obstacle>,
}

impl ExplainedSlot {
    /// The orders in which members follow, each after its question, in one line each.
    pub fn order_lines(&self) -> Vec<String> {
        let leader = self.leader.as_ref().map(|leader| &leader.member).or(self.named.as_ref());
        let leader = leader.map_or_else(|| "the leader".to_owned(), |leader| leader.to_string());
        [
            (format!("if {leader} is lost"), &self.if_lost),
            ("for a switchover now".to_owned(), &self.switchover),
        ]
        .into_iter()
        .filter(|(_, order)| !order.is_empty())
        .map(|(question, order)| format!("{question}: {}", order_line(order)))
        .collect()
    }
}

/// An order in one line: `1. east-2 (east), by site-order before 2. west-1 (west)`; or why there is no candidate.
fn order_line(order: &[Candidate]) -> String {
    let mut line = String::new();
    for candidate in order {
        let Candidate { rank: Some(rank), member, site, ahead_of, .. } = candidate else { break };
        line.push_str(&format!("{rank}. {member} ({site})"));
        match ahead_of {
            Some(ahead) => line.push_str(&format!(", by {} before ", ahead.stage)),
            None => line.push_str(", "),
        }
    }
    if !line.is_empty() {
        return line.trim_end_matches(", ").to_owned();
    }
    let why = order.iter().map(|refused| format!("{}: {}", refused.member, refused.reasons.join(", ")));
    format!("no member ({})", why.collect::<Vec<_>>().join("; "))
}

/// The leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CurrentLeader {
    /// Its id.
    #[schemars(with = "String")]
    pub member: MemberId,
    /// Its site.
    #[schemars(with = "String")]
    pub site: SiteId,
    /// PROGRESS or READY.
    #[schemars(with = "String")]
    pub status: Status,
}

/// A candidate, or a member that may not lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Candidate {
    /// The rank, counted from 1; `None` if it may not lead.
    pub rank: Option<usize>,
    /// Its id.
    #[schemars(with = "String")]
    pub member: MemberId,
    /// Its site.
    #[schemars(with = "String")]
    pub site: SiteId,
    /// Its ballot: one incarnation of the member.
    #[schemars(with = "String")]
    pub ballot: Ballot,
    /// The reasons for its rank, the most important first; or why it may not lead.
    pub reasons: Vec<String>,
    /// Why it ranks before the next one.
    pub ahead_of: Option<AheadOf>,
    /// The stage that excluded it, if it may not lead.
    pub refused_by: Option<String>,
}

/// Why one candidate ranks before another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AheadOf {
    /// The other candidate.
    #[schemars(with = "String")]
    pub member: MemberId,
    /// The stage that compared them.
    pub stage: String,
    /// Its value for this candidate.
    pub value: String,
    /// Its value for the other candidate.
    pub other: String,
}

impl Explained {
    /// Explains a snapshot by the policy that this configuration has for the job.
    pub fn new(election: &str, snapshot: &Snapshot, config: &OperatorConfig, unix_ms: u64) -> Self {
        let policy = config.policy_of(election);
        let explained = match snapshot.layout {
            Layout::Elector => {
                let engine = config.engine_of(election);
                let explanation = explain(&snapshot.seen(), &engine, &*policy.strategy(), unix_ms);
                Self::of(election, snapshot, explanation)
            }
            layout => Self::contest(election, snapshot, layout, unix_ms),
        };
        let other_policy = other_policy(&config.fingerprint_of(election), snapshot);
        Self { other_policy, other_jobs: policy.who.other_jobs(), ..explained }
    }

    pub(super) fn of(election: &str, snapshot: &Snapshot, explanation: Explanation) -> Self {
        let Explanation { unix_ms, elector, step, other_line, slots } = explanation;
        let stays = |slot: &SlotExplanation| {
            let term = snapshot.decided().map(|elected| elected.term_of(slot.slot));
            slot.named.is_some() && term.is_some_and(|term| snapshot.control.stay.contains(&term))
        };
        let slots = slots.into_iter().map(|slot| ExplainedSlot { stays: stays(&slot), ..slot.into() });
        Self {
            election: election.to_owned(),
            recipe: snapshot.layout.as_str(),
            at_ms: unix_ms,
            mode: snapshot.control.mode,
            elector,
            next: step,
            skipped: None,
            other_line,
            other_policy: false,
            other_jobs: Vec::new(),
            slots: slots.collect(),
            problems: Vec::new(),
            unreadable: snapshot.unreadable.clone(),
        }
    }

    /// Without an elector, a znode decides who leads.
    fn contest(election: &str, snapshot: &Snapshot, layout: Layout, unix_ms: u64) -> Self {
        let sentence = match layout {
            Layout::Queue => "no elector: the first in the queue leads, and the next in the queue follows",
            _ => "no elector: the member that created the leader znode leads, and the fastest one follows",
        };
        let candidates = snapshot.members.iter().zip(1..).map(|(member, rank)| {
            let named = member.named();
            let reason = match (layout, rank) {
                (Layout::Queue, 1) => "first in the queue".to_owned(),
                (Layout::Queue, _) => format!("number {rank} in the queue"),
                _ => "it created the leader znode; waiting members have no znode".to_owned(),
            };
            Candidate { rank: Some(rank), ..Candidate::bare(named, vec![reason]) }
        });
        let candidates: Vec<_> = candidates.collect();
        // The queue's order is the answer to both questions.
        let waiting = candidates.iter().skip(1).zip(1..);
        let waiting = waiting.map(|(waits, rank)| Candidate { rank: Some(rank), ..waits.clone() });
        let waiting: Vec<_> = waiting.collect();
        let slot = ExplainedSlot {
            leader: snapshot.leader_znode(0).map(|znode| CurrentLeader {
                member: znode.record.member.clone(),
                site: znode.record.site.clone(),
                status: znode.record.status,
            }),
            candidates,
            if_lost: waiting.clone(),
            switchover: waiting,
            ..ExplainedSlot::default()
        };
        let step = NextStep { acts: false, reason: "no-elector", sentence: sentence.to_owned() };
        let explanation = Explanation { unix_ms, elector: None, step, other_line: false, slots: Vec::new() };
        Self { slots: vec![slot], ..Self::of(election, snapshot, explanation) }
    }
}

/// Whether the elector's policy has another fingerprint than this.
pub fn other_policy(fingerprint: &str, snapshot: &Snapshot) -> bool {
    let lowest = snapshot.members.iter().find(|member| Some(&member.ballot) == snapshot.lowest.as_ref());
    let elector = lowest.map_or("", |elector| &elector.policy);
    !elector.is_empty() && elector != fingerprint
}

impl From<SlotExplanation> for ExplainedSlot {
    fn from(slot: SlotExplanation) -> Self {
        Self {
            slot: slot.slot,
            question: Some(slot.question),
            named: slot.named.map(|n| n.member),
            leader: slot.leader.map(|(Named { member, site, .. }, status)| CurrentLeader {
                member,
                site,
                status,
            }),
            candidates: candidates(&slot.ranking),
            if_lost: candidates(&slot.if_lost),
            switchover: candidates(&slot.switchover),
            stays: false,
            proposal: slot.proposal,
            obstacles: slot.obstacles,
        }
    }
}

fn candidates(ranking: &Ranking) -> Vec<Candidate> {
    let order = ranking.order.iter().enumerate().map(|(place, ranked)| {
        let Ranked { named, reasons, .. } = ranked;
        let next = ranking.order.get(place + 1);
        let ahead_of = next.and_then(|next| {
            let Decider { stage, first, other, .. } = ranked.ahead_of(next)?;
            Some(AheadOf {
                member: next.named.member.clone(),
                stage: stage.to_owned(),
                value: first.to_owned(),
                other: other.to_owned(),
            })
        });
        Candidate { rank: Some(place + 1), ahead_of, ..Candidate::bare(named.clone(), reasons.clone()) }
    });
    let refused = ranking.refused.iter().map(|Refused { named, stage, reason, .. }| Candidate {
        refused_by: Some(stage.clone()),
        ..Candidate::bare(named.clone(), vec![reason.clone()])
    });
    order.chain(refused).collect()
}

impl Candidate {
    fn bare(Named { member, site, ballot }: Named, reasons: Vec<String>) -> Self {
        Self { rank: None, member, site, ballot, reasons, ahead_of: None, refused_by: None }
    }
}
