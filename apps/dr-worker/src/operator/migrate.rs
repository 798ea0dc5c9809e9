//! `migrate`: the jobs of this root to another ensemble, or to another root.
//!
//! ```text
//!   prepare: the elections there are closed ──▶ workers that do not lead are started there
//!      ──▶ close: the workers of the leaders are started there too ──▶ no member leads here, or can
//!      ──▶ open: a member there leads, above all terms and tokens of here
//! ```
//!
//! Each run looks at both sides and does what is next for each job, so a run that was interrupted is repeated. Both elections
//! keep a record of the move: [`moving`] has the steps, and why no two members lead. Jobs do not wait for each other.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use election_admin::{
    AdminError, Hindrance, Observer, ReadError, Snapshot,
    moving::{self, Ending, Holding},
};
use election_core::{
    Paths,
    internals::{
        Layout,
        record::{Current, MemberRecord, Mode, Move, OrderedBy, Place},
    },
    strategy::in_words,
};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;
use zk_session::Session;

use super::{
    consent::Consent,
    obeyed::is_barred,
    output::{self, Output},
};
use crate::{
    commands::{Operator, asker},
    config::{Sources, ZooKeeperConfig},
    connect::connect,
    error::Error,
    mask::mask,
    typed::Typed,
    wall::unix_ms,
    znodes::overlays,
};

/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

const FAREWELL: Duration = Duration::from_millis(500);

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
    /// Open the elections here again that have not moved yet.
    ///
    /// Those there stay closed.
    #[arg(long)]
    off: bool,
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
        let migration = Migration {
            operator,
            there: &there,
            arguments,
            root: &zookeeper.root,
            servers: (mask(&here.connect).into_owned(), mask(&arguments.to).into_owned()),
            by: asker(),
            how,
        };
        let result = match arguments.off {
            true => migration.call_off().await,
            false => migration.carry_on().await,
        };
        let _ = there.close(FAREWELL).await;
        result
    })
    .await
}

/// Both sides of a job.
struct Pair {
    job: String,
    from: Paths,
    to: Paths,
    here: Snapshot,
    origin: Place,
    /// The election there, and its place; `None` if there is no such election.
    there: Option<(Snapshot, Place)>,
}

impl Pair {
    /// The move to the election there, as the election here knows it.
    fn departure(&self) -> Option<&Move> {
        let (_, place) = self.there.as_ref()?;
        moving::departure(&self.here.control, place)
    }

    /// The move from the election here, as the election there knows it.
    fn arrival(&self) -> Option<&Move> {
        let (there, _) = self.there.as_ref()?;
        moving::arrival(&there.control, &self.origin)
    }

    /// Whether members there lead, or may lead, and none here.
    fn is_opened(&self) -> bool {
        let is_done = |known: Option<&Move>| known.is_some_and(|known| known.done);
        is_done(self.departure()) || is_done(self.arrival())
    }

    /// How many members there could lead.
    fn candidates(&self) -> usize {
        self.there.as_ref().map_or(0, |(there, _)| candidates(there))
    }

    /// The leaders here.
    fn leaders(&self) -> impl Iterator<Item = &Current> {
        self.here.leader_znodes.iter().flatten().map(|leader| &leader.record)
    }
}

/// How many members could lead, or do: orders that forbid it have gone along.
fn candidates(election: &Snapshot) -> usize {
    let is_candidate = |member: &&MemberRecord| {
        let takes_part = member.withdrawn.is_none() && !member.leaving;
        let is_barred = is_barred(&election.control, &member.member, &member.site);
        takes_part && member.health.is_fit() && member.priority > 0 && !is_barred
    };
    election.members.iter().filter(is_candidate).count()
}

struct Migration<'a> {
    operator: &'a Operator,
    there: &'a Session,
    arguments: &'a MigrateArguments,
    root: &'a str,
    /// The servers here and there, as the election on the other side is to name them.
    servers: (String, String),
    by: String,
    how: Output,
}

