//! Sessions that leave a server soon after it has become silent (`suspect_after`), and servers that are preferred.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::common::three::Three;
use crate::common::{Lateness, eventually, soon};
use zk_session::{CreateMode, DriverKind, SessionBuilder, SessionState};
use zk_testkit::{Proxy, Sender};

on_each_server!(
    a_silent_server_is_left_within_the_time,
    an_answer_within_the_patience_moves_no_session,
    where_no_other_server_answers_the_session_stays,
    servers_are_left_soon_one_after_another_while_a_better_one_is_sought,
    the_preferred_server_is_used_first_and_again_when_it_is_back,
);

/// Without `suspect_after` an idle session notices the silence after a second at the earliest, and leaves after 1.5 s.
const TIMEOUT: Duration = Duration::from_secs(10);
const SUSPECT_AFTER: Duration = Duration::from_millis(300);
/// For a machine that is busy with other tests.
const IN_TIME: Duration = Duration::from_millis(1200);
/// How long a search is held up at most that follows two others closely: see `Pauses`. The second pause is twice
/// `suspect_after`, and half of that more by chance.
const HELD_UP: Duration = Duration::from_millis(900);

fn builder(driver: DriverKind, three: &Three, suspect_after: Duration) -> SessionBuilder {
    crate::common::builder_for(driver, three.connect_string())
        .session_timeout(TIMEOUT)
        .suspect_after(suspect_after)
}

/// The server that the only session is with.
async fn at(three: &Three) -> usize {
    let there = || three.proxies.iter().position(|proxy| proxy.connections() > 0);
    eventually("a connection", async || there().is_some()).await;
    there().unwrap()
}

fn accepted(three: &Three) -> Vec<usize> {
    three.proxies.iter().map(|proxy| proxy.accepted().len()).collect()
}

/// Waits until a server other than `left` has the session.
async fn elsewhere(three: &Three, left: usize) {
    eventually("the session is elsewhere", async || {
        three.proxies.iter().enumerate().any(|(n, proxy)| n != left && proxy.connections() > 0)
    })
    .await;
}

/// What a busy machine does to the searches, as far as it is recorded.
struct Disturbance(Lateness);

impl Disturbance {
    /// From now on.
    fn watch(three: &Three) -> Self {
        for proxy in &three.proxies {
            proxy.record();
            // What was recorded before.
            drop(proxy.take_record());
        }
        Self(Lateness::watch())
    }

    /// The latest that this test was woken, and the latest that a server has answered.
    fn ended(self, three: &Three) -> Duration {
        let answers = three.proxies.iter().map(|proxy| {
            let (mut asked, mut latest) = (HashMap::new(), Duration::ZERO);
            for frame in proxy.take_record() {
                if frame.sender == Sender::Client {
                    asked.entry(frame.connection).or_insert(frame.at);
                } else if let Some(since) = asked.remove(&frame.connection) {
                    latest = latest.max(frame.at.duration_since(since));
                }
            }
            latest
        });
        answers.fold(self.0.most(), Duration::max)
    }
}

/// Whether delays of this length can have made a session suspect a server that answers.
fn can_mislead(late: Duration) -> bool {
    late > SUSPECT_AFTER / 4
}

async fn a_silent_server_is_left_within_the_time(driver: DriverKind) {
    let three = Three::start().await;
    let session = builder(driver, &three, SUSPECT_AFTER).connect().await.unwrap();
    let id = session.active().await.unwrap().session_id();
    let mut watch = session.watch_data("/a");
    assert!(soon("nothing there", watch.next()).await.unwrap().value.is_none());
    let observer = three.observer().await;
    let mut disturbance = Disturbance::watch(&three);
    for round in 0..3 {
        session.barrier().await.unwrap();
        let here = at(&three).await;
        let mut states = session.subscribe();
        states.mark_unchanged();
        three.proxies[here].black_hole(true);
        let silent = Instant::now();
        elsewhere(&three, here).await;
        let took = silent.elapsed();
        let late = disturbance.ended(&three);
        println!("left after {took:?}; something was late by {late:?}");
        let held_up = if can_mislead(late) { HELD_UP } else { Duration::ZERO };
        assert!(took <= IN_TIME + late + held_up, "{took:?}; late by {late:?}");
        assert!(took >= SUSPECT_AFTER / 2 || can_mislead(late), "{took:?}: nothing may be that impatient");
        // The move shows as a pause, because requests may have been lost, and ends once a quorum has answered.
        crate::common::wait_for(&mut states, "active again", SessionState::is_active).await;
        session.barrier().await.unwrap();
        assert_eq!(session.active().await.unwrap().session_id(), id);
        let data = format!("{round}");
        if round == 0 {
            observer.create("/a", &data, CreateMode::Persistent).await.unwrap();
        } else {
            observer.set("/a", &data, None).await.unwrap();
        }
        while soon("the change", watch.next())
            .await
            .unwrap()
            .value
            .is_none_or(|node| node.data != data.as_bytes())
        {}
        three.proxies[here].black_hole(false);
        eventually("the old connection ends", async || three.proxies[here].connections() == 0).await;
        disturbance = Disturbance::watch(&three);
        // Searches close to each other are held up: see `Pauses`.
        tokio::time::sleep(SUSPECT_AFTER * 6).await;
    }
}

