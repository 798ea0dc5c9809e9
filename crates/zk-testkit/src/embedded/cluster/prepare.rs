//! From a request to a transaction: whether it can be done, decided on the tree of
//! the server that leads. The order of the checks is the one of Apache ZooKeeper,
//! because it decides which of several errors is returned.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use zk_proto::{Acl, AclEntry, Create, ErrorCode, Id, OpCode, Request, permission};

use crate::embedded::settings::Release;
use crate::embedded::tree::{self, Change, LONGEST_TTL, Owner, Tree, path};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) session: i64,
    pub(super) who: &'a [Id],
    /// Whether znodes with a time to live are enabled.
    pub(super) ttl_enabled: bool,
    pub(super) release: Release,
}

/// What is to be done for a request that goes through the log, or why nothing is.
pub(super) fn change(tree: &Tree, asking: Asking<'_>, op: OpCode, body: &Bytes) -> Change {
    let Ok(request) = Request::decode(op, body) else { return Change::Nothing(ErrorCode::MARSHALLING_ERROR) };
    let mut draft = Draft { tree, asking, body, changed: HashMap::new() };
    let change = match &request {
        Request::Create(create) => draft.create(create.op, create),
        Request::Delete { path, version } => draft.delete(path, *version),
        Request::SetData { path, data, version } => draft.set_data(path, data.as_deref(), *version),
        Request::SetAcl { path, acl, version } => draft.set_acl(path, acl, *version),
        Request::Check { path, version } => draft.check(path, *version),
        Request::CloseSession => Ok(Change::CloseSession(tree.ephemerals(asking.session))),
        Request::Multi(parts) => draft.multi(parts),
        Request::Reconfig { .. } => Err(ErrorCode::RECONFIG_DISABLED),
        _ => Err(ErrorCode::UNIMPLEMENTED),
    };
    change.unwrap_or_else(Change::Nothing)
}

/// What later parts of a `multi` must know of a znode that earlier ones change.
#[derive(Debug, Clone)]
struct Known {
    version: i32,
    aversion: i32,
    created_children: i32,
    children: usize,
    owner: Owner,
    acl: Arc<[Acl]>,
}

struct Draft<'a> {
    tree: &'a Tree,
    asking: Asking<'a>,
    body: &'a Bytes,
    /// `None`: deleted.
    changed: HashMap<String, Option<Known>>,
}

