//! Whether a member that leads by the records does lead, for commands that wait for that.

use std::time::Duration;

use election_core::{
    Paths,
    internals::record::{Current, Status},
};
use zk_session::BootTime;

use crate::{commands::Operator, error::Error, view::statuses::state_of};

/// The states of a process whose job runs, has done its work, or is stopped by an order.
const SETTLED: [&str; 3] = ["running", "exited", "stopped"];

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until it is proved that this slot has a READY leader whose job runs: its worker reports that, or its session
/// outlives its timeout. A leader znode alone remains for a session timeout after its worker is lost.
///
/// # Errors
/// [`Error::NotNow`] once `leader`, if one is expected, has lost leadership, or by the end of the wait.
pub(super) async fn until_proved(
    operator: &Operator,
    job: &str,
    paths: &Paths,
    slot: usize,
    expected: Option<&Current>,
    until: BootTime,
) -> Result<Current, Error> {
    // A server ends a session up to a tick after its timeout.
    let outlived = operator.config.zookeeper.session_timeout + operator.config.zookeeper.tick_time;
    let mut seen: Option<(Current, BootTime)> = None;
    loop {
        let snapshot = operator.observer().await?.snapshot(paths).await?;
        let now = BootTime::now();
        let leader = snapshot.leader_znode(slot).map(|znode| &znode.record);
        let is_other =
            |known: &Current, leader: &Current| (&known.ballot, known.term) != (&leader.ballot, leader.term);
        if let Some(expected) = expected
            && leader.is_none_or(|leader| is_other(expected, leader))
        {
            return Err(Error::NotNow(format!(
                "{job}: {} held the leader znode, and has lost it: its session has ended",
                expected.member
            )));
        }
        let why = match leader {
            None => "no member leads".to_owned(),
            Some(leader) if leader.status != Status::Ready => format!("{} is taking over", leader.member),
            Some(leader) => {
                if seen.as_ref().is_none_or(|(known, _)| is_other(known, leader)) {
                    seen = Some((leader.clone(), now));
                }
                let since = seen.as_ref().map_or(now, |(_, since)| *since);
                let member = &leader.member;
                match state_of(operator.workers(), job, &snapshot, leader).await {
                    Some(state) if SETTLED.contains(&state.as_str()) => return Ok(leader.clone()),
                    Some(state) => format!("the job on {member} is in state {state}"),
                    None if now.duration_since(since) >= outlived => return Ok(leader.clone()),
                    None => format!("the worker of {member} does not answer, and its session may have ended"),
                }
            }
        };
        if BootTime::now() >= until {
            return Err(Error::NotNow(format!("{job}: {why}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}
