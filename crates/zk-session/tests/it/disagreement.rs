//! A server whose znodes differ from those of the quorum: the session finds out and leaves it.

use std::time::Duration;

use zk_session::{CreateMode, OpError, Semaphore, Session};
use zk_testkit::TestServer;

const LONG: Duration = Duration::from_secs(60);

/// A session that prefers server 1, a follower.
async fn at_follower(servers: &TestServer) -> Session {
    let preferred = servers.addresses()[1].to_string();
    let builder = Session::builder(servers.connect_string()).session_timeout(Duration::from_secs(1));
    let session = builder.prefer(preferred).connect().await.unwrap();
    assert_eq!(server_of(servers, &session), 1);
    session
}

fn server_of(servers: &TestServer, session: &Session) -> usize {
    let id = session.incarnation().unwrap().session_id().0;
    servers.sessions().iter().find(|info| info.id == id).unwrap().server
}

async fn start() -> (TestServer, Session, Session) {
    let servers = TestServer::builder().servers(3).start().await.unwrap();
    let session = at_follower(&servers).await;
    let other = Session::builder(servers.addresses()[0].to_string()).connect().await.unwrap();
    (servers, session, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_znode_that_only_one_server_keeps_ends() {
    let (servers, session, other) = start().await;
    other.create("/held", "", CreateMode::Ephemeral).await.unwrap();
    session.sync("/").await.unwrap();
    let mut watch = session.watch_data("/held");
    assert!(watch.next().await.unwrap().value.is_some());
    servers.faults().keep_znode(1, "/held", true);
    other.delete("/held", None).await.unwrap();
    session.barrier().await.unwrap();
    assert!(session.get("/held").await.unwrap().is_some(), "the server keeps it");
    let next = tokio::time::timeout(LONG, watch.next()).await.unwrap().unwrap();
    assert_eq!(next.value, None);
    assert_ne!(server_of(&servers, &session), 1);
    // It does not return there, though that is the preferred server.
    let epoch = session.incarnation().unwrap().epoch();
    servers.faults().disconnect(session.incarnation().unwrap().session_id().0);
    for _ in 0..30 {
        session.barrier().await.unwrap();
        assert_ne!(server_of(&servers, &session), 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(session.incarnation().unwrap().epoch(), epoch, "it is the same session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_semaphore_has_it_though_one_server_keeps_a_holder() {
    let (servers, session, other) = start().await;
    let of = |session: &Session| Semaphore::new(session, "/semaphore", 2);
    let (first, _second) = (of(&other).acquire().await.unwrap(), of(&other).acquire().await.unwrap());
    servers.faults().keep_znode(1, first.path(), true);
    let waiting = tokio::spawn({
        let semaphore = of(&session);
        async move { semaphore.acquire().await }
    });
    let asked = async { while other.children("/semaphore").await.unwrap().unwrap().names.len() < 3 {} };
    tokio::time::timeout(LONG, asked).await.unwrap();
    first.release().await.unwrap();
    tokio::time::timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_ne!(server_of(&servers, &session), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lacks_a_znode_is_left_once_its_creation_is_refused_repeatedly() {
    let (servers, session, other) = start().await;
    other.create("/there", "", CreateMode::Ephemeral).await.unwrap();
    session.sync("/").await.unwrap();
    servers.faults().lose_znode(1, "/there");
    let trying = async {
        while session.get("/there").await.unwrap().is_none() {
            let refused = session.create("/there", "", CreateMode::Ephemeral).await;
            assert!(matches!(refused, Err(OpError::NodeExists { .. })), "{refused:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, trying).await.unwrap();
    assert_ne!(server_of(&servers, &session), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn znodes_that_come_and_go_are_no_disagreement() {
    let (servers, session, other) = start().await;
    servers.faults().delay_commits(1, Duration::from_millis(30));
    let mut watch = session.watch_data("/held");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(6);
    while tokio::time::Instant::now() < deadline {
        other.create("/held", "", CreateMode::Ephemeral).await.unwrap();
        // Refused with and without the other session's znode.
        let _ = session.create("/held", "", CreateMode::Ephemeral).await;
        other.set("/held", "data", None).await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(60), watch.next()).await;
        let _ = other.delete("/held", None).await;
        let _ = session.delete("/held", None).await;
    }
    assert_eq!(server_of(&servers, &session), 1, "its server only lags");
}
