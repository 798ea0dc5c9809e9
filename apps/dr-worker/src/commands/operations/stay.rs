//! `stay`.

use clap::Args;
use election_core::{config::MemberId, internals::record::Control};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    commands::operation::{Ask, Election, Operation, Order, Outcome, Report},
    error::Error,
};

/// Suspend automatic moves until the next leader change.
#[derive(Debug, Args)]
pub(super) struct Stay {
    /// Withdraw the order: allow automatic moves again.
    #[arg(long)]
    off: bool,
}

/// The leaders that stay.
#[derive(Serialize, JsonSchema)]
pub(super) struct Staying {
    /// The job.
    election: String,
    #[schemars(with = "Vec<String>")]
    members: Vec<MemberId>,
    /// Their terms.
    terms: Vec<u64>,
}

impl Outcome for Staying {
    const IS_ORDER: bool = true;
}

impl Operation for Stay {
    type Outcome = Staying;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Staying>, Error> {
        let snapshot = of.snapshot().await?;
        let elected = snapshot.decided().filter(|_| !self.off);
        let leaders = elected.into_iter().flat_map(|e| e.leaders().map(|(slot, n)| (e.term_of(slot), n)));
        let (mut terms, members): (Vec<_>, Vec<_>) =
            leaders.map(|(term, named)| (term, named.member.clone())).unzip();
        if members.is_empty() && !self.off {
            return Err(Error::NotNow(format!("{}: no leader is elected, so none can stay", of.job)));
        }
        terms.sort_unstable();
        terms.dedup();
        let staying = terms.clone();
        let change = move |control: &mut Control| {
            control.stay.clone_from(&staying);
            Ok(())
        };
        let text = match members.as_slice() {
            [] => "automatic moves are allowed again".to_owned(),
            [one] => format!("{one} stays until the next change of leader"),
            several => {
                let several: Vec<_> = several.iter().map(|member| member.as_str()).collect();
                format!("{} stay until the next change of leader", several.join(", "))
            }
        };
        let report = move |_: &_| {
            Report::new(
                Staying { election: of.job.to_owned(), members, terms },
                format!("{}: {text}", of.job),
            )
        };
        Ok(Ask::Order(Order::new("stay".to_owned(), Box::new(change), report)))
    }
}
