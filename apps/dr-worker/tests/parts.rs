//! The parts of the program depend one way: config, then the views, then the worker, then the operator.

use std::{fs, path::Path};

/// All sources below a folder of `src`, with their paths.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            let text = fs::read_to_string(&path).expect("a source");
            found.push((path.display().to_string(), text));
        }
    }
    found
}

/// Whether a line names something of this module of the crate: `crate::NAME`, or `NAME::` in a group of imports.
fn uses(line: &str, module: &str) -> bool {
    line.contains(&format!("crate::{module}"))
        || line
            .match_indices(&format!("{module}::"))
            .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

#[test]
fn no_part_uses_a_later_one() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (part, later) in [
        ("config", &["view", "worker", "operator", "error", "connect"][..]),
        ("view", &["worker", "operator"]),
        ("worker", &["operator"]),
    ] {
        let all = sources(&src.join(part));
        assert!(!all.is_empty(), "{part}");
        for (path, text) in all {
            // What documentation links to is no dependency.
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                for other in later {
                    assert!(!uses(line, other), "{path} of {part} uses {other}: {line}");
                }
            }
        }
    }
}
