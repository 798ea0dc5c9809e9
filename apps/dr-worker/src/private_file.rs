//! Files that are not for other users: secrets, which the group may read too, and what the worker keeps for itself.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use crate::{checked, host_fault::HostFault};

/// The permissions that such a file must not have.
const FORBIDDEN: u32 = 0o037;

/// The longest file.
const MOST: u64 = 64 * 1024;

/// Reads the file as it is now, unless it was [given](checked::give).
///
/// # Errors
/// Why it can't be used and what to do, without its contents.
pub(crate) fn read(path: &Path) -> Result<String, HostFault> {
    let name = path.display();
    let bytes = checked::read(path, || read_from_disk(path))?;
    String::from_utf8(bytes).map_err(|error| format!("{name} can't be read: {error}").into())
}

fn read_from_disk(path: &Path) -> Result<Vec<u8>, HostFault> {
    let name = path.display();
    let unreadable = |error: std::io::Error| HostFault::io(path, " can't be read", &error);
    // A pipe would block.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("{name} is not a regular file").into());
    }
    if metadata.mode() & FORBIDDEN != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(
            format!("{name} has the permissions {mode:o}; others can use it. Run chmod 600 {name}").into()
        );
    }
    let own = nix::unistd::Uid::effective().as_raw();
    if ![0, own].contains(&metadata.uid()) {
        let owner = metadata.uid();
        return Err(format!("{name} belongs to user {owner}; it must belong to root or to user {own}").into());
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST {
        return Err(format!("{name} is longer than {MOST} bytes").into());
    }
    Ok(bytes)
}

/// The mode of a file of the worker's own. Who can open a file can also lock it.
pub(crate) const OWN_FILE: u32 = 0o600;

/// Opens a file of the worker's own with these options. A symbolic link in its place could lead to a file of anybody.
///
/// # Errors
/// If there is a symbolic link, or any error of the file system.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits()).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == nix::errno::Errno::ELOOP as i32 => link(path),
        _ => error,
    })
}

fn link(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is a symbolic link", path.display()))
}

/// Reads a file of the worker's own.
///
/// # Errors
/// Any error of the file system.
pub(crate) fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open_own(path, OpenOptions::new().read(true))?.read_to_end(&mut content)?;
    Ok(content)
}

/// Creates a directory of the worker's own, with its parents. One that exists keeps its mode.
///
/// # Errors
/// Any error of the file system; if a symbolic link is in its place.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    no_link(path)
}

/// Checks that a directory of the worker's own is none elsewhere.
///
/// # Errors
/// If it is a symbolic link, or any error of the file system.
pub(crate) fn no_link(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir)?.is_symlink() { Err(link(dir)) } else { Ok(()) }
}

/// The user who owns this directory, if that is neither root nor this process's user: who owns it can replace what is in it.
pub(crate) fn foreign_owner(dir: &Path) -> Option<u32> {
    let owner = fs::metadata(dir).ok()?.uid();
    (![0, nix::unistd::Uid::effective().as_raw()].contains(&owner)).then_some(owner)
}

/// Replaces a file of the worker's own at once.
///
/// # Errors
/// Any error of the file system.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, content, |_| Ok(()))
}

/// The same. The content is on the disk when this returns, and before another program sees it.
///
/// # Errors
/// Any error of the file system.
pub(crate) fn replace_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, content, File::sync_all)?;
    // The new name is an entry of the directory.
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn replace_with(path: &Path, content: &[u8], settle: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = open_own(&new, OpenOptions::new().write(true).create(true).truncate(true).mode(OWN_FILE))?;
    file.write_all(content)?;
    settle(&file)?;
    fs::rename(&new, path)
}

/// Whether users other than its owner and root can write to this directory.
pub(crate) fn is_shared(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|metadata| metadata.mode() & 0o022 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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
        symlink(&other, dir.path().join("own.new")).unwrap();
        assert!(replace(&link, b"new").is_err());
        assert_eq!(fs::read_to_string(&other).unwrap(), "of another");
        let (elsewhere, runs) = (dir.path().join("elsewhere"), dir.path().join("runs"));
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &runs).unwrap();
        assert!(create_dir(&runs).unwrap_err().to_string().contains("is a symbolic link"));
        create_dir(&elsewhere).unwrap();
    }

    #[test]
    fn a_file_that_others_can_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "hunter2").unwrap();
        for (mode, is_private) in
            [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o660, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let text = read(&path);
            assert_eq!(text.is_ok(), is_private, "{mode:o}: {text:?}");
        }
        let why = read(&path).unwrap_err().why;
        assert!(why.contains("chmod 600") && !why.contains("hunter2"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "x".repeat(70_000)).unwrap();
        assert!(read(&path).unwrap_err().why.contains("longer than"));
        assert!(read(dir.path()).unwrap_err().why.contains("not a regular file"));
        assert!(read(&dir.path().join("none")).unwrap_err().why.contains("can't be read"));
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(read(&pipe).unwrap_err().why.contains("not a regular file"));
    }
}
