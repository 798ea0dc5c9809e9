//! Readiness that the job tells by itself: `READY=1` on a datagram socket, as for `sd_notify`.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixAddr, UnixCredentials, recvmsg, setsockopt, sockopt,
};
use nix::unistd::{Pid, Uid};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::worker::guard::tree::Process;

/// The variable that tells a job where to say that it is ready.
pub(super) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The socket of one run of a job.
///
/// It has an abstract name: no file is left behind, and a job that changed its user reaches it. Anyone on
/// the host does, so who is speaking is looked at.
#[derive(Debug)]
pub(super) struct NotifySocket {
    socket: UnixDatagram,
    name: String,
}

impl NotifySocket {
    /// Binds a socket of a new name.
    ///
    /// # Errors
    /// As the system refuses it.
    pub(super) fn bind() -> io::Result<NotifySocket> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dr-worker-{}-{number}", std::process::id());
        let socket = StdDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::PassCred, &true)?;
        Ok(NotifySocket { socket: UnixDatagram::from_std(socket)?, name })
    }

    /// What the job finds in [`NOTIFY_SOCKET`].
    pub(super) fn address(&self) -> String {
        format!("@{}", self.name)
    }

    /// Returns when a process of the job whose main process is `job` has said `READY=1`.
    ///
    /// # Cancel safety
    /// Cancel safe: a message is taken whole or left.
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
                        "READY=1 from a process that is not of the job; ignored"
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    // Never seen; and not to be met in a busy loop.
                    tracing::warn!("can't read the readiness socket: {error}");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// One datagram, and who sent it. Descriptors that come along find no room, and are closed by the kernel:
/// which is what a sender of `BARRIER=1` waits for.
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

/// Whether word of `sender` counts: it has the worker's own rights, or is one of the job's processes. The
/// former is not asked for its descent, since a helper that only sends may have ended by now.
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
