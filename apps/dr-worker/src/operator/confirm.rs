//! `confirm`.

use election_admin::orders;
use election_core::{
    config::{Confirm, SiteId},
    internals::record::{Confirmed, Control},
};
use serde_json::json;

use super::{
    control::OrderArguments,
    election::{Operator, asker},
    output::{self, Output},
};
use crate::{commands::check_sites, config::Sources, error::Error};

/// `confirm`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct ConfirmArguments {
    /// Site that leadership may move to.
    #[arg(value_name = "SITE", group = "what")]
    site: Option<SiteId>,
    /// Withdraw the confirmation.
    #[arg(long, group = "what")]
    off: bool,
    #[command(flatten)]
    order: OrderArguments,
}

pub(super) async fn confirm(
    arguments: &ConfirmArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = confirm_all(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn confirm_all(operator: &Operator, arguments: &ConfirmArguments, how: Output) -> Result<(), Error> {
    for job in operator.governed(arguments.order.jobs.which()).await? {
        let paths = operator.paths(&job)?;
        let snapshot = operator.observer().await?.snapshot(&paths).await?;
        check_sites(operator, &job, &arguments.site, &snapshot, "").map_err(Error::Usage)?;
        let asks = operator.config.engine_of(&job).confirm == Confirm::CrossSite;
        // A leader in that site does not move.
        let elsewhere = |site: &SiteId| -> Vec<(u64, String)> {
            let leaders = snapshot.decided().into_iter().flat_map(|e| e.leaders().map(move |led| (e, led)));
            let leaders = leaders.filter(|(_, (_, named))| named.site != *site);
            leaders.map(|(e, (slot, named))| (e.term_of(slot), named.member.to_string())).collect()
        };
        let leaders = arguments.site.as_ref().map_or_else(Vec::new, elsewhere);
        if let (Some(site), true) = (&arguments.site, leaders.is_empty()) {
            let why = format!("{job}: no leader outside of site {site}");
            return Err(Error::NotNow(why));
        }
        let by = asker();
        let confirmed = leaders
            .iter()
            .zip(arguments.site.iter().cycle())
            .map(|((term, _), site)| Confirmed { term: *term, site: site.clone(), by: by.clone() });
        let confirmed: Vec<_> = confirmed.collect();
        let reason = arguments.order.reason.as_deref();
        let confirm = |control: &mut Control| control.confirmed.clone_from(&confirmed);
        orders::order(&operator.session, &paths, &by, reason, confirm).await?;
        arguments.order.awaiting.until_obeyed(operator, &job).await?;
        match (how, &arguments.site) {
            (Output::Json, _) => {
                output::print_json(&json!({ "election": job, "confirmed": confirmed }))?;
            }
            (Output::Pretty, None) => {
                output::print(format_args!("{job}: no move to another site is confirmed"))?;
            }
            (Output::Pretty, Some(site)) => {
                let from: Vec<_> = leaders.iter().map(|(_, member)| member.as_str()).collect();
                output::print(format_args!(
                    "{job}: leadership may move from {} to site {site}, until the next change of leader",
                    from.join(", ")
                ))?;
                if !asks {
                    output::print_progress(format_args!(
                        "{job}: its policy has confirm = \"never\", so no move waits for it; `switchover --to-site \
                         {site}` moves leadership now"
                    ));
                }
            }
        }
    }
    Ok(())
}
