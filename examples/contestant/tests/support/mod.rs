//! A contestant as a child process: commands in, lines out.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use zk_testkit::TestServer;

/// Far longer than any step takes.
const SOON: Duration = Duration::from_secs(30);

const TICK: Duration = Duration::from_millis(500);

/// The session timeout of the contestants, in milliseconds.
const SESSION: &str = "4000";

/// One embedded server.
pub(crate) struct Server(TestServer);

impl Server {
    pub(crate) fn start() -> Self {
        Self(TestServer::builder().tick_time(TICK).start_on_thread().expect("a server starts"))
    }

    pub(crate) fn connect(&self) -> String {
        self.0.connect_string()
    }
}

/// A contestant, killed when it is dropped.
pub(crate) struct Contestant {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that were read and not requested yet.
    waiting: Vec<String>,
}

impl Contestant {
    pub(crate) fn start(connect: &str, path: &str, rest: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_contestant"))
            .args(["--connect", connect, "--path", path, "--session", SESSION])
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the contestant starts");
        let output = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, waiting: Vec::new() }
    }

    pub(crate) fn say(&mut self, word: &str) {
        writeln!(self.input.as_mut().unwrap(), "{word}").unwrap();
    }

    pub(crate) fn end_of_input(&mut self) {
        self.input = None;
    }

    /// After SIGSTOP it has stopped.
    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::SIGSTOP {
            return zk_testkit::freeze(self.child.id()).unwrap();
        }
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Removes the first matching line. Earlier lines stay.
    pub(crate) fn hear(&mut self, what: &str) -> Line {
        self.hear_within(what, SOON).unwrap_or_else(|| panic!("no {what:?} came; {:?}", self.waiting))
    }

    pub(crate) fn hear_within(&mut self, what: &str, within: Duration) -> Option<Line> {
        let deadline = Instant::now() + within;
        let fits = |line: &String| *line == what || line.starts_with(&format!("{what} "));
        loop {
            if let Some(at) = self.waiting.iter().position(fits) {
                return Some(Line::parse(&self.waiting.remove(at)));
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.waiting.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits for its end, and returns the rest of its output.
    pub(crate) fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // The reader ends with the pipe.
                self.waiting.extend(self.lines.iter());
                return (status, std::mem::take(&mut self.waiting));
            }
            assert!(Instant::now() < deadline, "it does not end: {:?}", self.waiting);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        // Already dead, or ours to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `WHAT [i] t`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) candidate: Option<usize>,
    pub(crate) at: i128,
}

impl Line {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [_, at] if at.parse::<i128>().is_ok() => Self { candidate: None, at: at.parse().unwrap() },
            [_, i, at] if i.parse::<usize>().is_ok() => {
                Self { candidate: i.parse().ok(), at: at.parse().unwrap() }
            }
            _ if words[0] == "ERR" => Self { candidate: None, at: 0 },
            _ => panic!("no line of the protocol: {line:?}"),
        }
    }
}
