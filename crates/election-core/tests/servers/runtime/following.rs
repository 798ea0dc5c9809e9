//! Following an election without being a candidate.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use election_core::{
    Leaders, Paths,
    config::{QueueFormat, Recipe},
    internals::record::{RequestKind, RequestState, Target},
    status::{Leader, LeaderChange},
};
use zk_session::{DriverKind, Session};
use zk_testkit::{Ensemble, Proxy};

use super::{
    SOON,
    members::{TICK, World, connect, wait_for},
};

/// Everything that was reported to one follower, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<LeaderChange>>>);

impl Told {
    /// Follows in a task of its own, which ends with the test.
    fn follow(session: &Session, paths: &Paths) -> Self {
        Self::by(Leaders::follow(session, paths.clone()))
    }

    fn by(mut leaders: Leaders) -> Self {
        let told = Self::default();
        let to = told.clone();
        tokio::spawn(async move {
            while let Some(change) = leaders.next().await {
                let change = change.unwrap();
                assert_eq!(leaders.last(change.slot), change.leader.as_ref());
                to.0.lock().unwrap().push(change);
            }
        });
        told
    }

    /// Of the first slot.
    fn all(&self) -> Vec<Option<Leader>> {
        self.of(0)
    }

    fn of(&self, slot: usize) -> Vec<Option<Leader>> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|change| change.slot == slot).map(|change| change.leader.clone()).collect()
    }

    fn last_is(&self, member: &str) -> bool {
        self.all().last().is_some_and(|last| last.as_ref().is_some_and(|l| l.member.as_str() == member))
    }

    /// In each slot terms and tokens only grow, and no change is reported twice.
    fn assert_forwards(&self) {
        let slots = self.0.lock().unwrap().iter().map(|change| change.slot).max().unwrap_or(0);
        for slot in 0..=slots {
            let all = self.of(slot);
            let leaders: Vec<_> = all.iter().flatten().collect();
            for pair in leaders.windows(2) {
                assert!(pair[0].term <= pair[1].term, "an older term after a newer one: {pair:?}");
                assert!(pair[0].fencing_token <= pair[1].fencing_token, "an older token: {pair:?}");
            }
            for pair in all.windows(2) {
                assert_ne!(pair[0], pair[1], "told twice: {all:?}");
            }
        }
    }
}

/// Term, token and endpoint of each leader, in order, without a missing leader in between.
async fn each_leader_is_told(world: &World) {
    let told = Told::follow(world.operator(), world.paths());
    wait_for("nobody leads yet", SOON, || told.all() == [None]).await;
    let east = world.join("east-1", "east").await;
    wait_for("east-1 is told", SOON, || told.last_is("east-1")).await;
    let west = world.join("west-1", "west").await;
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;
    for (turn, next) in ["west-1", "east-1", "west-1"].into_iter().enumerate() {
        let target = Target::Member(next.parse().unwrap());
        let request = world.ask(RequestKind::Switchover, target, false).await;
        assert!(matches!(request.state, RequestState::Done { .. }), "{request:?}");
        wait_for(&format!("{next} is told in turn {turn}"), SOON, || told.last_is(next)).await;
    }
    let all = told.all();
    let last = all.last().unwrap().clone().unwrap();
    let snapshot = world.snapshot().await;
    assert_eq!(Some(last.fencing_token), snapshot.fencing_token(0));
    assert_eq!(last.term, snapshot.elected.unwrap().record.term);
    assert_eq!(last.endpoint.as_deref(), Some("west-1.example"));
    assert_eq!(last.site.as_str(), "west");
    assert!(last.ready_ms.is_some());
    told.assert_forwards();
    assert_eq!(all.iter().flatten().count(), 4, "{all:?}");
    assert!(!east.leads());
}