async fn an_answer_within_the_patience_moves_no_session(driver: DriverKind) {
    // Long enough that a busy machine adds nothing to speak of: its patience is 1.25 s.
    const LATE: Duration = Duration::from_secs(2);
    let three = Three::start().await;
    let session = builder(driver, &three, LATE).connect().await.unwrap();
    session.barrier().await.unwrap();
    let before = accepted(&three);
    for delay in [100, 300, 500, 50, 400] {
        three.proxies.iter().for_each(|proxy| proxy.delay_replies(Duration::from_millis(delay)));
        for _ in 0..3 {
            session.exists("/").await.unwrap();
            session.barrier().await.unwrap();
        }
    }
    assert_eq!(accepted(&three), before);
    // Which is no proof if nothing moves it.
    three.proxies.iter().for_each(|proxy| proxy.delay_replies(Duration::ZERO));
    session.exists("/").await.unwrap();
    let here = at(&three).await;
    three.proxies[here].black_hole(true);
    elsewhere(&three, here).await;
}

async fn where_no_other_server_answers_the_session_stays(driver: DriverKind) {
    let three = Three::start().await;
    let session = builder(driver, &three, SUSPECT_AFTER).connect().await.unwrap();
    session.barrier().await.unwrap();
    let here = at(&three).await;
    let mut states = session.subscribe();
    states.mark_unchanged();
    three.refuse(|n| n != here).await;
    for _ in 0..3 {
        three.proxies[here].black_hole(true);
        // Longer than it takes to suspect it, and not as long as ends a connection: three tenths of the session timeout.
        tokio::time::sleep(SUSPECT_AFTER * 4).await;
        three.proxies[here].black_hole(false);
        session.barrier().await.unwrap();
    }
    assert_eq!(three.proxies[here].accepted().len(), 1);
    assert!(!states.has_changed().unwrap(), "{:?}", states.borrow());
}

async fn servers_are_left_soon_one_after_another_while_a_better_one_is_sought(driver: DriverKind) {
    let three = Three::start().await;
    three.refuse(|n| n == 0).await;
    let session = builder(driver, &three, SUSPECT_AFTER).connect().await.unwrap();
    session.prefer(&three.proxies[0].addr().to_string()).unwrap();
    session.barrier().await.unwrap();
    let mut left = Vec::new();
    for _ in 0..2 {
        let here = at(&three).await;
        let disturbance = Disturbance::watch(&three);
        three.proxies[here].black_hole(true);
        let silent = Instant::now();
        elsewhere(&three, here).await;
        left.push((silent.elapsed(), disturbance.ended(&three)));
        session.barrier().await.unwrap();
        three.proxies[here].black_hole(false);
        eventually("the old connection ends", async || three.proxies[here].connections() == 0).await;
    }
    println!("left after, and late by: {left:?}");
    // Silence would end the connection after three seconds.
    assert!(left.iter().all(|(took, late)| *took <= IN_TIME + *late + HELD_UP), "{left:?}");
}

async fn the_preferred_server_is_used_first_and_again_when_it_is_back(driver: DriverKind) {
    /// It returns one to two session timeouts after it has left.
    const SHORT: Duration = Duration::from_secs(2);
    let three = Three::start().await;
    let name = |n: usize| three.proxies[n].addr().to_string();
    for n in 0..3 {
        let builder = builder(driver, &three, SUSPECT_AFTER).prefer(name(n));
        let session = builder.connect().await.unwrap();
        assert_eq!(at(&three).await, n);
        session.close(crate::common::PATIENCE).await;
        eventually("no connection", async || three.proxies.iter().all(|proxy| proxy.connections() == 0))
            .await;
    }
    let builder = builder(driver, &three, SUSPECT_AFTER).session_timeout(SHORT).prefer(name(1));
    let session = builder.connect().await.unwrap();
    let id = session.active().await.unwrap().session_id();
    let only_at = async |three: &Three, index: usize| {
        let others = |proxies: &[Proxy]| proxies.iter().map(Proxy::connections).sum::<usize>();
        eventually("only there", async || {
            three.proxies[index].connections() == 1 && others(&three.proxies) == 1
        })
        .await;
    };
    only_at(&three, 1).await;
    three.refuse(|n| n == 1).await;
    three.proxies[1].cut().await;
    elsewhere(&three, 1).await;
    three.refuse(|_| false).await;
    only_at(&three, 1).await;
    // Changed at run time.
    session.prefer(&name(2)).unwrap();
    only_at(&three, 2).await;
    session.barrier().await.unwrap();
    assert_eq!(session.active().await.unwrap().session_id(), id);
    // All of them have one address: there is no choice.
    session.avoid([three.proxies[2].addr().ip()]);
    let accepted_before = accepted(&three);
    session.prefer("").unwrap();
    session.barrier().await.unwrap();
    assert_eq!((at(&three).await, accepted(&three)), (2, accepted_before));
    assert!(session.prefer("nobody:0").is_err());
}
