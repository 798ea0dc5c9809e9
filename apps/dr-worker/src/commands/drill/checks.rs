//! What is checked before a drill, by the records of the election and the policy. Pure.

use std::time::Duration;

use crate::znodes::{DrillMode, STANDBY_ATTRIBUTE, StandbyReport};
use election_admin::Snapshot;
use election_core::{
    config::{MemberId, SiteId},
    internals::{
        calendar::Windows,
        record::{Mode, RequestState, Status, Target},
    },
    status::Reason,
    strategy::in_words,
};

use super::{
    report::{DrillCheck, Who},
    runs::Present,
};
use crate::{
    commands::servers::Quorum,
    config::{Dates, DrillPlan, Objectives, OperatorConfig},
    typed::Typed,
    view::{Candidate, Cluster, Explained, Member, hold_of},
    wall::{moment, ms},
};

/// The state of an election, as `list` and `explain` show it at the same moment.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The election.
    pub(crate) cluster: Cluster,
    /// The elector's view.
    pub(crate) explained: Explained,
    /// Who would lead if the fault of the drill happened; `None` without a fault.
    pub(crate) predicted: Option<Predicted>,
    /// The quorum of the servers; `None` if `zookeeper.sites` does not say where they are.
    pub(crate) quorum: Option<Quorum>,
    /// The drill that is under way.
    pub(crate) present: Present,
    /// The longest session timeout of the members of the leader's site, as far as it is known.
    pub(crate) session_timeout: Option<Duration>,
    /// The site of the evacuation that is under way.
    pub(crate) evacuated: Option<SiteId>,
    /// `policy.min_tenure`.
    pub(crate) min_tenure: Duration,
    /// The time, in milliseconds since the Unix epoch.
    pub(crate) unix_ms: u64,
}

/// What `simulate` expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Predicted {
    /// The member that would lead.
    pub(crate) leads: Option<Who>,
    /// Its sentence.
    pub(crate) sentence: String,
}

impl State {
    /// That of an election that was read, and of no more than that.
    pub(super) fn new(
        job: &str,
        snapshot: Snapshot,
        present: Present,
        config: &OperatorConfig,
        unix_ms: u64,
    ) -> Self {
        Self {
            explained: Explained::new(job, &snapshot, config, unix_ms),
            cluster: Cluster::new(&config.zookeeper.root, job, snapshot, unix_ms),
            predicted: None,
            quorum: None,
            present,
            session_timeout: None,
            evacuated: None,
            min_tenure: config.engine_of(job).min_tenure,
            unix_ms,
        }
    }

    /// The leader, if it is READY and named.
    pub(crate) fn leader(&self) -> Option<&Member> {
        let slot = self.cluster.slots.first()?;
        let (leader, decision) = (slot.leader.as_ref()?, slot.decision.as_ref()?);
        let is_settled = leader.status == Status::Ready
            && decision.named.as_ref().is_some_and(|named| named.ballot == leader.ballot);
        let is_it = |member: &&Member| member.ballot == leader.ballot;
        self.cluster.members.iter().find(is_it).filter(|_| is_settled)
    }

    /// The members that may take over, or rehearse, best first.
    pub(crate) fn candidates(&self, plan: &DrillPlan) -> Vec<&Candidate> {
        self.others(plan).filter(|other| other.rank.is_some() && self.is_target(plan, other)).collect()
    }

    /// Those of them whose standby is ready.
    pub(crate) fn ready_standbys(&self, plan: &DrillPlan) -> Vec<&MemberId> {
        let members = self.candidates(plan).into_iter().map(|candidate| &candidate.member);
        members.filter(|member| self.standby(member) == Some(StandbyReport::Ready)).collect()
    }

    /// What a member publishes of its standby.
    fn standby(&self, member: &MemberId) -> Option<StandbyReport> {
        let member = self.cluster.members.iter().find(|known| known.member == *member)?;
        StandbyReport::read(member.attributes.get(STANDBY_ATTRIBUTE)?)
    }

