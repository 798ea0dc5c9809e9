//! Requests that a server answers from its own view.

use zk_proto::{ErrorCode, EventKind, Id, PartReply, Reply, Request, permission};

use super::replica::Replica;
use crate::embedded::settings::Release;
use crate::embedded::tree::{Node, WatchMode, Watcher, check, user, without_hashes};

/// Who reads.
pub(super) struct Reader<'a> {
    pub(super) watcher: Watcher,
    pub(super) session: i64,
    pub(super) who: &'a [Id],
    pub(super) release: Release,
}

impl Replica {
    pub(super) fn read(&mut self, reader: &Reader<'_>, request: &Request<'_>) -> Result<Reply, ErrorCode> {
        let Self { tree, watches, .. } = self;
        let &Reader { watcher, session, who, release } = reader;
        let readable = |path: &str| {
            let node = tree.find(path)?;
            check(&node.acl, permission::READ, who).map(|()| node)
        };
        match request {
            Request::Exists { path, watch } => {
                if path.contains('\0') {
                    return Err(ErrorCode::BAD_ARGUMENTS);
                }
                // Before 3.9 any client may see whether a znode exists.
                if release >= Release::V3_9 && tree.get(path).is_some() {
                    readable(path)?;
                }
                if *watch {
                    watches.data.add(path, watcher, WatchMode::Once);
                }
                Ok(Reply::Stat(tree.find(path)?.stat()))
            }
            Request::GetData { path, watch } => {
                let node = readable(path)?;
                if *watch {
                    watches.data.add(path, watcher, WatchMode::Once);
                }
                Ok(Reply::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, watch, with_stat } => {
                let node = readable(path)?;
                if *watch {
                    watches.child.add(path, watcher, WatchMode::Once);
                }
                let names = node.children.iter().cloned().collect();
                Ok(if *with_stat { Reply::NamesAndStat(names, node.stat()) } else { Reply::Names(names) })
            }
            Request::GetAcl { path } => {
                let node = tree.find(path)?;
                check(&node.acl, permission::READ | permission::ADMIN, who)?;
                let acl = match check(&node.acl, permission::ADMIN, who) {
                    Ok(()) => node.acl.to_vec(),
                    Err(_) => without_hashes(&node.acl),
                };
                Ok(Reply::Acl(acl, node.stat()))
            }
            Request::GetAllChildrenNumber { path } => {
                readable(path)?;
                Ok(Reply::Int(i32::try_from(tree.count_below(path)).unwrap_or(i32::MAX)))
            }
            Request::GetEphemerals { prefix } => {
                let prefix = prefix.as_deref().unwrap_or_default();
                let all = matches!(prefix.trim(), "" | "/");
                let mut paths = tree.ephemerals(session);
                paths.retain(|path| all || path.starts_with(prefix));
                Ok(Reply::Names(paths))
            }
            Request::WhoAmI => {
                let shown = |id: &Id| Id::new(&id.scheme, user(id));
                Ok(Reply::Identities(who.iter().map(shown).collect()))
            }
            Request::MultiRead(parts) => {
                Ok(Reply::Multi(parts.iter().map(|part| self.part(reader, part)).collect::<Result<_, _>>()?))
            }
            _ => self.watch(reader, request),
        }
    }

    /// Sets, checks or removes watches. Nothing else is left.
    fn watch(&mut self, reader: &Reader<'_>, request: &Request<'_>) -> Result<Reply, ErrorCode> {
        let Self { tree, watches, .. } = self;
        let &Reader { watcher, release, .. } = reader;
        match request {
            // A client has reconnected, with its watches and the last change that it has seen. Later changes
            // are reported as events instead.
            Request::SetWatches { relative_zxid, data, exist, child, persistent, recursive } => {
                let since = |path: &str, zxid: fn(&Node) -> i64, changed| match tree.get(path) {
                    None => Some(EventKind::DELETED),
                    Some(node) => (zxid(node) > *relative_zxid).then_some(changed),
                };
                let mut again = |path: &str, of_children: bool, missed| match missed {
                    Some(kind) => watches.missed(watcher, kind, path),
                    None if of_children => watches.child.add(path, watcher, WatchMode::Once),
                    None => watches.data.add(path, watcher, WatchMode::Once),
                };
                for path in data {
                    again(path, false, since(path, |node| node.mzxid, EventKind::DATA_CHANGED));
                }
                for path in exist {
                    again(path, false, tree.get(path).map(|_| EventKind::CREATED));
                }
                for path in child {
                    again(path, true, since(path, |node| node.pzxid, EventKind::CHILDREN_CHANGED));
                }
                for path in persistent {
                    watches.add_both(path, watcher, WatchMode::Persistent);
                }
                for path in recursive {
                    watches.add_both(path, watcher, WatchMode::Recursive);
                }
                Ok(Reply::Empty)
            }
            Request::AddWatch { path, mode } => {
                let mode = match mode {
                    0 => WatchMode::Persistent,
                    1 => WatchMode::Recursive,
                    _ => return Err(ErrorCode::MARSHALLING_ERROR),
                };
                watches.add_both(path, watcher, mode);
                Ok(Reply::Int(0))
            }
            Request::CheckWatches { path, kind } => {
                let (children, data, mode) = watch_kind(*kind, release)?;
                // 3.8 looks at the path and its parents: it looks at nothing for the empty path, and fails where there
                // is no parent.
                if release < Release::V3_9 && path.is_empty() {
                    return Err(ErrorCode::NO_WATCHER);
                }
                if release < Release::V3_9 && !path.contains('/') {
                    return Err(ErrorCode::MARSHALLING_ERROR);
                }
                let whose = (release >= Release::V3_9).then_some(watcher);
                let watched = (children && watches.child.has(path, whose, mode))
                    || (data && watches.data.has(path, whose, mode));
                if watched { Ok(Reply::Empty) } else { Err(ErrorCode::NO_WATCHER) }
            }
            Request::RemoveWatches { path, kind } => {
                let (children, data, mode) = watch_kind(*kind, release)?;
                let children = children && watches.child.remove(path, watcher, mode);
                let data = data && watches.data.remove(path, watcher, mode);
                if children || data { Ok(Reply::Empty) } else { Err(ErrorCode::NO_WATCHER) }
            }
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    /// A part of a group sets no watch, whatever its flag is.
    fn part(&mut self, reader: &Reader<'_>, part: &Request<'_>) -> Result<PartReply, ErrorCode> {
        let mut unwatched = part.clone();
        match &mut unwatched {
            Request::GetData { watch, .. } | Request::GetChildren { watch, .. } => *watch = false,
            _ => return Err(ErrorCode::MARSHALLING_ERROR),
        }
        Ok((part.op(), self.read(reader, &unwatched)))
    }
}

/// The numbers of `WatcherType`: which of the two tables, and which mode. Before 3.9 modes are not
/// distinguished.
fn watch_kind(kind: i32, release: Release) -> Result<(bool, bool, Option<WatchMode>), ErrorCode> {
    let is_newer = release >= Release::V3_9;
    match kind {
        1 => Ok((true, false, is_newer.then_some(WatchMode::Once))),
        2 => Ok((false, true, is_newer.then_some(WatchMode::Once))),
        3 => Ok((true, true, None)),
        4 if is_newer => Ok((true, true, Some(WatchMode::Persistent))),
        5 if is_newer => Ok((true, true, Some(WatchMode::Recursive))),
        _ => Err(ErrorCode::MARSHALLING_ERROR),
    }
}
