//! `ack`.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use election_admin::{
    Forgotten, Layout, forget_breadcrumbs,
    orders::{self, Acknowledged},
    record::Breadcrumb,
};
use election_core::{
    config::{MemberId, SiteId},
    internals::{
        explain::held_until,
        record::{MemberFailure, SiteFailure},
    },
};
use futures_util::future::FutureExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    commands::operation::{Ask, Election, Operation, Outcome, Question, Report},
    error::Error,
    schema::Object,
    wall::unix_ms,
};

/// Acknowledge failures: lift the hold of an election.
///
/// By option, clear the failure history.
#[derive(Debug, Args)]
pub(super) struct Ack {
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
}

impl Ack {
    const fn forgotten(&self) -> Forgotten {
        match *self {
            Self { hold: false, failures: false, sites: false, .. } => Forgotten::HOLD,
            Self { hold, failures, sites, fenced } => Forgotten { hold: hold || fenced, failures, sites },
        }
    }
}

/// What was forgotten.
#[derive(Serialize, JsonSchema)]
pub(super) struct Acknowledgement {
    /// The job.
    election: String,
    /// Whether a hold has ended.
    held: bool,
    takeovers: Vec<u64>,
    standing_order_moves: Vec<u64>,
    pauses: Vec<u64>,
    #[schemars(with = "Vec<Object>")]
    failures: Vec<MemberFailure>,
    #[schemars(with = "Vec<Object>")]
    site_failures: Vec<SiteFailure>,
    #[schemars(with = "Object")]
    losses: BTreeMap<SiteId, Vec<u64>>,
    /// The former leaders that are confirmed as off.
    #[schemars(with = "Vec<String>")]
    fenced: Vec<MemberId>,
}

impl Outcome for Acknowledgement {}

impl Operation for Ack {
    type Outcome = Acknowledgement;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Acknowledgement>, Error> {
        let snapshot = of.snapshot().await?;
        let is_known = snapshot.unreadable.iter().all(|error| error.path != of.paths.breadcrumbs());
        let former = is_known.then(|| snapshot.former().cloned().collect());
        let what = self.question(of.job, former.as_deref());
        let question = what.map(|what| Question { what, needs_yes: false });
        Ok(Ask::Deed(question, self.acknowledge(of, snapshot.layout, former).boxed()))
    }
}

fn names(former: &[Breadcrumb]) -> String {
    former.iter().map(|left| left.member.as_str()).collect::<Vec<_>>().join(", ")
}

impl Ack {
    /// `former` is `None` if their record can't be read.
    fn question(&self, job: &str, former: Option<&[Breadcrumb]>) -> Option<String> {
        let who = match former {
            None => "all former leaders, whose record can't be read,".to_owned(),
            Some(former) => names(former),
        };
        let asks = self.fenced && !who.is_empty();
        asks.then(|| {
            format!("{job}: confirm that {who} are off; if one of them still runs the job, it runs twice")
        })
    }

    async fn acknowledge(
        &self,
        of: &Election<'_>,
        layout: Layout,
        former: Option<Vec<Breadcrumb>>,
    ) -> Result<Report<Acknowledgement>, Error> {
        let (job, session) = (of.job, &of.operator.session);
        let left = match self.fenced {
            true => forget_breadcrumbs(session, &of.paths, former.as_deref()).await?,
            false => Vec::new(),
        };
        // Only an elector remembers failures.
        let acknowledged = match layout {
            Layout::Elector => orders::acknowledge(session, &of.paths, self.forgotten()).await?,
            _ => None,
        };
        let policy = of.operator.config.policy_of(job).engine(Duration::ZERO, false);
        let ends =
            |a: &Acknowledged| self.forgotten().hold && held_until(&policy, &a.before, unix_ms()).is_some();
        let held = acknowledged.as_ref().is_some_and(ends);
        let off = match names(&left) {
            none if none.is_empty() && self.fenced => "no former leader needed fencing; ".to_owned(),
            none if none.is_empty() => none,
            names => format!("confirmed as off, so not fenced: {names}; "),
        };
        let text = format!("{job}: {off}{}", summary(acknowledged.as_ref(), held));
        let released = acknowledged.map(|a| a.released).unwrap_or_default();
        let outcome = Acknowledgement {
            election: job.to_owned(),
            held,
            takeovers: released.takeovers,
            standing_order_moves: released.obeyed,
            pauses: released.pauses,
            failures: released.failures,
            site_failures: released.site_failures,
            losses: released.losses,
            fenced: left.into_iter().map(|left| left.member).collect(),
        };
        Ok(Report::new(outcome, text))
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FENCED: Ack = Ack { hold: false, failures: false, sites: false, fenced: true };

    #[test]
    fn who_is_fenced_by_hand_is_named_and_the_hold_ends() {
        assert!(FENCED.forgotten().hold && Ack { failures: true, ..FENCED }.forgotten().hold);
        assert!(!Ack { failures: true, fenced: false, ..FENCED }.forgotten().hold);
        let left = |member: &str| -> Breadcrumb {
            serde_json::from_value(json!({
                "member": member, "site": "west", "term": 1, "fencing_token": 7, "since_ms": 1,
            }))
            .unwrap()
        };
        let both = [left("west-1"), left("west-2")];
        let asked = FENCED.question("orders", Some(&both)).unwrap();
        assert!(asked.starts_with("orders: confirm that west-1, west-2 are off;"), "{asked}");
        assert!(FENCED.question("orders", None).unwrap().contains("can't be read"));
        assert_eq!(FENCED.question("orders", Some(&[])), None);
        assert_eq!(Ack { fenced: false, ..FENCED }.question("orders", Some(&both)), None);
    }
}
