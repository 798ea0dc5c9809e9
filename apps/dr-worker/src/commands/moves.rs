//! Moves of leadership: what is checked before a request is filed, and the decision where no elector begins it.

use crate::advice;
use std::{collections::BTreeSet, time::Duration};

use election_admin::{AdminError, Layout, Snapshot};
use election_core::{
    Paths,
    config::MemberId,
    internals::record::{
        AdminRequest, Current, FiledRequest, Outgoing, RequestKind, RequestState, Status, Target,
    },
};
use zk_session::BootTime;

use super::{contest, election::Operator, sites::check_sites};
use crate::{
    config::OperatorConfig,
    error::Error,
    typed::Typed,
    view::{hold_of, is_absent, statuses},
    wall::unix_ms,
    znodes::EvacuationStep,
};

/// How long a failover waits for the elector before another process decides.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The pause between two looks at a request.
const LOOK: Duration = Duration::from_millis(100);

/// Checks a request before it is written. Returns the READY leader if it matches the target already.
///
/// # Errors
/// Why the request can't be carried out now.
pub(crate) async fn check(
    operator: &Operator,
    job: &str,
    snapshot: &Snapshot,
    request: &AdminRequest,
) -> Result<Option<Current>, Error> {
    check_names(operator, job, request, snapshot)?;
    if let Some(leader) = leads_already(request, snapshot) {
        return Ok(Some(leader.clone()));
    }
    if request.kind == RequestKind::Switchover && !is_led(request, snapshot) {
        let skipped = statuses::skipped(operator.workers(), job, snapshot).await;
        if let Some(hold) = skipped.and_then(|skipped| hold_of(&skipped, job)) {
            let way_out = format!("`{}` elects a leader now", Typed::verb("failover").job(job));
            return Err(Error::NotNow(format!("{job}: no leader can hand over: {hold}; {way_out}")));
        }
    }
    Ok(None)
}

/// The sum of the policy's timeouts of a move.
pub(crate) fn longest_move(operator: &Operator, job: &str) -> Duration {
    let config = &operator.config;
    let policy = config.engine_of(job);
    config.zookeeper.session_timeout
        + policy.release_timeout
        + policy.acquire_timeout
        + policy.takeover_timeout
        + election_admin::ELECTOR_PATIENCE
}

/// The same of a step of an evacuation. Whoever has begun that may know the policy better than this process.
pub(crate) fn longest_of(operator: &Operator, step: &EvacuationStep) -> Duration {
    longest_move(operator, &step.job).max(Duration::from_millis(step.longest_ms.unwrap_or_default()))
}

/// Checks a planned request before it is written: what can't change until its time.
///
/// # Errors
/// Why the request can't be carried out at any time.
pub(crate) async fn check_plan(
    operator: &Operator,
    job: &str,
    paths: &Paths,
    request: &AdminRequest,
) -> Result<(), Error> {
    let observer = operator.observer().await?;
    if let Some(layout) = observer.layout(paths).await?.filter(|layout| *layout != Layout::Elector) {
        contest::check(job, layout, request)?;
    }
    let snapshot = observer.snapshot(paths).await?;
    check_names(operator, job, request, &snapshot)?;
    if request.from.is_only() {
        snapshot.slot_for(request)?;
    }
    Ok(())
}

