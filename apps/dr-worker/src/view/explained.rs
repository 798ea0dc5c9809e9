use election_core::{
    Ballot, MemberId, Policy, Reason, SiteId, Skipped,
    explain::{Bound, Explanation, Obstacle, Proposal, SlotExplanation},
    operator::{Layout, Snapshot},
    record::{Cause, Mode, Named, Status},
    strategy::{Decider, Ranked, Ranking, Refused, Strategy},
};
use serde::Serialize;

use super::{ProblemRow, Unreadable};

/// Why leadership of an election is where it is.
///
/// The order of the fields is the order in the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The election, which is the job's name.
    pub election: String,
    /// By which recipe the leader is found: `elector`, `queue` or `single`.
    pub recipe: &'static str,
    /// By whose wall clock, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Whether the elector decides on its own.
    pub mode: Mode,
    /// Who decides.
    pub elector: Option<MemberId>,
    /// What is to be done next, by this configuration.
    pub next: NextStep,
    /// What the elector itself says of what it does not decide, if it could be asked.
    pub skipped: Option<Skipped>,
    /// Whether the line of succession that is written is another one than this configuration
    /// would have: it is just being brought up to date, or the workers have another policy.
    pub other_line: bool,
    /// Whether the elector was configured with another policy than this was made with.
    pub other_policy: bool,
    /// Slot by slot.
    pub slots: Vec<ExplainedSlot>,
    /// What is wrong with the election, and the commands that mend it.
    pub problems: Vec<ProblemRow>,
    /// Znodes that can't be used.
    pub unreadable: Vec<Unreadable>,
}

/// What an elector does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// Whether it does anything but wait.
    pub acts: bool,
    /// The word for it.
    pub reason: &'static str,
    /// The sentence.
    pub sentence: String,
}

/// The hold of an election, with the command that ends it; nothing if it is on none.
pub fn hold_of(skipped: &Skipped, election: &str) -> Option<String> {
    let resume = format!("`dr-worker ack --job {election}`");
    let sentence = || skipped.sentence.replacen("on hold", "ON HOLD", 1).replace("`ack`", &resume);
    skipped.is_hold().then(sentence)
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedSlot {
    /// Counted from 0.
    pub slot: usize,
    /// What is asked about it now; nothing where nobody decides.
    pub question: Option<Cause>,
    /// Who is named.
    pub named: Option<MemberId>,
    /// Who is in office.
    pub leader: Option<CurrentLeader>,
    /// Everyone: those who may lead, best first, then those who may not.
    pub candidates: Vec<Candidate>,
    /// What would be decided if nothing stood in the way.
    pub proposal: Option<Proposed>,
    /// What stands in the way.
    pub obstacles: Vec<InTheWay>,
}

/// Who is in office.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurrentLeader {
    /// Its id.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// PROGRESS or READY.
    pub status: Status,
}

/// One who might lead, or might not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Counted from 1; of who may not lead, none.
    pub rank: Option<usize>,
    /// Its id.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Why it stands where it stands, the most important first; or why it may not lead.
    pub reasons: Vec<String>,
    /// What put it before the next one.
    pub ahead_of: Option<AheadOf>,
    /// The stage that put it out, if one did.
    pub refused_by: Option<String>,
}

/// What put one candidate before another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AheadOf {
    /// The other one.
    pub member: MemberId,
    /// The comparison.
    pub stage: String,
    /// What it said of this one.
    pub value: String,
    /// What it said of the other.
    pub other: String,
}

/// A decision that has not been taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposed {
    /// Who would be named.
    pub member: Option<MemberId>,
    /// Where it stands.
    pub site: Option<SiteId>,
    /// Why.
    pub cause: Cause,
    /// The sentence that the decision would have.
    pub sentence: String,
}

/// Why a decision is not taken now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InTheWay {
    /// Which of the reasons.
    pub reason: Reason,
    /// The sentence.
    pub sentence: String,
    /// When it goes by itself, in milliseconds since the Unix epoch; null if never.
    pub until_ms: Option<u64>,
    /// How well that is known: `exactly`, `earliest` or `latest`.
    pub known: &'static str,
}

impl Explained {
    /// What is to be said of what was read, by this policy.
    pub fn new(
        election: &str,
        snapshot: &Snapshot,
        policy: &Policy,
        strategy: &dyn Strategy,
        unix_ms: u64,
    ) -> Self {
        match snapshot.layout {
            Layout::Elector => {
                let explanation =
                    election_core::explain::explain(&snapshot.seen(), policy, strategy, unix_ms);
                Self::of(election, snapshot, explanation)
            }
            layout => Self::contest(election, snapshot, layout, unix_ms),
        }
    }

