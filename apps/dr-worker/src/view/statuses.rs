//! Asks the workers of members what no znode has. Why the elector of a job decides nothing: only the elector knows some of the
//! times that it waits for, such as since when a member has been better. Whether the leader leads. What keeps a worker from
//! starting its jobs. Without a prompt answer the result is unknown.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use election_admin::Snapshot;
use election_core::{
    internals::{
        record::{AdminRequest, Current, MemberRecord},
        text::shown,
    },
    status::Skipped,
};
use futures_util::{StreamExt as _, future::ready, stream};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    sync::{OnceCell, Semaphore},
    time::timeout,
};

use super::problems::ProblemRow;
use crate::{wall::moment, workers::Workers};

/// The timeout of the question.
const PATIENCE: Duration = Duration::from_millis(700);
/// How many workers are asked at a time.
const ASKED_AT_ONCE: usize = 64;
/// The longest answer, in bytes: that of a worker with thousands of jobs is shorter.
const MAX_ANSWER: usize = 16 << 20;

/// A planned stop of the job on a leader that may take longer than another stop (`planned_stop_timeout`). Times are in
/// milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStop {
    /// The leader.
    pub member: String,
    /// When the stop began.
    pub since_ms: u64,
    /// When the job is killed, unless it has ended.
    pub until_ms: u64,
}

/// The standby of a job on a member that does not lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StandbyRow {
    /// The member.
    pub member: String,
    /// The state of its process.
    pub state: String,
    /// Its main process, while there is one.
    pub pid: Option<u64>,
}

/// One of several processes of a job on its leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessRow {
    /// The leader.
    pub member: String,
    /// Its name in the job.
    pub process: String,
    /// Its state.
    pub state: String,
    /// Its main process, while there is one.
    pub pid: Option<u64>,
    /// How often it has ended and was restarted.
    pub restarts: u64,
}

impl fmt::Display for ProcessRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, process, state, pid, restarts } = self;
        write!(f, "process {process} on {member}: {state}")?;
        pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))?;
        match restarts {
            0 => Ok(()),
            times => write!(f, ", ended {times} times"),
        }
    }
}

impl fmt::Display for StandbyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, state, pid } = self;
        write!(f, "standby on {member}: {state}")?;
        pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))
    }
}

impl fmt::Display for PlannedStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, since_ms, until_ms } = self;
        write!(
            f,
            "{member} is stopping the job since {}, until {} at most",
            moment(*since_ms),
            moment(*until_ms)
        )
    }
}

/// The answers of workers. Each worker is asked once, for all jobs.
#[derive(Debug)]
pub(crate) struct WorkerStatuses {
    /// `None`: no question can be asked.
    workers: Option<Workers>,
    /// The places of questions that share a budget of file descriptors.
    places: Option<&'static Semaphore>,
    answers: Mutex<HashMap<String, Arc<OnceCell<Option<Value>>>>>,
}

/// Why the elector of this election decides nothing. `None` if it can't be reached, is no elector any more, or has
/// something to do.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn skipped(workers: Option<Workers>, job: &str, snapshot: &Snapshot) -> Option<Skipped> {
    WorkerStatuses::new(workers).skipped(job, snapshot).await
}

impl WorkerStatuses {
    pub(crate) fn new(workers: Option<Workers>) -> Self {
        Self { workers, places: None, answers: Mutex::default() }
    }

    /// The same; each question waits for one of these places.
    pub(crate) fn sharing(workers: Workers, places: &'static Semaphore) -> Self {
        Self { places: Some(places), ..Self::new(Some(workers)) }
    }

    /// The same, with the answer that its worker has given for another job, if there is one.
    pub(crate) async fn skipped(&self, job: &str, snapshot: &Snapshot) -> Option<Skipped> {
        let elector = snapshot.elector()?;
        let record = snapshot.members.iter().find(|m| m.member == *elector)?;
        let status = self.of(record).await?;
        if status["jobs"][job]["elector"] != true {
            return None;
        }
        serde_json::from_value(status["jobs"][job]["skipped"].clone()).ok()
    }

    /// Which members of this election start no job now, and why.
    pub(crate) async fn problems(&self, snapshot: &Snapshot) -> Vec<ProblemRow> {
        let asked = snapshot.members.iter().map(|record| async move {
            let status = self.of(record).await?;
            Some(ProblemRow {
                kind: "starts-no-job",
                sentence: format!("{}: {}", record.member, shown(status["problem"].as_str()?)),
                command: None,
            })
        });
        // As in `standbys`.
        let asked: Vec<_> = asked.collect();
        stream::iter(asked).buffered(ASKED_AT_ONCE).filter_map(ready).collect().await
    }

    /// The planned stops that are under way on leaders of this election. Only leaders are asked that may have one.
    pub(crate) async fn planned_stops(&self, job: &str, snapshot: &Snapshot) -> Vec<PlannedStop> {
        let is_open = |request: &AdminRequest| !request.kind.is_move() && !request.state.is_final();
        let is_ordered = snapshot.control.stopped.is_some()
            || snapshot.requests.iter().any(|filed| is_open(&filed.request));
        let mut stops = Vec::new();
        for (slot, znode) in snapshot.leader_znodes.iter().enumerate() {
            let Some(leader) = znode.as_ref().map(|znode| &znode.record) else { continue };
            let named = snapshot.decided().and_then(|elected| elected.named(slot));
            let is_ending = is_ordered || named.is_none_or(|named| named.ballot != leader.ballot);
            let record = snapshot.members.iter().find(|member| is_ending && member.ballot == leader.ballot);
            let Some(record) = record else { continue };
            let Some(mut status) = self.of(record).await else { continue };
            let stop = status["jobs"][job]["planned_stop"].take();
            if let Ok(Some(PlannedStop { member, since_ms, until_ms })) = serde_json::from_value(stop) {
                stops.push(PlannedStop { member: shown(&member).to_string(), since_ms, until_ms });
            }
        }
        stops
    }

