//! A connection to a server, as its two ends: TCP, or anything else, such as TLS over either.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::ready;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::settings::dial::{Dial, Duplex};

/// The buffer for one read, held only while there is something to read.
const LEAST: usize = 1000;
/// The largest buffer for one read, used if reads fill the smaller ones.
const MOST: usize = 1 << 20;

/// Opens a connection.
pub(super) async fn open(dial: &Dial, server: SocketAddr) -> io::Result<Stream> {
    if let Some(dial) = &dial.0 {
        return dial(server).await.map(Stream::Other);
    }
    let stream = TcpStream::connect(server).await?;
    // A request must not wait for the answer to the last one.
    stream.set_nodelay(true)?;
    Ok(Stream::Tcp(stream))
}

/// An open connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Other(Box<dyn Duplex>),
}

impl Stream {
    /// Both ends.
    pub(super) fn into_ends(self) -> (ReadEnd, WriteEnd) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                let source = Incoming::Tcp(reader);
                (ReadEnd { source, room: LEAST }, WriteEnd::Tcp(Arc::new(writer)))
            }
            Self::Other(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                let source = Incoming::Other(reader);
                let writer = WriteEnd::Other { stream: writer, kept: BytesMut::new(), unflushed: false };
                (ReadEnd { source, room: LEAST }, writer)
            }
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn boxed(self) -> Box<dyn Duplex> {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Other(stream) => stream,
        }
    }
}

/// The reading end.
pub(super) struct ReadEnd {
    source: Incoming,
    /// The size of the next buffer, by what was read before.
    room: usize,
}

enum Incoming {
    Tcp(OwnedReadHalf),
    Other(ReadHalf<Box<dyn Duplex>>),
}

/// The writing end.
pub(super) enum WriteEnd {
    Tcp(Arc<OwnedWriteHalf>),
    Other {
        stream: WriteHalf<Box<dyn Duplex>>,
        /// Bytes that it has been given and has not passed on.
        kept: BytesMut,
        /// The stream has been given all, and may not have passed it on: the flush may have been cancelled.
        unflushed: bool,
    },
}

impl ReadEnd {
    /// Appends what has arrived; 0 at the end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        let room = self.room;
        let reserve = |buffer: &mut BytesMut| {
            if buffer.capacity() - buffer.len() < room {
                buffer.reserve(buffer.len().clamp(room, MOST));
            }
        };
        let count = match &mut self.source {
            Incoming::Tcp(stream) => {
                poll_fn(|context| {
                    ready!(stream.as_ref().poll_read_ready(context))?;
                    // Memory is reserved only now: an idle session holds none.
                    reserve(buffer);
                    let read = pin!(stream.read_buf(buffer)).poll(context);
                    if read.is_pending() && buffer.is_empty() {
                        *buffer = BytesMut::new();
                    }
                    read
                })
                .await?
            }
            Incoming::Other(stream) => {
                reserve(buffer);
                stream.read_buf(buffer).await?
            }
        };
        if count >= room || count < room / 4 {
            self.room = (count * 2).max(room / 2).clamp(LEAST, MOST);
        }
        Ok(count)
    }
}

impl WriteEnd {
    /// Writes as much of what `source` has as is possible at once: `source` writes from its front and records how much.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn write(
        &mut self,
        mut source: impl FnMut(&mut dyn FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => loop {
                stream.writable().await?;
                match source(&mut |bytes| stream.try_write(bytes)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return written,
                }
            },
            Self::Other { stream, kept, unflushed } => {
                if !*unflushed {
                    if kept.is_empty() {
                        source(&mut |bytes| {
                            kept.extend_from_slice(bytes);
                            Ok(bytes.len())
                        })?;
                    }
                    stream.write_buf(kept).await?;
                    if !kept.is_empty() {
                        return Ok(());
                    }
                    *kept = BytesMut::new();
                    *unflushed = true;
                }
                stream.flush().await?;
                *unflushed = false;
                Ok(())
            }
        }
    }

    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() || self.is_behind() {
            let write = self.write(|write| {
                bytes = &bytes[write(bytes)?..];
                Ok(())
            });
            write.await?;
        }
        Ok(())
    }

    /// Whether something is left to be written that [`write`](Self::write) has taken.
    pub(super) fn is_behind(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Other { kept, unflushed, .. } => *unflushed || !kept.is_empty(),
        }
    }

    /// The stream, if any task may write to it at any time.
    pub(super) fn direct(&self) -> Option<Arc<OwnedWriteHalf>> {
        match self {
            Self::Tcp(stream) => Some(Arc::clone(stream)),
            Self::Other { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;

    /// Passes on at a flush what was written, unless it is congested.
    #[derive(Default)]
    struct Buffering(Arc<Buffered>);

    #[derive(Default)]
    struct Buffered {
        congested: AtomicBool,
        written: AtomicUsize,
        passed_on: AtomicUsize,
    }

    impl AsyncRead for Buffering {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Buffering {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.written.fetch_add(bytes.len(), Ordering::SeqCst);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.0.congested.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            self.0.passed_on.store(self.0.written.load(Ordering::SeqCst), Ordering::SeqCst);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_flush_that_was_cancelled_is_resumed() {
        let stream = Buffering::default();
        let buffered = Arc::clone(&stream.0);
        let (_reader, mut writer) = Stream::Other(Box::new(stream)).into_ends();
        buffered.congested.store(true, Ordering::SeqCst);
        let cancelled = writer.write(|write| write(b"ping").map(drop)).now_or_never();
        assert!(cancelled.is_none());
        assert_eq!(buffered.written.load(Ordering::SeqCst), 4);
        assert!(writer.is_behind());
        buffered.congested.store(false, Ordering::SeqCst);
        let resumed = writer.write(|_| panic!("nothing more is taken before that")).now_or_never();
        assert!(matches!(resumed, Some(Ok(()))), "{resumed:?}");
        assert_eq!(buffered.passed_on.load(Ordering::SeqCst), 4);
        assert!(!writer.is_behind());
    }
}
