//! What crosses when this process executes a new program, and the way there.
//!
//! ```text
//!   old program ── a socket pair: descriptors ──▶ its other end is standard input of the new program
//!                        first a file in memory: the rest, as JSON
//! ```
//!
//! Everything is on its way before the program is executed, and this process is the only one that has the socket. The
//! password of the session and the secrets of the configuration are in that file alone: in no argument, environment or file
//! that has a name. All other descriptors are closed by the execution, threads end, and the process keeps its id and its
//! children.

use std::{
    ffi::{CString, OsString},
    fs::File,
    io::{self, IoSlice, IoSliceMut, Seek as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStringExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
};

use election_core::status::Resumption;
use job_guard::{RunState, file_in_memory};
use rustix::{
    fs::MemfdFlags,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
    stdio::{dup2_stdin, stdin},
};
use serde::{Deserialize, Serialize};
use zk_session::Ticket;

use super::FORMAT;
use crate::{
    checked::Files,
    signals,
    worker::{
        job::HandedStandby,
        state::{HandedSlot, Reload},
    },
};

/// How many descriptors a message has: the kernel permits 253.
const AT_ONCE: usize = 200;

/// A worker that is handed over. Only for the same boot of the machine, and the same process.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) format: u32,
    pub(crate) attempt: u64,
    /// The version that hands over.
    pub(crate) from: String,
    /// `http.listen`, by which its listener was made.
    pub(crate) listen: String,
    /// The soft limit of open files that the process was started with.
    pub(crate) open_files: Option<u64>,
    /// The files of the configuration, as they were checked.
    pub(crate) files: Files,
    pub(crate) session: Ticket,
    pub(crate) jobs: Vec<HandedJob>,
    /// The reload for which the program has executed itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::worker) reload: Option<Reload>,
    /// The file of that program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<PathBuf>,
    /// Whether the program takes part in the balancer's election.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) balances: bool,
    /// The signals that were not obeyed: their descriptors cross after all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) signals: Vec<i32>,
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The files can have secrets.
        f.debug_struct("Handed")
            .field("session", &self.session)
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

impl Handed {
    /// The process ids of the guards.
    pub(crate) fn guards(&self) -> Vec<i32> {
        self.jobs.iter().flat_map(HandedJob::runs).flatten().flat_map(RunState::guards).collect()
    }
}

/// A job and its election.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedJob {
    pub(crate) name: String,
    pub(crate) election: Resumption,
    /// Of a job that this worker leads.
    pub(in crate::worker) slot: Option<HandedSlot>,
    /// Of a job that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::worker) standby: Option<HandedStandby>,
}

impl HandedJob {
    /// The run of its leadership, and that of its standby: in this order their descriptors cross.
    pub(in crate::worker) fn runs(&self) -> [Option<&RunState>; 2] {
        let (slot, standby) = (self.slot.as_ref(), self.standby.as_ref());
        [slot.and_then(|slot| slot.run.as_ref()), standby.and_then(|standby| standby.run.as_ref())]
    }
}

/// The descriptors of a worker.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub(crate) lock: OwnedFd,
    pub(crate) listener: OwnedFd,
    /// Of the jobs that run, in their order.
    pub(crate) runs: Vec<OwnedFd>,
}

/// A worker that was handed over to this program.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) handed: Handed,
    pub(crate) descriptors: Descriptors,
    /// What it was sent and has not obeyed.
    pub(crate) signals: Vec<(i32, OwnedFd)>,
}

