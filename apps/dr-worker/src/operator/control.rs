//! Standing orders: `drain`, `fail-site`, `maintenance`, `prefer`, `mode`, `pause`, `resume`.

use std::collections::BTreeSet;

use clap::ValueEnum;
use election_admin::{
    Snapshot,
    orders::{self, Ordered},
};
use election_core::{
    config::{MemberId, SiteId},
    internals::{
        record::{Control, FailedSite, Maintenance, MemberRecord, Mode, OrderedBy},
        text::Text,
    },
};
use strategies::AutoMoves;

use super::{
    consent::Consent,
    dry_run::{self, DryRun},
    election::{Operator, asker},
    list::describe_orders,
    obeyed::Awaiting,
    output::{self, Output},
};
use crate::{
    commands::{
        Which, check_sites,
        standing::{self, end_pause, set_paused},
    },
    config::Sources,
    error::Error,
    typed::Typed,
    wall::unix_ms,
};

/// The jobs of a verb that can move or stop a job.
#[derive(Debug, clap::Args)]
pub(super) struct JobArguments {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB", conflicts_with = "all")]
    job: Option<String>,
    /// All jobs.
    #[arg(long)]
    all: bool,
}

impl JobArguments {
    pub(super) fn which(&self) -> Which<'_> {
        match &self.job {
            Some(job) => Which::Named(job),
            None if self.all => Which::All,
            None => Which::Only,
        }
    }
}

/// The arguments of every standing order.
#[derive(Debug, clap::Args)]
pub(super) struct OrderArguments {
    #[command(flatten)]
    pub(super) jobs: JobArguments,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<Text>,
    #[command(flatten)]
    pub(super) awaiting: Awaiting,
}

/// `drain` and `fail-site`
#[derive(Debug, clap::Args)]
pub(super) struct SiteArguments {
    /// Site.
    #[arg(value_name = "SITE")]
    site: SiteId,
    /// Withdraw the order.
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    order: OrderArguments,
    /// Accept an unknown site.
    ///
    /// One that is not configured and has no member.
    #[arg(long)]
    unknown: bool,
    #[command(flatten)]
    try_only: DryRun,
    #[command(flatten)]
    consent: Consent,
}

/// `prefer`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct PreferArguments {
    /// Site that goes before all others.
    #[arg(value_name = "SITE", group = "what")]
    site: Option<SiteId>,
    /// All sites, the most preferred first.
    #[arg(long, value_name = "SITE,SITE..", value_delimiter = ',', group = "what")]
    order: Vec<SiteId>,
    /// Restore the configured order.
    #[arg(long, group = "what")]
    off: bool,
    #[command(flatten)]
    order_arguments: OrderArguments,
    /// Accept sites without configuration and members.
    #[arg(long, conflicts_with = "off")]
    unknown: bool,
    #[command(flatten)]
    try_only: DryRun,
}

/// `mode`
#[derive(Debug, clap::Args)]
pub(super) struct ModeArguments {
    /// Mode.
    #[arg(value_enum)]
    mode: Word,
    #[command(flatten)]
    order: OrderArguments,
    #[command(flatten)]
    try_only: DryRun,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    /// The elector decides.
    Auto,
    /// Only requests of operators are carried out.
    Manual,
    /// Nothing is carried out; decisions are only explained.
    Observe,
}

impl From<Word> for Mode {
    fn from(word: Word) -> Self {
        match word {
            Word::Auto => Self::Auto,
            Word::Manual => Self::Manual,
            Word::Observe => Self::Observe,
        }
    }
}

/// `maintenance`
#[derive(Debug, clap::Args)]
pub(super) struct MaintenanceArguments {
    /// Member.
    #[arg(value_name = "MEMBER")]
    member: MemberId,
    /// Withdraw the order: the member is a candidate again.
    #[arg(long)]
    off: bool,
    /// Job [default: all jobs of the member].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    #[command(flatten)]
    awaiting: Awaiting,
    /// Accept a member that takes part in no job.
    #[arg(long)]
    unknown: bool,
}

pub(super) async fn maintenance(
    arguments: &MaintenanceArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = service(&operator, arguments, how).await;
    operator.close().await;
    result
}

