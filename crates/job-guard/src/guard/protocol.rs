//! The protocol between worker and guard: one JSON value a line, orders in one direction, reports in the other.
//!
//! The worker starts guards of its own image. After an upgrade in place the worker is the next version, and the guards of
//! the jobs that run are those of the version before. So a change of a message after `Start` needs a new format of what is
//! handed over ([`RunState`](crate::RunState)), which older programs refuse, and of [`ADOPTION`].
//!
//! Times are milliseconds of `CLOCK_BOOTTIME`, rounded down, so that a deadline can only become earlier.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use boot_time::BootTime;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::last_will::LastWill;
use crate::config::{Identity, Limits, StopSignal};

/// The format of the messages between a worker and a guard that another version may have started, if no program hands it over.
pub(crate) const ADOPTION: u32 = 1;

/// The longest line: an order carries the job's command and environment, which the kernel limits to some megabytes.
const MAX_LINE: usize = 8 << 20;

/// From the worker to the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Once, and before the next ones: what to run.
    Start(Box<Launch>),
    /// These terms count from now on, instead of those of the start. [`Report::Armed`] confirms it.
    Arm(Terms),
    /// The first one of a worker after the one that the program has outlived, with the descriptors of the member's lock and of
    /// the pipe for the output. [`Report::Adopted`] confirms it; a guard with another [format](ADOPTION) closes the connection.
    Adopt { format: u32 },
    /// Send a signal to the program itself, while it runs.
    Signal(StopSignal),
    /// The lease now ends here.
    Until(Millis),
    /// The job's processes are to rest, or to continue. Only if the job [freezes](Launch::freezes).
    Suspend(bool),
    /// Stop the job: the stop signal first, SIGKILL at this time, and earlier if the lease ends earlier.
    Stop { kill_at: Millis },
    /// The worker's last will is this one from now on; `None` while there is none. At any time.
    #[serde(rename = "session")]
    Will(Option<LastWill>),
}

/// When and how a program is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) stop_signal: StopSignal,
    pub(crate) stop_timeout_ms: u64,
    /// Whether its processes are stopped while the lease is not renewed, instead of being asked to end.
    pub(crate) freezes: bool,
    /// The end of the lease.
    pub(crate) until: Millis,
}

/// What a guard runs, and under which conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The program and its arguments; the program is looked up in the job's `PATH`.
    pub(crate) command: Vec<String>,
    /// Set on top of the worker's own environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Variables of the worker's own environment that the program does not get, besides those of its service manager.
    pub(crate) withheld: Vec<String>,
    /// The variable with the name of the record, for everything that is started.
    pub(crate) run_variable: String,
    /// The guard's name in lists of processes.
    pub(crate) guard_name: String,
    pub(crate) working_dir: Option<PathBuf>,
    pub(crate) stop_signal: StopSignal,
    pub(crate) stop_timeout_ms: u64,
    /// Whether its processes are stopped while the lease is not renewed, instead of being asked to end.
    pub(crate) freezes: bool,
    pub(crate) until: Millis,
    /// Its name, if it goes on when the worker has died: until it is armed, and only with a record.
    pub(crate) outlives: Option<String>,
    /// The program's own cgroup v2 directory, which the guard makes.
    pub(crate) cgroup: Option<PathBuf>,
    /// The file of the record of this run.
    pub(crate) record: Option<PathBuf>,
    /// The process id of the worker, if it has the member's lock. It sends the lock with the first byte of its orders, and
    /// nothing is started without it.
    pub(crate) lock_from: Option<i32>,
    /// Whether the guard's standard output is a pipe to the worker, to which the guard passes on the program's output.
    /// Otherwise the program inherits the guard's output.
    pub(crate) relays_output: bool,
    /// The soft limit of open files for the program, if it differs from the guard's.
    pub(crate) open_files: Option<u64>,
    /// Whether nothing that is started can become another user by its file's mode or capabilities.
    pub(crate) no_new_privileges: bool,
    /// The user that the program runs as, if it is not the guard's.
    pub(crate) run_as: Option<Identity>,
    pub(crate) limits: Limits,
}

