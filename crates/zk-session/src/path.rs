//! Paths of znodes: what ZooKeeper accepts, checked before anything is sent.

use crate::error::OpError;

/// Refuses what is no absolute path that ZooKeeper accepts.
pub(crate) fn check(path: &str) -> Result<(), OpError> {
    judge(path).map_err(|reason| OpError::Invalid { path: path.to_owned(), reason })
}

/// Whether `path` is an absolute path that ZooKeeper accepts; if not, why.
///
/// The root itself is accepted.
pub(crate) fn judge(path: &str) -> Result<(), String> {
    if path == "/" {
        return Ok(());
    }
    let rest = path.strip_prefix('/').ok_or("a path must begin with '/'")?;
    if rest.as_bytes().split(|byte| *byte == b'/').any(<[u8]>::is_empty) {
        return Err("a path must not have an empty element or end with '/'".to_owned());
    }
    if rest.as_bytes().split(|byte| *byte == b'/').any(|element| matches!(element, b"." | b"..")) {
        return Err("a path must not have an element '.' or '..'".to_owned());
    }
    match rest.chars().find(|&c| is_refused(c)) {
        Some(refused) => Err(format!("ZooKeeper does not accept {refused:?} in a path")),
        None => Ok(()),
    }
}

/// Control characters, surrogates' neighbours and specials: as in ZooKeeper's own `PathUtils`.
fn is_refused(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{f000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

/// `parent` joined with `name`.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_zookeeper_takes() {
        for path in ["/", "/a", "/a/b", "/a.b/..c", "/é"] {
            assert_eq!(judge(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn paths_that_it_refuses() {
        for path in ["", "a", "//", "/a/", "/a//b", "/.", "/a/..", "/a\0", "/a\u{7f}", "/\u{fffe}"] {
            assert!(judge(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn putting_together() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }
}
