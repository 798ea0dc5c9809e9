//! `switchover` and `failover` where no elector decides.

use election_core::{
    Paths,
    operator::{self, Layout},
    record::{Current, Request, RequestKind, Status, Target},
};
use serde_json::json;
use zk_session::BootTime;

use super::{Output, election::Operator, output, request::Move};
use crate::error::Error;

/// Between two looks at who leads.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// Takes the place from who leads, if that is what is asked for; all else takes an elector.
pub(super) async fn move_on(
    operator: &Operator,
    job: &str,
    paths: &Paths,
    layout: Layout,
    wanted: &Move,
    request: &Request,
    how: Output,
) -> Result<(), Error> {
    let recipe = format!("{job} is held by the recipe {:?}", layout.as_str());
    let follows = match layout {
        Layout::Queue => "whoever stands next in its queue follows",
        Layout::Single | Layout::Elector => "whoever is quickest follows",
    };
    if request.to != Target::Any {
        return Err(Error::Usage(format!(
            "{recipe}: {follows}, and nobody can be chosen by --to or --to-site; the recipe \"elector\" can"
        )));
    }
    if request.kind == RequestKind::Switchover {
        return Err(Error::Usage(format!(
            "{recipe}, which has no elector to ask the leader to hand over. End the leader's worker: it stops \
             its job, then {follows}. Or take its place from it by `dr-worker failover --force`"
        )));
    }
    if !request.force {
        return Err(Error::Usage(format!(
            "{recipe}: {follows} by itself once the leader is gone. `dr-worker failover --force` takes the place \
             from a leader that is not"
        )));
    }
    let old = operator::vacate(&operator.session, paths).await?;
    output::say(format_args!("took {job} from {}; {follows}", old.member));
    if !wanted.wait {
        return report(job, &old, None, how);
    }
    let config = &operator.config;
    let usual = config.zookeeper.session_timeout + config.policy_of(job).takeover_timeout;
    let by = BootTime::now() + wanted.timeout.unwrap_or(usual);
    let new = until_ready(operator, paths, &old, by).await?;
    report(job, &old, Some(&new), how)
}

async fn until_ready(
    operator: &Operator,
    paths: &Paths,
    old: &Current,
    by: BootTime,
) -> Result<Current, Error> {
    loop {
        let snapshot = operator.observer().await?.snapshot(paths).await?;
        let first = snapshot.leader_znodes.into_iter().next().flatten();
        let leader_znode =
            first.map(|leader_znode| leader_znode.record).filter(|leader_znode| leader_znode.term > old.term);
        match leader_znode {
            Some(new) if new.status == Status::Ready => return Ok(new),
            _ if BootTime::now() < by => tokio::time::sleep(LOOK).await,
            Some(new) => {
                return Err(Error::NotNow(format!("{} takes over, and is not ready yet", new.member)));
            }
            None => {
                return Err(Error::NotNow(format!(
                    "the place was taken from {}, and nobody has come to lead yet",
                    old.member
                )));
            }
        }
    }
}

fn report(job: &str, old: &Current, new: Option<&Current>, how: Output) -> Result<(), Error> {
    match (how, new) {
        (Output::Json, _) => output::print_json(&json!({
            "election": job,
            "taken_from": old.member,
            "leader": new.map(|new| &new.member),
            "term": new.map(|new| new.term),
        })),
        (Output::Pretty, Some(new)) => {
            output::print(format_args!("{} leads {job} in term {}", new.member, new.term))
        }
        (Output::Pretty, None) => Ok(()),
    }
}
