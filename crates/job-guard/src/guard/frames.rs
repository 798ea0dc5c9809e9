//! How a guard passes a job's output on: in frames that name the stream, over one pipe.
//!
//! A frame is at most as long as the kernel writes to a pipe completely or not at all. So a frame that the other side
//! does not take can be dropped without damage to the next one.

use nix::libc::PIPE_BUF;
use serde::{Deserialize, Serialize};

/// Where a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The job's standard output.
    Stdout,
    /// The job's standard error.
    Stderr,
}

/// What a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Some of the job's output.
    Output(Stream, &'a [u8]),
    /// So many lines were dropped before.
    Dropped(u64),
}

/// The kind of a frame that is no output; others have the number of their stream.
const DROPPED: u8 = 2;

/// The kind, and the length in two bytes.
const HEAD: usize = 3;

/// The longest content of a frame.
pub(super) const LONGEST: usize = PIPE_BUF - HEAD;

impl Stream {
    pub(crate) const ALL: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    /// The name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    /// A frame with the first bytes of `bytes`, and how many those are.
    pub(super) fn frame(self, bytes: &[u8]) -> (Vec<u8>, usize) {
        let count = bytes.len().min(LONGEST);
        (encode(self as u8, &bytes[..count]), count)
    }
}

/// A frame that reports dropped lines.
pub(super) fn dropped(lines: u64) -> Vec<u8> {
    encode(DROPPED, &lines.to_be_bytes())
}

fn encode(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + content.len());
    frame.push(kind);
    frame.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes());
    frame.extend_from_slice(content);
    frame
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

    /// What was read and is no complete frame yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The next complete frame.
    pub(crate) fn next(&mut self) -> Option<Frame<'_>> {
        let left = &self.bytes[self.taken..];
        let (head, rest) = left.split_at_checked(HEAD)?;
        let content = rest.get(..usize::from(u16::from_be_bytes([head[1], head[2]])))?;
        self.taken += HEAD + content.len();
        // The other end is the same program, so there is no other kind.
        Some(match head[0] {
            DROPPED => Frame::Dropped(content.try_into().map_or(0, u64::from_be_bytes)),
            kind if kind == Stream::Stdout as u8 => Frame::Output(Stream::Stdout, content),
            _ => Frame::Output(Stream::Stderr, content),
        })
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
        let all = [first, second, dropped(70_000), empty].concat();
        for size in [1, 2, 4096, all.len()] {
            let mut frames = Frames::default();
            let mut read = Vec::new();
            for part in all.chunks(size) {
                frames.push(part);
                while let Some(frame) = frames.next() {
                    read.push(match frame {
                        Frame::Output(stream, content) => (Some(stream), content.len()),
                        Frame::Dropped(lines) => (None, lines as usize),
                    });
                }
            }
            let (out, err) = (Some(Stream::Stdout), Some(Stream::Stderr));
            let expected = [(out, LONGEST), (err, 5), (None, 70_000), (out, 0)];
            assert_eq!(read, expected, "cut every {size}");
        }
    }
}
