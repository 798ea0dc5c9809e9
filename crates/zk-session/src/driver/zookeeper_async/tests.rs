//! A client that fails its driver.

use tokio::net::{TcpListener, TcpStream};
use zk_testkit::TestServer;

use super::*;
use crate::driver::tests::{SOON, spec};
use crate::driver::{Answer, DriverError, DriverEvent};
use crate::driver_kind::DriverKind;
use crate::error::InactiveReason;

/// The result of a request, with a client that `start` controls.
async fn ends_by<F>(
    start: impl FnOnce(mpsc::UnboundedSender<String>) -> F + Send + 'static,
    request: Option<&Request<'_>>,
) -> (String, Option<Answer>)
where
    F: Future<Output = io::Result<(ZooKeeper, Local)>> + Send + 'static,
{
    let server = TestServer::start().await.unwrap();
    let (wire, mut events, _) =
        wire::connect(spec(DriverKind::ZookeeperAsync, server.addresses()[0])).await.unwrap();
    let driver = assemble(wire, start).await.unwrap();
    let answer = request.map(|request| driver.send(request, Along::default()));
    let mut next = async || timeout(SOON, events.recv()).await.expect("an event, or the end of them");
    let reason = match next().await {
        Some(DriverEvent::Ended(InactiveReason::DriverFailed { reason })) => reason,
        event => panic!("{event:?}"),
    };
    assert_eq!(next().await, None);
    (reason, answer)
}

/// Both ends of a connection.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
    Ok((near?, far?.0))
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_session() {
    let leaves = |failed| async {
        let (client, mut local) = start_client(failed).await?;
        tokio::io::AsyncWriteExt::shutdown(&mut local.stream).await?;
        Ok((client, local))
    };
    let (reason, _) = ends_by(leaves, None).await;
    assert!(reason.contains("the client failed"), "{reason}");
}

#[tokio::test]
async fn a_client_that_sits_on_requests_ends_the_session() {
    let (silent, _far) = pair().await.unwrap();
    let (keep, kept) = oneshot::channel();
    let request = Request::GetData { path: "/".into(), watch: false };
    let sits = |failed| async {
        let (client, local) = start_client(failed).await?;
        // It sends no requests.
        let _ = keep.send(local);
        Ok((client, Local { stream: silent, input: bytes::BytesMut::new() }))
    };
    let ((reason, answer), _kept) = tokio::join!(ends_by(sits, Some(&request)), kept);
    assert!(reason.contains("made no progress with requests"), "{reason}");
    assert!(answer.unwrap().await.is_err(), "perhaps applied");
}

#[tokio::test]
async fn a_client_that_panics_ends_the_session_and_not_the_process() {
    let panics = |failed| async {
        let (client, mut local) = start_client(failed).await?;
        let (near, far) = pair().await?;
        let (mut from_relay, mut to_relay) = far.into_split();
        let theirs = std::mem::replace(&mut local.stream, near);
        let (mut from_client, mut to_client) = theirs.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_relay).await });
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from_relay.read(&mut bytes).await {
                // What it takes for UTF-8 without looking.
                let reply = &mut bytes[..count];
                if let Some(at) = reply.windows(6).position(|part| part == b"/panic") {
                    reply[at] = 0xff;
                }
                to_client.write_all(reply).await.unwrap();
            }
        });
        Ok((client, local))
    };
    let open = [zk_proto::AclEntry::new(zk_proto::permission::ALL, "world", "anyone")];
    let create = zk_proto::Create::new("/panic", b"", &open, zk_proto::CreateMode::Persistent);
    let (reason, answer) = ends_by(panics, Some(&Request::Create(create))).await;
    assert!(reason.contains("panicked"), "{reason}");
    let answer = answer.unwrap().await;
    assert!(matches!(answer, Ok(Err(DriverError::Ambiguous(_)))), "{answer:?}");
}