/// Gives the order in each job that the member takes part in, or has the order of.
async fn service(operator: &Operator, arguments: &MaintenanceArguments, how: Output) -> Result<(), Error> {
    let MaintenanceArguments { member, off, job, reason, awaiting, unknown } = arguments;
    let (mut known, mut members) = (Vec::new(), BTreeSet::new());
    for job in operator.governed(job.as_deref().map_or(Which::All, Which::Named)).await? {
        let snapshot = operator.observer().await?.snapshot(&operator.paths(&job)?).await?;
        let present = snapshot.members.iter().find(|m| m.member == *member).map(|m| &m.site);
        let absent = || snapshot.absent.iter().find(|absent| absent.member == *member).map(|a| &a.site);
        let site = present.or_else(absent);
        if site.is_some() || snapshot.control.serviced(member).is_some() || *unknown {
            known.push((job, site.cloned()));
        }
        members.extend(snapshot.members.into_iter().map(|m| m.member));
    }
    if known.is_empty() {
        let members: Vec<_> = members.iter().map(|member| member.as_str()).collect();
        let members = if members.is_empty() { "none".to_owned() } else { members.join(", ") };
        return Err(Error::Usage(format!(
            "unknown member {member}: it takes part in no job (--unknown to override); members: {members}"
        )));
    }
    for (job, site) in &known {
        let order = Maintenance {
            member: member.clone(),
            site: site.clone(),
            ordered: OrderedBy {
                reason: reason.clone().map(Text::into_string),
                by: asker(),
                at_ms: unix_ms(),
            },
        };
        let change = |control: &mut Control| {
            if *off {
                control.maintenance.retain(|known| known.member != *member);
            } else if control.serviced(member).is_none() {
                // The first operator and reason are kept.
                control.maintenance.push(order.clone());
            }
        };
        let paths = operator.paths(job)?;
        let ordered = orders::order(&operator.session, &paths, &asker(), reason.as_deref(), change).await?;
        report(job, &ordered, how)?;
    }
    for (job, _) in &known {
        awaiting.until_obeyed(operator, job).await?;
    }
    Ok(())
}

pub(super) async fn drain(arguments: &SiteArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let SiteArguments { site, off, .. } = arguments;
    arguments
        .order("drain", false)
        .give(sources, how, |control| {
            if *off {
                control.drained.retain(|drained| drained != site);
            } else if !control.drained.contains(site) {
                control.drained.push(site.clone());
            }
        })
        .await
}

pub(super) async fn fail_site(
    arguments: &SiteArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let SiteArguments { site, off, order, .. } = arguments;
    let failed = FailedSite {
        site: site.clone(),
        ordered: OrderedBy {
            reason: order.reason.clone().map(Text::into_string),
            by: asker(),
            at_ms: unix_ms(),
        },
    };
    arguments
        .order("fail-site", true)
        .give(sources, how, |control| {
            if *off {
                control.failed_sites.retain(|failed| failed.site != *site);
            } else if control.failed_sites.iter().all(|known| known.site != *site) {
                // The first operator and reason are kept.
                control.failed_sites.push(failed.clone());
            }
        })
        .await
}

impl SiteArguments {
    /// `fails`: whether the order marks the site as failed; withdrawn, it overrules the members that report it.
    fn order(&self, verb: &str, fails: bool) -> Order<'_> {
        let Self { site, off, order, unknown, try_only, consent } = self;
        let what = if *off { format!("{verb} {site} --off") } else { format!("{verb} {site}") };
        Order {
            sites: known(*unknown, [site]),
            tries: try_only.dry_run,
            danger: (!off).then_some(Danger { consent: *consent, fails, site }),
            overrules: Some(site).filter(|_| fails && *off),
            ..Order::of(&what, order)
        }
    }
}

pub(super) async fn prefer(arguments: &PreferArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let PreferArguments { site, order, off: _, order_arguments, unknown, try_only } = arguments;
    if let Some(twice) = order.iter().enumerate().find(|(at, site)| order[..*at].contains(site)) {
        return Err(Error::Usage(format!("--order: {} appears twice; name each site once", twice.1)));
    }
    let sites = known(*unknown, site.iter().chain(order));
    // A preferred site keeps the order of the others; a new order replaces both.
    let change = |control: &mut Control| match site {
        Some(site) => control.preferred_site = Some(site.clone()),
        None => {
            control.preferred_site = None;
            control.site_order.clone_from(order);
        }
    };
    Order { sites, prefers: true, tries: try_only.dry_run, ..Order::of("prefer", order_arguments) }
        .give(sources, how, change)
        .await
}

pub(super) async fn mode(arguments: &ModeArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let ModeArguments { mode, order, try_only } = arguments;
    let change = |control: &mut Control| {
        control.mode = (*mode).into();
        control.paused_in = None;
    };
    let what = format!("mode {}", Mode::from(*mode));
    Order { tries: try_only.dry_run, ..Order::of(&what, order) }.give(sources, how, change).await
}

