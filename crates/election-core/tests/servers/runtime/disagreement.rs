//! A server that keeps what a lost member has left, while the others have deleted it: the members behind that server.

use election_admin::{AdminError, Refusal};
use election_core::{
    Leaders,
    config::{QueueFormat, Recipe},
    internals::record::{RequestKind, Target},
};
use zk_session::{BootTime, Session};

use super::{
    SOON,
    members::{Fate, Member, TICK, World, elector, wait_for},
};

/// A member whose session uses server 1, a follower, while another one is not better.
async fn behind_one(world: &World, name: &str, site: &str) -> Member {
    let member = join_behind_one(world, name, site).await;
    wait_for("it is a candidate", SOON, || member.status().ballot.is_some()).await;
    assert_eq!(server_of(world, &member), Some(1));
    member
}

async fn join_behind_one(world: &World, name: &str, site: &str) -> Member {
    let servers = world.embedded();
    let builder = Session::builder(servers.connect_string()).prefer(servers.addresses()[1].to_string());
    let session = builder.session_timeout(TICK * 4).tick_time(TICK).connect().await.unwrap();
    world.join_over(session, name, site, Fate::Lead, world.paths().clone())
}

fn server_of(world: &World, member: &Member) -> Option<usize> {
    server_of_session(world, member.session())
}

fn server_of_session(world: &World, session: &Session) -> Option<usize> {
    let id = session.incarnation()?.session_id().0;
    world.embedded().sessions().into_iter().find(|session| session.id == id).map(|session| session.server)
}

/// The member is lost with its session, and server 1 keeps all that it had.
async fn lose(world: &World, member: &Member) {
    let session = member.session().active().await.unwrap();
    let (faults, left) = (world.embedded().faults(), session.ephemerals(world.root()).await.unwrap());
    assert!(!left.is_empty());
    left.iter().for_each(|path| faults.keep_znode(1, path, true));
    member.proxy().black_hole(true);
    faults.expire(session.session_id().0).unwrap();
}

