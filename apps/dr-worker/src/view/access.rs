//! Whether the znodes of an election have the access lists that the configuration asks for.

use std::collections::VecDeque;

use election_admin::ReadError;
use election_core::Paths;
use zk_session::{AclEntry, Incarnation, OpError, permission};

use super::ProblemRow;
use crate::config::{ZooKeeperAccess, ZooKeeperConfig};

/// How many znodes of an election are checked, parents first: its history may be long.
const LOOKED_AT: usize = 100;

/// How many znodes are named in the report.
const NAMED: usize = 3;

/// Checks the access lists of the root of all elections and of the election at `paths`.
///
/// Returns `None` if the configuration has no credentials, because then access can't be restricted.
///
/// # Errors
/// If ZooKeeper does not answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn problem(
    session: &Incarnation,
    config: &ZooKeeperConfig,
    paths: &Paths,
) -> Result<Option<ProblemRow>, ReadError> {
    if !config.has_credentials() {
        return Ok(None);
    }
    let mut wrong = Vec::new();
    if is_wrong(session, config.acl, &config.root).await? == Some(true) {
        wrong.push(config.root.clone());
    }
    let mut waiting = VecDeque::from([paths.base().to_owned()]);
    let mut looked_at = 0;
    while let Some(path) = waiting.pop_front().filter(|_| looked_at < LOOKED_AT) {
        looked_at += 1;
        match is_wrong(session, config.acl, &path).await? {
            Some(true) => wrong.push(path.clone()),
            Some(false) => {}
            // It was deleted meanwhile.
            None => continue,
        }
        match session.children(&path).await {
            Ok(children) => waiting
                .extend(children.into_iter().flat_map(|c| c.names).map(|name| format!("{path}/{name}"))),
            Err(OpError::NoAuth { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((!wrong.is_empty()).then(|| row(config, &wrong)))
}

/// Whether the access list of a znode differs from the configured one; `None` if there is no such znode.
async fn is_wrong(
    session: &Incarnation,
    wanted: ZooKeeperAccess,
    path: &str,
) -> Result<Option<bool>, OpError> {
    match session.acl(path).await {
        Ok(list) => {
            let is_of_all = |entry: &AclEntry| entry.id.scheme == "world";
            let is_open = |entry: &AclEntry| is_of_all(entry) && entry.permissions == permission::ALL;
            Ok(Some(match wanted {
                ZooKeeperAccess::Creator => list.entries.iter().any(is_of_all),
                ZooKeeperAccess::Open => !list.entries.iter().any(is_open),
            }))
        }
        // Not readable with these credentials.
        Err(OpError::NoAuth { .. }) => Ok(Some(true)),
        Err(OpError::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn row(config: &ZooKeeperConfig, wrong: &[String]) -> ProblemRow {
    let named = wrong.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match wrong.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let root = &config.root;
    let (what, list) = match config.acl {
        ZooKeeperAccess::Creator => ("not only the owner of these credentials has access to", "auth::cdrwa"),
        ZooKeeperAccess::Open => ("not everyone has access to", "world:anyone:cdrwa"),
    };
    ProblemRow {
        kind: "access",
        sentence: format!(
            "{what} {named}{more}, but zookeeper.acl is {:?}, which applies to new znodes only; to change all of them, \
             run this command in ZooKeeper's zkCli.sh, after addauth with the credentials of their owner",
            config.acl.as_str()
        ),
        command: Some(format!("setAcl -R {root} {list}")),
    }
}
