//! Following the leaders of an election without being a candidate.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use futures_util::{
    FutureExt,
    stream::{self, BoxStream, FuturesUnordered, Stream, StreamExt},
};
use zk_session::{BootTime, ChildrenWatch, Epoch, Incarnation, OpError, Session, sleep_until};

use super::{
    RETRY,
    first::{self, SeenHolder},
    operations::ReadError,
};
use crate::{
    engine::fencing_token,
    ids::{MemberId, SiteId},
    paths::Paths,
    record::{Contender, Current, Elected, MAX_SLOTS, Record, Status, limits::MAX_TOKEN},
};

/// A leadership as seen by others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The leader.
    pub member: MemberId,
    /// Its site.
    pub site: SiteId,
    /// The slot that it leads; 0 if the election has only one.
    pub slot: usize,
    /// Its term.
    pub term: u64,
    /// Its fencing token, newer than those of all earlier leaderships of the slot.
    pub fencing_token: u64,
    /// The address of its work.
    pub endpoint: Option<String>,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub ready_ms: Option<u64>,
}

/// The present leader of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderChange {
    /// The slot; 0 if there is only one.
    pub slot: usize,
    /// The READY leader. `None` if there is no leader znode, or its member is still taking over.
    pub leader: Option<Leader>,
    /// The election has begun again: its tokens are older than those reported before. Either it was deleted, or the
    /// ensemble was restored from a copy or wiped, and no member remembers the earlier state. A resource that has seen
    /// a newer token refuses this leader until an operator raises the base of the tokens.
    pub began_anew: bool,
}

/// A stream of an election's leaders, for clients that want to find the leader, or the leaders of all slots. It needs
/// two watches, and one more for each further slot; in a queue the second one is of the first member. It needs no lease and does
/// not affect the members.
///
/// The stream never goes back, even if a server lags behind. After a leadership was seen, one of its slot with an older
/// token is reported only if a quorum confirms that it is the present one, as an election that [began
/// again](LeaderChange::began_anew). A report can be late: the leader may have gone since. A program that writes to a
/// resource on the leader's behalf passes the fencing token along.
///
/// The first item is the present leader of slot 0, at once or soon after. Those of other slots follow when they have
/// had a leader. Leaderships between the last reported one and the newest may be omitted. A removed slot has no leader.
///
/// While the connection is lost nothing is reported. The stream continues by itself on another server and, when the
/// session is over, on the next session. It ends when the session is closed. An item is an error if ZooKeeper refuses to
/// have the election read, for its path or an access list. Polled again, the stream asks again after a pause.
pub struct Leaders {
    /// The lock is never taken. Without it the stream could not be shared between threads.
    changes: Mutex<BoxStream<'static, Result<LeaderChange, OpError>>>,
    last: BTreeMap<usize, Leader>,
}

impl Leaders {
    /// Follows an election on a session, which may be shared. The election need not exist yet.
    ///
    /// It may have any recipe; a queue only this crate's own format, since in the others no member reports whether it is READY.
    pub fn follow(session: &Session, paths: Paths) -> Self {
        let follower = Follower {
            session: session.clone(),
            children: session.watch_children(paths.leader()),
            slots: BTreeMap::new(),
            pending: None,
            paths,
        };
        let changes = stream::unfold(follower, async |mut follower| Some((follower.next().await?, follower)));
        Self { changes: Mutex::new(changes.boxed()), last: BTreeMap::new() }
    }

    /// The next change; `None` when the session was closed. It waits for as long as nothing changes, and while there is no
    /// session or no connection.
    ///
    /// # Errors
    /// [`OpError::is_refused`]: for the path or an access list. The next call asks again after a pause.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Option<Result<LeaderChange, OpError>> {
        StreamExt::next(self).await
    }

    /// The last reported leader of this slot.
    pub fn last(&self, slot: usize) -> Option<&Leader> {
        self.last.get(&slot)
    }

    /// All last reported leaders, lowest slot first.
    pub fn all(&self) -> impl Iterator<Item = &Leader> {
        self.last.values()
    }
}