pub(super) async fn pause(order: &OrderArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Order::of("pause", order).give(sources, how, set_paused).await
}

pub(super) async fn resume(order: &OrderArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Order::of("resume", order).give(sources, how, end_pause).await
}

/// The sites that must be known.
fn known<'a>(unknown: bool, sites: impl IntoIterator<Item = &'a SiteId>) -> Vec<&'a SiteId> {
    if unknown { Vec::new() } else { sites.into_iter().collect() }
}

/// What makes a standing order dangerous.
#[derive(Clone, Copy)]
struct Danger<'a> {
    consent: Consent,
    /// Whether the site is marked as failed, which is always dangerous; a drain is if no other site is left.
    fails: bool,
    site: &'a SiteId,
}

impl Danger<'_> {
    /// Whether no member of another site can lead under these orders.
    fn is_last(self, members: &[MemberRecord], control: &Control) -> bool {
        let is_open = |other: &SiteId| {
            other != self.site
                && !control.drained.contains(other)
                && control.failed_sites.iter().all(|failed| failed.site != *other)
        };
        let is_fit = |member: &MemberRecord| {
            member.health.is_fit() && member.priority > 0 && control.serviced(&member.member).is_none()
        };
        members.iter().any(|member| member.site == *self.site)
            && !members.iter().any(|member| is_open(&member.site) && is_fit(member))
    }

    /// Asks, if it is dangerous for an election with these members and standing orders.
    fn ask(self, job: &str, snapshot: &Snapshot) -> Result<(), Error> {
        let Self { consent, fails, site } = self;
        let Control { drained, failed_sites, .. } = &snapshot.control;
        let is_last = self.is_last(&snapshot.members, &snapshot.control);
        // An order that is given already changes nothing.
        let is_given = match fails {
            true => failed_sites.iter().any(|failed| failed.site == *site),
            false => drained.contains(site),
        };
        if is_given {
            return Ok(());
        }
        let last = if is_last { "; no member of another site can lead" } else { "" };
        match (fails, is_last) {
            (true, _) => consent.ask(&format!(
                "{job}: mark site {site} as failed: its leaders are replaced as after a failure{last}"
            )),
            (false, true) => consent.require(&format!("{job}: drain site {site}{last}")),
            (false, false) => Ok(()),
        }
    }
}

/// A standing order.
struct Order<'a> {
    /// The command, as text.
    what: String,
    /// It is only tried.
    tries: bool,
    danger: Option<Danger<'a>>,
    with: &'a OrderArguments,
    /// These must be configured, or have a member.
    sites: Vec<&'a SiteId>,
    /// It changes what is preferred, which moves leadership by itself only with auto_moves = "all".
    prefers: bool,
    /// This site is not failed, even if its members report it.
    overrules: Option<&'a SiteId>,
}

impl<'a> Order<'a> {
    fn of(what: &str, with: &'a OrderArguments) -> Self {
        Self {
            what: what.to_owned(),
            tries: false,
            danger: None,
            with,
            sites: Vec::new(),
            prefers: false,
            overrules: None,
        }
    }

    async fn give(
        self,
        sources: &Sources,
        how: Output,
        mut change: impl FnMut(&mut Control),
    ) -> Result<(), Error> {
        let operator = Operator::connect(sources).await?;
        let result = self.give_all(&operator, how, &mut change).await;
        operator.close().await;
        result
    }

