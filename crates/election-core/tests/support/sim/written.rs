//! What is written, as it is written: the promises that a record alone can break.

use election_core::record::{Cause, Current, Elected, Record, Request};

use super::{Sim, faults, host, trace};
use crate::invariants::{elective_moves_in_windows, exclusions_end};

impl Sim {
    pub(super) fn check_written(&mut self, path: &str) {
        let Some(node) = self.zk.get(path).cloned() else {
            return;
        };
        let unix_ms = host::EPOCH_MS + self.now;
        if path == self.paths.elected() {
            let Ok(elected) = Elected::decode(path, &node.data) else {
                return;
            };
            self.trace.line(self.now, || format!("    elected: {}", trace::elected(&elected)));
            self.last_good_elected = Some(node.data);
            let vacates = matches!(elected.cause, Cause::Failover | Cause::Suspected);
            if vacates && elected.leaders().count() < elected.slots.len() {
                self.summary.vacated += 1;
            }
            self.summary.resized += u64::from(elected.cause == Cause::SlotsChanged);
            self.check_suspicion(&elected);
            self.summary.penalties +=
                u64::from(elected.exclusions.iter().any(|e| e.reason.contains("(failure ")));
            self.summary.site_failed += u64::from(elected.cause == Cause::SiteFailed);
            self.summary.remembered += elected.site_failures.len() as u64;
            self.summary.barred += u64::from(elected.sentence.contains("gone back to all the same"));
            self.summary.excluded += elected.exclusions.len() as u64;
            self.summary.successions += u64::from(elected.sentence.contains("being first in line"));
            let span = u64::try_from(self.settings.policy.max_exclusion.as_millis()).unwrap_or(u64::MAX);
            let windows = &self.settings.policy.failback_windows;
            let verdict = self
                .checks
                .decisions
                .stands(&elected)
                .and_then(|()| self.checks.requests.decision(&elected))
                .and_then(|()| self.checks.tenures.decided(&elected))
                .and_then(|()| self.checks.slots.decided(&elected))
                .and_then(|()| self.checks.obeyed.decided(&elected))
                .and_then(|()| elective_moves_in_windows::check(&elected, windows))
                .and_then(|()| self.checks.never_back.decided(&elected, &self.settings.policy))
                .and_then(|()| exclusions_end::check(&elected, unix_ms, span, 2 * faults::WALL_ERROR));
            self.require(verdict);
        } else if let Some(slot) = self.paths.slot_of(path) {
            if let Ok(current) = Current::decode(path, &node.data) {
                self.checks.tenures.holds(slot, &current);
            }
        } else if let Some(name) = path.strip_prefix(&format!("{}/", self.paths.requests()))
            && let Ok(request) = Request::decode(path, &node.data)
        {
            let verdict = self.checks.requests.written(name, &request);
            self.require(verdict);
        }
    }
}
