//! The record of the last evacuation, in ZooKeeper.

use election_admin::{AdminError, Attempts, Known, Observer};
use election_core::{Paths, config::SiteId};
use zk_session::Session;

use super::{course::EvacuationPhase, shown::way_on};
use crate::{
    error::Error,
    typed::Typed,
    wall::unix_ms,
    znodes::{Evacuation, EvacuationState, WorkerPaths as _},
};

/// Reads it; `None` if there was none. `paths` are those of plans.
pub(crate) async fn read(session: &Session, paths: &Paths) -> Result<Option<Evacuation>, AdminError> {
    let incarnation = session.active().await?;
    incarnation.barrier().await?;
    let known: Known<Evacuation> = Observer::new(incarnation).known(paths.evacuation()).await?;
    Ok(known.record()?)
}

/// What becomes of an order to begin this one: it joins the one that is under way if that is the same. `None` if it is to begin,
/// or makes the one that is under way a forced one.
///
/// # Errors
/// Another one is under way; one of another site has stopped, or what it has moved has not returned.
pub(crate) fn joined(present: Option<Evacuation>, plan: &Evacuation) -> Result<Option<Evacuation>, Error> {
    let Some(present) = present else { return Ok(None) };
    match present.phase() {
        EvacuationPhase::Running if present.is_same_as(plan) => Ok(Some(present)),
        EvacuationPhase::Running if present.forced_by(plan).is_some() => Ok(None),
        EvacuationPhase::Running => Err(under_way(&present, plan)),
        EvacuationPhase::Stopped if present.site != plan.site => {
            let (site, by) = (&present.site, &present.by);
            let ways = way_on(&present).unwrap_or_default();
            Err(Error::NotNow(format!("the evacuation of site {site} by {by} has stopped: {ways}")))
        }
        // A lost site does not wait for another one.
        EvacuationPhase::Done if !plan.force => supersedes(&present, plan).map_or(Ok(None), |why| {
            let evacuate = || Typed::verb("evacuate").arg(&present.site);
            let (undo, abandon) = (evacuate().arg("--undo"), evacuate().arg("--abandon"));
            Err(Error::NotNow(format!(
                "{why}: `{undo}` moves them back, `{abandon}` leaves them where they are"
            )))
        }),
        EvacuationPhase::Stopped | EvacuationPhase::Done => Ok(None),
    }
}

/// That this one would take the move back of the present one, which is of another site, from the operator.
pub(crate) fn supersedes(present: &Evacuation, plan: &Evacuation) -> Option<String> {
    let (site, by) = (&present.site, &present.by);
    (present.site != plan.site && present.may_be_undone())
        .then(|| format!("the evacuation of site {site} by {by} has moved jobs that have not returned"))
}

/// Begins an evacuation, which gets a later time than the one before, or makes the one that is under way a forced one. Returns
/// the same one that is under way instead, if one is.
///
/// # Errors
/// Why it was not begun.
pub(crate) async fn begin(
    session: &Session,
    paths: &Paths,
    plan: &mut Evacuation,
) -> Result<Option<Evacuation>, Error> {
    let prepared = plan.clone();
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Evacuation> = observer.known(paths.evacuation()).await?;
        // One that can't be read was written by a newer program, which may carry it out.
        if let Some(present) = known.record().map_err(AdminError::from)? {
            // The reply was lost. One that this is to make a forced one has the same time.
            let is_as_wanted = (present.force, present.now) == (prepared.force, prepared.now);
            let is_same = present.at_ms == plan.at_ms && present.by == plan.by && present.site == plan.site;
            if is_same && is_as_wanted {
                return Ok(None);
            }
            if let Some(present) = joined(Some(present.clone()), &prepared)? {
                return Ok(Some(present));
            }
            *plan = present.forced_by(&prepared).unwrap_or_else(|| {
                let at_ms = prepared.at_ms.max(present.at_ms.saturating_add(1));
                let mut next = Evacuation { at_ms, ..prepared.clone() };
                next.inherit(&present);
                next
            });
        }
        known.make_parents(observer.session()).await?;
        if attempts.write([known.replace(plan).map_err(AdminError::from)?]).await? {
            return Ok(None);
        }
    }
}

/// Changes the last evacuation, which must be of the same site, and have begun at `at_ms` if that is given.
///
/// # Errors
/// Why it was not changed.
pub(crate) async fn change(
    session: &Session,
    paths: &Paths,
    named: &Evacuation,
    at_ms: Option<u64>,
    alter: fn(&mut Evacuation) -> Result<(), String>,
) -> Result<Evacuation, Error> {
    let mut attempts = Attempts::over(session);
    let mut written = None;
    loop {
        let observer = attempts.look().await?;
        let known: Known<Evacuation> = observer.known(paths.evacuation()).await?;
        let present = known.record().map_err(AdminError::from)?;
        let Some(present) = present else {
            return Err(Error::NotNow("there was no evacuation".to_owned()));
        };
        if written.as_ref() == Some(&present) {
            return Ok(present);
        }
        let plan = changed(present, named, at_ms, alter)?;
        if attempts.write([known.replace(&plan).map_err(AdminError::from)?]).await? {
            return Ok(plan);
        }
        written = Some(plan);
    }
}

