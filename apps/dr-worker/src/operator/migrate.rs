//! `migrate`: the jobs of this root to another ensemble, or to another root.
//!
//! ```text
//!   prepare: the elections there are closed ──▶ workers that do not lead are started there
//!      ──▶ close: the worker of the leader is started there too ──▶ none is left here ──▶ open: a member there leads, above all terms and tokens of here
//! ```
//!
//! Each run looks at both sides and does what is next, so a run that was interrupted is repeated. An election is closed by a
//! drain of all sites. The one there is opened only after the one here is closed and has neither a leader nor a decision that
//! names one: no two members lead. Its tokens are above a transaction that follows the last leader of here.

use std::{collections::BTreeSet, time::Duration};

use election_admin::{AdminError, Observer, ReadError, Snapshot, moving};
use election_core::{
    Paths,
    config::SiteId,
    internals::{
        Layout,
        record::{Control, Mode},
    },
    strategy::in_words,
};
use serde_json::json;
use zk_session::{CreateMode, OpError, Session};

use super::{
    consent::Consent,
    election::{Operator, asker},
    output::{self, Output},
};
use crate::{
    config::{Sources, ZooKeeperConfig},
    connect::connect,
    error::Error,
    typed::Typed,
    znodes::WorkerPaths as _,
};

/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

const FAREWELL: Duration = Duration::from_millis(500);

/// How the reason of the orders that close an election begins.
const CLOSED: &str = "closed by `dr-worker migrate`; drained before: ";

/// No site has such a name.
const NONE: &str = "-";

/// `migrate`
#[derive(Debug, clap::Args)]
pub(super) struct MigrateArguments {
    /// The other ensemble's servers, as in zookeeper.connect.
    #[arg(long, value_name = "CONNECT")]
    to: String,
    /// Root there [default: zookeeper.root].
    #[arg(long, value_name = "ROOT")]
    root: Option<String>,
    /// Limit for each job's stop and start.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    within: Duration,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn run(arguments: &MigrateArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    zk_session::check_connect(&arguments.to).map_err(|wrong| Error::Usage(format!("--to: {wrong}")))?;
    Operator::with(sources, async |operator| {
        let here = &operator.config.zookeeper;
        let zookeeper = ZooKeeperConfig {
            connect: arguments.to.clone(),
            prefer: String::new(),
            root: arguments.root.clone().unwrap_or_else(|| here.root.clone()),
            ..here.clone()
        };
        let there = connect(&zookeeper, None, None).await?;
        let migration = Migration { operator, there: &there, root: &zookeeper.root, by: asker() };
        let result = migration.carry_on(arguments, how).await;
        let _ = there.close(FAREWELL).await;
        result
    })
    .await
}

/// Both sides of a job.
struct Sides {
    job: String,
    from: Paths,
    to: Paths,
    here: Snapshot,
    /// `None` if there is no such election.
    there: Option<Snapshot>,
}

impl Sides {
    /// All sites that are known to have, or may get, a member.
    fn sites(&self, configured: &[SiteId]) -> Vec<SiteId> {
        let members = self.here.members.iter().chain(self.there.iter().flat_map(|there| &there.members));
        let known =
            members.map(|member| &member.site).chain(self.here.absent.iter().map(|absent| &absent.site));
        let all: BTreeSet<_> = known.chain(&self.here.control.drained).chain(configured).cloned().collect();
        all.into_iter().collect()
    }

    /// Whether a member there could lead once it is opened.
    fn has_candidate_there(&self) -> bool {
        let is_candidate = |member: &election_core::internals::record::MemberRecord| {
            member.health.is_fit() && member.priority > 0 && member.withdrawn.is_none()
        };
        self.there.as_ref().is_some_and(|there| there.members.iter().any(is_candidate))
    }
}

/// The sites that were drained before `migrate` closed an election; `None` if it did not.
fn drained_before(orders: &Control) -> Option<Vec<SiteId>> {
    let sites = orders.changed_reason.as_deref()?.strip_prefix(CLOSED)?;
    Some(sites.split(", ").filter_map(|site| SiteId::new(site).ok()).collect())
}

/// The reason of the orders that close an election.
fn reason(drained: &[SiteId]) -> String {
    let drained: Vec<_> = drained.iter().map(SiteId::as_str).collect();
    format!("{CLOSED}{}", if drained.is_empty() { NONE.to_owned() } else { drained.join(", ") })
}

/// Whether no member leads, is about to lead, or is named.
fn is_vacant(election: &Snapshot) -> bool {
    let has_leader = election.leader_znodes.iter().any(Option::is_some);
    let names =
        election.decided().is_some_and(|elected| elected.slots.iter().any(|slot| slot.named.is_some()));
    !has_leader && (!names || election.members.is_empty() && election.lowest.is_none())
}

struct Migration<'a> {
    operator: &'a Operator,
    there: &'a Session,
    root: &'a str,
    by: String,
}

