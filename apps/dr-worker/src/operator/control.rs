//! Standing orders: `drain`, `undrain`, `maintenance`, `prefer`, `mode`, `pause`, `resume`.

use std::collections::BTreeSet;

use clap::ValueEnum;
use election_core::{
    MemberId, SiteId,
    operator::{
        Snapshot,
        orders::{self, Ordered},
    },
    record::{Control, FailedSite, Maintenance, Mode},
};
use serde_json::json;
use strategies::AutoMoves;

use super::{
    election::{Operator, asker},
    output::{self, Output},
};
use crate::{config::Sources, error::Error, wall::unix_ms};

/// The argument of every standing order.
#[derive(Debug, clap::Args)]
pub(super) struct JobArguments {
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
}

/// `drain` and `undrain`
#[derive(Debug, clap::Args)]
pub(super) struct SiteArguments {
    /// Site.
    #[arg(value_name = "SITE")]
    site: SiteId,
    #[command(flatten)]
    jobs: JobArguments,
    /// Accept a site that is not configured and has no member.
    #[arg(long)]
    force: bool,
}

/// `prefer`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct PreferArguments {
    /// Site that goes before all others.
    #[arg(value_name = "SITE", group = "what")]
    site: Option<SiteId>,
    /// All sites, the most preferred first, instead of policy.sites.
    #[arg(long, value_name = "SITE,SITE..", value_delimiter = ',', group = "what")]
    order: Vec<SiteId>,
    /// Restore the configured order.
    #[arg(long, group = "what")]
    clear: bool,
    #[command(flatten)]
    jobs: JobArguments,
    /// Accept sites that are not configured and have no member.
    #[arg(long, conflicts_with = "clear")]
    force: bool,
}