fn changed(
    mut plan: Evacuation,
    named: &Evacuation,
    at_ms: Option<u64>,
    alter: fn(&mut Evacuation) -> Result<(), String>,
) -> Result<Evacuation, Error> {
    let site = &named.site;
    if plan.site != *site {
        let last = &plan.site;
        return Err(Error::NotNow(format!("the last evacuation is that of site {last}, not of {site}")));
    }
    if at_ms.is_some_and(|at_ms| plan.at_ms != at_ms) {
        let by = &plan.by;
        return Err(Error::NotNow(format!("another evacuation of site {site} has begun since, by {by}")));
    }
    alter(&mut plan).map_err(|why| Error::NotNow(format!("the evacuation of site {site}: {why}")))?;
    plan.by.clone_from(&named.by);
    if named.reason.is_some() {
        plan.reason.clone_from(&named.reason);
    }
    Ok(plan)
}

fn under_way(present: &Evacuation, wanted: &Evacuation) -> Error {
    let (site, by) = (&present.site, &present.by);
    let verb = if present.undo { "being undone" } else { "under way" };
    let why = match *site == wanted.site {
        true if present.undo => "its jobs return",
        true => "this one has other jobs or options",
        false => "only one site can be evacuated at a time",
    };
    let evacuate = Typed::verb("evacuate").arg(site);
    let way_out = match *site == wanted.site && wanted.force {
        _ if present.undo => String::new(),
        true => {
            let all = evacuate.arg("--force");
            let jobs = present.steps.iter().filter(|step| step.state != EvacuationState::Skipped);
            format!(
                ", or force it with its own jobs: `{}`",
                jobs.fold(all, |all, step| all.arg("--job").arg(&step.job))
            )
        }
        false => format!(", or turn it back with `{}`", evacuate.arg("--undo")),
    };
    Error::NotNow(format!(
        "the evacuation of site {site} by {by} is {verb}, and {why}; wait for its end{way_out}"
    ))
}

/// An evacuation without a step, that begins now.
pub(crate) fn new(site: &SiteId, by: &str, reason: Option<&str>) -> Evacuation {
    let mut plan = Evacuation::new(site.clone(), by, unix_ms());
    plan.reason = reason.map(str::to_owned);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::evacuation::course::StepOutcome, znodes::EvacuationStep};

    fn of(site: &str) -> Evacuation {
        let mut plan = Evacuation::new(site.parse().unwrap(), "ann", 1_700_000_000_000);
        plan.steps = vec![EvacuationStep::new("db", [].into())];
        plan
    }

    #[test]
    fn a_drill_does_not_turn_back_what_another_operator_has_begun() {
        let (mine, mut other) = (of("east"), of("east"));
        other.at_ms += 1;
        let turned = |of: &Evacuation, at_ms| changed(of.clone(), &mine, at_ms, Evacuation::turn_back);
        assert!(turned(&mine, Some(mine.at_ms)).unwrap().undo);
        let why = turned(&other, Some(mine.at_ms)).unwrap_err().to_string();
        assert_eq!(why, "another evacuation of site east has begun since, by ann");
        assert!(turned(&other, None).unwrap().undo, "an operator means the last one");
    }

    #[test]
    fn one_under_way_is_forced_when_the_site_is_lost_and_not_turned_back_into_it() {
        let (present, mut forced) = (of("east"), of("east"));
        forced.force = true;
        assert_eq!(joined(Some(present.clone()), &forced).unwrap(), None);
        forced.steps.clear();
        let why = joined(Some(present), &forced).unwrap_err().to_string();
        assert!(
            why.ends_with("force it with its own jobs: `dr-worker evacuate east --force --job db`"),
            "{why}"
        );
    }

    #[test]
    fn one_that_has_stopped_is_not_replaced_by_one_of_another_site() {
        let mut stopped = of("east");
        stopped.steps[0].state = EvacuationState::Failed;
        assert_eq!(joined(Some(stopped.clone()), &of("east")).unwrap(), None);
        let why = joined(Some(stopped.clone()), &of("west")).unwrap_err().to_string();
        assert!(
            why.contains("evacuate east --resume` tries again") && why.contains("east --abandon`"),
            "{why}"
        );
        stopped.abandon().unwrap();
        assert_eq!(joined(Some(stopped), &of("west")).unwrap(), None);
    }

    #[test]
    fn one_that_can_be_undone_is_replaced_by_one_of_another_site_only_if_that_is_lost() {
        let mut done = of("east");
        done.begin(0, Some(1), 1);
        done.settle(0, StepOutcome::Needless(None, "it leads there".to_owned()), 2);
        assert_eq!(joined(Some(done.clone()), &of("east")).unwrap(), None);
        let mut other = of("west");
        let why = joined(Some(done.clone()), &other).unwrap_err().to_string();
        let expected = "the evacuation of site east by ann has moved jobs that have not returned: \
                        `dr-worker evacuate east --undo` moves them back, ";
        assert!(why.starts_with(expected), "{why}");
        other.force = true;
        assert_eq!(joined(Some(done.clone()), &other).unwrap(), None);
        other.force = false;
        done.abandon().unwrap();
        assert_eq!(joined(Some(done), &other).unwrap(), None);
    }
}
