//! An endpoint: how it is reached, and what it answers.

use axum::routing::MethodRouter;

use super::app::App;

/// An endpoint.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    /// What it answers or does.
    pub(super) summary: &'static str,
    pub(super) access: Access,
    /// Of the query: `name: type`.
    pub(super) parameters: &'static [&'static str],
    /// Of the object in the body: `name?: type`.
    pub(super) body: &'static [&'static str],
    /// Its answers, without the errors that follow from the rest.
    pub(super) answers: &'static [Answer],
    pub(super) route: fn() -> MethodRouter<App>,
}

/// Who may use an endpoint, and by which method.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// GET; everyone.
    Health,
    /// GET; as `http.access.status`.
    Status,
    /// GET; as `http.access.status`, or as `http.access.control` where that is open.
    Output,
    /// GET; as `http.access.control`.
    Secret,
    /// POST; as `http.access.control`.
    Control,
}

/// A status, its media type, and the fields of a JSON object: `name: type`, `name: type|null`, `name?: type`.
pub(super) type Answer = (u16, &'static str, &'static [&'static str]);

pub(super) const JSON: &str = "application/json";