    /// The members besides the leader, in the order in which they follow in such a drill.
    fn others(&self, plan: &DrillPlan) -> impl Iterator<Item = &Candidate> {
        let slots = self.explained.slots.iter().take(1);
        let is_switchover = plan.mode == DrillMode::Switchover;
        slots.flat_map(move |slot| if is_switchover { &slot.switchover } else { &slot.if_lost })
    }

    fn is_target(&self, plan: &DrillPlan, candidate: &Candidate) -> bool {
        let is_cut = plan.mode == DrillMode::CutSite
            && self.leader().is_some_and(|leader| leader.site == candidate.site);
        !is_cut && fits(&plan.to, &candidate.member, &candidate.site)
    }

    /// The value of a member's attribute, as a time in seconds.
    pub(crate) fn lag(&self, objectives: &Objectives, member: &MemberId) -> Option<Duration> {
        let attribute = objectives.lag.as_deref()?;
        let member = self.cluster.members.iter().find(|known| known.member == *member)?;
        seconds(member.attributes.get(attribute)?)
    }
}

/// A number of seconds.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
}

/// Whether a member is, or is in, the target.
pub(crate) fn fits(to: &Target, member: &MemberId, site: &SiteId) -> bool {
    match to {
        Target::Any => true,
        Target::Member(wanted) => wanted == member,
        Target::Site(wanted) => wanted == site,
    }
}

/// The target as text.
pub(crate) fn target(to: &Target) -> String {
    match to {
        Target::Any => "the member that the policy chooses".to_owned(),
        Target::Member(member) => member.to_string(),
        Target::Site(site) => format!("site {site}"),
    }
}

/// The check of the windows and blocked dates of a plan, of a job or of a site.
pub(crate) const CALENDAR: &str = "calendar";

/// One check: a sentence about what was found, or why the drill may not run. An empty one does not apply.
type Part = fn(&State, &DrillPlan) -> Result<String, String>;

/// All checks of a drill by this plan. It may run if all have passed.
pub(crate) fn check(state: &State, plan: &DrillPlan) -> Vec<DrillCheck> {
    let parts: [(&str, Part); 17] = [
        (CALENDAR, calendar),
        ("election", election),
        ("leader", leader),
        ("mode", mode),
        ("hold", hold),
        ("orders", orders),
        ("maintenance", maintenance),
        ("requests", requests),
        ("drill", drill),
        ("quorum", quorum),
        ("tenure", tenure),
        ("target", in_target),
        ("candidates", candidates),
        ("standbys", standbys),
        ("lag", lag),
        ("cut", cut),
        ("prediction", prediction),
    ];
    carried_out(&parts, state, plan)
}

/// The checks of a drill that hold of every planned move, by a plan that has its target.
pub(crate) fn check_move(state: &State, plan: &DrillPlan) -> Vec<DrillCheck> {
    let parts: [(&str, Part); 5] = [
        ("election", election),
        ("leader", leader),
        ("hold", hold),
        ("requests", requests),
        ("drill", drill),
    ];
    carried_out(&parts, state, plan)
}

fn carried_out(parts: &[(&str, Part)], state: &State, plan: &DrillPlan) -> Vec<DrillCheck> {
    let checks = parts.iter().map(|(name, part)| DrillCheck::new(name, part(state, plan)));
    checks.filter(|check| !check.sentence.is_empty()).collect()
}

fn calendar(state: &State, plan: &DrillPlan) -> Result<String, String> {
    calendar_of(&plan.rules.windows, &plan.rules.blocked_dates, state.unix_ms)
}

/// Whether a plan with these windows and blocked dates may run now. The sentence is empty if it has none.
///
/// # Errors
/// Why it may not.
pub(crate) fn calendar_of(windows: &Windows, blocked: &Dates, unix_ms: u64) -> Result<String, String> {
    if let Some(blocked) = blocked.find(unix_ms) {
        return Err(format!("today is one of the blocked dates ({blocked})"));
    }
    let opens = windows.open_from(unix_ms);
    if opens > unix_ms {
        return Err(format!("no window is open; the next one opens at {}", moment(opens)));
    }
    let is_free = windows.texts().next().is_none() && blocked.texts().next().is_none();
    Ok(if is_free { String::new() } else { "a window is open, and today is not blocked".to_owned() })
}

