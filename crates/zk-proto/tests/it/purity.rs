//! That there is no I/O, no clock and no task in it is shown by what it is built from.

use std::process::Command;

/// With every feature: `bytes`, `smallvec`, `thiserror`, `md-5`, `serde`, and what these are made of. No runtime, no socket, no clock,
/// no randomness.
#[test]
fn nothing_with_io_is_among_the_dependencies() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "zk-proto", "--all-features", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.contains(&"md-5"), "{names:?}");

    let known = [
        "block-buffer",
        "bytes",
        "cfg-if",
        "const-oid",
        "crypto-common",
        "digest",
        "hybrid-array",
        "md-5",
        "proc-macro2",
        "quote",
        "serde",
        "serde_core",
        "serde_derive",
        "smallvec",
        "syn",
        "thiserror",
        "thiserror-impl",
        "typenum",
        "unicode-ident",
        "zk-proto",
    ];
    let unknown: Vec<_> = names.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}: is each of these free of clocks, randomness and I/O?");
}
