//! Servers that are none, or bad ones.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::super::wire::{ConnectRequest, Fields, Frame, FrameReader, Grant, MAX_REPLY, op, xid};
use super::*;

/// A server of which each connection runs the same script.
async fn fake<F>(script: impl Fn(FakeConnection) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, writer) = stream.into_split();
            tokio::spawn(script(FakeConnection { reader: FrameReader::new(reader, 1 << 20), writer }));
        }
    });
    address
}

struct FakeConnection {
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl FakeConnection {
    async fn greet(&mut self) -> io::Result<ConnectRequest> {
        let frame = self.reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let request = ConnectRequest::parse(frame.payload())?;
        let grant = Grant { timeout: TIMEOUT, session_id: 77, password: vec![5; 16] };
        self.writer.write_all(grant.to_frame().as_bytes()).await?;
        Ok(request)
    }

    /// The next request that is no ping, by its id and operation.
    async fn request(&mut self) -> io::Result<(i32, i32)> {
        loop {
            let frame = self.reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let mut fields = Fields(frame.payload());
            let (id, operation) = (fields.i32()?, fields.i32()?);
            if operation != op::PING {
                return Ok((id, operation));
            }
            self.reply(xid::PING, 0, b"").await?;
        }
    }

    async fn reply(&mut self, id: i32, code: i32, body: &[u8]) -> io::Result<()> {
        let frame = Frame::build(|out| {
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&1i64.to_be_bytes());
            out.extend_from_slice(&code.to_be_bytes());
            out.extend_from_slice(body);
        });
        self.writer.write_all(frame.as_bytes()).await
    }
}

#[tokio::test]
async fn a_connection_begins_with_the_session_and_the_credentials() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let address = fake(move |mut connection| {
        let tell = tell.clone();
        async move {
            let request = connection.greet().await?;
            let (id, operation) = connection.request().await?;
            let _ = tell.send((request.session_id, request.password, request.last_zxid, operation));
            connection.reply(id, 0, b"").await?;
            // Answers one request, of transaction 1, and closes the connection upon the next.
            let (id, _) = connection.request().await?;
            connection.reply(id, -101, b"").await?;
            connection.request().await.map(drop)
        }
    })
    .await;
    let mut authenticated = spec(&[address]);
    authenticated.auth.push(Auth { scheme: "digest".to_owned(), secret: Secret::from("a:b") });
    let Connected { driver, mut events } = connect(authenticated).await.unwrap();
    assert_eq!(driver.session_id(), SessionId(77));
    assert_eq!(driver.granted_timeout(), TIMEOUT);
    assert_eq!(told.recv().await.unwrap(), (0, vec![0; 16], 0, op::AUTH));
    driver.barrier(soon()).await.unwrap();
    let lost = driver.barrier(soon()).await;
    assert!(matches!(lost, Err(DriverError::Ambiguous(_))), "{lost:?}");
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert_eq!(next(&mut events).await, Some(DriverEvent::Resumed));
    // And what it has seen, so that no server takes the session that is behind it.
    assert_eq!(told.recv().await.unwrap(), (77, vec![5; 16], 1, op::AUTH));
}

#[tokio::test]
async fn a_server_that_says_the_session_is_over_is_believed() {
    let first = Arc::new(AtomicBool::new(true));
    let address = fake(move |mut connection| {
        let first = first.swap(false, Ordering::SeqCst);
        async move {
            if first {
                connection.greet().await?;
                connection.request().await.map(drop)
            } else {
                connection.reader.next().await?;
                let over = Grant { timeout: Duration::ZERO, session_id: 0, password: vec![0; 16] };
                connection.writer.write_all(over.to_frame().as_bytes()).await?;
                connection.request().await.map(drop)
            }
        }
    })
    .await;
    let (driver, mut events) = connect_to(&[address]).await;
    let _ = driver.barrier(soon()).await;
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    assert_eq!(next(&mut events).await, Some(DriverEvent::Expired));
    assert_eq!(next(&mut events).await, None);
}

#[tokio::test]
async fn a_shorter_grant_on_another_connection_ends_the_session() {
    let first = Arc::new(AtomicBool::new(true));
    let address = fake(move |mut connection| {
        let first = first.swap(false, Ordering::SeqCst);
        async move {
            if first {
                connection.greet().await?;
            } else {
                connection.reader.next().await?;
                let less = Grant { timeout: TIMEOUT / 2, session_id: 77, password: vec![5; 16] };
                connection.writer.write_all(less.to_frame().as_bytes()).await?;
            }
            connection.request().await.map(drop)
        }
    })
    .await;
    let (driver, mut events) = connect_to(&[address]).await;
    let _ = driver.barrier(soon()).await;
    assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })));
    match next(&mut events).await {
        Some(DriverEvent::Dead { reason }) => assert!(reason.contains("2s"), "{reason}"),
        event => panic!("{event:?}"),
    }
}

/// What is no ZooKeeper, sent instead of a handshake.
fn garbage() -> Vec<Vec<u8>> {
    let mut all = vec![
        Vec::new(),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        vec![0xff; 64],
        vec![0; 64],
        // A handshake of two gigabytes, and one of a negative length.
        vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        vec![0x80, 0, 0, 0],
    ];
    let mut random = fastrand::Rng::with_seed(1);
    all.extend((0..20).map(|_| (0..200).map(|_| random.u8(..)).collect()));
    all
}

