//! `prefer`.

use clap::{ArgGroup, Args};
use election_core::{config::SiteId, internals::record::Control};
use strategies::AutoMoves;

use crate::{
    commands::{
        operation::{Ask, Election, Operation, Order},
        sites::check_sites,
        standing::StandingOrders,
    },
    error::Error,
    typed::Typed,
};

/// Override the configured order of sites.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub(super) struct Prefer {
    /// Site that goes before all others.
    #[arg(value_name = "SITE", group = "what")]
    site: Option<SiteId>,
    /// All sites, the most preferred first.
    #[arg(long, value_name = "SITE,SITE..", value_delimiter = ',', group = "what")]
    order: Vec<SiteId>,
    /// Restore the configured order.
    #[arg(long, group = "what")]
    off: bool,
    /// Accept sites without configuration and members.
    #[arg(long, conflicts_with = "off")]
    unknown: bool,
}

impl Operation for Prefer {
    type Outcome = StandingOrders;

    fn check(&self) -> Result<(), Error> {
        let order = &self.order;
        match order.iter().enumerate().find(|(at, site)| order[..*at].contains(site)) {
            Some((_, twice)) => {
                Err(Error::Usage(format!("--order: {twice} appears twice; name each site once")))
            }
            None => Ok(()),
        }
    }

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        let Self { site, order, off: _, unknown } = self;
        if !unknown {
            let (sites, snapshot) = (site.iter().chain(order), of.snapshot().await?);
            check_sites(of.operator, of.job, sites, &snapshot, " (--unknown to override)")
                .map_err(Error::Usage)?;
        }
        // A preferred site keeps the order of the others; a new order replaces both.
        let change = move |control: &mut Control| {
            control.preferred_site.clone_from(site);
            if site.is_none() {
                control.site_order.clone_from(order);
            }
            Ok(())
        };
        let given = StandingOrders::order(of, "prefer".to_owned(), Box::new(change));
        let auto_moves = of.operator.config.policy_of(of.job).who.site_policy.auto_moves;
        let note = (auto_moves != AutoMoves::All).then(|| {
            format!(
                "{}: auto_moves is \"{auto_moves}\": leadership stays in its site until it is lost or moved by `{}`",
                of.job,
                Typed::verb("switchover").job(of.job)
            )
        });
        let report = given.report;
        Ok(Ask::Order(Order {
            report: Box::new(move |ordered| {
                let mut report = report(ordered);
                report.notes.extend(note.filter(|_| ordered.is_news()));
                report
            }),
            ..given
        }))
    }
}
