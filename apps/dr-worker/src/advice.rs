//! What an operator can do about a reason that the libraries return: the one place that knows the commands.

use election_admin::{Hindrance, NotNow, OpenRequest};
use election_core::status::Reason;

use crate::typed::Typed;

/// The hindrance, with the command that ends it.
pub(crate) fn on(hindrance: &Hindrance) -> String {
    match hindrance {
        Hindrance::OpenRequest(OpenRequest { election, name, state, .. }) if state.is_unbegun() => {
            let cancel = Typed::verb("cancel").arg(name).job(election);
            format!("{hindrance}: `{cancel}`")
        }
        Hindrance::Rules { election, why } => match why {
            NotNow::Observe => format!("{why}: `{}`", Typed::verb("mode auto").job(election)),
            NotNow::Planned(name) | NotNow::Open { name, .. } => {
                format!("{why}: `{}`", Typed::verb("cancel").arg(name).job(election))
            }
            NotNow::UnderWay { .. } | NotNow::Repeated { .. } => why.to_string(),
        },
        Hindrance::NotFenced { election, .. } => {
            format!("{hindrance}: `{}`", Typed::verb("ack").arg("--fenced").job(election))
        }
        other => other.to_string(),
    }
}

/// What the elector of this job reports, with the command that ends that state.
pub(crate) fn beside(reason: Reason, sentence: &str, job: &str) -> String {
    let command = match reason {
        Reason::Held | Reason::Backoff => Typed::verb("ack").job(job),
        Reason::Confirm => Typed::verb("confirm").arg("SITE").job(job),
        _ => return sentence.to_owned(),
    };
    format!("{sentence} (`{command}`)")
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::{RequestKind, RequestState};

    use super::*;

    #[test]
    fn only_a_request_that_is_not_begun_is_to_be_cancelled() {
        let advised = |state| {
            let (election, name) = ("orders".to_owned(), "r-1".to_owned());
            on(&OpenRequest { election, name, kind: RequestKind::Restart, state }.into())
        };
        assert!(advised(RequestState::Pending).ends_with(": `dr-worker cancel r-1 --job orders`"));
        assert!(advised(RequestState::Accepted { term: 4 }).ends_with("; wait for it to end"));
    }
}
