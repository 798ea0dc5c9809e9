//! The runtime over an ensemble of three servers, with either driver.
//!
//! All members are in this process, each with a session of its own, so that a member can be cut off or dropped while
//! the others continue.

/// One test for each driver.
macro_rules! over_both_drivers {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident: &World) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            async fn check($world: &World) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn native() {
                check(&World::start(DriverKind::Native).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn zookeeper_async() {
                check(&World::start(DriverKind::ZookeeperAsync).await).await;
            }
        }
    )*};
}

mod candidates;
mod deleted;
mod disagreement;
mod ending;
mod fast;
mod following;
mod ghosts;
mod herd;
mod members;
mod moves;
mod recipes;
mod requests;
mod restored;
mod shared;
mod slots;
mod takeover;
mod timing;
mod upgrade;
mod waits;

use std::{collections::BTreeMap, time::Duration};

use election_admin::Observer;
use election_core::{
    Paths,
    config::Profile,
    errors::{Ended, MAX_ATTRIBUTES},
    internals::record::{Cause, Health, RequestKind, RequestState, RoundTrips, Target},
    status::Role,
};
use members::{Fate, World, wait_for};
use zk_session::{BootTime, DriverKind};

const SOON: Duration = Duration::from_secs(30);

over_both_drivers! {
    /// The preferred site leads, the leader znode is READY, the token is the czxid.
    async fn the_preferred_site_leads_first(world: &World) {
        let west = world.join("west-1", "west").await;
        let east = world.join("east-1", "east").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let snapshot = world.snapshot().await;
        let leader_znode = snapshot.leader_znode(0).expect("a leader");
        assert_eq!(leader_znode.record.member.as_str(), "east-1");
        assert_eq!(snapshot.fencing_token(0), east.status().fencing_token);
        assert_eq!(snapshot.fencing_token(0), Some(u64::try_from(leader_znode.czxid).unwrap()));
        let elected = snapshot.decided().expect("there is a decision");
        assert_eq!((elected.term, elected.cause()), (1, Cause::Startup), "{}", elected.sentence());
        wait_for("west-1 is next in line", SOON, || {
            west.status().elected.is_some_and(|e| e.line_of(0).iter().any(|n| n.member.as_str() == "west-1"))
        })
        .await;
        assert_eq!(west.status().role, Role::Standby);
    }

    /// A planned move: the old leader has stopped before the new one takes over.
    async fn a_switchover_hands_over(world: &World) {
        let east = world.join("east-1", "east").await;
        let west = world.join("west-1", "west").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let request = world.ask(RequestKind::Switchover, Target::Member("west-1".parse().unwrap()), false).await;
        assert!(matches!(request.state, RequestState::Done { ref leader, .. } if leader.as_str() == "west-1"), "{request:?}");
        wait_for("west-1 knows that it leads", SOON, || west.leads()).await;
        assert_eq!(east.status().role, Role::Standby);
        world.no_overlap();
        let again = world.ask(RequestKind::Switchover, Target::Member("west-1".parse().unwrap()), false).await;
        assert!(matches!(again.state, RequestState::Failed { ref reason, .. } if reason.contains("leads already")), "{again:?}");
    }

    /// The session of the leader is lost with its connection: its work ends by the
    /// lease, before the next one begins.
    async fn a_leader_that_is_cut_off_stops_before_the_next_begins(world: &World) {
        let east = world.join_through_proxy("east-1", "east").await;
        let west = world.join("west-1", "west").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        let before = east.status().term;
        east.proxy().black_hole(true);
        wait_for("west-1 leads", SOON, || west.leads()).await;
        assert_eq!(west.status().term, before + 1, "one loss costs one change");
        world.no_overlap();
        east.proxy().black_hole(false);
        let _ = east.proxy().cut().await;
        wait_for("east-1 stands by again", SOON, || east.status().role == Role::Standby).await;
        assert!(west.leads(), "no failback by itself");
        world.no_overlap();
    }

    /// A short loss of the connection has no effect.
    async fn a_short_cut_costs_no_leadership(world: &World) {
        let east = world.join_through_proxy("east-1", "east").await;
        let _west = world.join("west-1", "west").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let (term, token) = (east.status().term, east.status().fencing_token);
        for _ in 0..3 {
            let _ = east.proxy().cut().await;
            wait_for("east-1 is connected again", SOON, || east.session().state().is_active()).await;
        }
        let now = world.ask(RequestKind::Switchover, Target::Member("east-1".parse().unwrap()), false).await;
        assert!(matches!(now.state, RequestState::Failed { .. }), "{now:?}");
        assert!(east.leads());
        assert_eq!((east.status().term, east.status().fencing_token), (term, token));
    }

    /// After a takeover that fails the next member takes over, with the reason.
    async fn a_takeover_that_fails_goes_to_the_next(world: &World) {
        let east = world.join_with("east-1", "east", Fate::FailTakeover).await;
        let west = world.join("west-1", "west").await;
        wait_for("west-1 leads", SOON, || west.leads()).await;
        wait_for("east-1 is excluded", SOON, || east.status().role == Role::Excluded).await;
        world.no_overlap();
    }

    /// A takeover that hangs is taken over once the watchdog has waited.
    async fn a_takeover_that_hangs_goes_to_the_next(world: &World) {
        let east = world.join_with("east-1", "east", Fate::HangTakeover).await;
        let west = world.join("west-1", "west").await;
        wait_for("west-1 leads", SOON, || west.leads()).await;
        let elected = west.status().elected.expect("there is a decision");
        assert_eq!(elected.cause(), Cause::TakeoverFailed, "{}", elected.sentence());
        assert_eq!(east.status().role, Role::Excluded);
        world.no_overlap();
    }

    /// Work that ends by itself gives leadership up.
    async fn work_that_ends_gives_up(world: &World) {
        let east = world.join("east-1", "east").await;
        let west = world.join("west-1", "west").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        // Without another member it would be named once more.
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        east.end_work("it crashed too often");
        wait_for("west-1 leads", SOON, || west.leads()).await;
        wait_for("east-1 is excluded", SOON, || east.status().role == Role::Excluded).await;
        world.no_overlap();
    }

    /// A leader that does not stop is replaced by force.
    async fn force_puts_out_a_leader_that_does_not_stop(world: &World) {
        let east = world.join_with("east-1", "east", Fate::HangStopUntilUrgent).await;
        let west = world.join("west-1", "west").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let plain = world.ask_only(RequestKind::Failover, Target::Site("west".parse().unwrap()), false).await;
        wait_for("east-1 is stepping down", SOON, || east.status().role == Role::SteppingDown).await;
        let forced = world.ask(RequestKind::Failover, Target::Site("west".parse().unwrap()), true).await;
        assert!(matches!(forced.state, RequestState::Done { ref leader, .. } if leader.as_str() == "west-1"), "{forced:?}");
        wait_for("west-1 knows that it leads", SOON, || west.leads()).await;
        let plain = world.request(&plain).await;
        assert!(plain.state.is_final(), "{plain:?}");
    }

    /// Without any elector, the operator's own hands do it.
    async fn force_works_without_an_elector(world: &World) {
        let east = world.join_through_proxy("east-1", "east").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let west = world.join("west-1", "west").await;
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        assert!(east.status().is_elector);
        east.proxy().black_hole(true);
        let request = world.request_for(RequestKind::Failover, Target::Member("west-1".parse().unwrap()), true);
        let session = world.operator();
        let filed = election_admin::ask(session, world.paths(), request).await.unwrap();
        let policy = world.policy();
        let until = zk_session::BootTime::now() + filed.request.valid_for();
        election_admin::force(session, world.paths(), &filed, &policy, &*world.strategy(), until).await.unwrap();
        wait_for("west-1 leads", SOON, || west.leads()).await;
        let snapshot = world.snapshot().await;
        let elected = snapshot.elected.unwrap().record;
        assert_eq!(elected.slots[0].given.request, Some(filed.which));
        assert_eq!(elected.term, 3, "vacated, then named: {}", elected.sentence());
    }

    /// An unhealthy leader hands over, if another member can lead.
    async fn an_unhealthy_leader_is_replaced(world: &World) {
        let east = world.join("east-1", "east").await;
        let west = world.join("west-1", "west").await;
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        east.election().set_health(Health::Unhealthy { reason: "the disk is full".to_owned() });
        wait_for("west-1 leads", SOON, || west.leads()).await;
        world.no_overlap();
    }

    /// A member that is checked is not named before it has reported an answer.
    async fn a_member_is_not_named_before_its_first_check(world: &World) {
        let mut checked = Profile::new("east-1".parse().unwrap()).in_site("east".parse().unwrap());
        checked.health = Health::Unknown;
        let east = world.join_as(checked).await;
        wait_for("east-1 names no member", SOON, || east.status().note.contains("no member may lead")).await;
        assert_eq!(east.status().health, Health::Unknown);
        // It can report as often as it likes: the latest counts.
        for _ in 0..1000 {
            east.election().set_health(Health::Unhealthy { reason: "the disk is full".to_owned() });
        }
        east.election().set_health(Health::Healthy);
        wait_for("east-1 leads", SOON, || east.leads()).await;
        assert_eq!(east.status().health, Health::Healthy);
        let members = world.snapshot().await.members;
        assert_eq!(members[0].health, Health::Healthy);
        // A leader whose health is unknown continues to lead.
        let term = east.status().term;
        east.election().set_health(Health::Unknown);
        let west = world.join("west-1", "west").await;
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        assert!(east.leads() && east.status().term == term, "{:?}", east.status());
    }

    /// A member's measured attributes can change while it leads, without any other effect.
    async fn what_is_measured_is_published(world: &World) {
        let east = world.join("east-1", "east").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let term = east.status().term;
        let too_long = [("log".to_owned(), "x".repeat(MAX_ATTRIBUTES))].into();
        let error = east.election().set_measured(too_long).unwrap_err();
        assert!(error.to_string().contains("more than 16384"), "{error}");
        for load in ["7", "8"] {
            let attributes: BTreeMap<_, _> = [("load".to_owned(), load.to_owned())].into();
            east.election().set_measured(attributes.clone()).unwrap();
            let published = async {
                while world.snapshot().await.members[0].attributes != attributes {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(SOON, published).await.expect("it is published");
        }
        let mut round_trips = RoundTrips::default();
        round_trips.zookeeper = Some(900);
        round_trips.peers.insert("west-1".parse().unwrap(), 30_000);
        east.election().set_round_trips(round_trips.clone()).unwrap();
        let published = async {
            while world.snapshot().await.members[0].round_trips != round_trips {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, published).await.expect("they are published");
        east.election().proclaim(|member| {
            member.priority = 7;
            member.attributes.insert("rack".to_owned(), "r2".to_owned());
        });
        let proclaimed = async {
            loop {
                let member = world.snapshot().await.members.remove(0);
                if member.priority == 7 && member.attributes.get("rack").is_some_and(|rack| rack == "r2") {
                    break member;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let member = tokio::time::timeout(SOON, proclaimed).await.expect("it is proclaimed");
        assert_eq!(member.round_trips, round_trips, "what is measured stays");
        assert_eq!(member.attributes["load"], "8");
        assert!(east.leads());
        assert_eq!(east.status().term, term);
    }

    /// Leaving stops the work, releases, and withdraws the ballot.
    async fn leaving_hands_over_at_once(world: &World) {
        let east = world.join("east-1", "east").await;
        let west = world.join("west-1", "west").await;
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        assert_eq!(east.election().leave().await, Ended::Left);
        wait_for("west-1 leads", SOON, || west.leads()).await;
        let snapshot = world.snapshot().await;
        assert_eq!(snapshot.members.len(), 1, "{:?}", snapshot.members);
        world.no_overlap();
    }

    /// Two living processes of one id: the second gives up.
    async fn a_duplicate_member_is_refused(world: &World) {
        let first = world.join("east-1", "east").await;
        wait_for("east-1 leads", SOON, || first.leads()).await;
        let second = world.join("east-1", "east").await;
        let ended = tokio::time::timeout(SOON, second.election().ended()).await.expect("the second gives up");
        assert!(matches!(ended, Ended::DuplicateMember { .. }), "{ended:?}");
        assert!(first.leads());
    }

    /// An administrator deletes the member's own ballot: the member joins again.
    async fn a_deleted_ballot_is_no_zombie(world: &World) {
        let east = world.join("east-1", "east").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let ballot = east.status().ballot.unwrap();
        let session = world.operator().active().await.unwrap();
        session.delete(&world.paths().ballot(&ballot), None).await.unwrap();
        wait_for("east-1 leads under a new ballot", SOON, || {
            east.leads() && east.status().ballot.is_some_and(|b| b != ballot)
        })
        .await;
        world.no_overlap();
    }

    /// An invalid decision stops no member, and its repair is sufficient.
    async fn garbage_in_the_decision_stops_nobody(world: &World) {
        let east = world.join("east-1", "east").await;
        let west = world.join("west-1", "west").await;
        wait_for("west-1 is next in line", SOON, || west.is_next()).await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let session = world.operator().active().await.unwrap();
        let path = world.paths().elected();
        let good = session.get(&path).await.unwrap().unwrap();
        session.set(&path, b"garbage", None).await.unwrap();
        wait_for("the elector complains", SOON, || east.status().note.contains(&path)).await;
        assert!(east.leads(), "{:?}", east.status());
        let snapshot = Observer::new(session.clone()).snapshot(world.paths()).await.unwrap();
        assert!(snapshot.unreadable.iter().any(|e| e.path == path));
        session.set(&path, good.data, None).await.unwrap();
        let request = world.ask(RequestKind::Switchover, Target::Any, false).await;
        assert!(matches!(request.state, RequestState::Done { .. }), "{request:?}");
        wait_for("west-1 knows that it leads", SOON, || west.leads()).await;
    }

    /// The history shows who led when, and why.
    async fn the_history_is_kept(world: &World) {
        let east = world.join("east-1", "east").await;
        let _west = world.join("west-1", "west").await;
        wait_for("east-1 leads", SOON, || east.leads()).await;
        let _ = world.ask(RequestKind::Switchover, Target::Any, false).await;
        let observer = Observer::new(world.operator().active().await.unwrap());
        let deadline = BootTime::now() + SOON;
        let entries = loop {
            let (entries, unreadable) = observer.history(world.paths()).await.unwrap();
            assert!(unreadable.is_empty(), "{unreadable:?}");
            if entries.len() == 2 || BootTime::now() > deadline {
                break entries;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let led: Vec<_> = entries.iter().map(|e| (e.term, e.member.as_str(), e.cause)).collect();
        assert_eq!(led, [(1, "east-1", Cause::Startup), (2, "west-1", Cause::Switchover)]);
        assert!(entries[1].fencing_token > entries[0].fencing_token);
    }
}

/// The paths of two elections don't touch each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_elections_share_a_session() {
    let world = World::start(DriverKind::Native).await;
    let session = world.session(None).await;
    let one = world.join_over(session.clone(), "east-1", "east", Fate::Lead, world.paths().clone());
    let other_paths = Paths::new(&format!("{}x", world.root()), "other").unwrap();
    let other = world.join_over(session, "east-1", "east", Fate::Lead, other_paths);
    wait_for("both lead", SOON, || one.leads() && other.leads()).await;
}
