//! Checks over all jobs at once: policies that name other jobs, and files that jobs write to.

use std::collections::{BTreeMap, BTreeSet};

use job_guard::JobOutput;
use strategies::{spec::Step, stages::Capacity};

use super::{
    job::{JobConfig, Recipe},
    node::NodeConfig,
    reader::Section,
};

/// The jobs that a policy names must be other jobs that are configured, and must not make each other move without end.
pub(super) fn check_jobs(root: &mut Section<'_>, jobs: &[JobConfig]) {
    let names: BTreeSet<_> = jobs.iter().map(JobConfig::name).collect();
    let decided: Vec<_> = jobs.iter().filter(|job| job.recipe == Recipe::Elector).collect();
    for job in &decided {
        for other in &job.policy.needs().jobs {
            let others: Vec<_> = names.iter().filter(|name| **name != job.name()).collect();
            let message = if other == job.name() {
                format!("it depends on the leader of {other:?}, which is the job itself; name another job")
            } else if !names.contains(other.as_str()) {
                format!("it depends on the leader of {other:?}, which is not configured; valid: {others:?}")
            } else {
                continue;
            };
            complain(root, job, &message);
        }
    }
    // A job without automatic moves ends the circle.
    let moving: BTreeMap<_, _> = decided
        .iter()
        .filter(|job| job.policy.who.moves_by_itself())
        .map(|job| (job.name().to_owned(), job.policy.needs().jobs))
        .collect();
    for job in &decided {
        let Some(circle) = circle(&moving, job.name()) else { continue };
        // One problem for all of them.
        if circle.iter().min().is_some_and(|first| *first == job.name()) {
            let way: Vec<_> = circle.iter().chain(circle.first()).copied().collect();
            let message = format!(
                "these jobs depend on each other's leaders and all move automatically, which could go on without end: {}; \
                 name the other job in one of the policies only",
                way.join(" on ")
            );
            complain(root, job, &message);
        }
    }
}

fn complain(root: &mut Section<'_>, job: &JobConfig, message: &str) {
    let path = ["job", job.name(), "policy"].map(|key| Step::Key(key.to_owned()));
    root.problem_within(&path, message);
}

/// The shortest way from a job back to itself, by the jobs that each one names.
fn circle<'a>(named_by: &'a BTreeMap<String, BTreeSet<String>>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::from([start]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = *way.last()?;
            for next in named_by.get(last).into_iter().flatten() {
                if next == start && way.len() > 1 {
                    return Some(way);
                }
                if seen.insert(next.as_str()) {
                    longer.push(way.iter().copied().chain([next.as_str()]).collect());
                }
            }
        }
        ways = longer;
    }
    None
}

/// Two jobs in one file would be rotated by two writers.
pub(super) fn check_files(root: &mut Section<'_>, jobs: &[JobConfig]) {
    let mut files = BTreeMap::new();
    for job in jobs {
        let JobOutput::File(file) = &job.spec.output else { continue };
        if let Some(other) = files.insert(&file.path, job.name()) {
            let path = ["job", job.name(), "output", "path"].map(|key| Step::Key(key.to_owned()));
            let message = format!("job {other:?} writes to {} too; choose another file", file.path.display());
            root.problem_within(&path, &message);
        }
    }
}

/// A capacity that is not a number would be no limit.
pub(super) fn check_capacity(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    let is_number = |text: &String| text.trim().parse::<u64>().is_ok();
    let capacity = node.attributes.get(Capacity::ATTRIBUTE).filter(|text| !is_number(text));
    if let Some(text) = capacity.filter(|_| job.recipe == Recipe::Elector && job.policy.needs().load) {
        let message = format!(
            "the stage \"capacity\" needs a whole number as the capacity of this node, and node.attributes.capacity \
             is {text:?}"
        );
        section.problem("policy", message);
    }
}