/// Executes the program at `file` in this process. Returns only if that fails: then nothing has changed.
pub(crate) fn execute(
    file: &Path,
    arguments: impl IntoIterator<Item = OsString>,
    handed: &Handed,
    descriptors: &Descriptors,
    signals: &[BorrowedFd<'_>],
) -> io::Error {
    let before = match stdin().try_clone_to_owned() {
        Ok(before) => before,
        Err(error) => return error,
    };
    let blocked = signals::block();
    let sent = send(handed, &before, descriptors, signals);
    let error = match sent.and_then(|receiver| Ok(dup2_stdin(&receiver)?)) {
        Ok(()) => {
            let name = std::env::args_os().next().unwrap_or_else(|| file.into());
            run_instead(file, [name].into_iter().chain(arguments))
        }
        Err(error) => error,
    };
    // It fails only without descriptors, and this replaces one.
    let _ = dup2_stdin(&before);
    if let Ok(blocked) = blocked {
        signals::unblock(&blocked);
    }
    error
}

/// Executes the program. Not by `Command`, after whose failure a broken pipe ends this process: it restores the default action of
/// SIGPIPE first.
fn run_instead(file: &Path, arguments: impl Iterator<Item = OsString>) -> io::Error {
    let text = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::other);
    let Err(error) = text(file.into()).and_then(|file| {
        let arguments = arguments.map(text).collect::<io::Result<Vec<_>>>()?;
        Ok(nix::unistd::execv(&file, &arguments)?)
    });
    error
}

/// Puts everything on its way. Returns the end that receives it.
fn send(
    handed: &Handed,
    stdin: &OwnedFd,
    descriptors: &Descriptors,
    signals: &[BorrowedFd<'_>],
) -> io::Result<OwnedFd> {
    let (sender, receiver) = UnixStream::pair()?;
    let mut file = file_in_memory(c"dr-worker-upgrade", MemfdFlags::CLOEXEC)?;
    // By one write: a worker can have a thousand jobs.
    file.write_all(&serde_json::to_vec(handed)?)?;
    file.rewind()?;
    let Descriptors { lock, listener, runs } = descriptors;
    let mut all = vec![file.as_fd(), stdin.as_fd(), lock.as_fd(), listener.as_fd()];
    all.extend(runs.iter().map(AsFd::as_fd).chain(signals.iter().copied()));
    for some in all.chunks(AT_ONCE) {
        send_some(&sender, some)?;
    }
    Ok(receiver.into())
}

fn send_some(sender: &UnixStream, some: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(some)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // It must not wait: the other end is read only by the next program.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(sender, &[IoSlice::new(b"d")], &mut control, flags)?;
    Ok(())
}

/// Receives a worker from the program that this process ran before, and restores standard input.
///
/// # Errors
/// If standard input is not what that program has passed on, or its format is unknown.
pub(crate) fn receive() -> io::Result<Resumed> {
    let mut received = receive_all()?.into_iter();
    let mut next = || received.next().ok_or(io::Error::from(io::ErrorKind::UnexpectedEof));
    let (file, before, lock, listener) = (next()?, next()?, next()?, next()?);
    let file = io::BufReader::new(File::from(file));
    let handed: Handed = serde_json::from_reader(file)?;
    if handed.format != FORMAT {
        let format = handed.format;
        return Err(io::Error::other(format!(
            "the format is {format}, and this program knows {FORMAT} only"
        )));
    }
    dup2_stdin(&before)?;
    let mut runs: Vec<_> = received.collect();
    let signals = runs.split_off(runs.len().saturating_sub(handed.signals.len()));
    let signals = handed.signals.iter().copied().zip(signals).collect();
    Ok(Resumed { handed, descriptors: Descriptors { lock, listener, runs }, signals })
}

fn receive_all() -> io::Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        if recvmsg(stdin(), &mut parts, &mut control, flags)?.bytes == 0 {
            return Ok(all);
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                all.extend(descriptors);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a worker of the present format has handed over. A program that can't read this needs another [`FORMAT`], and the
    /// file of the format before then shows what it refuses.
    const HANDED: &str = include_str!("handed-1.json");

    #[test]
    fn what_crosses_keeps_its_format_and_shows_no_password() {
        let handed: Handed = serde_json::from_str(HANDED).expect("the present format");
        assert_eq!(handed.format, FORMAT);
        assert_eq!(handed.guards(), [21461]);
        assert_eq!(handed.jobs[0].election.leadership(), Some((1, 24)));
        let (again, before): (serde_json::Value, serde_json::Value) =
            (serde_json::to_value(&handed).expect("JSON"), serde_json::from_str(HANDED).expect("JSON"));
        assert_eq!(again, before);
        let shown = format!("{handed:?}");
        assert!(!shown.contains("100, 101") && !shown.contains("hunter2"), "a secret is shown: {shown}");
    }
}
