//! No secret gets into the logs of `zookeeper-async`, which prints the handshake that it gets.
#![cfg(feature = "zookeeper-async")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::{Bed, PATIENCE};
use zk_session::{CloseOutcome, CreateMode, DriverKind, Secret};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn neither_password_nor_credentials_are_logged_at_any_level() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
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
