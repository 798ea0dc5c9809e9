//! The pages below `docs/reference` that are made of this program.
//!
//! `UPDATE_REFERENCE=1 cargo test -p dr-worker --lib reference` writes them.

use std::{env, fs, path::Path};

const RENEW: &str = "UPDATE_REFERENCE=1 cargo test -p dr-worker --lib reference";

/// Compares a page with what is made of the code, or writes it.
pub(crate) fn compare(name: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    let page = format!("<!-- Made of the code: {RENEW} -->\n{}\n", made.trim_end());
    if env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(written == page, "docs/reference/{name} is out of date; write it with: {RENEW}");
}

/// A text in a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
