//! What one connection leaves over is nothing to the next, and an answer is one only to the request that it names. What a
//! server says of itself, not of the request, is mended by another connection or by another attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::server::{Answer, NO_NODE, PING, SESSION, handshake, reply, serve, xid};
use crate::common::{PATIENCE, builder, soon};
use tokio::net::TcpListener;
use zk_session::{DriverKind, Epoch, OpError, SessionState};

for_each_driver!(
    half_a_message_at_the_end_of_a_connection_is_not_read_with_the_next,
    an_answer_to_another_request_is_none,
    a_server_that_no_longer_has_the_session_is_left,
    a_server_that_is_overloaded_is_asked_again,
    a_read_whose_answer_is_too_large_fails_and_costs_nobody_anything,
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

/// What comes of a write to a server that answers the first writes by those codes, on whatever connection they come, and the
/// later ones by another version being there; and how many connections it took.
async fn write_answered(driver: DriverKind, codes: &'static [i32]) -> (OpError, usize) {
    const SET_DATA: [u8; 4] = 5i32.to_be_bytes();
    const BAD_VERSION: i32 = -103;
    let (answered, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, {
        let connections = Arc::clone(&connections);
        move |connection, turn, request| {
            connections.fetch_max(connection + 1, Ordering::SeqCst);
            if turn == 0 {
                return Answer::Say(handshake(4000));
            }
            let code = match xid(request) {
                special if special < 0 => 0,
                _ if request[4..8] == SET_DATA => {
                    let n = answered.fetch_add(1, Ordering::SeqCst);
                    codes.get(n).copied().unwrap_or(BAD_VERSION)
                }
                _ => NO_NODE,
            };
            Answer::Say(reply(xid(request), 1, code, &[]))
        }
    }));
    let session = builder(driver, address).connect().await.unwrap();
    let keeper = session.keep_lease();
    let refused = soon("the answer", session.set("/a", "", Some(0))).await.unwrap_err();
    // It is the same session, whose lease goes on.
    assert_eq!(session.active().await.unwrap().epoch(), Epoch(1));
    crate::common::wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    session.close(PATIENCE).await;
    server.abort();
    (refused, connections.load(Ordering::SeqCst))
}

async fn a_server_that_no_longer_has_the_session_is_left(driver: DriverKind) {
    // It was certainly not done there, so what the next one says is certain.
    let refused = OpError::BadVersion { path: "/a".to_owned() };
    assert_eq!(write_answered(driver, &[-118]).await, (refused, 2));
}

async fn a_server_that_is_overloaded_is_asked_again(driver: DriverKind) {
    let refused = OpError::BadVersion { path: "/a".to_owned() };
    assert_eq!(write_answered(driver, &[-127, -127]).await, (refused, 1));
}

async fn a_read_whose_answer_is_too_large_fails_and_costs_nobody_anything(driver: DriverKind) {
    const LIMIT: usize = 16 << 20;
    let (asked, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, {
        let (asked, connections) = (Arc::clone(&asked), Arc::clone(&connections));
        move |connection, turn, request| {
            connections.fetch_max(connection + 1, Ordering::SeqCst);
            if turn == 0 {
                return Answer::Say(handshake(4000));
            }
            match xid(request) {
                special if special < 0 => Answer::Say(reply(special, 1, 0, &[])),
                read if is_read(request) && asked.fetch_add(1, Ordering::SeqCst) == 0 => {
                    Answer::Say(reply(read, 1, 0, &vec![0; LIMIT]))
                }
                other => Answer::Say(reply(other, 1, NO_NODE, &[])),
            }
        }
    }));
    let session = builder(driver, address).connect().await.unwrap();
    let refused = soon("an error", session.get("/a")).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains(&LIMIT.to_string()), "{refused}");
    assert_eq!(soon("the answer", session.get("/a")).await, Ok(None));
    assert_eq!((asked.load(Ordering::SeqCst), connections.load(Ordering::SeqCst)), (2, 1));
    session.close(PATIENCE).await;
    server.abort();
}
