//! The order of a job among others: it starts after those that it comes after, and stops before them.
//!
//! A leader whose job has to wait takes over and leads without its program, as one whose job an operator has stopped: no
//! phase of a takeover waits for another election, so no elector takes the wait for a failure, and every recipe of a move goes
//! on. That the program does not run is in `halted`, for those that come after it and those that it comes after.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use election_admin::{AdminError, Attempts, Known, Observer};
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
    worker::state::{JobSlot, Others, Service},
    znodes::{Halted, HaltedProgram, WorkerPaths as _},
};

/// How long the record of what the program does may take. A leader that leads on tries it again.
const WRITTEN_WITHIN: Duration = Duration::from_secs(3);

/// How often a leader that stops looks at the jobs after it, if it does not see a change before.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// Where the orders and requests about a job are.
pub(super) struct Source {
    pub(super) session: Session,
    pub(super) paths: Paths,
    pub(super) me: MemberId,
}

/// A job's place among others, and its own orders.
pub(super) struct Order {
    pub(super) others: Arc<Others>,
    root: String,
    pub(super) source: Source,
    /// What the record says of the leader's program; `None` if that is not known.
    recorded: Mutex<Option<Halted>>,
    /// Whether the log has that it can't be recorded, since it last was.
    is_reported: AtomicBool,
}

impl Order {
    pub(super) fn new(others: Arc<Others>, root: String, source: Source) -> Self {
        Self { others, root, source, recorded: Mutex::default(), is_reported: AtomicBool::default() }
    }

    fn job(&self) -> &str {
        self.source.paths.name()
    }

    /// A takeover begins in this term, of which nothing is recorded.
    pub(super) fn enters(&self, term: u64) {
        *self.recorded.lock() = Some(Halted::new(term, HaltedProgram::Runs));
    }

    /// Why the program may not start now, as far as this member has seen.
    pub(super) fn waits(&self) -> Option<String> {
        self.others.waits(self.job())
    }

    /// Records that the program is being started in this term, and returns why it may not.
    ///
    /// The leader of a job before this one that is to stop does the same the other way round: it records that, and reads
    /// what this one has recorded. So at least one of the two sees the other.
    pub(super) async fn may_not_start(&self, term: u64) -> Option<String> {
        let before = self.others.before(self.job());
        if before.is_empty() {
            return None;
        }
        if let Some(why) = self.waits() {
            return Some(why);
        }
        if !self.record(term, HaltedProgram::Starting).await {
            return Some("its start can't be recorded".to_owned());
        }
        match self.look(before).await {
            Ok(services) => services.iter().find_map(|(job, service)| service.in_the_way(job)),
            Err(why) => Some(format!("the jobs before it can't be read: {why}")),
        }
    }

    /// Reads whether these jobs serve.
    async fn look(&self, jobs: Vec<String>) -> Result<Vec<(String, Service)>, String> {
        let read = async {
            let observer = Attempts::over(&self.source.session).look().await?;
            let mut services = Vec::new();
            for job in jobs {
                let service = match Paths::new(&self.root, &job) {
                    Ok(paths) => read_service(&observer, &paths).await?,
                    Err(_) => Service::Gone,
                };
                services.push((job, service));
            }
            Ok::<_, AdminError>(services)
        };
        let read = timeout(WRITTEN_WITHIN, read).await.map_err(|_| "no answer in time".to_owned())?;
        read.map_err(|why| why.to_string())
    }

    /// Why the program is to stop now.
    pub(super) fn must_stop(&self) -> Option<String> {
        self.others.must_stop(self.job())
    }

