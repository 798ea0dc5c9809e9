//! The files of the configuration, as the new program of an upgrade has checked them.
//!
//! What was checked is what is used. A file can change between the check and the execution of the new program, and a worker
//! that refused it then would end with its jobs. So the program that is [asked](crate::worker::upgrade::check) answers with what it
//! has read, these contents cross with the state, and the program that continues is given them while it starts. After that it
//! reads the files as they are.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

/// Files by the paths by which they were read. A file that is no text is not among them.
pub(crate) type Files = BTreeMap<PathBuf, String>;

/// What is used instead of the files of these paths.
static GIVEN: Mutex<Option<Files>> = Mutex::new(None);

thread_local! {
    /// What this thread has read, while it is recorded.
    static RECORDED: RefCell<Option<Files>> = const { RefCell::new(None) };
}

/// What this returns, and what it has read.
pub(crate) fn recording<T>(act: impl FnOnce() -> T) -> (T, Files) {
    RECORDED.set(Some(Files::new()));
    let done = act();
    (done, RECORDED.take().unwrap_or_default())
}

/// These are used instead of the files of these paths, until [`forget`].
pub(crate) fn give(files: Files) {
    *GIVEN.lock() = Some(files);
}

/// The files are read as they are.
pub(crate) fn forget() {
    *GIVEN.lock() = None;
}

/// The content of the file, by `from_disk` unless it was given.
///
/// # Errors
/// Those of `from_disk`.
pub(crate) fn read<E>(path: &Path, from_disk: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    let given = GIVEN.lock().as_ref().and_then(|files| files.get(path).cloned());
    let bytes = match given {
        Some(text) => text.into_bytes(),
        None => from_disk()?,
    };
    RECORDED.with_borrow_mut(|recorded| {
        if let (Some(files), Ok(text)) = (recorded, str::from_utf8(&bytes)) {
            files.insert(path.to_owned(), text.to_owned());
        }
    });
    Ok(bytes)
}

/// The given files of a directory, if there are any.
pub(crate) fn inside(directory: &Path) -> Option<Vec<PathBuf>> {
    let given = GIVEN.lock();
    let files = given.as_ref()?;
    let inside: Vec<_> = files.keys().filter(|path| path.parent() == Some(directory)).cloned().collect();
    (!inside.is_empty()).then_some(inside)
}
