//! What is to be written to one peer.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use super::wire::Frame;

/// Memory that is kept for the next frames.
const KEPT: usize = 1 << 16;

/// Frames on their way out, written together. A peer that does not read keeps nobody from listening to it; what waits
/// here is bounded by the requests that may be under way.
#[derive(Debug)]
pub(super) struct Outbox {
    writer: OwnedWriteHalf,
    bytes: Vec<u8>,
    /// How many of `bytes` have been written.
    written: usize,
}

impl Outbox {
    pub(super) fn new(writer: OwnedWriteHalf) -> Outbox {
        Outbox { writer, bytes: Vec::new(), written: 0 }
    }

    /// Puts a frame behind the others. It leaves with the next `flush`.
    pub(super) fn send(&mut self, frame: &Frame) {
        self.bytes.extend_from_slice(frame.as_bytes());
    }

    /// Whether `flush` has nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes everything.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call goes on where this one was.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match self.writer.write(&self.bytes[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_was_begun_and_given_up_is_taken_up_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (mut far, _) = far.unwrap();
        let (_unread, writer) = near.unwrap().into_split();
        let mut outbox = Outbox::new(writer);
        let mut expected = Vec::new();
        let mut fill = |outbox: &mut Outbox, byte: u8| {
            let frame = Frame::build(|out| out.extend(std::iter::repeat_n(byte, 8 << 20)));
            expected.extend_from_slice(frame.as_bytes());
            outbox.send(&frame);
        };

        // More than the sockets take, to a peer that does not read.
        fill(&mut outbox, 1);
        timeout(Duration::from_millis(50), outbox.flush()).await.unwrap_err();
        assert!(!outbox.is_empty() && outbox.written > 0);
        fill(&mut outbox, 2);
        timeout(Duration::from_millis(50), outbox.flush()).await.unwrap_err();

        let mut came = vec![0; expected.len()];
        let (read, flushed) = tokio::join!(far.read_exact(&mut came), outbox.flush());
        read.unwrap();
        flushed.unwrap();
        assert!(came == expected, "each byte once, in order");
        assert!(outbox.is_empty());
        assert!(outbox.bytes.capacity() <= KEPT);
    }
}
