//! The exclusive right to conduct a drill of a job, and drills whose command has lost it.

use std::time::Duration;

use election_core::Paths;
use zk_session::{CreateMode, OpError, SessionId};

use super::super::output;
use crate::{
    commands::{
        Operator, asker,
        drill::{
            checks::State,
            report::{DrillEvent, DrillOutcome},
            runs,
        },
    },
    error::Error,
    typed::Typed,
    wall::{moment, unix_ms},
    znodes::{WorkerPaths as _, drills},
};

/// The pause before another id of a drill is tried: ids differ by the second.
const NEXT_SECOND: Duration = Duration::from_millis(100);

/// How long the right may take to be given up.
const UNLOCK_WITHIN: Duration = Duration::from_secs(2);

/// The exclusive right to conduct a drill of a job: a znode of this session. Returns the id of the drill.
pub(super) async fn lock(operator: &Operator, paths: &Paths) -> Result<String, Error> {
    loop {
        let run = format!("d-{}", moment(unix_ms()).replace(['-', ':'], ""));
        lock_for(operator, paths, &run).await?;
        match runs::read(&operator.incarnation().await?, paths, &run).await {
            Ok(None) => return Ok(run),
            // Members carry out each run once, so the second in which another drill began is over first.
            used => {
                unlock(operator, paths).await;
                used?;
                tokio::time::sleep(NEXT_SECOND).await;
            }
        }
    }
}

async fn lock_for(operator: &Operator, paths: &Paths, run: &str) -> Result<(), Error> {
    let incarnation = operator.incarnation().await?;
    let path = paths.drill_conductor();
    incarnation.create_parents(&path).await?;
    match incarnation.create(&path, run, CreateMode::Ephemeral).await {
        Ok(_) => Ok(()),
        Err(OpError::NodeExists { .. }) => {
            let list = Typed::verb("drill list").job(paths.name());
            Err(Error::NotNow(format!("another drill is under way; `{list}` shows it")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives that right up. What another session holds may be the right of another command: that of an earlier session of this one
/// goes with its session, as this one does if it can't be given up in time.
pub(super) async fn unlock(operator: &Operator, paths: &Paths) {
    let path = paths.drill_conductor();
    let unlocked = async {
        if let Ok(incarnation) = operator.incarnation().await
            && let Ok(Some(node)) = incarnation.get(&path).await
            && SessionId(node.stat.ephemeral_owner) == incarnation.session_id()
        {
            let _ = incarnation.delete(&path, None).await;
        }
    };
    let _ = tokio::time::timeout(UNLOCK_WITHIN, unlocked).await;
}

/// Ends the drills whose command is lost, and says so.
pub(super) async fn end_interrupted(operator: &Operator, paths: &Paths, state: &State) -> Result<(), Error> {
    for run in state.present.interrupted() {
        operator.in_time(drills::end(&operator.session, paths, &run)).await?;
        let kept = runs::read(&operator.incarnation().await?, paths, &run).await?;
        let mut by = String::new();
        if let Some(Ok(mut report)) = kept
            && report.outcome == DrillOutcome::Running
        {
            by = format!(", of {}", report.by);
            let now_ms = unix_ms();
            let leads = match state.leader() {
                Some(leader) => format!("{} of site {} leads", leader.member, leader.site),
                None => "no member leads at the moment".to_owned(),
            };
            report.outcome = DrillOutcome::Interrupted;
            report.ended_ms = Some(now_ms);
            report.sentence = format!("its command was lost; {} found and ended the drill; {leads}", asker());
            let at_ms = now_ms.saturating_sub(report.started_ms);
            let what = format!("found without its command, and ended by {}", asker());
            report.timeline.push(DrillEvent { at_ms, who: "drill".to_owned(), what });
            operator.in_time(runs::write(&operator.session, paths, &report)).await?;
        }
        output::print_warning(format_args!(
            "drill {run}{by} was interrupted: its command is lost. It is ended now"
        ));
    }
    Ok(())
}
