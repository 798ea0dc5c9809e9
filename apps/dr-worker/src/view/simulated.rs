use std::collections::BTreeSet;

use election_core::{
    MemberId, Policy, SiteId,
    explain::{Obstacle, Played, Proposal, Prospect, simulate},
    operator::{Layout, Snapshot},
    record::{MemberRecord, Named},
    strategy::Strategy,
};
use serde::Serialize;

use super::{Explained, ExplainedSlot};

/// What is imagined of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    /// These sites are gone.
    pub without_sites: Vec<SiteId>,
    /// These members are gone.
    pub without: Vec<MemberId>,
    /// These settings are others, as `key=value`.
    pub set: Vec<String>,
}

/// What would become of an election.
///
/// The order of the fields is the order in the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Simulated {
    /// The election, which is the job's name.
    pub election: String,
    /// By which recipe the leader is found.
    pub recipe: &'static str,
    /// What is imagined.
    #[serde(rename = "if")]
    pub if_: WhatIf,
    /// Whether nothing would change.
    pub unchanged: bool,
    /// Who decides now.
    pub elector: Option<MemberId>,
    /// Who would decide then.
    pub elector_then: Option<MemberId>,
    /// Slot by slot.
    pub slots: Vec<SimulatedSlot>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// What would become of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimulatedSlot {
    /// Counted from 0.
    pub slot: usize,
    /// Whether nothing would change.
    pub unchanged: bool,
    /// Who leads now, or is about to.
    pub leads: Option<Named>,
    /// What is going to be decided as it is.
    pub otherwise: Option<Proposal>,
    /// Who would lead at once.
    pub would_lead: Option<Named>,
    /// In one sentence.
    pub sentence: String,
    /// What would be decided at once, in order.
    pub decisions: Vec<Played>,
    /// What would be decided later.
    pub later: Option<Proposal>,
    /// What that waits for, or what keeps anybody from leading.
    pub obstacles: Vec<Obstacle>,
    /// The question that the elector would find, with its answer.
    pub question: Option<ExplainedSlot>,
}

impl WhatIf {
    /// Whether this member would be gone.
    fn is_gone(&self, member: &MemberRecord) -> bool {
        self.without.contains(&member.member) || self.without_sites.contains(&member.site)
    }

    /// Looks for whom there isn't. `configured` are the sites of the policy.
    ///
    /// # Errors
    /// A sentence that says whom there is.
    pub fn check(&self, snapshot: &Snapshot, configured: &[SiteId]) -> Result<(), String> {
        let living: BTreeSet<_> = snapshot.members.iter().map(|m| &m.site).collect();
        for site in &self.without_sites {
            if !living.contains(site) && !configured.contains(site) {
                let sites: BTreeSet<_> = living.iter().copied().chain(configured).collect();
                return Err(format!("nobody has heard of the site {site}; there are {}", list(sites)));
            }
        }
        for member in &self.without {
            if !snapshot.members.iter().any(|m| m.member == *member) {
                let members = snapshot.members.iter().map(|m| &m.member);
                return Err(format!("{member} does not take part; there are {}", list(members)));
            }
        }
        Ok(())
    }

    /// Whether it imagines nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl Simulated {
    /// What would become of what was read.
    pub fn new(
        election: &str,
        snapshot: &Snapshot,
        what_if: WhatIf,
        now: (&Policy, &dyn Strategy),
        then: (&Policy, &dyn Strategy),
        unix_ms: u64,
    ) -> Self {
        let mut notes = Vec::new();
        if !(what_if.without.is_empty() && what_if.without_sites.is_empty()) {
            let sites = if what_if.without_sites.is_empty() { "" } else { " without them" };
            notes.push(format!("it is assumed that ZooKeeper keeps a majority{sites}"));
            notes.push(
                "who is gone is gone once its session has ended: at once where it leaves by itself, after the \
                 session timeout where its host or network is lost"
                    .to_owned(),
            );
        }
        if snapshot.layout != Layout::Elector {
            return Self::contest(election, snapshot, what_if, notes);
        }
        if !what_if.set.is_empty() {
            notes.push(
                "workers read their configuration when they start: it is assumed that all have".to_owned(),
            );
        }
        let gone = |member: &MemberRecord| what_if.is_gone(member);
        let simulation = simulate(&snapshot.seen(), gone, now, then, unix_ms);
        let found = Explained::of(election, snapshot, simulation.then);
        let mut questions = found.slots.into_iter();
        let slots: Vec<_> = simulation
            .slots
            .into_iter()
            .map(|prospect| SimulatedSlot::new(prospect, questions.next()))
            .collect();
        Self {
            election: election.to_owned(),
            recipe: snapshot.layout.as_str(),
            if_: what_if,
            unchanged: slots.iter().all(|slot| slot.unchanged),
            elector: simulation.now.elector,
            elector_then: found.elector,
            slots,
            notes,
        }
    }

