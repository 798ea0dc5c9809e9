//! `stay`.

use election_admin::orders;
use election_core::internals::record::Control;
use serde_json::json;

use super::{
    control::OrderArguments,
    election::{Operator, asker},
    output::{self, Output},
};
use crate::{config::Sources, error::Error};

/// `stay`
#[derive(Debug, clap::Args)]
pub(super) struct StayArguments {
    #[command(flatten)]
    order: OrderArguments,
    /// Withdraw the order: allow automatic moves again.
    #[arg(long)]
    off: bool,
}

pub(super) async fn stay(arguments: &StayArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = stay_all(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn stay_all(operator: &Operator, arguments: &StayArguments, how: Output) -> Result<(), Error> {
    for job in operator.governed(arguments.order.jobs.which()).await? {
        let paths = operator.paths(&job)?;
        let snapshot = operator.observer().await?.snapshot(&paths).await?;
        let elected = snapshot.decided().filter(|_| !arguments.off);
        let leaders: Vec<_> =
            elected.into_iter().flat_map(|e| e.leaders().map(|(slot, n)| (e.term_of(slot), n))).collect();
        if leaders.is_empty() && !arguments.off {
            return Err(Error::NotNow(format!("{job}: no leader is elected, so none can stay")));
        }
        let mut terms: Vec<_> = leaders.iter().map(|(term, _)| *term).collect();
        terms.sort_unstable();
        terms.dedup();
        let reason = arguments.order.reason.as_deref();
        let stay = |control: &mut Control| control.stay.clone_from(&terms);
        orders::order(&operator.session, &paths, &asker(), reason, stay).await?;
        arguments.order.awaiting.until_obeyed(operator, &job).await?;
        let members: Vec<_> = leaders.iter().map(|(_, named)| named.member.to_string()).collect();
        match how {
            Output::Json => {
                output::print_json(&json!({ "election": job, "members": members, "terms": terms }))?
            }
            Output::Pretty if arguments.off => {
                output::print(format_args!("{job}: automatic moves are allowed again"))?;
            }
            Output::Pretty => {
                output::print(format_args!("{job}: {} until the next change of leader", stays(&members)))?;
            }
        }
    }
    Ok(())
}

fn stays(members: &[String]) -> String {
    match members {
        [one] => format!("{one} stays"),
        several => format!("{} stay", several.join(", ")),
    }
}
