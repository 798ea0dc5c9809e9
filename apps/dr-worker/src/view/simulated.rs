use std::collections::BTreeSet;

use election_admin::{Layout, Snapshot};
use election_core::{
    config::{MemberId, SiteId},
    internals::{
        explain::{Obstacle, Played, Proposal, Prospect, simulate},
        record::{MemberRecord, Mode, Named},
    },
};
use schemars::JsonSchema;
use serde::Serialize;
use strategies::other_jobs::{LedBy, OtherJob, OtherJobs};

use super::{Explained, ExplainedSlot, is_absent};
use crate::{config::OperatorConfig, schema::Object, wall::unix_ms};

/// The assumptions of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WhatIf {
    /// Sites that are lost.
    #[schemars(with = "Vec<String>")]
    pub without_sites: Vec<SiteId>,
    /// Members that are lost.
    #[schemars(with = "Vec<String>")]
    pub without: Vec<MemberId>,
    /// Changed settings, as `key=value`.
    pub set: Vec<String>,
}

/// The outcome of a simulation.
///
/// The fields are in the order of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Simulated {
    /// The election's name: the job.
    pub election: String,
    /// The recipe.
    pub recipe: &'static str,
    /// The assumptions.
    #[serde(rename = "if")]
    pub if_: WhatIf,
    /// Whether nothing would change.
    pub unchanged: bool,
    /// The elector now.
    #[schemars(with = "Option<String>")]
    pub elector: Option<MemberId>,
    /// The elector then.
    #[schemars(with = "Option<String>")]
    pub elector_then: Option<MemberId>,
    /// The slots.
    pub slots: Vec<SimulatedSlot>,
    /// How its policy would go by other jobs, such as `follows db, which leads in west`.
    pub other_jobs: Vec<String>,
    /// Further notes.
    pub notes: Vec<String>,
}

/// The outcome for a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SimulatedSlot {
    /// Counted from 0.
    pub slot: usize,
    /// Whether nothing would change.
    pub unchanged: bool,
    /// The member that leads now or is taking over.
    #[schemars(with = "Option<Object>")]
    pub leads: Option<Named>,
    /// The next decision without the assumptions.
    #[schemars(with = "Option<Object>")]
    pub otherwise: Option<Proposal>,
    /// The member that would lead at once.
    #[schemars(with = "Option<Object>")]
    pub would_lead: Option<Named>,
    /// A summary in one sentence.
    pub sentence: String,
    /// What would be decided at once, in order.
    #[schemars(with = "Vec<Object>")]
    pub decisions: Vec<Played>,
    /// What would be decided later.
    #[schemars(with = "Option<Object>")]
    pub later: Option<Proposal>,
    /// What that waits for, or what prevents a leader.
    #[schemars(with = "Vec<Object>")]
    pub obstacles: Vec<Obstacle>,
    /// The question that the elector would ask, with its answer.
    pub question: Option<ExplainedSlot>,
}

impl WhatIf {
    /// Whether this member is assumed lost.
    fn is_gone(&self, member: &MemberRecord) -> bool {
        self.loses(&member.member, &member.site)
    }

    fn loses(&self, member: &MemberId, site: &SiteId) -> bool {
        self.without.contains(member) || self.without_sites.contains(site)
    }

    /// Where other jobs would be led, as far as their leaders are not lost.
    pub fn left_of(&self, others: OtherJobs) -> OtherJobs {
        let left = |led: OtherJob| led.without(|by| self.loses(&by.member, &by.site));
        others.into_iter().map(|(job, led)| (job, left(led))).collect()
    }

    /// Checks that all sites and members are known. `configured` are the sites of the policy.
    ///
    /// # Errors
    /// A sentence with the known ones.
    fn check(&self, snapshot: &Snapshot, configured: &[SiteId], unix_ms: u64) -> Result<(), String> {
        let living: BTreeSet<_> = snapshot.members.iter().map(|m| &m.site).collect();
        for site in &self.without_sites {
            if !living.contains(site) && !configured.contains(site) {
                let sites: BTreeSet<_> = living.iter().copied().chain(configured).collect();
                return Err(format!("unknown site {site}; known: {}", list(sites)));
            }
        }
        for member in &self.without {
            if !snapshot.members.iter().any(|m| m.member == *member) {
                if let Some(absent) = is_absent(member, snapshot, unix_ms) {
                    return Err(absent);
                }
                let members = snapshot.members.iter().map(|m| &m.member);
                return Err(format!("unknown member {member}; members: {}", list(members)));
            }
        }
        Ok(())
    }

    /// Whether nothing is assumed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl Simulated {
    /// Simulates a snapshot under these assumptions, by the policies that the job has in two configurations.
    ///
    /// # Errors
    /// What the assumptions name is unknown: a sentence with what is known.
    pub fn checked(
        election: &str,
        snapshot: &Snapshot,
        what_if: WhatIf,
        now: &OperatorConfig,
        then: &OperatorConfig,
    ) -> Result<Self, String> {
        let at = unix_ms();
        what_if.check(snapshot, &then.policy_of(election).who.site_policy.sites, at)?;
        Ok(Self::new(election, snapshot, what_if, now, then, at))
    }

