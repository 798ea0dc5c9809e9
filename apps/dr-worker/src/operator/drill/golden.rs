//! Rendered reports that are compared with files. `UPDATE_REPORTS=1 cargo test -p dr-worker --lib drill` writes them.

use std::{env, fs, path::Path};

pub(super) fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/operator/drill/golden").join(name);
    if env::var_os("UPDATE_REPORTS").is_some() {
        fs::write(&path, text).expect("it can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let why =
        "review the difference, and write it with: UPDATE_REPORTS=1 cargo test -p dr-worker --lib drill";
    assert!(written == text, "{} differs from what is rendered; {why}", path.display());
}
