//! `remove-ghosts`.

use election_core::operator::{Ghost, Problem, remove_ghost};
use serde_json::json;

use super::{
    consent::Consent,
    election::Operator,
    output::{self, Output},
};
use crate::{config::Sources, error::Error, view::GhostRow};

/// `remove-ghosts`
#[derive(Debug, clap::Args)]
pub(super) struct RemoveGhostsArguments {
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn remove(
    arguments: &RemoveGhostsArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = remove_all(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn remove_all(
    operator: &Operator,
    arguments: &RemoveGhostsArguments,
    how: Output,
) -> Result<(), Error> {
    for job in operator.jobs(arguments.job.as_deref()).await? {
        let paths = operator.paths(&job)?;
        let observer = operator.observer().await?;
        let problems = observer.problems(&paths, &observer.snapshot(&paths).await?).await?;
        let ghosts = problems.into_iter().filter_map(|problem| match problem {
            Problem::Ghost(ghost) => Some(ghost),
            _ => None,
        });
        let ghosts: Vec<_> = ghosts.collect();
        let mut removed = Vec::new();
        // Without a terminal to ask on they are only shown.
        let asks = !ghosts.is_empty() && how == Output::Pretty && Consent::can_ask();
        let removes = arguments.consent.is_given()
            || asks && {
                ghosts.iter().for_each(|ghost| {
                    output::print_progress(format_args!("{job}: {}", GhostRow::new(ghost)))
                });
                arguments.consent.ask("remove these znodes, which no living member owns").is_ok()
            };
        for ghost in &ghosts {
            if removes && remove_ghost(&operator.session, &paths, ghost).await? {
                removed.push(ghost);
            }
        }
        let rows = |ghosts: &[Ghost]| ghosts.iter().map(GhostRow::new).collect::<Vec<_>>();
        if how == Output::Json {
            let removed: Vec<_> = removed.iter().map(|ghost| &ghost.path).collect();
            output::print_json(&json!({ "election": job, "ghosts": rows(&ghosts), "removed": removed }))?;
            continue;
        }
        if ghosts.is_empty() {
            output::print(format_args!("{job}: no ghosts"))?;
        }
        for ghost in &ghosts {
            let outcome = match (removes, removed.contains(&ghost)) {
                (false, _) => "not removed without --yes",
                (true, true) => "removed",
                (true, false) => "it has gone by itself",
            };
            output::print(format_args!("{job}: {}: {outcome}", GhostRow::new(ghost)))?;
        }
    }
    Ok(())
}
