//! Drills: the order that is under way in an election, and what its members answer.

use election_admin::{AdminError, Attempts, Known, Observer, ReadError};
use election_core::{
    Paths,
    config::MemberId,
    internals::{
        children as names, node,
        record::{Record as _, RecordError},
        unix_ms,
    },
};
use zk_session::{CreateMode, Incarnation, MultiOp, ReadOp, Session};

use super::{DrillAnswer, DrillOrder, WorkerPaths as _};

/// Reads the order that is under way; `None` if there is none. It may be over: see [`DrillOrder::is_over`].
///
/// # Errors
/// When it can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn order(session: &Incarnation, paths: &Paths) -> Result<Option<DrillOrder>, AdminError> {
    Ok(Observer::new(session.clone()).record(&paths.drill_order()).await?)
}

/// Reads the members' answers to a run, and those that can't be used.
///
/// # Errors
/// When they can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn answers(
    session: &Incarnation,
    paths: &Paths,
    run: &str,
) -> Result<(Vec<DrillAnswer>, Vec<RecordError>), AdminError> {
    let (mut answers, mut unreadable) = (Vec::new(), Vec::new());
    let found = children(session, &paths.drill_answers()).await?;
    for batch in found.chunks(64) {
        let nodes = session.multi_read(batch.iter().map(ReadOp::get)).await?;
        for (path, node) in batch.iter().zip(nodes.into_iter().map(node)) {
            // It may have been removed meanwhile.
            let Some(node) = node else { continue };
            match DrillAnswer::decode(path, &node.data) {
                Ok(answer) if answer.run == run => answers.push(answer),
                Ok(_) => {}
                Err(error) => unreadable.push(error),
            }
        }
    }
    Ok((answers, unreadable))
}

/// Gives an order, and removes what was answered to the one before. An order whose time is over is replaced. Returns the
/// order of another drill that is under way, if there is one: then nothing is done.
///
/// # Errors
/// When there is no such election, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. An order with the same `run` is not given twice.
pub(crate) async fn begin(
    session: &Session,
    paths: &Paths,
    order: &DrillOrder,
) -> Result<Option<DrillOrder>, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let incarnation = observer.session();
        if observer.layout(paths).await?.is_none() {
            return Err(ReadError::NoElection(paths.base().to_owned()).into());
        }
        incarnation.create_parents(&paths.drill_answers()).await?;
        let parent = MultiOp::create(paths.drill_answers(), Vec::new(), CreateMode::Persistent);
        let parent = observer.read(&paths.drill_answers()).await?.is_none().then_some(parent);
        let known: Known<DrillOrder> = observer.known(paths.drill_order()).await?;
        match known.record() {
            Ok(Some(present)) if present == *order => return Ok(None),
            Ok(Some(present)) if !present.is_over(unix_ms()) => return Ok(Some(present)),
            // Nothing obeys it.
            Ok(_) | Err(_) => {}
        }
        let old = children(incarnation, &paths.drill_answers()).await?;
        let old = old.into_iter().map(|path| MultiOp::delete(path, None));
        let group = parent.into_iter().chain(old).chain([known.replace(order)?]);
        if attempts.write(group).await? {
            return Ok(None);
        }
    }
}

/// Lets the members of this run's order carry it out. Returns whether the order was there.
///
/// # Errors
/// When ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub(crate) async fn go(session: &Session, paths: &Paths, run: &str) -> Result<bool, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<DrillOrder> = observer.known(paths.drill_order()).await?;
        let present = known.record().ok().flatten().filter(|order| order.run == run);
        match present {
            None => return Ok(false),
            Some(order) if order.go => return Ok(true),
            Some(order) => {
                attempts.write([known.replace(&DrillOrder { go: true, ..order })?]).await?;
            }
        }
    }
}

/// Ends a drill: removes the order of this run. The answers remain until the next order. Returns whether it was there.
///
/// # Errors
/// When ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub(crate) async fn end(session: &Session, paths: &Paths, run: &str) -> Result<bool, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<DrillOrder> = observer.known(paths.drill_order()).await?;
        let Some(node) = known.node() else { return Ok(false) };
        if known.record().is_ok_and(|order| order.is_some_and(|order| order.run != run)) {
            return Ok(false);
        }
        if attempts.write([MultiOp::delete(paths.drill_order(), node.version)]).await? {
            return Ok(true);
        }
    }
}

/// Writes a member's answer, while the order of its run exists; after that only if the member has answered it before, and
/// no other order was given. Returns whether it was written.
///
/// # Errors
/// When ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub(crate) async fn answer(
    session: &Incarnation,
    paths: &Paths,
    answer: &DrillAnswer,
) -> Result<bool, AdminError> {
    let mut attempts = Attempts::within(session);
    loop {
        let observer = attempts.look().await?;
        let (order_path, path) = (paths.drill_order(), paths.drill_answer(&answer.member));
        let nodes = observer.session().multi_read([&order_path, &path].map(ReadOp::get)).await?;
        let mut nodes = nodes.into_iter().map(node);
        let order = Known::<DrillOrder>::new(&order_path, nodes.next().flatten());
        let known = Known::<DrillAnswer>::new(&path, nodes.next().flatten());
        let is_own = |run: &str| run == answer.run;
        let ordered = order.record().ok().flatten().is_some_and(|order| is_own(&order.run));
        let answered = known.record().ok().flatten().is_some_and(|known| is_own(&known.run));
        let mut group = Vec::new();
        // The next order removes all answers, so one that is there and is changed belongs to no later run.
        match (order.node().filter(|_| ordered), known.node()) {
            (Some(order), None) => group.push(MultiOp::check(&order_path, order.version)),
            (Some(_), Some(_)) => {}
            (None, Some(_)) if answered => {}
            (None, _) => return Ok(false),
        }
        group.push(known.replace(answer)?);
        if attempts.write(group).await? {
            return Ok(true);
        }
    }
}

/// Reads a member's answer to a run; `None` if there is none, or it can't be used.
///
/// # Errors
/// When it can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn answer_of(
    session: &Incarnation,
    paths: &Paths,
    member: &MemberId,
    run: &str,
) -> Result<Option<DrillAnswer>, AdminError> {
    let path = paths.drill_answer(member);
    let node = Observer::new(session.clone()).read(&path).await?;
    let answer = node.and_then(|node| DrillAnswer::decode(&path, &node.data).ok());
    Ok(answer.filter(|answer| answer.run == run))
}

/// The paths of the children of a znode; none if it does not exist.
async fn children(session: &Incarnation, path: &str) -> Result<Vec<String>, AdminError> {
    let found = session.multi_read([ReadOp::children(path)]).await?.into_iter().flat_map(names);
    Ok(found.map(|name| format!("{path}/{name}")).collect())
}