/// `mode`
#[derive(Debug, clap::Args)]
pub(super) struct ModeArguments {
    /// Mode.
    #[arg(value_enum)]
    mode: Word,
    #[command(flatten)]
    jobs: JobArguments,
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
    /// Whether the member is being serviced.
    #[arg(value_enum, value_name = "on|off")]
    word: OnOff,
    /// Member.
    #[arg(value_name = "MEMBER")]
    member: MemberId,
    #[command(flatten)]
    jobs: JobArguments,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Accept a member that takes part in no job.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnOff {
    /// It hands over, and is not elected.
    On,
    /// It is a candidate again.
    Off,
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
    let MaintenanceArguments { word, member, jobs, reason, force } = arguments;
    let (mut known, mut members) = (Vec::new(), BTreeSet::new());
    for job in operator.jobs(jobs.job.as_deref()).await? {
        let snapshot = operator.observer().await?.snapshot(&operator.paths(&job)?).await?;
        let found = snapshot.members.iter().find(|m| m.member == *member);
        if found.is_some() || snapshot.control.serviced(member).is_some() || *force {
            known.push((job, found.map(|m| m.site.clone())));
        }
        members.extend(snapshot.members.into_iter().map(|m| m.member));
    }
    if known.is_empty() {
        let members: Vec<_> = members.iter().map(|member| member.as_str()).collect();
        let members = if members.is_empty() { "none".to_owned() } else { members.join(", ") };
        return Err(Error::Usage(format!(
            "unknown member {member}: it takes part in no job (--force to override); members: {members}"
        )));
    }
    for (job, site) in known {
        let order = Maintenance {
            member: member.clone(),
            site,
            reason: reason.clone(),
            by: asker(),
            at_ms: unix_ms(),
        };
        let change = |control: &mut Control| match word {
            // The first operator and reason are kept.
            OnOff::On if control.serviced(member).is_some() => {}
            OnOff::On => control.maintenance.push(order.clone()),
            OnOff::Off => control.maintenance.retain(|known| known.member != *member),
        };
        let paths = operator.paths(&job)?;
        report(&job, &orders::order(&operator.session, &paths, &asker(), change).await?, how)?;
    }
    Ok(())
}

pub(super) async fn drain(arguments: &SiteArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let SiteArguments { site, jobs, force } = arguments;
    let order = Order { sites: known(*force, [site]), ..Order::of(jobs) };
    order
        .give(sources, how, |control| {
            if !control.drained.contains(site) {
                control.drained.push(site.clone());
            }
        })
        .await
}

pub(super) async fn undrain(arguments: &SiteArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let SiteArguments { site, jobs, force } = arguments;
    let order = Order { sites: known(*force, [site]), ..Order::of(jobs) };
    order.give(sources, how, |control| control.drained.retain(|drained| drained != site)).await
}

/// `fail-site` and `unfail-site`
#[derive(Debug, clap::Args)]
pub(super) struct FailSiteArguments {
    #[command(flatten)]
    at: SiteArguments,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn fail_site(
    arguments: &FailSiteArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let FailSiteArguments { at: SiteArguments { site, jobs, force }, reason } = arguments;
    let order = Order { sites: known(*force, [site]), ..Order::of(jobs) };
    let failed = FailedSite { site: site.clone(), reason: reason.clone(), by: asker(), at_ms: unix_ms() };
    order
        .give(sources, how, |control| {
            // The first operator and reason are kept.
            if control.failed_sites.iter().all(|known| known.site != *site) {
                control.failed_sites.push(failed.clone());
            }
        })
        .await
}

pub(super) async fn unfail_site(
    arguments: &SiteArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let SiteArguments { site, jobs, force } = arguments;
    let order = Order { sites: known(*force, [site]), ..Order::of(jobs) };
    let order = Order { overrules: Some(site), ..order };
    order.give(sources, how, |control| control.failed_sites.retain(|failed| failed.site != *site)).await
}

pub(super) async fn prefer(arguments: &PreferArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let PreferArguments { site, order, clear: _, jobs, force } = arguments;
    if let Some(twice) = order.iter().enumerate().find(|(at, site)| order[..*at].contains(site)) {
        return Err(Error::Usage(format!("--order: {} appears twice; name each site once", twice.1)));
    }
    let sites = known(*force, site.iter().chain(order));
    // A preferred site keeps the order of the others; a new order replaces both.
    let change = |control: &mut Control| match site {
        Some(site) => control.preferred_site = Some(site.clone()),
        None => {
            control.preferred_site = None;
            control.site_order.clone_from(order);
        }
    };
    Order { sites, prefers: true, ..Order::of(jobs) }.give(sources, how, change).await
}

pub(super) async fn mode(arguments: &ModeArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let change = |control: &mut Control| {
        control.mode = arguments.mode.into();
        control.paused_in = None;
    };
    Order::of(&arguments.jobs).give(sources, how, change).await
}

pub(super) async fn pause(jobs: &JobArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Order::of(jobs).give(sources, how, set_paused).await
}

pub(super) async fn resume(jobs: &JobArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Order::of(jobs).give(sources, how, end_pause).await
}

/// A second pause keeps the mode from before the first.
fn set_paused(control: &mut Control) {
    if control.mode != Mode::Manual {
        control.paused_in = Some(control.mode);
        control.mode = Mode::Manual;
    }
}

/// Restores the mode from before the pause. A mode that was set by `mode` ends as well: after `resume` the elector
/// decides.
fn end_pause(control: &mut Control) {
    let found = control.paused_in.take();
    if control.mode == Mode::Manual {
        control.mode = found.unwrap_or(Mode::Auto);
    }
}

/// The sites that must be known.
fn known<'a>(force: bool, sites: impl IntoIterator<Item = &'a SiteId>) -> Vec<&'a SiteId> {
    if force { Vec::new() } else { sites.into_iter().collect() }
}

/// A standing order.
struct Order<'a> {
    job: Option<&'a str>,
    /// These must be configured, or have a member.
    sites: Vec<&'a SiteId>,
    /// It changes what is preferred, which moves leadership by itself only with auto_moves = "all".
    prefers: bool,
    /// This site is not failed, even if its members report it.
    overrules: Option<&'a SiteId>,
}

impl<'a> Order<'a> {
    fn of(jobs: &'a JobArguments) -> Self {
        Self { job: jobs.job.as_deref(), sites: Vec::new(), prefers: false, overrules: None }
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
        let jobs = operator.jobs(self.job).await?;
        // A mistyped site is found before anything is changed.
        for job in &jobs {
            self.check_sites(operator, job).await?;
        }
        for job in jobs {
            let paths = operator.paths(&job)?;
            let ordered = orders::order(&operator.session, &paths, &asker(), &mut *change).await?;
            let overruled = match self.overrules {
                Some(site) => orders::overrule_site(&operator.session, &paths, site, &asker()).await?,
                None => false,
            };
            report(&job, &ordered, how)?;
            if let (true, Some(site), Output::Pretty) = (overruled, self.overrules, how) {
                output::print_progress(format_args!(
                    "{job}: members of site {site} report it as failed; this is ignored until they report it \
                     as healthy"
                ));
            }
            let auto_moves = operator.config.policy_of(&job).who.auto_moves();
            if self.prefers && auto_moves != AutoMoves::All && ordered.is_news() && how == Output::Pretty {
                output::print_progress(format_args!(
                    "{job}: auto_moves is {:?}: leadership stays in its site until it is lost or moved by \
                     `dr-worker switchover`",
                    auto_moves.as_str()
                ));
            }
        }
        Ok(())
    }

