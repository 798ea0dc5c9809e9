//! The order of a job among others: it starts after those that it comes after, and stops before them.
//!
//! A leader whose job has to wait takes over and leads without its program, as one whose job an operator has stopped: no
//! phase of a takeover waits for another election, so no elector takes the wait for a failure, and every recipe of a move goes
//! on. That the program does not run is in `halted`, for those that come after it and those that it comes after.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use election_admin::{AdminError, Attempts, Known};
use election_core::{
    Paths,
    config::MemberId,
    internals::record::{Current, Record as _},
    strategy::in_words,
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use zk_session::{MultiOp, Session};

use crate::{
    worker::state::Others,
    znodes::{Halted, HaltedProgram, WorkerPaths as _},
};

/// How long the record of what the program does may take. It is written again with the next change.
const WRITTEN_WITHIN: Duration = Duration::from_secs(3);

/// A job's place among others.
pub(super) struct Order {
    pub(super) others: Arc<Others>,
    pub(super) session: Session,
    pub(super) paths: Paths,
    pub(super) me: MemberId,
    /// The terms of the jobs before it when its program was started.
    started_in: Mutex<BTreeMap<String, u64>>,
    /// What was recorded last, and in which term.
    recorded: Mutex<Option<Halted>>,
}

impl Order {
    pub(super) fn new(others: Arc<Others>, session: Session, paths: Paths, me: MemberId) -> Self {
        Self { others, session, paths, me, started_in: Mutex::default(), recorded: Mutex::default() }
    }

    fn job(&self) -> &str {
        self.paths.name()
    }

    /// Why the program may not start now.
    pub(super) fn waits(&self) -> Option<String> {
        self.others.waits(self.job())
    }

    /// Why the program is to stop now.
    pub(super) fn must_stop(&self) -> Option<String> {
        self.others.must_stop(self.job())
    }

    /// The program is being started.
    pub(super) fn starts(&self) {
        *self.started_in.lock() = self.others.terms(self.job());
    }

    /// A job before it whose leader has changed since the program was started. One that was not known then is noted.
    pub(super) fn moved(&self) -> Option<String> {
        let mut started_in = self.started_in.lock();
        let mut moved = None;
        for (job, term) in self.others.terms(self.job()) {
            let known = started_in.entry(job.clone()).or_insert(term);
            if *known != term {
                (*known, moved) = (term, Some(job));
            }
        }
        moved
    }

    /// Waits until no program of a job after this one may run, for so long at most. Returns how long that took.
    pub(super) async fn let_others_stop(&self, term: u64, within: Duration) -> Duration {
        let since = Instant::now();
        if self.others.behind(self.job()).is_none() {
            return Duration::ZERO;
        }
        self.record(term, HaltedProgram::Stopping).await;
        let mut changes = self.others.changes();
        let stopped = async {
            while let Some(behind) = self.others.behind(self.job()).filter(|behind| !behind.is_empty()) {
                tracing::info!(job = self.job(), "waiting until {} has stopped", behind.join(" and "));
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        if timeout(within.saturating_sub(since.elapsed()), stopped).await.is_err() {
            let behind = self.others.behind(self.job()).unwrap_or_default();
            tracing::warn!(
                job = self.job(),
                "{} has not stopped within {} (planned_stop_timeout), and this job is stopped before it",
                behind.join(" and "),
                in_words(within)
            );
        }
        since.elapsed()
    }

    /// Records what the program does in this term, for the jobs after this one and for those before it.
    pub(super) async fn record(&self, term: u64, program: HaltedProgram) {
        let halted = Halted::new(term, program);
        let is_known = match &*self.recorded.lock() {
            Some(recorded) if recorded.term == term => *recorded == halted,
            // A READY leader's program runs.
            _ => program == HaltedProgram::Runs,
        };
        if is_known || !self.others.is_ordered(self.job()) {
            return;
        }
        *self.recorded.lock() = Some(halted.clone());
        let written = timeout(WRITTEN_WITHIN, self.write(&halted)).await;
        if !matches!(written, Ok(Ok(()))) {
            *self.recorded.lock() = None;
            let why = written.map_or_else(
                |_| "no answer in time".to_owned(),
                |written| written.err().map(|error| error.to_string()).unwrap_or_default(),
            );
            tracing::warn!(
                job = self.job(),
                "the jobs before and after this one do not see that its program is {program:?}: {why}"
            );
        }
    }

    /// Writes it while this member holds the leader znode of that term.
    async fn write(&self, halted: &Halted) -> Result<(), AdminError> {
        let leader_path = self.paths.leader_znode(0);
        let mut attempts = Attempts::over(&self.session);
        loop {
            let observer = attempts.look().await?;
            let leader = observer.read(&leader_path).await?;
            let held = leader.filter(|node| {
                let current = Current::decode(&leader_path, &node.data);
                current.is_ok_and(|c| c.member == self.me && c.term == halted.term)
            });
            let Some(leader) = held else { return Ok(()) };
            let known: Known<Halted> = observer.known(self.paths.halted()).await?;
            let group = [MultiOp::check(&leader_path, leader.version), known.replace(halted)?];
            if attempts.write(group).await? {
                return Ok(());
            }
        }
    }
}
