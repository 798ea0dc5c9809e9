//! `ack`.

use std::collections::BTreeMap;

use election_core::{
    engine::held_until,
    shell::orders::{self, Acknowledged},
};
use serde_json::json;

use super::{Output, control::JobArguments, election::Operator, output};
use crate::{config::Sources, error::Error, wall::unix_ms};

pub(super) async fn ack(arguments: &JobArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = ack_all(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn ack_all(operator: &Operator, arguments: &JobArguments, how: Output) -> Result<(), Error> {
    for job in operator.jobs(arguments.job.as_deref()).await? {
        let paths = operator.paths(&job)?;
        let acknowledged = orders::acknowledge(&operator.session, &paths).await?;
        let policy = operator.config.policy_of(&job).engine(std::time::Duration::ZERO, false);
        let held = acknowledged.as_ref().is_some_and(|a| held_until(&policy, &a.before, unix_ms()).is_some());
        match how {
            Output::Json => {
                let released = acknowledged.map(|a| a.released).unwrap_or_default();
                output::print_json(&json!({
                    "election": job,
                    "held": held,
                    "takeovers": released.takeovers,
                    "standing_order_moves": released.obeyed,
                    "failures": released.failures,
                    "site_failures": released.site_failures,
                }))?;
            }
            Output::Pretty => output::print(format_args!("{job}: {}", words(acknowledged.as_ref(), held)))?,
        }
    }
    Ok(())
}

fn words(acknowledged: Option<&Acknowledged>, held: bool) -> String {
    let Some(Acknowledged { released, .. }) = acknowledged else {
        return "nothing to acknowledge".to_owned();
    };
    let mut by_member = BTreeMap::<_, usize>::new();
    for failure in &released.failures {
        *by_member.entry(&failure.member).or_default() += 1;
    }
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let takeovers = released.takeovers.len();
    let mut forgotten = vec![format!("{takeovers} takeover{}", plural(takeovers))];
    if !released.obeyed.is_empty() {
        let moves = released.obeyed.len();
        forgotten.push(format!("{moves} move{} for standing orders", plural(moves)));
    }
    forgotten
        .extend(by_member.into_iter().map(|(member, n)| format!("{n} failure{} of {member}", plural(n))));
    let mut by_site = BTreeMap::<_, usize>::new();
    for failure in &released.site_failures {
        *by_site.entry(&failure.site).or_default() += 1;
    }
    forgotten.extend(by_site.into_iter().map(|(site, n)| format!("{n} failure{} of site {site}", plural(n))));
    let hold = if held { "the hold ends; " } else { "" };
    format!("{hold}forgotten: {}", forgotten.join(", "))
}
