//! A connection to a server: TCP, with or without TLS.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::ready;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
#[cfg(feature = "tls")]
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

/// Room for what is read at one time. Held only while there is something to read.
const READ: usize = 8192;
/// As much as is reserved at one time for a frame whose bytes are arriving.
const MOST: usize = 1 << 20;

/// Where bytes come from.
pub(super) enum ReadEnd {
    Tcp(OwnedReadHalf),
    #[cfg(feature = "tls")]
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// Where bytes go.
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
        match self {
            Self::Tcp(stream) => {
                poll_fn(|context| {
                    ready!(stream.as_ref().poll_read_ready(context))?;
                    // Room is made only now: a session that hears nothing holds no memory for it.
                    reserve(buffer);
                    let read = pin!(stream.read_buf(buffer)).poll(context);
                    if read.is_pending() && buffer.is_empty() {
                        *buffer = BytesMut::new();
                    }
                    read
                })
                .await
            }
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                reserve(buffer);
                stream.read_buf(buffer).await
            }
        }
    }
}

fn reserve(buffer: &mut BytesMut) {
    if buffer.capacity() - buffer.len() < READ {
        buffer.reserve(buffer.len().clamp(READ, MOST));
    }
}

impl WriteEnd {
    /// Writes as much of what `source` has as goes at once.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn write(&mut self, source: &impl Source) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => loop {
                stream.writable().await?;
                match source.write_with(|bytes| stream.try_write(bytes)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return written,
                }
            },
            #[cfg(feature = "tls")]
            Self::Tls(stream, kept) => {
                if kept.is_empty() {
                    source.write_with(|bytes| {
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

    /// Whether something is left to be written that [`write`](Self::write) has taken.
    pub(super) fn is_behind(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(_, kept) => !kept.is_empty(),
        }
    }

    /// The stream, where anybody may write to it at any time.
    pub(super) fn direct(&self) -> Option<Arc<OwnedWriteHalf>> {
        match self {
            Self::Tcp(stream) => Some(Arc::clone(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(..) => None,
        }
    }
}

/// What there is to write.
pub(super) trait Source {
    /// Has `write` write from the front of it, and takes note of how much it was.
    fn write_with(&self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()>;
}

/// Both ends, before they go apart.
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    pub(super) async fn read_buf(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_buf(buffer).await,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    pub(super) fn split(self) -> (ReadEnd, WriteEnd) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadEnd::Tcp(reader), WriteEnd::Tcp(Arc::new(writer)))
            }
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                (ReadEnd::Tls(reader), WriteEnd::Tls(writer, BytesMut::new()))
            }
        }
    }
}
