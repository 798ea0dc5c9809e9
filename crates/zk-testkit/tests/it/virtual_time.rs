//! With tokio's clock paused, the embedded server runs in virtual time.

use std::time::{Duration, Instant};

use crate::support::RawClient;
use tokio::time;
use zk_testkit::TestServer;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn sessions_expire_in_virtual_time() {
    let began = Instant::now();
    let server = TestServer::builder()
        .tick_time(Duration::from_secs(60))
        .session_timeouts(HOUR, HOUR)
        .start()
        .await
        .unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    client.create("/a").await.unwrap();
    let since = time::Instant::now();
    time::sleep(HOUR).await;
    assert_eq!(server.sessions().len(), 1, "not before its timeout");
    client.ping().await.unwrap();
    let pinged = time::Instant::now();
    while !server.sessions().is_empty() {
        time::sleep(Duration::from_secs(1)).await;
    }
    let lived = pinged.elapsed();
    assert!(lived >= HOUR && lived <= HOUR + Duration::from_secs(61), "{lived:?}");
    assert!(since.elapsed() > 2 * HOUR);
    assert!(began.elapsed() < Duration::from_secs(60), "it took real time: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_ends_by_itself_ends_in_virtual_time() {
    let server =
        TestServer::builder().with(|settings| settings.container_check = HOUR).start().await.unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    client.create_container("/box").await.unwrap();
    client.create("/box/x").await.unwrap();
    client.create_container("/unused").await.unwrap();
    let ttl_ms = i64::try_from((HOUR + HOUR / 2).as_millis()).unwrap();
    assert_eq!(client.create_ttl("/for-a-while", ttl_ms).await.unwrap().error, 0);
    time::sleep(HOUR + HOUR / 4).await;
    assert!(server.data(0, "/for-a-while").is_some(), "its time is not up");
    time::sleep(HOUR).await;
    assert!(server.data(0, "/for-a-while").is_none());
    assert!(server.data(0, "/box").is_some(), "it has a child");
    // The session is over by now; somebody else takes the child away.
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    client.delete("/box/x").await.unwrap();
    assert!(server.data(0, "/box").is_some());
    time::sleep(HOUR + Duration::from_secs(1)).await;
    assert!(server.data(0, "/box").is_none());
    assert!(server.data(0, "/unused").is_some(), "it never had a child");
}

#[tokio::test(start_paused = true)]
async fn delays_are_virtual() {
    let (server, began) = (TestServer::start().await.unwrap(), Instant::now());
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    server.faults().delay_replies(Duration::from_secs(5));
    let asked = time::Instant::now();
    client.ping().await.unwrap();
    assert!(asked.elapsed() >= Duration::from_secs(5));
    assert!(began.elapsed() < Duration::from_secs(4), "it took real time: {:?}", began.elapsed());
}