    /// Waits until the program is to stop, and returns why. Cancel safe.
    pub(super) async fn until_must_stop(&self) -> String {
        let mut changes = self.others.changes();
        loop {
            changes.mark_unchanged();
            if let Some(why) = self.must_stop() {
                return why;
            }
            if changes.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// The program is being started.
    pub(super) fn starts(&self, slot: &JobSlot) {
        let terms = self.others.terms(self.job());
        slot.started_in(|started_in| *started_in = terms);
    }

    /// A job before it whose leader has changed since the program was started. One that was not known then is noted.
    pub(super) fn moved(&self, slot: &JobSlot) -> Option<String> {
        let terms = self.others.terms(self.job());
        slot.started_in(|started_in| moved(started_in, terms))
    }

    /// Waits until no program of a job after this one may run, for so long at most. Returns how long that took.
    pub(super) async fn let_others_stop(&self, term: u64, within: Duration) -> Duration {
        let since = Instant::now();
        let mut behind = self.others.behind(self.job());
        if behind.is_empty() {
            return Duration::ZERO;
        }
        self.record(term, HaltedProgram::Stopping).await;
        let mut changes = self.others.changes();
        let stopped = async {
            loop {
                let before = Others::services_in(&changes.borrow_and_update(), &behind);
                let looked_at = behind.clone();
                match self.look(behind.clone()).await {
                    Ok(services) => {
                        let may_run = services.into_iter().filter(|(_, service)| service.may_run());
                        let may_run: Vec<_> = may_run.map(|(job, _)| job).collect();
                        if may_run != behind && !may_run.is_empty() {
                            tracing::info!(job = self.job(), "{} may still run", may_run.join(" and "));
                        }
                        behind = may_run;
                    }
                    Err(why) => tracing::debug!(job = self.job(), "can't see the jobs after it: {why}"),
                }
                if behind.is_empty() {
                    return;
                }
                // Changes of other jobs are no reason to look: many jobs stop at once, when a site is evacuated.
                let change = changes.wait_for(|seen| Others::services_in(seen, &looked_at) != before);
                let _: Result<_, _> = timeout(LOOKS_EVERY, change).await;
            }
        };
        if timeout(within.saturating_sub(since.elapsed()), stopped).await.is_err() {
            tracing::warn!(
                job = self.job(),
                "{} has not stopped within {} (planned_stop_timeout), and this job is stopped before it",
                behind.join(" and "),
                in_words(within)
            );
        }
        since.elapsed()
    }

    /// Records what the program does in this term, for the jobs after this one and for those before it. Returns whether the
    /// record says so.
    pub(super) async fn record(&self, term: u64, program: HaltedProgram) -> bool {
        let halted = Halted::new(term, program);
        let recorded = self.recorded.lock().take();
        let is_known = recorded.as_ref().is_some_and(|recorded| {
            // The program of one that has not taken over yet may run, that of a READY leader runs.
            let is_new = recorded.program == HaltedProgram::Runs && program == HaltedProgram::Starting;
            recorded.term == term && (is_new || recorded.program == program)
        });
        if is_known || !self.others.is_ordered(self.job()) {
            *self.recorded.lock() = recorded;
            return true;
        }
        let why = match timeout(WRITTEN_WITHIN, self.write(&halted)).await {
            Ok(Ok(())) => {
                *self.recorded.lock() = Some(halted);
                self.is_reported.store(false, Ordering::Relaxed);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let does = program.in_words();
            tracing::warn!(
                job = self.job(),
                "the jobs before and after this one can't see yet that its program {does}: {why}"
            );
        }
        false
    }

    /// Writes it while this member holds the leader znode of that term.
    async fn write(&self, halted: &Halted) -> Result<(), AdminError> {
        let Source { session, paths, me } = &self.source;
        let leader_path = paths.leader_znode(0);
        let mut attempts = Attempts::over(session);
        loop {
            let observer = attempts.look().await?;
            let leader = observer.read(&leader_path).await?;
            let held = leader.filter(|node| {
                let current = Current::decode(&leader_path, &node.data);
                current.is_ok_and(|c| c.member == *me && c.term == halted.term)
            });
            let Some(leader) = held else { return Ok(()) };
            let known: Known<Halted> = observer.known(paths.halted()).await?;
            let group = [MultiOp::check(&leader_path, leader.version), known.replace(halted)?];
            if attempts.write(group).await? {
                return Ok(());
            }
        }
    }
}

/// Reads whether the job at these paths serves.
async fn read_service(observer: &Observer, paths: &Paths) -> Result<Service, AdminError> {
    let leader = observer.known::<Current>(paths.leader_znode(0)).await?.record()?;
    // One that can't be read is written again by its next leader: it is none, as for what follows it.
    let halted = observer.known::<Halted>(paths.halted()).await?.record().ok().flatten();
    Ok(Service::of_leader(leader.as_ref(), halted.as_ref()))
}

fn moved(started_in: &mut BTreeMap<String, u64>, terms: BTreeMap<String, u64>) -> Option<String> {
    let mut moved = None;
    for (job, term) in terms {
        let known = started_in.entry(job.clone()).or_insert(term);
        if *known != term {
            (*known, moved) = (term, Some(job));
        }
    }
    moved
}
