//! Access: who may use an endpoint, and the log of who did what.
//!
//! | class | endpoints | setting |
//! |---|---|---|
//! | health | `/leader`, `/standby`, `/liveness`, `/readiness` | none: open to everyone |
//! | status | all other GETs | `http.access.status` |
//! | output | `/logs` | `http.access.status`, or `http.access.control` where that is open |
//! | control | POSTs, `/config` | `http.access.control` |

use std::{path::PathBuf, sync::Arc};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use election_core::internals::text::{cut, shown};
use metrics::counter;
use tokio::net::TcpListener;
use zk_session::BootTime;

use super::{
    answer::{LoggedOutcome, Refused, refuse},
    app::App,
    connections::Peer,
    origin,
    refusals::Refusals,
};
use crate::{
    config::{ControlAccess, HttpConfig, StatusAccess, Tokens},
    host_fault::HostFault,
    worker::state::Worker,
};

/// What a request to read the state needs; `None`: nothing.
fn gate(access: StatusAccess) -> Option<ControlAccess> {
    match access {
        StatusAccess::Open => None,
        StatusAccess::Token => Some(ControlAccess::Token),
        StatusAccess::Certificate => Some(ControlAccess::Certificate),
    }
}

/// Why requests to change the state are never admitted.
const CLOSED: &str = "control by HTTP is closed: http.token_file is not set on this worker, or http.access.control is \"closed\"";

fn forbidden(why: &str) -> Refused {
    refuse(StatusCode::FORBIDDEN, why).into()
}

/// The request has no valid token.
fn unauthorized(challenge: &'static str, why: &str) -> Refused {
    let mut response = refuse(StatusCode::UNAUTHORIZED, why);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response.into()
}

/// Admits requests to read the state.
pub(super) async fn status(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let http = &worker.config().http;
    read(http, gate(http.access.status), &peer, request, next).await
}

/// Admits requests to read the output of jobs. It can hold secrets: it is never open to everyone.
pub(super) async fn output(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let http = &worker.config().http;
    let gate = gate(http.access.status).or(Some(http.access.control));
    read(http, gate, &peer, request, next).await
}

async fn read(
    http: &HttpConfig,
    gate: Option<ControlAccess>,
    peer: &Peer,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    match admit(http, gate, peer, &head).await {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(refused) => refused.into_response(),
    }
}

/// The most of a path and of an outcome that is logged, in bytes.
const LOGGED: usize = 300;

