//! Paths of znodes.

use zk_proto::ErrorCode;

/// Whether a znode may have that path. See `PathUtils.validatePath`.
pub(crate) fn check(path: &str) -> Result<(), ErrorCode> {
    if path == "/" {
        return Ok(());
    }
    let names = path.strip_prefix('/').ok_or(ErrorCode::BAD_ARGUMENTS)?;
    let name_is_good = |name: &str| !matches!(name, "" | "." | "..") && name.encode_utf16().all(is_allowed);
    if names.split('/').all(name_is_good) { Ok(()) } else { Err(ErrorCode::BAD_ARGUMENTS) }
}

/// Control characters, surrogates and private characters are refused, and so is
/// most beyond the first plane, as it is written with surrogates.
fn is_allowed(unit: u16) -> bool {
    !matches!(unit, 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// The parent of a path that is to be created or deleted; the root's is empty.
pub(crate) fn parent(path: &str) -> Result<&str, ErrorCode> {
    match path.rfind('/') {
        Some(slash) if !path.contains('\0') => Ok(&path[..slash]),
        _ => Err(ErrorCode::BAD_ARGUMENTS),
    }
}

/// The last name of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_and_bad_paths() {
        for good in ["/", "/a", "/a/b.c", "/a/...", "/a/.b", "/ä/\u{d7ff}", "/a b"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let bad = ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\0", "/\u{1f}", "/\u{7f}"];
        for bad in bad.into_iter().chain(["/\u{e000}", "/\u{1f600}", "/\u{fff0}"]) {
            assert_eq!(check(bad), Err(ErrorCode::BAD_ARGUMENTS), "{bad}");
        }
    }

    #[test]
    fn parents() {
        assert_eq!(parent("/a"), Ok(""));
        assert_eq!(parent("/a/b"), Ok("/a"));
        assert_eq!(parent("a"), Err(ErrorCode::BAD_ARGUMENTS));
        assert_eq!(name("/a/b"), "b");
    }
}