    pub(super) fn of(election: &str, snapshot: &Snapshot, explanation: Explanation) -> Self {
        let Explanation { unix_ms, elector, step, other_line, slots } = explanation;
        Self {
            election: election.to_owned(),
            recipe: snapshot.layout.as_str(),
            at_ms: unix_ms,
            mode: snapshot.control.mode,
            elector,
            next: NextStep { acts: step.acts, reason: step.reason, sentence: step.sentence },
            skipped: None,
            other_line,
            other_policy: false,
            slots: slots.into_iter().map(ExplainedSlot::from).collect(),
            problems: Vec::new(),
            unreadable: snapshot.unreadable.iter().cloned().map(Unreadable::from).collect(),
        }
    }

    /// Where nobody decides, a znode does.
    fn contest(election: &str, snapshot: &Snapshot, layout: Layout, unix_ms: u64) -> Self {
        let sentence = match layout {
            Layout::Queue => "nobody decides: the first in the queue leads, and who waits longest follows",
            _ => "nobody decides: whoever has made the only place leads, and whoever is quickest follows",
        };
        let candidates = snapshot.members.iter().zip(1..).map(|(member, rank)| {
            let named = member.named();
            let reason = match (layout, rank) {
                (Layout::Queue, 1) => "first in the queue".to_owned(),
                (Layout::Queue, _) => format!("number {rank} in the queue"),
                _ => "it has made the only place; those who wait have none".to_owned(),
            };
            Candidate { rank: Some(rank), ..Candidate::bare(named, vec![reason]) }
        });
        let first =
            snapshot.leader_znodes.first().and_then(Option::as_ref).map(|leader_znode| &leader_znode.record);
        let slot = ExplainedSlot {
            slot: 0,
            question: None,
            named: None,
            leader: first.map(|c| CurrentLeader {
                member: c.member.clone(),
                site: c.site.clone(),
                status: c.status,
            }),
            candidates: candidates.collect(),
            proposal: None,
            obstacles: Vec::new(),
        };
        Self {
            election: election.to_owned(),
            recipe: layout.as_str(),
            at_ms: unix_ms,
            mode: snapshot.control.mode,
            elector: None,
            next: NextStep { acts: false, reason: "no-elector", sentence: sentence.to_owned() },
            skipped: None,
            other_line: false,
            other_policy: false,
            slots: vec![slot],
            problems: Vec::new(),
            unreadable: snapshot.unreadable.iter().cloned().map(Unreadable::from).collect(),
        }
    }
}

/// Whether the elector was configured with another policy than the one with this fingerprint.
pub fn other_policy(fingerprint: &str, snapshot: &Snapshot) -> bool {
    let lowest = snapshot.members.iter().find(|member| Some(&member.ballot) == snapshot.lowest.as_ref());
    let elector = lowest.map_or("", |elector| &elector.policy);
    !elector.is_empty() && elector != fingerprint
}

impl From<SlotExplanation> for ExplainedSlot {
    fn from(slot: SlotExplanation) -> Self {
        let current_leader = |(named, status): (Named, Status)| CurrentLeader {
            member: named.member,
            site: named.site,
            status,
        };
        Self {
            slot: slot.slot,
            question: Some(slot.question),
            named: slot.named.map(|n| n.member),
            leader: slot.leader.map(current_leader),
            candidates: candidates(&slot.ranking),
            proposal: slot.proposal.map(Proposed::from),
            obstacles: slot.obstacles.into_iter().map(InTheWay::from).collect(),
        }
    }
}

fn candidates(ranking: &Ranking) -> Vec<Candidate> {
    let order = ranking.order.iter().enumerate().map(|(place, ranked)| {
        let Ranked { named, reasons, .. } = ranked;
        let next = ranking.order.get(place + 1);
        let ahead_of = next.and_then(|next| {
            let Decider { stage, first, other } = ranked.ahead_of(next)?;
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

impl From<Proposal> for Proposed {
    fn from(Proposal { named, cause, sentence }: Proposal) -> Self {
        let (member, site) = named.map(|n| (n.member, n.site)).unzip();
        Self { member, site, cause, sentence }
    }
}

impl From<Obstacle> for InTheWay {
    fn from(Obstacle { reason, sentence, until_ms, bound }: Obstacle) -> Self {
        let known = match bound {
            Bound::Exactly => "exactly",
            Bound::Earliest => "earliest",
            Bound::Latest => "latest",
        };
        Self { reason, sentence, until_ms, known }
    }
}
