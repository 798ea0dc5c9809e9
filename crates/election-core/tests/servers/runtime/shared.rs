//! Members of one election that share a session.

use election_core::{
    Election, ElectionConfig, Handler, Latch, Leadership, Paths,
    config::{Profile, QueueFormat, Recipe},
    errors::Ended,
    handler::{Failure, StopOrder},
    status::{HandedOver, Role},
};
use tokio::time::timeout;
use zk_session::DriverKind;

use super::{
    SOON,
    members::{self, Fate, Member, World, wait_for},
};

/// Each is told apart by its incarnation: one leads and one waits, and each move has a newer token.
async fn two_on_one_session(recipe: Recipe) {
    println!("{recipe:?}");
    let world = World::with_recipe(DriverKind::Native, recipe).await;
    let session = world.session(None).await;
    let join = |id: &str| world.join_over(session.clone(), id, "east", Fate::Lead, world.paths().clone());
    let one = join("one");
    wait_for("one leads", SOON, || one.leads()).await;
    let two = join("two");
    wait_for("two waits", SOON, || two.status().role == Role::Standby).await;
    let token = one.status().fencing_token;
    assert!(one.leads() && token.is_some());
    assert_eq!(timeout(SOON, one.election().leave()).await, Ok(Ended::Left));
    wait_for("two leads", SOON, || two.leads()).await;
    assert!(two.status().fencing_token > token);
    let back = join("one");
    wait_for("one waits", SOON, || back.status().role == Role::Standby).await;
    assert!(two.leads());
    world.no_overlap();
    assert_eq!(world.begun_and_stopped("two"), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_share_a_session() {
    for recipe in [members::elector(), Recipe::Queue(QueueFormat::Native), Recipe::Single] {
        two_on_one_session(recipe).await;
    }
}

/// Two processes act as one session, because both have resumed it: its servers give it to the one that has asked last, so that
/// they take it from each other. Each is told apart by its incarnation all the same.
async fn two_holders_of_one_session(recipe: Recipe) {
    println!("{recipe:?}");
    let world = World::with_recipe(DriverKind::Native, recipe).await;
    let first = world.session(None).await;
    let ticket = first.incarnation().expect("it is active").ticket();
    let second = world.resumed(ticket).await;
    let join = |session, id: &str| world.join_over(session, id, "east", Fate::Lead, world.paths().clone());
    let (one, two) = (join(first, "one"), join(second, "two"));
    wait_for("one of them leads", SOON, || one.leads() || two.leads()).await;
    let (leader, other) = if one.leads() { (one, two) } else { (two, one) };
    let token = leader.status().fencing_token;
    assert_eq!(timeout(SOON, leader.election().leave()).await, Ok(Ended::Left));
    wait_for("the other one leads", SOON, || other.leads()).await;
    assert!(other.status().fencing_token > token);
    world.no_overlap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_holders_of_one_session_are_told_apart() {
    for recipe in [members::elector(), Recipe::Queue(QueueFormat::Native), Recipe::Single] {
        two_holders_of_one_session(recipe).await;
    }
}

/// A member leaves while there is no connection, so its znodes remain. They are deleted when the connection returns, although the
/// session lives on: another incarnation of the member would wait for them.
async fn left_without_a_connection(recipe: Recipe) {
    println!("{recipe:?}");
    let world = World::with_recipe(DriverKind::Native, recipe).await.with_long_sessions();
    let former = world.join_through_proxy("one", "east").await;
    wait_for("one leads", SOON, || former.leads()).await;
    let (session, token) = (former.session().clone(), former.status().fencing_token);
    let id = session.incarnation().expect("it is active").session_id();
    former.proxy().black_hole(true);
    let _ = former.proxy().cut().await;
    wait_for("the connection is lost", SOON, || !session.state().is_active()).await;
    assert_eq!(timeout(SOON, former.election().leave()).await, Ok(Ended::Left));
    former.proxy().black_hole(false);
    let back: Member = world.join_over(session.clone(), "one", "east", Fate::Lead, world.paths().clone());
    wait_for("one leads again", SOON, || back.leads()).await;
    assert!(back.status().fencing_token > token);
    assert_eq!(session.incarnation().map(|now| now.session_id()), Some(id), "on the same session");
    world.no_overlap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_left_without_a_connection_returns() {
    for recipe in [members::elector(), Recipe::Queue(QueueFormat::Native)] {
        left_without_a_connection(recipe).await;
    }
}

/// All members must use one recipe: two recipes could have two leaders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_another_recipe_is_refused() {
    let world = World::with_recipe(DriverKind::Native, Recipe::Queue(QueueFormat::Native)).await;
    let first = world.join("first", "east").await;
    wait_for("the first leads", SOON, || first.leads()).await;
    for recipe in [Recipe::Single, Recipe::Elector(world.strategy())] {
        let me = Profile::new("second".parse().unwrap());
        let config = ElectionConfig::new(world.paths().clone(), me, recipe).policy(world.policy());
        let second = Latch::join(&world.session(None).await, config);
        let refused = timeout(SOON, second.election().ended()).await.unwrap();
        assert_eq!(refused, Ended::OtherRecipe { recipe: "queue" });
    }
    assert!(first.leads());
    assert_eq!(timeout(SOON, first.election().leave()).await, Ok(Ended::Left));
    // Without a candidate the recipe can be changed.
    let me = Profile::new("second".parse().unwrap());
    let config = ElectionConfig::new(world.paths().clone(), me, Recipe::Single).policy(world.policy());
    let second = Latch::join(&world.session(None).await, config);
    timeout(SOON, second.leading()).await.unwrap().unwrap();
}

/// None of them sees another one before it has created its own znode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_two_recipes_that_begin_at_one_instant_do_not_both_stay() {
    let world = World::start(DriverKind::Native).await;
    let sessions = [world.session(None).await, world.session(None).await, world.session(None).await];
    let recipes = [Recipe::Single, Recipe::Queue(QueueFormat::Native), Recipe::Elector(world.strategy())];
    for round in 0..12 {
        let paths = Paths::new("/instant", &round.to_string()).unwrap();
        let members: Vec<_> = std::iter::zip(&sessions, &recipes)
            .enumerate()
            .map(|(number, (session, recipe))| {
                let me = Profile::new(format!("member-{number}").parse().unwrap());
                let config = ElectionConfig::new(paths.clone(), me, recipe.clone()).policy(world.policy());
                Latch::join(session, config)
            })
            .collect();
        let settled = async |latch: &Latch| {
            tokio::select! {
                ended = latch.election().ended() => {
                    assert!(matches!(ended, Ended::OtherRecipe { .. }), "round {round}: {ended:?}");
                    false
                }
                leading = latch.leading() => leading.is_ok(),
            }
        };
        let all = async { tokio::join!(settled(&members[0]), settled(&members[1]), settled(&members[2])) };
        let (one, two, three) = timeout(SOON, all).await.expect("each leads or is refused");
        let leaders = [one, two, three].into_iter().filter(|leads| *leads).count();
        assert!(leaders <= 1, "round {round}: {leaders} lead");
        for latch in members {
            timeout(SOON, latch.election().leave()).await.unwrap();
        }
    }
}

/// Leads until it is told to stop.
struct Job;

impl Handler for Job {
    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {}
}

/// What was handed over is continued once: two engines would lead with one token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_handed_over_is_continued_once() {
    let world = World::with_recipe(DriverKind::Native, Recipe::Queue(QueueFormat::Native)).await;
    let session = world.session(None).await;
    let config = || {
        let me = Profile::new("one".parse().unwrap());
        ElectionConfig::new(world.paths().clone(), me, Recipe::Queue(QueueFormat::Native))
            .policy(world.policy())
    };
    let former = Election::join(session.clone(), config(), Job);
    wait_for("it leads", SOON, || former.status().now().leads_now()).await;
    let token = former.status().now().fencing_token;
    let resume = |handed: &HandedOver| {
        let pin = session.pin().unwrap();
        Election::resume(session.clone(), pin, config(), handed.resumption().clone(), Job)
    };
    // Until it is at rest, and held long enough.
    let (handed, next) = loop {
        if let Ok(handed) = former.hand_over().await
            && let Ok(next) = resume(&handed)
        {
            break (handed, next);
        }
        tokio::task::yield_now().await;
    };
    assert!(resume(&handed).is_err(), "it is continued already");
    drop(handed);
    assert_eq!(timeout(SOON, former.ended()).await, Ok(Ended::HandedOver));
    wait_for("the next one leads on", SOON, || next.status().now().leads_now()).await;
    assert_eq!(next.status().now().fencing_token, token);
    assert_eq!(timeout(SOON, next.leave()).await, Ok(Ended::Left));
}
