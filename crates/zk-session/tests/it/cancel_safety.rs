//! What it means to drop a future, for every public future of the crate: it is polled once, twice and so on to its end,
//! and dropped after each poll, before and after it could have gone on. Then nothing is stuck, the session is as well as
//! before, what was dropped has been done once or not at all, and nothing does it later.
//!
//! The futures are looked up in the sources, so that one that is missing here fails a test.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::common::{Bed, PATIENCE, eventually, soon, wait_for, wait_state};
use tokio::sync::Notify;
use zk_session::{
    AclEntry, ChangeKind, CloseOutcome, ConnectError, CreateMode, DriverKind, Epoch, HeldStatus, Id,
    Incarnation, Lock, MultiOp, OpError, ReadOp, ReadWriteLock, Reconfiguration, Recovery, Semaphore,
    Session, SessionState, permission,
};

on_each_server!(
    each_future_can_be_dropped_at_each_of_its_polls,
    a_thousand_dropped_operations_leave_room_for_others,
    what_is_dropped_by_a_timeout_happens_at_most_once,
    waiting_for_a_connection_can_be_given_up,
);

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a future is dropped.
#[derive(Clone, Copy, Debug)]
struct Stop {
    /// After so many polls.
    polls: usize,
    /// When it has asked to be polled again, and not at once.
    late: bool,
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Stop {
    /// Polls the future that far and drops it. `None` if it did not come to its end.
    async fn apply<F: Future>(self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let woken = Arc::new(Woken(Notify::new()));
        let waker = Waker::from(Arc::clone(&woken));
        for poll in 1..=self.polls {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            if poll < self.polls || self.late {
                soon("a wake-up", woken.0.notified()).await;
            }
        }
        None
    }
}

/// What the futures work on.
struct Rig {
    bed: Bed,
    session: Session,
    observer: Session,
}

/// One future of an operation, on znodes of its own.
struct Run {
    session: Session,
    incarnation: Incarnation,
    root: String,
}

impl Run {
    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }
}

type Operation = fn(Run) -> BoxFuture<'static, Result<(), OpError>>;

