//! What fits together over tables: the node and its jobs, policies that name other jobs, and files that jobs write to.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use job_guard::JobOutput;
use strategies::{
    SitePolicy,
    stages::{Capacity, Share},
};

use super::{
    Config,
    balance::BALANCING,
    job::{JobConfig, Recipe},
    key::job_key,
    node::NodeConfig,
    probes::ProbesConfig,
    reader::Section,
    timing,
    zookeeper::ZooKeeperConfig,
};
use crate::znodes::PLANS;

impl Config {
    /// Checks what fits together only on a worker.
    pub(super) fn check_together(&self, root: &mut Section<'_>) {
        if let Err(wrong) = self.watchdog.check(self.zookeeper.lease()) {
            root.problem("watchdog", wrong);
        }
        self.jobs.iter().for_each(|job| self.check_beside(root, job));
        if self.jobs.is_empty() {
            root.problem("job", "no job is configured; add a section such as [job.orders] with a command");
        }
        check_jobs(root, &self.jobs, None);
        if let Some(name) = self.plans.keys().find(|name| self.drill.plans.contains_key(*name)) {
            root.problem(
                "plan",
                format!("{name:?} is also the name of [drill.{name}]; choose another name for one of them"),
            );
        }
        check_files(root, &self.jobs);
    }

    /// Checks one job as a worker with this configuration does, with all that it names.
    pub(super) fn check_job_together(&self, root: &mut Section<'_>, job: &JobConfig) {
        self.check_beside(root, job);
        check_jobs(root, &self.jobs, Some(job.name()));
    }

    /// Checks one job with the other tables.
    fn check_beside(&self, root: &mut Section<'_>, job: &JobConfig) {
        root.again("job", |jobs| {
            jobs.again(job.name(), |section| {
                if section.is_sound_at("node.site") {
                    check_site(section, &self.node, job);
                    check_limits(section, &self.node, job);
                    check_capacity(section, &self.node, job);
                }
                check_name(section, job.name());
                check_targets(section, &self.probes, job);
                if job.policy.balance {
                    check_weight(section, &self.node, job.name());
                }
                check_timing(section, &self.zookeeper, job, self.watchdog.reserve());
            });
        });
    }
}

/// A site that is not in the order of sites is likely to be a typing error.
fn check_site(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    let SitePolicy { sites, forbidden_sites: forbidden, .. } = &job.policy.who.site_policy;
    if !sites.is_empty() && !sites.contains(&node.site) && !forbidden.contains(&node.site) {
        let all: Vec<_> = sites.iter().map(|site| site.as_str()).collect();
        section.problem(
            "policy",
            format!(
                "this node's site {:?} is not in the order of sites {all:?}; correct node.site, or add it to policy.sites",
                node.site.as_str()
            ),
        );
    }
}

/// With a target that is not measured all members would be equally far away.
fn check_targets(section: &mut Section<'_>, probes: &ProbesConfig, job: &JobConfig) {
    if job.recipe != Recipe::Elector {
        return;
    }
    let needs = job.policy.needs();
    for name in needs.targets.iter().filter(|name| !probes.targets.contains_key(*name)) {
        let known: Vec<_> = probes.targets.keys().collect();
        let valid = if known.is_empty() { "none is".to_owned() } else { format!("{known:?} are") };
        section.problem(
            "policy",
            format!("it depends on the round trip to {name:?}, which is not in [probes.targets]; {valid}"),
        );
    }
}

/// The elections of a root have a neighbour.
fn check_name(section: &mut Section<'_>, job: &str) {
    if job == PLANS {
        section.problem_here(format!("{job:?} is reserved for evacuations; choose another name for the job"));
    }
}

/// Checks of a job that is balanced.
fn check_weight(section: &mut Section<'_>, node: &NodeConfig, job: &str) {
    if job == BALANCING {
        section.problem_here(format!(
            "{job:?} is reserved for the balancer's own election; choose another name for the job, or set \
             policy.balance to false"
        ));
    }
    let weight = node.attributes.get("weight");
    if let Some(text) = weight.filter(|text| !text.parse().is_ok_and(|w: u32| w <= Share::MAX_WEIGHT)) {
        section.problem(
            "policy",
            format!(
                "balance needs a whole number from 0 to {} as the weight of this node, and node.attributes.weight \
                 is {text:?}",
                Share::MAX_WEIGHT
            ),
        );
    }
}

