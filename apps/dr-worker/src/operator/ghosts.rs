//! `remove-ghosts`.

use std::collections::BTreeSet;

use election_admin::{Disagreement, Ghost, Observer, Problem, compare_servers, remove_ghost};
use election_core::Paths;
use serde_json::json;
use zk_session::Session;

use super::{
    consent::Consent,
    output::{self, Output},
};
use crate::{
    commands::Operator,
    config::Sources,
    error::Error,
    view::{GhostRow, disagreement},
};

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
    let servers = operator.each_server().await;
    let result = remove_all(&operator, &servers, arguments, how).await;
    Operator::close_all(servers).await;
    operator.close().await;
    result
}

async fn remove_all(
    operator: &Operator,
    servers: &[(String, Session)],
    arguments: &RemoveGhostsArguments,
    how: Output,
) -> Result<(), Error> {
    for job in operator.jobs(arguments.job.as_deref()).await? {
        let paths = operator.paths(&job)?;
        let disagreements = compare_servers(servers, &paths).await?;
        let ghosts = find(operator, servers, &paths, &disagreements).await?;
        let mut removed = Vec::new();
        // Without a terminal to ask on they are only shown.
        let asks = !ghosts.is_empty() && how == Output::Pretty && Consent::can_ask();
        let removes = arguments.consent.yes
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
            let told: Vec<_> = disagreements.iter().map(disagreement).collect();
            let removed: Vec<_> = removed.iter().map(|ghost| &ghost.path).collect();
            output::print_json(
                &json!({ "election": job, "ghosts": rows(&ghosts), "removed": removed, "disagreements": told }),
            )?;
            continue;
        }
        for found in &disagreements {
            output::print(format_args!("{job}: {}", disagreement(found)))?;
        }
        if ghosts.is_empty() && disagreements.is_empty() {
            output::print(format_args!("{job}: no ghosts"))?;
        }
        for ghost in &ghosts {
            let outcome = match (removes, removed.contains(&ghost)) {
                (false, _) => "not removed without --yes",
                (true, true) => "removed",
                (true, false) => "already gone",
            };
            output::print(format_args!("{job}: {}: {outcome}", GhostRow::new(ghost)))?;
        }
    }
    Ok(())
}

/// The ghosts that any server shows. What a server shows that disagrees with the quorum is left to its owner: the quorum has
/// nothing to delete, or the member lives.
async fn find(
    operator: &Operator,
    servers: &[(String, Session)],
    paths: &Paths,
    disagreements: &[Disagreement],
) -> Result<Vec<Ghost>, Error> {
    let wrong: BTreeSet<_> = disagreements.iter().map(|found| &found.server).collect();
    let mut observers = Vec::new();
    for (_, session) in servers.iter().filter(|(name, _)| !wrong.contains(name)) {
        observers.push(Observer::new(session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?));
    }
    if servers.is_empty() {
        observers.push(operator.observer().await?);
    }
    let mut ghosts: Vec<Ghost> = Vec::new();
    for observer in observers {
        for problem in observer.problems(paths, &observer.snapshot(paths).await?).await? {
            if let Problem::Ghost(ghost) = problem
                && !ghosts.contains(&ghost)
            {
                ghosts.push(ghost);
            }
        }
    }
    Ok(ghosts)
}
