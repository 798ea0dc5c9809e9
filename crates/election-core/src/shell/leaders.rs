//! Following who leads, without standing in the election.

use std::time::Duration;

use zk_session::{BootTime, Closed, DataWatch, Epoch, Incarnation, Node, Observed, Session, sleep_until};

use super::observer::ReadError;
use crate::{
    engine::fencing_token,
    ids::{Ballot, MemberId, SiteId},
    paths::Paths,
    record::{Contender, Current, Elected, Record, Status},
};

/// After how long something that could not be read is read again.
const RETRY: Duration = Duration::from_millis(200);

type Seen = Observed<Option<Node>>;

/// A leadership as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Who leads.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// In which term.
    pub term: u64,
    /// With which fencing token.
    pub fencing_token: u64,
    /// Where its work can be reached.
    pub endpoint: Option<String>,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub ready_ms: Option<u64>,
}

/// Who leads an election and its changes: for clients that want to find the leader.
/// It costs one watch, no lease, and nothing that the members notice.
///
/// The stream never goes back: once a leadership was seen, no leadership with an older
/// token is told any more, whatever a server that lags behind answers. What it tells can
/// be late, though: the leader may have gone since. Whoever writes to something on the
/// leader's behalf passes the fencing token along.
///
/// After the ensemble was restored from a copy its leaderships have older tokens, so none
/// of them is told until an operator has raised the base of the tokens.
///
/// While the connection is lost nothing is told; the stream goes on by itself on
/// another server and, when the session is over, on the next one.
#[derive(Debug)]
pub struct Leaders {
    session: Session,
    paths: Paths,
    place: DataWatch,
    /// What was seen and is not told yet, kept here so that nothing is lost to a caller
    /// who doesn't wait for it.
    pending: Option<Seen>,
    /// The session that the last value was read on.
    epoch: Option<Epoch>,
    newest: u64,
    told: Option<Option<Leader>>,
}

impl Leaders {
    /// Follows an election of the recipe `elector` or `single` over a session, which
    /// may be shared. There need not be such an election yet.
    pub fn follow(session: &Session, paths: Paths) -> Self {
        Self {
            session: session.clone(),
            place: session.watch_data(paths.current()),
            paths,
            pending: None,
            epoch: None,
            newest: 0,
            told: None,
        }
    }

    /// Who serves: at the first call now, later after a change. `None` while nobody
    /// does: the place is free, or whoever holds it still takes over.
    ///
    /// Leaderships between the last one told and the newest may be left out.
    ///
    /// # Errors
    /// When the session was closed.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Leader>, Closed> {
        loop {
            let seen = match self.pending.clone() {
                Some(seen) => seen,
                None => self.pending.insert(self.place.next().await?).clone(),
            };
            let session = self.session.active().await?;
            match self.read(&session, &seen).await {
                Ok(found) => {
                    self.pending = None;
                    self.epoch = Some(seen.epoch);
                    if let Some(news) = self.judge(found) {
                        return Ok(news);
                    }
                }
                Err(ReadError::Record(error)) => {
                    self.pending = None;
                    tracing::warn!(%error, "who leads can't be told");
                }
                Err(error) => {
                    tracing::debug!(%error, "who leads is read once more");
                    sleep_until(BootTime::now() + RETRY).await;
                }
            }
        }
    }

    /// The last one told.
    pub fn last(&self) -> Option<&Leader> {
        self.told.as_ref()?.as_ref()
    }

    /// Who holds the place, by its record, and with which token.
    async fn read(&self, session: &Incarnation, seen: &Seen) -> Result<Option<(Current, u64)>, ReadError> {
        let path = self.paths.current();
        let node = if self.epoch.is_some_and(|known| known != seen.epoch) {
            // Another session can begin on a server that lags behind the last one's.
            session.barrier().await?;
            session.get(&path).await?
        } else {
            seen.value.clone()
        };
        let Some(node) = node else { return Ok(None) };
        let czxid = node.stat.czxid;
        let current = match Current::decode(&path, &node.data) {
            Ok(current) => current,
            // In the recipe `single` it says nothing of a term.
            Err(error) => match (Contender::decode(&path, &node.data), Ballot::new("single-0000000000")) {
                (Ok(contender), Ok(ballot)) => {
                    let current = contender.in_office(ballot, czxid);
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
    fn judge(&mut self, found: Option<(Current, u64)>) -> Option<Option<Leader>> {
        if let Some((_, token)) = &found {
            if *token < self.newest {
                return None;
            }
            self.newest = *token;
        }
        let serving = found.filter(|(current, _)| current.status == Status::Ready);
        let leader = serving.map(|(current, fencing_token)| Leader {
            member: current.member,
            site: current.site,
            term: current.term,
            fencing_token,
            endpoint: current.endpoint,
            ready_ms: current.ready_ms,
        });
        if self.told.as_ref() == Some(&leader) {
            return None;
        }
        self.told = Some(leader.clone());
        Some(leader)
    }
}
