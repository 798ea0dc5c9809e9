//! `/events`: server-sent events, one per change that this worker sees.

mod changes;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::{ConnectInfo, Query, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use election_core::{config::MemberId, status::ElectionStatus};
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, broadcast, watch},
    task::JoinSet,
};

use super::{
    answer::refuse,
    connections::Peer,
    roles::JobQuery,
    status::{self, session_word},
};
use crate::{wall::unix_ms, worker::state::Worker};
use changes::{EventPart, changed, parts};

/// How many events may wait for a client. One that is further behind is dropped.
const WAITING: usize = 256;

/// How many clients may follow, of all connections at most half.
const FOLLOWERS: usize = 64;

/// How often a silent stream sends a comment. It must be more often than idle connections are closed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A change.
#[derive(Clone, Debug)]
struct JobChange {
    name: &'static str,
    job: Option<String>,
    data: Arc<Value>,
}

/// Compares what it sees with what it saw, and sends the difference to all clients.
pub(super) struct Hub {
    changes: broadcast::Sender<JobChange>,
    /// What it saw last: of each job, then of the session.
    seen: Mutex<Vec<Vec<EventPart>>>,
    places: Arc<Semaphore>,
}

impl Hub {
    /// For a server with so many connections at most.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            changes: broadcast::channel(WAITING).0,
            seen: Mutex::default(),
            places: Arc::new(Semaphore::new(FOLLOWERS.min(connections / 2))),
        }
    }

    /// Follows the worker once it has joined, until this is dropped.
    pub(super) async fn follow(self: Arc<Self>, worker: Arc<Worker>) {
        worker.until_joined().await;
        let mut all = JoinSet::new();
        let jobs = worker.jobs().len();
        self.seen.lock().resize(jobs + 1, Vec::new());
        for at in 0..jobs {
            all.spawn(Arc::clone(&self).follow_job(Arc::clone(&worker), at));
        }
        if let Some(session) = worker.session() {
            let (hub, mut states) = (Arc::clone(&self), session.subscribe());
            let worker = Arc::clone(&worker);
            all.spawn(async move {
                loop {
                    states.borrow_and_update();
                    let state = || json!({ "state": session_word(&worker) });
                    hub.look(&worker.node().id, jobs, None, || vec![("session", state())]);
                    if states.changed().await.is_err() {
                        return;
                    }
                }
            });
        }
        while all.join_next().await.is_some() {}
    }

    async fn follow_job(self: Arc<Self>, worker: Arc<Worker>, at: usize) {
        let Some(job) = worker.jobs().get(at) else { return };
        let parts = || parts(&job.election.status().now(), &job.slot.process());
        let look = || self.look(&worker.node().id, at, Some(job.slot.name()), parts);
        let follow_election = async {
            let mut status: watch::Receiver<ElectionStatus> = job.election.status().into();
            while status.changed().await.is_ok() {
                look();
            }
        };
        tokio::join!(follow_election, job.slot.follow_process(look));
    }

    /// Several tasks look: only what is seen under the lock is newer than what was seen before.
    fn look(&self, member: &MemberId, at: usize, job: Option<&str>, see: impl FnOnce() -> Vec<EventPart>) {
        let mut seen = self.seen.lock();
        let Some(before) = seen.get_mut(at) else { return };
        let now = see();
        for (name, part) in changed(before, &now) {
            let data = Arc::new(of_member(member, job, part));
            // There may be no client.
            let _ = self.changes.send(JobChange { name, job: job.map(str::to_owned), data });
        }
        *before = now;
    }
}

/// The data of an event: those that each one has, and its own.
fn of_member(member: &MemberId, job: Option<&str>, own: &Value) -> Value {
    let mut data = json!({ "job": job, "member": member, "at_ms": unix_ms() });
    if let (Some(data), Some(own)) = (data.as_object_mut(), own.as_object()) {
        data.extend(own.clone());
    }
    data
}

pub(super) async fn events(
    method: Method,
    State(worker): State<Arc<Worker>>,
    State(hub): State<Arc<Hub>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<JobQuery>,
) -> Response {
    if which.job.is_some()
        && let Err(refusal) = which.of(&worker)
    {
        return refusal.into_response();
    }
    if method == Method::OPTIONS {
        return StatusCode::OK.into_response();
    }
    let Ok(place) = Arc::clone(&hub.places).try_acquire_owned() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many clients follow /events of this worker");
    };
    // Before the first look, so that no change is missed.
    let changes = hub.changes.subscribe();
    let now = event("status", &json!(status::of(&worker)));
    let (hold, address, member) = (peer.hold(), peer.address, worker.node().id.clone());
    let stream = follow(changes, which.job, now, move |missed| {
        tracing::info!(peer = %address, missed, "a client of /events was too slow and is dropped");
        let _ = (&hold, &place);
        let why = "this client was too slow; connect again";
        of_member(&member, None, &json!({ "missed": missed, "reason": why }))
    });
    let mut response = Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The events of a client: the first one, then each change. `dropped` is called with the number of missed events if the client
