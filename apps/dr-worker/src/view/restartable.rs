//! Whether a member may be taken down now.

use election_core::{
    config::{MemberId, SiteId},
    internals::record::{Mode, Status},
    status::Skipped,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Candidate, Cluster, Explained, ExplainedSlot, Member};

/// Whether a member may be taken down now without the loss of a job or of a site's last candidate.
///
/// The fields are in the order of the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restartable {
    /// The member.
    #[schemars(with = "String")]
    pub member: MemberId,
    /// Whether it may be taken down.
    pub can_restart: bool,
    /// Why not.
    pub reasons: Vec<Hindrance>,
}

/// Why a member may not be taken down now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hindrance {
    /// The job.
    pub job: String,
    /// The site of the member.
    #[schemars(with = "String")]
    pub site: SiteId,
    /// A sentence with both.
    pub sentence: String,
}

impl Restartable {
    /// Judges the jobs that the member is a candidate for; `None` if it is a member of none of them. Each job is given as
    /// `list` and `explain` show it at the same moment.
    pub fn new<'a>(
        member: &MemberId,
        jobs: impl IntoIterator<Item = (&'a Cluster, &'a Explained)>,
    ) -> Option<Self> {
        let (mut is_known, mut reasons) = (false, Vec::new());
        for (cluster, explained) in jobs {
            let Some(found) = cluster.members.iter().find(|m| m.member == *member) else { continue };
            is_known = true;
            let job = JobWithout { cluster, explained, member: found };
            reasons.extend(job.hindrances().into_iter().map(|why| Hindrance {
                job: cluster.election.clone(),
                site: found.site.clone(),
                sentence: format!("{}: {why}", cluster.election),
            }));
        }
        is_known.then(|| Self { member: member.clone(), can_restart: reasons.is_empty(), reasons })
    }
}

/// A job, and the member that would be taken down.
struct JobWithout<'a> {
    cluster: &'a Cluster,
    explained: &'a Explained,
    member: &'a Member,
}

impl JobWithout<'_> {
    fn hindrances(&self) -> Vec<String> {
        let Self { cluster, member: Member { member, site, .. }, .. } = self;
        let mut all: Vec<_> = cluster
            .unreadable
            .iter()
            .map(|e| format!("{} can't be read, so the effect of losing {member} is not known", e.path))
            .collect();
        all.extend(cluster.slots.iter().filter_map(|slot| self.moving(slot.slot)));
        let open = cluster.requests.iter().filter(|request| request.outcome.is_open());
        all.extend(open.map(|r| format!("request {}, a {}, is open", r.id, r.kind.as_str())));
        let slots = self.explained.slots.iter();
        all.extend(slots.filter(|slot| self.leads(slot)).filter_map(|slot| self.unfollowed(slot)));
        let others = cluster.members.iter().filter(|m| m.site == *site && m.member != *member);
        if self.is_candidate(member) && others.clone().all(|other| !self.is_candidate(&other.member)) {
            let others: Vec<_> = others.map(|other| self.why_not(&other.member)).collect();
            let others = in_parentheses(&others);
            all.push(format!("{member} is the last candidate of site {site}{others}"));
        }
        all
    }

    /// Why a slot has no settled leader.
    fn moving(&self, slot: usize) -> Option<String> {
        let row = self.cluster.slots.get(slot)?;
        let named = row.decision.as_ref().and_then(|decision| decision.named.as_ref());
        let which = if self.cluster.slots.len() > 1 { format!("slot {slot}: ") } else { String::new() };
        match (&row.leader, named) {
            (None, _) => Some(format!("{which}no member leads at the moment")),
            (Some(leader), _) if leader.status != Status::Ready => {
                Some(format!("{which}{} of site {} is taking over", leader.member, leader.site))
            }
            (Some(leader), Some(named)) if leader.ballot != named.ballot => Some(format!(
                "{which}{} of site {} hands over to {} of site {}",
                leader.member, leader.site, named.member, named.site
            )),
            (Some(_), _) => None,
        }
    }

    fn leads(&self, slot: &ExplainedSlot) -> bool {
        slot.leader.as_ref().is_some_and(|leader| leader.member == self.member.member)
    }

    /// Why no member would follow the leader of this slot. A job that an operator has stopped can't be lost.
    fn unfollowed(&self, slot: &ExplainedSlot) -> Option<String> {
        let Self { cluster, member: Member { member, site, .. }, .. } = self;
        if cluster.stopped.is_some() {
            return None;
        }
        let why = if cluster.recipe == "single" {
            "it is not known whether another member waits: the recipe single does not show it".to_owned()
        } else if cluster.mode != Mode::Auto {
            format!("the mode is {}: no other leader would be elected", cluster.mode)
        } else if cluster.skipped.as_ref().is_some_and(Skipped::is_hold) {
            "the election is on hold: no other leader would be elected".to_owned()
        } else {
            if slot.if_lost.iter().any(|other| self.is_spare(other)) {
                return None;
            }
            let others = slot.candidates.iter().filter(|other| other.member != *member);
            let others: Vec<_> = others.map(|other| self.why_not(&other.member)).collect();
            format!("no other member may lead{}", in_parentheses(&others))
        };
        Some(format!("{member} of site {site} leads, and {why}"))
    }

    /// Whether a candidate could follow: it leads no slot yet.
    fn is_spare(&self, candidate: &Candidate) -> bool {
        let is_free = |m: &Member| m.member == candidate.member && m.slot.is_none();
        candidate.rank.is_some() && self.cluster.members.iter().any(is_free)
    }

    /// Whether a member leads or may lead.
    fn is_candidate(&self, member: &MemberId) -> bool {
        let may = |c: &Candidate| c.member == *member && c.rank.is_some();
        let leads = |m: &Member| m.member == *member && m.slot.is_some();
        self.cluster.members.iter().any(leads)
            || self.explained.slots.iter().flat_map(|slot| &slot.candidates).any(may)
    }

    /// Why a member can't follow, after its name.
    fn why_not(&self, member: &MemberId) -> String {
        let known = self.explained.slots.iter().flat_map(|slot| slot.if_lost.iter().chain(&slot.candidates));
        let reasons = known.filter(|c| c.member == *member && c.rank.is_none()).flat_map(|c| &c.reasons);
        let leads = self.cluster.members.iter().any(|m| m.member == *member && m.slot.is_some());
        match reasons.into_iter().next() {
            _ if leads => format!("{member}: it leads"),
            Some(reason) => format!("{member}: {reason}"),
            None => member.to_string(),
        }
    }
}

fn in_parentheses(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

#[cfg(test)]
#[path = "restartable_tests.rs"]
pub(crate) mod tests;
