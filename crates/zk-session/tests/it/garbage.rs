//! Servers that talk nonsense: no panic reaches the caller, nothing hangs, nothing grows.

use std::time::{Duration, Instant};

use crate::common::{PATIENCE, builder, soon, wait_state};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zk_session::{ConnectError, CreateMode, DriverKind, SessionState};

for_each_driver!(
    a_session_timeout_that_makes_no_sense_is_refused,
    nonsense_instead_of_a_handshake_is_an_error_in_time,
    nonsense_after_the_handshake_is_an_error_and_hangs_nothing,
);

/// Length, protocol version, session timeout in ms, session id, password, read-only.
fn handshake(timeout_ms: i32) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(0i32.to_be_bytes());
    frame.extend(timeout_ms.to_be_bytes());
    frame.extend(0x77i64.to_be_bytes());
    frame.extend(16i32.to_be_bytes());
    frame.extend([7; 16]);
    frame.push(0);
    framed(frame)
}

fn framed(body: Vec<u8>) -> Vec<u8> {
    let mut frame = i32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Serves each connection by reading a request and answering with the next of `answers`, the last one over and over.
async fn serve(listener: TcpListener, answers: impl Fn(usize, &[u8]) -> Vec<u8> + Clone + Send + 'static) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let answers = answers.clone();
        tokio::spawn(async move {
            let mut turn = 0;
            while let Some(request) = read_frame(&mut connection).await {
                if connection.write_all(&answers(turn, &request)).await.is_err() {
                    return;
                }
                turn += 1;
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

async fn nonsense_instead_of_a_handshake_is_an_error_in_time(driver: DriverKind) {
    let seed: u64 =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut noise = vec![0; 4096];
    random.fill(&mut noise);
    for answer in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        framed(vec![0; 3]),
        framed(noise.clone()),
        noise,
        i32::MAX.to_be_bytes().to_vec(),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shown = format!("{:02x?}", &answer[..answer.len().min(16)]);
        let server = tokio::spawn(serve(listener, move |_, _| answer.clone()));
        let within = Duration::from_millis(700);
        let started = Instant::now();
        let outcome = soon("an answer", builder(driver, address).connect_timeout(within).connect()).await;
        assert!(
            matches!(&outcome, Err(ConnectError::Unreachable { .. } | ConnectError::TimeoutTooShort { .. })),
            "{shown}: {outcome:?}"
        );
        assert!(
            started.elapsed() < within + Duration::from_secs(2),
            "{shown}: after {:?}",
            started.elapsed()
        );
        server.abort();
    }
}

async fn a_session_timeout_that_makes_no_sense_is_refused(driver: DriverKind) {
    for (granted, part) in [(-1, "no session"), (10, "session timeout")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Otherwise a server in good order: each request finds no such znode.
        let server = tokio::spawn(serve(listener, move |turn, request| {
            if turn == 0 {
                return handshake(granted);
            }
            let mut frame = request[..4].to_vec();
            frame.extend(1i64.to_be_bytes());
            frame.extend((-101i32).to_be_bytes());
            framed(frame)
        }));
        let connecting = builder(driver, address).connect_timeout(Duration::from_millis(700)).connect();
        let error = soon("an answer", connecting).await.unwrap_err();
        assert!(error.to_string().contains(part), "{granted}: {error}");
        server.abort();
    }
}

async fn nonsense_after_the_handshake_is_an_error_and_hangs_nothing(driver: DriverKind) {
    for nonsense in [
        framed(vec![0; 2]),
        // Instead: an answer in good order whose body is too short for what it should be.
        Vec::new(),
        framed(vec![0xff; 40]),
        (-5i32).to_be_bytes().to_vec(),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shown = format!("{nonsense:02x?}");
        let in_order = nonsense.is_empty();
        let good = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let server = tokio::spawn(serve(listener, {
            let good = good.clone();
            move |turn, request| {
                if turn == 0 {
                    return handshake(4000);
                }
                let reply = |body: &[u8], code: i32| {
                    let mut frame = request[..4].to_vec();
                    frame.extend(1i64.to_be_bytes());
                    frame.extend(code.to_be_bytes());
                    frame.extend(body);
                    framed(frame)
                };
                if request[..4] == (-2i32).to_be_bytes() {
                    return reply(&[], 0);
                }
                if good.load(std::sync::atomic::Ordering::SeqCst) {
                    // No such znode: the answer to the barrier that a session begins with.
                    return reply(&[], -101);
                }
                if nonsense.is_empty() { reply(&[1], 0) } else { nonsense.clone() }
            }
        }));
        let session = builder(driver, address).connect().await.unwrap();
        good.store(false, std::sync::atomic::Ordering::SeqCst);
        let incarnation = session.active().await.unwrap();
        let answered = soon("an answer to the read", incarnation.get("/a")).await;
        assert!(answered.is_err(), "{shown}: {answered:?}");
        let answered =
            soon("an answer to the write", incarnation.create("/a", "", CreateMode::Persistent)).await;
        assert!(answered.is_err(), "{shown}: {answered:?}");
        if !in_order {
            wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
        }
        session.close(PATIENCE).await;
        server.abort();
    }
}
