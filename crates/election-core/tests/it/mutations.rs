//! The mutations of the rules are texts of the sources: see `tests/mutants`.

#[path = "../mutants/mutations.rs"]
mod table;

use std::path::Path;

#[test]
fn each_mutation_has_its_text_once() {
    let (_, wrong) = table::mutated(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
