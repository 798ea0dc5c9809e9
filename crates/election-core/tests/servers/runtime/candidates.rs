//! Candidates that campaign, and latches.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use election_core::{
    Candidate, ElectionConfig, Latch, Leaders, Leadership,
    config::{OnPause, Policy, Profile, QueueFormat, Recipe},
    errors::{CampaignError, Ended, RunError},
    handler::{Failure, StopReason},
    internals::record::{Cause, MemberFailure as Failed},
    status::{Health, Leader, Role},
};
use tokio::time::timeout;
use zk_session::DriverKind;

use super::{
    SOON,
    members::{World, wait_for},
};

fn config(world: &World, member: &str, recipe: Recipe) -> ElectionConfig {
    let me = Profile::new(member.parse().unwrap()).in_site("east".parse().unwrap());
    // Members resign again and again here, and are named again at once.
    let policy = world.policy().with(|policy| policy.exclusion = Duration::from_millis(100));
    ElectionConfig::new(world.paths().clone(), me, recipe).policy(policy)
}

async fn candidate(world: &World, member: &str, recipe: &Recipe) -> Candidate {
    Candidate::new(&world.session(None).await, config(world, member, recipe.clone()))
}

async fn campaign(candidate: &mut Candidate) -> Leadership {
    timeout(SOON, candidate.campaign()).await.expect("a campaign ends in leadership").unwrap()
}

fn role(candidate: &Candidate) -> Role {
    candidate.election().expect("it has campaigned").status().now().role
}

