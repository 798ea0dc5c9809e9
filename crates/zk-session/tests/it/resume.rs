//! A session that goes from one process to another: handed over, or left behind by one that was killed.
//!
//! The other process is this test binary, which runs [`the_other_process`] alone and does what it reads.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Bed, PATIENCE, eventually, soon, wait_state};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use zk_session::{
    CloseOutcome, ConnectError, CreateMode, DriverKind, OpError, Session, SessionState, Ticket,
};

on_each_server!(
    a_session_is_handed_over_to_another_process,
    another_process_hands_its_session_over_to_this_one,
    the_session_of_a_killed_process_is_closed_at_once,
    without_a_server_nothing_is_closed_in_the_time_that_is_given,
    a_ticket_of_an_expired_session_says_so,
    whoever_had_the_session_before_loses_it,
    what_is_under_way_while_it_is_handed_over_ends_known_or_unknown,
    a_ticket_shows_no_password,
);

/// Where the other process finds the servers; unset in all others.
const SERVERS: &str = "ZK_SESSION_TEST_OTHER_PROCESS";
/// Its driver.
const DRIVER: &str = "ZK_SESSION_TEST_OTHER_DRIVER";
const LONG: Duration = Duration::from_secs(40);

fn to_text(ticket: &Ticket) -> String {
    serde_json::to_string(ticket).unwrap()
}

fn from_text(text: &str) -> Ticket {
    serde_json::from_str(text).unwrap()
}

fn builder(driver: DriverKind, connect: String) -> zk_session::SessionBuilder {
    crate::common::builder_for(driver, connect).session_timeout(LONG)
}

/// Reads orders, and answers each with a line that begins with `=`.
#[tokio::test]
async fn the_other_process() {
    let Ok(servers) = std::env::var(SERVERS) else { return };
    let driver: DriverKind = std::env::var(DRIVER).unwrap().parse().unwrap();
    let (sender, mut orders) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for order in std::io::stdin().lines() {
            let _ = sender.send(order.unwrap());
        }
    });
    let mut session: Option<Session> = None;
    while let Some(order) = orders.recv().await {
        let (what, with) = order.split_once(' ').unwrap_or((&order, ""));
        let answer = match what {
            "make" => {
                let made = builder(driver, servers.clone()).connect().await.unwrap();
                made.create(with, "", CreateMode::Ephemeral).await.unwrap();
                let ticket = made.incarnation().unwrap().ticket();
                session = Some(made);
                to_text(&ticket)
            }
            "resume" => {
                let resumed =
                    builder(driver, servers.clone()).resume(from_text(with)).connect().await.unwrap();
                let id = resumed.active().await.unwrap().session_id();
                session = Some(resumed);
                id.0.to_string()
            }
            "owner" => {
                let found = session.as_ref().unwrap().get(with).await.unwrap();
                found.map_or(0, |node| node.stat.ephemeral_owner).to_string()
            }
            "hand-over" => to_text(&session.take().unwrap().hand_over().await.unwrap()),
            "close" => format!("{:?}", session.take().unwrap().close(PATIENCE).await),
            other => panic!("no such order: {other}"),
        };
        // Behind what the test harness has written on the line.
        println!("\n={answer}");
    }
}

struct Other {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(driver: DriverKind, bed: &Bed) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "resume::the_other_process", "--nocapture"])
            .env(SERVERS, bed.ensemble.connect_string())
            .env(DRIVER, driver.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, orders, answers: BufReader::new(answers).lines() }
    }

    async fn order(&mut self, order: &str) -> String {
        soon(order, async {
            self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
            loop {
                let line = self.answers.next_line().await.unwrap().expect("the other process goes on");
                if let Some(answer) = line.strip_prefix('=') {
                    return answer.to_owned();
                }
            }
        })
        .await
    }
}

