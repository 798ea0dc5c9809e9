//! A file in memory.

use std::{ffi::CStr, fs::File, io};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
};

/// A file without a path, for what belongs into no argument and no environment. Nothing can be executed from it: some kernels
/// are configured to refuse another one (`vm.memfd_noexec`).
///
/// # Errors
/// If the kernel refuses it.
pub fn file_in_memory(name: &CStr, flags: MemfdFlags) -> io::Result<File> {
    let made = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    };
    Ok(File::from(made?))
}
