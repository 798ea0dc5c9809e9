//! `maintenance`.

use clap::Args;
use election_core::{
    config::MemberId,
    internals::record::{Control, Maintenance},
};

use crate::{
    commands::{
        operation::{Ask, Election, Operation, UnknownName},
        standing::StandingOrders,
    },
    error::Error,
};

/// Move a member's jobs away, and do not elect it.
///
/// The jobs of a member in maintenance move to other members. To leave jobs where they run, use `pause`.
#[derive(Debug, Args)]
pub(super) struct Service {
    /// Member.
    #[arg(value_name = "MEMBER")]
    member: MemberId,
    /// Withdraw the order: the member is a candidate again.
    #[arg(long)]
    off: bool,
    /// Accept a member that takes part in no job.
    #[arg(long)]
    unknown: bool,
}

impl Operation for Service {
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        let Self { member, off, unknown } = self;
        let snapshot = of.snapshot().await?;
        let present = snapshot.members.iter().find(|m| m.member == *member).map(|m| &m.site);
        let absent = || snapshot.absent.iter().find(|absent| absent.member == *member).map(|a| &a.site);
        let site = present.or_else(absent).cloned();
        if site.is_none() && snapshot.control.serviced(member).is_none() && !unknown {
            let why = format!(
                "unknown member {member}: it takes part in no job (--unknown to override); members: "
            );
            let known = snapshot.members.iter().map(|m| m.member.to_string()).collect();
            return Ok(Ask::Unknown(UnknownName { why, known }));
        }
        let order = Maintenance { member: member.clone(), site, ordered: of.author.ordered_now() };
        let change = move |control: &mut Control| {
            if *off {
                control.maintenance.retain(|known| known.member != *member);
            } else if control.serviced(member).is_none() {
                // The first operator and reason are kept.
                control.maintenance.push(order.clone());
            }
        };
        Ok(StandingOrders::ask(of, format!("maintenance {member}"), change))
    }
}
