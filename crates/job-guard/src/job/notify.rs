//! Readiness that the job reports itself: `READY=1` on a datagram socket, as with `sd_notify`.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::sync::atomic::{AtomicU32, Ordering};

use boot_time::BootTime;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixAddr, UnixCredentials, recvmsg, setsockopt, sockopt,
};
use nix::unistd::{Pid, Uid};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::guard::tree::Process;

/// The environment variable with the address of the socket.
pub(super) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The socket of one run of a job.
///
/// It has an abstract name: no file is left behind, and a job that changed its user can reach it. So can any process on
/// the host, therefore the sender is checked.
#[derive(Debug)]
pub(super) struct NotifySocket {
    socket: UnixDatagram,
    name: String,
}

impl NotifySocket {
    /// Binds a socket with a new name.
    ///
    /// # Errors
    /// Any error of the system.
    pub(super) fn bind() -> io::Result<NotifySocket> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The program before this one, with the same process id, has handed over sockets.
        let since = BootTime::now().as_duration().as_nanos();
        let name = format!("job-guard-{}-{since}-{number}", std::process::id());
        let socket = StdDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        setsockopt(&socket, sockopt::PassCred, &true)?;
        NotifySocket::adopt(socket.into(), name)
    }

    /// Continues with the socket of a run that was handed over.
    ///
    /// # Errors
    /// Any error of the system.
    pub(super) fn adopt(socket: OwnedFd, name: String) -> io::Result<NotifySocket> {
        let socket = StdDatagram::from(socket);
        socket.set_nonblocking(true)?;
        Ok(NotifySocket { socket: UnixDatagram::from_std(socket)?, name })
    }

    /// Its name, and the same socket for the next program.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub(super) fn hand_over(&self) -> io::Result<(String, OwnedFd)> {
        Ok((self.name.clone(), self.socket.as_fd().try_clone_to_owned()?))
    }

    /// Discards what was sent until now.
    pub(super) fn discard(&self) {
        // The kernel queues fewer: a sender that never ends holds up nothing.
        for _ in 0..1_000 {
            if receive(&self.socket).is_err() {
                return;
            }
        }
    }

    /// The value of [`NOTIFY_SOCKET`].
    pub(super) fn address(&self) -> String {
        format!("@{}", self.name)
    }

    /// Returns when a process of the job whose main process is `job` has sent `READY=1`.
    ///
    /// # Cancel safety
    /// Cancel safe: a message is received completely or not at all.
    pub(super) async fn ready(&self, job: Pid) {
        loop {
            match self.socket.async_io(Interest::READABLE, || receive(&self.socket)).await {
                Ok((text, Some(sender))) if says_ready(&text) => {
                    if is_trusted(&sender, Uid::effective(), job) {
                        return;
                    }
                    tracing::warn!(
                        pid = sender.pid(),
                        uid = sender.uid(),
                        "ignored READY=1 from a process outside the job"
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    // Never observed; the pause avoids a busy loop.
                    tracing::warn!("can't read the readiness socket: {error}");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// One datagram and its sender. The kernel closes descriptors that are sent along, because there is no room for them: a
/// sender of `BARRIER=1` waits for that.
fn receive(socket: &UnixDatagram) -> io::Result<(Vec<u8>, Option<UnixCredentials>)> {
    let mut buffer = [0; 4096];
    let mut control = nix::cmsg_space!(UnixCredentials);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message =
        recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let length = message.bytes;
    let sender = message.cmsgs().ok().and_then(|mut messages| {
        messages.find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(sender) => Some(sender),
            _ => None,
        })
    });
    Ok((buffer[..length].to_vec(), sender))
}

fn says_ready(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').any(|line| line == b"READY=1")
}

/// Whether a message of `sender` counts: it has the worker's own user, or is one of the job's processes. The ancestors
/// are checked only in the second case, because a helper that only sends may have ended already.
fn is_trusted(sender: &UnixCredentials, own: Uid, job: Pid) -> bool {
    let uid = Uid::from_raw(sender.uid());
    uid.is_root()
        || uid == own
        || matches!(Process::read(Pid::from_raw(sender.pid())), Ok(Some(process)) if process.session == job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_its_own_says_ready() {
        assert!(says_ready(b"READY=1"));
        assert!(says_ready(b"STATUS=fine\nREADY=1\n"));
        assert!(!says_ready(b"READY=10"));
        assert!(!says_ready(b"STATUS=not READY=1"));
        assert!(!says_ready(b""));
    }

    #[test]
    fn a_stranger_is_not_trusted() {
        let me = UnixCredentials::new();
        let (own, other) = (Uid::from_raw(me.uid()), Uid::from_raw(me.uid() + 1));
        let session = Process::read(Pid::this()).expect("readable").expect("myself").session;
        let no_job = Pid::from_raw(i32::MAX);
        assert!(is_trusted(&me, own, no_job));
        assert!(is_trusted(&me, other, session), "one of the job's");
        assert_eq!(is_trusted(&me, other, no_job), own.is_root());
    }
}
