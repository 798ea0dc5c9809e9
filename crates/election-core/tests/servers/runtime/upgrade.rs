//! Programs of two versions in one election, as while a fleet is upgraded: a record with a field that this
//! program does not know, and one of a format that it can't read.

use election_core::internals::record::{RequestKind, RequestState, Target};
use serde_json::{Value, json};
use zk_session::DriverKind;

use super::{
    SOON,
    members::{World, wait_for},
};

impl World {
    /// Changes a record as another program would have written it.
    async fn edit(&self, path: &str, key: &str, value: Value) {
        let session = self.operator().active().await.unwrap();
        let node = session.get(path).await.unwrap().expect("the record is there");
        let mut record: Value = serde_json::from_slice(&node.data).unwrap();
        record[key] = value;
        session.set(path, record.to_string().as_bytes(), Some(node.stat.version)).await.unwrap();
    }
}

async fn upgrade(world: &World) {
    let decision = world.paths().elected();
    let east = world.join("east-1", "east").await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let west = world.join("west-1", "west").await;
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;

    // What a newer program adds is passed over, in the decision and in a member's record.
    let member = world.paths().node(&"west-1".parse().unwrap());
    world.edit(&decision, "from_the_future", json!([1, 2])).await;
    world.edit(&member, "from_the_future", json!({ "a": 1 })).await;
    let moved = world.ask(RequestKind::Switchover, Target::Any, false).await;
    assert!(matches!(moved.state, RequestState::Done { .. }), "{moved:?}");
    // The elector can know that it is READY before the new leader itself does.
    wait_for("west-1 leads", SOON, || west.leads()).await;

    // If the decision can't be read, the members ignore it: the leader continues to lead, and nothing is decided.
    wait_for("east-1 is next in line", SOON, || east.is_next()).await;
    world.edit(&decision, "v", json!(2)).await;
    wait_for("the elector says so", SOON, || east.status().note.contains("its format is version 2")).await;
    let filed = world.ask_only(RequestKind::Switchover, Target::Any, false).await;
    assert!(world.snapshot().await.unreadable.iter().any(|error| error.path == decision));
    assert!(west.leads(), "leadership stays where it is");
    assert_eq!(world.request(&filed).await.state, RequestState::Pending);

    // When it can be read again the election continues.
    world.edit(&decision, "v", json!(1)).await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
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
