//! Hides passwords in URLs.

use std::borrow::Cow;

/// The replacement of hidden text.
const HIDDEN: &str = "...";

/// The text without the user information of its URLs: `postgres://ann:hunter4@db/x` is `postgres://...@db/x`. A user
/// name alone is hidden as well, because it may be a token.
pub(crate) fn mask(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("://").map(|at| at + "://".len()) {
        let (before, url) = rest.split_at(begin);
        let end = url.find(ends_url).unwrap_or(url.len());
        let hidden = user_information(&url[..end]);
        shown.push_str(before);
        if hidden > 0 {
            shown.push_str(HIDDEN);
        }
        // The rest may contain another URL, for example in a query.
        rest = &url[hidden..];
    }
    if shown.is_empty() {
        return Cow::Borrowed(text);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Characters that can't be in a URL, but often follow one.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '\\')
}

/// The length of the user information, which ends with the last '@' of the authority.
fn user_information(url: &str) -> usize {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    // A password may contain unescaped delimiters. Then the text before the delimiter is not a host and port.
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host =
        authority.rsplit_once(':').is_none_or(|(_, port)| is_port(port)) || authority.ends_with(']');
    match authority.rfind('@') {
        Some(at) => at,
        None if is_host => 0,
        None => url.rfind('@').unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_information_is_hidden_and_nothing_else() {
        for (text, shown) in [
            ("nothing here", "nothing here"),
            ("postgres://u:hunter4@h/db", "postgres://...@h/db"),
            ("postgres://u:p@ss@h/db", "postgres://...@h/db"),
            ("postgres://u:p/w@h:5432/db", "postgres://...@h:5432/db"),
            ("https://token@h", "https://...@h"),
            ("http://h:80/a@b", "http://h:80/a@b"),
            ("http://h/a@b?c=d@e", "http://h/a@b?c=d@e"),
            ("http://[::1]/a@b", "http://[::1]/a@b"),
            ("[\"--db\", \"x://u:p@h\", \"y://v@i\"]", "[\"--db\", \"x://...@h\", \"y://...@i\"]"),
            ("proxy://h/?to=http://u:p@i/", "proxy://h/?to=http://...@i/"),
            ("://", "://"),
        ] {
            assert_eq!(mask(text), shown);
        }
    }
}
