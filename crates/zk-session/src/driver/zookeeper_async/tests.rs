//! The driver against real servers, broken links, and servers that are none.

use std::time::Duration;

use tokio::sync::OnceCell;
use zk_testkit::{Ensemble, Proxy, Which};

use super::*;
use crate::driver::{Auth, Host, WatchKind};
use crate::secret::Secret;

mod fakes;

/// As long as anything may take that is to happen at all.
const SOON: Duration = Duration::from_secs(15);
const TIMEOUT: Duration = Duration::from_secs(4);
/// The shortest that the servers of these tests grant.
const SHORT: Duration = Duration::from_secs(1);

async fn server() -> SocketAddr {
    static ENSEMBLE: OnceCell<Ensemble> = OnceCell::const_new();
    let ensemble = ENSEMBLE.get_or_init(|| async { Ensemble::start(1).await.unwrap() }).await;
    ensemble.addresses()[0]
}

fn soon() -> BootTime {
    BootTime::now() + SOON
}

fn spec(hosts: &[SocketAddr]) -> ConnectSpec {
    ConnectSpec {
        hosts: hosts.iter().map(|&address| Host { name: address.ip().to_string(), address }).collect(),
        resolver: Arc::new(crate::resolve::Resolver::new(&[])),
        session_timeout: TIMEOUT,
        auth: Vec::new(),
        acl: crate::acl::Acl::Open,
        secure: crate::secure::Secure::default(),
        deadline: soon(),
    }
}

async fn connect_to(hosts: &[SocketAddr]) -> (Arc<dyn Driver>, mpsc::UnboundedReceiver<DriverEvent>) {
    let Connected { driver, events } = connect(spec(hosts)).await.unwrap();
    (driver, events)
}

async fn next(events: &mut mpsc::UnboundedReceiver<DriverEvent>) -> Option<DriverEvent> {
    timeout(SOON, events.recv()).await.expect("an event, or the end of them")
}

async fn create(driver: &dyn Driver, path: &str, mode: CreateMode) -> DriverResult<(String, Stat)> {
    driver.create(path, b"", mode, false, soon()).await
}

fn definite<T: std::fmt::Debug>(result: DriverResult<T>) -> Code {
    match result {
        Err(DriverError::Definite(code)) => code,
        other => panic!("{other:?} is no definite error"),
    }
}

#[tokio::test]
async fn every_operation_does_what_it_says() {
    let (driver, _events) = connect_to(&[server().await]).await;
    let (path, made) = create(&*driver, "/ops", CreateMode::Persistent).await.unwrap();
    assert_eq!(path, "/ops");
    assert!(made.czxid > 0 && made.czxid == made.mzxid);
    assert_eq!(definite(create(&*driver, "/ops", CreateMode::Persistent).await), Code::NodeExists);
    assert_eq!(definite(create(&*driver, "/no/parent", CreateMode::Persistent).await), Code::NoNode);

    let set = driver.set("/ops", b"one", Some(0), soon()).await.unwrap();
    assert_eq!((set.version, set.data_length), (1, 3));
    assert_eq!(definite(driver.set("/ops", b"two", Some(0), soon()).await), Code::BadVersion);
    assert_eq!(driver.get("/ops", None, soon()).await.unwrap(), (b"one".to_vec(), set));
    assert_eq!(driver.exists("/ops", None, soon()).await.unwrap(), Some(set));
    assert_eq!(driver.exists("/ops/none", None, soon()).await.unwrap(), None);
    assert_eq!(definite(driver.get("/ops/none", None, soon()).await), Code::NoNode);
    assert_eq!(definite(driver.children("/ops/none", None, soon()).await), Code::NoNode);

    let (mine, stat) = create(&*driver, "/ops/mine", CreateMode::Ephemeral).await.unwrap();
    assert!(stat.is_owned_by(driver.session_id()), "{stat:?} of {}", driver.session_id());
    let below = create(&*driver, "/ops/mine/below", CreateMode::Persistent).await;
    assert_eq!(definite(below), Code::NoChildrenForEphemerals);
    let (first, _) = driver.create("/ops/n-", b"", CreateMode::Persistent, true, soon()).await.unwrap();
    let (second, _) = driver.create("/ops/n-", b"", CreateMode::Persistent, true, soon()).await.unwrap();
    assert!(first < second && first.len() == "/ops/n-".len() + 10, "{first} {second}");

    let (mut names, parent) = driver.children("/ops", None, soon()).await.unwrap();
    names.sort();
    assert_eq!(names, ["mine", &first[5..], &second[5..]]);
    assert_eq!(Some(parent), driver.exists("/ops", None, soon()).await.unwrap());
    assert_eq!(parent.num_children, 3);
    assert_eq!(definite(driver.delete("/ops", None, soon()).await), Code::NotEmpty);
    assert_eq!(definite(driver.delete(&mine, Some(7), soon()).await), Code::BadVersion);
    for path in [mine, first, second] {
        driver.delete(&path, None, soon()).await.unwrap();
    }
    assert_eq!(driver.children("/ops", None, soon()).await.unwrap().0, Vec::<String>::new());
    driver.barrier(soon()).await.unwrap();

    let long = vec![0; MAX_PAYLOAD];
    assert!(matches!(definite(driver.set("/ops", &long, None, soon()).await), Code::Invalid(_)));
    driver.set("/ops", &long[..MAX_PAYLOAD - 4], None, soon()).await.unwrap();
    assert!(matches!(definite(driver.get("/a\0b", None, soon()).await), Code::Invalid(_)));
    assert!(matches!(definite(driver.get("/a/", None, soon()).await), Code::Invalid(_)));
    assert_eq!(driver.close(soon()).await, CloseAnswer::Acknowledged);
}

