//! Probes that are tried again and again.

use std::time::Duration;

use job_guard::{Check, ReadyProbe};

use super::{
    probe::{Tried, read_probe},
    reader::Section,
};

/// A job's check: after 17 s at most it has failed, where nothing is set.
const fn of_job(says: &'static str) -> Tried {
    Tried { says, interval: Duration::from_secs(5), timeout: Duration::from_secs(2) }
}

const LIVENESS: Tried = of_job("that the job still serves");
const FITNESS: Tried = of_job("that this member is fit to lead");
const SITE: Tried = Tried {
    says: "that the site works",
    interval: Duration::from_millis(500),
    timeout: Duration::from_secs(2),
};

/// Reads `liveness` and `fitness` of a job.
pub(super) fn read_checks(section: &mut Section<'_>) -> (Option<Check>, Option<Check>) {
    let mut read =
        |name, tried| section.optional_table(name, |section| read_of_job(section, tried)).flatten();
    (read("liveness", &LIVENESS), read("fitness", &FITNESS))
}

/// Reads `site_check` of a node; none unless it has a kind.
pub(super) fn read_site_check(section: &mut Section<'_>) -> Option<Check> {
    read_check(section, &SITE)
}

/// With the kind `none` a later layer turns a check off.
fn read_of_job(section: &mut Section<'_>, tried: &Tried) -> Option<Check> {
    if !section.has("kind") {
        section.problem("kind", "it is missing: \"exec\", \"http\" or \"tcp\"; \"none\" turns the check off");
    }
    let check = read_check(section, tried)?;
    let (interval, timeout) = check.probe.pace()?;
    if timeout > interval {
        let key = if section.has("timeout") { "timeout" } else { "interval" };
        let message = format!("the timeout of {timeout:?} is longer than the interval of {interval:?}");
        section.problem(key, format!("{message}; a try has to end before the next one"));
    }
    Some(check)
}

fn read_check(section: &mut Section<'_>, tried: &Tried) -> Option<Check> {
    let failures = section.or("failures", 3);
    if failures == 0 {
        section.problem("failures", "0 would count as failed without a try; 1 or more is valid");
    }
    let probe = read_probe(section, tried, |_| ReadyProbe::None { after: Duration::ZERO })?;
    if probe == ReadyProbe::Notify {
        section
            .problem("kind", "\"notify\" is for `ready`; valid here: \"none\", \"exec\", \"http\", \"tcp\"");
    }
    probe.pace().map(|_| Check { probe, failures })
}
