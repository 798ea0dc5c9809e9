//! An ensemble that is slow as a whole keeps its sessions where they are; a server that is slower than the others loses
//! them.

use std::time::Duration;

use crate::common::{builder_for, eventually, wait_for};
use zk_session::{BootTime, DriverKind, Epoch, Session, SessionState, sleep_until};
use zk_testkit::{Proxy, TestServer};

/// Long, because what a busy machine adds to a reply does not grow with it.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The delays of every reply: 0.18 and 0.2 of the timeout. A check may be unanswered for a quarter of it, and a handshake for
/// 0.225 of it at the least.
const SLOW: [Duration; 2] = [Duration::from_millis(1440), Duration::from_millis(1600)];

struct Bed {
    _servers: TestServer,
    proxies: Vec<Proxy>,
    session: Session,
}

impl Bed {
    async fn start() -> Self {
        let servers = TestServer::builder().servers(3).tick_time(crate::common::TICK).start().await.unwrap();
        let mut proxies = Vec::new();
        for address in servers.addresses() {
            proxies.push(Proxy::start(address).await.unwrap());
        }
        let connect = proxies.iter().map(|proxy| proxy.addr().to_string()).collect::<Vec<_>>().join(",");
        let session = builder_for(DriverKind::Native, connect).session_timeout(TIMEOUT);
        let session = session.connect().await.unwrap();
        Self { _servers: servers, proxies, session }
    }

    /// How many connections of the session the servers have seen.
    fn accepted(&self) -> usize {
        self.proxies.iter().map(|proxy| proxy.accepted().len()).sum()
    }

    fn here(&self) -> Option<usize> {
        self.proxies.iter().position(|proxy| proxy.connections() > 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_servers_are_slow_a_session_stays() {
    futures_util::future::join_all(SLOW.map(stays)).await;
}

async fn stays(slow: Duration) {
    let bed = Bed::start().await;
    let incarnation = bed.session.active().await.unwrap();
    let keeper = bed.session.keep_lease();
    wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    // So it is used to fast answers.
    bed.session.barrier().await.unwrap();
    bed.proxies.iter().for_each(|proxy| proxy.delay_replies(slow));
    let (mut states, mut moves) = (bed.session.subscribe(), 0);
    states.mark_unchanged();
    // Twelve heartbeats.
    let until = BootTime::now() + TIMEOUT * 3;
    loop {
        tokio::select! {
            changed = states.changed() => {
                changed.unwrap();
                let state = states.borrow_and_update().clone();
                assert!(!matches!(state, SessionState::Inactive { .. }), "{slow:?}: {state:?}");
                moves += usize::from(!state.is_active());
            }
            () = sleep_until(until) => break,
        }
    }
    println!("{slow:?}: {moves} moves, {} connections", bed.accepted());
    // The first replies that are slow are a reason to look for another server. None is faster.
    assert!(moves <= 1, "{slow:?}: {moves} moves");
    assert_eq!(bed.session.active().await.unwrap(), incarnation);
    assert_eq!(incarnation.epoch(), Epoch(1));
    assert!(keeper.lease().is_some_and(|lease| lease.is_valid_at(BootTime::now())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_slower_than_the_others_is_left() {
    let bed = Bed::start().await;
    let incarnation = bed.session.active().await.unwrap();
    let _keeper = bed.session.keep_lease();
    bed.session.barrier().await.unwrap();
    let here = bed.here().unwrap();
    bed.proxies[here].delay_replies(SLOW[0]);
    eventually("the session is elsewhere", async || bed.here().is_some_and(|now| now != here)).await;
    bed.session.barrier().await.unwrap();
    assert_eq!(bed.session.active().await.unwrap(), incarnation);
}
