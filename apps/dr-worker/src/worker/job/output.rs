//! Copies the output of programs to the worker's log.
//!
//! A program never has the worker's own standard error: if nothing reads that pipe, the program would fill it, and the
//! worker would block. The program has its own pipe, from which its lines are copied to the log, with its name.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use metrics::Counter;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use crate::logging::{self, OUTPUT};

/// How long lines wait for room in the log before they are dropped.
const STALL: Duration = Duration::from_secs(1);

/// The pause between two reads of dropped lines, so that a program that writes endlessly costs no CPU time.
const PAUSE: Duration = Duration::from_millis(10);

/// The capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// A longer line is logged in pieces.
const LONGEST_LINE: usize = 8 * 1024;

/// How long the lines of a program that has ended may take to reach the log.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The task that copies lines to the log while any process has the other end of the pipe.
#[derive(Debug)]
pub(super) struct Copying(JoinHandle<()>);

/// Creates a pipe whose lines are logged under a program's name. `dropped` counts the lines that are dropped.
///
/// # Errors
/// If no descriptors are left.
///
/// # Panics
/// Outside a tokio runtime with I/O and time enabled.
pub(super) fn to_log(name: &str, dropped: Counter) -> io::Result<(OwnedFd, Copying)> {
    let (reader, writer) = pipe()?;
    Ok((writer, Copying(tokio::spawn(copy(reader, name.to_owned(), dropped)))))
}

/// The read end, and the write end.
///
/// # Errors
/// If no descriptors are left.
pub(super) fn pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (writer, reader) = pipe::pipe()?;
    Ok((reader, writer.into_blocking_fd()?))
}

impl Copying {
    /// Waits a moment for the last lines of a program that has ended. Later lines are logged in the background.
    pub(super) async fn finish(self) {
        let _ = tokio::time::timeout(LAST_WORDS, self.0).await;
    }
}

async fn copy(mut from: pipe::Receiver, name: String, counter: Counter) {
    let mut lines = Lines::default();
    let mut log = Log { name, counter, dropped: 0, is_stalled: false };
    let mut chunk = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        lines.push(&chunk[..count]);
        while let Some(line) = lines.next() {
            log.write(&line).await;
        }
        if log.is_stalled {
            tokio::time::sleep(PAUSE).await;
        }
    }
    if let Some(rest) = lines.rest() {
        log.write(&rest).await;
    }
}

/// The log, as seen by one program.
struct Log {
    name: String,
    counter: Counter,
    /// Dropped lines since the last report.
    dropped: u64,
    /// Whether the log has had no room since [`STALL`] ago.
    is_stalled: bool,
}

impl Log {
    async fn write(&mut self, line: &str) {
        if !logging::has_room_for_output() {
            if !self.is_stalled {
                self.is_stalled = tokio::time::timeout(STALL, logging::room_for_output()).await.is_err();
            }
            if self.is_stalled {
                self.dropped += 1;
                self.counter.increment(1);
                return;
            }
        }
        self.is_stalled = false;
        let job = self.name.as_str();
        if self.dropped > 0 {
            let lines = std::mem::take(&mut self.dropped);
            tracing::warn!(
                job,
                lines,
                "{lines} lines of its output were dropped: standard error accepted none"
            );
        }
        tracing::info!(target: OUTPUT, job, "{line}");
    }
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// How many bytes were handed out.
    taken: usize,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let left = &self.bytes[self.taken..];
        let window = &left[..left.len().min(LONGEST_LINE + 1)];
        let (line, length) = match window.iter().position(|&byte| byte == b'\n') {
            Some(end) => (&left[..end], end + 1),
            None if left.len() > LONGEST_LINE => (&left[..LONGEST_LINE], LONGEST_LINE),
            None => return None,
        };
        let line = String::from_utf8_lossy(line).into_owned();
        self.taken += length;
        Some(line)
    }

    /// A last line without a newline.
    fn rest(self) -> Option<String> {
        let rest = &self.bytes[self.taken..];
        (!rest.is_empty()).then(|| String::from_utf8_lossy(rest).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_any_cut_of_the_stream_and_long_ones_are_cut() {
        let long = "x".repeat(LONGEST_LINE + 3);
        let text = format!("first\n\nthird\n{long}\nlast");
        for size in [1, 7, CHUNK] {
            let mut lines = Lines::default();
            let mut read = Vec::new();
            for part in text.as_bytes().chunks(size) {
                lines.push(part);
                read.extend(std::iter::from_fn(|| lines.next()));
            }
            read.extend(lines.rest());
            assert_eq!(
                read,
                ["first", "", "third", &long[..LONGEST_LINE], "xxx", "last"],
                "cut every {size}"
            );
        }
    }
}
