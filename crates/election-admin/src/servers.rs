//! What each server shows of an election, compared with the quorum.
//!
//! A server answers reads from its own znodes, and they may differ from those of the others for ever (ZOOKEEPER-4837). A
//! group that only checks that a znode exists is decided by the ensemble's leader. So each znode that not all servers show
//! alike is checked so, and then read at each server, after a round trip of that server through the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use zk_session::{Incarnation, MultiOp, OpError, Session};

use election_core::{
    Paths,
    internals::{ReadError, tree},
};

/// A difference that lasts for so many looks is no race.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// A server that shows another znode than the quorum has. See [`compare_servers`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disagreement {
    /// The server, by the name of its session.
    pub server: String,
    /// The znode.
    pub path: String,
    /// Whether the server shows a znode that the quorum has deleted or replaced; otherwise it lacks one that the quorum has.
    pub is_kept: bool,
}

/// Compares what the servers show of the candidates, the members and the leaders of an election: each by a session of its
/// own.
///
/// # Errors
/// When a server doesn't answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn compare_servers(
    servers: &[(String, Session)],
    paths: &Paths,
) -> Result<Vec<Disagreement>, ReadError> {
    let mut sessions = Vec::new();
    for (name, session) in servers {
        sessions.push((name, session.active().await.map_err(|_| OpError::SessionOver)?));
    }
    let mut shown = Vec::new();
    for (_, session) in &sessions {
        shown.push(all_of(session, paths).await?);
    }
    let all: BTreeSet<&String> = shown.iter().flat_map(BTreeMap::keys).collect();
    let differing =
        all.into_iter().filter(|path| shown.iter().any(|of| of.get(*path) != shown[0].get(*path)));
    let mut found = Vec::new();
    for path in differing {
        let mut wrong = look(&sessions, path).await?;
        for _ in 1..LOOKS {
            if wrong.is_empty() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            let again = look(&sessions, path).await?;
            wrong.retain(|before| again.contains(before));
        }
        found.extend(wrong.into_iter().map(|(at, shown)| Disagreement {
            server: sessions[at].0.clone(),
            path: path.clone(),
            is_kept: shown.is_some(),
        }));
    }
    Ok(found)
}

/// The znodes that decide who leads, with the transactions that created them.
async fn all_of(session: &Incarnation, paths: &Paths) -> Result<BTreeMap<String, i64>, OpError> {
    session.barrier().await?;
    let mut all = BTreeMap::new();
    for parent in [paths.election(), paths.queue(), paths.nodes(), paths.leader()] {
        let nodes = tree(session, &parent).await?;
        all.extend(nodes.into_iter().map(|(name, node)| (format!("{parent}/{name}"), node.czxid)));
    }
    Ok(all)
}

/// The servers that are wrong about a znode, and what they show.
async fn look(sessions: &[(&String, Incarnation)], path: &str) -> Result<Vec<(usize, Option<i64>)>, OpError> {
    let Some((_, first)) = sessions.first() else { return Ok(Vec::new()) };
    let exists = match first.multi([MultiOp::check(path, None)]).await {
        Ok(_) => true,
        Err(OpError::NoNode { .. }) => false,
        Err(error) => return Err(error),
    };
    let mut shown = Vec::new();
    for (_, session) in sessions {
        session.barrier().await?;
        shown.push(session.exists(path).await?.map(|stat| stat.czxid));
    }
    let newest = shown.iter().flatten().max().copied();
    let right = newest.filter(|_| exists);
    Ok(shown.into_iter().enumerate().filter(|(_, shown)| *shown != right).collect())
}