/// From the guard to the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The guard could not lock its memory.
    Unlocked { error: String },
    /// The limits that are less than what was configured, each as a sentence.
    Unmet(Vec<String>),
    /// The record is written, and the program is being started.
    Starting,
    /// The program runs: its `exec` succeeded.
    Started { pid: i32 },
    /// The program could not be run; `Gone` follows.
    Failed { error: String },
    /// The order of the next worker is carried out; the program, with this process id, runs on.
    Adopted { pid: i32 },
    /// All of its processes rest.
    Frozen,
    /// They continue.
    Thawed,
    /// The terms of [`Order::Arm`] count.
    Armed,
    /// The stop signal is being sent.
    Stopping(Why),
    /// SIGKILL is being sent because the lease ends, without a stop signal before.
    Expired,
    /// The kernel has just ended a process for lack of memory, as the program ended with a failure. `Exited` follows.
    OutOfMemory,
    /// The program itself has ended. Other processes of its tree may be left.
    Exited(Exit),
    /// SIGKILL was sent a while ago, and processes survive.
    Lingering(Lingering),
    /// So many lines of the last output were dropped, because the worker did not read them in time.
    Dropped { lines: u64 },
    /// No descendant of the guard exists. The last line.
    Gone,
}

/// The processes that survive SIGKILL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lingering {
    /// The first of those that wait in the kernel.
    pub(crate) surviving: Vec<i32>,
    /// The first of those that the guard may not signal, because they run as another user.
    pub(crate) forbidden: Vec<i32>,
    /// Why the remaining processes can't be listed.
    pub(crate) blind: Option<String>,
}

/// How many are reported. A message has to fit into the socket while the other side does not read.
const NAMED: usize = 20;

impl Lingering {
    /// Sends SIGKILL to a process, and records the outcome.
    pub(crate) fn kill(&mut self, pid: Pid) {
        let list = match kill(pid, Signal::SIGKILL) {
            Err(Errno::EPERM) => &mut self.forbidden,
            _ => &mut self.surviving,
        };
        if list.len() < NAMED {
            list.push(pid.as_raw());
        }
    }
}

impl fmt::Display for Lingering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.blind {
            return write!(f, "can't list its remaining processes: {error}");
        }
        if !self.forbidden.is_empty() {
            write!(
                f,
                "processes {:?} run as another user, so this worker may not kill them (no_new_privileges \
                 keeps a job from changing its user; a job with its own cgroup can be killed all the same)",
                self.forbidden
            )?;
        }
        if !self.surviving.is_empty() {
            let and = if self.forbidden.is_empty() { "" } else { ", and " };
            write!(f, "{and}processes {:?} survive SIGKILL", self.surviving)?;
        }
        if self.forbidden.is_empty() && self.surviving.is_empty() {
            f.write_str("its cgroup is not empty")?;
        }
        Ok(())
    }
}

/// Why a job is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The worker ordered it.
    Order,
    /// The lease is about to end, and was not renewed.
    Deadline,
    /// The worker died, or dropped the job.
    WorkerGone,
    /// The program has ended, and other processes of its tree are left.
    Exited,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Order => "its worker stops it",
            Why::Deadline => "the lease was not renewed in time",
            Why::WorkerGone => "the worker is gone",
            Why::Exited => "the program has ended and left processes behind",
        })
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By the signal of this number.
    Signal(i32),
}

impl Exit {
    /// Whether the program ended by itself with code 0.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(number) => match Signal::try_from(number) {
                Ok(signal) => write!(f, "killed by {signal}"),
                Err(_) => write!(f, "killed by signal {number}"),
            },
        }
    }
}