async fn a_session_is_handed_over_to_another_process(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let session = bed.session().await;
    session.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let id = session.active().await.unwrap().session_id();
    let (clone, mut watch) = (session.clone(), session.watch_data("/mine"));
    soon("data", watch.next()).await.unwrap();
    let ticket = soon("the ticket", session.hand_over()).await.unwrap();
    assert_eq!(ticket.session_id, id);
    // Nothing of it is left here.
    assert_eq!(clone.state(), SessionState::Closed);
    assert_eq!(clone.close(PATIENCE).await, CloseOutcome::HandedOver);
    assert!(soon("the end of the watch", watch.next()).await.is_err());
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
    let mut other = Other::start(driver, &bed);
    assert_eq!(other.order(&format!("resume {}", to_text(&ticket))).await, id.0.to_string());
    assert_eq!(other.order("owner /mine").await, id.0.to_string());
    assert!(observer.get("/mine").await.unwrap().unwrap().stat.is_owned_by(id));
    assert_eq!(other.order("close").await, "Acknowledged");
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/mine").await.unwrap(), None);
}

async fn another_process_hands_its_session_over_to_this_one(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let mut other = Other::start(driver, &bed);
    let ticket = from_text(&other.order("make /mine").await);
    let handed = from_text(&other.order("hand-over").await);
    assert_eq!(handed.session_id, ticket.session_id);
    let session = bed.builder().resume(handed).connect().await.unwrap();
    let now = session.active().await.unwrap();
    assert_eq!(now.session_id(), ticket.session_id);
    // What was granted stays, whatever this builder asks for.
    assert_eq!(now.granted_timeout(), ticket.timeout);
    assert!(session.get("/mine").await.unwrap().unwrap().stat.is_owned_by(ticket.session_id));
    // It is a session as any other, with leases and all.
    session.create("/mine-too", "", CreateMode::Ephemeral).await.unwrap();
    let keeper = session.keep_lease();
    crate::common::wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    drop(keeper);
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
    let observer = bed.observer().await;
    assert_eq!(observer.children("/").await.unwrap().unwrap().names, ["zookeeper"]);
}

async fn the_session_of_a_killed_process_is_closed_at_once(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let mut other = Other::start(driver, &bed);
    let ticket = from_text(&other.order("make /mine").await);
    // So long it would stay.
    let timeout = ticket.timeout;
    other.child.kill().await.unwrap();
    let killed = Instant::now();
    assert!(observer.get("/mine").await.unwrap().is_some());
    let closed = bed.builder().close_left_behind(ticket.clone(), PATIENCE).await;
    assert_eq!(closed, Ok(CloseOutcome::Acknowledged));
    eventually("the ephemeral is gone", async || observer.get("/mine").await.unwrap().is_none()).await;
    let took = killed.elapsed();
    println!("gone after {took:?} of {timeout:?}");
    assert!(took < timeout / 2, "{took:?} of {timeout:?}");
    // Once more there is nothing to do.
    let again = bed.builder().close_left_behind(ticket, PATIENCE).await;
    assert_eq!(again, Err(ConnectError::Expired));
}

async fn without_a_server_nothing_is_closed_in_the_time_that_is_given(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let ticket = session.incarnation().unwrap().ticket();
    bed.proxy.refuse(true).await.unwrap();
    let began = Instant::now();
    let refused = bed.builder().close_left_behind(ticket, Duration::from_millis(500)).await;
    assert!(matches!(refused, Err(ConnectError::Unreachable { .. })), "{refused:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    bed.proxy.refuse(false).await.unwrap();
    session.barrier().await.unwrap();
}

async fn a_ticket_of_an_expired_session_says_so(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let ticket = session.incarnation().unwrap().ticket();
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
    let began = Instant::now();
    let refused = bed.builder().resume(ticket.clone()).connect().await;
    assert_eq!(refused.err(), Some(ConnectError::Expired));
    // A wrong password is answered alike.
    let session = bed.session().await;
    let mut wrong = session.incarnation().unwrap().ticket();
    wrong.password[0] ^= 1;
    let refused = bed.builder().resume(wrong.clone()).connect().await;
    assert_eq!(refused.err(), Some(ConnectError::Expired));
    // Nor does it close the session.
    let refused = bed.builder().close_left_behind(wrong, PATIENCE).await;
    assert_eq!(refused, Err(ConnectError::Expired));
    assert!(began.elapsed() < Duration::from_secs(10), "at once, and not by the connect timeout");
    session.barrier().await.unwrap();
}

async fn whoever_had_the_session_before_loses_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let before = bed.session().await;
    before.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let ticket = before.incarnation().unwrap().ticket();
    // It would take the session back, and so on.
    bed.proxy.refuse(true).await.unwrap();
    let after =
        builder(driver, bed.ensemble.connect_string()).resume(ticket.clone()).connect().await.unwrap();
    wait_state(&before, "paused", |state| !state.is_active()).await;
    assert_eq!(after.active().await.unwrap().session_id(), ticket.session_id);
    after.barrier().await.unwrap();
    assert!(after.get("/mine").await.unwrap().unwrap().stat.is_owned_by(ticket.session_id));
    assert_eq!(after.close(PATIENCE).await, CloseOutcome::Acknowledged);
    let observer = bed.observer().await;
    assert_eq!(observer.get("/mine").await.unwrap(), None);
}

