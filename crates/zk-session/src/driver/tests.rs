//! The contract of a driver, shown of each on the embedded server.

pub(crate) mod fake;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use zk_proto::{
    AclEntry, Create, CreateMode, ErrorCode, Purpose, Reply, Request, Stat, WatchId, WatchKind, WatchMode,
    permission,
};
use zk_testkit::{Op, Proxy, TestServer, Which};

use super::contract::BARRIER_PATH;
use super::*;
use crate::driver::close::CloseOutcome;
use crate::error::InactiveReason;
use crate::servers::hosts::Server;
use crate::servers::preference::Preference;
use crate::servers::resolve::Resolver;
use crate::settings::Settings;
use crate::time::BootTime;

/// As long as anything may take that is to happen at all.
pub(super) const SOON: Duration = Duration::from_secs(20);
/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The shortest that the server of these tests grants.
const SHORT: Duration = Duration::from_secs(1);

/// Each test with each driver.
macro_rules! with_each_driver {
    ($($name:ident,)+) => {
        mod native {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::DriverKind::Native).await;
            })+
        }
        #[cfg(feature = "zookeeper-async")]
        mod zookeeper_async {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::DriverKind::ZookeeperAsync).await;
            })+
        }
    };
}

with_each_driver! {
    every_request_is_answered_as_by_the_protocol_itself,
    requests_leave_in_the_order_in_which_they_were_handed_over,
    watches_of_every_kind_survive_a_cut_and_tell_what_was_missed,
    a_watch_that_is_given_up_before_its_answer_tells_nobody_anything,
    what_was_in_flight_at_a_cut_is_ambiguous_whether_or_not_it_was_applied,
    an_expired_session_is_over_and_no_other_takes_its_place,
    without_any_server_the_session_is_given_up,
    a_place_comes_back_with_the_answer_or_the_loss_of_the_connection,
    an_abort_answers_everybody_at_once,
    dropping_the_driver_or_the_attempt_ends_its_connections,
}

fn soon() -> BootTime {
    BootTime::now() + SOON
}

pub(super) fn spec(driver: DriverKind, address: SocketAddr) -> ConnectSpec {
    let server = Server { name: address.ip().to_string(), port: address.port() };
    ConnectSpec {
        purpose: Purpose::New(TIMEOUT),
        resolver: Arc::new(Resolver::new(&[server], Preference::default())),
        settings: Arc::new(Settings { driver, ..Settings::new(String::new()) }),
        deadline: soon(),
        closes: false,
    }
}

/// A session of which the test holds both ends.
struct Bed {
    driver: Arc<dyn Driver>,
    events: mpsc::UnboundedReceiver<DriverEvent>,
}

impl Bed {
    async fn connect(spec: ConnectSpec) -> Self {
        let Connected { driver, events, .. } = connect(spec).await.unwrap();
        Self { driver, events }
    }

    async fn at(kind: DriverKind, address: SocketAddr) -> Self {
        Self::connect(spec(kind, address)).await
    }

    async fn ask(&self, request: &Request<'_>) -> DriverResult<Reply> {
        answered(self.driver.send(request, Along::default()), soon()).await
    }

    async fn watch(&self, request: &Request<'_>, id: u64) -> DriverResult<Reply> {
        let along = Along { watch: Some(WatchId(id)), ..Along::default() };
        answered(self.driver.send(request, along), soon()).await
    }

    async fn create(&self, path: &'static str, mode: CreateMode) -> Stat {
        match self.ask(&create(path, mode)).await {
            Ok(Reply::PathAndStat(_, stat)) => stat,
            other => panic!("{path}: {other:?}"),
        }
    }

    async fn exists(&self, path: &'static str) -> bool {
        match self.ask(&exists(path, false)).await {
            Ok(_) => true,
            Err(DriverError::Refused(ErrorCode::NO_NODE)) => false,
            other => panic!("{path}: {other:?}"),
        }
    }

    async fn next(&mut self) -> Option<DriverEvent> {
        timeout(SOON, self.events.recv()).await.expect("an event, or the end of them")
    }

    async fn suspended(&mut self) {
        let event = self.next().await;
        assert!(matches!(event, Some(DriverEvent::Lost { .. })), "{event:?}");
    }
}

