//! No secret gets into the logs of `zookeeper-async`, which prints the handshake that it gets.
#![cfg(feature = "zookeeper-async")]

use crate::common::{Bed, Captured, PATIENCE};
use zk_session::{CloseOutcome, CreateMode, DriverKind, Secret};

#[tokio::test]
async fn neither_password_nor_credentials_are_logged_at_any_level() {
    let log = Captured::of_process();
    let bed = Bed::start(DriverKind::ZookeeperAsync).await;
    let session = bed.builder().auth("digest", Secret::from("operator:hunter2")).connect().await.unwrap();
    session.create("/logged", b"", CreateMode::Ephemeral).await.unwrap();
    bed.proxy.cut().await;
    // Read over another connection, for which credentials and handshake are sent again.
    assert!(session.get("/logged").await.unwrap().is_some());
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);

    let text = log.text();
    let mut handshakes = 0;
    for line in text.lines() {
        assert!(!line.contains("hunter2"), "{line}");
        if let Some((_, password)) = line.split_once("passwd: [") {
            handshakes += 1;
            let password = password.split_once(']').unwrap().0;
            assert!(password.split(", ").all(|byte| byte == "0"), "a password: {line}");
        }
    }
    assert!(handshakes > 0, "the client logs its handshake no more, so this test proves nothing:\n{text}");
}
