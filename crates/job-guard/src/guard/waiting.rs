//! How a worker finds a program that has outlived the one before it.
//!
//! ```text
//!   worker ── its socket is closed ──▶ guard: gives up the lock, and listens
//!   next worker ── the lock; Adopt ──▶ guard: has a worker again, and listens no more
//! ```
//!
//! The guard listens under an abstract name that its record identifies, so no file of it is left behind. It listens before
//! it gives up the lock: who has the lock finds each guard that waits. Any process of the host can connect, therefore both
//! sides check the user of the other.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Pid, Uid};

/// The pause after a connection that can't be accepted. A program without a worker has no deadline.
const PAUSE: Duration = Duration::from_millis(100);

/// A guard without a worker, which waits for the next one.
#[derive(Debug)]
pub(super) struct Waiting(UnixListener);

impl Waiting {
    /// Listens for the next worker, as the guard of this record.
    ///
    /// # Errors
    /// Any error of the system.
    pub(super) fn listen(record: &Path) -> io::Result<Waiting> {
        let listener = UnixListener::bind_addr(&address(record)?)?;
        listener.set_nonblocking(true)?;
        Ok(Waiting(listener))
    }

    /// The next process of the same user that has connected, and its process id.
    pub(super) fn accept(&self) -> Option<(UnixStream, Pid)> {
        match self.0.accept() {
            Ok((stream, _)) => peer(&stream).ok().map(|peer| (stream, peer)),
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    // No descriptor is left, and the next poll would not wait either.
                    thread::sleep(PAUSE);
                }
                None
            }
        }
    }

    /// What to poll before [`accept`](Waiting::accept).
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Connects to the guard of this record, and returns its process id.
///
/// # Errors
/// If it does not wait for a worker.
pub(crate) fn connect(record: &Path) -> io::Result<(UnixStream, Pid)> {
    let stream = UnixStream::connect_addr(&address(record)?)?;
    let guard = peer(&stream)?;
    Ok((stream, guard))
}

/// The file is the same in all mount namespaces, and its name differs from those of its directory.
fn address(record: &Path) -> io::Result<SocketAddr> {
    let file = fs::metadata(record)?;
    let name = record.file_name().unwrap_or_default().to_string_lossy();
    SocketAddr::from_abstract_name(format!("job-guard-{}-{}-{name}", file.dev(), file.ino()))
}

/// The process at the other end, of the same user.
fn peer(stream: &UnixStream) -> io::Result<Pid> {
    let peer = getsockopt(stream, PeerCredentials)?;
    match Uid::from_raw(peer.uid()) == Uid::effective() {
        true => Ok(Pid::from_raw(peer.pid())),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
