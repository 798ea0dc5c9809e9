//! The name of this program. A program with stages of its own uses the name that it was started under.

use std::{
    env,
    ffi::{CString, OsString},
    io,
    path::{self, Path, PathBuf},
    sync::OnceLock,
};

/// What this process executes, whatever has become of its file.
pub(crate) const ITSELF: &str = "/proc/self/exe";

/// The name of the program without stages of its own.
pub(crate) const NAME: &str = env!("CARGO_PKG_NAME");

/// The file name that this program was started under.
pub(crate) fn program() -> String {
    let started_by = std::env::args_os().next().unwrap_or_else(|| OsString::from(NAME));
    let name = Path::new(&started_by).file_name();
    name.map_or_else(|| NAME.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The file of this program, as it was when this was called first.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// The file that this program was executed from, by the program before this one in this process, which has executed itself.
pub(crate) fn continue_as(file: PathBuf) {
    // The kernel names a process after the path that was executed.
    let name = program();
    if let Ok(name) = CString::new(name) {
        // It fails only for an invalid address.
        let _ = rustix::thread::set_name(&name);
    }
    let _ = FILE.set(file);
}

/// The file that this program was executed from: an upgrade executes what is there then. The path by which the program was
/// started counts, if it is one, so that a symbolic link can be changed. Call it when the process starts: later the file may
/// have been replaced.
///
/// # Errors
/// If it can't be determined.
pub(crate) fn file() -> io::Result<&'static Path> {
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let started_by = env::args_os().next().map(PathBuf::from).filter(|path| path.components().count() > 1);
    let file = match started_by.map(path::absolute) {
        Some(Ok(file)) if file.is_file() => file,
        _ => env::current_exe()?,
    };
    Ok(FILE.get_or_init(|| file))
}
