//! An ensemble that is restored from a copy: zxids go back, and tokens with them.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use election_admin::Raised;
use election_core::{
    Election, ElectionConfig, Handler, Leadership, Paths,
    config::{Policy, QueueFormat, Recipe},
    handler::{Failure, StopOrder},
    internals::record::Cause,
};
use tokio::{runtime::Builder, sync::oneshot};
use zk_session::{BootTime, CreateMode, DriverKind, Session};
use zk_testkit::{Ensemble, Op};

use super::{
    SOON,
    members::{EastFirst, Fate, TICK, World, connect, wait_for},
};

/// How many transactions the copy lacks.
const LACKING: usize = 300;

/// The resource of a job. It refuses an older token than it has seen.
#[derive(Clone, Debug, Default)]
struct Store(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    newest: u64,
    accepted: Vec<u64>,
    refused: Vec<u64>,
}

impl Store {
    fn claim(&self, token: u64) {
        let mut seen = self.0.lock().unwrap();
        if token < seen.newest {
            seen.refused.push(token);
        } else {
            seen.newest = token;
            seen.accepted.push(token);
        }
    }

    fn accepted(&self) -> usize {
        self.0.lock().unwrap().accepted.len()
    }
}

struct Job(Store);

impl Handler for Job {
    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        self.0.claim(leadership.fencing_token());
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {}
}

struct Stage {
    ensemble: Ensemble,
    driver: DriverKind,
    paths: Paths,
    store: Store,
}

impl Stage {
    /// A client that has seen a newer zxid than the server is rejected, so every part of the test connects again.
    async fn session(&self) -> Session {
        connect(&self.ensemble.connect_string(), self.driver, Duration::from_secs(4)).await
    }

    async fn start_again(&self) {
        self.ensemble.start_server(0).await.unwrap();
        self.ensemble.wait_serving(SOON).await.unwrap();
    }

    /// A member joins and leads. Returns its token.
    async fn lead(&self, member: &str) -> (Session, Election, u64) {
        let (session, election) = self.join(member).await;
        wait_for(&format!("{member} leads"), SOON, || election.status().now().leads_now()).await;
        let token = election.status().now().fencing_token.unwrap();
        (session, election, token)
    }

    async fn join(&self, member: &str) -> (Session, Election) {
        let session = self.session().await;
        let policy = Policy::default().with(|policy| policy.stop_budget = Some(Duration::from_millis(500)));
        let config = ElectionConfig::elector("/dr/orders", member, EastFirst)
            .unwrap()
            .site("east".parse().unwrap())
            .policy(policy);
        let election = Election::join(session.clone(), config, Job(self.store.clone()));
        (session, election)
    }