async fn the_next_one_leads_when_leadership_is_dropped(world: &World, recipe: Recipe) {
    let (mut one, mut two) = (candidate(world, "one", &recipe).await, candidate(world, "two", &recipe).await);
    let first = campaign(&mut one).await;
    assert!(first.is_valid());
    let waiting = tokio::spawn(async move { (campaign(&mut two).await, two) });
    assert!(first.is_valid() && !waiting.is_finished());
    let token = first.fencing_token();
    drop(first);
    let (second, two) = waiting.await.unwrap();
    assert!(second.is_valid());
    assert!(second.fencing_token() > token);

    // The first one does not campaign, so no member follows.
    timeout(SOON, second.resign()).await.expect("it is released");
    assert!(!matches!(role(&one), Role::TakingOver | Role::Leader), "{:?}", role(&one));
    assert!(!matches!(role(&two), Role::TakingOver | Role::Leader), "{:?}", role(&two));
    let again = campaign(&mut one).await;
    assert!(again.is_valid() && again.fencing_token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_leadership_passes_on() {
    for recipe in ["elector", "queue", "single"] {
        let world = World::start(DriverKind::Native).await;
        let recipe = match recipe {
            "elector" => Recipe::Elector(world.strategy()),
            "queue" => Recipe::Queue(QueueFormat::Native),
            _ => Recipe::Single,
        };
        the_next_one_leads_when_leadership_is_dropped(&world, recipe).await;
    }
}

/// Ownership counts: no other member leads until a program has released its leadership.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_not_released_while_it_is_held() {
    let world = World::start(DriverKind::Native).await;
    let recipe = Recipe::Elector(world.strategy());
    let (mut one, mut two) =
        (candidate(&world, "one", &recipe).await, candidate(&world, "two", &recipe).await);
    let first = campaign(&mut one).await;
    let waiting = tokio::spawn(async move { campaign(&mut two).await });
    one.election().unwrap().set_health(Health::Unhealthy { reason: "a test".to_owned() });
    let reason = timeout(SOON, first.lost()).await.expect("it hears of it");
    assert!(matches!(reason, StopReason::NotNamed(_)), "{reason}");
    assert!(!first.is_valid());
    let named = || {
        let status = one.election().unwrap().status().now();
        status
            .elected
            .is_some_and(|elected| elected.named(0).is_some_and(|named| named.member.as_str() == "two"))
    };
    wait_for("the other one is named", SOON, named).await;
    let leader =
        world.snapshot().await.leader_znode(0).map(|leader_znode| leader_znode.record.member.to_string());
    assert_eq!(leader.as_deref(), Some("one"));
    assert_eq!(role(&one), Role::SteppingDown);
    assert!(!waiting.is_finished());
    drop(first);
    assert!(timeout(SOON, waiting).await.expect("the other one follows").unwrap().is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_campaign_nobody_is_a_candidate() {
    let world = World::start(DriverKind::Native).await;
    let recipe = Recipe::Queue(QueueFormat::Native);
    let (mut one, mut two) =
        (candidate(&world, "one", &recipe).await, candidate(&world, "two", &recipe).await);
    let first = campaign(&mut one).await;
    assert!(timeout(Duration::from_millis(300), two.campaign()).await.is_err());
    let members = async || world.snapshot().await.members.len();
    let deadline = tokio::time::Instant::now() + SOON;
    while members().await > 1 {
        assert!(tokio::time::Instant::now() < deadline, "the other one is still in the queue");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(first);
    assert!(campaign(&mut two).await.is_valid());
}

/// The end of a leadership does not withdraw the campaign that follows it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_can_follow_at_once() {
    let world = World::start(DriverKind::Native).await;
    let config = config(&world, "one", Recipe::Single);
    let config = config.policy(world.policy().with(|policy| policy.exclusion = Duration::from_millis(1)));
    let mut one = Candidate::new(&world.session(None).await, config);
    let mut token = 0;
    for _ in 0..50 {
        let leadership = campaign(&mut one).await;
        assert!(leadership.fencing_token() > token);
        token = leadership.fencing_token();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_runs_while_its_member_leads() {
    let world = World::start(DriverKind::Native).await;
    let recipe = Recipe::Elector(world.strategy());
    let mut one = candidate(&world, "one", &recipe).await;

    let done = one.run_while_leading(async |leadership| Ok::<_, Failure>(leadership.fencing_token()));
    let token = timeout(SOON, done).await.expect("it leads").expect("it finishes");

    let failed: Result<(), _> =
        timeout(SOON, one.run_while_leading(async |_| Err(Failure::new("the disk is full")))).await.unwrap();
    let Err(RunError::Failed(why)) = failed else { panic!("{failed:?}") };
    assert_eq!(why.as_str(), "the disk is full");

    // Lost and acquired again: the work starts again.
    let runs = AtomicU32::new(0);
    let session = world.session(None).await;
    let mut two = Candidate::new(&session, config(&world, "two", recipe.clone()));
    let work = two.run_while_leading(async |leadership| {
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            std::future::pending::<()>().await;
        }
        Ok::<_, Failure>(leadership.fencing_token())
    });
    let operator = async {
        wait_for("the work runs", SOON, || runs.load(Ordering::Relaxed) == 1).await;
        let leader = async || {
            world.snapshot().await.leader_znode(0).map(|leader_znode| leader_znode.record.member.to_string())
        };
        assert_eq!(leader().await.as_deref(), Some("two"));
        session.active().await.unwrap().delete(&world.paths().leader_znode(0), None).await.unwrap();
    };
    let (done, ()) = timeout(SOON, async { tokio::join!(work, operator) }).await.expect("it leads again");
    let newest = done.expect("it finishes");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert!(newest > token);
    // It counts in the next decision, and there was none while no member was a candidate.
    let failures = world.snapshot().await.decided().expect("there is a decision").failures.clone();
    let is_of_one = |f: &Failed| f.member.as_str() == "one" && f.cause == Cause::WorkFailed.as_str();
    assert!(failures.iter().any(is_of_one), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_tells_whether_its_member_leads() {
    let world = World::start(DriverKind::Native).await;
    let recipe = Recipe::Queue(QueueFormat::Native);
    let one = Latch::join(&world.session(None).await, config(&world, "one", recipe.clone()));
    let token = timeout(SOON, one.leading()).await.expect("it leads").unwrap();
    assert!(one.is_leader());
    assert_eq!(one.fencing_token(), Some(token));

    let two = Latch::join(&world.session(None).await, config(&world, "two", recipe));
    wait_for("the other one is in the queue", SOON, || two.status().now().ballot.is_some()).await;
    assert!(!two.is_leader());
    timeout(SOON, two.lost()).await.expect("it does not lead");
    let lost = tokio::spawn({
        let one = one.clone();
        async move { one.lost().await }
    });
    assert!(!lost.is_finished());
    one.close().await;
    timeout(SOON, lost).await.expect("it leads no more").unwrap();
    assert!(!one.is_leader());
    assert!(timeout(SOON, two.leading()).await.expect("it follows").unwrap() > token);
    assert!(one.leading().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_proclaims_another_address() {
    for name in ["queue", "single", "elector"] {
        let world = World::start(DriverKind::Native).await;
        let session = world.session(None).await;
        let recipe = match name {
            "queue" => Recipe::Queue(QueueFormat::Native),
            "single" => Recipe::Single,
            _ => Recipe::Elector(world.strategy()),
        };
        let config = config(&world, "one", recipe);
        let mut leaders = Leaders::follow(&session, config.paths().clone());
        let latch = Latch::join(&session, config);
        let token = timeout(SOON, latch.leading()).await.expect("it leads").unwrap();
        latch.election().proclaim(|member| member.address = Some("10.0.0.7:8080".to_owned()));
        let proclaimed = async {
            let is_there = |leader: &Leader| leader.endpoint.as_deref() == Some("10.0.0.7:8080");
            while !leaders.last(0).is_some_and(is_there) {
                leaders.next().await.expect("it goes on").expect("it reads");
            }
        };
        timeout(SOON, proclaimed).await.unwrap_or_else(|_| panic!("{name}: it is published"));
        assert_eq!(leaders.last(0).map(|leader| leader.fencing_token), Some(token));
        assert_eq!(latch.fencing_token(), Some(token));
        latch.close().await;
    }
}

/// Nobody uses such values, but a mistake in a unit makes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duration_of_a_policy_at_an_end_is_refused_or_works() {
    let world = World::start(DriverKind::Native).await;
    let session = world.session(None).await;
    type Set = fn(&mut Policy, Duration);
    let durations: &[(&str, Set)] = &[
        ("stop_budget", |policy, time| policy.stop_budget = Some(time)),
        ("lease_reserve", |policy, time| policy.lease_reserve = time),
        ("takeover_timeout", |policy, time| policy.takeover_timeout = time),
        ("release_timeout", |policy, time| policy.release_timeout = time),
        ("acquire_timeout", |policy, time| policy.acquire_timeout = time),
        ("exclusion", |policy, time| policy.exclusion = time),
        ("max_exclusion", |policy, time| policy.max_exclusion = time),
        ("penalty_window", |policy, time| policy.penalty_window = time),
        ("max_site_failures.within", |policy, time| policy.max_site_failures.within = time),
        ("site_gone_after", |policy, time| policy.site_gone_after = time),
        ("min_tenure", |policy, time| policy.min_tenure = time),
        ("max_takeovers.within", |policy, time| policy.max_takeovers.within = time),
        ("better_after", |policy, time| policy.better_after = time),
        ("startup_wait", |policy, time| policy.startup_wait = time),
        ("suspect_after", |policy, time| policy.suspect_after = time),
        ("kill_budget", |policy, time| policy.on_pause = OnPause::Freeze { kill_budget: time }),
        ("max_pause", |policy, time| policy.on_pause = OnPause::Keep { max_pause: Some(time) }),
    ];
    for (name, set) in durations {
        for time in [Duration::ZERO, Duration::MAX] {
            let config = config(&world, "one", Recipe::Elector(world.strategy()));
            let policy = world.policy().with(|policy| set(policy, time));
            let mut one = Candidate::new(&session, config.policy(policy));
            let led = timeout(SOON, one.campaign()).await;
            match led.unwrap_or_else(|_| panic!("{name} = {time:?}: neither led nor refused")) {
                Ok(leadership) => timeout(SOON, leadership.resign()).await.expect("it is released"),
                Err(CampaignError::Ended(Ended::StopBudgetTooLong(_))) if time == Duration::MAX => {}
                Err(other) => panic!("{name} = {time:?}: {other}"),
            }
        }
    }
}
