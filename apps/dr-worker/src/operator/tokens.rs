//! `raise-token`.

use election_admin::Raised;
use serde_json::json;

use super::{
    consent::Consent,
    control::JobArguments,
    election::{Operator, asker},
    output::{self, Output},
};
use crate::{config::Sources, error::Error};

/// `raise-token`
#[derive(Debug, clap::Args)]
pub(super) struct RaiseTokenArguments {
    /// Newest token that the job's resource has seen.
    #[arg(long, value_name = "TOKEN")]
    above: u64,
    #[command(flatten)]
    jobs: JobArguments,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn raise(
    arguments: &RaiseTokenArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = raise_all(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn raise_all(operator: &Operator, arguments: &RaiseTokenArguments, how: Output) -> Result<(), Error> {
    let jobs = operator.chosen(arguments.jobs.which()).await?;
    let above = arguments.above;
    arguments.consent.ask(&format!(
        "raise the fencing tokens of {} above {above}: leaders take over again, and this can't be undone",
        jobs.join(", ")
    ))?;
    for job in jobs {
        let paths = operator.paths(&job)?;
        let raised = election_admin::raise_tokens(&operator.session, &paths, above, &asker()).await?;
        if let Output::Json = how {
            let term = if let Raised::InTerm(term) = raised { Some(term) } else { None };
            output::print_json(&json!({ "election": job, "above": above, "term": term }))?;
            continue;
        }
        match raised {
            Raised::InTerm(term) => {
                output::print(format_args!("{job}: from term {term} on every token is above {above}"))?;
            }
            Raised::InRecord => {
                output::print(format_args!("{job}: from now on every token is above {above}"))?
            }
            Raised::Already => {
                output::print(format_args!("{job}: every token is above {above} already"))?;
            }
        }
    }
    Ok(())
}
