//! `switchover` and `failover` for recipes without an elector.

use election_admin::Layout;
use election_core::{
    Paths,
    internals::record::{AdminRequest, Current, Status},
};
use serde_json::json;
use zk_session::BootTime;

use super::output::{self, Output};
use crate::{
    commands::{Operator, contest, operation::Election, options::Options},
    error::Error,
};

/// The pause between two reads of the leader.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// Takes leadership from the leader, if that is requested; any other move needs an elector.
pub(super) async fn move_on(
    of: &Election<'_>,
    layout: Layout,
    request: &AdminRequest,
    options: &Options,
    how: Output,
) -> Result<(), Error> {
    let Election { operator, job, paths, .. } = of;
    let follows = contest::check(job, layout, request)?;
    let old = election_admin::vacate(&operator.session, paths).await?;
    output::print_progress(format_args!("took {job} from {}; {follows}", old.member));
    if !options.wait {
        return report(job, &old, None, how);
    }
    let config = &operator.config;
    let usual = config.zookeeper.session_timeout + config.engine_of(job).takeover_timeout;
    let by = BootTime::now() + options.timeout.unwrap_or(usual);
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
        let leader = first.map(|znode| znode.record).filter(|leader| leader.term > old.term);
        let why = match leader {
            Some(new) if new.status == Status::Ready => return Ok(new),
            Some(new) => format!("{} is taking over, and not ready yet", new.member),
            None => format!("leadership was taken from {}, and no member has taken over yet", old.member),
        };
        if BootTime::now() >= by {
            return Err(Error::NotNow(why));
        }
        tokio::time::sleep(LOOK).await;
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
