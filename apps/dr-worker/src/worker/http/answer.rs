use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use election_admin::ReadError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{error::Error, mask::mask};

/// The longest error of the framework.
const LONGEST_ERROR: usize = 4096;

/// What an answer reports, for the log.
#[derive(Clone, Debug)]
pub(super) struct LoggedOutcome(pub(super) String);

/// An answer that no proxy may cache.
pub(super) fn answer(code: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => {
            let headers = [(header::CACHE_CONTROL, "no-store"), (header::CONTENT_TYPE, "application/json")];
            (code, headers, body).into_response()
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// An error, with its reason.
pub(super) fn refuse(code: StatusCode, why: &str) -> Response {
    refuse_with(code, &Refusal { error: why, code: None })
}

/// A failed command, with the exit code that the same command has on the command line.
pub(super) fn failed(error: &Error) -> Response {
    let code = match error {
        Error::Usage(_) => StatusCode::BAD_REQUEST,
        Error::Failed(_) | Error::NotNow(_) | Error::Host { .. } | Error::Reported(..) => {
            StatusCode::CONFLICT
        }
        Error::Unreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Internal(_) | Error::Config(_) | Error::Setting { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let why = error.to_string();
    let why = mask(&why);
    refuse_with(code, &Refusal { error: &why, code: Some(error.exit_code() as u8) })
}

/// The object of every error.
#[derive(Serialize, JsonSchema)]
pub(super) struct Refusal<'a> {
    error: &'a str,
    /// The exit code of the same command.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
}

/// An answer that ends a handler early.
pub(super) struct Refused(Box<Response>);

impl From<Response> for Refused {
    fn from(response: Response) -> Self {
        Self(Box::new(response))
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        failed(&error).into()
    }
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// What a handler that can end early answers.
pub(super) type Answered = Result<Response, Refused>;

fn refuse_with(code: StatusCode, refusal: &Refusal<'_>) -> Response {
    let outcome = axum::Extension(LoggedOutcome(refusal.error.to_owned()));
    (code, [(header::CACHE_CONTROL, "no-store")], outcome, Json(refusal)).into_response()
}

/// An error of the framework as text, such as of a query that can't be read, becomes one as JSON.
pub(super) async fn as_json(response: Response) -> Response {
    let is_text = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind != "application/json");
    if !response.status().is_client_error() || !is_text {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, LONGEST_ERROR).await.unwrap_or_default();
    refuse(parts.status, &String::from_utf8_lossy(&text))
}

/// An answer to another method than the allowed ones.
pub(super) fn not_allowed(allowed: &'static str) -> Response {
    let why = format!("only {} is allowed here", allowed.replace(',', ", "));
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, &why);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
