//! How an election moves to another ensemble or another root, in steps that can be repeated.
//!
//! ```text
//! there:  prepare ───────────────────────────▶ arrive: members there may lead from now on
//! here:   ──────────▶ close ──▶ end ─────────────────▶ finish
//! ```
//!
//! Both elections are closed from [`prepare`] and [`close`] on: no member is named. [`end`] proves, and makes sure for good, that
//! no member leads or can lead here, above which tokens the election goes on, and which orders go along. [`arrive`] opens the
//! other election only as it was before that proof, so [`call_off`] can prevent it: one of the two comes first.

use election_core::{
    Paths,
    config::MemberId,
    internals::{
        ByOperator, children, move_away, move_in, node,
        record::{Control, Current, Elected, MAX_SLOTS, Mode, Move, Place, Record as _},
        unix_ms,
    },
};
use zk_session::{CreateMode, MultiOp, ReadOp, Session};

use crate::{
    change::Attempts,
    error::{AdminError, Hindrance},
    known::Known,
    observer::Snapshot,
    orders::{self, altered},
    record::Breadcrumbs,
};

/// Where an election or a root is: the identity by which the other side of a move knows it. `servers` is how operators name its
/// ensemble. `None` if it does not exist.
///
/// # Errors
/// When ZooKeeper doesn't answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn place(session: &Session, servers: &str, path: &str) -> Result<Option<Place>, AdminError> {
    let observer = Attempts::over(session).look().await?;
    let stat = observer.session().exists(path).await?;
    Ok(stat.map(|stat| Place {
        servers: servers.to_owned(),
        path: path.to_owned(),
        czxid: stat.czxid,
        created_ms: u64::try_from(stat.ctime_ms).unwrap_or(0),
    }))
}

/// The move of an election to this place, if its orders have that move.
pub fn departure<'a>(orders: &'a Control, to: &Place) -> Option<&'a Move> {
    orders.moves_to.as_ref().filter(|going| going.place.is_same(to))
}

/// The move of an election from this place, if its orders have that move.
pub fn arrival<'a>(orders: &'a Control, from: &Place) -> Option<&'a Move> {
    orders.moved_from.as_ref().filter(|known| known.place.is_same(from))
}

/// Fails unless the election moves to this place.
fn departs(orders: &Control, to: &Place) -> Result<(), AdminError> {
    departure(orders, to).map(drop).ok_or_else(|| Hindrance::MoveChanged.into())
}

/// Creates the election to which another one moves: closed, and with the terms and the tokens above those that the other one
/// has now. Changes nothing if that was done before.
///
/// # Errors
/// [`Hindrance::MoveChanged`] if it comes from a third place; when its records can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn prepare(
    session: &Session,
    paths: &Paths,
    from: &Move,
    present: &Snapshot,
    by: &str,
) -> Result<(), AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let orders: Known<Control> = observer.known(paths.control()).await?;
        let control = orders.record_or_default()?;
        if control.moved_from.is_some() {
            return arrival(&control, &from.place).map(drop).ok_or_else(|| Hindrance::MoveChanged.into());
        }
        let decided = observer.decision(paths).await?;
        let sentence = format!("the election moves here from {}", from.place);
        let decides = ByOperator { sentence: &sentence, by, unix_ms: unix_ms() };
        let token = (0..present.leader_znodes.len()).filter_map(|slot| present.fencing_token(slot)).max();
        let token = token.unwrap_or(0).max(present.token_base());
        let mut next = move_in(decided.record()?.as_ref(), present.decided(), token, decides)?;
        let close = |control: &mut Control| {
            // A member that is restarted there must not start it.
            control.stopped_standbys.clone_from(&present.control.stopped_standbys);
            control.moved_from = Some(from.clone());
        };
        let Some(closed) = altered(&orders, by, None, close)? else { return Ok(()) };
        orders.make_parents(observer.session()).await?;
        decided.make_parents(observer.session()).await?;
        if attempts.write([closed.write].into_iter().chain(decided.replace(&mut next)?)).await? {
            return Ok(());
        }
    }
}

/// Closes an election that moves: its leaders lead on, and no other member is named. Changes nothing if that was done before.
///
/// # Errors
/// [`Hindrance::MoveChanged`] if it moves to another place; as for [`orders::order`].
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn close(session: &Session, paths: &Paths, to: &Move, by: &str) -> Result<(), AdminError> {
    let close = |control: &mut Control| {
        control.moves_to.get_or_insert_with(|| to.clone());
    };
    let ordered = orders::order(session, paths, by, None, close).await?;
    departs(&ordered.after, &to.place)
}

