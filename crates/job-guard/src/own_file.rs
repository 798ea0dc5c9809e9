//! Files that a program keeps for itself, out of the reach of other users.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// The mode of a file of this program's own. Who can open a file can also lock it.
pub const OWN_FILE: u32 = 0o600;

/// Opens a file of this program's own with these options. A symbolic link in its place could lead to a file of anybody.
///
/// # Errors
/// If there is a symbolic link, or any error of the file system.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits()).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == nix::errno::Errno::ELOOP as i32 => link(path),
        _ => error,
    })
}

fn link(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is a symbolic link", path.display()))
}

/// Reads a file of this program's own.
///
/// # Errors
/// Any error of the file system.
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open_own(path, OpenOptions::new().read(true))?.read_to_end(&mut content)?;
    Ok(content)
}

/// Creates a directory of this program's own, with its parents. One that exists keeps its mode.
///
/// # Errors
/// Any error of the file system; if a symbolic link is in its place.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    no_link(path)
}

/// Checks that a directory of this program's own is none elsewhere.
///
/// # Errors
/// If it is a symbolic link, or any error of the file system.
pub fn no_link(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir)?.is_symlink() { Err(link(dir)) } else { Ok(()) }
}

/// The user who owns this directory, if that is neither root nor this process's user: who owns it can replace what is in it.
pub fn foreign_owner(dir: &Path) -> Option<u32> {
    let owner = fs::metadata(dir).ok()?.uid();
    (![0, nix::unistd::Uid::effective().as_raw()].contains(&owner)).then_some(owner)
}

/// Replaces a file of this program's own at once, by a file beside it whose name has `.new` appended.
///
/// # Errors
/// Any error of the file system.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, content, OWN_FILE, |_| Ok(()))
}

/// The same for a file that other users may read.
///
/// # Errors
/// Any error of the file system.
pub fn replace_for_all(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, content, 0o644, |_| Ok(()))
}

/// The same. The content is on the disk when this returns, and before another program sees it.
///
/// # Errors
/// Any error of the file system.
pub fn replace_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, content, OWN_FILE, File::sync_all)?;
    // The new name is an entry of the directory.
    let dir = path.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    dir.map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn replace_with(
    path: &Path,
    content: &[u8],
    mode: u32,
    settle: fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // What a power cut has left may have another mode.
    existing(fs::remove_file(&new))?;
    let mut file = open_own(Path::new(&new), OpenOptions::new().write(true).create_new(true).mode(mode))?;
    file.write_all(content)?;
    settle(&file)?;
    fs::rename(&new, path)
}

/// What a call has returned; `None` if there is no such file.
pub(crate) fn existing<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// Whether users other than its owner and root can write to this directory.
pub fn is_shared(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|metadata| metadata.mode() & 0o022 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_place_of_an_own_file_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join("own.json"));
        fs::write(&other, "of another").unwrap();
        symlink(&other, &link).unwrap();
        assert!(read_own(&link).is_err());
        // The link itself is replaced.
        replace(&link, b"own").unwrap();
        assert_eq!(read_own(&link).unwrap(), b"own");
        symlink(&other, dir.path().join("own.json.new")).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "of another");
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        let (elsewhere, runs) = (dir.path().join("elsewhere"), dir.path().join("runs"));
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &runs).unwrap();
        assert!(create_dir(&runs).unwrap_err().to_string().contains("is a symbolic link"));
        create_dir(&elsewhere).unwrap();
    }

    #[test]
    fn a_replaced_file_has_its_own_mode_and_leaves_other_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("x.json.new"), "half").unwrap();
        replace_for_all(&at("x.key"), b"key").unwrap();
        fs::write(at("x.new"), "of its own").unwrap();
        replace_durably(&at("x.json"), b"{}").unwrap();
        assert_eq!(fs::metadata(at("x.json")).unwrap().mode() & 0o777, OWN_FILE);
        assert_eq!(fs::metadata(at("x.key")).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_to_string(at("x.new")).unwrap(), "of its own");
        assert!(!at("x.json.new").exists());
    }
}