    async fn check_sites(&self, operator: &Operator, job: &str) -> Result<(), Error> {
        if self.sites.is_empty() {
            return Ok(());
        }
        let snapshot = operator.observer().await?.snapshot(&operator.paths(job)?).await?;
        let sites = self.sites.iter().copied();
        check_sites(operator, job, sites, &snapshot, " (--force to override)").map_err(Error::Usage)
    }
}

/// Refuses a site that is neither configured nor has a member, nor is part of a standing order.
///
/// # Errors
/// With the site, and the known ones.
pub(super) fn check_sites<'a>(
    operator: &Operator,
    job: &str,
    sites: impl IntoIterator<Item = &'a SiteId>,
    snapshot: &Snapshot,
    hint: &str,
) -> Result<(), String> {
    let Control { drained, failed_sites, preferred_site, site_order, .. } = &snapshot.control;
    let failed = failed_sites.iter().map(|failed| &failed.site);
    let ordered = drained.iter().chain(failed).chain(preferred_site).chain(site_order);
    let members = snapshot.members.iter().map(|member| &member.site);
    let policy = operator.config.policy_of(job);
    let known: BTreeSet<_> = policy.who.sites().iter().chain(members).chain(ordered).collect();
    let unknown = sites.into_iter().find(|site| !known.contains(*site));
    let Some(unknown) = unknown else { return Ok(()) };
    let known: Vec<_> = known.iter().map(|site| site.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!(
        "{job}: unknown site {unknown}: not in policy.sites and no member there{hint}; known: {known}"
    ))
}

fn report(job: &str, ordered: &Ordered, how: Output) -> Result<(), Error> {
    let control = &ordered.after;
    if how == Output::Json {
        return output::print_json(&json!({
            "election": job,
            "changed": ordered.is_news(),
            "mode": control.mode,
            "drained": control.drained,
            "failed_sites": control.failed_sites,
            "maintenance": control.maintenance,
            "preferred_site": control.preferred_site,
            "site_order": control.site_order,
        }));
    }
    let mut orders =
        describe_orders(control.mode, &control.drained, &control.preferred_site, &control.site_order);
    orders.extend(control.failed_sites.iter().map(|failed| format!("site {} has failed", failed.site)));
    orders.extend(control.maintenance.iter().map(ToString::to_string));
    if control.mode == Mode::Auto {
        orders.insert(0, "mode auto".to_owned());
    }
    let already = if ordered.is_news() { "" } else { " already" };
    output::print(format_args!("{job}: {}{already}", orders.join(", ")))
}

/// Standing orders as text; defaults are left out.
pub(super) fn describe_orders(
    mode: Mode,
    drained: &[SiteId],
    preferred: &Option<SiteId>,
    order: &[SiteId],
) -> Vec<String> {
    let mut orders = Vec::new();
    if mode != Mode::Auto {
        orders.push(format!("mode {mode}"));
    }
    orders.extend(drained.iter().map(|site| format!("site {site} is drained")));
    orders.extend(preferred.iter().map(|site| format!("site {site} is preferred")));
    if !order.is_empty() {
        let order: Vec<_> = order.iter().map(|site| site.as_str()).collect();
        orders.push(format!("sites in the order {}", order.join(", ")));
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_in_the_mode_that_it_found() {
        for found in [Mode::Auto, Mode::Observe] {
            let mut control = Control::default().with(|control| control.mode = found);
            set_paused(&mut control);
            set_paused(&mut control);
            assert_eq!(control.mode, Mode::Manual);
            end_pause(&mut control);
            assert_eq!((control.mode, control.paused_in), (found, None));
            end_pause(&mut control);
            assert_eq!(control.mode, found);
        }
        let mut chosen = Control::default().with(|control| control.mode = Mode::Manual);
        end_pause(&mut chosen);
        assert_eq!(chosen.mode, Mode::Auto);
    }
}
