//! Keeps the roster of an election: which members take part, and since when others are absent. Operators read it; no decision
//! uses it.
//!
//! One znode for all members is one write for a site that is lost or starts, a second after the membership has changed and
//! only where it differs from what is written. An elector that was lost is in it for its successor, which has never read its
//! record; a worker that stops adds that itself. What a reader finds in `nodes` is present, whatever the roster says.

use std::time::Duration;

use election_admin::{AdminError, roster};
use election_core::{
    Election, Paths,
    status::{Ballot, ElectionStatus},
};
use futures_util::{StreamExt as _, stream};
use tokio::time::{sleep, timeout};
use zk_session::Session;

use crate::{config::Recipe, wall::unix_ms, worker::state::Worker};

/// From a change of the membership to the look at it: a takeover has more urgent requests, and several changes are written
/// at once.
const SETTLE: Duration = Duration::from_secs(1);

/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// How long the notes of a worker that stops may take.
const SIGN_OFF_WITHIN: Duration = Duration::from_secs(1);

/// How many elections are written at a time.
const AT_ONCE: usize = 64;

/// Keeps it whenever this member is the elector, until it is dropped. It writes only what has changed.
pub(super) async fn keep(session: Session, paths: Paths, election: Election) {
    let mut status = election.status();
    loop {
        let Some(ballot) = as_elector(&status.now()) else {
            if status.changed().await.is_none() {
                return;
            }
            continue;
        };
        tokio::select! {
            // Most members of thousands of elections are not electors.
            () = Box::pin(keep_as(&ballot, &session, &paths)) => return,
            still = async {
                while as_elector(&status.now()).as_ref() == Some(&ballot) {
                    if status.changed().await.is_none() {
                        return false;
                    }
                }
                true
            } => if !still { return },
        }
    }
}

fn as_elector(status: &ElectionStatus) -> Option<Ballot> {
    status.ballot.clone().filter(|_| status.is_elector)
}

async fn keep_as(ballot: &Ballot, session: &Session, paths: &Paths) {
    let mut members = session.watch_children(paths.nodes());
    let mut failed = false;
    loop {
        tokio::select! {
            seen = members.next_allowed() => if seen.is_err() { return },
            () = sleep(AGAIN), if failed => {}
        }
        let noticed_ms = unix_ms();
        sleep(SETTLE).await;
        failed = match session.incarnation() {
            Some(incarnation) => {
                let updated = Box::pin(roster::update(&incarnation, paths, ballot, noticed_ms)).await;
                log(paths, &updated);
                updated.is_err()
            }
            None => true,
        };
    }
}

/// Notes that this worker takes part no more, after it has left the elections of these jobs.
pub(super) async fn sign_off(session: &Session, worker: &Worker, has_left: impl Fn(&str) -> bool) {
    let Some(incarnation) = session.incarnation().filter(|_| worker.is_active()) else { return };
    let (config, node, now_ms) = (worker.config(), worker.node(), unix_ms());
    let left = config.jobs.iter().filter(|job| has_left(job.name()));
    let with_elector = left.filter(|job| job.recipe == Recipe::Elector);
    let all = stream::iter(with_elector).for_each_concurrent(AT_ONCE, async |job| {
        if let Ok(paths) = Paths::new(worker.root(), job.name()) {
            log(&paths, &roster::sign_off(&incarnation, &paths, (&node.id, &node.site), now_ms).await);
        }
    });
    let _ = timeout(SIGN_OFF_WITHIN, all).await;
}

fn log(paths: &Paths, written: &Result<(), AdminError>) {
    if let Err(error) = written {
        tracing::debug!(election = paths.base(), %error, "the roster is not up to date");
    }
}