impl Stream for Leaders {
    type Item = Result<LeaderChange, OpError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let changes = this.changes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let change = ready!(changes.as_mut().poll_next(context));
        if let Some(Ok(LeaderChange { slot, leader, .. })) = &change {
            match leader {
                Some(leader) => drop(this.last.insert(*slot, leader.clone())),
                None => drop(this.last.remove(slot)),
            }
        }
        Poll::Ready(change)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").field("last", &self.last).finish_non_exhaustive()
    }
}

/// The source of the stream.
struct Follower {
    session: Session,
    paths: Paths,
    /// The names of the leader znodes. A queue has no parent of these.
    children: ChildrenWatch,
    slots: BTreeMap<usize, FollowedSlot>,
    /// What was seen in a slot and is not reported yet.
    pending: Option<(usize, SeenHolder)>,
}

/// One slot, from the first appearance of its leader znode. Slot 0 exists once the recipe is known.
struct FollowedSlot {
    source: BoxStream<'static, Result<SeenHolder, OpError>>,
    is_queue: bool,
    /// The session on which the last value was read.
    epoch: Option<Epoch>,
    newest: u64,
    /// Its tokens are older than before, which is not reported yet.
    began_anew: bool,
    told: Option<Option<Leader>>,
}

impl FollowedSlot {
    fn new(session: &Session, paths: &Paths, slot: usize, is_queue: bool) -> Self {
        let source = match is_queue {
            true => first::of_queue(session, paths).boxed(),
            false => leader_znodes(session, paths.leader_znode(slot)).boxed(),
        };
        Self { source, is_queue, epoch: None, newest: 0, began_anew: false, told: None }
    }
}

/// The states of the leader znode at this path.
fn leader_znodes(session: &Session, path: String) -> impl Stream<Item = Result<SeenHolder, OpError>> + use<> {
    session.watch_data(path.clone()).map(move |seen| {
        let seen = seen?;
        Ok(SeenHolder { epoch: seen.epoch, holder: seen.value.map(|node| (path.clone(), node)) })
    })
}

