//! An administrator deletes znodes of an election while all sessions are alive. The election recovers by itself.

use std::time::Duration;

use election_admin::{Observer, Problem};
use election_core::{
    Leaders,
    config::{QueueFormat, Recipe},
    errors::Ended,
    internals::record::{RequestKind, RequestState, Target},
    status::LeaderChange,
};
use zk_session::{BootTime, DriverKind};

use super::{
    SOON,
    members::{Member, World, wait_for},
};

/// The znodes under the election that are deleted with all their descendants.
const PARTS: [&str; 6] = ["", "/leader", "/nodes", "/election", "/history", "/leader/current"];

/// Deletes as `deleteall` does. Members can create znodes again meanwhile, and then the last znode is not empty.
async fn delete(world: &World, part: &str) {
    let session = world.operator().active().await.unwrap();
    match session.delete_recursive(&format!("{}{part}", world.paths().base())).await {
        Ok(()) => {}
        Err(error) => assert!(error.to_string().contains("has children"), "{error}"),
    }
}

/// Waits until exactly one member leads and its leader znode has its token. Returns the token.
async fn token_of_the_leader(world: &World, members: &[Member], after: &str) -> u64 {
    let deadline = BootTime::now() + SOON;
    loop {
        let leaders: Vec<_> = members.iter().filter(|member| member.leads()).collect();
        if let [leader] = leaders[..]
            && let Ok(snapshot) = world.try_snapshot().await
            && let Some(leader_znode) = snapshot.leader_znode(0)
            && leader_znode.record.member.as_str() == leader.id()
            && let (Some(token), true) = (snapshot.fencing_token(0), leader.leads())
            && leader.status().fencing_token == Some(token)
        {
            return token;
        }
        let all: Vec<_> = members.iter().map(Member::status).collect();
        assert!(BootTime::now() < deadline, "after {after:?} was deleted: {all:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn all_comes_back(world: &World, parts: &[&str]) {
    let mut members = Vec::new();
    for name in ["east-1", "east-2", "west-1"] {
        members.push(world.join(name, &name[..4]).await);
    }
    let mut newest = token_of_the_leader(world, &members, "nothing").await;
    for part in parts {
        delete(world, part).await;
        let token = token_of_the_leader(world, &members, part).await;
        assert!(token >= newest, "after {part:?} was deleted: {token} after {newest}");
        newest = token;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_comes_back_under_an_elector_native() {
    all_comes_back(&World::start(DriverKind::Native).await, &PARTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn all_comes_back_under_an_elector_zookeeper_async() {
    all_comes_back(&World::start(DriverKind::ZookeeperAsync).await, &PARTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_comes_back_in_a_queue() {
    let world = World::with_recipe(DriverKind::Native, Recipe::Queue(QueueFormat::Native)).await;
    all_comes_back(&world, &["", "/queue", "/history"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_comes_back_with_a_single_place() {
    let world = World::with_recipe(DriverKind::Native, Recipe::Single).await;
    all_comes_back(&world, &["", "/leader", "/history"]).await;
}

const BASE: u64 = 1_000_000_000_000;

async fn raise_tokens(world: &World) {
    election_admin::raise_tokens(world.operator(), world.paths(), BASE, "the test").await.unwrap();
}

/// If no member remembers the earlier state, tokens begin again, and followers are notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_are_told_of_an_election_that_began_anew() {
    let world = World::start(DriverKind::Native).await;
    raise_tokens(&world).await;
    let mut leaders = Leaders::follow(world.operator(), world.paths().clone());
    let east = world.join("east-1", "east").await;
    let first = next_leader(&mut leaders).await;
    assert!(!first.began_anew && first.leader.is_some_and(|leader| leader.fencing_token > BASE));

    assert_eq!(east.election().leave().await, Ended::Left);
    delete(&world, "").await;
    let _anew = world.join("east-1", "east").await;
    let second = next_leader(&mut leaders).await;
    assert!(second.began_anew && second.leader.is_some_and(|leader| leader.fencing_token < BASE));
}

/// If no member remembers the earlier state, the history may still contain it. A resource that has seen the newer token
/// refuses the leader, and the problem is reported until an operator raises the base.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_below_those_of_the_history_is_reported() {
    let world = World::start(DriverKind::Native).await;
    raise_tokens(&world).await;
    let east = world.join("east-1", "east").await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let newest = east.status().fencing_token.unwrap();
    let observer = Observer::new(world.operator().active().await.unwrap());
    let deadline = BootTime::now() + SOON;
    while observer.history(world.paths()).await.unwrap().0.is_empty() {
        assert!(BootTime::now() < deadline, "the leadership is not in the history");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.problems().await, []);

    assert_eq!(east.election().leave().await, Ended::Left);
    delete(&world, "/leader").await;
    let east = world.join("east-1", "east").await;
    wait_for("east-1 leads again", SOON, || east.leads()).await;
    let token = east.status().fencing_token.unwrap();
    assert!(token < newest, "{token} after {newest}");
    assert_eq!(world.problems().await, [Problem::LowToken { slot: 0, token, newest }]);

    election_admin::raise_tokens(world.operator(), world.paths(), newest, "the test").await.unwrap();
    wait_for("it leads with a newer one", SOON, || {
        east.leads() && east.status().fencing_token.is_some_and(|token| token > newest)
    })
    .await;
    assert_eq!(world.problems().await, []);
}

/// The tokens of every recipe rise by themselves, so no problem is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_leadership_are_no_problem() {
    for recipe in [Recipe::Queue(QueueFormat::Native), Recipe::Single] {
        let world = World::with_recipe(DriverKind::Native, recipe).await;
        for _ in 0..3 {
            let east = world.join("east-1", "east").await;
            wait_for("east-1 leads", SOON, || east.leads()).await;
            assert_eq!(world.problems().await, []);
            assert_eq!(east.election().leave().await, Ended::Left);
        }
    }
}

async fn next_leader(leaders: &mut Leaders) -> LeaderChange {
    let next = async {
        loop {
            let change = leaders.next().await.unwrap().unwrap();
            if change.leader.is_some() {
                return change;
            }
        }
    };
    tokio::time::timeout(SOON, next).await.expect("somebody leads")
}

/// The decision is written again as it was: who leads is not disturbed. A later change of
/// leadership has a later term and a newer token, also where an operator had raised their base.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_decision_disturbs_nobody() {
    let world = World::start(DriverKind::Native).await;
    let (east, west) = (world.join("east-1", "east").await, world.join("west-1", "west").await);
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let base = 1_000_000_000_000;
    let raised = election_admin::raise_tokens(world.operator(), world.paths(), base, "the test");
    raised.await.unwrap();
    wait_for("its token is above the base", SOON, || {
        east.leads() && east.status().fencing_token.is_some_and(|token| token > BASE)
    })
    .await;
    let before = east.status();
    // The elector, which may be either of them, restores what both know.
    let knows = || Some(west.status().newest_token) == before.fencing_token;
    wait_for("west-1 knows that token", SOON, knows).await;

    let session = world.operator().active().await.unwrap();
    session.delete(&world.paths().elected(), None).await.unwrap();
    let deadline = BootTime::now() + SOON;
    while world.snapshot().await.elected.is_none() {
        assert!(BootTime::now() < deadline, "the decision does not come back");
    }
    let done = world.ask(RequestKind::Switchover, Target::Any, false).await;
    assert!(matches!(done.state, RequestState::Done { .. }), "{done:?}");
    wait_for("west-1 knows that it leads", SOON, || west.leads()).await;
    assert_eq!(west.status().term, before.term + 1, "no term was lost, and none was needed");
    assert!(west.status().fencing_token > before.fencing_token);
    assert_eq!(world.begun_and_stopped("east-1"), (2, 2), "once for the base, once for the switchover");
    world.no_overlap();
}