fn open(path: &'static str, mode: CreateMode) -> Create<'static> {
    Create::new(path, b"", &[AclEntry::new(permission::ALL, "world", "anyone")], mode)
}

fn create(path: &'static str, mode: CreateMode) -> Request<'static> {
    Request::Create(open(path, mode))
}

fn sequential(path: &'static str, mode: CreateMode) -> Request<'static> {
    Request::Create(open(path, mode).sequential().unwrap())
}

fn set(path: &'static str, data: &'static str, version: i32) -> Request<'static> {
    Request::SetData { path: path.into(), data: Some(data.as_bytes().into()), version }
}

fn get(path: &'static str, watch: bool) -> Request<'static> {
    Request::GetData { path: path.into(), watch }
}

fn exists(path: &'static str, watch: bool) -> Request<'static> {
    Request::Exists { path: path.into(), watch }
}

fn delete(path: &'static str, version: i32) -> Request<'static> {
    Request::Delete { path: path.into(), version }
}

/// Requests of every kind, some of which a client crate may carry and some of which it can't.
fn program() -> Vec<Request<'static>> {
    let all = AclEntry::new(permission::ALL, "world", "anyone");
    let some = AclEntry::new(permission::READ | permission::CREATE | permission::ADMIN, "ip", "127.0.0.0/8");
    let children =
        |path: &'static str| Request::GetChildren { path: path.into(), watch: false, with_stat: true };
    let listed = Create::new("/a/acl", b"x", &[all.clone(), some.clone()], CreateMode::Persistent);
    vec![
        create("/a", CreateMode::Persistent),
        create("/a", CreateMode::Persistent),
        create("/no/parent", CreateMode::Persistent),
        set("/a", "one", 0),
        set("/a", "two", 0),
        set("/a", "", -1),
        Request::SetData { path: "/a".into(), data: None, version: -1 },
        get("/a", false),
        get("/none", false),
        exists("/a", false),
        exists("/none", false),
        create("/a/mine", CreateMode::Ephemeral),
        create("/a/mine/below", CreateMode::Persistent),
        sequential("/a/n-", CreateMode::Persistent),
        sequential("/a/", CreateMode::Ephemeral),
        create("/a/box", CreateMode::Container),
        create("/a/ttl", CreateMode::Ttl(Duration::from_secs(60))),
        Request::Create(listed),
        Request::GetAcl { path: "/a/acl".into() },
        Request::SetAcl { path: "/a/acl".into(), acl: vec![some], version: 0 },
        set("/a/acl", "y", -1),
        children("/a"),
        children("/none"),
        Request::GetEphemerals { prefix: Some("/a".into()) },
        Request::GetAllChildrenNumber { path: "/".into() },
        Request::Sync { path: "/a".into() },
        Request::Multi(vec![
            Request::Check { path: "/a".into(), version: 3 },
            Request::SetData { path: "/a".into(), data: Some(b"four"[..].into()), version: 3 },
            Request::Delete { path: "/a/box".into(), version: -1 },
        ]),
        Request::Multi(vec![Request::Check { path: "/a".into(), version: 3 }]),
        Request::MultiRead(vec![Request::GetData { path: "/a".into(), watch: false }]),
        delete("/a", -1),
        delete("/a/mine", 7),
        delete("/a/mine", 0),
        delete(BARRIER_PATH, -1),
        set("/a", Box::leak("x".repeat(zk_proto::Limits::default().request).into_boxed_str()), -1),
        // No path, which a client crate may refuse by itself.
        exists("", false),
        exists("/a", false),
    ]
}

/// Without what differs from run to run.
fn comparable(answer: DriverResult<Reply>) -> String {
    let owned = |stat: Stat| i64::from(stat.ephemeral_owner != 0);
    let same = |stat: Stat| Stat { ctime_ms: 0, mtime_ms: 0, ephemeral_owner: owned(stat), ..stat };
    match answer {
        Ok(Reply::Stat(stat)) => format!("{:?}", same(stat)),
        Ok(Reply::PathAndStat(path, stat)) => format!("{path} {:?}", same(stat)),
        Ok(Reply::Data(data, stat)) => format!("{:?} {:?}", data.unwrap_or_default(), same(stat)),
        Ok(Reply::NamesAndStat(names, stat)) => format!("{names:?} {:?}", same(stat)),
        Ok(Reply::Acl(entries, stat)) => format!("{entries:?} {:?}", same(stat)),
        Ok(Reply::Multi(parts)) => format!("{} parts", parts.len()),
        Ok(other) => format!("{other:?}"),
        Err(DriverError::Refused(code)) => code.to_string(),
        Err(DriverError::Invalid(_)) => "invalid".to_owned(),
        Err(error) => panic!("{error:?}"),
    }
}

async fn every_request_is_answered_as_by_the_protocol_itself(kind: DriverKind) {
    let mut answers = Vec::new();
    // The second time by nothing but the wire.
    for kind in [kind, DriverKind::Native] {
        let server = TestServer::start().await.unwrap();
        let bed = Bed::at(kind, server.addresses()[0]).await;
        let mut said = Vec::new();
        for request in program() {
            let op = request.op();
            said.push((op, comparable(bed.ask(&request).await)));
        }
        assert_eq!(bed.driver.close(soon()).await, CloseOutcome::Acknowledged);
        answers.push(said);
    }
    let (wire, by_kind) = (answers.pop().unwrap(), answers.pop().unwrap());
    assert_eq!(by_kind, wire);
    for refusal in ["no such znode", "znode exists", "version does not match", "not authorized", "invalid"] {
        assert!(wire.iter().any(|(_, said)| said == refusal), "{refusal}: {wire:?}");
    }
}

async fn requests_leave_in_the_order_in_which_they_were_handed_over(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let bed = Bed::at(kind, server.addresses()[0]).await;
    bed.create("/order", CreateMode::Persistent).await;
    // Each is refused unless it is carried out right after the one before: many more than a client crate is given at one
    // time, every other one of a kind that goes past it.
    let requests = (0..300).map(|version| match version % 2 {
        0 => set("/order", "", version),
        _ => Request::Multi(vec![Request::SetData { path: "/order".into(), data: None, version }]),
    });
    let answers: Vec<Answer> = requests.map(|request| bed.driver.send(&request, Along::default())).collect();
    // Out of that order, as leases need it.
    barrier(&*bed.driver, soon()).await.unwrap();
    for (version, answer) in answers.into_iter().enumerate() {
        match answered(answer, soon()).await {
            Ok(Reply::Stat(_)) => {}
            Ok(Reply::Multi(parts)) if parts[0].1.is_ok() => {}
            other => panic!("{version}: {other:?}"),
        }
    }
}

async fn watches_of_every_kind_survive_a_cut_and_tell_what_was_missed(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let other = Bed::at(DriverKind::Native, server.addresses()[0]).await;
    let mut bed = Bed::at(kind, proxy.addr()).await;
    for path in ["/data", "/gone", "/later", "/parent", "/tree"] {
        other.create(path, CreateMode::Persistent).await;
    }
    let children = Request::GetChildren { path: "/parent".into(), watch: true, with_stat: true };
    let tree = Request::AddWatch { path: "/tree".into(), mode: WatchMode::Recursive.number() };
    bed.watch(&get("/data", true), 1).await.unwrap();
    bed.watch(&exists("/gone", true), 2).await.unwrap();
    assert_eq!(bed.watch(&exists("/new", true), 3).await, Err(DriverError::Refused(ErrorCode::NO_NODE)));
    bed.watch(&children, 4).await.unwrap();
    bed.watch(&get("/later", true), 5).await.unwrap();
    bed.watch(&get("/later", true), 6).await.unwrap();
    bed.driver.forget(WatchId(6));
    // Failed, so not armed.
    assert_eq!(bed.watch(&get("/new", true), 7).await, Err(DriverError::Refused(ErrorCode::NO_NODE)));
    bed.watch(&tree, 8).await.unwrap();

    proxy.refuse(true).await.unwrap();
    assert_eq!(proxy.cut().await, 1);
    bed.suspended().await;
    let refused = bed.ask(&get("/data", false)).await;
    assert!(matches!(refused, Err(DriverError::NotSent(_))), "{refused:?}");
    other.ask(&set("/data", "x", -1)).await.unwrap();
    other.ask(&delete("/gone", -1)).await.unwrap();
    for path in ["/new", "/parent/child", "/tree/leaf"] {
        other.create(path, CreateMode::Persistent).await;
    }
    proxy.refuse(false).await.unwrap();

    let mut missed = Vec::new();
    loop {
        match bed.next().await {
            Some(DriverEvent::Watch { watch, kind, path }) => missed.push((watch.0, kind, path)),
            Some(DriverEvent::Ready) => break,
            event => panic!("{event:?}"),
        }
    }
    missed.sort_by_key(|(watch, ..)| *watch);
    let expected = [
        (1, WatchKind::DataChanged, "/data"),
        (2, WatchKind::Deleted, "/gone"),
        (3, WatchKind::Created, "/new"),
        (4, WatchKind::ChildrenChanged, "/parent"),
        (8, WatchKind::Gap, "/tree"),
    ];
    assert_eq!(missed, expected.map(|(watch, kind, path)| (watch, kind, path.to_owned())));

    // What was not missed is still armed: once, or for good.
    for data in ["y", "z"] {
        other.ask(&set("/later", data, -1)).await.unwrap();
        other.ask(&set("/tree/leaf", data, -1)).await.unwrap();
    }
    let told = [bed.next().await, bed.next().await, bed.next().await];
    let told = told.map(|event| match event {
        Some(DriverEvent::Watch { watch, kind: WatchKind::DataChanged, .. }) => watch.0,
        event => panic!("{event:?}"),
    });
    assert_eq!(told, [5, 8, 8]);
    other.ask(&set("/data", "z", -1)).await.unwrap();
    barrier(&*bed.driver, soon()).await.unwrap();
    assert!(bed.events.try_recv().is_err(), "nothing else is armed");
}

async fn a_watch_that_is_given_up_before_its_answer_tells_nobody_anything(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let mut bed = Bed::at(kind, server.addresses()[0]).await;
    bed.create("/a", CreateMode::Persistent).await;
    let lasting = Request::AddWatch { path: "/a".into(), mode: WatchMode::Persistent.number() };
    for (id, request) in [(1, get("/a", true)), (2, lasting)] {
        let answer = bed.driver.send(&request, Along { watch: Some(WatchId(id)), ..Along::default() });
        bed.driver.forget(WatchId(id));
        answered(answer, soon()).await.unwrap();
        bed.ask(&set("/a", "x", -1)).await.unwrap();
        barrier(&*bed.driver, soon()).await.unwrap();
        assert!(bed.events.try_recv().is_err(), "{request:?}");
    }
}

async fn what_was_in_flight_at_a_cut_is_ambiguous_whether_or_not_it_was_applied(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let mut bed = Bed::at(kind, server.addresses()[0]).await;
    for (path, is_applied) in [("/applied", true), ("/not-applied", false)] {
        let which = Which::op(Op::Create);
        let _loss =
            if is_applied { server.faults().lose_reply(which) } else { server.faults().lose_request(which) };
        let lost = bed.ask(&create(path, CreateMode::Persistent)).await;
        assert!(matches!(lost, Err(DriverError::Ambiguous(_))), "{lost:?}");
        bed.suspended().await;
        assert_eq!(bed.next().await, Some(DriverEvent::Ready));
        assert_eq!(bed.exists(path).await, is_applied);
    }
}

async fn an_expired_session_is_over_and_no_other_takes_its_place(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let mut bed = Bed::at(kind, server.addresses()[0]).await;
    bed.create("/expiring", CreateMode::Ephemeral).await;
    server.faults().expire(bed.driver.ticket().session_id.0).unwrap();
    bed.suspended().await;
    assert_eq!(bed.next().await, Some(DriverEvent::Ended(InactiveReason::Expired)));
    assert_eq!(bed.next().await, None);
    for _ in 0..3 {
        let after = bed.ask(&create("/expiring", CreateMode::Ephemeral)).await;
        assert!(matches!(after, Err(DriverError::NotSent(_))), "{after:?}");
    }
    assert_eq!(server.data(0, "/expiring"), None);
    assert!(server.sessions().is_empty());
}

async fn without_any_server_the_session_is_given_up(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let mut bed =
        Bed::connect(ConnectSpec { purpose: Purpose::New(SHORT), ..spec(kind, proxy.addr()) }).await;
    proxy.refuse(true).await.unwrap();
    proxy.cut().await;
    bed.suspended().await;
    let lost = BootTime::now();
    let last = bed.next().await;
    assert!(matches!(last, Some(DriverEvent::Ended(InactiveReason::DriverFailed { .. }))), "{last:?}");
    let patience = BootTime::now().duration_since(lost);
    // When a server that could still serve it would have expired it by any clock.
    assert!(patience > SHORT && patience < SHORT * 4, "{patience:?}");
    assert_eq!(bed.next().await, None);
}

async fn a_place_comes_back_with_the_answer_or_the_loss_of_the_connection(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let bed = Bed::at(kind, proxy.addr()).await;
    let places = Arc::new(Semaphore::new(2));
    for ends_by_a_cut in [false, true] {
        proxy.hold_replies(true);
        // One of a kind that a client crate carries, one that bypasses it, and one after them without a permit, which
        // shows that the driver has been at work since their callers left.
        let requests = [get("/", false), Request::Sync { path: "/".into() }, exists("/", false)];
        for (request, op) in requests.iter().zip([Op::GetData, Op::Sync, Op::Exists]) {
            let (seen, place) = (proxy.seen(op), Arc::clone(&places).try_acquire_owned().ok());
            let answer = bed.driver.send(request, Along { place, ..Along::default() });
            // Its caller leaves once it is on the wire; before that it would not be sent at all.
            while proxy.seen(op) == seen {
                tokio::task::yield_now().await;
            }
            drop(answer);
        }
        assert_eq!(places.available_permits(), 0);
        if ends_by_a_cut {
            proxy.cut().await;
        }
        proxy.hold_replies(false);
        let all = timeout(SOON, places.acquire_many(2)).await;
        assert!(all.expect("the places come back").is_ok());
    }
}

async fn an_abort_answers_everybody_at_once(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let mut bed = Bed::at(kind, proxy.addr()).await;
    proxy.hold_replies(true);
    let answers: Vec<Answer> =
        (0..200).map(|_| bed.driver.send(&get("/", false), Along::default())).collect();
    while proxy.seen(Op::GetData) < 48 {
        tokio::task::yield_now().await;
    }
    bed.driver.abort();
    bed.driver.abort();
    let mut ambiguous = 0;
    let within = BootTime::now() + SOON;
    for answer in answers {
        match answered(answer, within).await {
            Err(DriverError::Ambiguous(_)) => ambiguous += 1,
            Err(DriverError::NotSent(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(BootTime::now() < within, "they were answered, not waited for in vain");
    assert!(ambiguous >= 48, "{ambiguous}");
    assert_eq!(bed.next().await, None);
    let after = bed.ask(&get("/", false)).await;
    assert!(matches!(after, Err(DriverError::NotSent(_) | DriverError::Ambiguous(_))), "{after:?}");
    proxy.hold_replies(false);
    proxy.wait_connections(0, SOON).await.unwrap();
}

async fn dropping_the_driver_or_the_attempt_ends_its_connections(kind: DriverKind) {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let mut bed = Bed::at(kind, proxy.addr()).await;
    proxy.wait_connections(1, SOON).await.unwrap();
    bed.driver = Bed::at(kind, server.addresses()[0]).await.driver;
    proxy.wait_connections(0, SOON).await.unwrap();
    assert_eq!(bed.next().await, None);

    proxy.hold_replies(true);
    let attempt = tokio::spawn(connect(spec(kind, proxy.addr())));
    proxy.wait_connections(1, SOON).await.unwrap();
    attempt.abort();
    proxy.hold_replies(false);
    proxy.wait_connections(0, SOON).await.unwrap();
}

#[tokio::test]
async fn a_server_that_the_deadline_finds_silent_is_named() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    // Whichever comes first, its own patience with this server or the deadline.
    for millis in [1, 100, 300] {
        let deadline = BootTime::now() + Duration::from_millis(millis);
        let failure = connect(ConnectSpec { deadline, ..spec(DriverKind::Native, address) }).await;
        let Err(ConnectFailure::Unavailable(answers)) = failure.map(drop) else { panic!("a session") };
        let server = Server { name: address.ip().to_string(), port: address.port() };
        let last = answers.reason(&server).unwrap();
        // In a millisecond a busy machine may not even connect.
        let is_early = millis == 1 && last.contains("accepted no connection");
        assert!(last.contains("no session") || is_early, "{last}");
    }
}