    async fn give_all(
        &self,
        operator: &Operator,
        how: Output,
        change: &mut impl FnMut(&mut Control),
    ) -> Result<(), Error> {
        let jobs = operator.governed(self.with.jobs.which()).await?;
        // A mistyped site is found before anything is changed.
        let mut asked = Vec::new();
        for job in &jobs {
            asked.push(self.check(operator, job).await?);
        }
        if self.tries {
            for job in &jobs {
                let mut snapshot = operator.observer().await?.snapshot(&operator.paths(job)?).await?;
                change(&mut snapshot.control);
                dry_run::show(operator, job, &self.what, &snapshot, false, how)?;
            }
            return Ok(());
        }
        for (job, asked) in jobs.iter().zip(asked) {
            let paths = operator.paths(job)?;
            let (by, mut is_overtaken) = (asker(), false);
            let checked = |control: &mut Control| {
                is_overtaken = asked.as_ref().is_some_and(|asked| asked.is_overtaken(control));
                if !is_overtaken {
                    change(control);
                }
            };
            let ordered =
                orders::order(&operator.session, &paths, &by, self.with.reason.as_deref(), checked).await?;
            if is_overtaken {
                return Err(Error::NotNow(format!(
                    "{job}: another order has meanwhile closed the other sites; nothing was changed there"
                )));
            }
            let overruled = match self.overrules {
                Some(site) => orders::overrule_site(&operator.session, &paths, site, &asker()).await?,
                None => false,
            };
            report(job, &ordered, how)?;
            if let (true, Some(site), Output::Pretty) = (overruled, self.overrules, how) {
                output::print_progress(format_args!(
                    "{job}: members of site {site} report it as failed; this is ignored until they report it \
                     as healthy"
                ));
            }
            let auto_moves = operator.config.policy_of(job).who.auto_moves();
            if self.prefers && auto_moves != AutoMoves::All && ordered.is_news() && how == Output::Pretty {
                output::print_progress(format_args!(
                    "{job}: auto_moves is \"{}\": leadership stays in its site until it is lost or moved by \
                     `{}`",
                    auto_moves,
                    Typed::verb("switchover").job(job)
                ));
            }
        }
        for job in &jobs {
            self.with.awaiting.until_obeyed(operator, job).await?;
        }
        Ok(())
    }

    /// Checks the names of sites, and asks for confirmation.
    async fn check(&self, operator: &Operator, job: &str) -> Result<Option<Asked<'a>>, Error> {
        if self.sites.is_empty() && self.danger.is_none() {
            return Ok(None);
        }
        let snapshot = operator.observer().await?.snapshot(&operator.paths(job)?).await?;
        let sites = self.sites.iter().copied();
        check_sites(operator, job, sites, &snapshot, " (--unknown to override)").map_err(Error::Usage)?;
        let Some(danger) = self.danger.filter(|_| !self.tries) else { return Ok(None) };
        danger.ask(job, &snapshot)?;
        let was_last = danger.is_last(&snapshot.members, &snapshot.control);
        Ok(Some(Asked { danger, members: snapshot.members, was_last }))
    }
}

/// What the operator was asked about.
struct Asked<'a> {
    danger: Danger<'a>,
    members: Vec<MemberRecord>,
    /// Whether no other site was left.
    was_last: bool,
}

impl Asked<'_> {
    /// Whether the orders in force, which the order is about to change, make it dangerous as it was not.
    fn is_overtaken(&self, control: &Control) -> bool {
        !self.was_last && self.danger.is_last(&self.members, control)
    }
}

fn report(job: &str, ordered: &Ordered, how: Output) -> Result<(), Error> {
    let control = &ordered.after;
    if how == Output::Json {
        return output::print_json(&standing::shown(job, ordered));
    }
    let mut orders =
        describe_orders(control.mode, &control.drained, &control.preferred_site, &control.site_order);
    orders.extend(control.failed_sites.iter().map(|failed| format!("site {} has failed", failed.site)));
    orders.extend(control.maintenance.iter().map(ToString::to_string));
    if control.mode == Mode::Auto {
        orders.insert(0, "mode auto".to_owned());
    }
    let nothing = if ordered.is_news() { "" } else { "nothing to change; in force: " };
    output::print(format_args!("{job}: {nothing}{}", orders.join(", ")))
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::Record as _;
    use serde_json::json;

    use super::*;

    fn member(name: &str, site: &str) -> MemberRecord {
        let record = json!({ "v": 1, "member": name, "ballot": "s1.1-0000000001", "site": site });
        MemberRecord::decode("/nodes/x", record.to_string().as_bytes()).unwrap()
    }

    /// Two operators drain the two sites, and each has looked before the other one's order.
    #[test]
    fn a_drain_that_was_harmless_when_it_was_asked_about_is_refused() {
        let (east, west): (SiteId, SiteId) = ("east".parse().unwrap(), "west".parse().unwrap());
        let members = vec![member("east-1", "east"), member("west-1", "west")];
        let danger = Danger { consent: Consent::default(), fails: false, site: &west };
        let asked = |was_last| Asked { danger, members: members.clone(), was_last };
        let drained = |sites: &[&SiteId]| {
            let mut control = Control::default();
            control.drained = sites.iter().copied().cloned().collect();
            control
        };
        assert!(!asked(false).is_overtaken(&drained(&[])));
        assert!(!asked(false).is_overtaken(&drained(&[&west])));
        assert!(asked(false).is_overtaken(&drained(&[&east])));
        // The operator has said yes to that.
        assert!(!asked(true).is_overtaken(&drained(&[&east])));
    }
}
