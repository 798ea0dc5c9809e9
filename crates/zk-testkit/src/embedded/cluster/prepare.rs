//! From a request to a transaction: whether it can be done, decided on the tree of
//! the server that leads. The order of the checks is the one of Apache ZooKeeper,
//! as it decides which of several errors is told.

use std::collections::HashMap;
use std::sync::Arc;

use crate::embedded::code::Code;
use crate::embedded::tree::{self, Acl, Change, Id, LONGEST_TTL, Owner, Tree, Wanted, path, permission};
use crate::embedded::wire::{Create, CreateKind, MultiOp, Request};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) session: i64,
    pub(super) who: &'a [Id],
    /// Whether znodes with a time to live are enabled.
    pub(super) ttl_enabled: bool,
}

/// What is to be done for a request that goes through the log, or why nothing is.
pub(super) fn change(tree: &Tree, asking: Asking<'_>, request: &Request) -> Change {
    let mut draft = Draft { tree, asking, changed: HashMap::new() };
    let change = match request {
        Request::Create(create) => draft.create(create),
        Request::Delete { path, version } => draft.delete(path, *version),
        Request::SetData { path, data, version } => draft.set_data(path, data.as_deref(), *version),
        Request::SetAcl { path, acl, version } => draft.set_acl(path, acl, *version),
        Request::Check { path, version } => draft.check(path, *version),
        Request::CloseSession => Ok(Change::CloseSession(tree.ephemerals(asking.session))),
        Request::Multi(parts) => draft.multi(parts),
        Request::Reconfig => Err(Code::RECONFIG_DISABLED),
        _ => Err(Code::UNIMPLEMENTED),
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
    /// `None`: deleted.
    changed: HashMap<String, Option<Known>>,
}

impl Draft<'_> {
    fn find(&self, path: &str) -> Result<Known, Code> {
        let path = if path == "/" { "" } else { path };
        if let Some(known) = self.changed.get(path) {
            return known.clone().ok_or(Code::NO_NODE);
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

    fn may(&self, known: &Known, wanted: i32) -> Result<(), Code> {
        tree::check(&known.acl, wanted, self.asking.who)
    }

    fn create(&mut self, create: &Create) -> Result<Change, Code> {
        let mode = Mode::from_flags(create.flags)?;
        if mode.ttl && !self.asking.ttl_enabled {
            return Err(Code::UNIMPLEMENTED);
        }
        let ttl_fits = if mode.ttl { (1..=LONGEST_TTL).contains(&create.ttl) } else { create.ttl < 0 };
        if !ttl_fits || (create.kind == CreateKind::Ttl && !mode.ttl) {
            return Err(Code::BAD_ARGUMENTS);
        }
        let parent_path = path::parent(&create.path)?;
        let acl = tree::settle(&create.acl, self.asking.who)?;
        let mut parent = self.find(parent_path)?;
        self.may(&parent, permission::CREATE)?;
        let path = match mode.sequential {
            true => format!("{}{:010}", create.path, parent.created_children),
            false => create.path.clone(),
        };
        path::check(&path)?;
        if self.find(&path).is_ok() {
            return Err(Code::NODE_EXISTS);
        }
        if matches!(parent.owner, Owner::Session(_)) {
            return Err(Code::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let owner = match create.kind {
            CreateKind::Container => Owner::Container,
            CreateKind::Ttl => Owner::Ttl(create.ttl),
            CreateKind::Plain | CreateKind::WithStat if mode.ephemeral => Owner::Session(self.asking.session),
            CreateKind::Plain | CreateKind::WithStat => Owner::Nobody,
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
            data: create.data.as_deref().map(Arc::from),
            acl,
            owner,
            created_children,
            with_stat: create.kind != CreateKind::Plain,
        })
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<Change, Code> {
        let parent_path = path::parent(path)?;
        if Tree::is_reserved(path) {
            return Err(Code::BAD_ARGUMENTS);
        }
        let mut parent = self.find(parent_path)?;
        self.may(&parent, permission::DELETE)?;
        let known = self.find(path)?;
        next_version(known.version, version)?;
        if known.children > 0 {
            return Err(Code::NOT_EMPTY);
        }
        parent.children -= 1;
        self.note(parent_path, Some(parent));
        self.note(path, None);
        Ok(Change::Delete(path.to_owned()))
    }

    fn set_data(&mut self, path: &str, data: Option<&[u8]>, version: i32) -> Result<Change, Code> {
        path::check(path)?;
        let mut known = self.find(path)?;
        self.may(&known, permission::WRITE)?;
        known.version = next_version(known.version, version)?;
        let version = known.version;
        self.note(path, Some(known));
        Ok(Change::SetData { path: path.to_owned(), data: data.map(Arc::from), version })
    }

    fn set_acl(&mut self, path: &str, acl: &[Wanted], version: i32) -> Result<Change, Code> {
        path::check(path)?;
        let acl = tree::settle(acl, self.asking.who)?;
        let known = self.find(path)?;
        self.may(&known, permission::ADMIN)?;
        let version = next_version(known.aversion, version)?;
        Ok(Change::SetAcl { path: path.to_owned(), acl, version })
    }

    fn check(&mut self, path: &str, version: i32) -> Result<Change, Code> {
        path::check(path)?;
        let known = self.find(path)?;
        self.may(&known, permission::READ)?;
        next_version(known.version, version)?;
        Ok(Change::Checked)
    }

    fn multi(&mut self, parts: &[MultiOp]) -> Result<Change, Code> {
        let mut failed = false;
        let mut changes = Vec::new();
        for part in parts {
            if failed {
                changes.push(Change::Nothing(Code::RUNTIME_INCONSISTENCY));
                continue;
            }
            let change = match part {
                MultiOp::Create(create) => self.create(create),
                MultiOp::Delete { path, version } => self.delete(path, *version),
                MultiOp::SetData { path, data, version } => self.set_data(path, data.as_deref(), *version),
                MultiOp::Check { path, version } => self.check(path, *version),
                MultiOp::GetData { .. } | MultiOp::GetChildren { .. } => return Err(Code::MARSHALLING_ERROR),
            };
            // Where Apache ZooKeeper stumbles, none of the parts has an answer.
            if matches!(change, Err(Code::MARSHALLING_ERROR)) {
                return Err(Code::MARSHALLING_ERROR);
            }
            failed = change.is_err();
            changes.push(change.unwrap_or_else(Change::Nothing));
        }
        Ok(Change::Multi(changes))
    }
}

/// -1 fits every version.
fn next_version(is: i32, expected: i32) -> Result<i32, Code> {
    if expected == -1 || expected == is { Ok(is.wrapping_add(1)) } else { Err(Code::BAD_VERSION) }
}

struct Mode {
    ephemeral: bool,
    sequential: bool,
    ttl: bool,
}

impl Mode {
    /// The numbers of `CreateMode`; 4 is a container.
    fn from_flags(flags: i32) -> Result<Self, Code> {
        if !(0..=6).contains(&flags) {
            return Err(Code::BAD_ARGUMENTS);
        }
        Ok(Self {
            ephemeral: matches!(flags, 1 | 3),
            sequential: matches!(flags, 2 | 3 | 6),
            ttl: matches!(flags, 5 | 6),
        })
    }
}
