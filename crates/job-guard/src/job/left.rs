//! Programs that have outlived the worker before this one, as it was asked for: this worker takes over their guards
//! ([`crate::guard::waiting`]).

use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boot_time::{BootTime, sleep_until};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{self, Pid};
use tokio::io::AsyncReadExt as _;

use super::{
    guards::Guards,
    handover::{GuardState, OutputState, ProgramState, RunState},
    lock::StateLock,
};
use crate::guard::{
    plan,
    protocol::{ADOPTION, Lines, Order, Report, encode},
    record::{Record, boot, is_of_another_boot, pid_namespace},
    tree::Process,
    waiting,
};

/// How long a guard may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The run of a program that has outlived an earlier process. Dropped, the program goes on, and waits for the next one.
#[derive(Debug)]
pub struct LeftRun {
    job: String,
    record: PathBuf,
    state: RunState,
    descriptors: Vec<OwnedFd>,
}

impl LeftRun {
    /// The name of the job.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// What [`JobRun::adopt`](crate::JobRun::adopt) needs to continue it. The program runs, and is probed until it is ready.
    pub fn into_parts(self) -> (RunState, Vec<OwnedFd>) {
        (self.state, self.descriptors)
    }

    /// Stops it: the stop signal now, SIGKILL to its whole tree early enough that it is gone `by`. Returns when its guard has
    /// ended, or at that time.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is stopped nevertheless.
    pub async fn stop(self, by: BootTime) {
        let socket = self.descriptors.into_iter().next().map(UnixStream::from);
        let order = encode(&Order::Stop { kill_at: plan::last_kill(by).into() });
        let ended = async || {
            let mut socket = socket?;
            socket.write_all(&order).ok()?;
            socket.set_nonblocking(true).ok()?;
            let mut socket = tokio::net::UnixStream::from_std(socket).ok()?;
            let mut reports = Vec::new();
            socket.read_to_end(&mut reports).await.ok()
        };
        tokio::select! {
            _ = ended() => {}
            () = sleep_until(by) => {}
        }
    }

    /// Whether this is the record of its guard.
    pub(super) fn is_of(&self, record: &Path) -> bool {
        self.record == record
    }
}

/// The runs of jobs that [outlive](crate::Job::outlives) their process, and have been left under this lock. Their guards have the
/// lock again from now on. Call it before [`sweep`](crate::sweep), which ends the others.
///
/// It waits up to a second for each guard that does not answer.
///
/// # Cancel safety
/// If the future is dropped, the programs go on, and wait for the next call.
pub async fn left_runs(guards: &Guards) -> Vec<LeftRun> {
    let Some(lock) = guards.lock.clone() else { return Vec::new() };
    tokio::task::spawn_blocking(move || take_over_all(&lock)).await.unwrap_or_default()
}

fn take_over_all(lock: &StateLock) -> Vec<LeftRun> {
    let records = lock.records().unwrap_or_default();
    let take = |path: PathBuf| {
        let record = Record::read(&path).ok()?;
        let is_here = record.boot == boot().ok()? && record.pid_namespace == pid_namespace().ok()?;
        let job = record.outlives.clone().filter(|_| is_here)?;
        match take_over(&path, &record, lock) {
            Ok((state, descriptors)) => Some(LeftRun { job, record: path, state, descriptors }),
            Err(error) => {
                tracing::warn!(job, record = %path.display(), "its guard does not wait for this worker: {error}");
                None
            }
        }
    };
    records.into_iter().filter_map(take).collect()
}

/// Whether a record is left, besides those of these runs, of a program that outlives its process. `None` if a record can't be read
/// and no other one is of such a program. After [`sweep`](crate::sweep): the program may still run.
pub fn is_one_left(guards: &Guards, but: &[LeftRun]) -> Option<bool> {
    let Some(lock) = &guards.lock else { return Some(false) };
    let others = lock.records().ok()?.into_iter().filter(|path| !but.iter().any(|run| run.is_of(path)));
    let outlive: Vec<Option<bool>> = others
        .map(|path| match Record::read(&path) {
            _ if is_of_another_boot(&path) => Some(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            record => record.ok().map(|record| record.outlives.is_some()),
        })
        .collect();
    match outlive.contains(&Some(true)) {
        true => Some(true),
        false => outlive.iter().all(Option::is_some).then_some(false),
    }
}

/// Becomes the worker of the guard of this record. One that does not answer is killed: it has been sent the lock.
fn take_over(path: &Path, record: &Record, lock: &StateLock) -> io::Result<(RunState, Vec<OwnedFd>)> {
    let (socket, guard) = waiting::connect(path)?;
    let taken = agree(socket, guard, path, record, lock);
    let is_it = |process: Process| process.started == record.since;
    if taken.is_err() && Process::read(guard).ok().flatten().is_some_and(is_it) {
        let _ = kill(guard, Signal::SIGKILL);
    }
    taken
}

fn agree(
    mut socket: UnixStream,
    guard: Pid,
    path: &Path,
    record: &Record,
    lock: &StateLock,
) -> io::Result<(RunState, Vec<OwnedFd>)> {
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    let (reader, writer) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    send_order(&socket, lock, &writer)?;
    let mut lines = Lines::default();
    let main = loop {
        match lines.next() {
            Ok(Some(Report::Adopted { pid })) => break pid,
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(io::Error::other("it sent another report first")),
        }
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer)? {
            0 => return Err(io::Error::other("another version has started it, or its program has ended")),
            count => lines.push(&buffer[..count]),
        }
    };
    let guard = GuardState {
        pid: guard.as_raw(),
        main,
        cgroup: record.cgroup.clone(),
        record: Some(path.to_owned()),
        unread: lines.rest().to_vec(),
    };
    let program = ProgramState { guard, output: OutputState::default(), notify: None };
    let state = RunState { is_starting: true, ..RunState::of(Some(program)) };
    Ok((state, vec![socket.into(), reader]))
}

/// Sends the order with the lock, and the pipe for the output.
fn send_order(socket: &UnixStream, lock: &StateLock, output: &OwnedFd) -> io::Result<()> {
    let order = encode(&Order::Adopt { format: ADOPTION });
    let descriptors = [lock.fd().as_raw_fd(), output.as_raw_fd()];
    let rights = ControlMessage::ScmRights(&descriptors);
    let sent =
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&order)], &[rights], MsgFlags::MSG_NOSIGNAL, None)?;
    match sent == order.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_may_be_that_of_a_program_that_outlives_its_process() {
        let state = tempfile::tempdir().unwrap();
        let lock = StateLock::acquire(state.path(), "east-1").unwrap();
        let runs = state.path().join("east-1.runs");
        let guards = Guards::new().lock(lock);
        let record = |outlives: Option<&str>| Record {
            boot: String::new(),
            pid_namespace: String::new(),
            since: 100,
            ancestors: Vec::new(),
            hierarchy: String::new(),
            cgroup: None,
            session: 21,
            session_started: None,
            outlives: outlives.map(str::to_owned),
        };
        assert_eq!(is_one_left(&guards, &[]), Some(false), "there is none");
        record(None).write(&runs.join("1-1-0")).unwrap();
        assert_eq!(is_one_left(&guards, &[]), Some(false));
        fs::write(runs.join("1-1-1-another"), "").unwrap();
        assert_eq!(is_one_left(&guards, &[]), Some(false), "it is of another boot");
        fs::write(runs.join("1-1-1"), "{").unwrap();
        assert_eq!(is_one_left(&guards, &[]), None);
        record(Some("orders")).write(&runs.join("1-1-2")).unwrap();
        assert_eq!(is_one_left(&guards, &[]), Some(true));
    }
}
