//! `remove-ghosts`.

use election_core::operator::{Ghost, Problem, remove_ghost};
use serde_json::json;

use super::{
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
    /// Remove them.
    #[arg(long)]
    yes: bool,
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
        for ghost in &ghosts {
            if arguments.yes && remove_ghost(&operator.session, &paths, ghost).await? {
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
            let outcome = match (arguments.yes, removed.contains(&ghost)) {
                (false, _) => "not removed without --yes",
                (true, true) => "removed",
                (true, false) => "it has gone by itself",
            };
            output::print(format_args!("{job}: {}: {outcome}", GhostRow::new(ghost)))?;
        }
    }
    Ok(())
}
