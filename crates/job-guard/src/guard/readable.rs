//! Whether a descriptor can be read at once.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether a read would not block: data or the end of the stream.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            polled => return polled.is_ok_and(|count| count > 0),
        }
    }
}
