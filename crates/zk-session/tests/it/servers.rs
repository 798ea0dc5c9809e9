//! The servers to choose from, replaced while the session lives.

use std::time::Duration;

use crate::common::three::Three;
use crate::common::{eventually, soon};
use zk_session::{ConnectError, CreateMode, DriverKind, Epoch, Session, SessionState};
use zk_testkit::{Op, Proxy, Servers};

on_each_server!(
    a_session_leaves_a_server_that_is_no_longer_listed,
    a_session_whose_server_stays_listed_does_not_move,
    it_moves_as_soon_as_one_of_the_new_servers_takes_it,
    servers_replaced_while_there_is_no_connection_are_tried,
    what_makes_no_sense_is_refused_and_changes_nothing,
);
tests_on!(native_on_lagging_servers, Native, Embedded, a_move_never_leads_back_behind_what_was_seen);

async fn session(driver: DriverKind, connect: String) -> Session {
    crate::common::builder_for(driver, connect).connect().await.unwrap()
}

fn connections(proxies: &[Proxy]) -> Vec<usize> {
    proxies.iter().map(Proxy::connections).collect()
}

/// Waits until the only connection is that with this one.
async fn only_at(three: &Three, index: usize) {
    let what = format!("the only connection is with {index}");
    eventually(&what, async || {
        connections(&three.proxies).iter().enumerate().all(|(n, &count)| count == usize::from(n == index))
    })
    .await;
}

async fn a_session_leaves_a_server_that_is_no_longer_listed(driver: DriverKind) {
    let three = Three::start().await;
    let session = session(driver, three.proxies[0].addr().to_string()).await;
    let before = session.active().await.unwrap();
    session.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let mut watch = session.watch_data("/a");
    assert!(soon("nothing there", watch.next()).await.unwrap().value.is_none());
    for to in [1, 2, 0] {
        session.set_servers(&three.proxies[to].addr().to_string()).unwrap();
        only_at(&three, to).await;
        // What was sent during the move has ended, or is done now.
        session.barrier().await.unwrap();
        let now = session.active().await.unwrap();
        assert_eq!((now.session_id(), now.epoch()), (before.session_id(), Epoch(1)));
        assert!(session.get("/mine").await.unwrap().unwrap().stat.is_owned_by(before.session_id()));
    }
    three.observer().await.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert!(soon("that it is there", watch.next()).await.unwrap().value.is_some());
}

async fn a_session_whose_server_stays_listed_does_not_move(driver: DriverKind) {
    let three = Three::start().await;
    let session = session(driver, three.proxies[0].addr().to_string()).await;
    let mut states = session.subscribe();
    states.mark_unchanged();
    let port = three.proxies[0].addr().port();
    let others = format!("{},{}", three.proxies[1].addr(), three.proxies[2].addr());
    // By any name.
    for same in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        for _ in 0..3 {
            session.set_servers(&format!("{others},{same}")).unwrap();
            session.barrier().await.unwrap();
            session.get("/").await.unwrap();
        }
    }
    // One that stays is told by what comes after it: a move to another server.
    assert_eq!(connections(&three.proxies), [1, 0, 0]);
    assert!(!states.has_changed().unwrap(), "{:?}", states.borrow());
    session.set_servers(&others).unwrap();
    eventually("it moves", async || three.proxies[0].connections() == 0).await;
    session.barrier().await.unwrap();
    let accepted = three.proxies.iter().map(|proxy| proxy.accepted().len());
    assert!(accepted.sum::<usize>() <= 3, "one connection for the session, and those of one move");
    assert_eq!(three.proxies[0].accepted().len(), 1);
}

