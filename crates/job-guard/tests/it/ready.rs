//! When a job is taken for ready.

use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::support::{Tree, run, soon, until};
use job_guard::{Job, ProcessState, ReadyProbe, RestartPolicy, RunEnd, WorkTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const INTERVAL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_millis(500);
const IDLE: &str = "exec sleep 1000";
const NOTIFYING: &str = "echo $NOTIFY_SOCKET > tmp; mv tmp socket; exec sleep 1000";

/// Long enough for several tries of a probe.
async fn is_not_ready(job: &job_guard::JobRun) -> bool {
    let early = tokio::time::timeout(Duration::from_millis(300), job.ready()).await;
    early.is_err() && job.status().borrow().state == ProcessState::Starting
}

#[tokio::test]
async fn by_a_command_that_succeeds() {
    let tree = Tree::new();
    let mut spec = tree.spec(IDLE);
    spec.ready = ReadyProbe::Exec {
        command: ["sh", "-c", "echo $DR_FENCING_TOKEN >> tries; [ -e up ]"].map(str::to_owned).to_vec(),
        interval: INTERVAL,
        timeout: TIMEOUT,
    };
    let job = run(spec);
    until("a try", || !tree.read("tries").is_empty()).await;
    assert!(is_not_ready(&job).await);
    std::fs::write(tree.file("up"), "").expect("write");
    job.ready().await.expect("it serves");
    assert_eq!(job.status().borrow().state, ProcessState::Running);
    let tries = tree.lines("tries");
    assert!(tries.len() > 1 && tries.iter().all(|token| token == "42"), "{tries:?}");
    job.stop(soon()).await;
}

#[tokio::test]
async fn not_by_a_command_that_hangs_and_it_is_ended_with_its_children() {
    let tree = Tree::new();
    let mut spec = tree.spec(IDLE);
    spec.ready = ReadyProbe::Exec {
        command: ["sh", "-c", "[ -e up ] || { echo >> tries; setsid sleep 1001 & sleep 1002; }"]
            .map(str::to_owned)
            .to_vec(),
        interval: INTERVAL,
        timeout: Duration::from_millis(100),
    };
    let job = run(spec);
    until("two tries", || tree.lines("tries").len() >= 2).await;
    std::fs::write(tree.file("up"), "").expect("write");
    job.ready().await.expect("it serves");
    // What is left is the job itself.
    until("the end of the tries", || tree.living().len() == 1).await;
    job.stop(soon()).await;
    assert!(tree.is_gone());
}

#[tokio::test]
async fn by_an_address_that_accepts() {
    let tree = Tree::new();
    // Nobody listens there now.
    let reserved = zk_testkit::PortReservation::take(1).expect("a port");
    let address = format!("127.0.0.1:{}", reserved.ports()[0]);
    let mut spec = tree.spec(IDLE);
    spec.ready = ReadyProbe::Tcp { address: address.clone(), interval: INTERVAL, timeout: TIMEOUT };
    let job = run(spec);
    assert!(is_not_ready(&job).await);
    let _listener = TcpListener::bind(address).expect("bind again");
    job.ready().await.expect("it serves");
    job.stop(soon()).await;
}

#[tokio::test]
async fn by_a_page_that_answers_with_success() {
    let tree = Tree::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("bound");
    let (answer, current) = tokio::sync::watch::channel("302 Found\r\nLocation: /elsewhere");
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let _ = asked.send(String::from_utf8_lossy(&request[..length]).into_owned());
            let answer = *current.borrow();
            let _ = stream
                .write_all(
                    format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
                )
                .await;
        }
    });
    let mut spec = tree.spec(IDLE);
    spec.ready =
        ReadyProbe::Http { url: format!("http://{address}/ready?x=1"), interval: INTERVAL, timeout: TIMEOUT };
    let job = run(spec);
    let first = requests.recv().await.expect("a request");
    assert!(first.starts_with("GET /ready?x=1 HTTP/1.1\r\n"), "{first}");
    assert!(is_not_ready(&job).await, "a redirect is no success");
    answer.send_replace("503 Service Unavailable");
    assert!(is_not_ready(&job).await);
    answer.send_replace("204 No Content");
    job.ready().await.expect("it serves");
    while let Ok(request) = requests.try_recv() {
        assert!(!request.starts_with("GET /elsewhere"), "followed the redirect");
    }
    job.stop(soon()).await;
}

#[tokio::test]
async fn not_by_a_page_that_never_answers() {
    let tree = Tree::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("bound");
    let mut spec = tree.spec(IDLE);
    spec.ready = ReadyProbe::Http {
        url: format!("http://{address}/"),
        interval: INTERVAL,
        timeout: Duration::from_millis(50),
    };
    let job = run(spec);
    // Tried again, so the first try has timed out.
    for _ in 0..2 {
        let (_, accepted) = tokio::task::spawn_blocking({
            let listener = listener.try_clone().expect("dup");
            move || listener.accept()
        })
        .await
        .expect("no panic")
        .expect("accept");
        assert!(accepted.ip().is_loopback());
    }
    assert_eq!(job.status().borrow().state, ProcessState::Starting);
    job.stop(soon()).await;
}

