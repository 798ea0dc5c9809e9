//! `forget`.

use election_admin::{AdminError, forget};
use serde_json::json;

use super::{
    consent::Consent,
    output::{self, Output},
};
use crate::{advice, commands::Operator, config::Sources, error::Error, znodes};

/// `forget`
#[derive(Debug, clap::Args)]
pub(super) struct ForgetArguments {
    /// Job.
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn run(arguments: &ForgetArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Operator::with(sources, async |operator| remove(operator, arguments, how).await).await
}

async fn remove(operator: &Operator, arguments: &ForgetArguments, how: Output) -> Result<(), Error> {
    let ForgetArguments { job, consent } = arguments;
    let paths = operator.paths(job)?;
    let snapshot = operator.observer().await?.snapshot(&paths).await?;
    let refused = |error: AdminError| match error {
        AdminError::NotNow(why) => Error::NotNow(format!("{job} can't be forgotten: {}", advice::on(&why))),
        other => other.into(),
    };
    forget::check(&paths, &snapshot).map_err(|why| refused(why.into()))?;
    let base = match snapshot.token_base() {
        0 => String::new(),
        base => format!(", and the base {base} of its fencing tokens"),
    };
    consent.require(&format!(
        "{job}: remove its znodes, with its history, overlays and reports of drills{base}"
    ))?;
    let removed = forget::remove(&operator.session, &paths, &znodes::PARTS).await.map_err(refused)?;
    match how {
        Output::Json => output::print_json(&json!({ "election": job, "removed": removed })),
        Output::Pretty => output::print(format_args!("{job} is forgotten: {removed} znodes removed")),
    }
}
