//! A connection to a server, as its two ends: TCP, with or without TLS.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::ready;

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;
#[cfg(feature = "tls")]
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

/// The buffer for one read, held only while there is something to read.
const LEAST: usize = 1000;
/// The largest buffer for one read, used if reads fill the smaller ones.
const MOST: usize = 1 << 20;

/// The reading end.
pub(super) struct ReadEnd {
    source: Incoming,
    /// The size of the next buffer, by what was read before.
    room: usize,
}

enum Incoming {
    Tcp(OwnedReadHalf),
    #[cfg(feature = "tls")]
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// The writing end.
pub(super) enum WriteEnd {
    Tcp(Arc<OwnedWriteHalf>),
    /// Bytes that TLS has been given and has not passed on.
    #[cfg(feature = "tls")]
    Tls(WriteHalf<TlsStream<TcpStream>>, BytesMut),
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
            #[cfg(feature = "tls")]
            Incoming::Tls(stream) => {
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
            #[cfg(feature = "tls")]
            Self::Tls(stream, kept) => {
                if kept.is_empty() {
                    source(&mut |bytes| {
                        kept.extend_from_slice(bytes);
                        Ok(bytes.len())
                    })?;
                }
                stream.write_buf(kept).await?;
                if kept.is_empty() {
                    *kept = BytesMut::new();
                    stream.flush().await?;
                }
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
            #[cfg(feature = "tls")]
            Self::Tls(_, kept) => !kept.is_empty(),
        }
    }

    /// The stream, if any task may write to it at any time.
    pub(super) fn direct(&self) -> Option<Arc<OwnedWriteHalf>> {
        match self {
            Self::Tcp(stream) => Some(Arc::clone(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(..) => None,
        }
    }
}

/// Both ends of a connection.
pub(super) fn over_tcp(stream: TcpStream) -> (ReadEnd, WriteEnd) {
    let (reader, writer) = stream.into_split();
    (ReadEnd { source: Incoming::Tcp(reader), room: LEAST }, WriteEnd::Tcp(Arc::new(writer)))
}

/// The same with TLS.
#[cfg(feature = "tls")]
pub(super) fn over_tls(stream: TlsStream<TcpStream>) -> (ReadEnd, WriteEnd) {
    let (reader, writer) = tokio::io::split(stream);
    (ReadEnd { source: Incoming::Tls(reader), room: LEAST }, WriteEnd::Tls(writer, BytesMut::new()))
}
