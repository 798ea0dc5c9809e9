//! `ack`.

use std::collections::BTreeMap;

use election_admin::{
    Forgotten, forget_breadcrumbs,
    orders::{self, Acknowledged},
};
use election_core::internals::explain::held_until;
use serde_json::json;

use super::{
    consent::Consent,
    control::JobArguments,
    election::Operator,
    output::{self, Output},
};
use crate::{config::Sources, error::Error, wall::unix_ms};

/// `ack`
#[derive(Debug, clap::Args)]
pub(super) struct AckArguments {
    /// Lift the hold [default].
    #[arg(long)]
    hold: bool,
    /// Clear the failures of members.
    #[arg(long)]
    failures: bool,
    /// Clear the failures of sites.
    ///
    /// Leadership may go back there at once.
    #[arg(long)]
    sites: bool,
    /// Confirm that former leaders are off, and lift the hold.
    ///
    /// They are not fenced then: the next leader starts the job at once. If one of them still runs it, it runs twice.
    #[arg(long)]
    fenced: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    jobs: JobArguments,
}

impl AckArguments {
    const fn forgotten(&self) -> Forgotten {
        match *self {
            Self { hold: false, failures: false, sites: false, .. } => Forgotten::HOLD,
            Self { hold, failures, sites, .. } => Forgotten { hold, failures, sites },
        }
    }
}

pub(super) async fn ack(arguments: &AckArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    if arguments.fenced {
        let what =
            "confirm that all former leaders are off; if one of them still runs the job, it runs twice";
        arguments.consent.ask(what)?;
    }
    let operator = Operator::connect(sources).await?;
    let result = ack_all(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn ack_all(operator: &Operator, arguments: &AckArguments, how: Output) -> Result<(), Error> {
    for job in operator.governed(arguments.jobs.which()).await? {
        let paths = operator.paths(&job)?;
        let fenced = match arguments.fenced {
            true => forget_breadcrumbs(&operator.session, &paths).await?,
            false => Vec::new(),
        };
        let names: Vec<_> = fenced.iter().map(|left| left.member.as_str()).collect();
        let acknowledged = orders::acknowledge(&operator.session, &paths, arguments.forgotten()).await?;
        let policy = operator.config.policy_of(&job).engine(std::time::Duration::ZERO, false);
        let ends = |a: &Acknowledged| {
            arguments.forgotten().hold && held_until(&policy, &a.before, unix_ms()).is_some()
        };
        let held = acknowledged.as_ref().is_some_and(ends);
        match how {
            Output::Json => {
                let released = acknowledged.map(|a| a.released).unwrap_or_default();
                output::print_json(&json!({
                    "election": job,
                    "held": held,
                    "takeovers": released.takeovers,
                    "standing_order_moves": released.obeyed,
                    "pauses": released.pauses,
                    "failures": released.failures,
                    "site_failures": released.site_failures,
                    "losses": released.losses,
                    "fenced": names,
                }))?;
            }
            Output::Pretty => {
                let fenced = match names.as_slice() {
                    [] if arguments.fenced => "no former leader was to be fenced; ".to_owned(),
                    [] => String::new(),
                    names => format!("confirmed as off, so not fenced: {}; ", names.join(", ")),
                };
                output::print(format_args!("{job}: {fenced}{}", summary(acknowledged.as_ref(), held)))?;
            }
        }
    }
    Ok(())
}

fn summary(acknowledged: Option<&Acknowledged>, held: bool) -> String {
    let Some(Acknowledged { released, after, .. }) = acknowledged else {
        return "nothing to acknowledge".to_owned();
    };
    let mut by_member = BTreeMap::<_, usize>::new();
    for failure in &released.failures {
        *by_member.entry(&failure.member).or_default() += 1;
    }
    let mut by_site = BTreeMap::<_, usize>::new();
    for failure in &released.site_failures {
        *by_site.entry(&failure.site).or_default() += 1;
    }
    let count = |number: usize, what: &str, of: String| match number {
        0 => None,
        1 => Some(format!("1 {what}{of}")),
        _ => Some(format!("{number} {what}s{of}")),
    };
    let hold = [
        count(released.takeovers.len(), "takeover", String::new()),
        count(released.pauses.len(), "failure", " of the job".to_owned()),
        count(released.obeyed.len(), "move", " for standing orders".to_owned()),
    ];
    let members = by_member.into_iter().map(|(member, n)| count(n, "failure", format!(" of {member}")));
    let sites = by_site.into_iter().map(|(site, n)| count(n, "failure", format!(" of site {site}")));
    let losses = released.losses.iter();
    let losses = losses.map(|(site, times)| count(times.len(), "lost leader", format!(" of site {site}")));
    let forgotten: Vec<_> = hold.into_iter().chain(members).chain(sites).chain(losses).flatten().collect();
    let ends = if held { "the hold ends; " } else { "" };
    let kept = [
        (!after.failures.is_empty()).then_some("failures of members (--failures)"),
        (!after.site_failures.is_empty() || !after.losses.is_empty())
            .then_some("failures of sites (--sites)"),
    ];
    let kept: Vec<_> = kept.into_iter().flatten().collect();
    let kept =
        if kept.is_empty() { String::new() } else { format!("; remembered still: {}", kept.join(", ")) };
    format!("{ends}forgotten: {}{kept}", forgotten.join(", "))
}