#[tokio::test]
async fn requests_leave_in_the_order_in_which_they_were_asked_for() {
    let (driver, _events) = connect_to(&[server().await]).await;
    create(&*driver, "/order", CreateMode::Persistent).await.unwrap();
    // Many more than may be under way at one time, and a barrier in between, which has a place of its own.
    let creates = (0..600).map(|_| driver.create("/order/n-", b"", CreateMode::Ephemeral, true, soon()));
    let all = futures_util::future::join_all(creates);
    let (made, beat) = tokio::join!(all, driver.barrier(soon()));
    beat.unwrap();
    let paths: Vec<String> = made.into_iter().map(|made| made.unwrap().0).collect();
    assert!(paths.is_sorted(), "{paths:?}");
    assert_eq!(driver.close(soon()).await, CloseAnswer::Acknowledged);
}

#[tokio::test]
async fn a_close_that_is_acknowledged_has_removed_the_ephemerals() {
    let server = server().await;
    let (witness, _events) = connect_to(&[server]).await;
    for round in 0..20 {
        let (driver, mut events) = connect_to(&[server]).await;
        create(&*driver, "/short-lived", CreateMode::Ephemeral).await.unwrap();
        assert_eq!(driver.close(soon()).await, CloseAnswer::Acknowledged);
        let left = witness.exists("/short-lived", None, soon()).await.unwrap();
        assert_eq!(left, None, "round {round}");
        assert_eq!(next(&mut events).await, None);
    }
}

#[tokio::test]
async fn the_granted_timeout_is_the_servers_not_the_one_asked_for() {
    let short = Duration::from_millis(2500);
    let ensemble = Ensemble::builder()
        .servers(1)
        .session_timeouts(Duration::from_millis(200), short)
        .start()
        .await
        .unwrap();
    let (driver, _events) = connect_to(&ensemble.addresses()).await;
    assert_eq!(driver.granted_timeout(), short);

    let mut tiny = spec(&ensemble.addresses());
    tiny.session_timeout = Duration::from_millis(300);
    let Connected { driver, .. } = connect(tiny).await.unwrap();
    assert_eq!(driver.granted_timeout(), Duration::from_millis(300));
}