fn election(State { cluster, .. }: &State, _: &DrillPlan) -> Result<String, String> {
    if cluster.recipe != "elector" {
        return Err(format!("the recipe is {:?}; a drill needs \"elector\"", cluster.recipe));
    }
    if cluster.slots.len() > 1 {
        return Err(format!("the job has {} leaders; a drill needs a job with one", cluster.slots.len()));
    }
    match cluster.unreadable.first() {
        Some(error) => Err(format!("{} can't be read: {}", error.path, error.why)),
        None => Ok("all records can be read".to_owned()),
    }
}

fn leader(state: &State, _: &DrillPlan) -> Result<String, String> {
    let slot = state.cluster.slots.first();
    let named = slot.and_then(|slot| slot.decision.as_ref()).and_then(|decision| decision.named.as_ref());
    match (slot.and_then(|slot| slot.leader.as_ref()), named) {
        (None, _) => Err("no member leads at the moment".to_owned()),
        (Some(leader), _) if leader.status != Status::Ready => {
            Err(format!("{} of site {} is taking over", leader.member, leader.site))
        }
        (Some(leader), Some(named)) if leader.ballot == named.ballot => match state.leader() {
            Some(_) => {
                Ok(format!("{} of site {} is READY in term {}", leader.member, leader.site, leader.term))
            }
            None => Err(format!("{} leads, but its worker is no longer a member", leader.member)),
        },
        (Some(leader), Some(named)) => Err(format!("{} hands over to {}", leader.member, named.member)),
        (Some(leader), None) => Err(format!("{} leads, but no decision names a leader", leader.member)),
    }
}

fn mode(State { cluster, .. }: &State, plan: &DrillPlan) -> Result<String, String> {
    match cluster.mode {
        Mode::Auto => Ok("the mode is auto".to_owned()),
        other => {
            let resume = Typed::verb("resume").job(&plan.job);
            Err(format!("the mode is {other}: the election is paused; `{resume}`"))
        }
    }
}

fn hold(State { cluster, explained, .. }: &State, plan: &DrillPlan) -> Result<String, String> {
    if let Some(hold) = cluster.skipped.as_ref().and_then(|skipped| hold_of(skipped, &plan.job)) {
        return Err(hold);
    }
    let obstacles = explained.slots.iter().flat_map(|slot| &slot.obstacles);
    match obstacles.into_iter().find(|obstacle| matches!(obstacle.reason, Reason::Held | Reason::Backoff)) {
        Some(obstacle) => Err(obstacle.sentence.clone()),
        None => Ok("the election is not on hold".to_owned()),
    }
}

fn orders(State { cluster, .. }: &State, plan: &DrillPlan) -> Result<String, String> {
    if let Some(stopped) = &cluster.stopped {
        return Err(format!("the job is {stopped}; `{}`", Typed::verb("start").job(&plan.job)));
    }
    if let Some(closed) = &cluster.closed {
        return Err(closed.clone());
    }
    if let Some(site) = cluster.drained.first() {
        let off = Typed::verb("drain").arg(site).arg("--off").job(&plan.job);
        return Err(format!("site {site} is drained; `{off}`"));
    }
    match cluster.failed_sites.first() {
        Some(failed) => Err(format!("site {} has failed: {}", failed.site, failed.why)),
        None => Ok("the job is not stopped, and no site is drained or has failed".to_owned()),
    }
}

fn maintenance(State { cluster, .. }: &State, plan: &DrillPlan) -> Result<String, String> {
    match cluster.maintenance.first() {
        Some(order) => {
            let off = Typed::verb("maintenance").arg(&order.member).arg("--off").job(&plan.job);
            Err(format!("{order}; `{off}`"))
        }
        None => Ok("no member is in maintenance".to_owned()),
    }
}

