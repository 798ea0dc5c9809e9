//! That the crate is pure is shown by what it is built from.

use std::process::Command;

/// Neither a runtime, a client, a clock nor random numbers: the data types of
/// election-core, serde, and what these two are made of.
#[test]
fn nothing_with_io_is_among_the_dependencies() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "strategies", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<_> = tree.lines().filter_map(|l| l.split(' ').next()).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.contains(&"election-core"), "{names:?}");

    // Serde, its JSON, smallvec, thiserror, and what these are built with.
    let known = [
        "election-core",
        "itoa",
        "memchr",
        "proc-macro2",
        "quote",
        "serde",
        "serde_core",
        "serde_derive",
        "serde_json",
        "smallvec",
        "strategies",
        "syn",
        "thiserror",
        "thiserror-impl",
        "unicode-ident",
        "zmij",
    ];
    let unknown: Vec<_> = names.iter().filter(|n| !known.contains(n)).collect();
    assert!(unknown.is_empty(), "{unknown:?}: is each of these free of clocks, randomness and I/O?");
}
