//! An endpoint: how it is reached, and what it answers.

use axum::routing::MethodRouter;
use schemars::Schema;

use super::app::App;
use crate::commands::operation::Declared;

/// An endpoint.
pub(super) struct Endpoint {
    pub(super) path: String,
    /// What it answers or does.
    pub(super) summary: String,
    pub(super) access: Access,
    /// The object that its query is read as.
    pub(super) query: Option<Schema>,
    /// The operation whose arguments are its body.
    pub(super) operation: Option<&'static Declared>,
    /// Its answers, without the errors that follow from the rest.
    pub(super) answers: Vec<Answer>,
    pub(super) route: MethodRouter<App>,
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

impl Access {
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Control => "POST",
            Self::Health | Self::Status | Self::Output | Self::Secret => "GET",
        }
    }
}

/// A status, its media type, and the schema of a JSON object.
pub(super) type Answer = (u16, &'static str, Option<Schema>);

pub(super) const JSON: &str = "application/json";
