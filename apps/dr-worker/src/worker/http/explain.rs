//! `/explain` and `/simulate`: as the verbs, with this worker's own configuration.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use election_core::config::{MemberId, SiteId};
use schemars::JsonSchema;

use super::{
    answer::{Answered, Refused, answer, refuse},
    cluster::{look, skipped, statuses},
    roles::JobQuery,
};
use crate::{
    config::{OperatorConfig, is_of_policy},
    view::{Cluster, Explained, Restartable, Simulated, WhatIf},
    wall::unix_ms,
    worker::state::Worker,
};

/// The query of `/simulate`. The others than `job` can be repeated.
#[derive(Default, JsonSchema)]
pub(super) struct Assumed {
    /// The job; it can be left out if there is only one.
    job: Option<String>,
    /// Sites that are lost.
    #[schemars(with = "Vec<String>")]
    without_site: Vec<SiteId>,
    /// Members that are lost.
    #[schemars(with = "Vec<String>")]
    without: Vec<MemberId>,
    /// Changed settings of the policy.
    set: Vec<String>,
}

pub(super) async fn explain(State(worker): State<Arc<Worker>>, Query(which): Query<JobQuery>) -> Answered {
    let seen = look(&worker, &which).await?;
    let problems = seen.problems(&worker).await?;
    let explained = Explained::new(&seen.job, &seen.snapshot, &policies(&worker, &[])?, unix_ms());
    let skipped = skipped(&worker, &statuses(&worker), &seen.job, &seen.snapshot).await;
    Ok(answer(StatusCode::OK, &Explained { skipped, problems, ..explained }))
}

/// `/can-restart`: 200 if this worker may be taken down now, else 503 and why.
pub(super) async fn can_restart(State(worker): State<Arc<Worker>>) -> Answered {
    if worker.jobs().is_empty() {
        return Ok(refuse(StatusCode::SERVICE_UNAVAILABLE, "this worker has not joined yet"));
    }
    let (config, statuses) = (policies(&worker, &[])?, statuses(&worker));
    let mut jobs = Vec::new();
    for job in worker.jobs().iter().filter(|job| !job.has_left()) {
        let seen = look(&worker, &JobQuery { job: Some(job.slot.name().to_owned()) }).await?;
        let now_ms = unix_ms();
        let explained = Explained::new(&seen.job, &seen.snapshot, &config, now_ms);
        let skipped = skipped(&worker, &statuses, &seen.job, &seen.snapshot).await;
        let cluster = Cluster::new(worker.root(), &seen.job, seen.snapshot, now_ms);
        jobs.push((Cluster { skipped, ..cluster }, explained));
    }
    let jobs = jobs.iter().map(|(cluster, explained)| (cluster, explained));
    Ok(match Restartable::new(&worker.node().id, jobs) {
        Some(judged) if judged.can_restart => answer(StatusCode::OK, &judged),
        Some(judged) => answer(StatusCode::SERVICE_UNAVAILABLE, &judged),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "this worker is not a member of any job"),
    })
}

pub(super) async fn simulate(
    State(worker): State<Arc<Worker>>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Answered {
    let (which, what_if) = read(pairs).map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?;
    let seen = look(&worker, &which).await?;
    let (now, mut then) = (policies(&worker, &[])?, policies(&worker, &what_if.set)?);
    then.others = what_if.left_of(then.others);
    let simulated = Simulated::checked(&seen.job, &seen.snapshot, what_if, &now, &then);
    Ok(answer(StatusCode::OK, &simulated.map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?))
}

/// This worker's policies, with these settings applied.
fn policies(worker: &Worker, sets: &[String]) -> Result<OperatorConfig, Refused> {
    let wrong = |problems| refuse(StatusCode::BAD_REQUEST, &format!("{problems}"));
    let mut config = worker.config().what_if(sets).map_err(wrong)?;
    config.others = worker.others().all_led();
    Ok(config)
}

/// The requested job and the assumptions.
fn read(pairs: Vec<(String, String)>) -> Result<(JobQuery, WhatIf), String> {
    let mut assumed = Assumed::default();
    for (key, value) in pairs {
        match key.as_str() {
            "job" => assumed.job = Some(value),
            "without_site" => assumed.without_site.push(SiteId::new(value).map_err(|e| e.to_string())?),
            "without" => assumed.without.push(MemberId::new(value).map_err(|e| e.to_string())?),
            "set" if is_of_policy(&value) => assumed.set.push(value),
            "set" => {
                return Err(format!(
                    "set={value}: only keys of the policy can be set, such as set=policy.auto_moves=all"
                ));
            }
            other => {
                return Err(format!("unknown parameter {other:?}; valid: job, without_site, without, set"));
            }
        }
    }
    let Assumed { job, without_site, without, set } = assumed;
    let what_if = WhatIf { without_sites: without_site, without, set };
    if what_if.is_empty() {
        return Err("give at least one of without_site=SITE, without=MEMBER and set=policy.K=V".to_owned());
    }
    Ok((JobQuery { job }, what_if))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<(JobQuery, WhatIf), String> {
        read(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn what_is_imagined_is_read_from_the_query() {
        let (which, what_if) = of(&[
            ("job", "orders"),
            ("without_site", "east"),
            ("without", "west-1"),
            ("without", "west-2"),
            ("set", "policy.auto_moves=all"),
            ("set", "job.orders.policy.min_tenure=0s"),
        ])
        .unwrap();
        assert_eq!(which.job.as_deref(), Some("orders"));
        assert_eq!((what_if.without_sites.len(), what_if.without.len(), what_if.set.len()), (1, 2, 2));
    }

    #[test]
    fn what_is_no_policy_or_not_understood_is_refused() {
        for pairs in [
            &[("set", "zookeeper.root=/x")][..],
            &[("set", "job.orders.command=['/bin/sh']")],
            &[("set", "policy")],
            &[("site", "east")],
            &[("without_site", "a/b")],
            &[("job", "orders")],
            &[],
        ] {
            assert!(of(pairs).is_err(), "{pairs:?}");
        }
    }
}
