//! Drills: the order that is under way in an election, and what its members answer.

use zk_session::{CreateMode, Incarnation, MultiOp, ReadOp, ReadResult, Session};

use crate::{
    error::{OperatorError, TRIES, is_worth_another_look, pause, too_many_races},
    observer::Observer,
    outline,
};
use election_core::{
    MemberId, Paths,
    internals::{ReadError, unix_ms},
    record::{DrillAnswer, DrillOrder, Record as _, RecordError},
};

/// Reads the order that is under way; `None` if there is none. It may be over: see [`DrillOrder::is_over`].
///
/// # Errors
/// When it can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn order(session: &Incarnation, paths: &Paths) -> Result<Option<DrillOrder>, OperatorError> {
    Observer::new(session.clone()).record(&paths.drill_order()).await
}

/// Reads the members' answers to a run, and those that can't be used.
///
/// # Errors
/// When they can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn answers(
    session: &Incarnation,
    paths: &Paths,
    run: &str,
) -> Result<(Vec<DrillAnswer>, Vec<RecordError>), OperatorError> {
    let (mut answers, mut unreadable) = (Vec::new(), Vec::new());
    let found = children(session, &paths.drill_answers()).await?;
    for batch in found.chunks(64) {
        let nodes = session.multi_read(batch.iter().map(ReadOp::get)).await?;
        for (path, node) in batch.iter().zip(nodes.into_iter().map(outline::node)) {
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

/// Gives an order, and removes what was answered to the one before. An order whose time is over is replaced.
///
/// # Errors
/// [`OperatorError::NotNow`] while another drill is under way; when there is no such election, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. An order with the same `run` is not given twice.
pub async fn begin(session: &Session, paths: &Paths, order: &DrillOrder) -> Result<(), OperatorError> {
    let path = paths.drill_order();
    let data = order.encode(&path)?;
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        if observer.layout(paths).await?.is_none() {
            return Err(ReadError::NoElection(paths.base().to_owned()).into());
        }
        incarnation.create_parents(&paths.drill_answers()).await?;
        let parent = MultiOp::create(paths.drill_answers(), Vec::new(), CreateMode::Persistent);
        let parent = incarnation.get(&paths.drill_answers()).await?.is_none().then_some(parent);
        let present = observer.read(&path).await?;
        let written = match &present {
            None => MultiOp::create(&path, data.clone(), CreateMode::Persistent),
            Some(node) => {
                match DrillOrder::decode(&path, &node.data) {
                    Ok(present) if present == *order => return Ok(()),
                    Ok(present) if !present.is_over(unix_ms()) => {
                        let DrillOrder { run, by, mode, .. } = present;
                        let mode = mode.as_str();
                        return Err(OperatorError::NotNow(format!(
                            "drill {run} ({mode}) of {by} is under way; wait for its end, or end it first"
                        )));
                    }
                    // Nothing obeys it.
                    Ok(_) | Err(_) => {}
                }
                MultiOp::set(&path, data.clone(), node.version)
            }
        };
        let old = children(&incarnation, &paths.drill_answers()).await?;
        let old = old.into_iter().map(|path| MultiOp::delete(path, None));
        match incarnation.multi(parent.into_iter().chain(old).chain([written])).await {
            Ok(_) => return Ok(()),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Ends a drill: removes the order of this run. The answers remain until the next order. Returns whether it was there.
///
/// # Errors
/// When ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn end(session: &Session, paths: &Paths, run: &str) -> Result<bool, OperatorError> {
    let path = paths.drill_order();
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let Some(node) = Observer::new(incarnation.clone()).read(&path).await? else { return Ok(false) };
        if DrillOrder::decode(&path, &node.data).is_ok_and(|order| order.run != run) {
            return Ok(false);
        }
        match incarnation.delete(&path, Some(node.version)).await {
            Ok(()) => return Ok(true),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Writes a member's answer, while the order of its run exists; after that only if the member has answered it before, and
/// no other order was given. Returns whether it was written.
///
/// # Errors
/// When ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn answer(
    session: &Incarnation,
    paths: &Paths,
    answer: &DrillAnswer,
) -> Result<bool, OperatorError> {
    let (order_path, path) = (paths.drill_order(), paths.drill_answer(&answer.member));
    let data = answer.encode(&path)?;
    for attempt in 0..TRIES {
        let nodes = session.multi_read([&order_path, &path].map(ReadOp::get)).await?;
        let mut nodes = nodes.into_iter().map(outline::node);
        let (order, present) = (nodes.next().flatten(), nodes.next().flatten());
        let is_own = |run: Option<String>| run.is_some_and(|run| run == answer.run);
        let order =
            order.filter(|node| is_own(DrillOrder::decode(&order_path, &node.data).ok().map(|o| o.run)));
        let known = present.as_ref().and_then(|node| DrillAnswer::decode(&path, &node.data).ok());
        // The next order removes all answers, so one that is there and is changed belongs to no later run.
        let group = match (order, present) {
            (Some(order), None) => vec![
                MultiOp::check(&order_path, order.version),
                MultiOp::create(&path, data.clone(), CreateMode::Persistent),
            ],
            (Some(_), Some(node)) => vec![MultiOp::set(&path, data.clone(), node.version)],
            (None, Some(node)) if is_own(known.map(|known| known.run)) => {
                vec![MultiOp::set(&path, data.clone(), node.version)]
            }
            (None, _) => return Ok(false),
        };
        match session.multi(group).await {
            Ok(_) => return Ok(true),
            Err(error) if is_worth_another_look(&error) => session.barrier().await?,
            Err(error) => return Err(error.into()),
        };
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Reads a member's answer to a run; `None` if there is none, or it can't be used.
///
/// # Errors
/// When it can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn answer_of(
    session: &Incarnation,
    paths: &Paths,
    member: &MemberId,
    run: &str,
) -> Result<Option<DrillAnswer>, OperatorError> {
    let path = paths.drill_answer(member);
    let node = Observer::new(session.clone()).read(&path).await?;
    let answer = node.and_then(|node| DrillAnswer::decode(&path, &node.data).ok());
    Ok(answer.filter(|answer| answer.run == run))
}

/// The paths of the children of a znode; none if it does not exist.
async fn children(session: &Incarnation, path: &str) -> Result<Vec<String>, OperatorError> {
    let names = session.multi_read([ReadOp::children(path)]).await?.into_iter().next();
    let names = names.map(|found: ReadResult| outline::children(found)).unwrap_or_default();
    Ok(names.into_iter().map(|name| format!("{path}/{name}")).collect())
}
