//! Ephemerals that no living member owns.
//!
//! A session's ephemerals are deleted together at its end. Servers are known to have kept some of them for ever
//! (ZOOKEEPER-2355, ZOOKEEPER-4837): a lowest ballot without an elector, a leader znode without a leader, a record that
//! keeps its member from rejoining. A living member has its ballot and its record, so an ephemeral without the other
//! two is reported. The recipes without an elector have one znode for each member, so it can't be checked there.

use std::{collections::BTreeSet, time::Duration};

use zk_session::{MultiOp, OpError, Session, SessionId};

use crate::{
    change::{Attempts, is_worth_another_look},
    error::AdminError,
    observer::{Observer, Snapshot},
};
use election_core::{
    Paths,
    config::MemberId,
    internals::{ReadError, is_within, unix_ms},
    status::Ballot,
};

/// A member that has just joined has its ballot, and will write its record soon.
const YOUNG: Duration = Duration::from_secs(5);

/// An ephemeral that no living member owns. See [`Problem::Ghost`](crate::Problem::Ghost).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ghost {
    /// The znode.
    pub path: String,
    /// The member that it names.
    pub member: Option<MemberId>,
    /// The session that it belongs to.
    pub session: SessionId,
    /// When it was created, in milliseconds since the Unix epoch, by the servers' clock.
    pub created_ms: u64,
    czxid: i64,
}

/// A possible ghost: the znode, the member that it names, and its ballot.
type Suspect = (String, Option<MemberId>, Ballot);

/// The ephemerals without the other two, read once more.
pub(crate) async fn find(
    observer: &Observer,
    paths: &Paths,
    snapshot: &Snapshot,
) -> Result<Vec<Ghost>, ReadError> {
    let ballots = observer.ballots(paths).await?;
    let recorded: BTreeSet<_> = snapshot.members.iter().map(|m| &m.ballot).collect();
    let drawn: BTreeSet<_> = ballots.iter().collect();
    let has_record = |ballot: &Ballot| recorded.contains(ballot);
    let mut suspects: Vec<Suspect> = Vec::new();
    for ballot in ballots.iter().filter(|ballot| !has_record(ballot)) {
        suspects.push((paths.ballot(ballot), None, ballot.clone()));
    }
    for member in snapshot.members.iter().filter(|m| !drawn.contains(&m.ballot)) {
        suspects.push((paths.node(&member.member), Some(member.member.clone()), member.ballot.clone()));
    }
    for (slot, leader_znode) in snapshot.leader_znodes.iter().enumerate() {
        if let Some(current) = leader_znode.as_ref().map(|o| &o.record).filter(|c| !has_record(&c.ballot)) {
            suspects.push((paths.leader_znode(slot), Some(current.member.clone()), current.ballot.clone()));
        }
    }
    let mut ghosts = Vec::new();
    for suspect in suspects {
        ghosts.extend(look(observer, paths, suspect).await?);
    }
    Ok(ghosts)
}

async fn look(
    observer: &Observer,
    paths: &Paths,
    (path, member, ballot): Suspect,
) -> Result<Option<Ghost>, ReadError> {
    let Some(node) = observer.session().get(&path).await? else { return Ok(None) };
    let created_ms = u64::try_from(node.stat.ctime_ms).unwrap_or(0);
    if node.stat.ephemeral_owner == 0 || is_within(created_ms, YOUNG, unix_ms()) {
        return Ok(None);
    }
    match observer.member(paths, &ballot).await {
        Ok(None) => {}
        // The member lives, or its record can't be read, which is reported elsewhere.
        Ok(Some(_)) | Err(ReadError::Record(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    // A ballot holds its member's id.
    let member = member.or_else(|| String::from_utf8_lossy(&node.data).parse().ok());
    let session = SessionId(node.stat.ephemeral_owner);
    Ok(Some(Ghost { path, member, session, created_ms, czxid: node.stat.czxid }))
}

/// Removes a ghost. Returns `false` if it has been deleted already. If the member lives after all, it ends its work if
/// it leads, and rejoins.
///
/// # Errors
/// When ZooKeeper doesn't answer, or refuses.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn remove_ghost(session: &Session, paths: &Paths, ghost: &Ghost) -> Result<bool, AdminError> {
    let mut attempts = Attempts::over(session);
    let mut is_sent = false;
    loop {
        let observer = attempts.look().await?;
        let session = observer.session();
        // Read before the leader znode: while the decision is this one, only the member that it names can create one.
        let elected = observer.decision(paths).await?;
        let Some(node) = session.get(&ghost.path).await?.filter(|node| node.stat.czxid == ghost.czxid) else {
            return Ok(is_sent);
        };
        let version = node.stat.version;
        let deleted = match paths.slot_of(&ghost.path) {
            Some(_) if elected.node().is_some() => {
                session.multi(elected.check().chain([MultiOp::delete(&*ghost.path, version)])).await.map(drop)
            }
            _ => session.delete(&ghost.path, Some(version)).await,
        };
        match deleted {
            Ok(()) => return Ok(true),
            Err(error) if !is_worth_another_look(&error) => return Err(error.into()),
            Err(error) => is_sent = matches!(error, OpError::Unknown { .. }),
        }
    }
}