/// The follower's session ends while leadership moves. It continues with a new session and the newest state.
async fn a_lost_session(world: &World) {
    let proxy = Proxy::start_many(world.addresses()).await.unwrap();
    let session = world.session(Some(&proxy)).await;
    let told = Told::follow(&session, world.paths());
    let _east = world.join("east-1", "east").await;
    let west = world.join("west-1", "west").await;
    wait_for("east-1 is told", SOON, || told.last_is("east-1")).await;
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;
    let epoch = session.incarnation().unwrap().epoch();
    proxy.black_hole(true);
    for _ in 0..2 {
        let request = world.ask(RequestKind::Switchover, Target::Any, false).await;
        assert!(matches!(request.state, RequestState::Done { .. }), "{request:?}");
    }
    let _ = world.ask(RequestKind::Switchover, Target::Member("west-1".parse().unwrap()), false).await;
    wait_for("its session is over", SOON, || session.incarnation().is_none_or(|i| i.epoch() != epoch)).await;
    assert!(told.last_is("east-1"), "nothing is told while nothing can be read: {:?}", told.all());
    proxy.black_hole(false);
    let _ = proxy.cut().await;
    wait_for("west-1 is told", SOON, || told.last_is("west-1")).await;
    told.assert_forwards();
}

/// The leaders of both slots are reported, each with its slot, term, token and endpoint. When one is replaced, nothing
/// is reported of the other.
async fn all_slots_are_told(world: &World) {
    let told = Told::follow(world.operator(), world.paths());
    wait_for("nobody leads yet", SOON, || told.all() == [None]).await;
    let mut members = Vec::new();
    for (member, site) in [("east-1", "east"), ("east-2", "east"), ("west-1", "west")] {
        members.push(world.join(member, site).await);
    }
    let last = |slot: usize| told.of(slot).last().cloned().flatten();
    wait_for("two leaders are told", SOON, || last(0).is_some() && last(1).is_some()).await;
    let before = [last(0).unwrap(), last(1).unwrap()];
    let snapshot = world.snapshot().await;
    let elected = snapshot.decided().unwrap();
    for (slot, leader) in before.iter().enumerate() {
        assert_eq!(leader.slot, slot);
        assert_eq!(leader.term, elected.term_of(slot));
        assert_eq!(Some(leader.fencing_token), snapshot.fencing_token(slot));
        assert_eq!(leader.endpoint, Some(format!("{}.example", leader.member)));
    }
    let spare = members.iter().find(|m| before.iter().all(|l| l.member.as_str() != m.id())).unwrap();
    let lost = members.iter().position(|m| before[1].member.as_str() == m.id()).unwrap();
    let spare = spare.id().to_owned();
    members.swap_remove(lost).election().leave().await;
    wait_for("the spare is told", SOON, || last(1).is_some_and(|l| l.member.as_str() == spare)).await;
    let after = last(1).unwrap();
    assert!(after.term > before[1].term && after.fencing_token > before[1].fencing_token, "{after:?}");
    // There is no further report of the first slot.
    assert_eq!(told.all().iter().flatten().count(), 1, "{:?}", told.all());
    told.assert_forwards();
    // Who begins to follow now finds both.
    let mut late = Leaders::follow(world.operator(), world.paths().clone());
    while late.all().count() < 2 {
        late.next().await.unwrap().unwrap();
    }
    assert_eq!(late.all().cloned().collect::<Vec<_>>(), [before[0].clone(), after]);
}

