//! An HTTP client for the endpoints of workers, by the URL in their records.

use std::{error::Error, fmt, io, time::Duration};

use axum::{
    body::Body,
    http::{Response, StatusCode, Uri},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use crate::tls::ClientTls;

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector;

/// A client. It uses no proxy and follows no redirect: that worker itself has to answer.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Client<Connector, Body>);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Something answers, but not as TLS requires it: such as with an expired certificate.
    Refused(String),
    /// It can't be reached.
    Unreachable,
}

impl Workers {
    /// Connections are kept.
    pub(crate) fn new(tls: &ClientTls) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(None::<Duration>)
                .build(over(tls, connector)),
        )
    }

    /// A GET: the answer, without its body's end.
    pub(crate) async fn get(&self, url: &str) -> Result<Response<Body>, NoAnswer> {
        let url: Uri = url.parse().map_err(|_| NoAnswer::Unreachable)?;
        let answer = self.0.get(url).await;
        answer.map(|answer| answer.map(Body::new)).map_err(|error| NoAnswer::of(&error))
    }

    /// The body of a GET; `None` without an answer of success and of this length at most.
    pub(crate) async fn read(&self, url: &str, longest: usize) -> Option<Vec<u8>> {
        let answer = self.get(url).await.ok()?;
        if answer.status() != StatusCode::OK {
            return None;
        }
        axum::body::to_bytes(answer.into_body(), longest).await.ok().map(Into::into)
    }
}

#[cfg(feature = "tls")]
fn over(tls: &ClientTls, mut connector: HttpConnector) -> Connector {
    connector.enforce_http(false);
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config((*tls.0).clone());
    builder.https_or_http().enable_http1().wrap_connector(connector)
}

#[cfg(not(feature = "tls"))]
fn over(_: &ClientTls, connector: HttpConnector) -> Connector {
    connector
}

impl NoAnswer {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(why) = by_tls(error) {
                return Self::Refused(why);
            }
            // Such an error's source is that of the one in it.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            cause = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
        }
        Self::Unreachable
    }
}

#[cfg(feature = "tls")]
fn by_tls(error: &(dyn Error + 'static)) -> Option<String> {
    error.downcast_ref::<rustls::Error>().map(ToString::to_string)
}

#[cfg(not(feature = "tls"))]
fn by_tls(_: &(dyn Error + 'static)) -> Option<String> {
    None
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Unreachable => f.write_str("no answer"),
        }
    }
}
