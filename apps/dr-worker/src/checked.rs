//! The files of the configuration, as the new program of an upgrade has checked them.
//!
//! What was checked is what is used. A file can change between the check and the execution of the new program, and a worker
//! that refused it then would end with its jobs. So the program that is [asked](crate::worker::upgrade::check) answers with what it
//! has read, these contents cross with the state, and the program that continues is given them while it starts. After that it
//! reads the files as they are.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use parking_lot::{Mutex, MutexGuard};
/// Files by the paths by which they were read. A file that is no text is not among them.
pub(crate) type Files = BTreeMap<PathBuf, String>;

/// What reading a file does besides.
enum Mode {
    Nothing,
    Record(Files),
    Use(Files),
}

static MODE: Mutex<Mode> = Mutex::new(Mode::Nothing);

fn mode() -> MutexGuard<'static, Mode> {
    MODE.lock()
}

/// From now on it is recorded what is read.
pub(crate) fn record() {
    *mode() = Mode::Record(Files::new());
}

/// What was recorded.
pub(crate) fn recorded() -> Files {
    match &*mode() {
        Mode::Record(files) => files.clone(),
        Mode::Nothing | Mode::Use(_) => Files::new(),
    }
}

/// These are used instead of the files of these paths, until [`forget`].
pub(crate) fn give(files: Files) {
    *mode() = Mode::Use(files);
}

/// The files are read as they are.
pub(crate) fn forget() {
    *mode() = Mode::Nothing;
}

/// The content of the file, by `from_disk` unless it was given.
///
/// # Errors
/// Those of `from_disk`.
pub(crate) fn read<E>(path: &Path, from_disk: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    if let Mode::Use(files) = &*mode()
        && let Some(text) = files.get(path)
    {
        return Ok(text.clone().into_bytes());
    }
    let bytes = from_disk()?;
    if let Mode::Record(files) = &mut *mode()
        && let Ok(text) = str::from_utf8(&bytes)
    {
        files.insert(path.to_owned(), text.to_owned());
    }
    Ok(bytes)
}

/// The given files of a directory, if there are any.
pub(crate) fn inside(directory: &Path) -> Option<Vec<PathBuf>> {
    let Mode::Use(files) = &*mode() else { return None };
    let inside: Vec<_> = files.keys().filter(|path| path.parent() == Some(directory)).cloned().collect();
    (!inside.is_empty()).then_some(inside)
}