/// The same in a queue, from before it exists. The first candidate is reported once it is READY, and no other one;
/// changes behind it are not reported.
async fn the_first_of_a_queue_is_told(world: &World) {
    let proxy = Proxy::start_many(world.addresses()).await.unwrap();
    let session = world.session(Some(&proxy)).await;
    let told = Told::by(Leaders::follow(&session, world.paths().clone()));
    wait_for("nobody leads yet", SOON, || told.all() == [None]).await;
    let stands = async |name: &str| {
        let member = world.join(name, "here").await;
        wait_for("it stands", SOON, || member.status().ballot.is_some()).await;
        member
    };
    let one = stands("one").await;
    wait_for("one is told", SOON, || told.last_is("one")).await;
    assert!(one.leads());
    let (two, three) = (stands("two").await, stands("three").await);
    two.election().leave().await;
    let count = told.all().len();
    one.election().leave().await;
    wait_for("three is told", SOON, || told.last_is("three")).await;
    assert!(told.all()[count..].iter().flatten().all(|l| l.member.as_str() == "three"), "{:?}", told.all());
    let last = told.all().last().unwrap().clone().unwrap();
    assert_eq!(Some(last.fencing_token), three.status().fencing_token);
    assert_eq!((last.slot, last.endpoint.as_deref()), (0, Some("three.example")));
    // Its session ends while leadership moves on.
    let four = stands("four").await;
    let epoch = session.incarnation().unwrap().epoch();
    proxy.black_hole(true);
    three.election().leave().await;
    wait_for("four leads", SOON, || four.leads()).await;
    wait_for("its session is over", SOON, || session.incarnation().is_none_or(|i| i.epoch() != epoch)).await;
    assert!(told.last_is("three"), "nothing is told while nothing can be read: {:?}", told.all());
    proxy.black_hole(false);
    let _ = proxy.cut().await;
    wait_for("four is told", SOON, || told.last_is("four")).await;
    four.election().leave().await;
    wait_for("nobody leads any more", SOON, || told.all().last() == Some(&None)).await;
    let five = stands("five").await;
    wait_for("five is told", SOON, || told.last_is("five")).await;
    // Its leader znode is READY a moment before it knows that this was written.
    wait_for("five leads", SOON, || five.leads()).await;
    told.assert_forwards();
}

/// Servers die, one at a time; the follower begins with a dead one in its list.
async fn dead_servers(driver: DriverKind) {
    let ensemble = Ensemble::builder().servers(3).tick_time(TICK).start().await.unwrap();
    ensemble.kill(0).await.unwrap();
    ensemble.wait_serving(SOON).await.ok();
    let world = World::over(ensemble, driver).await;
    let watcher = connect(&world.connect_string(), driver, Duration::from_secs(4)).await;
    let told = Told::follow(&watcher, world.paths());
    let east = world.join("east-1", "east").await;
    wait_for("east-1 is told", SOON, || told.last_is("east-1")).await;
    let _west = world.join("west-1", "west").await;
    let mut next = "west-1";
    for (back, dies) in [(0, 1), (1, 2)] {
        world.ensemble().start_server(back).await.unwrap();
        world.ensemble().wait_server_serving(back, SOON).await.unwrap();
        world.ensemble().kill(dies).await.unwrap();
        // Refused if the outage has moved leadership there already.
        let target = Target::Member(next.parse().unwrap());
        let request = world.ask(RequestKind::Failover, target, false).await;
        wait_for(&format!("{next} is told with server {dies} dead ({request:?})"), SOON, || {
            told.last_is(next)
        })
        .await;
        next = if next == "west-1" { "east-1" } else { "west-1" };
    }
    told.assert_forwards();
    assert!(east.status().ballot.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_told_of_each_leader_with_native() {
    each_leader_is_told(&World::start(DriverKind::Native).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_follower_is_told_of_each_leader_with_zookeeper_async() {
    each_leader_is_told(&World::start(DriverKind::ZookeeperAsync).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_told_of_all_slots_with_native() {
    all_slots_are_told(&World::with_slots(DriverKind::Native, 2).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_follower_is_told_of_all_slots_with_zookeeper_async() {
    all_slots_are_told(&World::with_slots(DriverKind::ZookeeperAsync, 2).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_survives_its_session_with_native() {
    a_lost_session(&World::start(DriverKind::Native).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_follower_survives_its_session_with_zookeeper_async() {
    a_lost_session(&World::start(DriverKind::ZookeeperAsync).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_works_over_dead_servers_with_native() {
    dead_servers(DriverKind::Native).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_follower_works_over_dead_servers_with_zookeeper_async() {
    dead_servers(DriverKind::ZookeeperAsync).await;
}

async fn queue(driver: DriverKind) {
    let recipe = Recipe::Queue(QueueFormat::Native);
    the_first_of_a_queue_is_told(&World::with_recipe(driver, recipe).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_told_of_the_first_in_a_queue_with_native() {
    queue(DriverKind::Native).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_follower_is_told_of_the_first_in_a_queue_with_zookeeper_async() {
    queue(DriverKind::ZookeeperAsync).await;
}