/// Waits until an elector has handled the request. Returns the request as it is then.
///
/// # Errors
/// If it can't be read.
pub(crate) async fn until_begun(
    operator: &Operator,
    paths: &Paths,
    filed: &FiledRequest,
    by: BootTime,
) -> Result<Option<AdminRequest>, Error> {
    let observer = operator.observer().await?;
    loop {
        let request = observer.request(paths, &filed.which).await?;
        let begun = request.as_ref().is_some_and(|r| r.state != RequestState::Pending);
        if begun || BootTime::now() >= by {
            return Ok(request);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What became of a decision that no elector took.
pub(crate) enum Decision {
    /// It is written.
    Made,
    /// It can't be made.
    Refused(String),
    /// It may be possible later.
    NotNow(String),
    /// A leader is there, and the request does not replace it by force.
    StillLed(String),
}

/// Takes the decision about a failover instead of the elector. `announce` is called before.
///
/// # Errors
/// If ZooKeeper does not answer.
pub(crate) async fn decide(
    operator: &Operator,
    job: &str,
    paths: &Paths,
    filed: &FiledRequest,
    until: BootTime,
    announce: impl FnOnce(),
) -> Result<Decision, Error> {
    let snapshot = operator.observer().await?.snapshot(paths).await?;
    let slot = match snapshot.slot_for(&filed.request) {
        Ok(slot) => slot,
        Err(why) => return Ok(Decision::Refused(why.to_string())),
    };
    if let Some(znode) = snapshot.leader_znode(slot).filter(|_| !filed.request.force) {
        let leader = &znode.record.member;
        return Ok(Decision::StillLed(format!(
            "no elector has begun the request, and {leader} still leads; --force replaces the leader"
        )));
    }
    if let Some(why) = lacks_policy(&operator.config, job, &snapshot) {
        return Ok(Decision::NotNow(why));
    }
    announce();
    let config = operator.config.policy_of(job);
    // Only workers need the job's stop budget.
    let policy = config.engine(Duration::ZERO, false);
    let strategy = config.strategy();
    let forced =
        election_admin::force(&operator.session, paths, filed, &policy, strategy.as_ref(), until).await;
    match forced {
        Ok(()) => Ok(Decision::Made),
        Err(AdminError::Refused(why)) => Ok(Decision::Refused(why.to_string())),
        Err(AdminError::NotNow(why)) => Ok(Decision::NotNow(advice::on(&why))),
        Err(error) => Err(error.into()),
    }
}

/// Why this process can't decide in place of the elector: no living member has its policy, so a limit of theirs could be lost.
pub(crate) fn lacks_policy(config: &OperatorConfig, job: &str, snapshot: &Snapshot) -> Option<String> {
    let own = config.fingerprint_of(job);
    if snapshot.members.iter().any(|member| member.policy == own) {
        return None;
    }
    let members: Vec<_> = snapshot.members.iter().map(|member| member.member.as_str()).collect();
    let members = if members.is_empty() { "none".to_owned() } else { members.join(", ") };
    Some(format!(
        "no elector has begun it, and this process can't decide in its place: for {job} it has another policy than each living \
         member; `{}`, with the same target and options, decides on the host of a member, or with its configuration (--config); \
         members: {members}",
        Typed::verb("failover").job(job)
    ))
}

/// The READY leader to replace, if it matches the target already.
pub(crate) fn leads_already<'a>(request: &AdminRequest, snapshot: &'a Snapshot) -> Option<&'a Current> {
    let slot = snapshot.slot_for(request).ok()?;
    let leader = &snapshot.leader_znode(slot)?.record;
    let named = snapshot.decided()?.named(slot)?;
    let fits = match &request.to {
        Target::Any => false,
        Target::Member(member) => leader.member == *member,
        Target::Site(site) => leader.site == *site,
    };
    (fits && leader.status == Status::Ready && leader.ballot == named.ballot).then_some(leader)
}

fn unknown_member<'a>(
    request: &'a AdminRequest,
    members: &BTreeSet<&MemberId>,
    snapshot: &Snapshot,
) -> Option<&'a MemberId> {
    let from = match &request.from {
        Outgoing::Member(member) => Some(member),
        Outgoing::Slot(_) | Outgoing::Only => None,
    };
    let to = match &request.to {
        Target::Member(member) => Some(member),
        Target::Site(_) | Target::Any => None,
    };
    // A leader whose worker is gone is not a member any more, but can be named. It has no standby.
    let leads = request.standby_of().is_none() && snapshot.slot_for(request).is_ok();
    let is_unknown = |member: &&MemberId| !members.contains(*member);
    to.filter(is_unknown).or(from.filter(|member| !leads && is_unknown(member)))
}

/// A mistyped name is found before anything is written.
pub(crate) fn check_names(
    operator: &Operator,
    job: &str,
    request: &AdminRequest,
    snapshot: &Snapshot,
) -> Result<(), Error> {
    let members: BTreeSet<_> = snapshot.members.iter().map(|member| &member.member).collect();
    if let Some(unknown) = unknown_member(request, &members, snapshot) {
        if let Some(absent) = is_absent(unknown, snapshot, unix_ms()) {
            return Err(Error::NotNow(format!("{job}: {absent}")));
        }
        let members: Vec<_> = members.iter().map(|member| member.as_str()).collect();
        let members = if members.is_empty() { "no member takes part".to_owned() } else { members.join(", ") };
        return Err(Error::Usage(format!("{job}: unknown member {unknown}; members: {members}")));
    }
    match &request.to {
        Target::Site(site) => check_sites(operator, job, [site], snapshot, "").map_err(Error::Usage),
        Target::Member(_) | Target::Any => Ok(()),
    }
}

/// Whether the leader to replace is READY.
pub(crate) fn is_led(request: &AdminRequest, snapshot: &Snapshot) -> bool {
    let znode = snapshot.slot_for(request).ok().and_then(|slot| snapshot.leader_znode(slot));
    znode.is_some_and(|znode| znode.record.status == Status::Ready)
}