impl Migration<'_> {
    async fn carry_on(&self) -> Result<(), Error> {
        self.check_other().await?;
        let mut errors = Vec::new();
        let jobs = self.operator.elections().await?;
        let prepared = join_all(jobs.iter().map(|job| self.prepared(job))).await;
        let pairs = kept(jobs.iter().zip(prepared), &mut errors);
        let (pairs, missing): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|pair| pair.is_opened() || pair.candidates() > 0);
        if !missing.is_empty() {
            errors.push(self.no_candidate(&missing));
        }
        let (mut going, waiting): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.is_opened());
        if !waiting.is_empty() {
            self.arguments.consent.require(&format!(
                "{}: close the elections here; members there lead when the leaders here have stopped",
                listed(waiting.iter().map(|pair| &pair.job))
            ))?;
        }
        let closed = join_all(waiting.iter().map(|pair| self.close(pair))).await;
        let closed = kept(waiting.iter().map(|pair| &pair.job).zip(closed), &mut errors);
        self.announce(&closed);
        going.extend(closed);
        let moved = join_all(going.iter().map(|pair| self.finish(pair))).await;
        kept(going.iter().map(|pair| &pair.job).zip(moved), &mut errors);
        together(errors)
    }

    /// The other side must not be this one.
    async fn check_other(&self) -> Result<(), Error> {
        let here = moving::place(&self.operator.session, &self.servers.0, self.operator.root()).await?;
        let there = moving::place(self.there, &self.servers.1, self.root).await?;
        if here.zip(there).is_some_and(|(here, there)| here.is_same(&there)) {
            return Err(Error::Usage(format!(
                "--to: that is this ensemble, with the same root {}",
                self.root
            )));
        }
        Ok(())
    }

    async fn look(&self, job: &str) -> Result<Pair, Error> {
        let from = self.operator.paths(job)?;
        let to = Paths::new(self.root, job).map_err(|why| Error::Usage(format!("--root: {why}")))?;
        let here = self.operator.observer().await?.snapshot(&from).await?;
        let origin = moving::place(&self.operator.session, &self.servers.0, from.base()).await?;
        let origin = origin.ok_or_else(|| ReadError::NoElection(from.base().to_owned()))?;
        let there = match snapshot(self.there, &to).await? {
            Some(there) => {
                let place = moving::place(self.there, &self.servers.1, to.base()).await?;
                place.map(|place| (there, place))
            }
            None => None,
        };
        Ok(Pair { job: job.to_owned(), from, to, here, origin, there })
    }

    fn order(&self, place: &Place) -> Move {
        let ordered = OrderedBy { reason: None, by: self.by.clone(), at_ms: unix_ms() };
        Move { place: place.clone(), done: false, ordered }
    }

    /// The command that calls the moves to these servers off. `root` is the one there, if it is not that of here.
    fn off(servers: &str, root: Option<&str>) -> Typed {
        let off = Typed::verb("migrate").arg("--to").arg(servers).arg("--off");
        match root {
            Some(root) => off.arg("--root").arg(root),
            None => off,
        }
    }

    /// Closes the election there, and copies the overlay.
    async fn prepared(&self, job: &str) -> Result<Pair, Error> {
        let pair = self.look(job).await?;
        self.check(&pair)?;
        if pair.is_opened() {
            return Ok(pair);
        }
        let from = self.order(&pair.origin);
        moving::prepare(self.there, &pair.to, &from, &pair.here, &self.by).await?;
        self.copy_overlay(&pair).await?;
        self.look(job).await
    }

    async fn copy_overlay(&self, pair: &Pair) -> Result<(), Error> {
        let (from, to) = ((&self.operator.session, &pair.from), (self.there, &pair.to));
        Ok(overlays::copy(from, to).await?)
    }

    /// Whether a job can be moved, or was.
    fn check(&self, pair: &Pair) -> Result<(), Error> {
        let here = &pair.here;
        if here.layout != Layout::Elector {
            return Err(Error::Failed(format!(
                "the recipe \"{}\" has no elector to carry this out: stop all of its workers, and start them there; \
                 each goes on above what it has seen",
                here.layout.as_str()
            )));
        }
        if let Some(why) = here.unreadable.first() {
            return Err(Error::Failed(why.to_string()));
        }
        match &here.control.moves_to {
            Some(going) if pair.departure().is_none() => return Err(self.elsewhere(pair, going)),
            _ if pair.is_opened() => return Ok(()),
            Some(_) => {}
            None => {
                if let Some(former) = here.former().next() {
                    let (election, member) = (pair.job.clone(), former.member.clone());
                    return Err(AdminError::from(Hindrance::NotFenced { election, member }).into());
                }
            }
        }
        if here.control.mode != Mode::Auto {
            return Err(Error::NotNow(sentence(&pair.job, &Holding::Mode(here.control.mode))));
        }
        let Some((there, _)) = &pair.there else { return Ok(()) };
        let is_foreign = there.control.moved_from.is_some()
            || there.decided().is_some()
            || !there.members.is_empty()
            || there.control.moves_to.is_some();
        if pair.arrival().is_none() && is_foreign {
            return Err(Error::Failed(format!(
                "there is an election at {} there already, which does not come from here; stop its workers and remove it \
                 (`{}` with that ensemble's zookeeper.connect), or choose another --root; nothing was changed",
                pair.to.base(),
                Typed::verb("forget").arg(&pair.job)
            )));
        }
        Ok(())
    }

    /// The election here moves to a third place, or has moved there.
    fn elsewhere(&self, pair: &Pair, going: &Move) -> Error {
        let Move { place, done, ordered } = going;
        if *done {
            return Error::Failed(format!("it has moved to {place} already, by {}", ordered.by));
        }
        let root = place.path.strip_suffix(&format!("/{}", pair.job));
        let root = root.filter(|root| *root != self.operator.root());
        Error::NotNow(format!(
            "it is closed here for a move to {place}, by {}; carry that one on, or call it off: `{}`",
            ordered.by,
            Self::off(&place.servers, root)
        ))
    }

    fn no_candidate(&self, missing: &[Pair]) -> Error {
        let MigrateArguments { to, root, .. } = self.arguments;
        let root = root.as_ref().map_or_else(String::new, |root| format!(", zookeeper.root = \"{root}\""));
        Error::NotNow(format!(
            "prepared; no member there can lead {} yet. On the nodes that do not lead, set zookeeper.connect = \"{to}\"{root} \
             (prefer, sites and admin must fit it) and restart the worker, one after the other; then run this command \
             again, with the configuration of here. Until then no member leads there",
            listed(missing.iter().map(|pair| &pair.job))
        ))
    }

    /// Has no other member lead here from now on.
    async fn close<'p>(&self, pair: &'p Pair) -> Result<&'p Pair, Error> {
        moving::close(&self.operator.session, &pair.from, &self.order(place_there(pair)?), &self.by).await?;
        Ok(pair)
    }

    /// Names the workers that are to be restarted now, with the jobs that they lead.
    fn announce(&self, closed: &[&Pair]) {
        let mut jobs = BTreeMap::<_, Vec<_>>::new();
        for pair in closed {
            for leader in pair.leaders() {
                jobs.entry(&leader.member).or_default().push(&pair.job);
            }
        }
        for (leader, jobs) in &jobs {
            output::print_progress(format_args!(
                "closed here; restart the worker of {leader} there now: {}",
                listed(jobs)
            ));
        }
        if !jobs.is_empty() {
            output::print_progress(format_args!(
                "a member there leads a job when its leaders here have stopped (waiting for {} at most)",
                in_words(self.arguments.within)
            ));
        }
    }

    /// Opens the election there, unless that was done before, and reports who leads.
    async fn finish(&self, pair: &Pair) -> Result<(), Error> {
        if !pair.is_opened() {
            self.open(pair).await?;
        }
        let going = self.order(place_there(pair)?);
        moving::finish(&self.operator.session, &pair.from, &going, &self.by).await?;
        self.report(pair).await
    }

    /// Waits until no member leads here, and has members there lead.
    async fn open(&self, pair: &Pair) -> Result<(), Error> {
        let until = Instant::now() + self.arguments.within;
        let leaders: Vec<_> = pair.leaders().map(|leader| leader.member.clone()).collect();
        // That was said of all jobs together.
        let mut said = Holding::Leaders(leaders);
        loop {
            let awaited = moving::awaited(self.there, &pair.to, &pair.origin).await?;
            let to = place_there(pair)?;
            let holding = match moving::end(&self.operator.session, &pair.from, to, &self.by).await? {
                Ending::Ended(ended) => {
                    self.copy_overlay(pair).await?;
                    let from = self.order(&pair.origin);
                    moving::arrive(self.there, &pair.to, &from, awaited, &ended, &self.by).await?;
                    return Ok(());
                }
                Ending::Held(holding) => holding,
            };
            let why = sentence(&pair.job, &holding);
            if Instant::now() >= until {
                let off = Self::off(&self.servers.1, self.arguments.root.as_deref());
                return Err(Error::NotNow(format!(
                    "not moved within {}: {why}; then run this command again. `{off}` opens the election here again",
                    in_words(self.arguments.within)
                )));
            }
            if holding != said {
                output::print_progress(format_args!("{}: waiting: {why}", pair.job));
                said = holding;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for the leaders there: one for each slot, as far as there are members that can lead.
    async fn report(&self, pair: &Pair) -> Result<(), Error> {
        let until = Instant::now() + self.arguments.within;
        let (leaders, slots) = loop {
            let there = snapshot(self.there, &pair.to).await?.unwrap_or_default();
            let slots = there.leader_znodes.len().max(1);
            let wanted = candidates(&there).clamp(1, slots);
            let leaders = there.leader_znodes.into_iter().enumerate();
            let leaders: Vec<_> = leaders.filter_map(|(slot, leader)| Some((slot, leader?.record))).collect();
            let ready: Vec<_> =
                leaders.into_iter().filter(|(_, leader)| leader.fencing_token.is_some()).collect();
            if ready.len() >= wanted {
                break (ready, slots);
            }
            if Instant::now() >= until {
                return Err(Error::NotNow(format!(
                    "moved, but {} of {wanted} members there are READY after {}; `dr-worker explain` with that \
                     ensemble's zookeeper.connect shows why",
                    ready.len(),
                    in_words(self.arguments.within)
                )));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        let vacant: Vec<_> = (0..slots).filter(|slot| leaders.iter().all(|(led, _)| led != slot)).collect();
        let here = self.operator.observer().await?.snapshot(&pair.from).await?;
        let left: Vec<_> = here.members.iter().map(|member| member.member.to_string()).collect();
        let job = &pair.job;
        match self.how {
            Output::Json => {
                let leaders = leaders.iter().map(|(slot, leader)| {
                    json!({
                        "slot": slot, "leader": leader.member, "site": leader.site, "term": leader.term,
                        "fencing_token": leader.fencing_token,
                    })
                });
                let leaders: Vec<_> = leaders.collect();
                output::print_json(
                    &json!({ "election": job, "leaders": leaders, "vacant": vacant, "left": left }),
                )
            }
            Output::Pretty => {
                let leads = |(slot, leader): &(usize, Current)| {
                    let slot = if slots > 1 { format!(" slot {slot}") } else { String::new() };
                    let (member, term) = (&leader.member, leader.term);
                    let token = leader.fencing_token.unwrap_or(0);
                    format!("{member} leads{slot} there in term {term} with token {token}")
                };
                let mut parts: Vec<_> = leaders.iter().map(leads).collect();
                if !vacant.is_empty() {
                    parts.push(format!("no other member there can lead slot {} yet", listed(&vacant)));
                }
                if !left.is_empty() {
                    parts.push(format!("still members here, restart them there: {}", left.join(", ")));
                }
                output::print(format_args!("{job}: {}", parts.join("; ")))
            }
        }
    }

    async fn call_off(&self) -> Result<(), Error> {
        self.check_other().await?;
        let jobs = self.operator.elections().await?;
        let mut errors = Vec::new();
        let called_off = join_all(jobs.iter().map(|job| self.open_again(job))).await;
        kept(jobs.iter().zip(called_off), &mut errors);
        together(errors)
    }

    async fn open_again(&self, job: &str) -> Result<(), Error> {
        let pair = self.look(job).await?;
        // The election there may have been lost since.
        let is_named = |place: &Place| place.servers == self.servers.1 && place.path == pair.to.base();
        let going = pair.here.control.moves_to.as_ref();
        if let Some(going) = going.filter(|going| pair.departure().is_none() && !is_named(&going.place)) {
            return Err(self.elsewhere(&pair, going));
        }
        let (from, to) = ((&self.operator.session, &pair.from), (self.there, &pair.to));
        let was_moving = moving::call_off(from, to, &pair.origin, &self.by).await?;
        match self.how {
            Output::Json => output::print_json(&json!({ "election": job, "called_off": was_moving })),
            Output::Pretty if was_moving => {
                output::print(format_args!("{job}: open here again; the election there stays closed"))
            }
            Output::Pretty => output::print(format_args!("{job}: it is open here, and does not move")),
        }
    }
}

/// The place of the election there, which is prepared.
fn place_there(pair: &Pair) -> Result<&Place, Error> {
    let place = pair.there.as_ref().map(|(_, place)| place);
    place.ok_or_else(|| AdminError::from(Hindrance::MoveChanged).into())
}

/// What an election waits for, and what to do.
fn sentence(job: &str, holding: &Holding) -> String {
    match holding {
        Holding::Leaders(members) => {
            format!("{} leads here; restart its worker there", listed(members))
        }
        Holding::Named(members) => {
            format!(
                "{} is named here, and its session has not ended; restart its worker there",
                listed(members)
            )
        }
        Holding::Former(members) => format!(
            "{} may still run the job; make sure that it is off, and confirm that with the configuration of this command: \
             `{}`",
            listed(members),
            Typed::verb("ack").arg("--fenced").job(job)
        ),
        Holding::Mode(mode) => format!(
            "its mode is {mode}, in which no member would be named there: `{}`",
            Typed::verb("mode").arg("auto").job(job)
        ),
    }
}

fn listed(names: impl IntoIterator<Item = impl Display>) -> String {
    names.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

/// What has succeeded. The errors of the other jobs are added, with their names.
fn kept<'a, T>(
    results: impl Iterator<Item = (&'a String, Result<T, Error>)>,
    errors: &mut Vec<Error>,
) -> Vec<T> {
    let about = |job: &str, error: Error| match error {
        Error::Failed(why) => Error::Failed(format!("{job}: {why}")),
        Error::NotNow(why) => Error::NotNow(format!("{job}: {why}")),
        other => other,
    };
    let mut kept = Vec::new();
    for (job, result) in results {
        match result {
            Ok(done) => kept.push(done),
            Err(error) => errors.push(about(job, error)),
        }
    }
    kept
}

/// One error for all jobs: it may pass if each of them may.
fn together(mut errors: Vec<Error>) -> Result<(), Error> {
    if errors.len() < 2 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let may_pass = errors.iter().all(|error| error.exit_code().may_pass());
    let all = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Err(if may_pass { Error::NotNow(all) } else { Error::Failed(all) })
}

async fn snapshot(session: &Session, paths: &Paths) -> Result<Option<Snapshot>, Error> {
    let incarnation = session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?;
    match Observer::new(incarnation).snapshot(paths).await {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(ReadError::NoElection(_)) => Ok(None),
        Err(error) => Err(AdminError::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitCode;

    #[test]
    fn one_job_that_fails_does_not_hide_another_one() {
        let jobs = ["a", "b", "c"].map(str::to_owned);
        let not_now = |why: &str| Err(Error::NotNow(why.to_owned()));
        let outcome = |results: [Result<u8, Error>; 3]| {
            let mut errors = Vec::new();
            let done = kept(jobs.iter().zip(results), &mut errors);
            (done, together(errors).map_err(|error| (error.exit_code(), error.to_string())))
        };
        assert_eq!(outcome([Ok(1), Ok(2), Ok(3)]), (vec![1, 2, 3], Ok(())));
        let (done, waits) = outcome([Ok(1), not_now("soon"), Ok(3)]);
        assert_eq!((done, waits), (vec![1, 3], Err((ExitCode::NotNow, "b: soon".to_owned()))));
        let (_, waits) = outcome([not_now("x"), Ok(2), not_now("y")]);
        assert_eq!(waits, Err((ExitCode::NotNow, "a: x; c: y".to_owned())));
        let (_, failed) = outcome([not_now("x"), Err(Error::Failed("no".to_owned())), Ok(3)]);
        assert_eq!(failed.unwrap_err().0, ExitCode::Failed);
    }
}
