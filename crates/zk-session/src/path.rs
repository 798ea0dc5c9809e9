//! Paths of znodes: what ZooKeeper accepts, checked before anything is sent.

/// Whether `path` is an absolute path that ZooKeeper accepts; if not, why.
///
/// The root itself is accepted.
pub(crate) fn check(path: &str) -> Result<(), String> {
    if path == "/" {
        return Ok(());
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err("a path begins with '/'".to_owned());
    };
    for element in rest.split('/') {
        match element {
            "" => return Err("a path has no empty element and no '/' at its end".to_owned()),
            "." | ".." => return Err("a path has no element '.' or '..'".to_owned()),
            _ => {}
        }
    }
    match rest.chars().find(|&c| is_refused(c)) {
        Some(refused) => Err(format!("ZooKeeper accepts no {refused:?} in a path")),
        None => Ok(()),
    }
}

/// Control characters, surrogates' neighbours and specials: as in ZooKeeper's own `PathUtils`.
fn is_refused(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{f000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

/// The proper ancestors of `path` without the root, the outermost first.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.char_indices().skip(1).filter(|&(_, c)| c == '/').map(|(at, _)| &path[..at])
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
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn paths_that_it_refuses() {
        for path in ["", "a", "//", "/a/", "/a//b", "/.", "/a/..", "/a\0", "/a\u{7f}", "/\u{fffe}"] {
            assert!(check(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn taking_apart_and_putting_together() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(ancestors("/a").count(), 0);
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }
}