fn requests(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let until = state.unix_ms.saturating_add(ms(plan.longest()));
    let found = state.cluster.requests.iter().find_map(|request| match request.outcome {
        RequestState::Planned { at_ms } if at_ms <= until => {
            Some(format!("request {} is planned for {}", request.id, moment(at_ms)))
        }
        ref state if state.is_open() => {
            Some(format!("request {}, a {}, is open", request.id, request.kind.as_str()))
        }
        _ => None,
    });
    found.map_or_else(|| Ok("no request is open or planned for the time of the drill".to_owned()), Err)
}

fn drill(State { present, evacuated, .. }: &State, plan: &DrillPlan) -> Result<String, String> {
    if let Some(site) = evacuated {
        return Err(format!("the evacuation of site {site} is under way"));
    }
    if let Some(run) = &present.conducted {
        return Err(format!("drill {run} is under way"));
    }
    match present.interrupted().last() {
        Some(run) => {
            let next = Typed::verb("drill").job(&plan.job);
            Err(format!("drill {run} was interrupted; the next `{next}` ends it"))
        }
        None => Ok("no drill is under way".to_owned()),
    }
}

/// A drill that cuts a site off is no proof where the loss of the site would stop ZooKeeper, too; and where a server is down
/// already, no drill adds a fault of its own. What else the quorum would not survive is said, and the drill may run.
fn quorum(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let Some(Quorum { voters, elsewhere, lost }) = &state.quorum else {
        return Ok("not checked: zookeeper.sites does not name the site of each ZooKeeper server".to_owned());
    };
    let is_cut = |site: &str| {
        plan.mode == DrillMode::CutSite && state.leader().is_some_and(|leader| leader.site.as_str() == site)
    };
    if let Some(cut) = lost.iter().find(|lost| is_cut(&lost.site)) {
        return Err(format!(
            "{cut}; the drill cuts off only the workers of the site, so it would not show the effect of losing the site"
        ));
    }
    if let Some(down) = lost.iter().find(|lost| !lost.down.is_empty())
        && !plan.mode.spares_leader()
    {
        return Err(format!("{down}; start it before a drill"));
    }
    let unknown = match elsewhere {
        0 => String::new(),
        _ => format!("; zookeeper.sites does not name {elsewhere} of {voters} voting servers"),
    };
    match lost.first() {
        Some(lost) => Ok(format!("{lost}; this drill does not show that{unknown}")),
        None => Ok(format!("it survives the loss of any one site; {voters} servers have a vote{unknown}")),
    }
}

fn tenure(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let Some(leader) = state.cluster.slots.first().and_then(|slot| slot.leader.as_ref()) else {
        return Ok(String::new());
    };
    let since_ms = leader.ready_ms.unwrap_or(leader.since_ms);
    let settled_ms = since_ms.saturating_add(ms(state.min_tenure));
    let since = moment(since_ms);
    if plan.mode.spares_leader() || settled_ms <= state.unix_ms {
        return Ok(format!("{} has led since {since}", leader.member));
    }
    let least = in_words(state.min_tenure);
    Err(format!("{} has led since {since}: a recent move; policy.min_tenure is {least}", leader.member))
}

fn in_target(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let Some(leader) = state.leader() else { return Ok(String::new()) };
    let (member, site) = (&leader.member, &leader.site);
    match (&plan.to, plan.mode) {
        (_, DrillMode::Unknown) => Err("this program does not know the mode".to_owned()),
        (Target::Any, _) | (_, DrillMode::KillJob) => Ok(String::new()),
        (Target::Member(to), _) if to == member => Err(format!("{member} leads already")),
        (Target::Member(_) | Target::Site(_), mode) if mode.spares_leader() => Ok(String::new()),
        (Target::Site(to), _) if to == site => Err(format!("the job is in site {site} already, on {member}")),
        _ => Ok(format!("the job is outside of {}, on {member} of site {site}", target(&plan.to))),
    }
}

