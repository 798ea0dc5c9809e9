//! `raise-token`.

use clap::Args;
use election_admin::Raised;
use futures_util::future::FutureExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    commands::operation::{Ask, Election, Operation, Outcome, Question, Report},
    error::Error,
};

/// Raise all future fencing tokens above a value.
///
/// After a restore of the ensemble. Tokens are made from transaction ids, which go back when the ensemble is restored
/// from a copy.
#[derive(Debug, Args)]
pub(super) struct RaiseToken {
    /// Newest token that the job's resource has seen.
    #[arg(long, value_name = "TOKEN")]
    above: u64,
}

/// From when on tokens are higher.
#[derive(Serialize, JsonSchema)]
pub(super) struct RaisedToken {
    /// The job.
    election: String,
    above: u64,
    /// The first term that has them; null if there is none, or they were higher already.
    term: Option<u64>,
}

impl Outcome for RaisedToken {}

impl Operation for RaiseToken {
    type Outcome = RaisedToken;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, RaisedToken>, Error> {
        let (job, above) = (of.job, self.above);
        let what = format!(
            "raise the fencing tokens of {job} above {above}: leaders take over again, and this can't be undone"
        );
        let work = async move {
            let raised =
                election_admin::raise_tokens(&of.operator.session, &of.paths, above, of.author.by).await?;
            let (term, text) = match raised {
                Raised::InTerm(term) => {
                    (Some(term), format!("from term {term} on every token is above {above}"))
                }
                Raised::InRecord => (None, format!("from now on every token is above {above}")),
                Raised::Already => (None, format!("every token is above {above} already")),
            };
            Ok(Report::new(RaisedToken { election: job.to_owned(), above, term }, format!("{job}: {text}")))
        };
        Ok(Ask::Deed(Some(Question { what, needs_yes: false }), work.boxed()))
    }
}