#[tokio::test]
async fn a_job_that_fails_before_it_is_ready_says_so_to_whoever_waits() {
    let tree = Tree::new();
    let mut spec = tree.spec("sleep 0.1; exit 4");
    spec.ready = ReadyProbe::Exec { command: vec!["false".into()], interval: INTERVAL, timeout: TIMEOUT };
    let error = run(spec).ready().await.expect_err("it never serves");
    assert!(matches!(&error, RunEnd::RestartsExhausted { last, .. } if last == "exit code 4"), "{error}");
}

#[tokio::test]
async fn by_having_run_for_a_while_where_nobody_asks() {
    const WHILE: Duration = Duration::from_millis(400);
    let tree = Tree::new();
    let mut spec = tree.spec(IDLE);
    spec.ready = ReadyProbe::None { after: WHILE };
    let began = Instant::now();
    let job = run(spec);
    assert!(is_not_ready(&job).await);
    job.ready().await.expect("it serves");
    assert!(began.elapsed() >= WHILE);
    job.stop(soon()).await;
}

#[tokio::test]
async fn not_by_being_started_again_and_again() {
    let tree = Tree::new();
    let mut spec = tree.spec("echo >> starts; exit 5");
    spec.ready = ReadyProbe::None { after: Duration::from_secs(60) };
    spec.restart = RestartPolicy { max: 2, backoff: INTERVAL, ..RestartPolicy::default() };
    let error = run(spec).ready().await.expect_err("it never serves");
    assert!(matches!(&error, RunEnd::RestartsExhausted { last, .. } if last == "exit code 5"), "{error}");
    assert_eq!(tree.lines("starts").len(), 3);
}

#[tokio::test]
async fn by_its_own_word() {
    let tree = Tree::new();
    let job = run(Job { ready: ReadyProbe::Notify, ..tree.spec(NOTIFYING) });
    let says = notified(&tree).await;
    says(b"STATUS=loading\n").expect("it listens");
    assert!(is_not_ready(&job).await);
    says(b"STATUS=fine\nREADY=1\n").expect("it listens");
    job.ready().await.expect("it serves");
    // More than the kernel queues.
    for _ in 0..2_000 {
        says(b"STATUS=busy\n").expect("it is read");
        tokio::task::yield_now().await;
    }
    job.stop(soon()).await;
    assert!(says(b"READY=1").is_err(), "the socket goes with the job");
}

/// The sender of a program's words.
async fn notified(tree: &Tree) -> impl Fn(&[u8]) -> io::Result<usize> {
    until("the socket's name", || tree.file("socket").exists()).await;
    let name = tree.read("socket").trim().strip_prefix('@').expect("an abstract name").to_owned();
    let address = SocketAddr::from_abstract_name(name).expect("an address");
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.set_write_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    move |words| socket.send_to_addr(words, &address)
}

#[tokio::test]
async fn in_another_role_by_its_word_of_that_role() {
    let tree = Tree::new();
    let spec = Job { notifies: true, ..tree.spec(NOTIFYING) };
    let job = run(spec.clone());
    job.ready().await.expect("it runs");
    let says = notified(&tree).await;
    says(b"READY=1").expect("it listens");
    let promoted = Job { ready: ReadyProbe::Notify, ..spec };
    job.forget_ready().await;
    job.arm(promoted.clone(), WorkTime::unlimited()).await.expect("it runs");
    job.probe().await;
    assert!(is_not_ready(&job).await, "it has said that of its former role");
    says(b"READY=1").expect("it listens");
    job.ready().await.expect("it serves");
    // It changes its role before it is armed.
    job.forget_ready().await;
    says(b"READY=1").expect("it listens");
    job.arm(promoted.clone(), WorkTime::unlimited()).await.expect("it runs");
    job.probe().await;
    job.ready().await.expect("it has said so");
    job.stop(soon()).await;

    let without = run(tree.spec(IDLE));
    without.ready().await.expect("it runs");
    let refused = without.arm(promoted, WorkTime::unlimited()).await;
    assert_eq!(refused, Err("it was started without a readiness socket".to_owned()));
    without.stop(soon()).await;
}

#[tokio::test]
async fn a_stop_ends_a_probe_that_is_under_way_too() {
    let tree = Tree::new();
    let mut spec = tree.spec(IDLE);
    spec.ready = ReadyProbe::Exec {
        command: ["sh", "-c", "trap '' TERM; echo > trying; sleep 1001"].map(str::to_owned).to_vec(),
        interval: INTERVAL,
        timeout: Duration::from_secs(600),
    };
    let job = run(spec);
    until("a try", || tree.file("trying").exists()).await;
    job.stop(soon()).await;
    assert!(tree.is_gone(), "said to be stopped, but these live: {:?}", tree.living());
}
