//! The frames that have passed, for a reader who wants to know who sent what, and when.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use super::frame::{PREFIX, Piece};

/// Which side has sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Sender {
    Client,
    Server,
}

/// A frame that has passed a proxy. `zk-proto` decodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassedFrame {
    /// When the proxy had read it.
    pub at: Instant,
    /// Which of the proxy's connections, from 0, in the order in which they were accepted.
    pub connection: usize,
    /// Who has sent it.
    pub sender: Sender,
    /// The frame, without its length. The first one of each side is the connect request or response.
    pub bytes: Bytes,
}

/// What one proxy has recorded; nothing until it is told to.
#[derive(Debug, Default)]
pub(super) struct Record(OnceLock<Mutex<Vec<PassedFrame>>>);

impl Record {
    pub(super) fn begin(&self) {
        let _ = self.0.get_or_init(Mutex::default);
    }

    pub(super) fn take(&self) -> Vec<PassedFrame> {
        let Some(frames) = self.0.get() else { return Vec::new() };
        std::mem::take(&mut frames.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, connection: usize, sender: Sender, piece: &Piece) {
        let (Some(frames), Piece::Frame(frame)) = (self.0.get(), piece) else { return };
        let mut frames = frames.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that the frames of all connections are in the order of their times.
        frames.push(PassedFrame { at: Instant::now(), connection, sender, bytes: frame.slice(PREFIX..) });
    }
}
