//! The recipes without an elector, over the same ensemble, with either driver.

use election_core::{
    config::{QueueFormat, Recipe},
    errors::Ended,
    internals::record::Health,
    status::Role,
};
use zk_session::DriverKind;
use zk_testkit::{Op, Which};

use super::{
    SOON,
    members::{Fate, Member, World, wait_for},
};

/// One test for each recipe and driver.
macro_rules! over_both_recipes {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident: &World) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            async fn check($world: &World) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn queue_native() {
                let recipe = Recipe::Queue(QueueFormat::Native);
                check(&World::with_recipe(DriverKind::Native, recipe).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn queue_zookeeper_async() {
                let recipe = Recipe::Queue(QueueFormat::Native);
                check(&World::with_recipe(DriverKind::ZookeeperAsync, recipe).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn single_native() {
                check(&World::with_recipe(DriverKind::Native, Recipe::Single).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn single_zookeeper_async() {
                check(&World::with_recipe(DriverKind::ZookeeperAsync, Recipe::Single).await).await;
            }
        }
    )*};
}

/// Joins behind all present candidates.
async fn join(world: &World, name: &str) -> Member {
    stands(world.join(name, "here").await).await
}

async fn stands(member: Member) -> Member {
    wait_for("it stands", SOON, || member.status().ballot.is_some()).await;
    member
}

over_both_recipes! {
    /// The first candidate leads. Leaving hands over at once, with a higher token. A member that returns joins behind
    /// the others.
    async fn leadership_goes_round(world: &World) {
        let one = join(world, "one").await;
        wait_for("one leads", SOON, || one.leads()).await;
        let two = join(world, "two").await;
        let first = one.status();
        assert_eq!(first.leaders[0].as_ref().map(|c| c.member.as_str()), Some("one"));
        assert_eq!(first.fencing_token, Some(first.term));
        assert_eq!(one.election().leave().await, Ended::Left);
        wait_for("two leads", SOON, || two.leads()).await;
        assert!(two.status().fencing_token > first.fencing_token);
        let back = join(world, "one").await;
        assert_eq!(back.status().role, Role::Standby);
        assert_eq!(two.election().leave().await, Ended::Left);
        wait_for("one leads again", SOON, || back.leads()).await;
        assert!(back.status().fencing_token > two.status().fencing_token);
        world.no_overlap();
    }

    /// A waiting candidate can leave without causing another one to lead, and can leave twice.
    async fn whoever_waits_can_leave(world: &World) {
        let one = join(world, "one").await;
        wait_for("one leads", SOON, || one.leads()).await;
        let two = join(world, "two").await;
        let three = join(world, "three").await;
        assert_eq!(two.election().leave().await, Ended::Left);
        assert_eq!(two.election().leave().await, Ended::Left);
        assert!(one.leads());
        assert_eq!(three.status().role, Role::Standby);
        assert_eq!(one.election().leave().await, Ended::Left);
        wait_for("three leads", SOON, || three.leads()).await;
        world.no_overlap();
    }

    /// The work of a leader that is cut off ends by the lease, before the next begins.
    async fn a_leader_that_is_cut_off_stops_before_the_next_begins(world: &World) {
        let one = stands(world.join_through_proxy("one", "here").await).await;
        wait_for("one leads", SOON, || one.leads()).await;
        let two = join(world, "two").await;
        one.proxy().black_hole(true);
        wait_for("two leads", SOON, || two.leads()).await;
        world.no_overlap();
        one.proxy().black_hole(false);
        let _ = one.proxy().cut().await;
        wait_for("one stands by again", SOON, || one.status().role == Role::Standby).await;
        assert!(two.leads());
        assert_eq!(two.election().leave().await, Ended::Left);
        wait_for("one leads again", SOON, || one.leads()).await;
        world.no_overlap();
    }

    /// A short loss of the connection has no effect.
    async fn a_short_cut_costs_no_leadership(world: &World) {
        let one = stands(world.join_through_proxy("one", "here").await).await;
        wait_for("one leads", SOON, || one.leads()).await;
        let two = join(world, "two").await;
        let token = one.status().fencing_token;
        for _ in 0..3 {
            let _ = one.proxy().cut().await;
            wait_for("one is connected again", SOON, || one.session().state().is_active()).await;
        }
        assert!(one.leads());
        assert_eq!(one.status().fencing_token, token);
        assert_eq!(one.election().leave().await, Ended::Left);
        wait_for("two leads", SOON, || two.leads()).await;
        world.no_overlap();
    }

    /// If a takeover fails or hangs, the next candidate takes over. The failed one waits, then joins again.
    async fn a_takeover_that_fails_goes_to_the_next(world: &World) {
        for fate in [Fate::FailTakeover, Fate::HangTakeover] {
            let one = world.join_with("one", "here", fate).await;
            wait_for("one has tried", SOON, || one.status().role == Role::Excluded).await;
            let two = join(world, "two").await;
            wait_for("two leads", SOON, || two.leads()).await;
            wait_for("one has rejoined", SOON, || one.status().role == Role::Standby).await;
            assert_eq!(one.election().leave().await, Ended::Left);
            assert_eq!(two.election().leave().await, Ended::Left);
        }
        world.no_overlap();
    }

    /// Work that ends by itself, and health that is lost, give leadership up.
    async fn whoever_can_not_lead_gives_up(world: &World) {
        let one = join(world, "one").await;
        wait_for("one leads", SOON, || one.leads()).await;
        let two = join(world, "two").await;
        one.end_work("it crashed too often");
        wait_for("two leads", SOON, || two.leads()).await;
        wait_for("one has rejoined", SOON, || one.status().role == Role::Standby).await;
        two.election().set_health(Health::Unhealthy { reason: "the disk is full".to_owned() });
        wait_for("two pauses after its failure", SOON, || two.status().role == Role::Excluded).await;
        // Otherwise two may be healthy again, with the recipe `single`, before one has moved.
        wait_for("one leads again", SOON, || one.leads()).await;
        two.election().set_health(Health::Healthy);
        wait_for("two has rejoined", SOON, || two.status().role == Role::Standby).await;
        world.no_overlap();
    }

    /// An administrator deletes the leader znode: the leader stops, and joins again.
    async fn a_deleted_place_is_no_zombie(world: &World) {
        let one = join(world, "one").await;
        wait_for("one leads", SOON, || one.leads()).await;
        let token = one.status().fencing_token;
        let session = world.operator().active().await.unwrap();
        let path = match session.children(&world.paths().queue()).await.unwrap() {
            Some(queue) => format!("{}/{}", world.paths().queue(), queue.names[0]),
            None => world.paths().leader_znode(0),
        };
        session.delete(&path, None).await.unwrap();
        wait_for("one leads with a new znode", SOON, || {
            one.leads() && one.status().fencing_token > token
        })
        .await;
        world.no_overlap();
    }
}

/// An operator takes leadership once: not from the next leader, whom the command may see when it looks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_is_not_answered_is_not_repeated() {
    for (recipe, op) in [(Recipe::Queue(QueueFormat::Native), Op::Delete), (Recipe::Single, Op::Multi)] {
        let is_queue = matches!(recipe, Recipe::Queue(_));
        let world = World::over_embedded(recipe).await;
        let first = join(&world, "here-1").await;
        wait_for("here-1 leads", SOON, || first.leads()).await;
        let second = join(&world, "here-2").await;
        let lost = world.embedded().faults().lose_reply(Which::op(op));
        let removed = election_admin::vacate(world.operator(), world.paths()).await.unwrap();
        lost.happened(SOON).await.unwrap();
        assert_eq!(removed.member, "here-1".parse().unwrap());
        // With the recipe `single` the former leader may be the first to create the znode again.
        wait_for("one of them leads again", SOON, || {
            let [(begun, ended), (begun_2, ended_2)] =
                ["here-1", "here-2"].map(|member| world.begun_and_stopped(member));
            (begun + begun_2, ended + ended_2) == (2, 1) && (first.leads() || second.leads())
        })
        .await;
        assert!(!is_queue || second.leads());
    }
}
