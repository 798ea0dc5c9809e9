//! A server made up of a script, for what no real one does.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The answer to each ping.
pub const PING: i32 = -2;
/// The answer to the setting of watches after a reconnect.
pub const SET_WATCHES: i32 = -8;
/// The error code for a znode that does not exist.
pub const NO_NODE: i32 = -101;
/// The id of the one session that it grants.
pub const SESSION: i64 = 0x77;

/// Length, protocol version, session timeout in ms, session id, password, read-only.
pub fn handshake(timeout_ms: i32) -> Vec<u8> {
    let mut frame = granted(timeout_ms, SESSION, [7; 16]);
    frame.push(0);
    framed(frame)
}

/// The same as ClickHouse Keeper has it, without a word on read-only: each connection has a session of its own, whose
/// password is nothing. (`KeeperTCPHandler::receiveHandshake` in its source: the id that a client asks for is read and
/// ignored; `sendHandshake`: the password is zeros.)
fn handshake_of_keeper(timeout_ms: i32, connection: usize) -> Vec<u8> {
    framed(granted(timeout_ms, SESSION + i64::try_from(connection).unwrap(), [0; 16]))
}

fn granted(timeout_ms: i32, session: i64, password: [u8; 16]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(0i32.to_be_bytes());
    frame.extend(timeout_ms.to_be_bytes());
    frame.extend(session.to_be_bytes());
    frame.extend(16i32.to_be_bytes());
    frame.extend(password);
    frame
}

/// With its length before it.
pub fn framed(body: Vec<u8>) -> Vec<u8> {
    let mut frame = i32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

/// A reply: to which request, the newest transaction, an error code, and the rest.
pub fn reply(xid: i32, zxid: i64, code: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = xid.to_be_bytes().to_vec();
    frame.extend(zxid.to_be_bytes());
    frame.extend(code.to_be_bytes());
    frame.extend(body);
    framed(frame)
}

/// What comes first in a request.
pub fn xid(request: &[u8]) -> i32 {
    i32::from_be_bytes(request[..4].try_into().unwrap())
}

/// What a server of a script does next.
pub enum Answer {
    Say(Vec<u8>),
    /// The last words of a connection.
    SayAndClose(Vec<u8>),
}

/// Serves each connection by answering each request; the script is told the number of the connection, the number of the
/// request on it (the handshake is number 0), and the request.
pub async fn serve(
    listener: TcpListener,
    script: impl Fn(usize, usize, &[u8]) -> Answer + Clone + Send + 'static,
) {
    let mut number = 0;
    while let Ok((mut connection, _)) = listener.accept().await {
        let script = script.clone();
        let this = number;
        // A connection without a word is one that only looks whether somebody is there.
        let Some(first) = read_frame(&mut connection).await else { continue };
        number += 1;
        tokio::spawn(async move {
            let mut request = Some(first);
            let mut turn = 0;
            while let Some(frame) = request {
                let (words, last) = match script(this, turn, &frame) {
                    Answer::Say(words) => (words, false),
                    Answer::SayAndClose(words) => (words, true),
                };
                if connection.write_all(&words).await.is_err() || last {
                    return;
                }
                turn += 1;
                request = read_frame(&mut connection).await;
            }
        });
    }
}

async fn read_frame(connection: &mut TcpStream) -> Option<Vec<u8>> {
    let length = connection.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(length).ok()?];
    connection.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

/// A server as ClickHouse Keeper is, and how to have it close the connections up to that number.
pub async fn keeper(granted: Duration) -> (SocketAddr, watch::Sender<usize>) {
    const DELETE: [u8; 4] = 2i32.to_be_bytes();
    const CLOSE: [u8; 4] = (-11i32).to_be_bytes();
    let granted_ms = i32::try_from(granted.as_millis()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (close, closed) = watch::channel(0);
    tokio::spawn(serve(listener, move |connection, turn, request| {
        if turn == 0 {
            return Answer::Say(handshake_of_keeper(granted_ms, connection));
        }
        let reply = |code, body: &[u8]| reply(xid(request), 1, code, body);
        match request.get(4..8) {
            _ if connection < *closed.borrow() => Answer::SayAndClose(Vec::new()),
            Some(op) if op == DELETE => Answer::Say(reply(NO_NODE, &[])),
            Some(op) if op == CLOSE => Answer::SayAndClose(reply(0, &[])),
            _ if xid(request) >= 0 => Answer::Say(reply(0, &[0; 68])),
            _ => Answer::Say(reply(0, &[])),
        }
    }));
    (address, close)
}
