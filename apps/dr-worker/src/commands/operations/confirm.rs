//! `confirm`.

use clap::{ArgGroup, Args};
use election_core::{
    config::{Confirm, SiteId},
    internals::record::{Confirmed, Control},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    commands::{
        operation::{Ask, Election, Operation, Order, Outcome, Report},
        sites::check_sites,
    },
    error::Error,
    schema::Object,
};

/// Confirm a proposed move to another site.
///
/// With policy.confirm = "cross-site" such a move waits for it.
/// The move is made when the policy allows it, for example in the next of failback_windows.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub(super) struct ConfirmMove {
    /// Site that leadership may move to.
    #[arg(value_name = "SITE", group = "what")]
    site: Option<SiteId>,
    /// Withdraw the confirmation.
    #[arg(long, group = "what")]
    off: bool,
}

/// The moves that are confirmed.
#[derive(Serialize, JsonSchema)]
pub(super) struct Confirmations {
    /// The job.
    election: String,
    #[schemars(with = "Vec<Object>")]
    confirmed: Vec<Confirmed>,
}

impl Outcome for Confirmations {
    const IS_ORDER: bool = true;
}

impl Operation for ConfirmMove {
    type Outcome = Confirmations;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Confirmations>, Error> {
        let job = of.job;
        let snapshot = of.snapshot().await?;
        check_sites(of.operator, job, &self.site, &snapshot, "").map_err(Error::Usage)?;
        let (mut confirmed, mut from) = (Vec::new(), Vec::new());
        if let Some(site) = &self.site {
            let leaders = snapshot.decided().into_iter().flat_map(|e| e.leaders().map(move |led| (e, led)));
            // A leader in that site does not move.
            for (elected, (slot, named)) in leaders.filter(|(_, (_, named))| named.site != *site) {
                let term = elected.term_of(slot);
                confirmed.push(Confirmed { term, site: site.clone(), by: of.author.by.to_owned() });
                from.push(named.member.to_string());
            }
            if confirmed.is_empty() {
                return Err(Error::NotNow(format!("{job}: no leader outside of site {site}")));
            }
        }
        let text = match &self.site {
            None => format!("{job}: no move to another site is confirmed"),
            Some(site) => format!(
                "{job}: leadership may move from {} to site {site}, until the next change of leader",
                from.join(", ")
            ),
        };
        let asks = of.operator.config.engine_of(job).confirm == Confirm::CrossSite;
        let needless = self.site.as_ref().filter(|_| !asks).map(|site| {
            format!(
                "{job}: its policy has confirm = \"never\", so no move waits for a confirmation; `switchover \
                 --to-site {site}` moves leadership now"
            )
        });
        let ordered = confirmed.clone();
        let change = move |control: &mut Control| {
            control.confirmed.clone_from(&ordered);
            Ok(())
        };
        let report = move |_: &_| Report {
            outcome: Confirmations { election: job.to_owned(), confirmed },
            text,
            notes: needless.into_iter().collect(),
        };
        Ok(Ask::Order(Order::new("confirm".to_owned(), Box::new(change), report)))
    }
}
