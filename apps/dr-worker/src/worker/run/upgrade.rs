//! An upgrade in place: from the request to the execution of the new program, and from its start to the report.
//!
//! Nothing is believed longer than before. The guards keep the deadline that they have, and a program that does not come up
//! renews nothing. The new engine begins paused, with the lease that was proved for this session and its leader znode in
//! doubt. The lease grows only by heartbeats of the new program over its own connection. No new session is made before the
//! jobs of the old one have ended, and a program that fails on its way ends without closing the session: the last guard does
//! that. Until the execution succeeds nothing has changed, so the old program goes on after any failure.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::Path,
    time::Duration,
};

use election_core::{
    Election,
    status::{HandedOver, Role},
};
use futures_util::future::join_all;
use job_guard::{HandedRun, NoOthers, StateLock};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use zk_session::{BootTime, Session};

use crate::{
    checked::Files,
    config::WatchdogMode,
    logging,
    program::file,
    signals,
    worker::{
        descriptors,
        job::HandedStandby,
        state::{HandedSlot, Job, Reload, Worker},
        unsent,
        upgrade::{
            FORMAT,
            check::{self, ResumeQuestion},
            report::{Continued, Progress, UpgradeReport},
            transfer::{Descriptors, Handed, HandedJob, execute},
        },
    },
};

/// How long to wait until nothing is under way.
const REST_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// How long the last lines of the log and of jobs may take.
const LAST_LINES: Duration = Duration::from_millis(50);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a running worker needs for an upgrade.
pub(super) struct Upgrades {
    pub(super) lock: StateLock,
    /// A second descriptor of the listener; none before the worker listens.
    listener: Mutex<Option<OwnedFd>>,
    /// Whether this process may execute another program: not beside an embedded server.
    pub(super) is_possible: bool,
}

/// Why the worker goes on as it is.
pub(super) type UpgradeRefusal = (Progress, String);

/// What this process executes.
pub(super) struct NextProgram<'a> {
    pub(super) file: &'a Path,
    /// The files of the configuration that it was checked with.
    pub(super) files: Files,
    pub(super) attempt: u64,
    /// The reload for which this program executes itself.
    pub(super) reload: Option<Reload>,
}

impl Upgrades {
    pub(super) fn new(lock: &StateLock, is_possible: bool) -> io::Result<Self> {
        // The file may be replaced while the worker runs.
        file()?;
        Ok(Self { lock: lock.clone(), listener: Mutex::default(), is_possible })
    }

    /// The worker listens from now on.
    pub(super) fn listens(&self, listener: &TcpListener) {
        match listener.as_fd().try_clone_to_owned() {
            Ok(listener) => *self.listener.lock() = Some(listener),
            Err(error) => {
                tracing::error!(%error, "no descriptor is left for the listener: the worker can't be upgraded")
            }
        }
    }

    /// Upgrades this worker. Returns only if it goes on as it is, and has reported why.
    ///
    /// # Cancel safety
    /// Dropped, the worker goes on.
    pub(super) async fn attempt(&self, worker: &Worker, session: &Session) {
        let last = UpgradeReport::read(self.lock.path()).map_or(0, |report| report.attempt);
        let now = u64::try_from(BootTime::now().as_duration().as_millis()).unwrap_or(u64::MAX);
        let mut report = UpgradeReport {
            attempt: now.max(last + 1),
            progress: Progress::Begun,
            message: String::new(),
            from: VERSION.to_owned(),
            to: String::new(),
            jobs: Vec::new(),
        };
        write(&report, self.lock.path());
        let (progress, message) = self.replace(worker, session, &mut report).await;
        tracing::warn!("not upgraded; the worker goes on: {message}");
        (report.progress, report.message) = (progress, message);
        write(&report, self.lock.path());
    }

