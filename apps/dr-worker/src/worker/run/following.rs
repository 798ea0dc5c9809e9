//! Follows the elections of the jobs that others on this worker depend on: what this member reads of them in any case, and
//! by one watch each their standing orders and whether the leader's program is halted.

use std::{collections::BTreeSet, sync::Arc};

use election_core::{
    Election, Paths,
    internals::record::{Control, Record, RecordError},
    status::ElectionStatus,
};
use tokio::sync::watch;
use zk_session::{Closed, DataWatch, Session};

use super::task::Task;
use crate::{
    worker::state::{Others, SeenJob},
    znodes::{Halted, WorkerPaths as _},
};

/// Follows these of the elections, while the tasks run.
pub(super) fn follow<'a>(
    others: &Arc<Others>,
    session: &Session,
    wanted: &BTreeSet<String>,
    elections: impl IntoIterator<Item = (&'a str, &'a Election, &'a Paths)>,
) -> Vec<Task> {
    let followed = elections.into_iter().filter(|(job, ..)| wanted.contains(*job));
    let follow = |(job, election, paths): (&str, &Election, &Paths)| {
        let status = election.status().into();
        Task::spawn(follow_one(Arc::clone(others), job.to_owned(), status, session.clone(), paths.clone()))
    };
    followed.map(follow).collect()
}

async fn follow_one(
    others: Arc<Others>,
    job: String,
    mut status: watch::Receiver<ElectionStatus>,
    session: Session,
    paths: Paths,
) {
    let mut orders = session.watch_data(paths.control());
    let mut marks = session.watch_data(paths.halted());
    let (mut control, mut halted) = (None, None);
    loop {
        let seen = SeenJob::of(&status.borrow_and_update(), control.as_ref(), halted.as_ref());
        others.saw(&job, seen);
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            read = read::<Control>(&mut orders) => match read {
                Ok(read) => control = read.ok().map(Option::unwrap_or_default),
                Err(_) => return,
            },
            read = read::<Halted>(&mut marks) => match read {
                Ok(read) => halted = read.ok().flatten(),
                Err(_) => return,
            },
        }
    }
}

/// The next version of a record, if there is one, or why it can't be used. Cancel safe.
async fn read<R: Record>(watch: &mut DataWatch) -> Result<Result<Option<R>, RecordError>, Closed> {
    let node = watch.next_allowed().await?.value;
    let record = node.map(|node| R::decode(watch.path(), &node.data)).transpose();
    if let Err(error) = &record {
        tracing::warn!("jobs that depend on this election go on without this record: {error}");
    }
    Ok(record)
}
