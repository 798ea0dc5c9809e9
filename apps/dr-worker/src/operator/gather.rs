//! `--set` and `--config` from everywhere on the command line.
//!
//! Both may appear before and after the verb. The parser would silently keep only those after the verb.

use std::ffi::OsString;

/// These options.
pub(super) const GATHERED: [&str; 3] = ["--set", "--config", "-c"];

/// Whether it is one of them with its value: `--set=a=1`, `-c=FILE`, `-cFILE`.
fn has_value(text: &str) -> bool {
    let is_short = text.len() > 2 && text.starts_with("-c");
    is_short || GATHERED.iter().any(|name| text.strip_prefix(name).is_some_and(|v| v.starts_with('=')))
}

/// The same command line with all of them before the verb, in their order.
pub(super) fn gather(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let program: Vec<_> = arguments.next().into_iter().collect();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        if text == "--" {
            // The rest belongs to another program.
            rest.push(argument);
            break;
        }
        if GATHERED.contains(&text.as_str()) {
            match arguments.next() {
                Some(value) => first.extend([argument, value]),
                None => rest.push(argument),
            }
        } else if has_value(&text) {
            first.push(argument);
        } else {
            rest.push(argument);
        }
    }
    rest.extend(arguments);
    [program, first, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(line: &str) -> String {
        let all = gather(line.split(' ').map(OsString::from));
        all.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn settings_before_and_after_the_verb_are_kept_in_their_order() {
        let cases = [
            ("x list", "x list"),
            ("x --set a=1 simulate --set b=2", "x --set a=1 --set b=2 simulate"),
            ("x --config c simulate --set=b=2 --job j", "x --config c --set=b=2 simulate --job j"),
            ("x dev --set a=1 -- sh --set b=2", "x --set a=1 dev -- sh --set b=2"),
            ("x -c a list -c b -cd --config e", "x -c a -c b -cd --config e list"),
            ("x list --set", "x list --set"),
            ("x list --setting a", "x list --setting a"),
        ];
        for (line, expected) in cases {
            assert_eq!(gathered(line), expected, "{line}");
        }
    }
}
