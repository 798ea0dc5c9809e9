//! The links of a page in Markdown, and what links can lead to in it.

use std::collections::BTreeSet;
use std::ops::Range;

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where its target is in the text.
    pub(crate) at: Range<usize>,
    /// The path; empty for a heading of the same page.
    pub(crate) path: String,
    /// The heading, without `#`.
    pub(crate) anchor: Option<String>,
}

impl Link {
    /// Whether it leads to something that is no file: another site, or an item in the documentation of a crate.
    pub(crate) fn is_outside(&self) -> bool {
        ["://", "mailto:", "::"].iter().any(|part| self.path.contains(part))
    }
}

/// All links of a page, and the pictures and links of HTML in it.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let prose = prose(text);
    let mut links = Vec::new();
    let kinds = [("](", &[')', ' ', '\n'][..]), ("]: ", &['\n']), ("src=\"", &['"']), ("href=\"", &['"'])];
    for (before, ends) in kinds {
        for (start, _) in prose.match_indices(before) {
            // A definition has a line of its own.
            let line = prose[..start].rfind('\n').map_or(0, |end| end + 1);
            if before == "]: " && !prose[line..].starts_with('[') {
                continue;
            }
            let start = start + before.len();
            let end = prose[start..].find(ends).map_or(prose.len(), |length| start + length);
            let (path, anchor) = match text[start..end].split_once('#') {
                Some((path, anchor)) => (path, Some(anchor.to_owned())),
                None => (&text[start..end], None),
            };
            links.push(Link { at: start..end, path: path.to_owned(), anchor });
        }
    }
    links.sort_by_key(|link| link.at.start);
    links
}

/// The names of the headings, as GitHub and mdBook give them, and the other places with a name.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let (prose, mut names) = (prose(text), Vec::new());
    let other = prose.split("<a id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let other: Vec<_> = other.map(|(name, _)| name.to_owned()).collect();
    for (line, heading) in prose.lines().zip(text.lines()) {
        let level = line.len() - line.trim_start_matches('#').len();
        if !(1..=6).contains(&level) || !line[level..].starts_with(' ') {
            continue;
        }
        let name: String = shown(heading[level..].trim())
            .chars()
            .filter(|symbol| symbol.is_alphanumeric() || matches!(symbol, '_' | '-' | ' '))
            .map(|symbol| if symbol == ' ' { '-' } else { symbol.to_ascii_lowercase() })
            .collect();
        names.push(name);
    }
    // A name that was used before gets a number.
    let earlier = |at: usize| names[..at].iter().filter(|name| **name == names[at]).count();
    let numbered = |at: usize| match earlier(at) {
        0 => names[at].clone(),
        count => format!("{}-{count}", names[at]),
    };
    (0..names.len()).map(numbered).chain(other).collect()
}

/// A heading with the texts of its links instead of the links.
fn shown(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    shown
}

/// The text with spaces instead of code, so that all else stays where it is.
fn prose(text: &str) -> String {
    let (mut prose, mut is_code) = (String::new(), false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_fence || is_code { prose.extend(line.bytes().map(blank)) } else { prose.push_str(line) }
    }
    let mut from = 0;
    while let Some(start) = prose[from..].find('`').map(|length| from + length) {
        let open = &prose[start..];
        let mark = &open[..open.len() - open.trim_start_matches('`').len()];
        let inside = start + mark.len();
        // A span ends in its paragraph.
        let paragraph = prose[inside..].find("\n\n").map_or(prose.len(), |length| inside + length);
        from = match prose[inside..paragraph].find(mark) {
            Some(length) => {
                let end = inside + length + mark.len();
                let blanks: String = prose[start..end].bytes().map(blank).collect();
                prose.replace_range(start..end, &blanks);
                end
            }
            None => inside,
        };
    }
    prose
}

fn blank(byte: u8) -> char {
    if byte == b'\n' { '\n' } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page: `x y`, [b](c.md)!\n\
        See [one](one.md), [two\nlines](../two/README.md#a-part \"a title\"), `[no](code.md)`, §.\n\
        ```sh\n# no heading\n[no](fence.md)\n```\n\
        ## Again\n<img src=\"a/b.svg\" alt=\"c\">\n### Again\n<a id=\"place\"></a>[here](#again) [there](https://example.org/#x)\n\
        no [a]: no\n[`X`]: y::X\n";

    #[test]
    fn links_are_found_outside_of_code() {
        let links = links(PAGE);
        let found: Vec<_> = links.iter().map(|link| (link.path.as_str(), link.anchor.as_deref())).collect();
        let expected = [
            ("c.md", None),
            ("one.md", None),
            ("../two/README.md", Some("a-part")),
            ("a/b.svg", None),
            ("", Some("again")),
            ("https://example.org/", Some("x")),
            ("y::X", None),
        ];
        assert_eq!(found, expected);
        assert_eq!(&PAGE[links[2].at.clone()], "../two/README.md#a-part");
        assert!(links[5].is_outside() && !links[4].is_outside());
    }

    #[test]
    fn headings_have_the_names_that_forges_give_them() {
        let expected = ["a-page-x-y-b", "again", "again-1", "place"];
        assert_eq!(anchors(PAGE), expected.map(str::to_owned).into());
    }
}
