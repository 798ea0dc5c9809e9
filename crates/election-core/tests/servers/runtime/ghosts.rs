//! Ephemerals that no living member owns, as a server would leave them: here a session that is no member's
//! keeps them.

use election_admin::{Ghost, Problem};
use election_core::{
    internals::record::{MemberRecord, Record as _},
    status::Ballot,
};
use zk_session::{CreateMode, DriverKind, Incarnation, Recovery};
use zk_testkit::{Op, Which};

use super::{
    SOON,
    members::{World, elector, wait_for},
};

async fn lowest_ballot(world: &World, ghost: &Incarnation) -> Ballot {
    let prefix = world.paths().ballot_prefix("s00ghost.1");
    ghost.create_parents(&prefix).await.unwrap();
    let created =
        ghost.create_sequential(&prefix, "east-9", CreateMode::Ephemeral, Recovery::Name).await.unwrap();
    Ballot::new(created.path.rsplit('/').next().unwrap()).unwrap()
}

async fn place(world: &World, ghost: &Incarnation, ballot: &Ballot) {
    let current = serde_json::json!({
        "v": 1, "member": "east-9", "ballot": ballot, "site": "east", "term": 1, "status": "READY", "since_ms": 0,
    });
    let path = world.paths().leader_znode(0);
    ghost.create_parents(&path).await.unwrap();
    ghost.create(&path, serde_json::to_vec(&current).unwrap(), CreateMode::Ephemeral).await.unwrap();
}

/// The record of a member whose ballot was deleted with its session.
async fn record(world: &World, ghost: &Incarnation) {
    let path = world.paths().node(&"east-8".parse().unwrap());
    ghost.create_parents(&path).await.unwrap();
    let text = r#"{"v":1,"member":"east-8","ballot":"s00.1-0000000099","site":"east"}"#;
    MemberRecord::decode(&path, text.as_bytes()).expect("a record");
    ghost.create(&path, text, CreateMode::Ephemeral).await.unwrap();
}

/// As many ghosts, after the time in which they count as newcomers.
async fn ghosts(world: &World, count: usize) -> Vec<Ghost> {
    let deadline = zk_session::BootTime::now() + SOON;
    loop {
        let problems = world.problems().await;
        let ghost = |problem| if let Problem::Ghost(ghost) = problem { Some(ghost) } else { None };
        let ghosts: Vec<_> = problems.into_iter().filter_map(ghost).collect();
        if ghosts.len() == count {
            return ghosts;
        }
        assert!(zk_session::BootTime::now() < deadline, "{ghosts:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ghosts_are_named_and_once_they_are_removed_somebody_leads() {
    let world = World::start(DriverKind::Native).await;
    let session = world.session(None).await;
    let ghost = session.active().await.unwrap();
    let ballot = lowest_ballot(&world, &ghost).await;
    place(&world, &ghost, &ballot).await;
    record(&world, &ghost).await;

    let members = [world.join("east-1", "east").await, world.join("west-1", "west").await];
    wait_for("both stand", SOON, || members.iter().all(|m| m.status().ballot.is_some())).await;
    let ghosts = ghosts(&world, 3).await;
    assert!(members.iter().all(|m| !m.leads() && !m.status().is_elector), "the lowest ballot is a ghost's");
    assert!(ghosts.iter().all(|g| g.session == ghost.session_id()), "{ghosts:?}");
    let named = |path: &str| ghosts.iter().find(|g| g.path == path).and_then(|g| g.member.clone());
    for (path, member) in [
        (world.paths().ballot(&ballot), "east-9"),
        (world.paths().leader_znode(0), "east-9"),
        (world.paths().node(&"east-8".parse().unwrap()), "east-8"),
    ] {
        assert_eq!(named(&path), Some(member.parse().unwrap()), "{path}");
    }

    for ghost in &ghosts {
        assert!(
            election_admin::remove_ghost(world.operator(), world.paths(), ghost).await.unwrap(),
            "{ghost:?}"
        );
        assert!(
            !election_admin::remove_ghost(world.operator(), world.paths(), ghost).await.unwrap(),
            "{ghost:?}"
        );
    }
    wait_for("east-1 leads", SOON, || members[0].leads()).await;
    assert_eq!(world.problems().await, []);
    assert!(session.active().await.is_ok_and(|same| same.epoch() == ghost.epoch()), "its session lives on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_whose_removal_is_not_answered_is_removed() {
    let world = World::over_embedded(elector()).await;
    let session = world.session(None).await;
    lowest_ballot(&world, &session.active().await.unwrap()).await;
    let ghost = ghosts(&world, 1).await.remove(0);
    let lost = world.embedded().faults().lose_reply(Which::op(Op::Delete).on_path_with(&ghost.path));
    assert!(election_admin::remove_ghost(world.operator(), world.paths(), &ghost).await.unwrap());
    lost.happened(SOON).await.unwrap();
    assert!(!election_admin::remove_ghost(world.operator(), world.paths(), &ghost).await.unwrap());
}