impl Follower {
    /// `None` when the session is closed.
    async fn next(&mut self) -> Option<Result<LeaderChange, OpError>> {
        loop {
            let (slot, seen) = match self.pending.take() {
                Some(pending) => pending,
                None => match self.look().await? {
                    Ok(seen) => seen,
                    Err(error) => return Some(Err(error)),
                },
            };
            let session = self.session.active().await.ok()?;
            let known = self.slots.get(&slot).map_or((None, 0), |slot| (slot.epoch, slot.newest));
            match read_on(&session, &self.paths, slot, &seen, known).await {
                Ok(found) => {
                    if let Some(change) = self.judge(slot, seen.epoch, found) {
                        return Some(Ok(change));
                    }
                }
                Err(ReadError::Record(error)) => tracing::warn!(%error, "who leads can't be told"),
                Err(error) => {
                    tracing::debug!(%error, "who leads is read once more");
                    self.pending = Some((slot, seen));
                    sleep_until(BootTime::now() + RETRY).await;
                    if let ReadError::Session(error) = error
                        && error.is_refused()
                    {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Waits for a change of a leader znode, and follows new slots meanwhile.
    async fn look(&mut self) -> Option<Result<(usize, SeenHolder), OpError>> {
        loop {
            let sources = self.slots.iter_mut();
            let mut sources: FuturesUnordered<_> =
                sources.map(|(slot, followed)| followed.source.next().map(|seen| (*slot, seen))).collect();
            let children = tokio::select! {
                biased;
                children = StreamExt::next(&mut self.children) => children,
                Some((slot, seen)) = sources.next() => return Some(seen?.map(|seen| (slot, seen))),
            };
            drop(sources);
            let children = match children? {
                Ok(children) => children.value,
                Err(error) => return Some(Err(error)),
            };
            self.take_source(children.is_none());
            let leader = self.paths.leader();
            for name in children.map(|children| children.names).unwrap_or_default() {
                if let Some(slot) = self.paths.slot_of(&format!("{leader}/{name}"))
                    && slot < MAX_SLOTS
                {
                    let new = || FollowedSlot::new(&self.session, &self.paths, slot, false);
                    self.slots.entry(slot).or_insert_with(new);
                }
            }
        }
    }

    /// Reads slot 0 where its leader znode is, if the election has another recipe than was known.
    fn take_source(&mut self, is_queue: bool) {
        let new = || FollowedSlot::new(&self.session, &self.paths, 0, is_queue);
        let slot = self.slots.entry(0).or_insert_with(new);
        if slot.is_queue != is_queue {
            (slot.source, slot.is_queue) = (new().source, is_queue);
        }
    }

    /// The change to report, if there is one.
    fn judge(&mut self, slot: usize, epoch: Epoch, found: Option<(Current, u64)>) -> Option<LeaderChange> {
        let known = self.slots.get_mut(&slot)?;
        known.epoch = Some(epoch);
        let serving = found.filter(|(current, _)| current.status == Status::Ready);
        // Before READY the token depends on the decision, which can be missing for a moment.
        if let Some((_, token)) = &serving {
            known.began_anew |= *token < known.newest;
            known.newest = *token;
        }
        let leader = serving.map(|(current, fencing_token)| Leader {
            member: current.member,
            site: current.site,
            slot,
            term: current.term,
            fencing_token,
            endpoint: current.endpoint,
            ready_ms: current.ready_ms,
        });
        if known.told.as_ref() == Some(&leader) {
            return None;
        }
        known.told = Some(leader.clone());
        let began_anew = leader.is_some() && std::mem::take(&mut known.began_anew);
        Some(LeaderChange { slot, leader, began_anew })
    }
}

/// The leader by its record, with its token. A token that is older than the last one is confirmed by a quorum. `known` is
/// the session on which the slot was read last, and its newest token.
async fn read_on(
    session: &Incarnation,
    paths: &Paths,
    slot: usize,
    seen: &SeenHolder,
    (epoch, newest): (Option<Epoch>, u64),
) -> Result<Option<(Current, u64)>, ReadError> {
    // The new session's server may lag behind the last one's.
    let again = epoch.is_some_and(|epoch| epoch != seen.epoch);
    let found = read(session, paths, slot, seen, again).await?;
    match found {
        Some((_, token)) if token < newest && !again => read(session, paths, slot, seen, true).await,
        found => Ok(found),
    }
}

/// The same; `again` after a round trip to a quorum.
async fn read(
    session: &Incarnation,
    paths: &Paths,
    slot: usize,
    seen: &SeenHolder,
    again: bool,
) -> Result<Option<(Current, u64)>, ReadError> {
    let (path, node) = match &seen.holder {
        Some((path, node)) if !again => (path.clone(), node.clone()),
        None if !again => return Ok(None),
        holder => {
            let path = holder.as_ref().map_or_else(|| paths.leader_znode(slot), |(path, _)| path.clone());
            session.barrier().await?;
            let Some(node) = session.get(&path).await? else { return Ok(None) };
            (path, node)
        }
    };
    let czxid = node.stat.czxid;
    let current = match Current::decode(&path, &node.data) {
        Ok(current) => current,
        // A record without an elector has no term.
        Err(error) => {
            let Ok(contender) = Contender::decode(&path, &node.data) else { return Err(error.into()) };
            let Some(ballot) = contender.ballot_at(&path) else { return Err(error.into()) };
            let current = contender.to_current(ballot, czxid);
            let token = current.term;
            return Ok(Some((current, token)));
        }
    };
    let token = match current.fencing_token {
        Some(token) => token,
        None => {
            let path = paths.elected();
            let elected = session.get(&path).await?.map(|node| Elected::decode(&path, &node.data));
            let base = elected.transpose()?.map_or(0, |elected| elected.token_base);
            fencing_token(czxid, base).unwrap_or(MAX_TOKEN)
        }
    };
    Ok(Some((current, token)))
}
