//! A disk that hangs, as a frozen file system does.

#![allow(unreachable_pub, reason = "two kinds of tests use it")]

use std::{path::Path, process::Command};

/// A file system of its own, mounted over a loop device. Dropped, in panic too, it is thawed and unmounted, which detaches
/// the device.
pub struct Disk {
    point: tempfile::TempDir,
    _image: tempfile::NamedTempFile,
}

impl Disk {
    /// `None`, loudly, where this user can't mount one.
    pub fn new() -> Option<Disk> {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(16 << 20).expect("sparse");
        let point = tempfile::tempdir().expect("tempdir");
        let is_mounted = does("mkfs.ext4", &["-q", "-F"], &[image.path()])
            && does("mount", &["-o", "loop"], &[image.path(), point.path()]);
        if !is_mounted {
            zk_testkit::skip("this test needs root, a loop device and mkfs.ext4");
            return None;
        }
        Some(Disk { point, _image: image })
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }

    pub fn freeze(&self) {
        assert!(does("fsfreeze", &["--freeze"], &[self.path()]), "frozen");
    }

    pub fn thaw(&self) -> bool {
        does("fsfreeze", &["--unfreeze"], &[self.path()])
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.thaw();
        // At once out of sight, and gone with the last process that uses it.
        does("umount", &["--lazy"], &[self.path()]);
    }
}

fn does(program: &str, options: &[&str], paths: &[&Path]) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).env("PATH", path).args(options).args(paths).output();
    output.is_ok_and(|output| output.status.success())
}