/// is too slow, returns the data of the last event, and lives as long as the stream.
fn follow(
    changes: broadcast::Receiver<JobChange>,
    job: Option<String>,
    first: Event,
    dropped: impl Fn(u64) -> Value,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some((changes, job, Some(first), dropped)), async |following| {
        let (mut changes, job, mut first, dropped) = following?;
        if let Some(first) = first.take() {
            return Some((Ok(first), Some((changes, job, None, dropped))));
        }
        loop {
            match changes.recv().await {
                Ok(change) if job.is_some() && change.job.is_some() && job != change.job => {}
                Ok(change) => {
                    let event = event(change.name, &change.data);
                    return Some((Ok(event), Some((changes, job, None, dropped))));
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    return Some((Ok(event("dropped", &dropped(missed))), None));
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    })
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::StreamExt as _;

    use super::*;

    fn change(job: &str, number: usize) -> JobChange {
        JobChange { name: "role", job: Some(job.to_owned()), data: Arc::new(json!({ "n": number })) }
    }

    /// All events that are there, and whether the stream has ended.
    async fn read(stream: impl Stream<Item = Result<Event, Infallible>>) -> (Vec<String>, bool) {
        let mut stream = pin!(stream);
        let mut texts = Vec::new();
        loop {
            match futures_util::poll!(stream.next()) {
                std::task::Poll::Ready(Some(event)) => {
                    let Ok(event) = event;
                    // Its only public form.
                    texts.push(format!("{event:?}"));
                }
                std::task::Poll::Ready(None) => return (texts, true),
                std::task::Poll::Pending => return (texts, false),
            }
        }
    }

    #[tokio::test]
    async fn a_client_gets_the_state_and_the_changes_of_its_job() {
        let hub = Hub::new(16);
        let stream =
            follow(hub.changes.subscribe(), Some("a".to_owned()), event("status", &json!("now")), |_| {
                panic!("slow")
            });
        for (job, number) in [("a", 1), ("b", 2), ("a", 3)] {
            hub.changes.send(change(job, number)).unwrap();
        }
        let (texts, has_ended) = read(stream).await;
        assert!(!has_ended);
        let [first, one, three] = &texts[..] else { panic!("{texts:?}") };
        assert!(first.contains("event: status"), "{first}");
        assert!(one.contains("{\\\"n\\\":1}") && three.contains("{\\\"n\\\":3}"), "{texts:?}");
    }

    #[test]
    fn the_last_event_has_the_last_state() {
        let hub = Hub::new(16);
        hub.seen.lock().resize(1, Vec::new());
        let (mut changes, member) = (hub.changes.subscribe(), MemberId::new("a").unwrap());
        hub.look(&member, 0, Some("orders"), || {
            assert!(hub.seen.is_locked(), "another look could come between this one and its event");
            vec![("role", json!({ "role": "leader" }))]
        });
        assert_eq!(changes.try_recv().unwrap().data["role"], "leader");
    }

    #[tokio::test]
    async fn a_slow_client_is_dropped_and_told_so() {
        let hub = Hub::new(16);
        let member = MemberId::new("east-1").unwrap();
        let last = |missed| of_member(&member, None, &json!({ "missed": missed }));
        let stream = follow(hub.changes.subscribe(), None, event("status", &json!("now")), last);
        for number in 0..WAITING + 7 {
            hub.changes.send(change("a", number)).unwrap();
        }
        let (texts, has_ended) = read(stream).await;
        assert!(has_ended);
        assert_eq!(texts.len(), 2);
        for part in [
            "event: dropped",
            "\\\"missed\\\":7",
            "\\\"member\\\":\\\"east-1\\\"",
            "\\\"job\\\":null",
            "at_ms",
        ] {
            assert!(texts[1].contains(part), "{part}: {texts:?}");
        }
    }

    #[test]
    fn clients_leave_connections_for_others() {
        for (connections, places) in [(16, 8), (512, FOLLOWERS)] {
            assert_eq!(Hub::new(connections).places.available_permits(), places);
        }
    }
}
