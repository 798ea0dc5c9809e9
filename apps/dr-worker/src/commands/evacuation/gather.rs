//! Reads what an evacuation means for all jobs, and makes its record.

use std::collections::BTreeSet;

use election_core::internals::record::{MAX_RECORD, Record as _};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strategies::other_jobs::{LedBy, OtherJob};

use super::{
    order::{follows, layers},
    survey::{SurveyedJob, survey},
};
use crate::{
    commands::{Operator, check_sites, drill::gather::gather_election, moves},
    error::Error,
    typed::Typed,
    wall::ms,
    znodes::{Evacuation, EvacuationLeader},
};

/// How many elections are read at a time.
const READ_AT_ONCE: usize = 16;

/// What is known of a job beside its step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JobNote {
    /// The job.
    pub(crate) job: String,
    /// What it is.
    pub(crate) why: String,
}

/// An evacuation that has not begun.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Evacuation,
    /// The obstacles.
    pub(crate) obstacles: Vec<JobNote>,
    /// The jobs that are not moved.
    pub(crate) left_out: Vec<JobNote>,
}

/// Surveys these jobs, by default all, and gives the evacuation its steps in their order: that of the keys `after`, of the jobs
/// beside which others must lead, and of `order`, jobs of which each follows the one before.
///
/// # Errors
/// If ZooKeeper does not answer; if no job has to do with the site, or the jobs follow one another in a circle.
pub(crate) async fn prepare(
    operator: &Operator,
    mut plan: Evacuation,
    jobs: &[String],
    order: &[String],
) -> Result<Prepared, Error> {
    let all = operator.elections().await?;
    if let Some(unknown) = jobs.iter().chain(order).find(|job| !all.contains(job)) {
        return Err(Error::Usage(format!("unknown job {unknown}; jobs: {}", all.join(", "))));
    }
    let mut after = operator.config.moves_after();
    for pair in order.windows(2) {
        if let [before, job] = pair {
            after.entry(job.clone()).or_default().insert(before.clone());
        }
    }
    let circle =
        |jobs: Vec<String>| Error::Usage(format!("these jobs are ordered in a circle: {}", jobs.join(", ")));
    let chosen = all.into_iter().filter(|job| jobs.is_empty() || jobs.contains(job)).collect();
    let chosen = follows(&chosen, &after).and_then(|follows| layers(&follows)).map_err(circle)?;
    let (mut steps, mut obstacles, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for found in found(operator, &plan, chosen).await? {
        match found {
            (job, SurveyedJob::LeftOut(why)) => left_out.push(JobNote { job, why }),
            (job, SurveyedJob::Step(step, whys)) => {
                steps.push(*step);
                obstacles.extend(whys.into_iter().map(|why| JobNote { job: job.clone(), why }));
            }
            (_, SurveyedJob::Elsewhere) => {}
        }
    }
    if steps.is_empty() && left_out.is_empty() {
        let list = Typed::verb("list");
        return Err(Error::Usage(format!(
            "no job has a member in site {}, or the site in its policy; `{list}` shows all jobs",
            plan.site
        )));
    }
    let moving: BTreeSet<_> = steps.iter().map(|step| step.job.clone()).collect();
    let mut follows = follows(&moving, &after).map_err(circle)?;
    let layers = layers(&follows).map_err(circle)?;
    let layer = |job: &String| layers.iter().position(|layer| layer.contains(job));
    steps.sort_by_key(|step| layer(&step.job));
    for step in &mut steps {
        step.after = follows.remove(&step.job).unwrap_or_default();
    }
    plan.steps = steps;
    let bytes = plan.encode("evacuation").map_err(|error| Error::Usage(error.why))?.len();
    if plan.largest(bytes) > MAX_RECORD {
        let jobs = plan.steps.len();
        return Err(Error::Usage(format!(
            "{jobs} jobs are too many for one evacuation: name some with --job"
        )));
    }
    Ok(Prepared { plan, obstacles, left_out })
}

/// Surveys these jobs, layer by layer: one that must lead beside another finds that where it would have moved.
async fn found(
    operator: &Operator,
    plan: &Evacuation,
    layers: Vec<Vec<String>>,
) -> Result<Vec<(String, SurveyedJob)>, Error> {
    let (mut then, mut all) = (operator.clone(), Vec::new());
    for layer in layers {
        let found = stream::iter(layer).map(|job| found_of(&then, plan, job)).buffered(READ_AT_ONCE);
        let found: Vec<Result<_, Error>> = found.collect().await;
        for found in found {
            let (job, found) = found?;
            if let SurveyedJob::Step(step, _) = &found
                && let Some(EvacuationLeader { member, site }) = step.predicted.clone()
            {
                then.config.others.insert(job.clone(), OtherJob::Led(vec![LedBy { member, site }]));
            }
            all.push((job, found));
        }
    }
    Ok(all)
}

async fn found_of(
    operator: &Operator,
    plan: &Evacuation,
    job: String,
) -> Result<(String, SurveyedJob), Error> {
    let paths = operator.paths(&job)?;
    let (snapshot, state) = gather_election(operator, &paths).await?;
    let sites = [Some(&plan.site), plan.to_site.as_ref()];
    let is_known = |site: Option<&_>| check_sites(operator, &job, site, &snapshot, "");
    if let Err(why) = is_known(sites[1]) {
        return Ok((job, SurveyedJob::LeftOut(why)));
    }
    let is_known = is_known(sites[0]).is_ok();
    let mut found = survey(plan, &state, is_known);
    if let SurveyedJob::Step(step, _) = &mut found
        && moves::lacks_policy(&operator.config, &job, &snapshot).is_none()
    {
        step.longest_ms = Some(ms(moves::longest_move(operator, &job)));
    }
    Ok((job, found))
}
