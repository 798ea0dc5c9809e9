//! The document has the traces that are found now.

use std::{fs, path::Path};

const DOCUMENT: &str = "../../docs/published-algorithm.md";

/// Compares a part of the document, between its two marks, with what was found.
///
/// # Panics
///
/// If they differ; with `TRACES=write` what was found is written there.
pub(super) fn compare(part: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let document = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (begin, end) = (format!("<!-- {part} -->\n\n"), format!("\n<!-- end of {part} -->\n"));
    let (Some(from), Some(to)) = (document.find(&begin), document.find(&end)) else {
        panic!("{}: the marks {begin:?} and {end:?} are missing", path.display());
    };
    let from = from + begin.len();
    let written = document.get(from..to).unwrap_or_default();
    if written == found {
        return;
    }
    if std::env::var("TRACES").is_ok_and(|v| v == "write") {
        let document = format!("{}{found}{}", &document[..from], &document[to..]);
        fs::write(&path, document).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let differ = written.lines().zip(found.lines()).position(|(a, b)| a != b);
    let at = differ.unwrap_or_else(|| written.lines().count().min(found.lines().count()));
    let show = |text: &str| text.lines().skip(at).take(6).collect::<Vec<_>>().join("\n    ");
    panic!(
        "{}:{}: the checker finds something else\n  written:\n    {}\n  found:\n    {}\nIf that is right: TRACES=write \
         cargo test -p election-core --test it published -- --test-threads 1",
        path.display(),
        document[..from].lines().count() + at + 1,
        show(written),
        show(found)
    );
}
