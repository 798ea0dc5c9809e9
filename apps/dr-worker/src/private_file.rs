//! Files with secrets, which are not for other users; the group may read them too.

use std::{
    fs::{Metadata, OpenOptions},
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use crate::{checked, host_fault::HostFault};

/// The permissions that such a file must not have.
const FORBIDDEN: u32 = 0o037;

/// The longest file.
const MOST: u64 = 64 * 1024;

/// Whether others than its owner and its group can use the file, or its group can change it.
pub(crate) fn is_open(file: &Metadata) -> bool {
    file.mode() & FORBIDDEN != 0
}

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
    if is_open(&metadata) {
        let mode = metadata.mode() & 0o777;
        return Err(format!(
            "{name} has the permissions {mode:o}; others can use it. Give it the worker's group, and run \
             chmod 640 {name}"
        )
        .into());
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

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
        assert!(why.contains("chmod 640") && !why.contains("hunter2"), "{why}");
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