    /// The same, of names that are known, at `unix_ms`.
    pub fn new(
        election: &str,
        snapshot: &Snapshot,
        what_if: WhatIf,
        now: &OperatorConfig,
        then: &OperatorConfig,
        unix_ms: u64,
    ) -> Self {
        let mut notes = Vec::new();
        if !(what_if.without.is_empty() && what_if.without_sites.is_empty()) {
            let sites = if what_if.without_sites.is_empty() { "" } else { " without them" };
            notes.push(format!("assumes that ZooKeeper keeps a majority{sites}"));
            notes.push(
                "a lost member is gone once its session has ended: at once if it leaves by itself, after the \
                 session timeout if its host or network is lost"
                    .to_owned(),
            );
        }
        if snapshot.layout != Layout::Elector {
            return Self::contest(election, snapshot, what_if, notes);
        }
        if !what_if.set.is_empty() {
            notes.push("assumes that all workers have been restarted with these settings".to_owned());
        }
        let gone = |member: &MemberRecord| what_if.is_gone(member);
        let (policy, strategy) = (now.engine_of(election), now.policy_of(election).strategy());
        let other_jobs = then.policy_of(election).who.other_jobs();
        let (policy_then, strategy_then) = (then.engine_of(election), then.policy_of(election).strategy());
        let (now, then) = ((&policy, &*strategy), (&policy_then, &*strategy_then));
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
            other_jobs,
            notes,
        }
    }

    /// Where the job would be led. In a mode that decides nothing automatically, no job moves for its sake.
    pub fn would_be_led(&self, mode: Mode) -> OtherJob {
        let by: Vec<_> =
            self.slots.iter().filter_map(|slot| slot.would_lead.as_ref()).map(LedBy::new).collect();
        if by.is_empty() {
            OtherJob::Unknown("it would have no leader".to_owned())
        } else if mode == Mode::Auto {
            OtherJob::Led(by)
        } else {
            OtherJob::Unsettled(by, format!("its mode is {mode}"))
        }
    }

    /// Without an elector, the next one in the queue or the fastest one follows.
    fn contest(election: &str, snapshot: &Snapshot, what_if: WhatIf, mut notes: Vec<String>) -> Self {
        if !what_if.set.is_empty() {
            notes.push(format!(
                "the recipe {:?} has no policy that affects who leads",
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
                    "{} is gone: the fastest member would lead; waiting members have no znode",
                    first.member
                )
            }
            (Some(first), None) => {
                format!("{} is gone: no member would lead, because no member waits", first.member)
            }
            (None, _) => "nothing would change: no member leads".to_owned(),
        };
        let slot = SimulatedSlot {
            unchanged,
            leads: before.map(MemberRecord::named),
            would_lead: after.map(MemberRecord::named),
            sentence,
            ..SimulatedSlot::default()
        };
        Self {
            election: election.to_owned(),
            recipe: snapshot.layout.as_str(),
            if_: what_if,
            unchanged,
            slots: vec![slot],
            notes,
            ..Self::default()
        }
    }
}

impl SimulatedSlot {
    fn new(prospect: Prospect, question: Option<ExplainedSlot>) -> Self {
        Self {
            sentence: sentence(&prospect),
            slot: prospect.slot,
            unchanged: prospect.unchanged,
            leads: prospect.before,
            otherwise: prospect.otherwise,
            would_lead: prospect.leads,
            decisions: prospect.played,
            later: prospect.later,
            obstacles: prospect.obstacles,
            question,
        }
    }
}

fn sentence(prospect: &Prospect) -> String {
    let Prospect { before, otherwise, played, leads, later, obstacles, unchanged, .. } = prospect;
    let member_of_site = |named: &Named| format!("{} of site {}", named.member, named.site);
    let blocked = || obstacles.first().map_or_else(String::new, |o| format!(": {}", o.sentence));
    let at_once = match (played.last(), leads, before) {
        (_, None, None) if *unchanged => format!("nothing would change: no member would lead{}", blocked()),
        (_, Some(named), _) if *unchanged => {
            format!("nothing would change: {} leads on", member_of_site(named))
        }
        (Some(last), Some(_), _) => last.sentence.clone(),
        (_, None, _) => format!("no member would lead{}", blocked()),
        (None, Some(named), _) => {
            let gives_way = otherwise.as_ref().and_then(|o| o.named.as_ref()).filter(|n| *n != named);
            let no_more =
                gives_way.map(|n| format!(", and {} does not replace it any more", member_of_site(n)));
            let no_more = no_more.filter(|_| later.is_none()).unwrap_or_default();
            format!("{} leads on{no_more}", member_of_site(named))
        }
    };
    let news = later.as_ref().and_then(|l| l.named.as_ref()).filter(|n| Some(*n) != leads.as_ref());
    match news {
        Some(named) if leads.is_some() => {
            let wait = match (obstacles.as_slice(), obstacles.iter().all(|o| o.until_ms.is_some())) {
                ([], _) => "next",
                (_, true) => "later",
                (_, false) => "once nothing blocks it",
            };
            format!("{at_once}; {} would follow, {wait}", member_of_site(named))
        }
        _ => at_once,
    }
}
