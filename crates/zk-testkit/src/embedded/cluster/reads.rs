//! Requests that a server answers from its own view.

use crate::embedded::code::Code;
use crate::embedded::tree::{self, Event, Id, Mode, Tree, Watcher, Watches, permission};
use crate::embedded::wire::{Answer, MultiAnswer, MultiOp, Request};

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

/// An answer, and what is to be told before it.
pub(super) struct Read {
    pub(super) answer: Result<Answer, Code>,
    pub(super) missed: Vec<(Event, String)>,
}

impl View<'_> {
    pub(super) fn read(&mut self, reader: &Reader<'_>, request: &Request) -> Read {
        if let Request::SetWatches { relative_zxid, data, exist, child, persistent, recursive } = request {
            let missed = self.rearm(reader.watcher, *relative_zxid, data, exist, child);
            for path in persistent {
                self.watches.watch_both(path, reader.watcher, Mode::Persistent);
            }
            for path in recursive {
                self.watches.watch_both(path, reader.watcher, Mode::Recursive);
            }
            return Read { answer: Ok(Answer::Nothing), missed };
        }
        Read { answer: self.answer(reader, request), missed: Vec::new() }
    }

    fn answer(&mut self, reader: &Reader<'_>, request: &Request) -> Result<Answer, Code> {
        let may_read = |node: &tree::Node| tree::check(&node.acl, permission::READ, reader.who);
        match request {
            Request::Exists { path, watch } => {
                if path.contains('\0') {
                    return Err(Code::BAD_ARGUMENTS);
                }
                if *watch {
                    self.watches.watch_data(path, reader.watcher);
                }
                Ok(Answer::Stat(self.tree.find(path)?.stat()))
            }
            Request::GetData { path, watch } => {
                let node = self.tree.find(path)?;
                may_read(node)?;
                if *watch {
                    self.watches.watch_data(path, reader.watcher);
                }
                Ok(Answer::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, watch, with_stat } => {
                let node = self.tree.find(path)?;
                may_read(node)?;
                if *watch {
                    self.watches.watch_children(path, reader.watcher);
                }
                let names = node.children.iter().cloned().collect();
                Ok(if *with_stat { Answer::NamesAndStat(names, node.stat()) } else { Answer::Names(names) })
            }
            Request::GetAcl { path } => {
                let node = self.tree.find(path)?;
                tree::check(&node.acl, permission::READ | permission::ADMIN, reader.who)?;
                let acl = match tree::check(&node.acl, permission::ADMIN, reader.who) {
                    Ok(()) => node.acl.to_vec(),
                    Err(_) => tree::without_hashes(&node.acl),
                };
                Ok(Answer::Acl(acl, node.stat()))
            }
            Request::GetAllChildrenNumber { path } => {
                may_read(self.tree.find(path)?)?;
                Ok(Answer::Int(i32::try_from(self.tree.count_below(path)).unwrap_or(i32::MAX)))
            }
            Request::GetEphemerals { prefix } => {
                let prefix = prefix.as_deref().unwrap_or_default();
                let all = matches!(prefix.trim(), "" | "/");
                let mut paths = self.tree.ephemerals(reader.session);
                paths.retain(|path| all || path.starts_with(prefix));
                Ok(Answer::Names(paths))
            }
            Request::WhoAmI => {
                let user = |id: &Id| Id::new(&id.scheme, id.user());
                Ok(Answer::Identities(reader.who.iter().map(user).collect()))
            }
            Request::MultiRead(parts) => {
                Ok(Answer::Multi(parts.iter().map(|part| self.part(reader, part)).collect::<Result<_, _>>()?))
            }
            Request::AddWatch { path, mode } => {
                let mode = match mode {
                    0 => Mode::Persistent,
                    1 => Mode::Recursive,
                    _ => return Err(Code::MARSHALLING_ERROR),
                };
                self.watches.watch_both(path, reader.watcher, mode);
                Ok(Answer::Int(0))
            }
            Request::CheckWatches { path, kind } => {
                let (children, data) = watch_kinds(*kind)?;
                // 3.8 looks at the parents too, and stumbles where there are none.
                if !path.is_empty() && !path.contains('/') {
                    return Err(Code::MARSHALLING_ERROR);
                }
                let watched = (children && self.watches.children_watched(path))
                    || (data && self.watches.data_watched(path));
                if watched { Ok(Answer::Nothing) } else { Err(Code::NO_WATCHER) }
            }
            Request::RemoveWatches { path, kind } => {
                let (children, data) = watch_kinds(*kind)?;
                let children = children && self.watches.remove_children(path, reader.watcher);
                let data = data && self.watches.remove_data(path, reader.watcher);
                if children || data { Ok(Answer::Nothing) } else { Err(Code::NO_WATCHER) }
            }
            _ => Err(Code::UNIMPLEMENTED),
        }
    }

    fn part(&self, reader: &Reader<'_>, part: &MultiOp) -> Result<MultiAnswer, Code> {
        let read = |path: &str| {
            let node = self.tree.find(path)?;
            tree::check(&node.acl, permission::READ, reader.who)?;
            Ok(node)
        };
        let answer = match part {
            MultiOp::GetData { path } => {
                read(path).map(|node| MultiAnswer::Data(node.data.clone(), node.stat()))
            }
            MultiOp::GetChildren { path } => {
                read(path).map(|node| MultiAnswer::Names(node.children.iter().cloned().collect()))
            }
            _ => return Err(Code::MARSHALLING_ERROR),
        };
        Ok(answer.unwrap_or_else(MultiAnswer::Failed))
    }

    /// A client is back and says what it watches and up to when it knows all. What
    /// has changed since is told instead.
    fn rearm(
        &mut self,
        watcher: Watcher,
        seen: i64,
        data: &[String],
        exist: &[String],
        child: &[String],
    ) -> Vec<(Event, String)> {
        let mut missed = Vec::new();
        for path in data {
            match self.tree.get(path) {
                None => missed.push((Event::Deleted, path.clone())),
                Some(node) if node.mzxid > seen => missed.push((Event::DataChanged, path.clone())),
                Some(_) => self.watches.watch_data(path, watcher),
            }
        }
        for path in exist {
            match self.tree.get(path) {
                Some(_) => missed.push((Event::Created, path.clone())),
                None => self.watches.watch_data(path, watcher),
            }
        }
        for path in child {
            match self.tree.get(path) {
                None => missed.push((Event::Deleted, path.clone())),
                Some(node) if node.pzxid > seen => missed.push((Event::ChildrenChanged, path.clone())),
                Some(_) => self.watches.watch_children(path, watcher),
            }
        }
        missed
    }
}

/// The numbers of `WatcherType`: children, data, any.
fn watch_kinds(kind: i32) -> Result<(bool, bool), Code> {
    match kind {
        1 => Ok((true, false)),
        2 => Ok((false, true)),
        3 => Ok((true, true)),
        _ => Err(Code::MARSHALLING_ERROR),
    }
}
