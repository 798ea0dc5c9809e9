//! Removes an election that no worker takes part in.

use zk_session::{Incarnation, MultiOp, ReadOp, Session};

use crate::{
    change::Attempts,
    error::{AdminError, Hindrance, Refusal},
    observer::Snapshot,
    outline::{children, node},
};
use election_core::{
    Paths,
    internals::{BATCH, Node, ReadError, record::Control},
};

/// The znodes of an election. Other znodes below it are not deleted.
const PARTS: [&str; 10] = [
    "breadcrumbs",
    "control",
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
/// fenced. The standing orders of an election that has moved are in force at the other place.
///
/// # Errors
/// What it is needed for.
pub fn check(paths: &Paths, snapshot: &Snapshot) -> Result<(), Hindrance> {
    let Snapshot { members, control, breadcrumbs, requests, unreadable, .. } = snapshot;
    if let Some(member) = members.first() {
        return Err(Hindrance::Member(member.member.clone()));
    }
    let has_moved = control.moves_to.as_ref().is_some_and(|to| to.done);
    // Those for a term end with it.
    let lasting = control.clone().with(|control| {
        control.moved_from = None;
        control.v = Control::NONE.v;
        control.stay.clear();
        control.confirmed.clear();
        control.changed_by.clear();
        control.changed_at_ms = 0;
        control.changed_reason = None;
    });
    if !has_moved && lasting != Control::NONE {
        return Err(Hindrance::StandingOrders);
    }
    if let Some(left) = breadcrumbs.leaderships.first() {
        return Err(Hindrance::NotFenced { election: paths.name().to_owned(), member: left.member.clone() });
    }
    if let Some(open) = requests.iter().find(|filed| !filed.request.state.is_final()) {
        return Err(Hindrance::Request(open.which.name.clone()));
    }
    unreadable.first().map_or(Ok(()), |error| Err(error.clone().into()))
}

/// Removes all znodes of an election that [may be removed](check), in one transaction, with what the application keeps in
/// its `own` children. Returns how many there were. Its terms and
/// the base of its tokens are forgotten with it, except by members that remember them elsewhere.
///
/// # Errors
/// [`AdminError::NotNow`] with what it is needed for; when there is no such election, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn remove(session: &Session, paths: &Paths, own: &[&str]) -> Result<usize, AdminError> {
    let mut removed = 0;
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        // Before what is checked: what changes in between is not deleted.
        let all = tree(observer.session(), paths, own).await?;
        let snapshot = match observer.snapshot(paths).await {
            // The answer may have been lost.
            Err(ReadError::NoElection(_)) if removed > 0 => return Ok(removed),
            snapshot => snapshot?,
        };
        check(paths, &snapshot)?;
        if let Some((path, _)) = all.iter().find(|(_, node)| node.owner != 0) {
            return Err(Hindrance::Held(path.clone()).into());
        }
        // What is added meanwhile keeps its parent.
        let deletions = all.iter().rev().map(|(path, node)| MultiOp::delete(path, node.version));
        removed = all.len();
        if attempts.write(deletions).await? {
            return Ok(removed);
        }
    }
}

/// All znodes of an election, parents first.
async fn tree(session: &Incarnation, paths: &Paths, own: &[&str]) -> Result<Vec<(String, Node)>, AdminError> {
    let (mut all, mut next) = (Vec::new(), vec![paths.base().to_owned()]);
    while !next.is_empty() {
        let mut below = Vec::new();
        for group in next.chunks(BATCH) {
            let reads = group.iter().flat_map(|path| [ReadOp::get(path), ReadOp::children(path)]);
            let mut results = session.multi_read(reads).await?.into_iter();
            for path in group {
                let found = results.next().and_then(node);
                let names = results.next().map(children).unwrap_or_default();
                let is_part =
                    |name: &str| path != paths.base() || PARTS.iter().chain(own).any(|p| *p == name);
                if let Some(foreign) = names.iter().find(|name| !is_part(name)) {
                    return Err(Refusal::ForeignZnode(format!("{path}/{foreign}")).into());
                }
                below.extend(names.into_iter().map(|name| format!("{path}/{name}")));
                all.extend(found.map(|node| (path.clone(), node)));
            }
        }
        next = below;
    }
    Ok(all)
}
