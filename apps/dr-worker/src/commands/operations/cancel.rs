//! `cancel`.

use clap::Args;
use election_admin::Withdrawal;
use election_core::internals::record::{AdminRequest, RequestRef, RequestState};
use futures_util::future::FutureExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    commands::operation::{Ask, Election, Operation, Outcome, Report},
    error::Error,
    schema::Object,
};

/// Cancel a request that has not been started.
///
/// Exit code 1 if it was started or has ended; its outcome is printed.
#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// Request id, as printed by `list`: r-0000000000.
    #[arg(value_name = "ID", value_parser = request_id)]
    id: String,
}

/// The id becomes part of a path.
fn request_id(text: &str) -> Result<String, String> {
    if RequestRef::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("a request's id is 'r-' and a number, such as r-0000000000".to_owned())
}

/// A request that is withdrawn.
#[derive(Serialize, JsonSchema)]
pub(super) struct Withdrawn {
    /// The job.
    election: String,
    request: String,
    #[schemars(with = "Object")]
    outcome: RequestState,
}

impl Outcome for Withdrawn {}

impl Operation for Cancel {
    type Outcome = Withdrawn;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Withdrawn>, Error> {
        let (session, id) = (&of.operator.session, &self.id);
        let work = async move {
            let filed = election_admin::request(session, &of.paths, id).await?;
            let why = format!("by {}", of.author.by);
            match election_admin::cancel(session, &of.paths, &filed.which, &why).await? {
                Withdrawal::Withdrawn(AdminRequest { state: outcome, .. }) => Ok(Report::new(
                    Withdrawn { election: of.job.to_owned(), request: id.clone(), outcome },
                    format!("request {id} is withdrawn"),
                )),
                Withdrawal::TooLate(AdminRequest { kind, state, .. }) => {
                    let progress = kind.progress(&state);
                    Err(Error::Failed(format!("request {id} can't be withdrawn any more: {progress}")))
                }
            }
        };
        Ok(Ask::Deed(None, work.boxed()))
    }
}