/// What keeps an election from its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding {
    /// These members have leader znodes.
    Leaders(Vec<MemberId>),
    /// These members are named, and their sessions have not ended.
    Named(Vec<MemberId>),
    /// These former leaders may still do their work: they were not fenced.
    Former(Vec<MemberId>),
    /// A mode in which no member would be named at the new place.
    Mode(Mode),
}

/// Whether an election has ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Not yet.
    Held(Holding),
    /// It has.
    Ended(Box<Ended>),
}

/// What an election leaves that has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The standing orders.
    pub orders: Control,
    /// The last decision.
    pub decision: Elected,
    /// No leadership has had a higher token.
    pub token: u64,
}

/// Ends an election that is closed because it moves to this place, unless something keeps it from that: then nothing is changed.
/// Afterwards no member is named, and none can create a leader znode by an earlier decision. It is repeated safely.
///
/// The tokens up to the transaction of this end are spent: a leader's token is made of the transaction that created its leader
/// znode.
///
/// # Errors
/// [`Hindrance::MoveChanged`] if it does not move there any more, or has arrived; when a record can't be used, or ZooKeeper
/// doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn end(session: &Session, paths: &Paths, to: &Place, by: &str) -> Result<Ending, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let orders: Known<Control> = observer.known(paths.control()).await?;
        // Read before the ballots and the leader znodes: what its named members have by then is seen below.
        let decided = observer.decision(paths).await?;
        let (control, before) = (orders.record_or_default()?, decided.record()?);
        if departure(&control, to).is_none_or(|going| going.done) {
            return Err(Hindrance::MoveChanged.into());
        }
        if control.mode != Mode::Auto {
            return Ok(Ending::Held(Holding::Mode(control.mode)));
        }
        let slots = (0..MAX_SLOTS).map(|slot| ReadOp::get(paths.leader_znode(slot)));
        let reads = [ReadOp::children(paths.election()), ReadOp::get(paths.breadcrumbs())];
        let mut results = observer.session().multi_read(reads.into_iter().chain(slots)).await?.into_iter();
        let ballots = results.next().map(children).unwrap_or_default();
        let left: Known<Breadcrumbs> = Known::new(paths.breadcrumbs(), results.next().and_then(node));
        let mut leaders = Vec::new();
        for (slot, leader) in results.map(node).enumerate() {
            if let Some(leader) = leader {
                leaders.push(Current::decode(&paths.leader_znode(slot), &leader.data)?.member);
            }
        }
        if !leaders.is_empty() {
            return Ok(Ending::Held(Holding::Leaders(leaders)));
        }
        let named = before.iter().flat_map(Elected::leaders).map(|(_, named)| named);
        let living = named.filter(|named| ballots.iter().any(|ballot| ballot == named.ballot.as_str()));
        let living: Vec<_> = living.map(|named| named.member.clone()).collect();
        if !living.is_empty() {
            return Ok(Ending::Held(Holding::Named(living)));
        }
        let former = left.record_or_default()?.leaderships;
        if !former.is_empty() {
            return Ok(Ending::Held(Holding::Former(former.into_iter().map(|left| left.member).collect())));
        }
        let sentence = format!("the election moves to {to}");
        let mut next = move_away(before.as_ref(), ByOperator { sentence: &sentence, by, unix_ms: unix_ms() });
        let slots = before.as_ref().map_or(1, |elected| elected.slots.len());
        let mut group = vec![orders.replace(&control)?];
        match &mut next {
            None => group.extend(decided.check()),
            Some(next) => group.extend(decided.replace(next)?),
        }
        group.extend(left.node().map(|node| MultiOp::check(paths.breadcrumbs(), node.version)));
        // No operation checks that a znode does not exist. One that exists can't be created.
        for leader in (0..slots).map(|slot| paths.leader_znode(slot)) {
            group.push(MultiOp::create(&leader, "", CreateMode::Persistent));
            group.push(MultiOp::delete(&leader, None));
        }
        decided.make_parents(observer.session()).await?;
        if !attempts.write(group).await? {
            continue;
        }
        let written = observer.read(&paths.control()).await?.and_then(|node| u64::try_from(node.mzxid).ok());
        if let (Some(zxid), Some(decision)) = (written, next.or(before)) {
            let token = zxid.saturating_add(decision.token_base);
            return Ok(Ending::Ended(Box::new(Ended { orders: control, decision, token })));
        }
    }
}

