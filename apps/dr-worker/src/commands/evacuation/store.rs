//! The record of the last evacuation, in ZooKeeper.

use election_admin::{AdminError, Attempts, Known, Observer};
use election_core::{Paths, config::SiteId};
use zk_session::Session;

use super::course::EvacuationPhase;
use crate::{
    error::Error,
    typed::Typed,
    wall::unix_ms,
    znodes::{Evacuation, WorkerPaths as _},
};

/// Reads it; `None` if there was none. `paths` are those of plans.
pub(crate) async fn read(session: &Session, paths: &Paths) -> Result<Option<Evacuation>, AdminError> {
    let incarnation = session.active().await?;
    incarnation.barrier().await?;
    let known: Known<Evacuation> = Observer::new(incarnation).known(paths.evacuation()).await?;
    Ok(known.record()?)
}

/// What becomes of an order to begin this one: it joins the one that is under way if that is the same. `None` if none is.
///
/// # Errors
/// Another one is under way.
pub(crate) fn joined(present: Option<Evacuation>, plan: &Evacuation) -> Result<Option<Evacuation>, Error> {
    match present.filter(|present| present.phase() == EvacuationPhase::Running) {
        Some(present) if present.is_same_as(plan) => Ok(Some(present)),
        Some(present) => Err(under_way(&present, &plan.site)),
        None => Ok(None),
    }
}

/// Begins an evacuation, which gets a later time than the one before. Returns the same one that is under way instead, if one is.
///
/// # Errors
/// Why it was not begun.
pub(crate) async fn begin(
    session: &Session,
    paths: &Paths,
    plan: &mut Evacuation,
) -> Result<Option<Evacuation>, Error> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Evacuation> = observer.known(paths.evacuation()).await?;
        // One that can't be read was written by a newer program, which may carry it out.
        if let Some(present) = known.record().map_err(AdminError::from)? {
            // The reply was lost.
            if present.at_ms == plan.at_ms && present.by == plan.by && present.site == plan.site {
                return Ok(None);
            }
            let least = present.at_ms.saturating_add(1);
            if let Some(present) = joined(Some(present), plan)? {
                return Ok(Some(present));
            }
            plan.at_ms = plan.at_ms.max(least);
        }
        known.make_parents(observer.session()).await?;
        if attempts.write([known.replace(plan).map_err(AdminError::from)?]).await? {
            return Ok(None);
        }
    }
}

/// Changes the last evacuation, which must be of the same site.
///
/// # Errors
/// Why it was not changed.
pub(crate) async fn change(
    session: &Session,
    paths: &Paths,
    named: &Evacuation,
    alter: fn(&mut Evacuation) -> Result<(), String>,
) -> Result<Evacuation, Error> {
    let site = &named.site;
    let mut attempts = Attempts::over(session);
    let mut written = None;
    loop {
        let observer = attempts.look().await?;
        let known: Known<Evacuation> = observer.known(paths.evacuation()).await?;
        let present = known.record().map_err(AdminError::from)?;
        let Some(mut plan) = present else {
            return Err(Error::NotNow("there was no evacuation".to_owned()));
        };
        if written.as_ref() == Some(&plan) {
            return Ok(plan);
        }
        if plan.site != *site {
            return Err(Error::NotNow(format!(
                "the last evacuation is that of site {}, not of {site}",
                plan.site
            )));
        }
        alter(&mut plan).map_err(|why| Error::NotNow(format!("the evacuation of site {site}: {why}")))?;
        plan.by.clone_from(&named.by);
        if named.reason.is_some() {
            plan.reason.clone_from(&named.reason);
        }
        if attempts.write([known.replace(&plan).map_err(AdminError::from)?]).await? {
            return Ok(plan);
        }
        written = Some(plan);
    }
}

fn under_way(present: &Evacuation, wanted: &SiteId) -> Error {
    let (site, by) = (&present.site, &present.by);
    let verb = if present.undo { "being undone" } else { "under way" };
    let why = match site == wanted {
        true if present.undo => "its jobs return",
        true => "this one has other jobs or options",
        false => "only one site can be evacuated at a time",
    };
    let undo = match present.undo {
        true => String::new(),
        false => format!(", or turn it back with `{}`", Typed::verb("evacuate").arg(site).arg("--undo")),
    };
    Error::NotNow(format!(
        "the evacuation of site {site} by {by} is {verb}, and {why}; wait for its end{undo}"
    ))
}

/// An evacuation without a step, that begins now.
pub(crate) fn new(site: &SiteId, by: &str, reason: Option<&str>) -> Evacuation {
    let mut plan = Evacuation::new(site.clone(), by, unix_ms());
    plan.reason = reason.map(str::to_owned);
    plan
}
