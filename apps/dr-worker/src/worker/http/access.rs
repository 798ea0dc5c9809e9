//! Access to control: the bearer token, and the log of who did what.

use std::{fmt, path::PathBuf, sync::Arc};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};

use super::{
    answer::{Outcome, refuse},
    connections::Peer,
};
use crate::{
    config::{HttpConfig, Tokens},
    worker::state::Worker,
};

/// Why a request is not admitted.
enum Denied {
    /// No token is configured.
    Closed,
    /// The tokens can't be read now.
    Unusable(String),
    /// The request has no token.
    Missing,
    /// The request has another token.
    Wrong,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => {
                f.write_str("control by HTTP is closed: http.token_file is not set on this worker")
            }
            Self::Unusable(why) => write!(f, "control by HTTP is closed: http.token_file: {why}"),
            Self::Missing => f.write_str("it needs a token: Authorization: Bearer TOKEN"),
            Self::Wrong => f.write_str("the token is not in http.token_file"),
        }
    }
}

impl Denied {
    fn answer(&self) -> Response {
        let (code, challenge) = match self {
            Self::Closed | Self::Unusable(_) => (StatusCode::FORBIDDEN, None),
            Self::Missing => (StatusCode::UNAUTHORIZED, Some("Bearer realm=\"dr-worker\"")),
            Self::Wrong => {
                (StatusCode::UNAUTHORIZED, Some("Bearer realm=\"dr-worker\", error=\"invalid_token\""))
            }
        };
        let mut response = refuse(code, &self.to_string());
        if let Some(challenge) = challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// Admits requests with a valid token only, and logs each request with its outcome.
pub(super) async fn control(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(Peer { address: peer, .. }): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let file = worker.config().http.token_file.clone();
    let admitted = admit(file, bearer(request.headers()).map(str::to_owned)).await;
    let response = match admitted {
        Ok(()) => next.run(request).await,
        Err(denied) => denied.answer(),
    };
    let status = response.status().as_u16();
    let outcome = response.extensions().get::<Outcome>().map_or("", |outcome| &outcome.0);
    if response.status().is_success() {
        tracing::info!(%peer, %method, path, status, outcome, "HTTP control request accepted");
    } else {
        tracing::warn!(%peer, %method, path, status, outcome, "HTTP control request refused");
    }
    response
}

/// The file is read for each request, so a new token is valid at once, and an old one is not.
async fn admit(file: Option<PathBuf>, token: Option<String>) -> Result<(), Denied> {
    let file = file.ok_or(Denied::Closed)?;
    // It may be on a slow file system.
    let tokens = tokio::task::spawn_blocking(move || Tokens::read(&file)).await;
    let tokens = tokens.map_err(|error| error.to_string()).flatten().map_err(Denied::Unusable)?;
    let token = token.ok_or(Denied::Missing)?;
    if tokens.has(&token) { Ok(()) } else { Err(Denied::Wrong) }
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Warns of a port that other hosts can reach and that has no token.
pub(super) fn warn_if_open(http: &HttpConfig, address: std::net::SocketAddr) {
    if http.token_file.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "the HTTP endpoints can be reached from other hosts, and there is no http.token_file: everyone there can \
             read the state of this worker; control is closed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_header_only() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(with("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(with("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(with("Basic abc"), None);
        assert_eq!(with("Bearer"), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
