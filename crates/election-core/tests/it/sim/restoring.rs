//! An ensemble that is restored from an older copy as a whole. Later writes are lost, the sessions of that time exist
//! again, and zxids go back. The servers elect a leader, so zxids continue in the epoch after that of the copy. If
//! clients have seen no later epoch than that, a client whose session is in the copy resumes it, although later writes
//! are lost. A client that has seen more than the servers have is rejected until they have it, or its session is over.
//!
//! The resource keeps its state. A member that has seen the latest state raises the tokens above it. If no such member
//! still runs, an operator must raise them.

use std::collections::BTreeSet;

use election_core::internals::record::{AdminRequest, Elected, Record as _, RequestRef};

use super::{Due, Sim};
use crate::{
    invariants::{requests_once::Requests, tokens_above_their_base::Raised},
    zookeeper::{Ensemble, Millis},
};

/// What is restored after the ensemble has been down for a given time.
#[derive(Debug)]
pub(crate) struct Restoring {
    briefly: bool,
    not_before: Millis,
    copy: Box<Ensemble>,
    lost: Lost,
    /// The decision when the ensemble was stopped, and the transaction that wrote it.
    decision: Option<(Elected, i64)>,
}

/// A decision that was deleted.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// The creation of the latest request that was decided.
    last_request: Option<i64>,
    /// Who has read that, host and life.
    readers: BTreeSet<(usize, u64)>,
}

/// What has been restored does not know of it.
#[derive(Debug)]
pub(crate) struct Lost {
    /// The newest token that the resource has seen.
    token: u64,
    /// Who has seen it as well, host and life.
    pub(super) knowing: BTreeSet<(usize, u64)>,
    /// An operator has raised the tokens above it. Who entered before that is refused all the same.
    recalled: bool,
}

impl Sim {
    /// A copy is made, and restored after a while.
    pub(super) fn copy(&mut self) {
        let delay = self.rng.u64(0..30_000);
        self.after(delay, Due::Restore(Box::new(self.zk.clone()), false));
    }

    /// The ensemble is stopped: for longer than any lease lasts, or briefly. Leases may then be those of leaders that the
    /// copy does not know.
    pub(super) fn stop_to_restore(&mut self, copy: Box<Ensemble>, briefly: bool) {
        if self.is_calm() || self.outage {
            return;
        }
        let token = self.resource.newest();
        let knows = |host: &usize| {
            let Some(process) = &self.hosts[*host].process else { return false };
            let engine = &process.engine;
            let leaders = engine.leaders().flatten().filter_map(|current| current.fencing_token);
            engine.elected().map(|elected| elected.term) == Some(self.newest.0)
                && leaders.chain(engine.fencing_token()).max() >= Some(token)
        };
        let knowing = self.hosts_that(knows);
        let decision = self.decision_in(&self.zk);
        let lasts = if briefly {
            self.rng.u64(1..500)
        } else {
            self.settings.timeout * 21 / 20 + self.rng.u64(0..3000)
        };
        self.summary.lost_tails += u64::from(briefly);
        self.restoring = Some(Restoring {
            briefly,
            not_before: self.now + lasts,
            copy,
            lost: Lost { token, knowing, recalled: false },
            decision,
        });
        self.outage(lasts);
    }

    /// The ensemble is about to start again.
    pub(super) fn restore(&mut self) {
        let Some(Restoring { copy, mut lost, decision, briefly, .. }) =
            self.restoring.take().filter(|r| self.now >= r.not_before)
        else {
            return;
        };
        let token = self.resource.newest();
        if lost.token < token {
            // A member that still had its lease has entered after the ensemble was stopped.
            lost.token = token;
            lost.knowing.retain(|(host, life)| {
                let host = &self.hosts[*host];
                let own = host.process.as_ref().and_then(|p| p.engine.fencing_token());
                host.life == *life && own == Some(token)
            });
        }
        // Without an elector there is no base of the tokens, so the number of the ensemble's epochs must be kept.
        let keeps_epoch = briefly || !self.has_elector() || self.rng.bool();
        if briefly {
            self.depose_all();
            // Sessions that were closed meanwhile are there again, and expire.
            self.agenda.retain(|_, due| !matches!(due, Due::Leftovers { .. }));
        }
        // Members compare decisions. They miss nothing if no other one was made since the copy, and only a leader znode was
        // created again; or if the copy is from before an earlier restore, and its decision has a later term.
        let both = decision.zip(self.decision_in(&copy));
        if both.is_some_and(|((known, known_mzxid), (copied, mzxid))| {
            copied.term >= known.term
                && copied.token_base >= known.token_base
                && (mzxid >= known_mzxid || copied.token_base >= lost.token)
        }) {
            lost.knowing.clear();
        }
        let (changed, revived) = self.zk.restore(*copy, keeps_epoch);
        self.trace.line(self.now, || format!("    administrator: the ensemble is restored: {lost:?}"));
        self.summary.restored += 1;
        for session in revived {
            self.expire_later(session);
        }
        // The ensemble was down for longer than the session of a command lasts. A later session reads again.
        for due in self.agenda.values_mut() {
            if let Due::Operator(errand) = due {
                errand.look_again();
            }
        }
        for host in &mut self.hosts {
            host.net.minority = None;
            // A request that had begun or ended is pending again.
            host.process.iter_mut().for_each(|process| process.requests.clear());
        }
        self.checks.fencing.clear();
        self.checks.requests = Requests::restored(self.requests());
        self.checks.raised = Raised::default();
        self.checks.decisions.deleted();
        self.checks.slots.deleted();
        self.checks.tenures.restored();
        let restored = self.read::<Elected>(&self.paths.elected()).map(|(elected, _)| elected);
        let term = restored.as_ref().map_or(0, |elected| elected.term);
        self.checks.never_back.restored(term);
        self.probing.restored(term);
        if let Some(elected) = restored {
            self.checks.requests.found(&elected);
            // The decision that was deleted is back, or one before it: nothing was forgotten by its deletion.
            self.deleted = None;
        }
        self.newest = (0, 0);
        self.lost = Some(lost);
        self.changed(&changed);
    }

