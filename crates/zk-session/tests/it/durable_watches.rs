//! Watches against a writer that never stops, over a connection that is cut again and again at random, and over
//! connections to three servers of which some lag behind: what they tell is compared with the history of what was written.
//!
//! The seed is printed; `ZK_SESSION_SEED` replays the same faults.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::three::Three;
use crate::common::{Bed, PATIENCE, builder_for, soon, wait_state};
use tokio::time::sleep;
use zk_session::{Children, CreateMode, DriverKind, Epoch, Node, Observed, Session, SessionState};

on_each_server!(
    watches_tell_the_history_in_order_and_never_miss_its_end;
    watches_tell_the_history_whatever_server_they_are_moved_to,
);

const ROUNDS: usize = 40;
/// With three servers a fault takes longer.
const MOVES: usize = 12;

/// What a znode was, one state after the other. Data: its lives and versions, `None` while it did not exist.
type History<S> = Vec<S>;
type DataState = Option<(i64, i64, Vec<u8>)>;

struct Written {
    data: History<DataState>,
    children: History<Vec<String>>,
}

/// Changes the data of one znode and the children of another as fast as it can, until it is told to stop; its last
/// changes come after that.
async fn write(session: Session, mut random: fastrand::Rng, stop: Arc<AtomicBool>) -> Written {
    let mut written = Written { data: vec![None], children: vec![Vec::new()] };
    let mut names: Vec<String> = Vec::new();
    let mut last_round = false;
    for n in 0u64.. {
        let data = n.to_string().into_bytes();
        let state = match written.data.last().unwrap() {
            None => {
                let stat = session.create("/data", &data, CreateMode::Persistent).await.unwrap().stat;
                Some((stat.czxid, stat.mzxid, data))
            }
            Some(_) if !last_round && random.u8(..8) == 0 => {
                session.delete("/data", None).await.unwrap();
                None
            }
            Some(_) => {
                let stat = session.set("/data", &data, None).await.unwrap();
                Some((stat.czxid, stat.mzxid, data))
            }
        };
        written.data.push(state);
        // No set of names comes twice.
        let name = format!("{n:08}");
        session.create(&format!("/children/{name}"), "", CreateMode::Persistent).await.unwrap();
        names.push(name);
        written.children.push(names.clone());
        if names.len() > 3 {
            let oldest = names.remove(0);
            session.delete(&format!("/children/{oldest}"), None).await.unwrap();
            written.children.push(names.clone());
        }
        if last_round {
            break;
        }
        last_round = stop.load(Ordering::Acquire);
        sleep(Duration::from_millis(random.u64(..12))).await;
    }
    written
}

/// Every value told stands in the history, each after the one before, and the last one is the last there is.
fn check<S: PartialEq + std::fmt::Debug>(what: &str, history: &[S], told: &[(Epoch, S)]) {
    let mut at: Option<(Epoch, usize)> = None;
    for (epoch, state) in told {
        let from = match at {
            None => 0,
            // Told once more in a new session, changed or not; never twice in one.
            Some((last, place)) if *epoch > last => place,
            Some((last, place)) => {
                assert_eq!(*epoch, last, "{what}: an older session came back");
                place + 1
            }
        };
        let found = history[from..].iter().position(|known| known == state);
        let place = found.unwrap_or_else(|| {
            panic!("{what}: {state:?} was told in session {epoch} and is nowhere in the history from {from} on, which is {:?}", at)
        });
        at = Some((*epoch, from + place));
    }
    assert_eq!(told.last().map(|(_, state)| state), history.last(), "{what}: the last state");
}

fn data_state(observed: Observed<Option<Node>>) -> (Epoch, DataState) {
    (observed.epoch, observed.value.map(|node| (node.stat.czxid, node.stat.mzxid, node.data)))
}

fn children_state(observed: Observed<Option<Children>>) -> (Epoch, Vec<String>) {
    (observed.epoch, observed.value.unwrap().names)
}