enum Check {
    /// It changes nothing.
    Reads(Operation),
    /// One change, done or not done.
    Once(Operation),
    /// Several changes, of which some may be done; called again it does the others.
    GoesOn(Operation),
    /// Something else; answers whether it came to its end.
    Other(fn(&Rig, Stop) -> BoxFuture<'_, bool>),
}

/// The operation by the session of the moment and by an incarnation.
macro_rules! both {
    ($check:path, $method:literal, |$on:ident, $run:ident| $operation:expr) => {
        [
            (
                concat!("Session::", $method),
                $check(|$run| {
                    Box::pin(async move {
                        let $on = $run.session.clone();
                        $operation.await.map(drop)
                    })
                }),
            ),
            (
                concat!("Incarnation::", $method),
                $check(|$run| {
                    Box::pin(async move {
                        let $on = $run.incarnation.clone();
                        $operation.await.map(drop)
                    })
                }),
            ),
        ]
    };
}

fn table() -> Vec<(&'static str, Check)> {
    let operations = [
        both!(Check::Reads, "get", |on, run| on.get(&run.root)),
        both!(Check::Reads, "children", |on, run| on.children(&run.root)),
        both!(Check::Reads, "exists", |on, run| on.exists(&run.root)),
        both!(Check::Reads, "multi_read", |on, run| on.multi_read([ReadOp::get(&run.root)])),
        both!(Check::Reads, "acl", |on, run| on.acl(&run.root)),
        both!(Check::Reads, "ephemerals", |on, run| on.ephemerals(&run.root)),
        both!(Check::Reads, "count_below", |on, run| on.count_below(&run.root)),
        both!(Check::Reads, "whoami", |on, _run| on.whoami()),
        both!(Check::Reads, "sync", |on, run| on.sync(&run.root)),
        both!(Check::Reads, "barrier", |on, _run| on.barrier()),
        // These servers refuse it.
        both!(Check::Reads, "reconfig", |on, _run| async move {
            let refused = on.reconfig(&Reconfiguration::default()).await;
            refused.map(drop).or_else(|error| if error.has_no_effect() { Ok(()) } else { Err(error) })
        }),
        both!(Check::Once, "create", |on, run| on.create(&run.at("new"), "x", CreateMode::Ephemeral)),
        both!(Check::Once, "create_sequential", |on, run| async move {
            on.create_sequential(&run.at("s-"), "x", CreateMode::Persistent, Recovery::Data).await
        }),
        both!(Check::Once, "set", |on, run| on.set(&run.at("plain"), "x", None)),
        both!(Check::Once, "set_acl", |on, run| async move {
            let entry = AclEntry { permissions: permission::ALL, id: Id::new("world", "anyone") };
            on.set_acl(&run.at("plain"), &[entry], Some(0)).await
        }),
        both!(Check::Once, "delete", |on, run| on.delete(&run.at("plain"), Some(0))),
        both!(Check::Once, "multi", |on, run| {
            on.multi([
                MultiOp::set(run.at("plain"), "x", 0),
                MultiOp::create(run.at("new"), "x", CreateMode::Persistent),
            ])
        }),
        both!(Check::GoesOn, "create_parents", |on, run| on.create_parents(&run.at("p/q/r/s"))),
        both!(Check::GoesOn, "delete_recursive", |on, run| on.delete_recursive(&run.at("tree"))),
    ];
    let mut table: Vec<_> = operations.into_iter().flatten().collect();
    table.extend([
        ("SessionBuilder::connect", Check::Other(|rig, stop| Box::pin(connect(rig, stop)))),
        (
            "SessionBuilder::close_left_behind",
            Check::Other(|rig, stop| Box::pin(close_left_behind(rig, stop))),
        ),
        ("Session::active", Check::Other(|rig, stop| Box::pin(active(rig, stop)))),
        ("Session::close", Check::Other(|rig, stop| Box::pin(close(rig, stop)))),
        ("Session::hand_over", Check::Other(|rig, stop| Box::pin(hand_over(rig, stop)))),
        ("Incarnation::over", Check::Other(|rig, stop| Box::pin(over(rig, stop)))),
        ("DataWatch::changed", Check::Other(|rig, stop| Box::pin(changed(rig, stop)))),
        ("DataWatch::next_known", Check::Other(|rig, stop| Box::pin(next_known(rig, stop)))),
        ("Watch::next", Check::Other(|rig, stop| Box::pin(next_data(rig, stop)))),
        ("Watch::next_allowed", Check::Other(|rig, stop| Box::pin(next_allowed(rig, "data", stop)))),
        ("Watch::next_allowed", Check::Other(|rig, stop| Box::pin(next_allowed(rig, "children", stop)))),
        ("Watch::next_allowed", Check::Other(|rig, stop| Box::pin(next_allowed(rig, "changes", stop)))),
        ("Watch::next", Check::Other(|rig, stop| Box::pin(next_change(rig, stop)))),
        ("Watch::next", Check::Other(|rig, stop| Box::pin(next_children(rig, stop)))),
        ("HeldEphemeral::release", Check::Other(|rig, stop| Box::pin(release(rig, stop)))),
        ("Lock::acquire", Check::Other(|rig, stop| Box::pin(queued(rig, "acquire", stop)))),
        ("Lock::try_acquire", Check::Other(|rig, stop| Box::pin(queued(rig, "try_acquire", stop)))),
        ("ReadWriteLock::read", Check::Other(|rig, stop| Box::pin(queued(rig, "read", stop)))),
        ("ReadWriteLock::write", Check::Other(|rig, stop| Box::pin(queued(rig, "write", stop)))),
        ("ReadWriteLock::try_read", Check::Other(|rig, stop| Box::pin(queued(rig, "try_read", stop)))),
        ("ReadWriteLock::try_write", Check::Other(|rig, stop| Box::pin(queued(rig, "try_write", stop)))),
        ("Semaphore::acquire", Check::Other(|rig, stop| Box::pin(queued(rig, "permit", stop)))),
        ("Semaphore::try_acquire", Check::Other(|rig, stop| Box::pin(queued(rig, "try_permit", stop)))),
        ("LockGuard::multi", Check::Other(|rig, stop| Box::pin(guarded(rig, "multi", stop)))),
        ("LockGuard::set", Check::Other(|rig, stop| Box::pin(guarded(rig, "set", stop)))),
        ("LockGuard::lost", Check::Other(|rig, stop| Box::pin(guarded(rig, "lost", stop)))),
        ("LockGuard::release", Check::Other(|rig, stop| Box::pin(guarded(rig, "release-lock", stop)))),
    ]);
    table
}

/// A path of its own for each run.
fn path(rig: &Rig, name: &str, stop: Stop) -> String {
    let when = if stop.late { "late" } else { "early" };
    format!("/{}-{}-{when}-{}", name.replace("::", "-"), stop.polls, rig.session.state().epoch().unwrap())
}

/// All that stands there, with the changes of data, of children and of the access list counted, so that what was done twice shows. What the
/// session sent before is done by then or never will be.
async fn standing(rig: &Rig, root: &str) -> Vec<String> {
    rig.session.barrier().await.unwrap();
    rig.observer.barrier().await.unwrap();
    let (mut lines, mut ahead) = (Vec::new(), vec![root.to_owned()]);
    while let Some(at) = ahead.pop() {
        let Some(node) = rig.observer.get(&at).await.unwrap() else { continue };
        let (data, stat) = (String::from_utf8(node.data).unwrap(), node.stat);
        lines.push(format!(
            "{} {data:?} version {} cversion {} aversion {}",
            &at[root.len()..],
            stat.version,
            stat.cversion,
            stat.aversion
        ));
        let children = rig.observer.children(&at).await.unwrap().unwrap();
        ahead.extend(children.names.iter().map(|name| format!("{at}/{name}")));
    }
    lines.sort();
    lines
}

/// Runs an operation as far as that, on a tree of its own. Answers what was there before and what is there after it.
async fn run(
    rig: &Rig,
    root: &str,
    operation: Operation,
    stop: Stop,
) -> (Vec<String>, Option<Result<(), OpError>>, Vec<String>) {
    for path in [root, &format!("{root}/plain"), &format!("{root}/tree"), &format!("{root}/tree/a")] {
        rig.observer.create(path, "one", CreateMode::Persistent).await.unwrap();
    }
    for child in ["b", "c"] {
        rig.observer.create(&format!("{root}/tree/a/{child}"), "", CreateMode::Persistent).await.unwrap();
    }
    let before = standing(rig, root).await;
    let output = stop.apply(operation(begin(rig, root).await)).await;
    (before, output, standing(rig, root).await)
}

async fn begin(rig: &Rig, root: &str) -> Run {
    let incarnation = rig.session.active().await.unwrap();
    Run { session: rig.session.clone(), incarnation, root: root.to_owned() }
}

/// No operation takes more polls.
const TO_THE_END: Stop = Stop { polls: 10_000, late: false };

async fn each_future_can_be_dropped_at_each_of_its_polls(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let rig = Rig { bed, session, observer };
    let before = rig.session.active().await.unwrap();
    let mut left: Vec<(String, Vec<String>)> = Vec::new();
    for (name, check) in table() {
        let mut polls = 0;
        loop {
            let mut ended = true;
            for late in [false, true] {
                let stop = Stop { polls, late };
                let what = format!("{name} dropped at {stop:?}");
                let root = path(&rig, name, stop);
                ended &= match &check {
                    Check::Other(other) => other(&rig, stop).await,
                    Check::Reads(operation) => {
                        let (before, output, after) = run(&rig, &root, *operation, stop).await;
                        assert_eq!(before, after, "{what}");
                        output.map(|output| output.unwrap()).is_some()
                    }
                    Check::Once(operation) => {
                        let (before, output, after) = run(&rig, &root, *operation, stop).await;
                        let (_, whole, done) =
                            run(&rig, &format!("{root}-whole"), *operation, TO_THE_END).await;
                        match whole.unwrap() {
                            Ok(()) => {}
                            Err(error) => panic!("{name}: {error}"),
                        }
                        match &output {
                            Some(_) => assert_eq!(after, done, "{what}"),
                            None => assert!(after == before || after == done, "{what}: {after:#?}"),
                        }
                        left.push((root, after));
                        output.is_some()
                    }
                    Check::GoesOn(operation) => {
                        let (_, output, _) = run(&rig, &root, *operation, stop).await;
                        let (_, whole, done) =
                            run(&rig, &format!("{root}-whole"), *operation, TO_THE_END).await;
                        whole.unwrap().unwrap();
                        match operation(begin(&rig, &root).await).await {
                            Ok(()) | Err(OpError::NoNode { .. }) => {}
                            Err(error) => panic!("{what}: {error}"),
                        }
                        // Each change was made once, by the one or by the other.
                        let after = standing(&rig, &root).await;
                        assert_eq!(after, done, "{what}");
                        left.push((root, after));
                        output.map(|output| output.unwrap()).is_some()
                    }
                };
            }
            if ended {
                break;
            }
            polls += 1;
        }
        println!("{name}: through after {polls} polls");
    }
    // Nothing has been done later, and it is still the same session.
    for (root, after) in left {
        assert_eq!(standing(&rig, &root).await, after, "{root}, later");
    }
    assert_eq!(rig.session.active().await.unwrap(), before);
}

async fn connect(rig: &Rig, stop: Stop) -> bool {
    let connected = stop.apply(rig.bed.builder().connect()).await;
    if let Some(session) = &connected {
        session.as_ref().unwrap().get("/").await.unwrap();
    }
    let ended = connected.is_some();
    drop(connected);
    // Only the one of this test is left.
    rig.bed.proxy.wait_connections(1, PATIENCE).await.unwrap();
    ended
}

async fn close_left_behind(rig: &Rig, stop: Stop) -> bool {
    let session = rig.bed.session().await;
    let mine = path(rig, "left-behind", stop);
    session.create(&mine, "", CreateMode::Ephemeral).await.unwrap();
    let ticket = session.hand_over().await.unwrap();
    let closed = stop.apply(rig.bed.builder().close_left_behind(ticket.clone(), PATIENCE)).await;
    match &closed {
        Some(outcome) => assert_eq!(*outcome, Ok(CloseOutcome::Acknowledged)),
        // It may have been closed, or not.
        None => {
            let again = rig.bed.builder().close_left_behind(ticket, PATIENCE).await;
            // If the first close is carried out after the second one has re-attached the session, the server closes that
            // connection without an answer.
            let gone = [Ok(CloseOutcome::Acknowledged), Ok(CloseOutcome::Sent), Err(ConnectError::Expired)];
            assert!(gone.contains(&again), "{again:?}");
        }
    }
    eventually("its end", || async { rig.session.get(&mine).await == Ok(None) }).await;
    rig.bed.proxy.wait_connections(1, PATIENCE).await.unwrap();
    closed.is_some()
}

async fn active(rig: &Rig, stop: Stop) -> bool {
    stop.apply(rig.session.active()).await.map(|incarnation| incarnation.unwrap()).is_some()
}

async fn close(rig: &Rig, stop: Stop) -> bool {
    let session = rig.bed.session().await;
    let mine = path(rig, "close", stop);
    session.create(&mine, "", CreateMode::Ephemeral).await.unwrap();
    let outcome = stop.apply(session.close(PATIENCE)).await;
    if stop.polls == 0 {
        assert!(session.get(&mine).await.unwrap().is_some(), "not begun");
        drop(session);
    } else {
        wait_state(&session, "closed", |state| *state == SessionState::Closed).await;
        assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
    }
    eventually("its end", || async { rig.session.get(&mine).await == Ok(None) }).await;
    rig.bed.proxy.wait_connections(1, PATIENCE).await.unwrap();
    outcome.is_some()
}

async fn hand_over(rig: &Rig, stop: Stop) -> bool {
    let session = rig.bed.session().await;
    let ticket = session.active().await.unwrap().ticket();
    let other = session.clone();
    let handed = stop.apply(session.hand_over()).await;
    let ended = handed.is_some();
    if stop.polls > 0 {
        wait_state(&other, "closed", |state| *state == SessionState::Closed).await;
        assert_eq!(other.close(PATIENCE).await, CloseOutcome::HandedOver);
    }
    let ticket = handed.flatten().unwrap_or(ticket);
    let resumed = rig.bed.builder().resume(ticket.clone()).connect().await.unwrap();
    assert_eq!(resumed.active().await.unwrap().session_id(), ticket.session_id);
    drop(other);
    // One that was not handed over may have taken it back meanwhile.
    soon("its end", resumed.close(PATIENCE)).await;
    rig.bed.proxy.wait_connections(1, PATIENCE).await.unwrap();
    ended
}

async fn over(rig: &Rig, stop: Stop) -> bool {
    let session = rig.bed.session().await;
    let incarnation = session.active().await.unwrap();
    let ending = async {
        tokio::join!(incarnation.over(), session.close(PATIENCE));
    };
    let ended = stop.apply(ending).await.is_some();
    session.close(PATIENCE).await;
    soon("the end", incarnation.over()).await;
    ended
}

async fn changed(rig: &Rig, stop: Stop) -> bool {
    let path = path(rig, "changed", stop);
    let mut watch = rig.session.watch_data(path.as_str());
    soon("the first value", watch.next()).await.unwrap();
    let writing = rig.observer.create(&path, "one", CreateMode::Persistent);
    let (ended, created) = tokio::join!(stop.apply(watch.changed()), writing);
    created.unwrap();
    if ended.is_none() {
        soon("the change", watch.changed()).await;
    }
    let told = soon("the value", watch.next()).await.unwrap().value.map(|node| node.data);
    assert_eq!(told, Some(b"one".to_vec()));
    ended.is_some()
}

async fn next_known(rig: &Rig, stop: Stop) -> bool {
    let path = path(rig, "next-known", stop);
    rig.observer.create(&path, "one", CreateMode::Persistent).await.unwrap();
    let mut watch = rig.session.watch_data(path.as_str());
    soon("the first value", watch.next()).await.unwrap();
    let deleting = rig.observer.delete(&path, None);
    let (known, deleted) = tokio::join!(stop.apply(watch.next_known()), deleting);
    deleted.unwrap();
    let ended = known.is_some();
    let known = match known {
        Some(known) => known,
        None => soon("the deletion", watch.next_known()).await,
    };
    assert_eq!(known.unwrap().unwrap().value, None);
    ended
}

async fn next_data(rig: &Rig, stop: Stop) -> bool {
    let path = path(rig, "next-data", stop);
    let mut watch = rig.session.watch_data(path.as_str());
    let mut told = Vec::new();
    let mut ended = false;
    for data in ["one", "two"] {
        if let Some(observed) = stop.apply(watch.next()).await {
            told.push(observed.unwrap().value.map(|node| node.data));
            ended = true;
        }
        match data {
            "one" => drop(rig.observer.create(&path, data, CreateMode::Persistent).await.unwrap()),
            data => drop(rig.observer.set(&path, data, None).await.unwrap()),
        }
    }
    while told.last() != Some(&Some(b"two".to_vec())) {
        told.push(soon("the last value", watch.next()).await.unwrap().value.map(|node| node.data));
    }
    let all = [None, Some(b"one".to_vec()), Some(b"two".to_vec())];
    let places: Vec<_> = told.iter().map(|told| all.iter().position(|known| known == told)).collect();
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    ended
}

async fn next_change(rig: &Rig, stop: Stop) -> bool {
    let path = path(rig, "next-change", stop);
    let mut watch = rig.session.watch_tree(path.as_str());
    let mut told = Vec::new();
    let mut ended = false;
    for name in ["", "/a", "/b"] {
        if let Some(change) = stop.apply(watch.next()).await {
            told.push(change.unwrap());
            ended = true;
        }
        rig.observer.create(&format!("{path}{name}"), "", CreateMode::Persistent).await.unwrap();
    }
    while told.last().is_none_or(|change| change.path != format!("{path}/b")) {
        // Armed only now, where it has been dropped so far: then nothing of this is told.
        let change = soon("a change", watch.next()).await.unwrap();
        let is_first = told.is_empty();
        told.push(change);
        if is_first {
            rig.observer.delete(&format!("{path}/b"), None).await.unwrap();
        }
    }
    assert_eq!(told[0].kind, ChangeKind::Gap, "{told:?}");
    assert!(told[1..].windows(2).all(|pair| pair[0] != pair[1]), "{told:?}");
    ended
}

async fn next_children(rig: &Rig, stop: Stop) -> bool {
    let path = path(rig, "next-children", stop);
    let mut watch = rig.session.watch_children(path.as_str());
    let mut counts = Vec::new();
    let mut ended = false;
    for name in ["", "/a", "/b"] {
        if let Some(observed) = stop.apply(watch.next()).await {
            counts.push(observed.unwrap().value.map(|children| children.names.len()));
            ended = true;
        }
        rig.observer.create(&format!("{path}{name}"), "", CreateMode::Persistent).await.unwrap();
    }
    while counts.last() != Some(&Some(2)) {
        let observed = soon("the last value", watch.next()).await.unwrap();
        counts.push(observed.value.map(|children| children.names.len()));
    }
    assert!(counts.windows(2).all(|pair| pair[0] < pair[1]), "{counts:?}");
    ended
}

/// Of each kind of watch: the first value, which a dropped call has not lost.
async fn next_allowed(rig: &Rig, kind: &str, stop: Stop) -> bool {
    let path = path(rig, &format!("next-allowed-{kind}"), stop);
    let mut data = rig.session.watch_data(path.as_str());
    let mut children = rig.session.watch_children(path.as_str());
    let mut tree = rig.session.watch_tree(path.as_str());
    let ended = (
        stop.apply(data.next_allowed()).await,
        stop.apply(children.next_allowed()).await,
        stop.apply(tree.next_allowed()).await,
    );
    rig.observer.create(&path, "", CreateMode::Persistent).await.unwrap();
    while soon("the data", data.next_allowed()).await.unwrap().value.is_none() {}
    while soon("the children", children.next_allowed()).await.unwrap().value.is_none() {}
    while soon("the creation", tree.next_allowed()).await.unwrap().kind != ChangeKind::Created {
        if ended.2.is_none() {
            break;
        }
    }
    ended.0.is_some() && ended.1.is_some() && ended.2.is_some()
}

async fn release(rig: &Rig, stop: Stop) -> bool {
    let parent = path(rig, "release", stop);
    rig.observer.create(&parent, "", CreateMode::Persistent).await.unwrap();
    let held = rig.session.hold_ephemeral(format!("{parent}/me"), "").unwrap();
    let mut status = held.subscribe();
    wait_for(&mut status, "held", |status| matches!(status, HeldStatus::Held { .. })).await;
    let ended = stop.apply(held.release()).await.is_some();
    wait_for(&mut status, "released", |status| *status == HeldStatus::Released).await;
    // Created once, deleted once.
    assert_eq!(standing(rig, &parent).await, [" \"\" version 0 cversion 2 aversion 0"]);
    ended
}

/// What is dropped leaves the queue: another session has the lock then.
async fn queued(rig: &Rig, name: &str, stop: Stop) -> bool {
    let path = path(rig, name, stop);
    let lock = Lock::new(&rig.session, &path);
    let (both, permits) = (ReadWriteLock::new(&rig.session, &path), Semaphore::new(&rig.session, &path, 1));
    let guard = match name {
        "acquire" => stop.apply(lock.acquire()).await.map(|got| got.map(Some)),
        "try_acquire" => stop.apply(lock.try_acquire()).await,
        "read" => stop.apply(both.read()).await.map(|got| got.map(Some)),
        "write" => stop.apply(both.write()).await.map(|got| got.map(Some)),
        "try_read" => stop.apply(both.try_read()).await,
        "try_write" => stop.apply(both.try_write()).await,
        "permit" => stop.apply(permits.acquire()).await.map(|got| got.map(Some)),
        _ => stop.apply(permits.try_acquire()).await,
    };
    let ended = guard.map(|got| assert!(got.unwrap().is_some(), "no other client asks")).is_some();
    let other = ReadWriteLock::new(&rig.observer, &path);
    soon("the lock", other.write()).await.unwrap().release().await.unwrap();
    ended
}

/// What a guard writes is written once or not at all, and the lock is free at the end.
async fn guarded(rig: &Rig, name: &str, stop: Stop) -> bool {
    let (path, value) = (path(rig, name, stop), path(rig, &format!("{name}-value"), stop));
    rig.observer.create(&value, "one", CreateMode::Persistent).await.unwrap();
    let guard = Lock::new(&rig.session, &path).acquire().await.unwrap();
    let ended = match name {
        "multi" => stop.apply(guard.multi([MultiOp::set(&value, "x", None)])).await.map(drop),
        "set" => stop.apply(guard.set(&value, "x")).await.map(drop),
        "lost" => {
            let ending = async {
                tokio::join!(guard.lost(), async { rig.observer.delete(guard.path(), None).await.unwrap() })
            };
            stop.apply(ending).await.map(drop)
        }
        _ => {
            let released = stop.apply(guard.release()).await.map(|released| released.unwrap());
            let other = Lock::new(&rig.observer, &path);
            soon("the lock", other.acquire()).await.unwrap().release().await.unwrap();
            return released.is_some();
        }
    };
    guard.release().await.unwrap();
    let writes = i32::from(name != "lost");
    let version = {
        standing(rig, &value).await;
        rig.observer.get(&value).await.unwrap().unwrap().stat.version
    };
    assert!(version == writes || (ended.is_none() && version == 0), "{version} writes");
    let other = Lock::new(&rig.observer, &path);
    soon("the lock", other.acquire()).await.unwrap().release().await.unwrap();
    ended.is_some()
}

async fn a_thousand_dropped_operations_leave_room_for_others(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    session.create("/a", "", CreateMode::Persistent).await.unwrap();
    let first_poll = Stop { polls: 1, late: false };
    // With answers held back, all of them have been sent by then that may be sent at one time.
    bed.proxy.hold_replies(true);
    for n in 0..250 {
        let path = format!("/a/{n:03}");
        first_poll.apply(session.create(&path, "", CreateMode::Ephemeral)).await;
        first_poll.apply(session.get("/a")).await;
        first_poll.apply(session.watch_data("/a").next()).await;
        first_poll.apply(session.set("/a", n.to_string(), None)).await;
    }
    bed.proxy.hold_replies(false);
    let others = (0..250).map(|n| {
        let session = session.clone();
        tokio::spawn(async move { session.create(&format!("/a/other-{n}"), "", CreateMode::Ephemeral).await })
    });
    for other in others.collect::<Vec<_>>() {
        soon("another operation", other).await.unwrap().unwrap();
    }
    assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
    observer.barrier().await.unwrap();
    let children = observer.children("/a").await.unwrap().unwrap();
    let created = children.stat.cversion;
    assert_eq!(created, i32::try_from(children.names.len()).unwrap(), "each once");
    // And nothing comes after it.
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    assert_eq!(observer.children("/a").await.unwrap().unwrap().stat.cversion, created);
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
}

async fn what_is_dropped_by_a_timeout_happens_at_most_once(driver: DriverKind) {
    let seed =
        std::env::var("ZK_SESSION_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("ZK_SESSION_SEED={seed} replays the times of {driver}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bed = Arc::new(Bed::start(driver).await);
    let (session, observer) = (bed.session().await, bed.observer().await);
    session.create("/s", "", CreateMode::Persistent).await.unwrap();
    session.create("/v", "", CreateMode::Persistent).await.unwrap();
    let delays = tokio::spawn({
        let (bed, mut random) = (Arc::clone(&bed), random.fork());
        async move {
            loop {
                bed.proxy.hold_replies(true);
                tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
                bed.proxy.hold_replies(false);
                tokio::time::sleep(Duration::from_millis(random.u64(..5))).await;
            }
        }
    });
    let (mut dropped, mut sets_begun, mut sets_done) = (0, 0, 0);
    let mut answered = BTreeSet::new();
    for n in 0..300 {
        let patience = Duration::from_millis(random.u64(..25));
        let data = n.to_string();
        let sequential = session.create_sequential("/s/n-", &data, CreateMode::Persistent, Recovery::Data);
        match tokio::time::timeout(patience, sequential).await {
            Ok(created) => drop((created.unwrap(), answered.insert(data.clone()))),
            Err(_) => dropped += 1,
        }
        sets_begun += 1;
        match tokio::time::timeout(patience, session.set("/v", &data, None)).await {
            Ok(stat) => drop((stat.unwrap(), sets_done += 1)),
            Err(_) => dropped += 1,
        }
    }
    delays.abort();
    assert!(delays.await.unwrap_err().is_cancelled());
    bed.proxy.hold_replies(false);
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    println!("{dropped} of 600 dropped");
    assert!((30..570).contains(&dropped), "{dropped} of 600 dropped: too one-sided to mean anything");
    let children = observer.children("/s").await.unwrap().unwrap();
    let mut found = BTreeSet::new();
    for name in &children.names {
        let data = observer.get(&format!("/s/{name}")).await.unwrap().unwrap().data;
        assert!(found.insert(String::from_utf8(data).unwrap()), "{name} was created twice");
    }
    assert!(answered.is_subset(&found), "{answered:?} in {found:?}");
    let version = observer.get("/v").await.unwrap().unwrap().stat.version;
    assert!(
        (sets_done..=sets_begun).contains(&version),
        "{sets_done} to {sets_begun} sets, {version} applied"
    );
    assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
}

/// What can't be polled to its end while nobody answers.
async fn waiting_for_a_connection_can_be_given_up(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_data("/a");
    soon("the first value", watch.next()).await.unwrap();
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "paused", |state| !state.is_active()).await;
    for polls in 0..5 {
        let stop = Stop { polls: polls.min(1), late: false };
        assert!(stop.apply(session.active()).await.is_none());
        assert!(stop.apply(session.create("/a", "", CreateMode::Persistent)).await.is_none());
        assert!(stop.apply(session.delete("/a", None)).await.is_none());
        assert!(stop.apply(session.barrier()).await.is_none());
        assert!(stop.apply(watch.next()).await.is_none());
    }
    bed.proxy.refuse(false).await.unwrap();
    let back = soon("the connection", session.active()).await.unwrap();
    assert_eq!(back.epoch(), Epoch(1));
    // None of those that were given up is done now.
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/a").await, Ok(None));
    observer.create("/a", "now", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon("the value", watch.next()).await.unwrap().value.unwrap().data, b"now");
}

/// The public futures: `Type::method` or `function`, and whether its documentation says what dropping it means.
fn public_futures() -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for path in crate::architecture::sources() {
        let (mut owner, mut documented) = (None, false);
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let (indent, code) = (line.len() - line.trim_start().len(), line.trim_start());
            if indent == 0 && code.starts_with("impl") {
                let name = code.trim_end_matches([' ', '{']).rsplit(' ').next().unwrap();
                owner = Some(name.split('<').next().unwrap().to_owned());
            } else if line == "}" {
                owner = None;
            }
            if code.starts_with("///") {
                documented |= code.contains("# Cancel safety");
                continue;
            }
            if let Some(name) = code.strip_prefix("pub async fn ") {
                let name = name.split(['(', '<']).next().unwrap();
                let owner = owner.as_ref().map(|owner| format!("{owner}::")).unwrap_or_default();
                found.push((format!("{owner}{name}"), documented));
            } else if code.starts_with("pub fn ") {
                let future =
                    ["impl Future", "BoxFuture", "dyn Future"].iter().any(|future| code.contains(future));
                assert!(!future, "a public future that is none of `async fn`: {code} in {}", path.display());
            }
            if !code.starts_with("#[") {
                documented = false;
            }
        }
    }
    found
}

#[test]
fn every_public_future_stands_in_the_table_and_says_what_dropping_it_means() {
    let public = public_futures();
    assert!(public.len() > 20, "{public:?}");
    for (name, documented) in &public {
        assert!(documented, "{name}: the documentation has no \"# Cancel safety\"");
    }
    let public: BTreeSet<_> = public.into_iter().map(|(name, _)| name).collect();
    let tested: BTreeSet<_> = table().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(public, tested);
}
