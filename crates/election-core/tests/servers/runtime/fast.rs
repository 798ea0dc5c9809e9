//! Faster than the session timeout: what peers that can't reach the leader may do.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use election_core::{
    Election,
    internals::record::Cause,
    status::{Ballot, Role},
};
use zk_session::{BootTime, DriverKind};

use super::{
    SOON,
    members::{Member, World, wait_for},
};

/// The probes of some members, none of which can reach a member in this set.
struct Probes {
    lost: Arc<Mutex<BTreeSet<Ballot>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Probes {
    fn of(witnesses: &[&Member]) -> Self {
        let lost = Arc::new(Mutex::new(BTreeSet::new()));
        let witnesses: Vec<Election> = witnesses.iter().map(|m| m.election().clone()).collect();
        let task = tokio::spawn({
            let lost = Arc::clone(&lost);
            async move {
                loop {
                    let unanswered = lost.lock().unwrap().clone();
                    witnesses.iter().for_each(|w| w.probed(unanswered.clone()));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
        Self { lost, task }
    }

    fn lose(&self, member: &Member) {
        self.lost.lock().unwrap().insert(member.status().ballot.expect("it stands"));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The host of leader and elector is cut off from everyone: another one leads long
/// before the session of the old one has ended.
async fn a_lost_host(world: &World) {
    let east = world.join_through_proxy("east-1", "east").await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let other = world.join("east-2", "east").await;
    let west = world.join("west-1", "west").await;
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;
    assert!(east.status().is_elector);
    let old_token = east.status().fencing_token;
    let probes = Probes::of(&[&other, &west]);
    east.proxy().black_hole(true);
    probes.lose(&east);
    let lost = BootTime::now();
    wait_for("west-1 leads", SOON, || west.leads()).await;
    let took = BootTime::now().duration_since(lost);
    println!("lost to READY: {took:?}, with a session timeout of 10 s");
    let snapshot = world.snapshot().await;
    assert!(
        snapshot.members.iter().any(|m| m.member.as_str() == "east-1"),
        "the session of east-1 has ended, so this was no fast failover: {took:?}"
    );
    let elected = snapshot.decided().expect("there is a decision");
    assert_eq!((elected.term, elected.cause()), (3, Cause::Suspected), "{}", elected.sentence());
    let token = west.status().fencing_token;
    assert!(token > old_token, "the resource can tell them apart");
    wait_for("east-1 has stopped by its lease", SOON, || !east.leads()).await;
    east.proxy().black_hole(false);
    let _ = east.proxy().cut().await;
    wait_for("east-1 stands by again", SOON, || matches!(east.status().role, Role::Standby | Role::Excluded))
        .await;
    // The old elector knows the new decision now, and leaves the new leader alone.
    wait_for("east-1 knows who leads", SOON, || {
        east.status().leaders[0].as_ref().is_some_and(|current| current.member.as_str() == "west-1")
    })
    .await;
    assert_eq!((west.leads(), west.status().fencing_token), (true, token));
    let elected = world.snapshot().await.elected.expect("there is a decision").record;
    assert_eq!(elected.term, 3, "{}", elected.sentence());
}

/// A leader that lives and that its peers can't reach: its leader znode is deleted, and it stops. Reports of one site
/// alone do not end a leadership.
async fn an_unseen_leader(world: &World) {
    let east = world.join("east-1", "east").await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let other = world.join("east-2", "east").await;
    let west = world.join("west-1", "west").await;
    wait_for("west-1 stands before west-2", SOON, || west.status().ballot.is_some()).await;
    let far = world.join("west-2", "west").await;
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;
    let of_one_site = Probes::of(&[&west, &far]);
    of_one_site.lose(&east);
    let deadline = BootTime::now() + SOON;
    while world.snapshot().await.members.iter().filter(|m| !m.unreached.is_empty()).count() < 2 {
        assert!(BootTime::now() < deadline, "both of site west say so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(east.leads(), "two witnesses of three, and of one site");
    let of_the_other = Probes::of(&[&other]);
    of_the_other.lose(&east);
    wait_for("west-1 leads", SOON, || west.leads()).await;
    wait_for("east-1 is excluded", SOON, || east.status().role == Role::Excluded).await;
    let elected = west.status().elected.expect("there is a decision");
    assert_eq!(elected.cause(), Cause::Suspected, "{}", elected.sentence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_host_is_replaced_before_its_session_ends_with_native() {
    a_lost_host(&World::start_fast(DriverKind::Native).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn a_lost_host_is_replaced_before_its_session_ends_with_zookeeper_async() {
    a_lost_host(&World::start_fast(DriverKind::ZookeeperAsync).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unseen_leader_makes_room_with_native() {
    an_unseen_leader(&World::start_fast(DriverKind::Native).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn an_unseen_leader_makes_room_with_zookeeper_async() {
    an_unseen_leader(&World::start_fast(DriverKind::ZookeeperAsync).await).await;
}