    async fn replace(
        &self,
        worker: &Worker,
        session: &Session,
        report: &mut UpgradeReport,
    ) -> UpgradeRefusal {
        if let Err(why) = self.may_execute(worker) {
            return (Progress::Refused, why);
        }
        let file = match file() {
            Ok(file) => file,
            Err(error) => return (Progress::Refused, format!("this program's file is unknown: {error}")),
        };
        let asked = version_of(file);
        let (version, files) = match ResumeQuestion::about(worker, worker.lasting_jobs()).ask(file).await {
            Ok(answer) => answer,
            Err(refusal) => return refusal,
        };
        report.to = version;
        write(report, self.lock.path());
        tracing::info!(from = VERSION, to = report.to, file = %file.display(), "upgrading in place");
        let is_same = || {
            let why = || format!("{} was replaced after it had accepted: try again", file.display());
            if version_of(file) == asked { Ok(()) } else { Err(why()) }
        };
        let next = NextProgram { file, files, attempt: report.attempt, reload: None };
        self.execute_at_rest(worker, session, &next, is_same).await
    }

    /// Whether this process may execute a program with this worker's jobs.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn may_execute(&self, worker: &Worker) -> Result<(), String> {
        if !self.is_possible {
            return Err("the embedded server would end with this program".to_owned());
        }
        if worker.config().watchdog.mode != WatchdogMode::Off {
            let why = "watchdog.mode is not \"off\": the device resets this machine if the program that opened it is \
                       replaced; restart the worker instead";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// Waits until nothing is under way, and executes the program. Returns only if the worker goes on as it is.
    pub(super) async fn execute_at_rest(
        &self,
        worker: &Worker,
        session: &Session,
        next: &NextProgram<'_>,
        is_same: impl Fn() -> Result<(), String>,
    ) -> UpgradeRefusal {
        // One that is not ready is started again by the next program, which may take it hours. So it is stopped only once nothing
        // else is in the way.
        let standbys = || worker.lasting_jobs().filter_map(|job| job.slot.standby());
        let unready = || standbys().filter(|standby| !standby.is_ready());
        let mut resting = unready().next().is_none().then(Vec::new);
        let (mut by, mut is_warned) = (Instant::now() + REST_WITHIN, false);
        loop {
            let why = match self.hold(worker, session, next, resting.is_none()).await {
                Ok(held) if resting.is_none() => {
                    drop(held);
                    resting = Some(join_all(unready().map(|standby| standby.rest())).await);
                    by = Instant::now() + REST_WITHIN;
                    continue;
                }
                Ok(held) => match is_same() {
                    Ok(()) => {
                        if !std::mem::replace(&mut is_warned, true) {
                            unsent::warn_of_loss();
                        }
                        let Err(why) = held.execute(next.file);
                        why
                    }
                    Err(why) => return (Progress::NotNow, why),
                },
                Err(why) => why,
            };
            if why.0 != Progress::NotNow || Instant::now() >= by {
                return why;
            }
            tracing::debug!("no upgrade yet: {}", why.1);
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    /// Holds all elections and jobs, if all are at rest; without the standbys that are not ready if they `may_rest`.
    async fn hold(
        &self,
        worker: &Worker,
        session: &Session,
        next: &NextProgram<'_>,
        may_rest: bool,
    ) -> Result<HeldWorker, UpgradeRefusal> {
        let not_now = |why: String| (Progress::NotNow, why);
        // The next program reads from it before it renews a lease.
        if let Some(why) = worker.disk().now() {
            return Err(not_now(why));
        }
        let no_listener = || not_now("the worker does not listen at http.listen yet".to_owned());
        if self.listener.lock().is_none() {
            return Err(no_listener());
        }
        // Its znodes would be left in the session, and a new part in its election would wait for their end.
        if let Some(job) = worker.jobs().iter().find(|job| job.is_leaving()) {
            return Err(not_now(format!("job {}: this member leaves its election", job.slot.name())));
        }
        let jobs: Vec<_> = worker.lasting_jobs().collect();
        let elections = join_all(jobs.iter().map(|job| job.election.hand_over())).await;
        let (mut held, mut handed) = (Vec::new(), Vec::new());
        for (job, election) in jobs.iter().zip(elections) {
            let name = job.slot.name();
            match election {
                Ok(election) => held.push((job, election)),
                Err(why) => return Err(not_now(format!("job {name}: {why}"))),
            }
        }
        let runnings =
            join_all(held.iter().map(|(job, election)| hand_over_job(job, election, may_rest))).await;
        let (mut runs, mut elections) = (Vec::new(), Vec::new());
        for ((job, election), running) in held.into_iter().zip(runnings) {
            let name = job.slot.name().to_owned();
            let (slot, standby) = running.map_err(|why| not_now(format!("job {name}: {why}")))?;
            let slot = slot.map(|(mut slot, run)| {
                slot.run = run.as_ref().map(|run| run.state.clone());
                runs.extend(run);
                slot
            });
            let (standby, run) = standby.unzip();
            runs.extend(run.flatten());
            handed.push(HandedJob { name, election: election.resumption().clone(), slot, standby });
            elections.push(election);
        }
        let Some(incarnation) = session.incarnation() else {
            return Err(not_now("there is no session".to_owned()));
        };
        if handed.iter().any(|job| job.election.session_id() != incarnation.session_id().0) {
            return Err(not_now("the session has changed".to_owned()));
        }
        let handed = Handed {
            format: FORMAT,
            attempt: next.attempt,
            from: VERSION.to_owned(),
            listen: worker.config().http.listen.to_string(),
            open_files: descriptors::started_with(),
            files: next.files.clone(),
            // After all elections are held: what they have read is not newer.
            session: incarnation.ticket(),
            jobs: handed,
            file: next.reload.is_some().then(|| file().ok().map(Path::to_owned)).flatten(),
            reload: next.reload.clone(),
            balances: worker.balancer().is_some(),
            signals: Vec::new(),
        };
        let cloned = |error: io::Error| not_now(format!("no descriptors are left: {error}"));
        let listener = self.listener.lock().as_ref().map(OwnedFd::try_clone);
        let listener = listener.transpose().map_err(cloned)?.ok_or_else(no_listener)?;
        let of_runs = runs.iter_mut().flat_map(|run| std::mem::take(&mut run.descriptors)).collect();
        let descriptors =
            Descriptors { lock: self.lock.hand_over().map_err(cloned)?, listener, runs: of_runs };
        Ok(HeldWorker { handed, descriptors, elections, runs })
    }
}

/// What differs between two files that a path has had in turn; `None` if there is none.
fn version_of(file: &Path) -> Option<impl PartialEq + use<>> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// What a job runs: of its leadership, and as a standby.
type HandedRunning = (Option<(HandedSlot, Option<HandedRun>)>, Option<(HandedStandby, Option<HandedRun>)>);

async fn hand_over_job(job: &Job, election: &HandedOver, may_rest: bool) -> Result<HandedRunning, String> {
    let slot = hand_over_slot(job, election).await?;
    let standby = match job.slot.standby().filter(|standby| !may_rest || standby.is_ready()) {
        Some(standby) => Some(standby.hand_over().await?),
        None => None,
    };
    Ok((slot, standby))
}

/// Hands a job over, if this member leads it and the lease leaves time for a new program.
async fn hand_over_slot(
    job: &Job,
    election: &HandedOver,
) -> Result<Option<(HandedSlot, Option<HandedRun>)>, String> {
    let resumption = election.resumption();
    if resumption.leadership().is_none() {
        return Ok(None);
    }
    let granted = resumption.granted();
    let needed = job.slot.stop_budget() + Duration::from_secs(1).min(granted / 8);
    let lease = resumption.lease().map(BootTime::from_duration);
    if lease.is_none_or(|lease| BootTime::now() + needed > lease) {
        return Err("its lease is about to be renewed".to_owned());
    }
    job.slot.hand_over().await.map(Some)
}

/// A worker whose elections and jobs do nothing. Dropped, they continue.
struct HeldWorker {
    handed: Handed,
    descriptors: Descriptors,
    elections: Vec<HandedOver>,
    runs: Vec<HandedRun>,
}

impl HeldWorker {
    /// Executes the new program. Nothing waits here, so the state that was handed over is the state at the execution.
    fn execute(mut self, file: &Path) -> Result<std::convert::Infallible, UpgradeRefusal> {
        job_guard::flush_output(LAST_LINES);
        logging::flush(LAST_LINES);
        let guards: Vec<i32> = self.runs.iter().flat_map(|run| run.state.guards()).collect();
        let _no_others: NoOthers = job_guard::no_guards_but(&guards).map_err(|others| {
            (Progress::NotNow, format!("{others} hooks, probes or measurements of jobs are running"))
        })?;
        let is_held =
            self.elections.iter().all(HandedOver::is_held) && self.runs.iter().all(HandedRun::is_held);
        if !is_held {
            return Err((Progress::NotNow, "this machine is too slow at the moment".to_owned()));
        }
        // A second request for an upgrade is met by this one.
        let is_upgrade = self.handed.reload.is_none();
        let unobeyed = signals::unobeyed().filter(|(name, _)| !(is_upgrade && *name == signals::UPGRADE));
        let (names, unobeyed): (Vec<_>, Vec<_>) = unobeyed.unzip();
        self.handed.signals = names.into_iter().map(|name| name as i32).collect();
        let arguments = check::arguments().chain([check::RESUME.into()]);
        let error = execute(file, arguments, &self.handed, &self.descriptors, &unobeyed);
        Err((Progress::Refused, format!("{} can't be executed: {error}", file.display())))
    }
}

/// A leadership that the new program has to continue.
pub(super) struct Expected {
    pub(super) election: Election,
    pub(super) continued: Continued,
    /// The end of the lease that was handed over.
    pub(super) lease: Option<BootTime>,
    /// Whether a decision names the leader, and must be read again.
    pub(super) has_elector: bool,
}

/// Reports the outcome of an upgrade once it is known: whether every leadership continues on a lease of this program.
pub(super) fn conclude(
    handed: &Handed,
    expected: Vec<Expected>,
    lock: &StateLock,
    within: Duration,
    background: &mut JoinSet<()>,
) {
    let mut report = UpgradeReport {
        attempt: handed.attempt,
        progress: Progress::Done,
        message: String::new(),
        from: handed.from.clone(),
        to: VERSION.to_owned(),
        jobs: expected.iter().map(|expected| expected.continued.clone()).collect(),
    };
    let (lock, is_upgrade) = (lock.path().to_owned(), handed.reload.is_none());
    background.spawn(async move {
        let lost = join_all(expected.into_iter().map(|expected| continues(expected, within))).await;
        let lost: Vec<String> = lost.into_iter().flatten().collect();
        let (from, to, led) = (report.from.as_str(), report.to.as_str(), report.jobs.len());
        let done = if is_upgrade { "upgraded in place" } else { "re-executed itself for the reload" };
        if lost.is_empty() {
            tracing::info!(from, to, led, "{done}; leaderships that continue: {led}");
        } else {
            (report.progress, report.message) = (Progress::Failed, lost.join("; "));
            tracing::error!(from, to, "{done}, but {}", report.message);
        }
        if is_upgrade {
            write(&report, &lock);
        }
    });
}

fn write(report: &UpgradeReport, lock: &Path) {
    if let Err(error) = report.write(lock) {
        tracing::warn!(%error, "can't write the report of an upgrade beside the lock");
    }
}

/// Why a leadership does not continue, if it does not.
async fn continues(expected: Expected, within: Duration) -> Option<String> {
    let Expected { election, continued, lease, has_elector } = expected;
    let mut status = election.status();
    let decided = async {
        loop {
            let now = status.now();
            if now.role != Role::Leader || now.fencing_token != Some(continued.fencing_token) {
                return Some(format!("the leadership of job {} has ended: {}", continued.job, now.note));
            }
            let is_renewed = now.work_until > lease;
            if is_renewed && now.elected.is_some() == has_elector && now.term == continued.term {
                return None;
            }
            if status.changed().await.is_none() {
                return Some(format!("the election of job {} has ended", continued.job));
            }
        }
    };
    let late = || Some(format!("the lease of job {} was not renewed within {within:?}", continued.job));
    tokio::time::timeout(within, decided).await.unwrap_or_else(|_| late())
}
