//! The pages of documentation in a package: their links lead to what the package has.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

#[path = "../../book/src/links.rs"]
#[allow(dead_code, reason = "the site uses the rest")]
mod links;

/// A page with its links to files in the workspace changed: to their places, or to the text of the link alone if the package
/// does not have the file. `places` are those of all files in the package.
pub(super) fn installed(text: &str, page: &Path, places: &BTreeMap<PathBuf, PathBuf>) -> String {
    let mut text = text.to_owned();
    let Some(here) = places.get(page).and_then(|place| place.parent()) else { return text };
    for link in links::links(&text).into_iter().rev() {
        if link.is_outside() || link.path.is_empty() {
            continue;
        }
        let target = plain(&page.with_file_name(&link.path));
        let anchor = link.anchor.map(|name| format!("#{name}")).unwrap_or_default();
        match (places.get(&target), label(&text, link.at.start)) {
            (Some(place), _) => text.replace_range(link.at, &(relative(here, place) + &anchor)),
            (None, Some(label)) => {
                let end = text[link.at.end..].find(')').map_or(text.len(), |length| link.at.end + length + 1);
                let shown = text[label + 1..link.at.start - "](".len()].to_owned();
                text.replace_range(label..end, &shown);
            }
            (None, None) => {}
        }
    }
    text
}

/// The files that a page links to.
#[cfg(test)]
pub(super) fn targets(text: &str, page: &Path) -> impl Iterator<Item = PathBuf> {
    let to_files = links::links(text).into_iter().filter(|link| !link.is_outside() && !link.path.is_empty());
    to_files.map(move |link| plain(&page.with_file_name(&link.path)))
}

/// Where the text of a link begins whose target begins at `target`; `None` for links of HTML.
fn label(text: &str, target: usize) -> Option<usize> {
    let before = text[..target].strip_suffix("](")?;
    let mut open = 1;
    let brackets = before.char_indices().rev().filter(|(_, symbol)| matches!(symbol, '[' | ']'));
    for (at, symbol) in brackets {
        open = if symbol == ']' { open + 1 } else { open - 1 };
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// Without `.` and `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

fn relative(from: &Path, to: &Path) -> String {
    let same = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(same).map(|_| Component::ParentDir);
    up.chain(to.components().skip(same)).collect::<PathBuf>().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_what_the_package_has() {
        let places = [
            ("/w/docs/a.md", "doc/a.md"),
            ("/w/docs/b.md", "doc/b.md"),
            ("/w/base.toml", "doc/more/base.toml"),
        ];
        let places = places.map(|(from, to)| (from.into(), to.into())).into();
        let page = "[b](b.md#x) [every `key`](../base.toml) [a [nested] one](../src/a.rs) [c](c.md \"title\")! \
                    [here](#y) [there](https://example.org/) `[d](d.md)`";
        let expected = "[b](b.md#x) [every `key`](more/base.toml) a [nested] one c! \
                        [here](#y) [there](https://example.org/) `[d](d.md)`";
        assert_eq!(installed(page, Path::new("/w/docs/a.md"), &places), expected);
    }
}