#[tokio::test]
async fn watches_of_every_kind_survive_a_cut_and_tell_what_was_missed() {
    let server = server().await;
    let proxy = Proxy::start(server).await.unwrap();
    let (other, _events) = connect_to(&[server]).await;
    let (driver, mut events) = connect_to(&[proxy.addr()]).await;
    for path in ["/cut", "/cut/data", "/cut/gone", "/cut/later", "/cut/parent"] {
        create(&*other, path, CreateMode::Persistent).await.unwrap();
    }
    let token = |n| Some(WatchToken(n));
    driver.get("/cut/data", token(1), soon()).await.unwrap();
    driver.exists("/cut/gone", token(2), soon()).await.unwrap();
    driver.exists("/cut/new", token(3), soon()).await.unwrap();
    driver.children("/cut/parent", token(4), soon()).await.unwrap();
    driver.get("/cut/later", token(5), soon()).await.unwrap();
    driver.get("/cut/later", token(6), soon()).await.unwrap();
    driver.forget(WatchToken(6));
    // Failed, so not armed.
    assert_eq!(definite(driver.get("/cut/new", token(7), soon()).await), Code::NoNode);

    proxy.refuse(true).await.unwrap();
    assert_eq!(proxy.cut().await, 1);
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    let refused = driver.get("/cut/data", None, soon()).await;
    assert!(matches!(refused, Err(DriverError::NotSent(_))), "{refused:?}");
    other.set("/cut/data", b"x", None, soon()).await.unwrap();
    other.delete("/cut/gone", None, soon()).await.unwrap();
    create(&*other, "/cut/new", CreateMode::Persistent).await.unwrap();
    create(&*other, "/cut/parent/child", CreateMode::Persistent).await.unwrap();
    proxy.refuse(false).await.unwrap();

    let mut missed = Vec::new();
    loop {
        match next(&mut events).await {
            Some(DriverEvent::Watch { token, kind, path }) => missed.push((token.0, kind, path)),
            Some(DriverEvent::Resumed) => break,
            event => panic!("{event:?}"),
        }
    }
    missed.sort_by_key(|(token, ..)| *token);
    let expected = [
        (1, WatchKind::DataChanged, "/cut/data"),
        (2, WatchKind::Deleted, "/cut/gone"),
        (3, WatchKind::Created, "/cut/new"),
        (4, WatchKind::ChildrenChanged, "/cut/parent"),
    ];
    assert_eq!(missed, expected.map(|(token, kind, path)| (token, kind, path.to_owned())));

    // What was not missed is still armed, and fires once.
    other.set("/cut/later", b"y", None, soon()).await.unwrap();
    let event = next(&mut events).await.unwrap();
    let path = "/cut/later".to_owned();
    assert_eq!(event, DriverEvent::Watch { token: WatchToken(5), kind: WatchKind::DataChanged, path });
    other.set("/cut/later", b"z", None, soon()).await.unwrap();
    other.set("/cut/data", b"z", None, soon()).await.unwrap();
    driver.barrier(soon()).await.unwrap();
    assert!(events.try_recv().is_err(), "nothing else is armed");
    let id = driver.session_id();
    assert!(create(&*driver, "/cut/mine", CreateMode::Ephemeral).await.unwrap().1.is_owned_by(id));
}

