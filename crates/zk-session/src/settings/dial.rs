//! How connections to servers are opened, if not by TCP.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream that is not TCP itself.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

type Dialed = BoxFuture<'static, io::Result<Box<dyn Duplex>>>;

/// How connections to servers are opened, if not by TCP.
#[derive(Clone, Default)]
pub(crate) struct Dial(pub(crate) Option<Arc<dyn Fn(SocketAddr) -> Dialed + Send + Sync>>);

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Dial(..)" } else { "Dial(TCP)" })
    }
}
