//! Paths of znodes.

/// The paths above one, the nearest first; none above the root.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        Some(0) if path.len() > 1 => Some("/"),
        Some(slash) if slash > 0 => Some(&path[..slash]),
        _ => None,
    })
    .skip(1)
}