/// Admits requests to change the state, and logs each request with its outcome; of those that are not admitted as many as a log
/// has room for.
///
/// In a task of its own: the server drops what it runs for a client that hangs up, and an operation would end half done and
/// without a line in the log.
pub(super) async fn control(
    State(App { worker, refusals, .. }): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    match tokio::spawn(controlled(worker, refusals, peer, request, next)).await {
        Ok(response) => response,
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn controlled(
    worker: Arc<Worker>,
    refusals: Arc<Refusals>,
    peer: Peer,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let (method, mut path) = (head.method.clone(), shown(head.uri.path()).into_owned());
    cut(&mut path, LOGGED);
    let http = &worker.config().http;
    let (response, omitted) = match admit(http, Some(http.access.control), &peer, &head).await {
        Ok(()) => (next.run(Request::from_parts(head, body)).await, Some(refusals.take())),
        Err(refused) => {
            counter!("dr_http_control_refused_total").increment(1);
            (refused.into_response(), refusals.count(BootTime::now()))
        }
    };
    let Some(omitted) = omitted else { return response };
    if omitted > 0 {
        tracing::warn!(omitted, "{omitted} more HTTP control requests were refused and not logged");
    }
    let status = response.status().as_u16();
    let mut outcome = response
        .extensions()
        .get::<LoggedOutcome>()
        .map_or_else(String::new, |outcome| shown(&outcome.0).into_owned());
    cut(&mut outcome, LOGGED);
    let (peer, certificate) = (peer.address, peer.certificate());
    if response.status().is_success() {
        tracing::info!(%peer, certificate, %method, path, status, outcome, "HTTP control request accepted");
    } else {
        tracing::warn!(%peer, certificate, %method, path, status, outcome, "HTTP control request refused");
    }
    response
}

async fn admit(
    http: &HttpConfig,
    gate: Option<ControlAccess>,
    peer: &Peer,
    head: &Parts,
) -> Result<(), Refused> {
    let headers = &head.headers;
    let changes = head.method == Method::POST;
    if let Some(why) = origin::foreign(headers, &head.uri, &http.listen.host, changes) {
        return Err(forbidden(why));
    }
    match gate {
        Some(ControlAccess::Closed) => return Err(forbidden(CLOSED)),
        Some(ControlAccess::Certificate) if peer.certificate().is_none() => {
            return Err(forbidden(
                "it needs a client certificate of an authority in http.tls.client_ca_file",
            ));
        }
        Some(ControlAccess::Token) => has_token(http.token_file.clone(), bearer(headers)).await?,
        Some(ControlAccess::Certificate) | None => {}
    }
    if changes && !origin::is_json(headers) {
        let why = "it needs the header Content-Type: application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into());
    }
    Ok(())
}

/// The file is read for each request, so a new token is valid at once, and an old one is not.
async fn has_token(file: Option<PathBuf>, token: Option<&str>) -> Result<(), Refused> {
    let file = file.ok_or_else(|| forbidden(CLOSED))?;
    // It may be on a slow file system.
    let tokens = tokio::task::spawn_blocking(move || Tokens::read(&file)).await;
    let tokens = tokens.map_err(|error| HostFault::from(error.to_string())).flatten();
    let unusable =
        |fault: HostFault| forbidden(&format!("no token is accepted: http.token_file: {}", fault.why));
    let tokens = tokens.map_err(unusable)?;
    match token {
        Some(token) if tokens.has(token) => Ok(()),
        Some(_) => {
            let challenge = "Bearer realm=\"dr-worker\", error=\"invalid_token\"";
            Err(unauthorized(challenge, "the token is not in http.token_file"))
        }
        None => {
            Err(unauthorized("Bearer realm=\"dr-worker\"", "it needs a token: Authorization: Bearer TOKEN"))
        }
    }
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Logs where the worker listens. Warns of a port that other hosts can reach, if everyone there can read the state or tokens.
pub(super) fn listens(worker: &Worker, listener: &TcpListener) {
    let Ok(address) = listener.local_addr() else { return };
    tracing::info!(http = %address, "listening");
    if address.ip().is_loopback() {
        return;
    }
    for exposed in exposed(&worker.config().http) {
        tracing::warn!(%address, "the HTTP endpoints can be reached from other hosts: {exposed}");
    }
}

/// What everyone who reaches the port can read, as sentences.
pub(crate) fn exposed(http: &HttpConfig) -> Vec<&'static str> {
    let gates = [gate(http.access.status), Some(http.access.control)];
    let mut exposed = Vec::new();
    if gates.contains(&Some(ControlAccess::Token)) && !http.has_tls() {
        exposed.push("tokens of http.token_file are sent in plain text; set http.tls");
    }
    if http.access.status == StatusAccess::Open {
        exposed.push(match http.access.control {
            ControlAccess::Closed => {
                "everyone on those hosts can read the state of this worker (http.access.status); control is closed"
            }
            _ => "everyone on those hosts can read the state of this worker (http.access.status)",
        });
    }
    exposed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HostPort, HttpAccess, PairFiles, TlsFiles};

    #[test]
    fn tokens_in_plain_text_and_an_unprotected_state_are_reported() {
        let listen = HostPort { host: "0.0.0.0".to_owned(), port: 7080 };
        let exposed = |status, control, with_tls: bool| {
            let pair = with_tls.then(|| PairFiles { cert_file: "c".into(), key_file: "k".into() });
            let tls = TlsFiles { pair, ..TlsFiles::default() };
            exposed(&HttpConfig {
                listen: listen.clone(),
                token_file: None,
                tls,
                access: HttpAccess { status, control },
            })
            .join("; ")
        };
        use ControlAccess::{Certificate, Closed, Token};
        let readable = "everyone on those hosts can read the state of this worker (http.access.status)";
        assert_eq!(exposed(StatusAccess::Open, Closed, false), format!("{readable}; control is closed"));
        assert!(exposed(StatusAccess::Open, Token, false).contains("in plain text"));
        assert!(exposed(StatusAccess::Token, Closed, false).contains("in plain text"));
        for control in [Token, Certificate] {
            assert_eq!(exposed(StatusAccess::Open, control, true), readable);
        }
        assert_eq!(exposed(StatusAccess::Certificate, Certificate, true), "");
    }

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
