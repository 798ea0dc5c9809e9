//! Removes an election that nobody needs any more.

use zk_session::{Incarnation, MultiOp, OpError, ReadOp, Session};

use crate::{
    error::{OperatorError, TRIES, is_worth_another_look, pause, too_many_races},
    observer::{Observer, Snapshot},
    outline::{children, node},
};
use election_core::{
    Paths,
    internals::{BATCH, Node, ReadError},
    record::Control,
};

/// The parts of an election. What else is below it belongs to others.
const PARTS: [&str; 12] = [
    "breadcrumbs",
    "config",
    "control",
    "drill",
    "election",
    "history",
    "leader",
    "nodes",
    "queue",
    "requests",
    "roster",
    "tokens",
];

/// Whether an election may be removed: it has no member, no standing orders, no open request and no former leader that must be
/// fenced.
///
/// # Errors
/// [`OperatorError::NotNow`] with what it is needed for.
pub fn check(snapshot: &Snapshot) -> Result<(), OperatorError> {
    hindrance(snapshot).map_or(Ok(()), |why| Err(OperatorError::NotNow(why)))
}

/// What the election is needed for.
fn hindrance(snapshot: &Snapshot) -> Option<String> {
    let Snapshot { members, control, breadcrumbs, requests, unreadable, .. } = snapshot;
    if let Some(member) = members.first() {
        return Some(format!("{} is a member: stop its worker first", member.member));
    }
    // Those for a term end with it.
    let lasting = control.clone().with(|control| {
        control.v = Control::NONE.v;
        control.stay.clear();
        control.confirmed.clear();
        control.changed_by.clear();
        control.changed_at_ms = 0;
        control.changed_reason = None;
    });
    if lasting != Control::NONE {
        return Some("standing orders are in force; end them first".to_owned());
    }
    if let Some(left) = breadcrumbs.leaderships.first() {
        return Some(format!(
            "{} may still run the job; make sure that it is off, and confirm that with `ack --fenced` first",
            left.member
        ));
    }
    if let Some(open) = requests.iter().find(|filed| !filed.request.state.is_final()) {
        return Some(format!("request {} is open; cancel it first", open.which.name));
    }
    unreadable.first().map(ToString::to_string)
}

/// Removes all znodes of an election that [may be removed](check), in one transaction. Returns how many there were. Its terms and
/// the base of its tokens are forgotten with it, except by members that remember them elsewhere.
///
/// # Errors
/// [`OperatorError::NotNow`] with what it is needed for; when there is no such election, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn remove(session: &Session, paths: &Paths) -> Result<usize, OperatorError> {
    let mut removed = 0;
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        // Before what is checked: what changes in between is not deleted.
        let all = tree(&incarnation, paths).await?;
        let snapshot = match Observer::new(incarnation.clone()).snapshot(paths).await {
            // The answer may have been lost.
            Err(ReadError::NoElection(_)) if removed > 0 => return Ok(removed),
            snapshot => snapshot?,
        };
        check(&snapshot)?;
        if let Some((path, _)) = all.iter().find(|(_, node)| node.owner != 0) {
            return Err(OperatorError::NotNow(format!("a session holds {path}")));
        }
        // What is added meanwhile keeps its parent.
        let deletions = all.iter().rev().map(|(path, node)| MultiOp::delete(path, node.version));
        removed = all.len();
        match incarnation.multi(deletions).await {
            Ok(_) => return Ok(removed),
            Err(error) if is_worth_another_look(&error) || matches!(error, OpError::NotEmpty { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// All znodes of an election, parents first.
async fn tree(session: &Incarnation, paths: &Paths) -> Result<Vec<(String, Node)>, OperatorError> {
    let (mut all, mut next) = (Vec::new(), vec![paths.base().to_owned()]);
    while !next.is_empty() {
        let mut below = Vec::new();
        for group in next.chunks(BATCH) {
            let reads = group.iter().flat_map(|path| [ReadOp::get(path), ReadOp::children(path)]);
            let mut results = session.multi_read(reads).await?.into_iter();
            for path in group {
                let found = results.next().and_then(node);
                let names = results.next().map(children).unwrap_or_default();
                let foreign =
                    names.iter().find(|name| path == paths.base() && !PARTS.contains(&name.as_str()));
                if let Some(foreign) = foreign {
                    return Err(OperatorError::Refused(format!(
                        "{path}/{foreign} is no part of an election"
                    )));
                }
                below.extend(names.into_iter().map(|name| format!("{path}/{name}")));
                all.extend(found.map(|node| (path.clone(), node)));
            }
        }
        next = below;
    }
    Ok(all)
}