/// Writers go on until the session is handed over. What each knows of its last write is compared with what the next
/// process finds after a barrier.
async fn what_is_under_way_while_it_is_handed_over_ends_known_or_unknown(driver: DriverKind) {
    const WRITERS: usize = 20;
    let bed = Bed::start(driver).await;
    for round in 0..5 {
        let session = bed.session().await;
        let path = move |writer: usize| format!("/{round}-{writer}");
        let writing = (0..WRITERS).map(|writer| {
            let session = session.clone();
            tokio::spawn(async move {
                session.create(&path(writer), "0", CreateMode::Ephemeral).await.unwrap();
                for n in 1.. {
                    match session.set(&path(writer), n.to_string(), None).await {
                        Ok(_) => {}
                        // The last that is known, and whether the next one may have been done as well.
                        Err(error) => return (n - 1, error),
                    }
                }
                unreachable!()
            })
        });
        let writing: Vec<_> = writing.collect();
        eventually("they write", async || {
            let found = session.get(&path(WRITERS - 1)).await.unwrap();
            found.is_some_and(|node| node.stat.version > 3)
        })
        .await;
        let ticket = soon("the ticket", session.hand_over()).await.unwrap();
        let ended = soon("the end of all writers", join_all(writing)).await;
        let next = bed.builder().resume(ticket.clone()).connect().await.unwrap();
        next.barrier().await.unwrap();
        let mut unknown = 0;
        for (writer, ended) in ended.into_iter().enumerate() {
            let (last, error) = ended.unwrap();
            let found = next.get(&path(writer)).await.unwrap().unwrap();
            assert!(found.stat.is_owned_by(ticket.session_id));
            let found: u32 = String::from_utf8(found.data).unwrap().parse().unwrap();
            match error {
                OpError::SessionOver => assert_eq!(found, last, "{writer}"),
                error => {
                    assert!(error.is_unknown(), "{error:?}");
                    assert!(found == last || found == last + 1, "{writer}: {found}, {last}");
                    unknown += 1;
                }
            }
            // Nothing comes later.
            next.set(&path(writer), "by the next", None).await.unwrap();
        }
        println!("{unknown} of {WRITERS} unknown");
        next.barrier().await.unwrap();
        for writer in 0..WRITERS {
            assert_eq!(next.get(&path(writer)).await.unwrap().unwrap().data, b"by the next");
        }
        assert_eq!(next.close(PATIENCE).await, CloseOutcome::Acknowledged);
    }
}

async fn a_ticket_shows_no_password(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let incarnation = session.active().await.unwrap();
    let ticket = incarnation.ticket();
    let builder = bed.builder().resume(ticket.clone());
    let bytes = format!("{:?}", ticket.password);
    let hex: String = ticket.password.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(ticket.password.len(), 16);
    for shown in
        [format!("{ticket:?}"), format!("{ticket:#?}"), format!("{builder:?}"), format!("{incarnation:?}")]
    {
        assert!(!shown.contains("password"), "{shown}");
        assert!(!shown.contains(bytes.trim_matches(['[', ']'])) && !shown.contains(&hex), "{shown}");
    }
    assert!(format!("{ticket:?}").contains(&incarnation.session_id().to_string()));
}
