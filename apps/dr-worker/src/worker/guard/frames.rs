//! How a guard passes a job's output on: in frames that name the stream, over one pipe.
//!
//! A frame is at most as long as the kernel writes to a pipe completely or not at all. So a frame that the other side
//! does not take can be dropped without damage to the next one.

use nix::libc::PIPE_BUF;
use serde::{Deserialize, Serialize};

/// Where a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    /// The job's standard output.
    Stdout,
    /// The job's standard error.
    Stderr,
}

/// The stream, and the length in two bytes.
const HEAD: usize = 3;

/// The longest content of a frame.
pub(super) const LONGEST: usize = PIPE_BUF - HEAD;

impl Stream {
    pub(crate) const ALL: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    /// The name in logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    /// A frame with the first bytes of `bytes`, and how many those are.
    pub(super) fn frame(self, bytes: &[u8]) -> (Vec<u8>, usize) {
        let count = bytes.len().min(LONGEST);
        let mut frame = Vec::with_capacity(HEAD + count);
        frame.push(self as u8);
        frame.extend(u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
        frame.extend_from_slice(&bytes[..count]);
        (frame, count)
    }
}

/// Cuts what was read from the pipe into frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// How many bytes were handed out.
    taken: usize,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame.
    pub(crate) fn next(&mut self) -> Option<(Stream, &[u8])> {
        let left = &self.bytes[self.taken..];
        let (head, rest) = left.split_at_checked(HEAD)?;
        // The other end is the same program, so there is no other number.
        let stream = if head[0] == Stream::Stdout as u8 { Stream::Stdout } else { Stream::Stderr };
        let content = rest.get(..usize::from(u16::from_be_bytes([head[1], head[2]])))?;
        self.taken += HEAD + content.len();
        Some((stream, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut_of_the_pipe() {
        let long = vec![b'x'; LONGEST + 5];
        let (first, count) = Stream::Stdout.frame(&long);
        assert_eq!((first.len(), count), (PIPE_BUF, LONGEST));
        let (second, _) = Stream::Stderr.frame(&long[count..]);
        let (empty, _) = Stream::Stdout.frame(b"");
        let all = [first, second, empty].concat();
        for size in [1, 2, 4096, all.len()] {
            let mut frames = Frames::default();
            let mut read = Vec::new();
            for part in all.chunks(size) {
                frames.push(part);
                while let Some((stream, content)) = frames.next() {
                    read.push((stream, content.len()));
                }
            }
            let expected = [(Stream::Stdout, LONGEST), (Stream::Stderr, 5), (Stream::Stdout, 0)];
            assert_eq!(read, expected, "cut every {size}");
        }
    }
}
