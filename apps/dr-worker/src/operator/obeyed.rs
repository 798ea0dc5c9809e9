//! `--wait` of a standing order: until its elector has carried it out.

use std::time::Duration;

use election_admin::Snapshot;
use election_core::{
    config::{MemberId, SiteId},
    internals::record::{Control, Current, Status},
    status::Reason,
};
use zk_session::BootTime;

use super::output;
use crate::{
    advice,
    commands::{Operator, moves::longest_move},
    error::Error,
    view::{Explained, statuses::WorkerStatuses},
    wall::unix_ms,
};

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// For how long nothing may be left to do: the elector reads an order soon, and its worker reports what it then waits for.
const SETTLED: Duration = Duration::from_secs(1);

/// Waits until nothing is left to do in this election, for the policy's timeouts of a move unless otherwise said.
///
/// # Errors
/// [`Error::NotNow`] with what is left at the end of the wait.
pub(super) async fn until_obeyed(
    operator: &Operator,
    job: &str,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let until = BootTime::now() + timeout.unwrap_or_else(|| longest_move(operator, job));
    let paths = operator.paths(job)?;
    let (mut settled, mut reported) = (None, String::new());
    loop {
        let snapshot = operator.observer().await?.snapshot(&paths).await?;
        let now = BootTime::now();
        match left_to_do(operator, job, &snapshot).await {
            None if now.duration_since(*settled.get_or_insert(now)) >= SETTLED => return Ok(()),
            None => {}
            Some(why) if now >= until => {
                return Err(Error::NotNow(format!(
                    "{job}: the order is in force, but not carried out yet: {why}"
                )));
            }
            Some(why) => {
                settled = None;
                if reported != why {
                    output::print_progress(format_args!("{job}: waiting: {why}"));
                    reported = why;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What an elector or a member still has to do.
async fn left_to_do(operator: &Operator, job: &str, snapshot: &Snapshot) -> Option<String> {
    let leader = |slot| snapshot.leader_znode(slot).map(|znode| &znode.record);
    let is_ready = |leader: &Current| leader.status == Status::Ready;
    let decided = snapshot.decided();
    let taking_over = decided.into_iter().flat_map(|elected| elected.leaders()).find(|(slot, named)| {
        leader(*slot).is_none_or(|leader| leader.ballot != named.ballot || !is_ready(leader))
    });
    if let Some((_, named)) = taking_over {
        return Some(format!("{} of site {} has yet to take over", named.member, named.site));
    }
    let next = Explained::new(job, snapshot, &operator.config, unix_ms()).next;
    let told = WorkerStatuses::new(operator.workers()).skipped(job, snapshot).await;
    let leaders = snapshot.leader_znodes.iter().flatten().map(|znode| &znode.record);
    let is_barred = |leader: &&Current| is_barred(&snapshot.control, &leader.member, &leader.site);
    if let Some(leader) = leaders.into_iter().find(is_barred) {
        let why = told.map_or(next.sentence, |told| advice::beside(told.reason, &told.sentence, job));
        return Some(format!("{} of site {} leads on: {why}", leader.member, leader.site));
    }
    match told {
        // Its own policy decides, and not the configuration here.
        Some(told) => {
            let moves = [Reason::Release, Reason::Acquire, Reason::Takeover].contains(&told.reason);
            moves.then_some(told.sentence)
        }
        None => next.acts.then_some(next.sentence),
    }
}

/// Whether this member may not lead by the orders.
pub(super) fn is_barred(control: &Control, member: &MemberId, site: &SiteId) -> bool {
    control.serviced(member).is_some()
        || control.drained.contains(site)
        || control.failed_sites.iter().any(|failed| failed.site == *site)
}
