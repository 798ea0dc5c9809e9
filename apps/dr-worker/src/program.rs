//! The name of this program. A program with stages of its own uses the name that it was started under.

use std::{ffi::OsString, path::Path};

/// The name of the program without stages of its own.
pub(crate) const NAME: &str = env!("CARGO_PKG_NAME");

/// The file name that this program was started under.
pub(crate) fn program() -> String {
    let started_by = std::env::args_os().next().unwrap_or_else(|| OsString::from(NAME));
    let name = Path::new(&started_by).file_name();
    name.map_or_else(|| NAME.to_owned(), |name| name.to_string_lossy().into_owned())
}
