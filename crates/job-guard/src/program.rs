//! The name of the program that uses this crate.

use std::path::Path;

/// The file name that this program was started under: its guards have it too.
pub(crate) fn program() -> String {
    let started_by = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&started_by).file_name();
    name.map_or_else(|| env!("CARGO_PKG_NAME").to_owned(), |name| name.to_string_lossy().into_owned())
}
