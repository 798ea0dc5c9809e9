//! Requests that a server answers from its own view.

use std::borrow::Cow;

use zk_proto::{ErrorCode, EventKind, Id, PartReply, Reply, Request, permission};

use crate::embedded::tree::{self, Mode, Tree, Watcher, Watches};

/// What a reading request is answered from.
pub(super) struct View<'a> {
    pub(super) tree: &'a Tree,
    pub(super) watches: &'a mut Watches,
}

/// Who reads.
pub(super) struct Reader<'a> {
    pub(super) watcher: Watcher,
    pub(super) session: i64,
    pub(super) who: &'a [Id],
}

/// A reply, and what is to be told before it.
pub(super) struct Read {
    pub(super) reply: Result<Reply, ErrorCode>,
    pub(super) missed: Vec<(EventKind, String)>,
}

impl View<'_> {
    pub(super) fn read(&mut self, reader: &Reader<'_>, request: &Request<'_>) -> Read {
        if let Request::SetWatches { relative_zxid, data, exist, child, persistent, recursive } = request {
            let missed = self.rearm(reader.watcher, *relative_zxid, data, exist, child);
            for path in persistent {
                self.watches.watch_both(path, reader.watcher, Mode::Persistent);
            }
            for path in recursive {
                self.watches.watch_both(path, reader.watcher, Mode::Recursive);
            }
            return Read { reply: Ok(Reply::Empty), missed };
        }
        Read { reply: self.reply(reader, request), missed: Vec::new() }
    }

    fn reply(&mut self, reader: &Reader<'_>, request: &Request<'_>) -> Result<Reply, ErrorCode> {
        let may_read = |node: &tree::Node| tree::check(&node.acl, permission::READ, reader.who);
        match request {
            Request::Exists { path, watch } => {
                if path.contains('\0') {
                    return Err(ErrorCode::BAD_ARGUMENTS);
                }
                if *watch {
                    self.watches.watch_data(path, reader.watcher);
                }
                Ok(Reply::Stat(self.tree.find(path)?.stat()))
            }
            Request::GetData { path, watch } => {
                let node = self.tree.find(path)?;
                may_read(node)?;
                if *watch {
                    self.watches.watch_data(path, reader.watcher);
                }
                Ok(Reply::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, watch, with_stat } => {
                let node = self.tree.find(path)?;
                may_read(node)?;
                if *watch {
                    self.watches.watch_children(path, reader.watcher);
                }
                let names = node.children.iter().cloned().collect();
                Ok(if *with_stat { Reply::NamesAndStat(names, node.stat()) } else { Reply::Names(names) })
            }
            Request::GetAcl { path } => {
                let node = self.tree.find(path)?;
                tree::check(&node.acl, permission::READ | permission::ADMIN, reader.who)?;
                let acl = match tree::check(&node.acl, permission::ADMIN, reader.who) {
                    Ok(()) => node.acl.to_vec(),
                    Err(_) => tree::without_hashes(&node.acl),
                };
                Ok(Reply::Acl(acl, node.stat()))
            }
            Request::GetAllChildrenNumber { path } => {
                may_read(self.tree.find(path)?)?;
                Ok(Reply::Int(i32::try_from(self.tree.count_below(path)).unwrap_or(i32::MAX)))
            }
            Request::GetEphemerals { prefix } => {
                let prefix = prefix.as_deref().unwrap_or_default();
                let all = matches!(prefix.trim(), "" | "/");
                let mut paths = self.tree.ephemerals(reader.session);
                paths.retain(|path| all || path.starts_with(prefix));
                Ok(Reply::Names(paths))
            }
            Request::WhoAmI => {
                let shown = |id: &Id| Id::new(&id.scheme, tree::user(id));
                Ok(Reply::Identities(reader.who.iter().map(shown).collect()))
            }
            Request::MultiRead(parts) => {
                Ok(Reply::Multi(parts.iter().map(|part| self.part(reader, part)).collect::<Result<_, _>>()?))
            }
            Request::AddWatch { path, mode } => {
                let mode = match mode {
                    0 => Mode::Persistent,
                    1 => Mode::Recursive,
                    _ => return Err(ErrorCode::MARSHALLING_ERROR),
                };
                self.watches.watch_both(path, reader.watcher, mode);
                Ok(Reply::Int(0))
            }
            Request::CheckWatches { path, kind } => {
                let (children, data) = watch_kinds(*kind)?;
                // 3.8 looks at the parents too, and fails where there are none.
                if !path.is_empty() && !path.contains('/') {
                    return Err(ErrorCode::MARSHALLING_ERROR);
                }
                let watched = (children && self.watches.children_watched(path))
                    || (data && self.watches.data_watched(path));
                if watched { Ok(Reply::Empty) } else { Err(ErrorCode::NO_WATCHER) }
            }
            Request::RemoveWatches { path, kind } => {
                let (children, data) = watch_kinds(*kind)?;
                let children = children && self.watches.remove_children(path, reader.watcher);
                let data = data && self.watches.remove_data(path, reader.watcher);
                if children || data { Ok(Reply::Empty) } else { Err(ErrorCode::NO_WATCHER) }
            }
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    fn part(&self, reader: &Reader<'_>, part: &Request<'_>) -> Result<PartReply, ErrorCode> {
        let read = |path: &str| {
            let node = self.tree.find(path)?;
            tree::check(&node.acl, permission::READ, reader.who)?;
            Ok(node)
        };
        let reply = match part {
            Request::GetData { path, .. } => {
                read(path).map(|node| Reply::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, .. } => {
                read(path).map(|node| Reply::Names(node.children.iter().cloned().collect()))
            }
            _ => return Err(ErrorCode::MARSHALLING_ERROR),
        };
        Ok((part.op(), reply))
    }

    /// A client is back and says what it watches and up to when it knows all. What
    /// has changed since is told instead.
    fn rearm(
        &mut self,
        watcher: Watcher,
        seen: i64,
        data: &[Cow<'_, str>],
        exist: &[Cow<'_, str>],
        child: &[Cow<'_, str>],
    ) -> Vec<(EventKind, String)> {
        let mut missed = Vec::new();
        for path in data {
            match self.tree.get(path) {
                None => missed.push((EventKind::DELETED, path.to_string())),
                Some(node) if node.mzxid > seen => missed.push((EventKind::DATA_CHANGED, path.to_string())),
                Some(_) => self.watches.watch_data(path, watcher),
            }
        }
        for path in exist {
            match self.tree.get(path) {
                Some(_) => missed.push((EventKind::CREATED, path.to_string())),
                None => self.watches.watch_data(path, watcher),
            }
        }
        for path in child {
            match self.tree.get(path) {
                None => missed.push((EventKind::DELETED, path.to_string())),
                Some(node) if node.pzxid > seen => {
                    missed.push((EventKind::CHILDREN_CHANGED, path.to_string()))
                }
                Some(_) => self.watches.watch_children(path, watcher),
            }
        }
        missed
    }
}

/// The numbers of `WatcherType`: children, data, any.
fn watch_kinds(kind: i32) -> Result<(bool, bool), ErrorCode> {
    match kind {
        1 => Ok((true, false)),
        2 => Ok((false, true)),
        3 => Ok((true, true)),
        _ => Err(ErrorCode::MARSHALLING_ERROR),
    }
}
