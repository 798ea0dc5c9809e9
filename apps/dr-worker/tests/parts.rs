//! The parts of the program depend one way: config, then the views, then the worker, then the operator.

use std::{fs, path::Path};

/// All sources below a folder of `src`, with their paths, without comments.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            let text = fs::read_to_string(&path).expect("a source");
            // What documentation links to is no dependency.
            let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            found.push((path.display().to_string(), code));
        }
    }
    found
}

/// The modules at the crate's root that the code names: in `crate::NAME`, and in `crate::{NAME::.., NAME::..}`.
fn used(code: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            names.extend(name(rest));
            continue;
        };
        let (mut depth, mut begin) = (1, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && c == ',') {
                names.extend(name(&group[begin..at]));
                begin = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

#[test]
fn no_part_uses_a_later_one() {
    assert_eq!(used("use crate::{a::{b, c}, d, e::f}; crate::g::h()"), ["a", "d", "e", "g"]);
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (part, later) in [
        ("config", &["view", "worker", "operator", "error", "connect"][..]),
        ("view", &["worker", "operator"]),
        ("worker", &["operator"]),
    ] {
        let all = sources(&src.join(part));
        assert!(!all.is_empty(), "{part}");
        for (path, code) in all {
            let names = used(&code);
            let wrong: Vec<_> = names.iter().filter(|name| later.contains(&name.as_str())).collect();
            assert!(wrong.is_empty(), "{path} of {part} uses {wrong:?}");
        }
    }
}
