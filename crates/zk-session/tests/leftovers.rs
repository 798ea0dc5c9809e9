//! What one connection leaves over is nothing to the next, and an answer is one only to the request that it names.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::server::{Answer, NO_NODE, PING, SESSION, handshake, reply, serve, xid};
use common::{PATIENCE, builder, soon};
use tokio::net::TcpListener;
use zk_session::{DriverKind, Epoch, SessionState};

for_each_driver!(
    half_a_message_at_the_end_of_a_connection_is_not_read_with_the_next,
    an_answer_to_another_request_is_none,
);

/// An event of a watch that nobody has armed.
fn event() -> Vec<u8> {
    let mut body = 3i32.to_be_bytes().to_vec();
    body.extend(3i32.to_be_bytes());
    body.extend(2i32.to_be_bytes());
    body.extend(b"/a");
    reply(-1, -1, 0, &body)
}

/// The answer to a read of data: "forged", and a stat of zeros.
fn forged(to: i32) -> Vec<u8> {
    let mut body = 6i32.to_be_bytes().to_vec();
    body.extend(b"forged");
    body.extend([0; 68]);
    reply(to, 1, 0, &body)
}

fn session_id(handshake: &[u8]) -> i64 {
    i64::from_be_bytes(handshake[16..24].try_into().unwrap())
}

/// Whether it is a read of data, by its operation code.
fn is_read(request: &[u8]) -> bool {
    request[4..8] == 4i32.to_be_bytes()
}

async fn half_a_message_at_the_end_of_a_connection_is_not_read_with_the_next(driver: DriverKind) {
    // The first reads end their connections, each in the middle of a message, at another place.
    let places: Vec<usize> = (0..event().len()).step_by(3).collect();
    let cuts = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, {
        let (cuts, places) = (Arc::clone(&cuts), places.clone());
        move |connection, turn, request| {
            if turn == 0 {
                let wanted = if connection == 0 { 0 } else { SESSION };
                assert_eq!(session_id(request), wanted, "connection {connection}");
                return Answer::Say(handshake(4000));
            }
            let cut = cuts.load(Ordering::SeqCst);
            if is_read(request) && cut < places.len() {
                cuts.fetch_add(1, Ordering::SeqCst);
                return Answer::SayAndClose(event()[..places[cut]].to_vec());
            }
            match xid(request) {
                special if special < 0 => Answer::Say(reply(special, 1, 0, &[])),
                other => Answer::Say(reply(other, 1, NO_NODE, &[])),
            }
        }
    }));
    let session = builder(driver, address).connect().await.unwrap();
    for _ in &places {
        // Repeated over the next connection, whose answer it gets.
        assert_eq!(soon("the answer", session.get("/a")).await, Ok(None));
    }
    assert!(cuts.load(Ordering::SeqCst) >= places.len());
    assert_eq!(session.active().await.unwrap().session_id().0, SESSION);
    assert_eq!(session.active().await.unwrap().epoch(), Epoch(1));
    session.close(PATIENCE).await;
    server.abort();
}

async fn an_answer_to_another_request_is_none(driver: DriverKind) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, |_, turn, request| {
        if turn == 0 {
            return Answer::Say(handshake(4000));
        }
        match xid(request) {
            PING => Answer::Say(reply(PING, 1, 0, &[])),
            special if special < 0 => Answer::Say(reply(special, 1, 0, &[])),
            read if is_read(request) => Answer::Say(forged(read + 1)),
            other => Answer::Say(reply(other, 1, NO_NODE, &[])),
        }
    }));
    let session = builder(driver, address).connect().await.unwrap();
    let incarnation = session.active().await.unwrap();
    let read = soon("an answer", incarnation.get("/a")).await;
    assert!(read.is_err(), "{read:?}");
    assert_ne!(session.state(), SessionState::Closed);
    session.close(PATIENCE).await;
    server.abort();
}