#[tokio::test]
async fn what_was_in_flight_at_a_cut_is_ambiguous_whether_or_not_it_was_applied() {
    let server = server().await;
    let proxy = Proxy::start(server).await.unwrap();
    let (driver, mut events) = connect_to(&[proxy.addr()]).await;

    let _reply = proxy.lose_reply(Which::any());
    let lost = create(&*driver, "/applied", CreateMode::Persistent).await;
    assert!(matches!(lost, Err(DriverError::Ambiguous(_))), "{lost:?}");
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert_eq!(next(&mut events).await, Some(DriverEvent::Resumed));
    assert!(driver.exists("/applied", None, soon()).await.unwrap().is_some());

    let _request = proxy.lose_request(Which::any());
    let lost = create(&*driver, "/not-applied", CreateMode::Persistent).await;
    assert!(matches!(lost, Err(DriverError::Ambiguous(_))), "{lost:?}");
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert_eq!(next(&mut events).await, Some(DriverEvent::Resumed));
    assert!(driver.exists("/not-applied", None, soon()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_silent_link_is_left_in_time_for_another_server() {
    let server = server().await;
    let proxy = Proxy::start(server).await.unwrap();
    let (driver, mut events) = connect_to(&[proxy.addr(), server]).await;
    create(&*driver, "/survivor", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(proxy.connections(), 1, "the first host in the list is the first to be tried");

    let silent = BootTime::now();
    proxy.black_hole(true);
    let stuck = driver.get("/survivor", None, BootTime::now() + Duration::from_millis(200)).await;
    assert!(matches!(stuck, Err(DriverError::Ambiguous(_))), "{stuck:?}");
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert_eq!(next(&mut events).await, Some(DriverEvent::Resumed));
    let away = BootTime::now().duration_since(silent);
    assert!(away < TIMEOUT * 3 / 4, "{away:?}");
    let (_, stat) = driver.get("/survivor", None, soon()).await.unwrap();
    assert!(stat.is_owned_by(driver.session_id()));
}

#[tokio::test]
async fn an_expired_session_is_over_and_no_other_takes_its_place() {
    let server = server().await;
    let proxy = Proxy::start(server).await.unwrap();
    let (witness, mut seen) = connect_to(&[server]).await;
    let mut short = spec(&[proxy.addr()]);
    short.session_timeout = SHORT;
    let Connected { driver, mut events } = connect(short).await.unwrap();
    create(&*driver, "/expiring", CreateMode::Ephemeral).await.unwrap();
    witness.exists("/expiring", Some(WatchToken(1)), soon()).await.unwrap();

    proxy.refuse(true).await.unwrap();
    proxy.cut().await;
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert!(matches!(next(&mut seen).await, Some(DriverEvent::Watch { kind: WatchKind::Deleted, .. })));
    proxy.refuse(false).await.unwrap();
    // Told by the server, or, on a slow machine, given up a moment before it could be.
    let last = next(&mut events).await;
    assert!(matches!(last, Some(DriverEvent::Expired | DriverEvent::Dead { .. })), "{last:?}");
    assert_eq!(next(&mut events).await, None);
    for _ in 0..3 {
        let after = create(&*driver, "/expiring", CreateMode::Ephemeral).await;
        assert!(matches!(after, Err(DriverError::NotSent(_))), "{after:?}");
    }
    proxy.wait_connections(0, SOON).await.unwrap();
    assert_eq!(witness.exists("/expiring", None, soon()).await.unwrap(), None);
    assert_eq!(driver.close(soon()).await, CloseAnswer::Unknown);
}

#[tokio::test]
async fn without_any_server_the_session_is_given_up() {
    let proxy = Proxy::start(server().await).await.unwrap();
    let mut short = spec(&[proxy.addr()]);
    short.session_timeout = SHORT;
    let Connected { driver, mut events } = connect(short).await.unwrap();
    driver.barrier(soon()).await.unwrap();
    proxy.refuse(true).await.unwrap();
    proxy.cut().await;
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Dead { .. })));
    assert_eq!(next(&mut events).await, None);
}

#[tokio::test]
async fn an_abort_answers_everybody_at_once() {
    let proxy = Proxy::start(server().await).await.unwrap();
    let (driver, mut events) = connect_to(&[proxy.addr()]).await;
    proxy.hold_replies(true);
    let mut under_way: Vec<_> = (0..200).map(|_| tokio::spawn(driver.barrier(soon()))).collect();
    under_way.extend((0..200).map(|_| {
        tokio::spawn({
            let read = driver.get("/", None, soon());
            async move { read.await.map(drop) }
        })
    }));
    while proxy.seen(zk_testkit::Op::GetData) < 48 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = BootTime::now();
    driver.abort();
    driver.abort();
    let (mut ambiguous, mut not_sent) = (0, 0);
    for request in under_way {
        match request.await.unwrap() {
            Err(DriverError::Ambiguous(_)) => ambiguous += 1,
            Err(DriverError::NotSent(_)) => not_sent += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(BootTime::now().duration_since(began) < Duration::from_secs(2));
    assert_eq!((ambiguous, not_sent), (48 + 1, 400 - 49), "the bound on what is under way");
    assert_eq!(next(&mut events).await, None);
    proxy.hold_replies(false);
    proxy.wait_connections(0, SOON).await.unwrap();
}

#[tokio::test]
async fn dropping_the_driver_or_the_attempt_ends_its_connections() {
    let proxy = Proxy::start(server().await).await.unwrap();
    let (driver, mut events) = connect_to(&[proxy.addr()]).await;
    proxy.wait_connections(1, SOON).await.unwrap();
    drop(driver);
    proxy.wait_connections(0, SOON).await.unwrap();
    assert_eq!(next(&mut events).await, None);

    proxy.hold_replies(true);
    let attempt = tokio::spawn(connect(spec(&[proxy.addr()])));
    proxy.wait_connections(1, SOON).await.unwrap();
    attempt.abort();
    proxy.hold_replies(false);
    proxy.wait_connections(0, SOON).await.unwrap();
}

#[tokio::test]
async fn credentials_that_the_server_does_not_accept_are_told_as_such() {
    let mut unknown = spec(&[server().await]);
    unknown.auth.push(Auth { scheme: "no-such-scheme".to_owned(), secret: Secret::from("a:b") });
    let failure = connect(unknown).await.map(drop).unwrap_err();
    assert!(matches!(failure, ConnectFailure::AuthFailed(_)), "{failure:?}");
}

#[tokio::test]
async fn a_ping_keeps_an_idle_session_alive() {
    let mut short = spec(&[server().await]);
    short.session_timeout = SHORT;
    let Connected { driver, mut events } = connect(short).await.unwrap();
    create(&*driver, "/idle", CreateMode::Ephemeral).await.unwrap();
    // Far beyond the timeout; a connection lost to a busy machine is no matter, an end would be.
    let over = async {
        while let Some(DriverEvent::Suspended { .. } | DriverEvent::Resumed) = events.recv().await {}
    };
    assert!(timeout(SHORT * 3, over).await.is_err(), "the session ended");
    let (_, stat) = driver.get("/idle", None, soon()).await.unwrap();
    assert!(stat.is_owned_by(driver.session_id()));
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_session() {
    // The client's own connection is broken from the driver's side, the one thing that can be done to it here.
    let (commands, mut told) = mpsc::unbounded_channel();
    let (client, local) = start_client(commands).await.unwrap();
    drop(local);
    let command = timeout(SOON, told.recv()).await.unwrap().unwrap();
    assert!(matches!(command, Command::ClientFailed(_)), "{command:?}");
    drop(client);
}

/// A session of which the test can reach the parts.
async fn dissected() -> (ZookeeperAsync, mpsc::UnboundedReceiver<DriverEvent>) {
    let home = Arc::new(Home::build().unwrap());
    let (told, events) = mpsc::unbounded_channel();
    let (done, made) = oneshot::channel();
    let spec = spec(&[server().await]);
    let establishing = establish(spec, Resident(home.clone()), told, Arc::default());
    home.spawn(async move { drop(done.send(establishing.await)) });
    (made.await.unwrap().unwrap(), events)
}

#[tokio::test]
async fn a_client_that_sits_on_requests_ends_the_session() {
    let (driver, mut events) = dissected().await;
    // Counted as under way, and never seen by the link.
    let stuck = driver.state.count_request(std::future::pending::<()>());
    match next(&mut events).await {
        Some(DriverEvent::Dead { reason }) => assert!(reason.contains("sat on requests"), "{reason}"),
        event => panic!("{event:?}"),
    }
    drop(stuck);
    assert_eq!(next(&mut events).await, None);
}

#[tokio::test]
async fn a_client_that_panics_ends_the_session_and_not_the_process() {
    let (driver, mut events) = dissected().await;
    let answer: DriverResult<()> =
        driver.requests.call(soon(), |_| async { panic!("as it does over some replies") }).await;
    assert!(matches!(answer, Err(DriverError::Ambiguous(_))), "{answer:?}");
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Dead { .. })));
    assert_eq!(next(&mut events).await, None);
}
