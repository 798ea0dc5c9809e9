//! The invariants of a single record, checked when it is written.

use std::time::Duration;

use election_core::internals::{
    Event, WriteKind, ZkOp,
    record::{AdminRequest, Cause, Current, Elected, Record, RequestRef},
};

use super::{Sim, faults, host, trace};
use crate::invariants::{
    elective_moves_in_windows, exclusions_end, fit_when_named, planned_stops_have_time,
    requests_once::Requests,
};

impl Sim {
    /// Which requests a process has read, and when first; and which members are not fit, as it has read last.
    pub(super) fn note_read(&mut self, host: usize, event: &Event) {
        let Event::SeenTree { parent, nodes, .. } = event else { return };
        let now = self.hosts[host].clock.time(self.now);
        let Some(process) = &mut self.hosts[host].process else { return };
        if *parent == self.paths.nodes() {
            process.unfit = fit_when_named::unfit(nodes.values().map(|node| &node.data));
        }
        if *parent != self.paths.requests() {
            return;
        }
        for (name, node) in nodes {
            if AdminRequest::decode(name, &node.data).is_ok() {
                let which = RequestRef { czxid: node.czxid, name: name.clone() };
                process.requests.entry(which).or_insert(now);
            }
        }
    }

    /// Whether a process may begin the request.
    pub(super) fn check_begun(&mut self, host: usize, asked: &ZkOp) {
        let ZkOp::Multi(asked) = asked else { return };
        let (WriteKind::Set { data: decision, .. } | WriteKind::Create { data: decision, .. }) =
            &asked.answer.kind
        else {
            return;
        };
        let Some((path, data)) = asked.before.iter().find_map(|write| match &write.kind {
            WriteKind::Set { data, version: Some(_) } => Some((&write.path, data)),
            _ => None,
        }) else {
            return;
        };
        let elected = Elected::decode(&self.paths.elected(), decision).ok();
        let which = elected.and_then(|elected| elected.latest()?.request.clone());
        let (Some(which), Ok(request)) = (which, AdminRequest::decode(path, data)) else { return };
        let now = self.hosts[host].clock.time(self.now);
        let read = self.hosts[host].process.as_ref().and_then(|p| p.requests.get(&which)).copied();
        let after = read.map_or(Duration::MAX, |read| now.since(read));
        let verdict = Requests::begins(&which, &request, after);
        self.require(verdict);
    }

    /// Whether a process may name whom it names in a new term.
    pub(super) fn check_named(&mut self, host: usize, asked: &ZkOp) {
        let ZkOp::Multi(asked) = asked else { return };
        let elected = fit_when_named::decision(asked, &self.paths.elected());
        let (Some(elected), Some(process)) = (elected, &self.hosts[host].process) else { return };
        // One that was deleted is written again as it was.
        let is_new = |slot| !self.checks.decided_at.contains_key(&(slot, elected.term_of(slot)));
        if (0..elected.slots.len()).any(is_new) {
            let verdict = fit_when_named::names(&elected, &process.unfit);
            self.require(verdict);
        }
    }

    /// An elector reports that a leader takes too long to release leadership.
    pub(super) fn check_overdue(&mut self, host: usize, text: &str) {
        let Some(process) = &self.hosts[host].process else { return };
        let limit = u64::try_from(process.engine.policy().release_timeout.as_millis()).unwrap_or(u64::MAX);
        let Some(elected) = process.engine.elected() else { return };
        let waits = elected
            .leaders()
            .filter(|(_, named)| text.contains(&format!("though {} is named", named.member)));
        let decided_at = |(slot, _)| self.checks.decided_at.get(&(slot, elected.term_of(slot)));
        let waited = waits.filter_map(decided_at).min().map(|since| self.now - since);
        self.summary.overdue += 1;
        self.require(waited.map_or(Ok(()), |waited| planned_stops_have_time::reported(waited, limit)));
    }

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
            for slot in 0..elected.slots.len() {
                self.checks.decided_at.entry((slot, elected.term_of(slot))).or_insert(self.now);
            }
            let before = std::mem::replace(&mut self.newest, (elected.term, elected.token_base));
            let knows_less = elected.term < before.0 || elected.token_base < before.1;
            let deleted = self.deleted.take();
            if deleted.as_ref().is_some_and(|deleted| self.forgets_requests(deleted, &elected)) {
                // As after a restore: a request without an outcome may be decided once more.
                self.checks.requests = Requests::restored(self.requests());
            }
            if deleted.is_some() && knows_less {
                self.forget(before.0);
            }
            let vacates = matches!(elected.cause(), Cause::Failover | Cause::Suspected);
            if vacates && elected.leaders().count() < elected.slots.len() {
                self.summary.vacated += 1;
            }
            self.summary.better += u64::from(elected.cause() == Cause::BetterCandidate);
            self.summary.resized += u64::from(elected.cause() == Cause::SlotsChanged);
            self.depose_by_force(&elected);
            self.check_suspicion(&elected);
            self.summary.penalties +=
                u64::from(elected.exclusions.iter().any(|e| e.reason.contains("(failure ")));
            self.summary.site_failed += u64::from(elected.cause() == Cause::SiteFailed);
            self.summary.remembered += elected.site_failures.len() as u64;
            self.summary.barred += u64::from(elected.sentence().contains("leadership returned to its site"));
            self.summary.excluded += elected.exclusions.len() as u64;
            self.summary.successions += u64::from(elected.sentence().contains("being first in line"));
            let span = u64::try_from(self.settings.policy.max_exclusion.as_millis()).unwrap_or(u64::MAX);
            let windows = &self.settings.policy.failback_windows;
            let wrong = self.wall_clocks_were_wrong;
            let verdict = self
                .checks
                .decisions
                .stands(&elected)
                .and_then(|()| self.checks.requests.decision(&elected))
                .and_then(|()| self.checks.tenures.decided(&elected))
                .and_then(|()| self.checks.slots.decided(&elected))
                .and_then(|()| self.checks.obeyed.decided(&elected))
                .and_then(|()| elective_moves_in_windows::check(&elected, windows))
                .and_then(|()| self.checks.confirmed.decided(&elected, self.settings.policy.confirm))
                .and_then(|()| self.checks.never_back.decided(&elected, &self.settings.policy))
                .and_then(|()| {
                    let check = || exclusions_end::check(&elected, unix_ms, span, 2 * faults::WALL_ERROR);
                    if wrong { Ok(()) } else { check() }
                });
            self.require(verdict);
        } else if let Some(slot) = self.paths.slot_of(path) {
            if let Ok(current) = Current::decode(path, &node.data) {
                self.checks.tenures.holds(slot, &current);
            }
        } else if let Some(name) = path.strip_prefix(&format!("{}/", self.paths.requests()))
            && let Ok(request) = AdminRequest::decode(path, &node.data)
        {
            let which = RequestRef { czxid: node.czxid, name: name.to_owned() };
            let verdict = self.checks.requests.written(&which, &request);
            self.require(verdict);
        }
    }
}