    async fn end(&self, session: Session, election: Election) {
        election.leave().await;
        session.close(Duration::from_secs(2)).await;
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

async fn a_restored_ensemble(driver: DriverKind) {
    let ensemble = Ensemble::builder().servers(1).tick_time(TICK).start().await.expect("a server");
    let paths = Paths::new("/dr", "orders").unwrap();
    let stage = Stage { ensemble, driver, paths, store: Store::default() };
    let data = stage.ensemble.server(0).dir().join("data");
    let saved = stage.ensemble.server(0).dir().join("saved");

    let (session, election, first) = stage.lead("east-1").await;
    stage.end(session, election).await;
    stage.ensemble.stop(0).await.unwrap();
    copy(&data, &saved);
    stage.start_again().await;

    // The job continues, and the resource sees newer tokens.
    let session = stage.session().await;
    for number in 0..LACKING {
        session.create(&format!("/life-{number}"), Vec::new(), CreateMode::Persistent).await.unwrap();
    }
    session.close(Duration::from_secs(2)).await;
    let (session, election, second) = stage.lead("east-1").await;
    assert!(second > first, "{second} after {first}");
    stage.end(session, election).await;

    stage.ensemble.stop(0).await.unwrap();
    fs::remove_dir_all(&data).unwrap();
    copy(&saved, &data);
    stage.start_again().await;

    // The newer state is lost, and the resource refuses the new token.
    let (session, election, third) = stage.lead("east-1").await;
    assert!(third < second, "zxids have not gone back: {third} after {second}");
    assert_eq!(stage.store.0.lock().unwrap().refused, [third]);
    assert_eq!(stage.store.accepted(), 2);

    // An operator asks the resource, and enters what it has seen.
    let operator = stage.session().await;
    let raised = election_admin::raise_tokens(&operator, &stage.paths, second, "the test").await.unwrap();
    let Raised::InTerm(term) = raised else { panic!("{raised:?}") };
    wait_for("it leads in the term of the raised base", SOON, || {
        let status = election.status().now();
        status.term == term && status.leads_now()
    })
    .await;
    let status = election.status().now();
    assert_eq!(status.elected.unwrap().cause(), Cause::TokensRaised);
    let fourth = status.fencing_token.unwrap();
    assert!(fourth > second, "{fourth} after {second}");
    assert_eq!(stage.store.accepted(), 3);
    let again = election_admin::raise_tokens(&operator, &stage.paths, second, "the test").await.unwrap();
    assert_eq!(again, Raised::Already);
    let absurd =
        election_admin::raise_tokens(&operator, &stage.paths, u64::MAX, "the test").await.unwrap_err();
    assert!(absurd.to_string().contains("no token"), "{absurd}");

    // Every later leadership uses the base, independent of the elector.
    let (next_session, next) = stage.join("east-2").await;
    wait_for("east-2 stands by", SOON, || next.status().now().ballot.is_some()).await;
    stage.end(session, election).await;
    wait_for("east-2 leads", SOON, || next.status().now().leads_now()).await;
    let fifth = next.status().now().fencing_token.unwrap();
    assert!(fifth > fourth, "{fifth} after {fourth}");
    assert_eq!(stage.store.accepted(), 4);
    stage.end(next_session, next).await;
    operator.close(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_go_on_after_an_ensemble_was_restored_with_native() {
    a_restored_ensemble(DriverKind::Native).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "double: the other driver; cargo xtask test --full"]
async fn tokens_go_on_after_an_ensemble_was_restored_with_zookeeper_async() {
    a_restored_ensemble(DriverKind::ZookeeperAsync).await;
}

/// The thread of an election is blocked while its session is paused and resumed: nothing that follows the states sees that.
/// The next in a queue lists it again all the same, because the ensemble may be a copy since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_that_passed_unseen_is_made_up_for() {
    let world = World::with_recipe(DriverKind::Native, Recipe::Queue(QueueFormat::Native)).await;
    // Were the first one's session to end, this member would lead, and list nothing.
    let world = world.with_long_sessions();
    let first = world.join("zero", "east").await;
    wait_for("the first leads", SOON, || first.leads()).await;
    let (proxy, session) = world.session_through_proxy().await;
    let elections = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = elections.handle().clone();
    let (end, ended) = oneshot::channel::<()>();
    let thread = thread::spawn(move || elections.block_on(ended));
    let member = {
        let _entered = handle.enter();
        world.join_over(session.clone(), "one", "east", Fate::Lead, world.paths().clone())
    };
    wait_for("it watches the first, which it has listed", SOON, || proxy.seen(Op::GetData) > 0).await;

    let incarnation = session.active().await.unwrap();
    let mut is_listed = false;
    // Blocked before it has handled the answers, it has nothing to make up for yet.
    for _ in 0..3 {
        let (release, released) = mpsc::channel::<()>();
        let (blocks, blocked) = oneshot::channel();
        handle.spawn(async move {
            blocks.send(()).unwrap();
            released.recv().unwrap();
        });
        blocked.await.unwrap();
        let pauses = incarnation.pauses();
        proxy.cut().await;
        wait_for("a pause that is over", SOON, || {
            incarnation.pauses() > pauses && session.state().is_active()
        })
        .await;
        let lists = proxy.seen(Op::GetChildren);
        release.send(()).unwrap();
        let until = BootTime::now() + Duration::from_secs(5);
        while !is_listed && BootTime::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
            is_listed = proxy.seen(Op::GetChildren) > lists;
        }
        if is_listed {
            break;
        }
    }
    assert!(is_listed, "the queue is not listed again");
    assert_eq!(session.active().await.unwrap(), incarnation, "the same session");
    drop(member);
    end.send(()).unwrap();
    thread.join().unwrap().unwrap();
}
