//! What a handle of a session sees of the znodes, and the access list that it gives to those that it creates.

use std::borrow::Cow;
use std::sync::Arc;

use zk_proto::AclEntry;

use crate::acl::Acl;

/// The root of the paths of a handle, and the access list of what it creates. Handles share it.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Put before each path that is sent; empty for the root of the servers.
    pub(crate) root: String,
    /// As they are sent.
    pub(crate) entries: Cow<'static, [AclEntry<'static>]>,
}

impl Scope {
    pub(crate) fn new(root: String, acl: &Acl) -> Self {
        Self { root, entries: acl.entries() }
    }

    /// Below that path, which the caller has checked.
    pub(crate) fn below(&self, path: &str) -> Self {
        let root = if path == "/" { self.root.clone() } else { self.absolute(path) };
        Self { root, entries: self.entries.clone() }
    }

    pub(crate) fn with_acl(&self, acl: &Acl) -> Self {
        Self::new(self.root.clone(), acl)
    }

    /// The path as the server knows it.
    pub(crate) fn absolute(&self, path: &str) -> String {
        match (self.root.as_str(), path) {
            ("", path) => path.to_owned(),
            (root, "/") => root.to_owned(),
            (root, path) => format!("{root}{path}"),
        }
    }

    /// The same, without a copy where that is the same path.
    pub(crate) fn absolute_shared(&self, path: &Arc<str>) -> Arc<str> {
        if self.root.is_empty() { Arc::clone(path) } else { self.absolute(path).into() }
    }

    /// The path as the caller knows it.
    pub(crate) fn relative(&self, absolute: &str) -> String {
        self.below_root(absolute).unwrap_or_else(|| absolute.to_owned())
    }

    /// The path as the caller knows it; `None` if it is not below the root.
    pub(crate) fn below_root(&self, absolute: &str) -> Option<String> {
        match absolute.strip_prefix(self.root.as_str())? {
            "" => Some("/".to_owned()),
            // Another znode's name may have the root as its prefix.
            path if path.starts_with('/') => Some(path.to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_below_another_one_joins_the_roots() {
        let root = Scope::new(String::new(), &Acl::Open);
        let (app, same) = (root.below("/app"), root.below("/"));
        let inner = app.below("/jobs/a");
        for (scope, top, absolute) in
            [(&same, "/", "/x"), (&app, "/app", "/app/x"), (&inner, "/app/jobs/a", "/app/jobs/a/x")]
        {
            assert_eq!(scope.absolute("/x"), absolute);
            assert_eq!(scope.relative(absolute), "/x");
            assert_eq!(*scope.absolute_shared(&"/x".into()), *absolute);
            assert_eq!(scope.relative(top), "/");
        }
        assert_eq!(app.absolute("/"), "/app");
        assert_eq!(app.below("/").root, "/app");
        assert_eq!(app.below_root("/apple/x"), None);
    }
}