    fn decision_in(&self, zk: &Ensemble) -> Option<(Elected, i64)> {
        let path = self.paths.elected();
        let node = zk.get(&path)?;
        Some((Elected::decode(&path, &node.data).ok()?, node.mzxid))
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = (RequestRef, AdminRequest)> {
        self.zk.tree_at(&self.paths.requests(), self.zk.zxid()).into_iter().filter_map(|(name, node)| {
            let request = AdminRequest::decode(&name, &node.data).ok()?;
            Some((RequestRef { czxid: node.czxid, name }, request))
        })
    }

    /// The decision is about to be deleted.
    pub(super) fn note_deletion(&mut self) {
        let last_request = self.read::<Elected>(&self.paths.elected()).and_then(|(e, _)| e.last_request);
        let has_read = |host: &usize| {
            let known = self.hosts[*host].process.as_ref().and_then(|p| p.engine.elected());
            known.is_some_and(|elected| elected.last_request >= last_request)
        };
        let readers = self.hosts_that(has_read);
        self.deleted = Some(Deleted { last_request, readers });
    }

    /// Whether it is unknown by now which requests were decided: the decision with that information was deleted before
    /// any member read it, or the members that read it have ended since.
    pub(super) fn forgets_requests(&self, deleted: &Deleted, elected: &Elected) -> bool {
        elected.last_request < deleted.last_request
            && !deleted.readers.iter().any(|reader| self.is_up(*reader))
    }

    /// The author of the next decision remembers less than term `term`, or nothing. Terms and tokens begin again, and
    /// the resource refuses them, until the members that remember more have published it. If none of them still runs,
    /// an operator must.
    pub(super) fn forget(&mut self, term: u64) {
        let token = self.resource.newest();
        let knows = |host: &usize| {
            let remembered = self.hosts[*host].process.as_ref().and_then(|p| p.engine.remembers());
            remembered.is_some_and(|remembered| remembered.term >= term && remembered.token >= token)
        };
        self.lost = Some(Lost { token, knowing: self.hosts_that(knows), recalled: false });
        // It is unknown what was decided.
        self.checks.requests = Requests::default();
        self.checks.fencing.clear();
        self.checks.raised = Raised::default();
        self.summary.forgotten += 1;
    }

    fn hosts_that(&self, knows: impl Fn(&usize) -> bool) -> BTreeSet<(usize, u64)> {
        (0..self.hosts.len()).filter(knows).map(|host| (host, self.hosts[host].life)).collect()
    }

    /// Whether this process still runs.
    fn is_up(&self, (host, life): (usize, u64)) -> bool {
        self.hosts[host].life == life && self.hosts[host].process.is_some()
    }

    /// Whether the resource may refuse a token although no member has had a newer one since.
    pub(super) fn is_lost(&self, token: u64) -> bool {
        self.lost.as_ref().is_some_and(|lost| token <= lost.token)
    }

    /// An operator enters what the resource has seen, if no member knows it any longer.
    pub(super) fn recall_tokens(&mut self) {
        let is_known = |lost: &Lost| lost.recalled || lost.knowing.iter().any(|knowing| self.is_up(*knowing));
        let forgotten = self.lost.as_ref().is_some_and(|lost| !is_known(lost));
        if forgotten
            && self.raise_tokens(0)
            && let Some(lost) = &mut self.lost
        {
            lost.recalled = true;
        }
    }
}
