//! Probes that are tried again and again.

use job_guard::Check;

use super::{
    parse::SECOND,
    probe::{ProbeKeys, ProbeKind},
    reader::Section,
    table::{flat, table, unread, value},
};

table! {
    /// `liveness` and `fitness` of a job, and `site_check` of a node.
    #[derive(Clone)]
    pub(super) struct CheckKeys {
        /// After so many failures in a row it has failed.
        failures: u32 = 3 => value().check(|failures: &u32| {
            (*failures == 0).then(|| "0 would count as failed without a try; 1 or more is valid".to_owned())
        });
        probe: ProbeKeys = ProbeKeys::default() => flat();
        is_of_job: bool = false => unread();
    }
    check CheckKeys::check;
}

impl CheckKeys {
    /// `liveness` or `fitness` of a job: after 17 s at most it has failed, where nothing is set.
    pub(super) fn of_job() -> Self {
        Self {
            probe: ProbeKeys { interval: 5 * SECOND, ..ProbeKeys::default() },
            is_of_job: true,
            ..Self::default()
        }
    }

    /// With the kind `none` a later layer turns a check off.
    fn check(&mut self, section: &mut Section<'_>) {
        let ProbeKeys { kind, interval, timeout, .. } = self.probe;
        if kind == ProbeKind::Notify {
            section.problem(
                "kind",
                "\"notify\" is for `ready`; valid here: \"none\", \"exec\", \"http\", \"tcp\"",
            );
        }
        if !self.is_of_job {
            return;
        }
        if !section.has("kind") {
            section.problem(
                "kind",
                "it is missing: \"exec\", \"http\" or \"tcp\"; \"none\" turns the check off",
            );
        }
        if timeout > interval && !matches!(kind, ProbeKind::None | ProbeKind::Notify) {
            let key = if section.has("timeout") { "timeout" } else { "interval" };
            let message = format!("the timeout of {timeout:?} is longer than the interval of {interval:?}");
            section.problem(key, format!("{message}; a try has to end before the next one"));
        }
    }
}

impl From<CheckKeys> for Option<Check> {
    fn from(CheckKeys { failures, probe, .. }: CheckKeys) -> Self {
        Option::from(probe).map(|probe| Check { probe, failures })
    }
}