fn candidates(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let fit = state.candidates(plan);
    let target = target(&plan.to);
    if fit.is_empty() {
        let why_not = state.others(plan).filter(|other| state.is_target(plan, other));
        let why_not: Vec<_> = why_not
            .map(|other| format!("{}: {}", other.member, other.reasons.first().map_or("", String::as_str)))
            .collect();
        let why_not =
            if why_not.is_empty() { "no other member is there".to_owned() } else { why_not.join("; ") };
        return Err(format!("no member may take over, target {target}: {why_not}"));
    }
    let names: Vec<_> = fit.iter().map(|fit| fit.member.as_str()).collect();
    Ok(format!("{} may take over, target {target}", names.join(", ")))
}

/// A fault is no practice where nothing could be promoted. A job without standbys publishes none.
fn standbys(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let has_some = state.cluster.members.iter().any(|member| state.standby(&member.member).is_some());
    let is_needed = match plan.mode {
        DrillMode::KillStandby => true,
        DrillMode::Rehearse | DrillMode::Switchover | DrillMode::Unknown => false,
        DrillMode::KillJob | DrillMode::KillWorker | DrillMode::CutSite => has_some,
    };
    let ready: Vec<_> = state.ready_standbys(plan).into_iter().map(MemberId::as_str).collect();
    match ready[..] {
        _ if !is_needed => Ok(String::new()),
        [] => Err(format!("no standby is ready, target {}", target(&plan.to))),
        _ => Ok(format!("the standby of {} is ready", ready.join(", "))),
    }
}

fn lag(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let limited = state.others(plan).filter(|other| state.is_target(plan, other));
    if let Some(above) = limited.into_iter().find(|other| other.refused_by.as_deref() == Some("limit")) {
        let why = above.reasons.first().map_or("", String::as_str);
        return Err(format!("{} is above its limit: {why}", above.member));
    }
    let (Some(rpo), Some(attribute)) = (plan.objectives.rpo, &plan.objectives.lag) else {
        return Ok("no member of the target is above a limit".to_owned());
    };
    let Some(first) = state.candidates(plan).into_iter().next() else { return Ok(String::new()) };
    let member = &first.member;
    let lag = lag_within(rpo, attribute, member, state.lag(&plan.objectives, member))?;
    Ok(format!("{attribute} of {member} is {lag}"))
}

/// The lag of a member, by this attribute, and the most that is allowed, as text.
///
/// # Errors
/// It is not known, or more than that.
pub(crate) fn lag_within(
    rpo: Duration,
    attribute: &str,
    member: &MemberId,
    lag: Option<Duration>,
) -> Result<String, String> {
    let most = in_words(rpo);
    match lag {
        None => Err(format!("{member} has no attribute {attribute} with a number of seconds")),
        Some(lag) if lag > rpo => {
            Err(format!("{attribute} of {member} is {}, above the objective of {most}", in_words(lag)))
        }
        Some(lag) => Ok(format!("{} of at most {most}", in_words(lag))),
    }
}

/// A cut that no session ends by moves nothing, and stops jobs whose lease is shorter.
fn cut(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let Some(timeout) = state.session_timeout.filter(|_| plan.mode == DrillMode::CutSite) else {
        return Ok(String::new());
    };
    let (cut, words) = (in_words(plan.cut_for), in_words(timeout));
    match plan.cut_for > timeout {
        true => Ok(format!("the cut of {cut} is longer than the session timeout there, {words}")),
        false => Err(format!(
            "no session ends by a cut of {cut}: the session timeout there is {words}; raise cut_for above it"
        )),
    }
}

fn prediction(state: &State, plan: &DrillPlan) -> Result<String, String> {
    let Some(Predicted { leads, sentence }) = &state.predicted else { return Ok(String::new()) };
    match leads {
        None => Err(format!("by the policy no member would lead: {sentence}")),
        Some(who) if fits(&plan.to, &who.member, &who.site) => Ok(format!("by the policy {sentence}")),
        Some(who) => {
            Err(format!("by the policy {who} would take over, outside of {}: {sentence}", target(&plan.to)))
        }
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
pub(crate) mod tests;
