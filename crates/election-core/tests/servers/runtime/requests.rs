//! How many requests an election costs until it leads.

use super::*;
use election_core::config::{QueueFormat, Recipe};
use zk_session::Session;
use zk_testkit::Op;

/// So many elections on one session: what the session sends for itself is small beside them. And more than a history keeps:
/// tokens, which grow with them, decide nothing here.
const ELECTIONS: u64 = 1000;

/// Those that begin before any other one was new are not expected to be new. Each is refused once, and reads the names of its
/// candidates.
const FIRST: u64 = 256;
const MORE_OF_THE_FIRST: u64 = 2;

/// On a busy machine a change of an own write may be noted so late that it has been read again: the decision's, the leader
/// znode's. Of all elections; one request more of each would be twice that. A machine on which all tests run at once had a third
/// in its best try, with the driver that reports changes beside the replies.
const LATE: u64 = ELECTIONS / 2;

const TRIES: usize = 5;

/// A thousand elections take their time on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// All but the pings, the session's checks of its server, and the deletions, of which no election needs one here: they are
/// heartbeats.
const COUNTED: [Op; 8] = [
    Op::Create,
    Op::Exists,
    Op::GetData,
    Op::SetData,
    Op::GetChildren,
    Op::Multi,
    Op::MultiRead,
    Op::AddWatch,
];

macro_rules! recipes {
    ($($name:ident: $recipe:expr, $requests:expr, $removals:expr;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn native() {
                a_new_election_takes_few_requests(DriverKind::Native, $recipe, $requests, $removals).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn zookeeper_async() {
                a_new_election_takes_few_requests(DriverKind::ZookeeperAsync, $recipe, $requests, $removals).await;
            }
        }
    )*};
}

// `docs/scale.md` has each of them, with its reason.
recipes! {
    elector: members::elector(), 7, 0;
    queue: Recipe::Queue(QueueFormat::Native), 6, 0;
    single: Recipe::Single, 9, 1;
}

/// Nothing of the elections exists, and each has one member: requests until it is READY and its history is written, and how many
/// watches it may remove beside that.
async fn a_new_election_takes_few_requests(driver: DriverKind, recipe: Recipe, requests: u64, removals: u64) {
    // After a pause each election reads again, and what a busy machine notes late is read again. Then this begins again.
    let mut all_sent = Vec::new();
    for _ in 0..TRIES {
        let Some((sent, removed)) = requests_of_new_elections(driver, recipe.clone()).await else {
            eprintln!("the session was paused, because the machine is busy");
            continue;
        };
        let all: u64 = sent.iter().map(|(_, sent)| sent).sum();
        println!("{ELECTIONS} elections: {all} requests, {sent:?}, {removed} watches removed");
        assert!(removed <= removals * ELECTIONS, "{removed} watches removed");
        if all <= requests * ELECTIONS + MORE_OF_THE_FIRST * FIRST + LATE {
            return;
        }
        all_sent.push(sent);
    }
    panic!("the session was paused, or it sent more, each of {TRIES} times: {all_sent:?}");
}

/// All requests until each election leads and its history is written, and how many watches were removed. `None` if the session was paused meanwhile.
async fn requests_of_new_elections(driver: DriverKind, recipe: Recipe) -> Option<(Vec<(Op, u64)>, u64)> {
    let world = &World::with_recipe(driver, recipe).await.with_long_sessions();
    let operator = world.operator();
    operator.create_parents(&format!("{}/x", world.root())).await.unwrap();
    let (proxy, session) = world.session_through_proxy().await;
    let incarnation = session.active().await.unwrap();
    let count = || COUNTED.map(|op| proxy.seen(op));
    let (before, kept) = (count(), proxy.seen(Op::RemoveWatches));
    let paths: Vec<_> = (0..ELECTIONS).map(|n| Paths::new(world.root(), &format!("e{n}")).unwrap()).collect();
    let join = |paths: &Paths| world.join_over(session.clone(), "east-1", "east", Fate::Lead, paths.clone());
    let members: Vec<_> = paths.iter().map(join).collect();
    wait_for("all lead", SOON, || members.iter().all(|member| member.leads())).await;
    for paths in &paths {
        // Its session may end on a busy machine.
        while operator.children(&paths.history()).await.ok().flatten().is_none_or(|c| c.names.is_empty()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let (after, removed) = (count(), proxy.seen(Op::RemoveWatches) - kept);
    let was_disturbed = incarnation.pauses() > 0 || incarnation.is_over();
    let sent = COUNTED.into_iter().zip(before.iter().zip(after)).map(|(op, (b, a))| (op, a - b));
    (!was_disturbed).then(|| (sent.collect(), removed))
}

/// After a new election another one is expected to be new. One that exists is joined all the same, behind its member.
async fn an_election_that_exists_is_joined(recipe: Recipe) {
    let world = &World::with_recipe(DriverKind::Native, recipe).await.with_long_sessions();
    let named = |name: &str| Paths::new(world.root(), name).unwrap();
    let old = named("old");
    let [other, session] = [world.session(None).await, world.session(None).await];
    let join = |session: &Session, member: &str, paths: &Paths| {
        world.join_over(session.clone(), member, "east", Fate::Lead, paths.clone())
    };
    let first = join(&other, "first", &old);
    wait_for("the first leads", SOON, || first.leads()).await;
    // More than begin at the same time: the last one waits for its turn.
    let new: Vec<_> = (0..ELECTIONS).map(|n| join(&session, "second", &named(&format!("e{n}")))).collect();
    let last = join(&session, "second", &old);
    wait_for("the second leads all new elections", SOON, || new.iter().all(|member| member.leads())).await;
    wait_for("it is a candidate in the old one", SOON, || last.status().ballot.is_some()).await;
    assert!(first.leads() && !last.leads(), "{:?}", last.status());
    assert_eq!(first.election().leave().await, Ended::Left);
    wait_for("the last one leads", SOON, || last.leads()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_that_exists_is_joined_with_an_elector() {
    an_election_that_exists_is_joined(members::elector()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_that_exists_is_joined_in_a_queue() {
    an_election_that_exists_is_joined(Recipe::Queue(QueueFormat::Native)).await;
}