/// The transaction that has last written the orders of the election to which another one moves. While it is the last one,
/// [`arrive`] can open that election.
///
/// # Errors
/// [`Hindrance::MoveChanged`] if it is not closed for this move; when its orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn awaited(session: &Session, paths: &Paths, from: &Place) -> Result<i64, AdminError> {
    let observer = Attempts::over(session).look().await?;
    let orders: Known<Control> = observer.known(paths.control()).await?;
    let mzxid = orders.node().map(|node| node.mzxid);
    match (mzxid, arrival(&orders.record_or_default()?, from)) {
        (Some(mzxid), Some(known)) if !known.done => Ok(mzxid),
        _ => Err(Hindrance::MoveChanged.into()),
    }
}

/// Opens the election to which another one has moved that has [ended](end): with its standing orders, with what its decision
/// remembers, and with terms and tokens above. `awaited` is what [`awaited`] returned before the other one ended.
///
/// # Errors
/// [`Hindrance::MoveChanged`] if its orders were written since; when a record can't be used, the tokens would be too large, or
/// ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn arrive(
    session: &Session,
    paths: &Paths,
    from: &Move,
    awaited: i64,
    ended: &Ended,
    by: &str,
) -> Result<(), AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let orders: Known<Control> = observer.known(paths.control()).await?;
        // The answer may have been lost.
        if arrival(&orders.record_or_default()?, &from.place).is_some_and(|known| known.done) {
            return Ok(());
        }
        if orders.node().is_none_or(|node| node.mzxid != awaited) {
            return Err(Hindrance::MoveChanged.into());
        }
        let decided = observer.decision(paths).await?;
        let sentence = format!("the election has moved here from {}", from.place);
        let decides = ByOperator { sentence: &sentence, by, unix_ms: unix_ms() };
        let mut next = move_in(decided.record()?.as_ref(), Some(&ended.decision), ended.token, decides)?;
        let open = |control: &mut Control| {
            let mut stopped = std::mem::take(&mut control.stopped_standbys);
            *control = ended.orders.clone();
            stopped.retain(|order| control.stopped_standby(&order.member).is_none());
            control.stopped_standbys.extend(stopped);
            control.moves_to = None;
            control.moved_from = Some(Move { done: true, ..from.clone() });
        };
        let Some(opened) = altered(&orders, by, None, open)? else { return Ok(()) };
        decided.make_parents(observer.session()).await?;
        if attempts.write([opened.write].into_iter().chain(decided.replace(&mut next)?)).await? {
            return Ok(());
        }
    }
}

/// Records that a move is done: the election stays closed, and may be [forgotten](crate::forget) once its members have left.
///
/// # Errors
/// [`Hindrance::MoveChanged`] if it moves to another place; as for [`orders::order`].
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn finish(session: &Session, paths: &Paths, to: &Move, by: &str) -> Result<(), AdminError> {
    let done = |control: &mut Control| {
        let going = control.moves_to.get_or_insert_with(|| to.clone());
        going.done |= going.place.is_same(&to.place);
    };
    let ordered = orders::order(session, paths, by, None, done).await?;
    departs(&ordered.after, &to.place)
}

/// Calls a move off, and opens the election again. The other one stays closed. Returns whether it was moving.
///
/// Another command may carry on the same move. Its [`arrive`] comes before this call reads the other election, and is found; or
/// its [`end`] follows, and is refused, or prevents this call from opening the election.
///
/// # Errors
/// [`Hindrance::Moved`] if it has arrived; when orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn call_off(
    (session, paths): (&Session, &Paths),
    (there, other): (&Session, &Paths),
    from: &Place,
    by: &str,
) -> Result<bool, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let orders: Known<Control> = observer.known(paths.control()).await?;
        match orders.record_or_default()?.moves_to {
            None => return Ok(false),
            Some(going) if going.done => return Err(Hindrance::Moved.into()),
            Some(_) => {}
        }
        prevent(there, other, from).await?;
        let open = |control: &mut Control| control.moves_to = None;
        let Some(opened) = altered(&orders, by, None, open)? else { return Ok(false) };
        if attempts.write([opened.write]).await? {
            return Ok(true);
        }
    }
}

/// Has an [`arrive`] that is under way fail: it finds that the orders were written.
async fn prevent(session: &Session, paths: &Paths, from: &Place) -> Result<(), AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let orders: Known<Control> = observer.known(paths.control()).await?;
        let control = orders.record_or_default()?;
        match arrival(&control, from) {
            None => return Ok(()),
            Some(known) if known.done => return Err(Hindrance::Moved.into()),
            Some(_) => {}
        }
        if attempts.write([orders.replace(&control)?]).await? {
            return Ok(());
        }
    }
}
