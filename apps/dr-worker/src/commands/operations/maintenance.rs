//! `maintenance`.

use clap::Args;
use election_core::{
    config::MemberId,
    internals::{
        record::{Control, Maintenance, OrderedBy},
        text::Text,
    },
};

use crate::{
    commands::{
        operation::{Ask, Election, Jobs, MOVE, Operation, Takes, UnknownName},
        standing::StandingOrders,
    },
    error::Error,
    wall::unix_ms,
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
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    /// Accept a member that takes part in no job.
    #[arg(long)]
    unknown: bool,
}

impl Operation for Service {
    const VERB: &'static str = "maintenance";
    const HEADING: &'static str = MOVE;
    const TAKES: Takes = Takes { jobs: Jobs::OfMember, ..Takes::ORDER };
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        let Self { member, off, reason, unknown } = self;
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
        let by = of.by.to_owned();
        let ordered = OrderedBy { reason: reason.clone().map(Text::into_string), by, at_ms: unix_ms() };
        let order = Maintenance { member: member.clone(), site, ordered };
        let change = move |control: &mut Control| {
            if *off {
                control.maintenance.retain(|known| known.member != *member);
            } else if control.serviced(member).is_none() {
                // The first operator and reason are kept.
                control.maintenance.push(order.clone());
            }
        };
        Ok(StandingOrders::ask(of, format!("maintenance {member}"), reason, change))
    }
}
