//! The bytes of a connection, with or without TLS. The handshake is a part of reading and writing, so a slow one holds up
//! its own connection only.

use std::{
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::tls::Tls;

#[cfg(feature = "tls")]
use {
    crate::tls::Certificate,
    tokio_rustls::{Accept, TlsAcceptor, server::TlsStream},
};

/// The name in the client's certificate, once that was verified.
pub(super) type Presented = Arc<OnceLock<String>>;

/// A stream of bytes.
pub(super) enum Transport {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Shaking(Box<Accept<TcpStream>>, Presented),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    #[cfg(feature = "tls")]
    Failed,
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Transport {
    #[cfg(feature = "tls")]
    pub(super) fn new(stream: TcpStream, tls: &Tls, presented: &Presented) -> Self {
        match tls.server.clone() {
            None => Self::Plain(stream),
            Some(config) => {
                let accept = TlsAcceptor::from(config).accept(stream);
                Self::Shaking(Box::new(accept), Arc::clone(presented))
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn new(stream: TcpStream, _: &Tls, _: &Presented) -> Self {
        Self::Plain(stream)
    }

    /// Whether the handshake is not over.
    pub(super) fn is_shaking(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Self::Shaking(..) => true,
            _ => false,
        }
    }

    #[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "only a handshake waits"))]
    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Duplex>>> {
        #[cfg(feature = "tls")]
        if let Self::Shaking(accept, presented) = self {
            match ready!(Pin::new(accept).poll(context)) {
                Ok(stream) => {
                    let certificates = stream.get_ref().1.peer_certificates();
                    if let Some(leaf) = certificates.and_then(|all| all.first()) {
                        let name = Certificate::read(leaf).map(|read| read.name);
                        // It is set only once.
                        let _ = presented.set(name.unwrap_or_default());
                    }
                    *self = Self::Tls(Box::new(stream));
                }
                Err(error) => {
                    metrics::counter!("dr_tls_handshakes_failed_total").increment(1);
                    tracing::debug!(%error, "a TLS handshake has failed");
                    *self = Self::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(match self {
            Self::Plain(stream) => Pin::new(stream),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(&mut **stream),
            #[cfg(feature = "tls")]
            Self::Shaking(..) | Self::Failed => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }))
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_stream(context))?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_stream(context))?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_shaking() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_stream(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_shaking() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_stream(context))?.poll_shutdown(context)
    }
}