async fn the_next_one_leads(recipe: Recipe) {
    let world = World::over_embedded(recipe).await;
    let lost = world.join_through_proxy("east-1", "east").await;
    wait_for("east-1 leads", SOON, || lost.leads()).await;
    let next = behind_one(&world, "west-1", "west").await;
    lose(&world, &lost).await;
    wait_for("west-1 leads", SOON, || next.leads()).await;
    assert_ne!(server_of(&world, &next), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_in_a_queue_leads() {
    the_next_one_leads(Recipe::Queue(QueueFormat::Native)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_for_a_single_znode_leads() {
    the_next_one_leads(Recipe::Single).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_in_line_leads() {
    the_next_one_leads(elector()).await;
}

/// The elector, whose ballot is the lowest, reads the whole election by one watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elector_names_the_next_leader() {
    let world = World::over_embedded(elector()).await;
    let elector = behind_one(&world, "west-1", "west").await;
    wait_for("west-1 decides", SOON, || elector.status().is_elector).await;
    let lost = world.join_through_proxy("east-1", "east").await;
    wait_for("east-1 leads", SOON, || lost.leads()).await;
    lose(&world, &lost).await;
    wait_for("west-1 leads", SOON, || elector.leads()).await;
    assert_ne!(server_of(&world, &elector), Some(1));
}

/// Somebody else's ballot that server 1 alone has is before the own one: the election has no elector.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ballot_that_one_server_keeps_does_not_leave_an_election_without_an_elector() {
    let world = World::over_embedded(elector()).await;
    let lost = world.join_through_proxy("west-2", "west").await;
    wait_for("west-2 decides", SOON, || lost.status().is_elector).await;
    let (one, two) = (behind_one(&world, "west-1", "west").await, behind_one(&world, "east-1", "east").await);
    lose(&world, &lost).await;
    wait_for("a member leads", SOON, || one.leads() || two.leads()).await;
    wait_for("a member decides", SOON, || one.status().is_elector || two.status().is_elector).await;
}

/// An observer and an operator's command behind the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_one_server_keeps_is_reported_gone_and_a_forced_removal_ends() {
    for recipe in [Recipe::Queue(QueueFormat::Native), Recipe::Single] {
        let world = World::over_embedded(recipe).await;
        let servers = world.embedded();
        let lost = world.join_through_proxy("east-1", "east").await;
        wait_for("east-1 leads", SOON, || lost.leads()).await;
        let behind = || {
            let builder =
                Session::builder(servers.connect_string()).prefer(servers.addresses()[1].to_string());
            builder.session_timeout(TICK * 4).tick_time(TICK).connect()
        };
        let (observer, commands) = (behind().await.unwrap(), behind().await.unwrap());
        let mut leaders = Leaders::follow(&observer, world.paths().clone());
        while leaders.next().await.unwrap().unwrap().leader.is_none() {}
        lose(&world, &lost).await;
        let removed =
            tokio::time::timeout(SOON, election_admin::vacate(&commands, world.paths())).await.unwrap();
        match &removed {
            Err(AdminError::Refused(Refusal::NoLeader)) => {}
            // The session moved before the answer to its delete.
            Ok(gone) => assert_eq!(gone.member, "east-1".parse().unwrap()),
            Err(_) => panic!("{removed:?}"),
        }
        let change = tokio::time::timeout(SOON, leaders.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(change.leader, None);
        // What the servers show, each by a session of its own.
        let mut sessions = Vec::new();
        for (number, address) in servers.addresses().into_iter().enumerate() {
            sessions.push((
                format!("zk{number}"),
                Session::builder(address.to_string()).connect().await.unwrap(),
            ));
        }
        let found = election_admin::compare_servers(&sessions, world.paths()).await.unwrap();
        assert!(
            !found.is_empty() && found.iter().all(|found| found.server == "zk1" && found.is_kept),
            "{found:?}"
        );
        servers.faults().copy_data(1);
        assert_eq!(election_admin::compare_servers(&sessions, world.paths()).await.unwrap(), []);
    }
}

/// An operator's command behind the server, which takes the decision of an elector that does not: it has deleted the leader
/// znode, which the server keeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_failover_behind_a_server_that_keeps_the_leader_znode_ends() {
    let world = World::over_embedded(elector()).await;
    let east = world.join_through_proxy("east-1", "east").await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let west = world.join("west-1", "west").await;
    wait_for("west-1 is next in line", SOON, || west.is_next()).await;
    let servers = world.embedded();
    let builder = Session::builder(servers.connect_string()).prefer(servers.addresses()[1].to_string());
    let commands = builder.session_timeout(TICK * 4).tick_time(TICK).connect().await.unwrap();
    servers.faults().keep_znode(1, &world.paths().leader_znode(0), true);
    east.proxy().black_hole(true);
    let request = world.request_for(RequestKind::Failover, Target::Member("west-1".parse().unwrap()), true);
    let filed = election_admin::ask(&commands, world.paths(), request).await.unwrap();
    let (policy, strategy, until) =
        (world.policy(), world.strategy(), BootTime::now() + filed.request.valid_for());
    let forcing = election_admin::force(&commands, world.paths(), &filed, &policy, &*strategy, until);
    tokio::time::timeout(SOON, forcing).await.unwrap().unwrap();
    assert_ne!(server_of_session(&world, &commands), Some(1));
    wait_for("west-1 leads", SOON, || west.leads()).await;
    let elected = world.snapshot().await.elected.unwrap().record;
    assert_eq!(elected.slots[0].given.request, Some(filed.which));
}

/// The record of the member's former session seems to be another process of the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_former_record_one_server_keeps_rejoins() {
    for recipe in [elector(), Recipe::Single] {
        let world = World::over_embedded(recipe).await;
        let lost = world.join_through_proxy("east-1", "east").await;
        wait_for("east-1 leads", SOON, || lost.leads()).await;
        lose(&world, &lost).await;
        let again = join_behind_one(&world, "east-1", "east").await;
        wait_for("east-1 leads again", SOON, || again.leads()).await;
    }
}