    /// Where nobody decides, the next one in the queue follows, or whoever is quickest.
    fn contest(election: &str, snapshot: &Snapshot, what_if: WhatIf, mut notes: Vec<String>) -> Self {
        if !what_if.set.is_empty() {
            notes.push(format!(
                "the recipe {:?} has no policy that would change who leads",
                snapshot.layout.as_str()
            ));
        }
        let before = snapshot.members.first();
        let rest: Vec<_> = snapshot.members.iter().filter(|m| !what_if.is_gone(m)).collect();
        let after = rest.first().copied();
        let unchanged = before.map(|m| &m.ballot) == after.map(|m| &m.ballot);
        let sentence = match (before, after) {
            (Some(first), Some(_)) if unchanged => format!("nothing would change: {} leads on", first.member),
            (Some(first), Some(next)) => {
                format!("{} is gone: {} would lead, being next in the queue", first.member, next.member)
            }
            (Some(first), None) if snapshot.layout == Layout::Single => {
                format!(
                    "{} is gone: whoever is quickest would lead; those who wait have no znode",
                    first.member
                )
            }
            (Some(first), None) => format!("{} is gone: nobody would lead, for nobody waits", first.member),
            (None, _) => "nothing would change: nobody leads".to_owned(),
        };
        let slot = SimulatedSlot {
            slot: 0,
            unchanged,
            leads: before.map(MemberRecord::named),
            otherwise: None,
            would_lead: after.map(MemberRecord::named),
            sentence,
            decisions: Vec::new(),
            later: None,
            obstacles: Vec::new(),
            question: None,
        };
        Self {
            election: election.to_owned(),
            recipe: snapshot.layout.as_str(),
            if_: what_if,
            unchanged,
            elector: None,
            elector_then: None,
            slots: vec![slot],
            notes,
        }
    }
}

impl SimulatedSlot {
    fn new(prospect: Prospect, question: Option<ExplainedSlot>) -> Self {
        let sentence = sentence(&prospect);
        let Prospect { slot, before, otherwise, played, leads, later, obstacles, unchanged } = prospect;
        Self {
            slot,
            unchanged,
            leads: before,
            otherwise,
            would_lead: leads,
            sentence,
            decisions: played,
            later,
            obstacles,
            question,
        }
    }
}

fn sentence(prospect: &Prospect) -> String {
    let Prospect { before, otherwise, played, leads, later, obstacles, unchanged, .. } = prospect;
    let whoever = |named: &Named| format!("{} of site {}", named.member, named.site);
    let blocked = || obstacles.first().map_or_else(String::new, |o| format!(": {}", o.sentence));
    let at_once = match (played.last(), leads, before) {
        (_, None, None) if *unchanged => format!("nothing would change: nobody would lead{}", blocked()),
        (_, Some(named), _) if *unchanged => format!("nothing would change: {} leads on", whoever(named)),
        (Some(last), Some(_), _) => last.sentence.clone(),
        (_, None, _) => format!("nobody would lead{}", blocked()),
        (None, Some(named), _) => {
            let gives_way = otherwise.as_ref().and_then(|o| o.named.as_ref()).filter(|n| *n != named);
            let no_more = gives_way.map(|n| format!(", and does not make room for {} any more", whoever(n)));
            let no_more = no_more.filter(|_| later.is_none()).unwrap_or_default();
            format!("{} leads on{no_more}", whoever(named))
        }
    };
    let news = later.as_ref().and_then(|l| l.named.as_ref()).filter(|n| Some(*n) != leads.as_ref());
    match news {
        Some(named) if leads.is_some() => {
            let wait = match (obstacles.as_slice(), obstacles.iter().all(|o| o.until_ms.is_some())) {
                ([], _) => "next",
                (_, true) => "later",
                (_, false) => "only once what stands in the way is gone",
            };
            format!("{at_once}; {} would follow, {wait}", whoever(named))
        }
        _ => at_once,
    }
}
