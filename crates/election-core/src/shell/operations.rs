//! The engine's znode operations on a session.

use std::collections::BTreeMap;

use zk_session::{CreateMode, Incarnation, MultiOp, OpError, Recovery};

use crate::engine::{Node, Outcome, Request};

/// Performs one operation on one session.
pub(super) async fn perform(session: &Incarnation, request: Request) -> Outcome {
    let result = match request {
        Request::MakeParents(paths) => make_parents(session, &paths).await.map(|()| Outcome::Ok),
        Request::Create { path, data, ephemeral } => {
            let created = session.create(&path, data, mode(ephemeral)).await;
            created.map(|c| Outcome::Created { path: c.path, czxid: c.stat.czxid })
        }
        Request::CreateSequential { prefix, data, ephemeral, unique_prefix } => {
            let recovery = if unique_prefix { Recovery::Name } else { Recovery::Data };
            let created = session.create_sequential(&prefix, data, mode(ephemeral), recovery).await;
            created.map(|c| Outcome::Created { path: c.path, czxid: c.stat.czxid })
        }
        Request::Set { path, data, version } => {
            let stat = session.set(&path, data, Some(version)).await;
            stat.map(|s| Outcome::Changed { version: s.version, mzxid: s.mzxid })
        }
        Request::Delete { path, version } => session.delete(&path, version).await.map(|()| Outcome::Ok),
        Request::DeleteWhile { path, version, unchanged, unchanged_version } => {
            delete_while(session, &path, version, &unchanged, unchanged_version).await.map(|()| Outcome::Ok)
        }
        Request::Get { path } => session.get(&path).await.map(|node| Outcome::Got(node.map(to_node))),
        Request::Children { path } => {
            session.children(&path).await.map(|c| Outcome::Names(c.map(|c| c.names).unwrap_or_default()))
        }
    };
    result.unwrap_or_else(outcome_of)
}

fn outcome_of(error: OpError) -> Outcome {
    match error {
        OpError::NoNode { .. } => Outcome::Missing,
        OpError::NodeExists { .. } => Outcome::Exists,
        OpError::BadVersion { .. } => Outcome::Stale,
        error if error.is_unknown() => Outcome::Unknown(error.to_string()),
        error => Outcome::NotApplied(error.to_string()),
    }
}

/// Deletes `path` in this version while `unchanged` has that one.
pub(super) async fn delete_while(
    session: &Incarnation,
    path: &str,
    version: i32,
    unchanged: &str,
    unchanged_version: i32,
) -> Result<(), OpError> {
    let group = [MultiOp::check(unchanged, unchanged_version), MultiOp::delete(path, version)];
    match session.multi(group).await {
        Err(OpError::NoNode { path }) if path == unchanged => Err(OpError::BadVersion { path }),
        done => done.map(drop),
    }
}

/// Creates each of these persistent znodes, and what is above them, where missing.
pub(super) async fn make_parents(session: &Incarnation, paths: &[String]) -> Result<(), OpError> {
    for path in paths {
        // What stands above an imagined child is the path itself and all above it.
        session.create_parents(&format!("{path}/x")).await?;
    }
    Ok(())
}

pub(super) fn to_node(node: zk_session::Node) -> Node {
    let stat = node.stat;
    Node {
        data: node.data,
        version: stat.version,
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        owner: stat.ephemeral_owner,
    }
}

/// The children of a znode with their data; those that vanish meanwhile are left out.
pub(super) async fn tree(session: &Incarnation, parent: &str) -> Result<BTreeMap<String, Node>, OpError> {
    let names = session.children(parent).await?.map(|c| c.names).unwrap_or_default();
    let mut nodes = BTreeMap::new();
    for name in names {
        if let Some(node) = session.get(&format!("{parent}/{name}")).await? {
            nodes.insert(name, to_node(node));
        }
    }
    Ok(nodes)
}

fn mode(ephemeral: bool) -> CreateMode {
    if ephemeral { CreateMode::Ephemeral } else { CreateMode::Persistent }
}