/// A point of `CLOCK_BOOTTIME` in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Millis(u64);

impl From<BootTime> for Millis {
    fn from(time: BootTime) -> Self {
        Millis(u64::try_from(time.as_duration().as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for BootTime {
    fn from(millis: Millis) -> Self {
        BootTime::from_duration(Duration::from_millis(millis.0))
    }
}

/// A message as a line, with its newline.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Serialising strings and numbers does not fail. If it did, the other side would refuse the empty line and end the
    // job.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The peer wrote an invalid message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Cuts a stream of bytes into messages.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// Adds bytes that were read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What was read and is no whole message yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes
    }

    /// The next whole message, if there is one yet.
    ///
    /// # Errors
    /// [`Garbled`] if the next line is no message, or longer than any message can be.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Garbled> {
        let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') else {
            return if self.bytes.len() > MAX_LINE { Err(Garbled) } else { Ok(None) };
        };
        let message = serde_json::from_slice(&self.bytes[..end]).map_err(|_| Garbled);
        self.bytes.drain(..=end);
        message.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_cut_of_the_stream() {
        let orders = [
            Order::Start(Box::new(Launch {
                command: vec!["sh".into(), "-c".into(), "echo 'a\nb'".into()],
                env: BTreeMap::from([("KEY".into(), "with\nnewline".into())]),
                withheld: vec!["TOKEN".into()],
                run_variable: "DR_RUN".into(),
                guard_name: "dr-guard".into(),
                working_dir: Some("/srv".into()),
                stop_signal: StopSignal::Int,
                stop_timeout_ms: 2_000,
                freezes: true,
                until: Millis(77),
                outlives: Some("orders".into()),
                cgroup: None,
                record: Some("/var/lib/run".into()),
                lock_from: Some(42),
                relays_output: true,
                open_files: Some(1024),
                no_new_privileges: true,
                run_as: Some(Identity { uid: 7, gid: 8, groups: vec![8, 9], account: None }),
                limits: Limits { open_files: Some(64), processes: None, memory: Some(1 << 30) },
            })),
            Order::Arm(Terms {
                stop_signal: StopSignal::Int,
                stop_timeout_ms: 2_000,
                freezes: true,
                until: Millis(77),
            }),
            Order::Adopt { format: ADOPTION },
            Order::Signal(StopSignal::Usr1),
            Order::Until(Millis(1)),
            Order::Suspend(true),
            Order::Stop { kill_at: Millis(u64::MAX) },
            Order::Will(None),
        ];
        let stream: Vec<u8> = orders.iter().flat_map(encode).collect();
        for chunk in [1, 2, 7, stream.len()] {
            let mut lines = Lines::default();
            let mut read = Vec::new();
            for part in stream.chunks(chunk) {
                lines.push(part);
                while let Some(order) = lines.next::<Order>().expect("well formed") {
                    read.push(order);
                }
            }
            assert_eq!(read, orders, "cut every {chunk} bytes");
        }
    }

    #[test]
    fn garbage_is_refused_and_does_not_hide_what_follows() {
        let mut lines = Lines::default();
        lines.push(b"stop!\n\"gone\"\n");
        assert_eq!(lines.next::<Report>(), Err(Garbled));
        assert_eq!(lines.next::<Report>(), Ok(Some(Report::Gone)));
        assert_eq!(lines.next::<Report>(), Ok(None));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        lines.push(&vec![b' '; MAX_LINE + 1]);
        assert_eq!(lines.next::<Order>(), Err(Garbled));
    }

    #[test]
    fn deadlines_are_rounded_to_the_safe_side() {
        let time = BootTime::from_duration(Duration::from_micros(5_999));
        assert_eq!(Millis::from(time), Millis(5));
    }

    #[test]
    fn an_exit_reads_well() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(9).to_string(), "killed by SIGKILL");
        assert_eq!(Exit::Signal(64).to_string(), "killed by signal 64");
    }
}
