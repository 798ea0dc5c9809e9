//! Following who leads, without standing in the election.

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::stream::{self, BoxStream, Stream, StreamExt};

use zk_session::{
    BootTime, Children, ChildrenWatch, Closed, DataWatch, Epoch, Incarnation, Node, Observed, Session,
    sleep_until,
};

use super::{first::First, operations::ReadError};
use crate::{
    engine::fencing_token,
    ids::{Ballot, MemberId, SiteId},
    paths::Paths,
    record::{Contender, Current, Elected, MAX_SLOTS, Record, Status},
};

/// After how long something that could not be read is read again.
pub(super) const RETRY: Duration = Duration::from_millis(200);

/// A leadership as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Who leads.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// Which of the election's slots it leads; 0 where there is only one.
    pub slot: usize,
    /// In which term.
    pub term: u64,
    /// With which fencing token: newer than those of all leaderships of the slot before.
    pub fencing_token: u64,
    /// Where its work can be reached.
    pub endpoint: Option<String>,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub ready_ms: Option<u64>,
}

/// Who leads a slot now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderChange {
    /// Which slot; 0 where there is only one.
    pub slot: usize,
    /// Who serves; `None` while nobody does: the place is free, or whoever holds it
    /// still takes over.
    pub leader: Option<Leader>,
    /// The election has begun anew: its tokens are older than those told before. Somebody has
    /// deleted it, or the ensemble was restored from a copy or wiped, and no member remembers what
    /// was. What has seen a newer token refuses this leader, until an operator raises the base of
    /// the tokens.
    pub began_anew: bool,
}

/// A stream of who leads an election: for clients that want to find the leader, or the leaders of all slots where there
/// are several. It costs two watches, and one more for each further slot; in a queue one, of the first member. No lease,
/// and nothing that the members notice.
///
/// The stream never goes back, whatever a server that lags behind answers: once a leadership
/// was seen, one of its slot with an older token is reported only where a quorum says that it is
/// the present one, as an election that [began anew](LeaderChange::began_anew). What it reports
/// can be late, though: the leader may have gone since. A program that writes to something on the
/// leader's behalf passes the fencing token along.
///
/// The first item is the present leader of slot 0, at once or soon after; those of other slots follow once they have had
/// a leader. Leaderships between the last one reported and the newest may be left out. A slot that was taken away has no
/// leader.
///
/// While the connection is lost nothing is reported; the stream goes on by itself on
/// another server and, when the session is over, on the next one. It ends when the session is closed.
pub struct Leaders {
    /// Behind a lock that is never taken: it can't be shared between threads without.
    changes: Mutex<BoxStream<'static, LeaderChange>>,
    last: BTreeMap<usize, Leader>,
}

impl Leaders {
    /// Follows an election of the recipe `elector` or `single` over a session, which
    /// may be shared. There need not be such an election yet.
    pub fn follow(session: &Session, paths: Paths) -> Self {
        Self::of(Follower {
            session: session.clone(),
            children: Some(Awaited::new(session.watch_children(paths.leader()))),
            slots: BTreeMap::from([(0, Slot::new(session, &paths, 0))]),
            paths,
        })
    }

    /// Follows an election of the recipe `queue`, in this crate's own format; in other
    /// formats no member says whether it serves. There need not be such an election yet.
    pub fn follow_queue(session: &Session, paths: Paths) -> Self {
        let first = Source::Queue(First::new(session, &paths));
        let slots = BTreeMap::from([(0, Slot::at(first))]);
        Self::of(Follower { session: session.clone(), children: None, slots, paths })
    }

    fn of(follower: Follower) -> Self {
        let changes = stream::unfold(follower, |mut follower| async {
            follower.next().await.ok().map(|change| (change, follower))
        });
        Self { changes: Mutex::new(changes.boxed()), last: BTreeMap::new() }
    }