async fn it_moves_as_soon_as_one_of_the_new_servers_takes_it(driver: DriverKind) {
    let three = Three::start().await;
    let session = session(driver, three.proxies[0].addr().to_string()).await;
    let id = session.active().await.unwrap().session_id();
    three.refuse(|n| n == 1).await;
    session.set_servers(&three.proxies[1].addr().to_string()).unwrap();
    // It goes on where it is until then: longer than any one search lasts.
    let sought = tokio::time::Instant::now();
    while sought.elapsed() < crate::common::TIMEOUT {
        session.barrier().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(connections(&three.proxies), [1, 0, 0]);
    three.refuse(|_| false).await;
    only_at(&three, 1).await;
    session.barrier().await.unwrap();
    assert_eq!(session.active().await.unwrap().session_id(), id);
}

async fn servers_replaced_while_there_is_no_connection_are_tried(driver: DriverKind) {
    let three = Three::start().await;
    let session = session(driver, three.proxies[0].addr().to_string()).await;
    let id = session.active().await.unwrap().session_id();
    three.refuse(|n| n == 0).await;
    three.cut().await;
    crate::common::wait_state(&session, "paused", |state| !state.is_active()).await;
    session.set_servers(&three.proxies[2].addr().to_string()).unwrap();
    crate::common::wait_state(&session, "active", SessionState::is_active).await;
    only_at(&three, 2).await;
    assert_eq!(session.active().await.unwrap().session_id(), id);
}

async fn what_makes_no_sense_is_refused_and_changes_nothing(driver: DriverKind) {
    let three = Three::start().await;
    let observer = three.observer().await;
    observer.create("/root", "", CreateMode::Persistent).await.unwrap();
    let (here, there) = (three.proxies[0].addr(), three.proxies[1].addr());
    let session = session(driver, format!("{here}/root")).await;
    for bad in ["", "host:port", "host:2181,,", &format!("{there}/other"), &format!("{there}/root/below")] {
        let refused = session.set_servers(bad);
        assert!(matches!(refused, Err(ConnectError::InvalidConnectString { .. })), "{bad:?}: {refused:?}");
    }
    session.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(connections(&three.proxies), [1, 0, 0]);
    // The root of before may be repeated, and left out.
    session.set_servers(&format!("{there}/root")).unwrap();
    only_at(&three, 1).await;
    session.set_servers(&here.to_string()).unwrap();
    only_at(&three, 0).await;
    session.barrier().await.unwrap();
    assert!(observer.get("/root/a").await.unwrap().is_some());
    assert_eq!(three.proxies[0].seen(Op::Create), 1);
    assert!(session.get("/a").await.unwrap().is_some());
}

/// While it looks for another server the session goes on seeing changes. A server that is behind them must not get it.
async fn a_move_never_leads_back_behind_what_was_seen(driver: DriverKind) {
    let three = Three::start().await;
    let Servers::Embedded(servers) = &three.servers else { panic!("not in this process") };
    // A server that leads would see at once that it has the session no longer.
    let (here, there) = ((three.leader + 1) % 3, (three.leader + 2) % 3);
    let observer = three.observer().await;
    observer.create("/a", "old", CreateMode::Persistent).await.unwrap();
    let session = session(driver, three.proxies[here].addr().to_string()).await;
    let id = session.active().await.unwrap().session_id();
    session.barrier().await.unwrap();
    // It takes the session, and says so late.
    three.proxies[there].delay_replies(Duration::from_millis(500));
    session.set_servers(&three.proxies[there].addr().to_string()).unwrap();
    eventually("it is asked", async || !three.proxies[there].accepted().is_empty()).await;
    servers.faults().hold_commits(there, true);
    observer.set("/a", "new", None).await.unwrap();
    let read = async || session.get("/a").await.unwrap().unwrap().data;
    eventually("it is seen", async || read().await == b"new").await;
    let early = three.proxies[there].connections() == 1 && three.proxies[here].connections() == 1;
    assert!(early, "it was seen after the move");
    eventually("the old connection is given up", async || three.proxies[here].connections() == 0).await;
    three.proxies[there].delay_replies(Duration::ZERO);
    let tries = three.proxies[there].accepted().len() + 3;
    tokio::select! {
        read = read() => assert_eq!(String::from_utf8(read).unwrap(), "new"),
        () = eventually("it is refused", async || three.proxies[there].accepted().len() >= tries) => {}
    }
    servers.faults().hold_commits(there, false);
    assert_eq!(soon("it is read", read()).await, b"new");
    assert_eq!(session.active().await.unwrap().session_id(), id);
}