/// One fault and what follows it, over within a second or so, but for the one that costs the session.
async fn fault(bed: &Bed, session: &Session, random: &mut fastrand::Rng, fatal: bool) {
    let some_time = Duration::from_millis(random.u64(..150));
    if fatal {
        bed.proxy.refuse(true).await.unwrap();
        bed.proxy.cut().await;
        wait_state(session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
        bed.proxy.refuse(false).await.unwrap();
        wait_state(session, "a new session", |state| state.is_active()).await;
        return;
    }
    match random.u8(..5) {
        0 => drop(bed.proxy.cut().await),
        // Requests arrive, answers and events don't.
        1 => {
            bed.proxy.hold_replies(true);
            sleep(some_time).await;
            bed.proxy.cut().await;
            bed.proxy.hold_replies(false);
        }
        2 => {
            bed.proxy.hold_requests(true);
            sleep(some_time).await;
            bed.proxy.cut().await;
            bed.proxy.hold_requests(false);
        }
        3 => {
            bed.proxy.black_hole(true);
            sleep(some_time).await;
            bed.proxy.black_hole(false);
        }
        _ => {
            bed.proxy.refuse(true).await.unwrap();
            bed.proxy.cut().await;
            sleep(some_time).await;
            bed.proxy.refuse(false).await.unwrap();
        }
    }
    sleep(some_time).await;
}

fn seed(driver: DriverKind) -> fastrand::Rng {
    let seed =
        std::env::var("ZK_SESSION_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("ZK_SESSION_SEED={seed} replays the faults of {driver}");
    fastrand::Rng::with_seed(seed)
}

async fn watches_tell_the_history_in_order_and_never_miss_its_end(driver: DriverKind) {
    let mut random = seed(driver);
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let writer = random.fork();
    let faults = async {
        for round in 0..ROUNDS {
            fault(&bed, &session, &mut random, round == ROUNDS / 2).await;
        }
    };
    against_a_writer(&session, observer, writer, ROUNDS, Box::pin(faults)).await;
}

/// A fault among three, and what follows it. The writer has the leader to itself, which nothing happens to.
async fn move_on(three: &Three, session: &Session, random: &mut fastrand::Rng, fatal: bool) {
    let some_time = Duration::from_millis(random.u64(..400));
    let follower = (three.leader + random.usize(1..3)) % 3;
    let only_there = |n| n != follower;
    match (fatal, random.u8(..4)) {
        // Anywhere else, or the same again.
        (false, 0) => three.cut().await,
        // To that one.
        (false, 1) => {
            three.refuse(only_there).await;
            three.cut().await;
            sleep(some_time).await;
        }
        // To that one, which has heard nothing of the others for a while, and hears nothing yet.
        (false, 2) => {
            three.servers.isolate(follower).unwrap();
            sleep(some_time).await;
            three.refuse(only_there).await;
            three.cut().await;
            sleep(some_time).await;
            three.servers.rejoin(follower).unwrap();
        }
        // To that one, which was frozen, and wakes up behind the others.
        (false, _) => {
            three.ensemble().faults().pause(follower).unwrap();
            sleep(some_time).await;
            three.refuse(only_there).await;
            three.cut().await;
            three.ensemble().faults().resume(follower).unwrap();
            sleep(some_time).await;
        }
        // The session is lost, and the next one is made with a server that lags behind.
        (true, _) => {
            three.refuse(|_| true).await;
            three.cut().await;
            let over = |state: &SessionState| matches!(state, SessionState::Inactive { .. });
            wait_state(session, "inactive", over).await;
            three.ensemble().faults().pause(follower).unwrap();
            sleep(some_time).await;
            three.refuse(only_there).await;
            three.ensemble().faults().resume(follower).unwrap();
            wait_state(session, "a new session", |state| state.is_active()).await;
        }
    }
    three.refuse(|_| false).await;
    sleep(some_time / 2).await;
}

async fn watches_tell_the_history_whatever_server_they_are_moved_to(driver: DriverKind) {
    let mut random = seed(driver);
    let three = Three::start().await;
    let session = builder_for(driver, three.connect_string()).connect().await.unwrap();
    let observer = three.observer().await;
    let writer = random.fork();
    let faults = async {
        for round in 0..MOVES {
            move_on(&three, &session, &mut random, round % 8 == 7).await;
        }
    };
    against_a_writer(&session, observer, writer, MOVES, Box::pin(faults)).await;
}

/// What two watches of the session tell while the writer writes and the faults happen, against the history.
async fn against_a_writer(
    session: &Session,
    observer: Session,
    random: fastrand::Rng,
    rounds: usize,
    faults: Pin<Box<dyn Future<Output = ()> + Send + '_>>,
) {
    observer.create("/children", "", CreateMode::Persistent).await.unwrap();
    session.barrier().await.unwrap();

    let (mut data, mut children) = (session.watch_data("/data"), session.watch_children("/children"));
    let stop = Arc::new(AtomicBool::new(false));
    // Their beginning belongs to the history, too.
    let mut data_told = vec![data_state(soon("the first data", data.next()).await.unwrap())];
    let mut children_told = vec![children_state(soon("the first children", children.next()).await.unwrap())];
    let writing = tokio::spawn(write(observer.clone(), random, Arc::clone(&stop)));
    let told = [AtomicUsize::new(1), AtomicUsize::new(1)];
    let enough = rounds / 2;
    let faults = async {
        faults.await;
        // A busy machine tells less at a time.
        while told.iter().any(|told| told.load(Ordering::Acquire) <= enough) {
            sleep(Duration::from_millis(10)).await;
        }
        stop.store(true, Ordering::Release);
        writing.await.unwrap()
    };
    tokio::pin!(faults);
    let mut written = None;
    let done = |written: &Option<Written>, data: &[(Epoch, DataState)], children: &[(Epoch, Vec<String>)]| {
        written.as_ref().is_some_and(|written| {
            data.last().map(|(_, state)| state) == written.data.last()
                && children.last().map(|(_, state)| state) == written.children.last()
        })
    };
    let deadline = tokio::time::Instant::now() + 4 * PATIENCE;
    while !done(&written, &data_told, &children_told) {
        tokio::select! {
            history = &mut faults, if written.is_none() => written = Some(history),
            told = data.next() => data_told.push(data_state(told.unwrap())),
            told = children.next() => children_told.push(children_state(told.unwrap())),
            () = tokio::time::sleep_until(deadline) => break,
        }
        told[0].store(data_told.len(), Ordering::Release);
        told[1].store(children_told.len(), Ordering::Release);
    }
    let written = written.expect("enough was told, and the writer has ended");
    check("data", &written.data, &data_told);
    check("children", &written.children, &children_told);
    println!(
        "{} of {} states of the data told, {} of {} of the children",
        data_told.len(),
        written.data.len(),
        children_told.len(),
        written.children.len()
    );
    assert!(data_told.len() > enough && children_told.len() > enough, "too little to mean anything");
    assert!(data_told.last().unwrap().0 > Epoch(1), "the session was lost once");
}