    /// The next change; `None` when the session was closed.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Option<LeaderChange> {
        StreamExt::next(self).await
    }

    /// The leader of this slot, as reported last.
    pub fn last(&self, slot: usize) -> Option<&Leader> {
        self.last.get(&slot)
    }

    /// All leaders, as reported last, lowest slot first.
    pub fn all(&self) -> impl Iterator<Item = &Leader> {
        self.last.values()
    }
}

impl Stream for Leaders {
    type Item = LeaderChange;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LeaderChange>> {
        let this = &mut *self;
        let changes = this.changes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let change = ready!(changes.as_mut().poll_next(context));
        if let Some(LeaderChange { slot, leader, .. }) = &change {
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

/// What makes the stream.
#[derive(Debug)]
struct Follower {
    session: Session,
    paths: Paths,
    /// Which places there are, where there can be several.
    children: Option<Awaited<ChildrenWatch, Observed<Option<Children>>>>,
    slots: BTreeMap<usize, Slot>,
}

/// One slot, from when its place was there first; the first one in any case.
#[derive(Debug)]
struct Slot {
    source: Awaited<Source, Seen>,
    /// What was seen and is not told yet, kept here so that nothing is lost to a caller
    /// who doesn't wait for it.
    pending: Option<Seen>,
    /// The session that the last value was read on.
    epoch: Option<Epoch>,
    newest: u64,
    /// Its tokens are older than before, which has not been told yet.
    began_anew: bool,
    told: Option<Option<Leader>>,
}

/// What was seen of a place, on which session.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) epoch: Epoch,
    /// The path and the znode of whoever holds it.
    pub(super) holder: Option<(String, Node)>,
}

/// Where the holder of a place is found.
enum Source {
    /// At this path.
    Znode(String, DataWatch),
    Queue(First),
}

impl Slot {
    fn new(session: &Session, paths: &Paths, slot: usize) -> Self {
        let path = paths.leader_znode(slot);
        let watch = session.watch_data(path.clone());
        Self::at(Source::Znode(path, watch))
    }

    fn at(source: Source) -> Self {
        Self {
            source: Awaited::new(source),
            pending: None,
            epoch: None,
            newest: 0,
            began_anew: false,
            told: None,
        }
    }
}

impl Follower {
    async fn next(&mut self) -> Result<LeaderChange, Closed> {
        loop {
            let pending = self.slots.iter().find_map(|(slot, s)| Some((*slot, s.pending.clone()?)));
            let Some((slot, seen)) = pending else {
                self.look().await?;
                continue;
            };
            let session = self.session.active().await?;
            match self.read_on(&session, slot, &seen).await {
                Ok(found) => {
                    if let Some(change) = self.judge(slot, seen.epoch, found) {
                        return Ok(change);
                    }
                }
                Err(ReadError::Record(error)) => {
                    self.slots.entry(slot).and_modify(|s| s.pending = None);
                    tracing::warn!(%error, "who leads can't be told");
                }
                Err(error) => {
                    tracing::debug!(%error, "who leads is read once more");
                    sleep_until(BootTime::now() + RETRY).await;
                }
            }
        }
    }

    /// Waits until something is seen at one of the places, or another place.
    async fn look(&mut self) -> Result<(), Closed> {
        poll_fn(|context| {
            while let Some(Poll::Ready(seen)) = self.children.as_mut().map(|children| children.poll(context))
            {
                let names = seen?.value.map(|children| children.names).unwrap_or_default();
                let slots = names
                    .iter()
                    .filter_map(|name| self.paths.slot_of(&format!("{}/{name}", self.paths.leader())));
                for slot in slots.filter(|slot| *slot < MAX_SLOTS) {
                    self.slots.entry(slot).or_insert_with(|| Slot::new(&self.session, &self.paths, slot));
                }
            }
            let mut seen = Poll::Pending;
            for slot in self.slots.values_mut() {
                if let Poll::Ready(news) = slot.source.poll(context) {
                    slot.pending = Some(news?);
                    seen = Poll::Ready(Ok(()));
                }
            }
            seen
        })
        .await
    }

    /// Who holds the place, by its record, and with which token. An older token than the one before
    /// is what a quorum says.
    async fn read_on(
        &self,
        session: &Incarnation,
        slot: usize,
        seen: &Seen,
    ) -> Result<Option<(Current, u64)>, ReadError> {
        let (epoch, newest) = self.slots.get(&slot).map_or((None, 0), |s| (s.epoch, s.newest));
        // Another session can begin on a server that lags behind the last one's.
        let again = epoch.is_some_and(|epoch| epoch != seen.epoch);
        let found = self.read(session, slot, seen, again).await?;
        match found {
            Some((_, token)) if token < newest && !again => self.read(session, slot, seen, true).await,
            found => Ok(found),
        }
    }

    /// The same; `again` after a round trip to a quorum.
    async fn read(
        &self,
        session: &Incarnation,
        slot: usize,
        seen: &Seen,
        again: bool,
    ) -> Result<Option<(Current, u64)>, ReadError> {
        let (path, node) = match &seen.holder {
            Some((path, node)) if !again => (path.clone(), node.clone()),
            None if !again => return Ok(None),
            holder => {
                let path =
                    holder.as_ref().map_or_else(|| self.paths.leader_znode(slot), |(path, _)| path.clone());
                session.barrier().await?;
                let Some(node) = session.get(&path).await? else { return Ok(None) };
                (path, node)
            }
        };
        let czxid = node.stat.czxid;
        let current = match Current::decode(&path, &node.data) {
            Ok(current) => current,
            // Without an elector it says nothing of a term.
            Err(error) => match (Contender::decode(&path, &node.data), Ballot::new("single-0000000000")) {
                (Ok(contender), Ok(ballot)) => {
                    let current = contender.to_current(ballot, czxid);
                    let token = current.term;
                    return Ok(Some((current, token)));
                }
                _ => return Err(error.into()),
            },
        };
        let token = match current.fencing_token {
            Some(token) => token,
            None => {
                let path = self.paths.elected();
                let elected = session.get(&path).await?.map(|node| Elected::decode(&path, &node.data));
                let base = elected.transpose()?.map_or(0, |elected| elected.token_base);
                fencing_token(czxid, base)
            }
        };
        Ok(Some((current, token)))
    }

    /// What is to be told of it, if it is news.
    fn judge(&mut self, slot: usize, epoch: Epoch, found: Option<(Current, u64)>) -> Option<LeaderChange> {
        let known = self.slots.get_mut(&slot)?;
        known.pending = None;
        known.epoch = Some(epoch);
        let serving = found.filter(|(current, _)| current.status == Status::Ready);
        // Before that the token rests on the decision, which can be missing for a moment.
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

type Next<W, T> = Pin<Box<dyn Future<Output = (W, Result<T, Closed>)> + Send>>;

/// A watch and its next value, to be polled beside others: what was begun is kept until
/// it has come.
struct Awaited<W, T> {
    /// Behind a lock that nobody takes, for it can't be shared without.
    next: Mutex<Next<W, T>>,
}

/// What can be waited for again and again.
trait Watching<T>: Sized {
    fn value(self) -> impl Future<Output = (Self, Result<T, Closed>)> + Send + 'static;
}

impl Watching<Seen> for Source {
    async fn value(mut self) -> (Self, Result<Seen, Closed>) {
        let seen = match &mut self {
            Self::Znode(path, watch) => watch
                .next()
                .await
                .map(|seen| Seen { epoch: seen.epoch, holder: seen.value.map(|node| (path.clone(), node)) }),
            Self::Queue(first) => first.next().await,
        };
        (self, seen)
    }
}

impl Watching<Observed<Option<Children>>> for ChildrenWatch {
    async fn value(mut self) -> (Self, Result<Observed<Option<Children>>, Closed>) {
        let seen = self.next().await;
        (self, seen)
    }
}

impl<T, W: Watching<T>> Awaited<W, T> {
    fn new(watch: W) -> Self {
        Self { next: Mutex::new(Box::pin(watch.value())) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        next.as_mut().poll(context).map(|(watch, value)| {
            *self = Self::new(watch);
            value
        })
    }
}

impl<W, T> fmt::Debug for Awaited<W, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}
