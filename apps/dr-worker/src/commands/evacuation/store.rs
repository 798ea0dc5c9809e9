//! The record of the last evacuation, in ZooKeeper.

use election_admin::{AdminError, Attempts, Known, Observer};
use election_core::Paths;
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

/// Begins an evacuation, unless one is under way.
///
/// # Errors
/// Why it was not begun.
pub(crate) async fn begin(
    session: &Session,
    paths: &Paths,
    mut plan: Evacuation,
) -> Result<Evacuation, Error> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Evacuation> = observer.known(paths.evacuation()).await?;
        // One that can't be read was written by a newer program, which may carry it out.
        if let Some(present) = known.record().map_err(AdminError::from)? {
            // The reply was lost.
            if present.at_ms == plan.at_ms && present.by == plan.by && present.site == plan.site {
                return Ok(present);
            }
            if present.phase() == EvacuationPhase::Running {
                return Err(under_way(&present));
            }
            plan.at_ms = plan.at_ms.max(present.at_ms.saturating_add(1));
        }
        known.make_parents(observer.session()).await?;
        if attempts.write([known.replace(&plan).map_err(AdminError::from)?]).await? {
            return Ok(plan);
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

fn under_way(present: &Evacuation) -> Error {
    let (site, by) = (&present.site, &present.by);
    let undo = Typed::verb("evacuate").arg(site).arg("--undo");
    let verb = if present.undo { "undone" } else { "under way" };
    Error::NotNow(format!("the evacuation of site {site} by {by} is {verb}; wait for its end, or `{undo}`"))
}

/// An evacuation without a step, that begins now.
pub(crate) fn new(site: &election_core::config::SiteId, by: &str, reason: Option<&str>) -> Evacuation {
    let mut plan = Evacuation::new(site.clone(), by, unix_ms());
    plan.reason = reason.map(str::to_owned);
    plan
}