impl Draft<'_> {
    fn find(&self, path: &str) -> Result<Known, ErrorCode> {
        let path = if path == "/" { "" } else { path };
        if let Some(known) = self.changed.get(path) {
            return known.clone().ok_or(ErrorCode::NO_NODE);
        }
        let node = self.tree.find(path)?;
        Ok(Known {
            version: node.version,
            aversion: node.aversion,
            created_children: node.created_children,
            children: node.children.len(),
            owner: node.owner,
            acl: Arc::clone(&node.acl),
        })
    }

    fn note(&mut self, path: &str, known: Option<Known>) {
        let path = if path == "/" { "" } else { path };
        self.changed.insert(path.to_owned(), known);
    }

    fn may(&self, known: &Known, wanted: i32) -> Result<(), ErrorCode> {
        tree::check(&known.acl, wanted, self.asking.who)
    }

    /// The data of a request are a part of its body: they are kept without a copy.
    fn keep(&self, data: Option<&[u8]>) -> Option<Bytes> {
        data.map(|data| self.body.slice_ref(data))
    }

    /// `op` is the request's, or what the flags make of a part of a group.
    fn create(&mut self, op: OpCode, create: &Create<'_>) -> Result<Change, ErrorCode> {
        let mode = NodeKind::from_flags(create.flags)?;
        if mode.ttl && !self.asking.ttl_enabled {
            return Err(ErrorCode::UNIMPLEMENTED);
        }
        let ttl_fits = if mode.ttl { (1..=LONGEST_TTL).contains(&create.ttl_ms) } else { create.ttl_ms < 0 };
        if !ttl_fits || (op == OpCode::CREATE_TTL && !mode.ttl) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let parent_path = path::parent(&create.path)?;
        let acl = tree::settle(&create.acl, self.asking.who)?;
        let mut parent = self.find(parent_path)?;
        self.may(&parent, permission::CREATE)?;
        let path = match mode.sequential {
            true => format!("{}{:010}", create.path, parent.created_children),
            false => create.path.to_string(),
        };
        path::check(&path)?;
        if self.find(&path).is_ok() {
            return Err(ErrorCode::NODE_EXISTS);
        }
        if matches!(parent.owner, Owner::Session(_)) {
            return Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let owner = match op {
            OpCode::CREATE_CONTAINER => Owner::Container,
            OpCode::CREATE_TTL => Owner::Ttl(create.ttl_ms),
            _ if mode.ephemeral => Owner::Session(self.asking.session),
            _ => Owner::Nobody,
        };
        parent.children += 1;
        parent.created_children = parent.created_children.wrapping_add(1);
        let created_children = parent.created_children;
        let known =
            Known { version: 0, aversion: 0, created_children: 0, children: 0, owner, acl: Arc::clone(&acl) };
        self.note(parent_path, Some(parent));
        self.note(&path, Some(known));
        Ok(Change::Create {
            path,
            data: self.keep(create.data.as_deref()),
            acl,
            owner,
            created_children,
            with_stat: op != OpCode::CREATE,
        })
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<Change, ErrorCode> {
        let parent_path = path::parent(path)?;
        if self.tree.is_reserved(path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let mut parent = self.find(parent_path)?;
        self.may(&parent, permission::DELETE)?;
        let known = self.find(path)?;
        next_version(known.version, version)?;
        if known.children > 0 {
            return Err(ErrorCode::NOT_EMPTY);
        }
        parent.children -= 1;
        self.note(parent_path, Some(parent));
        self.note(path, None);
        Ok(Change::Delete(path.to_owned()))
    }

    fn set_data(&mut self, path: &str, data: Option<&[u8]>, version: i32) -> Result<Change, ErrorCode> {
        path::check(path)?;
        let mut known = self.find(path)?;
        self.may(&known, permission::WRITE)?;
        known.version = next_version(known.version, version)?;
        let version = known.version;
        self.note(path, Some(known));
        Ok(Change::SetData { path: path.to_owned(), data: self.keep(data), version })
    }

    fn set_acl(&mut self, path: &str, acl: &[AclEntry<'_>], version: i32) -> Result<Change, ErrorCode> {
        path::check(path)?;
        let acl = tree::settle(acl, self.asking.who)?;
        let known = self.find(path)?;
        self.may(&known, permission::ADMIN)?;
        let version = next_version(known.aversion, version)?;
        Ok(Change::SetAcl { path: path.to_owned(), acl, version })
    }

    fn check(&mut self, path: &str, version: i32) -> Result<Change, ErrorCode> {
        path::check(path)?;
        let known = self.find(path)?;
        self.may(&known, permission::READ)?;
        next_version(known.version, version)?;
        Ok(Change::Checked)
    }

    fn multi(&mut self, parts: &[Request<'_>]) -> Result<Change, ErrorCode> {
        // 3.9 reads what kind of znode each is to make before it looks at any part.
        let is_odd = |part: &Request<'_>| matches!(part, Request::Create(it) if NodeKind::from_flags(it.flags).is_err());
        if self.asking.release >= Release::V3_9 && parts.iter().any(is_odd) {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        let mut failed = false;
        let mut changes = Vec::new();
        for part in parts {
            if failed {
                changes.push(Change::Nothing(ErrorCode::RUNTIME_INCONSISTENCY));
                continue;
            }
            let change = match part {
                Request::Create(create) => self.create(part_op(create, self.asking.release), create),
                Request::Delete { path, version } => self.delete(path, *version),
                Request::SetData { path, data, version } => self.set_data(path, data.as_deref(), *version),
                Request::Check { path, version } => self.check(path, *version),
                _ => return Err(ErrorCode::MARSHALLING_ERROR),
            };
            // Where Apache ZooKeeper can't read a field, none of the parts has an answer.
            if matches!(change, Err(ErrorCode::MARSHALLING_ERROR)) {
                return Err(ErrorCode::MARSHALLING_ERROR);
            }
            failed = change.is_err();
            changes.push(change.unwrap_or_else(Change::Nothing));
        }
        Ok(Change::Multi(changes))
    }
}

/// In a group the flags decide, not the code: all but containers and znodes with a time to live
/// are answered with the path alone. From 3.9 on only a plain `create` is.
fn part_op(create: &Create<'_>, release: Release) -> OpCode {
    match (create.op, create.flags) {
        (OpCode::CREATE2 | OpCode::CREATE_CONTAINER, 0..=3) if release >= Release::V3_9 => OpCode::CREATE2,
        (OpCode::CREATE_TTL, 5 | 6) => OpCode::CREATE_TTL,
        (OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER, 4) => OpCode::CREATE_CONTAINER,
        _ => OpCode::CREATE,
    }
}

/// -1 fits every version.
fn next_version(is: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected == -1 || expected == is { Ok(is.wrapping_add(1)) } else { Err(ErrorCode::BAD_VERSION) }
}

struct NodeKind {
    ephemeral: bool,
    sequential: bool,
    ttl: bool,
}

impl NodeKind {
    /// The numbers of `CreateMode`; 4 is a container.
    fn from_flags(flags: i32) -> Result<Self, ErrorCode> {
        if !(0..=6).contains(&flags) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        Ok(Self {
            ephemeral: matches!(flags, 1 | 3),
            sequential: matches!(flags, 2 | 3 | 6),
            ttl: matches!(flags, 5 | 6),
        })
    }
}
