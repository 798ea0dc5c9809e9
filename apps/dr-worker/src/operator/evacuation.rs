//! `evacuate --wait`: follows an evacuation to its end.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use election_admin::AdminError;
use election_core::internals::record::Record as _;
use serde_json::Value;
use zk_session::{BootTime, sleep_until};

use super::output::{self, Output};
use crate::{
    commands::{
        evacuation::{
            course::EvacuationPhase,
            gather::JobNote,
            shown::{Evacuated, way_on},
            store,
        },
        moves::longest_of,
        operation::Election,
    },
    error::{Error, ExitCode},
    typed::Typed,
    znodes::{Evacuation, EvacuationState, WorkerPaths as _},
};

/// How long a worker may take to begin before that is reported.
const PATIENCE: Duration = Duration::from_secs(15);

/// Follows the evacuation that has just begun, or was changed, and prints each step. Each move has its own end, so by default
/// it waits as long as all of them may take one after another. `begun` is what was printed of it then.
///
/// # Errors
/// Also if it has ended otherwise than it was begun, or a job that it left out is led in the site.
pub(super) async fn follow(
    of: &Election<'_>,
    begun: &Value,
    timeout: Option<Duration>,
    how: Output,
) -> Result<(), Error> {
    let Some(mut plan) = store::read(&of.operator.session, &of.paths).await? else { return Ok(()) };
    until_ended(of, &mut plan, timeout).await?;
    let left_out: Vec<JobNote> = serde_json::from_value(begun["left_out"].clone()).unwrap_or_default();
    let is_turned = plan.undo && begun["undo"] != true;
    let (site, by) = (plan.site.clone(), plan.by.clone());
    let mut stay = Vec::new();
    if !plan.undo {
        let observer = of.operator.observer().await?;
        for JobNote { job, .. } in &left_out {
            let snapshot = observer.snapshot(&of.operator.paths(job)?).await?;
            if snapshot.leader_znodes.iter().flatten().any(|leader| leader.record.site == site) {
                stay.push(job.clone());
            }
        }
    }
    report(plan, left_out, how)?;
    let why = match stay[..] {
        _ if is_turned => format!("it was turned back by {by}"),
        [] => return Ok(()),
        _ => format!("left out, and led in site {site}: {}", stay.join(", ")),
    };
    Err(Error::Reported(ExitCode::Failed, why))
}

/// Waits until it is not under way, and prints each step. `plan` becomes what was read last, also if that is not its end.
pub(super) async fn until_ended(
    of: &Election<'_>,
    plan: &mut Evacuation,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let (session, path) = (&of.operator.session, of.paths.evacuation());
    let longest = || plan.steps.iter().map(|step| longest_of(of.operator, step)).sum::<Duration>();
    let until = BootTime::now() + timeout.unwrap_or_else(longest);
    let mut watch = session.watch_data(path.clone());
    let mut printed = BTreeMap::new();
    let mut late = pin!(tokio::time::sleep(PATIENCE));
    let mut is_early = true;
    loop {
        let seen = tokio::select! {
            seen = watch.next() => seen.map_err(AdminError::from)?,
            () = &mut late, if is_early => {
                is_early = false;
                if printed.is_empty() {
                    output::print_progress("no worker has begun a step yet; is one running?");
                }
                continue;
            }
            () = sleep_until(until) => {
                let undo = Typed::verb("evacuate").arg(&plan.site).arg("--undo");
                let way_on = match plan.undo {
                    true => "the status page of a worker shows it".to_owned(),
                    false => format!("`{undo}` undoes it"),
                };
                return Err(Error::NotNow(format!("it is not done yet, and goes on; {way_on}")));
            }
        };
        let read = seen.value.map(|node| Evacuation::decode(&path, &node.data)).transpose();
        let read = read.map_err(AdminError::from)?.filter(|read| read.at_ms == plan.at_ms);
        *plan = read.ok_or_else(|| Error::Failed("another evacuation has replaced it".to_owned()))?;
        show(plan, &mut printed);
        if plan.phase() != EvacuationPhase::Running {
            return Ok(());
        }
    }
}

/// Prints what is new of the steps.
fn show(plan: &Evacuation, printed: &mut BTreeMap<String, String>) {
    for step in plan.steps.iter().filter(|step| step.state != EvacuationState::Waiting) {
        let line = step.progress();
        if printed.get(&step.job) != Some(&line) {
            output::print_progress(format_args!("{}: {line}", step.job));
            printed.insert(step.job.clone(), line);
        }
    }
}

fn report(plan: Evacuation, left_out: Vec<JobNote>, how: Output) -> Result<(), Error> {
    let (phase, way_on) = (plan.phase(), way_on(&plan).unwrap_or_default());
    let shown = Evacuated { left_out, ..Evacuated::from(plan) };
    match how {
        Output::Json => output::print_json(&shown)?,
        Output::Pretty => output::print(shown.progress())?,
    }
    match phase {
        EvacuationPhase::Done => Ok(()),
        _ => Err(Error::Reported(ExitCode::Failed, format!("a move has failed; {way_on}"))),
    }
}