/// A limit of an attribute that no member publishes would refuse all members.
fn check_limits(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    if job.recipe != Recipe::Elector || job.spec.measure.is_some() {
        return;
    }
    let needs = job.policy.needs();
    for name in needs.limited.iter().filter(|name| !node.attributes.contains_key(*name)) {
        section.problem(
            "policy",
            format!(
                "it limits {name:?}, which no member publishes: add [{}.measure] with a command that prints it, or \
                 set it in node.attributes",
                job_key(job.name())
            ),
        );
    }
}

pub(super) fn check_timing(
    section: &mut Section<'_>,
    zookeeper: &ZooKeeperConfig,
    job: &JobConfig,
    reserve: Duration,
) {
    if let Err(wrong) = timing::check(&job.spec, zookeeper.lease(), reserve) {
        section.problem("stop_timeout", wrong.to_string());
    }
}

/// The jobs that a job names, in its policy or in `after`, must be other jobs that are configured, and must not go round in
/// a circle. Only the problems of the job `of` are reported, if there is one.
fn check_jobs(root: &mut Section<'_>, jobs: &[JobConfig], of: Option<&str>) {
    let of_policy = |job: &JobConfig| match job.recipe {
        Recipe::Elector => job.policy.needs().jobs,
        Recipe::Queue | Recipe::Single => BTreeSet::new(),
    };
    let checked = || jobs.iter().filter(move |job| of.is_none_or(|of| of == job.name()));
    for job in checked() {
        for other in of_policy(job) {
            if let Some(wrong) = no_other(jobs, job, &other) {
                complain(
                    root,
                    job,
                    "policy",
                    &format!("it depends on the leader of {other:?}, which {wrong}"),
                );
            }
        }
        for other in &job.spec.after {
            if let Some(wrong) = no_other(jobs, job, other).or_else(|| no_order(jobs, job, other)) {
                complain(root, job, "after", &format!("it names {other:?}, which {wrong}"));
            }
        }
    }
    let named = |job: &JobConfig| -> BTreeSet<String> {
        of_policy(job).into_iter().chain(job.spec.after.iter().cloned()).collect()
    };
    let named: BTreeMap<_, _> = jobs.iter().map(|job| (job.name().to_owned(), named(job))).collect();
    for job in checked() {
        let Some(circle) = circle(&named, job.name()) else { continue };
        // One problem for all of them.
        if of.is_some() || circle.iter().min().is_some_and(|first| *first == job.name()) {
            let way: Vec<_> = circle.iter().chain(circle.first()).copied().collect();
            let message = format!(
                "these jobs depend on each other, which could go on without end: {}; name the other job in one of them only",
                way.join(" on ")
            );
            let is_after = circle.get(1).is_some_and(|next| job.spec.after.iter().any(|other| other == next));
            complain(root, job, if is_after { "after" } else { "policy" }, &message);
        }
    }
}

/// Why `other` is not another job that is configured.
fn no_other(jobs: &[JobConfig], job: &JobConfig, other: &str) -> Option<String> {
    let others: Vec<_> = jobs.iter().map(JobConfig::name).filter(|name| *name != job.name()).collect();
    match other {
        _ if other == job.name() => Some("is the job itself; name another job".to_owned()),
        _ if others.contains(&other) => None,
        _ => Some(format!("is not configured; valid: {others:?}")),
    }
}

/// Why `job` can't be ordered after `other`.
fn no_order(jobs: &[JobConfig], job: &JobConfig, other: &str) -> Option<String> {
    let both = [job, jobs.iter().find(|job| job.name() == other)?];
    let is_ordered = |job: &&JobConfig| job.recipe == Recipe::Elector && job.policy.election.slots == 1;
    let without = both.iter().find(|job| !is_ordered(job))?;
    Some(format!("needs the recipe \"elector\" and one slot in both jobs, but {:?} differs", without.name()))
}

fn complain(root: &mut Section<'_>, job: &JobConfig, key: &str, message: &str) {
    let path = ["job", job.name(), key].map(str::to_owned);
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
fn check_files(root: &mut Section<'_>, jobs: &[JobConfig]) {
    let mut files = BTreeMap::new();
    for job in jobs {
        let JobOutput::File(file) = &job.spec.output else { continue };
        if let Some(other) = files.insert(&file.path, job.name()) {
            let path = ["job", job.name(), "output", "path"].map(str::to_owned);
            let message = format!("job {other:?} writes to {} too; choose another file", file.path.display());
            root.problem_within(&path, &message);
        }
    }
}

/// A capacity that is not a number would be no limit.
fn check_capacity(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
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
