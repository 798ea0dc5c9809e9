//! What an operator can do about a reason that the libraries return: the one place that knows the commands.

use election_admin::{Hindrance, OpenRequest};

use crate::typed::Typed;

/// The hindrance, with the command that ends it.
pub(crate) fn on(hindrance: &Hindrance) -> String {
    match hindrance {
        Hindrance::OpenRequest(OpenRequest { election, filed }) => {
            let cancel = Typed::verb("cancel").arg(&filed.which.name).job(election);
            format!("{hindrance}: `{cancel}`")
        }
        Hindrance::NotFenced(_) => format!("{hindrance}: `{}`", Typed::verb("ack").arg("--fenced")),
        other => other.to_string(),
    }
}
