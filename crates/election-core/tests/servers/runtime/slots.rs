//! Several leaders of one election.

use std::time::Duration;

use election_core::{
    internals::record::{Health, Outgoing, RequestKind, RequestState, Target},
    status::Role,
};
use zk_session::{BootTime, DriverKind};

use super::{
    SOON,
    members::{Member, World, wait_for},
};

/// Three lead, two are spares.
const SLOTS: usize = 3;

/// A leadership as its holder knows it: member, slot, term and token.
type Held = (String, usize, u64, u64);

async fn five(world: &World) -> Vec<Member> {
    let mut members = Vec::new();
    for (id, site) in
        [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west"), ("west-3", "west")]
    {
        members.push(world.join_through_proxy(id, site).await);
    }
    wait_for("three lead, and two are spares", SOON, || {
        let standby = members.iter().filter(|m| m.status().role == Role::Standby).count();
        held(&members).len() == SLOTS && standby == 2
    })
    .await;
    members
}

/// All leaderships that are READY and have a valid lease, lowest slot first.
fn held<'a>(members: impl IntoIterator<Item = &'a Member>) -> Vec<Held> {
    let leading = members.into_iter().filter(|m| m.leads());
    let mut held: Vec<_> = leading
        .filter_map(|m| {
            let status = m.status();
            Some((m.id().to_owned(), status.slot?, status.term, status.fencing_token?))
        })
        .collect();
    held.sort_by_key(|(_, slot, ..)| *slot);
    held
}

/// The leader of slot 1 is cut off until its session expires. A spare fills the slot. The two others keep their terms
/// and tokens, and their work is never stopped. The lost member comes back as a spare.
async fn a_lost_leaders_slot_is_filled(driver: DriverKind) {
    let world = World::with_slots(driver, SLOTS).await;
    let members = five(&world).await;
    let before = held(&members);
    assert_eq!(before.iter().map(|(_, slot, ..)| *slot).collect::<Vec<_>>(), [0, 1, 2], "{before:?}");
    let snapshot = world.snapshot().await;
    for (id, slot, term, token) in &before {
        let leader_znode = &snapshot.leader_znode(*slot).expect("a leader").record;
        assert_eq!(
            (leader_znode.member.as_str(), leader_znode.slot, leader_znode.term),
            (id.as_str(), *slot, *term)
        );
        assert_eq!(snapshot.fencing_token(*slot), Some(*token));
    }
    // A spare steps in at once if it has seen the tenure.
    wait_for("a spare is next in line of slot 1", SOON, || {
        members.iter().any(|m| {
            let status = m.status();
            let (Some(ballot), Some(elected)) = (status.ballot, status.elected) else { return false };
            elected.place_in_line(1, &ballot) == Some(0)
        })
    })
    .await;

    let lost = members.iter().find(|m| m.id() == before[1].0).expect("it is a member");
    lost.proxy().black_hole(true);
    wait_for("a spare leads slot 1", SOON, || {
        held(&members).iter().any(|(id, slot, ..)| *slot == 1 && id != lost.id())
    })
    .await;
    let after = held(&members);
    assert_eq!(after.len(), SLOTS, "{after:?}");
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]), "the others are not disturbed");
    assert!(after[1].2 > before[1].2 && after[1].3 > before[1].3, "{before:?}, then {after:?}");

    lost.proxy().black_hole(false);
    wait_for("the lost one is a spare", SOON, || lost.status().role == Role::Standby).await;
    assert_eq!(held(&members), after);
    for (id, ..) in &after {
        assert_eq!(world.begun_and_stopped(id), (1, 0), "the work of {id}");
    }
    assert_eq!(world.begun_and_stopped(lost.id()), (1, 1));
    world.no_overlap();
}

/// An operator replaces one leader of three by a spare; the others lead on.
async fn one_leader_of_several_is_replaced(driver: DriverKind) {
    let world = World::with_slots(driver, SLOTS).await;
    let members = five(&world).await;
    let before = held(&members);
    let spare = members.iter().find(|m| m.status().role == Role::Standby).expect("there are spares");
    let to = Target::Member(spare.id().parse().unwrap());
    let ask = async |from: Outgoing| {
        let request = election_admin::new_request(
            RequestKind::Switchover,
            from,
            to.clone(),
            false,
            None,
            "a test".to_owned(),
        );
        let filed = election_admin::ask(world.operator(), world.paths(), request).await.unwrap();
        let deadline = BootTime::now() + Duration::from_secs(30);
        let following =
            election_admin::follow(world.operator(), world.paths(), &filed.which, deadline, |_| {});
        following.await.unwrap().expect("the request is there").state
    };
    // The operator must specify which of the three.
    let state = ask(Outgoing::Only).await;
    let why = "say which leader is to be replaced";
    assert!(matches!(&state, RequestState::Failed { reason, .. } if reason.contains(why)), "{state:?}");

    let state = ask(Outgoing::Member(before[2].0.parse().unwrap())).await;
    let done = |leader: &str| leader == spare.id();
    assert!(matches!(&state, RequestState::Done { leader, .. } if done(leader.as_str())), "{state:?}");
    // The elector can know that it is READY before the new leader itself does.
    wait_for("the spare leads", SOON, || spare.leads()).await;
    let after = held(&members);
    assert_eq!(after.len(), SLOTS, "{after:?}");
    assert_eq!(after[..2], before[..2], "the others are not disturbed");
    assert_eq!((after[2].0.as_str(), after[2].1), (spare.id(), 2));
    assert_eq!(world.begun_and_stopped(&before[0].0), (1, 0));
    world.no_overlap();
}

mod native {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_leaders_slot_is_filled_and_the_others_are_not_disturbed() {
        a_lost_leaders_slot_is_filled(DriverKind::Native).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_leader_of_several_is_replaced_and_the_others_lead_on() {
        one_leader_of_several_is_replaced(DriverKind::Native).await;
    }
}

mod zookeeper_async {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "double: the other driver; cargo xtask test --full"]
    async fn a_lost_leaders_slot_is_filled_and_the_others_are_not_disturbed() {
        a_lost_leaders_slot_is_filled(DriverKind::ZookeeperAsync).await;
    }
}

/// Sixteen slots and twenty members, of whom thirteen are unfit at the start, for reasons as long as they can be:
/// once all are well, all slots are filled, and the decision fits into its znode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_slots_are_filled_although_most_were_unfit_at_the_start() {
    const ALL: usize = 16;
    let world = World::with_slots(DriverKind::Native, ALL).await;
    let mut members = Vec::new();
    for number in 0..20 {
        let site = if number % 2 == 0 { "east" } else { "west" };
        let name = format!("{site}-{number}-{}", "of-a-long-name".repeat(6));
        let member = world.join(&name, site).await;
        if number >= 7 {
            let reason = format!("the disk of {number} is full; {}", "so it is \"\\unfit\\\", ".repeat(40));
            member.election().set_health(Health::Unhealthy { reason });
        }
        members.push(member);
    }
    wait_for("the fit ones lead", SOON, || held(&members).len() >= 7).await;
    for member in &members {
        member.election().set_health(Health::Healthy);
    }
    wait_for("all slots are filled", SOON * 2, || held(&members).len() == ALL).await;
    let session = world.operator().active().await.unwrap();
    let decision = session.get(&world.paths().elected()).await.unwrap().expect("a decision");
    assert!(decision.data.len() < 64 * 1024, "{} bytes", decision.data.len());
}
