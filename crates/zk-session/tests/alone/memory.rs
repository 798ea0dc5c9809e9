//! What a server sends without end: no message of more than 16 MiB is taken, and none is asked for twice.
//!
//! Memory is measured for the whole process: one test at a time, in a binary of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::server::{NO_NODE, handshake, reply, xid};
use crate::common::{builder, eventually, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use zk_session::{DriverKind, OpError};

for_each_driver!(a_message_without_end_costs_the_connection_and_no_memory);

/// Resident memory in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn a_message_without_end_costs_the_connection_and_no_memory(driver: DriverKind) {
    let _alone = crate::ALONE.lock().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (streams, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = [&streams, &all].map(Arc::clone);
    let server = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let [streams, all] = counted.clone();
            tokio::spawn(async move {
                for turn in 0.. {
                    let Ok(length) = connection.read_i32().await else { return };
                    let mut request = vec![0; usize::try_from(length).unwrap()];
                    if connection.read_exact(&mut request).await.is_err() {
                        return;
                    }
                    let answer = match (turn, xid(&request)) {
                        (0, _) => handshake(4000),
                        (_, special) if special < 0 => reply(special, 1, 0, &[]),
                        (_, read) if request[4..8] == 4i32.to_be_bytes() => {
                            // The longest message there can be, and then bytes for as long as they are taken.
                            let mut head = i32::MAX.to_be_bytes().to_vec();
                            head.extend(read.to_be_bytes());
                            let zeros = vec![0; 1 << 20];
                            streams.fetch_add(1, Ordering::SeqCst);
                            all.fetch_add(1, Ordering::SeqCst);
                            let _ = connection.write_all(&head).await;
                            while connection.write_all(&zeros).await.is_ok() {
                                // Slow enough for the machine that the test runs on.
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                            streams.fetch_sub(1, Ordering::SeqCst);
                            return;
                        }
                        (_, other) => reply(other, 1, NO_NODE, &[]),
                    };
                    if connection.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let session = builder(driver, address).operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    let incarnation = session.active().await.unwrap();
    let before = resident();
    let mut most = before;
    let reading = async {
        let read = soon("an answer", incarnation.get("/a")).await;
        assert!(matches!(read, Err(OpError::Invalid { .. })), "{read:?}");
        // A server that says nothing else is silent.
        eventually("the end of the connection", async || streams.load(Ordering::SeqCst) == 0).await;
    };
    tokio::pin!(reading);
    loop {
        tokio::select! {
            () = &mut reading => break,
            () = tokio::time::sleep(Duration::from_millis(5)) => most = most.max(resident()),
        }
    }
    session.close(Duration::from_secs(1)).await;
    server.abort();
    assert_eq!(all.load(Ordering::SeqCst), 1);
    let grown = (most - before) >> 20;
    println!("{driver}: {grown} MiB");
    assert!(grown < 32, "{grown} MiB more");
}