#[tokio::test]
async fn garbage_instead_of_a_handshake_is_an_error_in_time() {
    let attempts = garbage().into_iter().map(|bytes| async move {
        let sent = bytes.clone();
        let address = fake(move |mut connection| {
            let bytes = bytes.clone();
            async move {
                connection.writer.write_all(&bytes).await?;
                // Held open: only a deadline of its own helps the client.
                connection.request().await.map(drop)
            }
        })
        .await;
        let mut patient = spec(&[address]);
        patient.deadline = BootTime::now() + Duration::from_millis(800);
        let began = BootTime::now();
        let failure = connect(patient).await.map(drop).unwrap_err();
        assert!(BootTime::now().duration_since(began) < Duration::from_secs(5), "{sent:?}");
        match failure {
            ConnectFailure::Unavailable(reason) => assert!(reason.contains(&address.to_string()), "{reason}"),
            other => panic!("{other:?} after {sent:?}"),
        }
    });
    futures_util::future::join_all(attempts).await;
}

#[tokio::test]
async fn garbage_instead_of_a_reply_costs_the_connection_and_nothing_else() {
    // Right ids, wrong bodies; then wrong ids; then anything.
    let huge = [0x7f, 0xff, 0xff, 0xff];
    let mut bodies: Vec<Vec<u8>> =
        vec![huge.to_vec(), Vec::new(), vec![0; 7], [&huge[..], &[1; 500]].concat()];
    let mut random = fastrand::Rng::with_seed(2);
    // Beginning with a length or a count beyond the message: other random bytes can be a stat like any other.
    bodies.extend((1..12).map(|n| [vec![0x7f], (0..n * 9).map(|_| random.u8(..)).collect()].concat()));
    for body in bodies {
        let sent = body.clone();
        let address = fake(move |mut connection| {
            let body = body.clone();
            async move {
                connection.greet().await?;
                let (id, _) = connection.request().await?;
                connection.reply(id, 0, &body).await?;
                connection.request().await.map(drop)
            }
        })
        .await;
        let (driver, mut events) = connect_to(&[address]).await;
        let read = driver.children("/", None, soon()).await;
        assert!(matches!(read, Err(DriverError::Ambiguous(_))), "{read:?} after {sent:?}");
        assert!(matches!(next(&mut events).await, Some(DriverEvent::Suspended { .. })), "{sent:?}");
        assert_eq!(next(&mut events).await, Some(DriverEvent::Resumed));
        let read = driver.get("/", None, soon()).await;
        assert!(matches!(read, Err(DriverError::Ambiguous(_))), "{read:?} after {sent:?}");
    }
}

#[tokio::test]
async fn an_endless_stream_of_bytes_takes_no_memory() {
    let address = fake(|mut connection| async move {
        connection.greet().await?;
        let (..) = connection.request().await?;
        // A length that is allowed, and then as much as is taken.
        connection.writer.write_all(&(MAX_REPLY as i32).to_be_bytes()).await?;
        let chunk = vec![0; 1 << 20];
        loop {
            connection.writer.write_all(&chunk).await?;
        }
    })
    .await;
    let (driver, mut events) = connect_to(&[address]).await;
    let before = resident();
    let _ = driver.barrier(soon()).await;
    let mut most = 0;
    let ends = BootTime::now() + Duration::from_secs(3);
    while BootTime::now() < ends {
        most = most.max(resident().saturating_sub(before));
        if events.try_recv() == Ok(DriverEvent::Resumed) {
            let _ = driver.barrier(soon()).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(most < 200 << 20, "{} MiB", most >> 20);
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn an_unreachable_host_does_not_use_up_the_time_of_the_others() {
    let silent = fake(|mut connection| async move { connection.request().await.map(drop) }).await;
    let refusing = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let mut hosts = spec(&[refusing, silent, server().await]);
    hosts.deadline = BootTime::now() + Duration::from_secs(4);
    let Connected { driver, .. } = connect(hosts).await.unwrap();
    driver.barrier(soon()).await.unwrap();

    let mut none = spec(&[refusing, silent]);
    none.deadline = BootTime::now() + Duration::from_millis(500);
    let failure = connect(none).await.map(drop).unwrap_err().to_string();
    assert!(failure.contains(&refusing.to_string()) && failure.contains(&silent.to_string()), "{failure}");
}

#[tokio::test]
async fn a_request_without_an_answer_does_not_hold_the_next_one_back() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let address = fake(move |mut connection| {
        let tell = tell.clone();
        async move {
            connection.greet().await?;
            loop {
                // Answered late, as a write is by an ensemble whose servers are far apart; the read behind it waits.
                let (write, operation) = connection.request().await?;
                if operation == op::DELETE {
                    let began = BootTime::now();
                    let (read, _) = connection.request().await?;
                    let _ = tell.send(BootTime::now().duration_since(began));
                    connection.reply(write, -101, b"").await?;
                    connection.reply(read, -101, b"").await?;
                } else {
                    connection.reply(write, -101, b"").await?;
                }
            }
        }
    })
    .await;
    let (driver, _events) = connect_to(&[address]).await;
    let mut gaps = Vec::new();
    for _ in 0..20 {
        // Answers at once make the kernel wait with its acknowledgements for something to put them on.
        for _ in 0..5 {
            assert_eq!(definite(driver.get("/", None, soon()).await), Code::NoNode);
        }
        let (write, read) = tokio::join!(driver.delete("/a", None, soon()), driver.get("/", None, soon()));
        assert_eq!((definite(write), definite(read)), (Code::NoNode, Code::NoNode));
        gaps.push(told.recv().await.unwrap());
    }
    gaps.sort();
    // The kernel waits for 40 ms; the median, for the machine may be busy.
    assert!(gaps[gaps.len() / 2] < Duration::from_millis(15), "{gaps:?}");
}