    /// The standbys of the job, as far as their workers answered.
    pub(crate) async fn standbys(&self, job: &str, snapshot: &Snapshot) -> Vec<StandbyRow> {
        let asked = snapshot.members.iter().map(|record| async move {
            let status = self.of(record).await?;
            let standby = &status["jobs"][job]["standby"];
            Some(StandbyRow {
                member: record.member.to_string(),
                state: shown(standby["state"].as_str()?).to_string(),
                pid: standby["pid"].as_u64(),
            })
        });
        // The future of a closure can't be sent to another thread, that of its results can.
        let asked: Vec<_> = asked.collect();
        stream::iter(asked).buffered(ASKED_AT_ONCE).filter_map(ready).collect().await
    }

    /// The processes of the job on its leaders, as far as their workers answered, if it has several.
    pub(crate) async fn processes(&self, job: &str, snapshot: &Snapshot) -> Vec<ProcessRow> {
        let mut rows = Vec::new();
        for znode in snapshot.leader_znodes.iter().flatten() {
            let leader = &znode.record;
            let record = snapshot.members.iter().find(|member| member.ballot == leader.ballot);
            let Some(record) = record else { continue };
            let Some(status) = self.of(record).await else { continue };
            let each = status["jobs"][job]["process"]["processes"].as_array().into_iter().flatten();
            rows.extend(each.filter_map(|process| {
                Some(ProcessRow {
                    member: record.member.to_string(),
                    process: shown(process["name"].as_str()?).to_string(),
                    state: shown(process["state"].as_str()?).to_string(),
                    pid: process["pid"].as_u64(),
                    restarts: process["restarts"].as_u64().unwrap_or_default(),
                })
            }));
        }
        rows
    }

    /// The answer of the worker of this member.
    async fn of(&self, record: &MemberRecord) -> Option<Value> {
        let status = self.at(record.http.as_deref()?).await;
        // Another process may listen there now.
        status.filter(|status| status["member"] == *record.member.as_str())
    }

    /// The answer of the worker at this URL.
    async fn at(&self, url: &str) -> Option<Value> {
        let workers = self.workers.as_ref()?;
        let answer = {
            let mut answers = self.answers.lock();
            Arc::clone(answers.entry(url.to_owned()).or_default())
        };
        let asked = answer.get_or_init(|| async {
            // Before the timeout begins: dead workers in the other places must not cost the answer of a living one.
            let _place = match self.places {
                Some(places) => places.acquire().await.ok(),
                None => None,
            };
            timeout(PATIENCE, ask(workers, url)).await.ok()?
        });
        asked.await.clone()
    }
}

/// The state of the job's process, as the worker of this leader reports it. `None` if it does not answer, or does not
/// lead in that term.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn state_of(
    workers: Option<Workers>,
    job: &str,
    snapshot: &Snapshot,
    leader: &Current,
) -> Option<String> {
    let record = snapshot.members.iter().find(|member| member.ballot == leader.ballot)?;
    let status = WorkerStatuses::new(workers).of(record).await?;
    let job = &status["jobs"][job];
    let leads = job["role"] == "leader" && job["term"] == leader.term;
    job["process"]["state"].as_str().filter(|_| leads).map(str::to_owned)
}

/// The worker's `/status`.
async fn ask(workers: &Workers, url: &str) -> Option<Value> {
    serde_json::from_slice(&workers.read(&format!("{url}/status"), MAX_ANSWER).await?).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        thread,
    };

    use super::*;
    use crate::{config::TlsFiles, tls::ClientTls};

    #[tokio::test]
    async fn questions_that_share_places_are_asked_in_turn_and_leave_no_connection() {
        static PLACES: Semaphore = Semaphore::const_new(3);
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        static OPEN: AtomicUsize = AtomicUsize::new(0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                OPEN.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    while stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {
                        MOST.fetch_max(ASKED.fetch_add(1, SeqCst) + 1, SeqCst);
                        thread::sleep(Duration::from_millis(10));
                        ASKED.fetch_sub(1, SeqCst);
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
                    }
                    OPEN.fetch_sub(1, SeqCst);
                });
            }
        });
        let tls = ClientTls::of_operator(&TlsFiles::default()).unwrap();
        let statuses = WorkerStatuses::sharing(Workers::that_keep_nothing(&tls), &PLACES);
        let urls: Vec<_> = (0..20).map(|number| format!("{url}/{number}")).collect();
        let answers = futures_util::future::join_all(urls.iter().map(|url| statuses.at(url))).await;
        assert!(answers.iter().all(Option::is_some), "{answers:?}");
        assert!(MOST.load(SeqCst) <= 3, "{MOST:?}");
        timeout(Duration::from_secs(30), async {
            while OPEN.load(SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
    }
}
