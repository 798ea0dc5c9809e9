//! An HTTP client for the endpoints of workers, by the URL in their records.

use std::{error::Error, fmt, io};

use reqwest::{Response, StatusCode};

use crate::{client, tls::ClientTls};

/// A client.
#[derive(Clone, Debug)]
pub(crate) struct Workers(reqwest::Client);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Something answers, but not as TLS requires it: such as with an expired certificate.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only a handshake is refused"))]
    Refused(String),
    /// It can't be reached.
    Unreachable,
}

impl Workers {
    /// A client that keeps its connections.
    ///
    /// # Panics
    /// Never: what is made of the files of `[http.tls]` is a configuration of this client's own TLS.
    pub(crate) fn new(tls: &ClientTls) -> Self {
        let client = client::of_workers(tls).pool_idle_timeout(None).build();
        Self(client.expect("it reads nothing of the system"))
    }

    /// A client that closes each connection after its answer.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub(crate) fn that_keep_nothing(tls: &ClientTls) -> Self {
        let client = client::of_workers(tls).pool_max_idle_per_host(0).build();
        Self(client.expect("it reads nothing of the system"))
    }

    /// A GET: the answer, without its body's end.
    pub(crate) async fn get(&self, url: &str) -> Result<Response, NoAnswer> {
        self.0.get(url).send().await.map_err(|error| NoAnswer::of(&error))
    }

    /// The body of a GET; `None` without an answer of success and of this length at most.
    pub(crate) async fn read(&self, url: &str, longest: usize) -> Option<Vec<u8>> {
        let answer = self.get(url).await.ok()?;
        if answer.status() == StatusCode::OK { client::body(answer, longest).await } else { None }
    }
}

impl NoAnswer {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            #[cfg(feature = "tls")]
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Self::Refused(error.to_string());
            }
            // Such an error's source is that of the one in it.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            cause = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
        }
        Self::Unreachable
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Unreachable => f.write_str("no answer"),
        }
    }
}
