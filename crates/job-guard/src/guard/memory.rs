//! Keeps the guard in memory: a page that the kernel has taken would be read from a disk, which may hang when the job has to
//! end.
//!
//! All of the program is locked, with its libraries: it can't be known which part an end needs. Guards and worker share
//! these pages, so a guard of its own costs a quarter of a megabyte and a few milliseconds.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall, munlockall};

/// What may still be allocated: lists of processes, orders, output. Beyond the limit an allocation would end the guard.
const ROOM: usize = 16 << 20;

/// The limit of locked memory that a guard needs: the program with its libraries, and room.
pub const NEEDED: u64 = 80 << 20;

/// Locks what this process has mapped, and from now on what it maps and touches.
///
/// # Errors
/// If the limit of locked memory (RLIMIT_MEMLOCK) is too low. Nothing is locked then.
pub(super) fn lock() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT)?;
    let rest = mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).map_err(io::Error::from);
    rest.and_then(|()| Vec::<u8>::new().try_reserve_exact(ROOM).map_err(io::Error::other)).inspect_err(|_| {
        let _ = munlockall();
    })
}
