//! Programs of two formats in one election, as while a fleet is upgraded.

use std::time::Duration;

use election_core::{
    engine::Profile,
    record::{NEWEST, RequestKind, RequestState, Target, VERSION},
};
use zk_session::DriverKind;

use super::{
    SOON,
    members::{World, wait_for},
};

fn old_program(member: &str, site: &str) -> Profile {
    Profile { format: VERSION, ..Profile::new(member.parse().unwrap(), site.parse().unwrap()) }
}

async fn upgrade(world: &World) {
    let format = async || world.snapshot().await.elected.map(|decision| decision.record.v);
    let old = world.join_as(old_program("east-1", "east")).await;
    wait_for("the old east-1 leads", SOON, || old.leads()).await;
    assert_eq!(format().await, Some(VERSION));
    let members = world.snapshot().await.members;
    assert_eq!(members[0].reads, VERSION);

    // A new member leads, decides nothing yet, and is understood by the old elector.
    let new = world.join("west-1", "west").await;
    wait_for("west-1 is next in line", SOON, || new.is_next()).await;
    let moved = world.ask(RequestKind::Switchover, Target::Any, false).await;
    assert!(matches!(moved.state, RequestState::Done { .. }), "{moved:?}");
    // The elector can know that it is READY before the new leader itself does.
    wait_for("west-1 leads", SOON, || new.leads()).await;
    assert_eq!(format().await, Some(VERSION));

    // The old one is replaced by a new one: a new elector, and nobody else to think of.
    old.election().leave().await;
    let replaced = world.join("east-1", "east").await;
    wait_for("the new east-1 is next in line", SOON, || replaced.is_next()).await;
    let moved = world.ask(RequestKind::Switchover, Target::Any, false).await;
    assert!(matches!(moved.state, RequestState::Done { .. }), "{moved:?}");
    wait_for("the new east-1 leads", SOON, || replaced.leads()).await;
    assert_eq!(format().await, Some(NEWEST));

    // Somebody goes back: what stands is written anew, so that it can be read.
    let late = world.join_as(old_program("west-2", "west")).await;
    wait_for("the late old member reads the decision", Duration::from_secs(30), || {
        late.status().elected.is_some_and(|elected| elected.v == VERSION)
    })
    .await;
    assert!(replaced.leads(), "leadership stays where it is");
    world.no_overlap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_is_upgraded_one_by_one_with_native() {
    upgrade(&World::start(DriverKind::Native).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_fleet_is_upgraded_one_by_one_with_zookeeper_async() {
    upgrade(&World::start(DriverKind::ZookeeperAsync).await).await;
}
