//! Whether the work can end before its lease does, by what the servers grant.

use std::time::Duration;

use election_core::{
    Paths,
    config::{Policy, Profile},
    errors::Ended,
};
use zk_session::{BootTime, DriverKind, Session};

use super::{
    SOON,
    members::{Fate, Member, World, wait_for},
};

/// As the shortest example does it: the session as it is made by default, but for its timeout.
async fn join(world: &World, name: &str, timeout: Duration, policy: Policy) -> Member {
    let builder = Session::builder(world.connect_string()).driver(world.driver()).session_timeout(timeout);
    let session = builder.connect().await.unwrap();
    let paths = Paths::new(world.root(), name).unwrap();
    let profile = Profile::new(name.parse().unwrap()).in_site("east".parse().unwrap());
    world.stand(session, profile, Fate::Lead, paths, policy)
}

/// The servers' ticks are taken to last 2 s, as they do by default; they are shorter here.
async fn the_default_policy_leads_with_any_timeout(world: &World) {
    let timeouts = [4000, 5000, 6000, 7500, 8200, 10_000].map(Duration::from_millis);
    let mut members = Vec::new();
    for timeout in timeouts {
        let name = format!("m-{}", timeout.as_millis());
        members.push(join(world, &name, timeout, Policy::default()).await);
    }
    for member in &members {
        wait_for(&format!("{} leads", member.id()), SOON, || member.leads()).await;
    }
    // Renewed by heartbeats, again and again.
    let now = BootTime::now();
    for (member, timeout) in members.iter().zip(timeouts) {
        let renewed = || member.status().work_until.is_some_and(|until| until >= now + timeout * 2);
        wait_for(&format!("{} leads on", member.id()), SOON, renewed).await;
        assert_eq!(world.begun_and_stopped(member.id()), (1, 0), "{}", member.id());
    }
}

async fn a_stop_budget_that_does_not_fit_ends_the_election(world: &World) {
    let timeout = Duration::from_secs(4);
    let policy = Policy::default().with(|policy| policy.stop_budget = Some(Duration::from_millis(800)));
    let member = join(world, "slow", timeout, policy).await;
    let ended = tokio::time::timeout(SOON, member.election().ended()).await.expect("it ends");
    let Ended::StopBudgetTooLong(why) = &ended else { panic!("{ended:?}") };
    assert_eq!((why.stop_budget, why.timing.session_timeout), (Duration::from_millis(800), timeout));
    assert!(ended.to_string().contains("have 800ms left at least"), "{ended}");
    assert_eq!(world.begun_and_stopped(member.id()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_granted() {
    let world = World::start(DriverKind::Native).await;
    the_default_policy_leads_with_any_timeout(&world).await;
    a_stop_budget_that_does_not_fit_ends_the_election(&world).await;
}