/// What is asked before a request is filed; `None` if it can't do harm that an operator may not expect.
pub(crate) fn question(job: &str, request: &AdminRequest, snapshot: &Snapshot) -> Option<String> {
    let AdminRequest { kind, force, now, .. } = request;
    let leaders = leaders_stopped(request, snapshot).join(", ");
    let danger = match kind {
        RequestKind::Failover if *force && *now => {
            ", by force, now, without waiting for the leader to stop: two programs may run until it has stopped".to_owned()
        }
        RequestKind::Failover if *force => {
            ", by force: a leader that does not stop within its stop budget is replaced, so two programs may run for a moment"
                .to_owned()
        }
        _ if leaders.is_empty() => return None,
        RequestKind::Failover => format!(": {leaders} leads, and the job stops there"),
        RequestKind::Stop => format!(": {leaders} leads; the job stops, and no other member starts it"),
        RequestKind::Restart => format!(": {leaders} leads; the job stops and starts again there"),
        RequestKind::Switchover
        | RequestKind::Start
        | RequestKind::RestartStandby
        | RequestKind::StopStandby
        | RequestKind::StartStandby => return None,
    };
    Some(format!("{}{danger}", describe(job, request)))
}

/// The READY leaders whose jobs the request stops.
fn leaders_stopped(request: &AdminRequest, snapshot: &Snapshot) -> Vec<String> {
    let slots = match snapshot.slot_for(request) {
        Ok(slot) if request.kind != RequestKind::Stop => slot..=slot,
        _ => 0..=snapshot.leader_znodes.len(),
    };
    let leaders = slots.filter_map(|slot| snapshot.leader_znode(slot));
    let ready = leaders.filter(|leader| leader.record.status == Status::Ready);
    ready.map(|leader| leader.record.member.to_string()).collect()
}

/// A request as text: `switchover of orders to west-1`.
pub(crate) fn describe(job: &str, request: &AdminRequest) -> String {
    format!(
        "{} of {job}{}{}",
        request.kind.as_str(),
        outgoing(request.kind, &request.from),
        target(&request.to)
    )
}

/// ` from ...` or ` on ...`, or nothing.
pub(crate) fn outgoing(kind: RequestKind, from: &Outgoing) -> String {
    match from {
        Outgoing::Only => String::new(),
        Outgoing::Member(member) if kind.is_about_standby() => format!(" on {member}"),
        Outgoing::Member(member) => format!(" from {member}"),
        Outgoing::Slot(slot) => format!(" of slot {slot}"),
    }
}

/// ` to ...`, or nothing.
pub(crate) fn target(to: &Target) -> String {
    match to {
        Target::Any => String::new(),
        Target::Member(member) => format!(" to {member}"),
        Target::Site(site) => format!(" to site {site}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Sources, view::sample};

    fn configured(sets: &[&str]) -> OperatorConfig {
        let sets = ["zookeeper.connect=zk1:2181"].iter().chain(sets).map(|set| (*set).to_owned()).collect();
        OperatorConfig::load(&Sources { sets, ..Sources::default() }).unwrap()
    }

    #[test]
    fn only_who_has_the_policy_of_a_living_member_decides() {
        let limit = "policy.pipeline=[{stage=\"limit\",attribute=\"load\",at_most=5}]";
        let mut snapshot = sample(&["east-1", "west-1"]);
        snapshot.members[1].policy = configured(&[limit]).fingerprint_of("orders");
        assert_eq!(lacks_policy(&configured(&[limit]), "orders", &snapshot), None);
        let why = lacks_policy(&configured(&[]), "orders", &snapshot).unwrap();
        assert!(
            why.contains("`dr-worker failover --job orders`") && why.ends_with("members: east-1, west-1"),
            "{why}"
        );
        snapshot.members.clear();
        let why = lacks_policy(&configured(&[]), "orders", &snapshot).unwrap();
        assert!(why.ends_with("members: none"), "one may join meanwhile: {why}");
    }

    /// The decision names a leader that is dead after its session has ended, when its leader znode is gone as well.
    #[test]
    fn a_dead_leader_can_be_named_as_the_one_to_replace() {
        let mut snapshot = sample(&["east-1", "west-1"]);
        snapshot.members.remove(0);
        snapshot.leader_znodes = vec![None];
        let unknown = |kind, from: &str| {
            let request = AdminRequest::new("1".to_owned(), kind, Target::Any, "ann".to_owned(), 1);
            let request = request.with(|request| request.from = Outgoing::Member(from.parse().unwrap()));
            let members = snapshot.members.iter().map(|member| &member.member).collect();
            unknown_member(&request, &members, &snapshot).is_some()
        };
        assert!(!unknown(RequestKind::Failover, "east-1"));
        assert!(!unknown(RequestKind::RestartStandby, "west-1"));
        assert!(unknown(RequestKind::Failover, "east-2") && unknown(RequestKind::RestartStandby, "east-1"));
    }
}