impl Migration<'_> {
    async fn carry_on(&self, arguments: &MigrateArguments, how: Output) -> Result<(), Error> {
        self.check_other().await?;
        let mut sides = self.look().await?;
        for side in &sides {
            check(side)?;
        }
        for side in sides.iter().filter(|side| !is_opened(side)) {
            self.prepare(side).await?;
        }
        sides = self.look().await?;
        let waiting: Vec<_> = sides.iter().filter(|side| !is_opened(side)).collect();
        let missing: Vec<_> = waiting.iter().filter(|side| !side.has_candidate_there()).collect();
        if !missing.is_empty() {
            let jobs: Vec<_> = missing.iter().map(|side| side.job.as_str()).collect();
            let to = &arguments.to;
            let root = arguments
                .root
                .as_ref()
                .map_or_else(String::new, |root| format!(", zookeeper.root = \"{root}\""));
            return Err(Error::NotNow(format!(
                "prepared; no member there can lead {} yet. On the nodes that do not lead, set zookeeper.connect = \"{to}\"{root} \
                 and restart the worker, one after the other; then run this command again. Until then no member leads \
                 there",
                jobs.join(", ")
            )));
        }
        let jobs: Vec<_> = waiting.iter().map(|side| side.job.as_str()).collect();
        if !jobs.is_empty() {
            arguments.consent.require(&format!(
                "{}: close the elections here; members there lead when the leaders here have stopped",
                jobs.join(", ")
            ))?;
        }
        for side in &waiting {
            self.close(side).await?;
        }
        for side in &waiting {
            self.open(side, arguments.within).await?;
        }
        for side in &sides {
            self.report(side, arguments.within, how).await?;
        }
        Ok(())
    }

    /// The other side must not be this one.
    async fn check_other(&self) -> Result<(), Error> {
        let here = self.operator.session.exists(self.operator.root()).await?;
        let there = self.there.exists(self.root).await?;
        let origin = |stat: Option<zk_session::Stat>| stat.map(|stat| (stat.czxid, stat.ctime_ms));
        if self.root == self.operator.root() && origin(here).is_some() && origin(here) == origin(there) {
            return Err(Error::Usage(format!(
                "--to: that is this ensemble, with the same root {}",
                self.root
            )));
        }
        Ok(())
    }

    async fn look(&self) -> Result<Vec<Sides>, Error> {
        let mut all = Vec::new();
        for job in self.operator.elections().await? {
            let from = self.operator.paths(&job)?;
            let to = Paths::new(self.root, &job).map_err(|why| Error::Usage(format!("--root: {why}")))?;
            let here = self.operator.observer().await?.snapshot(&from).await?;
            let there = snapshot(self.there, &to).await?;
            all.push(Sides { job, from, to, here, there });
        }
        Ok(all)
    }

    /// Closes the election there, and has it begin above the present terms and tokens. Copies the overlay.
    async fn prepare(&self, side: &Sides) -> Result<(), Error> {
        let sites = side.sites(&self.configured_sites(&side.job));
        moving::close(self.there, &side.to, &sites, &self.by, &reason(&[])).await?;
        let token = (0..side.here.leader_znodes.len()).filter_map(|slot| side.here.fencing_token(slot)).max();
        let token = token.unwrap_or(0).max(side.here.token_base());
        moving::go_on_above(self.there, &side.to, term(&side.here), token, &self.by).await?;
        if let Some(overlay) = self.operator.session.get(&side.from.config()).await? {
            match self.there.create(&side.to.config(), &overlay.data, CreateMode::Persistent).await {
                Ok(_) | Err(OpError::NodeExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn configured_sites(&self, job: &str) -> Vec<SiteId> {
        let policy = self.operator.config.jobs.get(job).unwrap_or(&self.operator.config.policy);
        policy.who.site_policy.sites.clone()
    }

    /// Has no member lead here from now on.
    async fn close(&self, side: &Sides) -> Result<(), Error> {
        if drained_before(&side.here.control).is_some() {
            return Ok(());
        }
        let (sites, why) =
            (side.sites(&self.configured_sites(&side.job)), reason(&side.here.control.drained));
        let close = |orders: &mut Control| orders.drained.clone_from(&sites);
        election_admin::orders::order(&self.operator.session, &side.from, &self.by, Some(&why), close)
            .await?;
        Ok(())
    }

    /// Waits until no member leads here, and has members there lead.
    async fn open(&self, side: &Sides, within: Duration) -> Result<(), Error> {
        let observer = self.operator.observer().await?;
        let vacant = until(within, async || {
            let here = observer.snapshot(&side.from).await?;
            Ok::<_, Error>(is_vacant(&here).then_some(here))
        });
        let leaders: Vec<_> = side.here.leader_znodes.iter().flatten().collect();
        if !leaders.is_empty() {
            let leaders: Vec<_> = leaders.iter().map(|leader| leader.record.member.as_str()).collect();
            output::print_progress(format_args!(
                "{}: closed here; restart the worker of {} there now: when it has stopped, a member there leads (waiting for {} at most)",
                side.job,
                leaders.join(", "),
                in_words(within)
            ));
        }
        let Some(here) = vacant.await? else {
            return Err(Error::NotNow(format!(
                "{}: the leader here has not stopped within {}; restart its worker there and run this command again, or \
                 withdraw the drains here",
                side.job,
                in_words(within)
            )));
        };
        let Some(drained) = drained_before(&here.control) else {
            return Err(Error::NotNow(format!(
                "{}: another order has opened the election here; nothing was changed",
                side.job
            )));
        };
        let token = moving::token_above(&self.operator.session, &side.from, &here).await?;
        moving::go_on_above(self.there, &side.to, term(&here), token, &self.by).await?;
        let mut orders = here.control.clone();
        orders.drained = drained;
        orders.changed_reason = None;
        Ok(moving::open(self.there, &side.to, &orders, &self.by).await?)
    }

    /// Waits for the leader there.
    async fn report(&self, side: &Sides, within: Duration, how: Output) -> Result<(), Error> {
        let ready = until(within, async || {
            let there = snapshot(self.there, &side.to).await?;
            let leader =
                there.as_ref().and_then(|there| there.leader_znode(0)).map(|leader| leader.record.clone());
            Ok::<_, Error>(leader.filter(|leader| leader.fencing_token.is_some()))
        });
        let job = &side.job;
        let Some(leader) = ready.await? else {
            return Err(Error::NotNow(format!(
                "{job}: moved, but no member there is READY after {}; `dr-worker explain` with that ensemble's \
                 zookeeper.connect shows why",
                in_words(within)
            )));
        };
        let here = self.operator.observer().await?.snapshot(&side.from).await?;
        let left: Vec<_> = here.members.iter().map(|member| member.member.to_string()).collect();
        let token = leader.fencing_token;
        match how {
            Output::Json => output::print_json(&json!({
                "election": job, "leader": leader.member, "site": leader.site, "term": leader.term,
                "fencing_token": token, "left": left,
            })),
            Output::Pretty => {
                let rest = match left.is_empty() {
                    true => String::new(),
                    false => format!("; still members here, restart them there: {}", left.join(", ")),
                };
                output::print(format_args!(
                    "{job}: {} leads there in term {} with token {}{rest}",
                    leader.member,
                    leader.term,
                    token.unwrap_or(0)
                ))
            }
        }
    }
}

fn term(election: &Snapshot) -> u64 {
    election.decided().map_or(0, |elected| elected.term)
}

/// Whether members there lead, or may lead, and none here.
fn is_opened(side: &Sides) -> bool {
    let is_closed = |orders: &Control| drained_before(orders).is_some();
    let has_orders = |there: &Snapshot| !there.control.changed_by.is_empty() && !is_closed(&there.control);
    is_closed(&side.here.control) && is_vacant(&side.here) && side.there.as_ref().is_some_and(has_orders)
}

/// Whether a job can be moved, or was.
fn check(side: &Sides) -> Result<(), Error> {
    let job = &side.job;
    if side.here.layout != Layout::Elector {
        return Err(Error::Failed(format!(
            "{job}: the recipe \"{}\" has no elector to carry this out: stop all of its workers, and start them there; \
             each goes on above what it has seen",
            side.here.layout.as_str()
        )));
    }
    if let Some(why) = side.here.unreadable.first() {
        return Err(Error::Failed(format!("{job}: {why}")));
    }
    if side.here.control.mode != Mode::Auto {
        return Err(Error::NotNow(format!(
            "{job}: its mode is not \"auto\", so its elector would not act on a closed election: `{}`",
            Typed::verb("mode").arg("auto").job(job)
        )));
    }
    let Some(there) = &side.there else { return Ok(()) };
    if is_opened(side) {
        return Ok(());
    }
    let is_ours = drained_before(&there.control).is_some();
    if !is_vacant(there) || !is_ours && (there.decided().is_some() || !there.members.is_empty()) {
        return Err(Error::Failed(format!(
            "{job}: there is an election at {} there already; stop its workers and remove it (`{}` with \
             that ensemble's zookeeper.connect), or choose another --root; nothing was changed",
            side.to.base(),
            Typed::verb("forget").arg(job)
        )));
    }
    Ok(())
}

async fn snapshot(session: &Session, paths: &Paths) -> Result<Option<Snapshot>, Error> {
    let incarnation = session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?;
    match Observer::new(incarnation).snapshot(paths).await {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(ReadError::NoElection(_)) => Ok(None),
        Err(error) => Err(AdminError::from(error).into()),
    }
}

/// Looks again and again, until there is something.
async fn until<T>(
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let by = tokio::time::Instant::now() + within;
    loop {
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        if tokio::time::Instant::now() >= by {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drained_before_is_read_from_the_reason() {
        let sites: Vec<SiteId> = ["east", "west"].map(|site| SiteId::new(site).unwrap()).to_vec();
        let mut orders = Control::default();
        assert_eq!(drained_before(&orders), None);
        for drained in [&sites[..], &sites[..1], &[]] {
            orders.changed_reason = Some(reason(drained));
            assert_eq!(drained_before(&orders).as_deref(), Some(drained));
        }
    }
}
