//! Every wait ends: on a path that ZooKeeper refuses, on a closed session, and when the runtime has ended.

use std::{future::Future, pin::Pin, time::Duration};

use election_admin::{Attempts, JobRequests, Leading, Observer, Snapshot, forget, orders, roster};
use election_core::{
    Candidate, Election, ElectionConfig, Handler, Latch, Leaders, Leadership, Paths,
    config::{MemberId, Policy, SiteId},
    errors::{CampaignError, Ended, RunError},
    handler::{Failure, StopOrder},
    internals::record::{AdminRequest, FiledRequest, RequestKind, RequestRef, RequestState, Target},
    status::Ballot,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use zk_session::{Acl, BootTime, CreateMode, MultiOp, Session};
use zk_testkit::TestServer;

use super::{SOON, members::EastFirst};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Refused,
    Over,
    /// It goes on by itself, which its documentation says.
    Waits,
}

struct Quiet;

impl Handler for Quiet {
    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {}
}

fn of_campaign<T: std::fmt::Debug>(result: Result<T, CampaignError>) -> Result<End, String> {
    match result {
        Err(CampaignError::Refused(_)) => Ok(End::Refused),
        Err(CampaignError::Ended(_)) => Ok(End::Over),
        other => Err(format!("{other:?}")),
    }
}

/// The errors of operators have their causes as text.
fn of<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<End, String> {
    let Err(error) = result else { return Err("no error".to_owned()) };
    let text = error.to_string();
    match (text.contains("not authorized"), text.contains("session")) {
        (true, _) => Ok(End::Refused),
        (_, true) => Ok(End::Over),
        _ => Err(text),
    }
}

fn config(paths: &Paths, recipe: &str) -> ElectionConfig {
    let path = paths.base();
    match recipe {
        "queue" => ElectionConfig::queue(path, "one"),
        "single" => ElectionConfig::single(path, "one"),
        _ => ElectionConfig::elector(path, "one", EastFirst),
    }
    .unwrap()
}

type Call = fn(Session, Paths) -> Pin<Box<dyn Future<Output = Result<End, String>>>>;

macro_rules! calls {
    ($($name:literal: |$session:ident, $paths:ident| $call:expr),* $(,)?) => {
        [$(($name, (|$session, $paths| Box::pin(async move {
            let ($session, $paths) = (&$session, &$paths);
            $call
        })) as Call)),*]
    };
}

macro_rules! of_active {
    ($session:ident, |$active:ident| $($call:tt)*) => {
        match $session.active().await {
            Ok($active) => of($($call)*.await),
            Err(closed) => of::<(), _>(Err(closed)),
        }
    };
}

fn which() -> RequestRef {
    RequestRef { name: "r0000000001".to_owned(), czxid: 1 }
}

fn filed() -> FiledRequest {
    let kind = RequestKind::Switchover;
    let request = AdminRequest::new("id".to_owned(), kind, Target::Any, "a test".to_owned(), 0);
    FiledRequest { which: which(), request }
}

fn one() -> MemberId {
    MemberId::new("one").unwrap()
}

fn ballot() -> Ballot {
    Ballot::new("one-0000000001").unwrap()
}

fn calls() -> impl Iterator<Item = (&'static str, Call)> {
    let election = calls! {
        "campaign, elector": |session, paths| {
            of_campaign(Candidate::new(session, config(paths, "elector")).campaign().await)
        },
        "campaign, queue": |session, paths| {
            of_campaign(Candidate::new(session, config(paths, "queue")).campaign().await)
        },
        "campaign, single": |session, paths| {
            of_campaign(Candidate::new(session, config(paths, "single")).campaign().await)
        },
        "run_while_leading": |session, paths| {
            let mut candidate = Candidate::new(session, config(paths, "queue"));
            match candidate.run_while_leading(async |_| Ok::<_, Failure>(())).await {
                Err(RunError::Campaign(error)) => of_campaign::<()>(Err(error)),
                other => Err(format!("{other:?}")),
            }
        },
        "Latch::leading": |session, paths| {
            of_campaign(Latch::join(session, config(paths, "queue")).leading().await)
        },
        "Latch::close": |session, paths| {
            Latch::join(session, config(paths, "queue")).close().await;
            Ok(End::Over)
        },
        "Election::leave": |session, paths| {
            Election::join(session.clone(), config(paths, "elector"), Quiet).leave().await;
            Ok(End::Over)
        },
        "Election::responds": |session, paths| {
            Election::join(session.clone(), config(paths, "elector"), Quiet).responds().await;
            Ok(End::Over)
        },
        "Election::hand_over": |session, paths| {
            let election = Election::join(session.clone(), config(paths, "elector"), Quiet);
            election.hand_over().await.map(|_| End::Waits).or(Ok(End::Over))
        },
        "Leaders": |session, paths| {
            let next = Leaders::follow(session, paths.clone()).next().await;
            next.map_or(Ok(End::Over), of)
        },
    };
    let operators = calls! {
        "snapshot": |session, paths| of_active!(session, |active| Observer::new(active).snapshot(paths)),
        "ask": |session, paths| {
            of(election_admin::ask(session, paths, filed().request).await)
        },
        "file": |session, paths| of(election_admin::file(session, paths, &Snapshot::default(), filed().request).await),
        "force": |session, paths| {
            let far = BootTime::now() + Duration::MAX;
            of(election_admin::force(session, paths, &filed(), &Policy::default(), &EastFirst, far).await)
        },
        "follow": |session, paths| {
            let far = BootTime::now() + Duration::MAX;
            of(election_admin::follow(session, paths, &which(), far, |_| {}).await)
        },
        "request": |session, paths| of(election_admin::request(session, paths, "r0000000001").await),
        "cancel": |session, paths| of(election_admin::cancel(session, paths, &which(), "a test").await),
        "vacate": |session, paths| of(election_admin::vacate(session, paths).await),
        "raise_tokens": |session, paths| of(election_admin::raise_tokens(session, paths, 1, "a test").await),
        "compare_servers": |session, paths| {
            let servers = ["one", "two"].map(|name| (name.to_owned(), session.clone()));
            of(election_admin::compare_servers(&servers, paths).await)
        },
        "forget_breadcrumbs": |session, paths| of(election_admin::forget_breadcrumbs(session, paths, None).await),
        "forget::remove": |session, paths| of(forget::remove(session, paths, &[]).await),
        "orders::order": |session, paths| of(orders::order(session, paths, "a test", None, |_| {}).await),
        "Attempts": |session, paths| {
            let mut attempts = Attempts::over(session);
            match attempts.look().await {
                Ok(_) => of(attempts.write([MultiOp::set(paths.control(), "", 0)]).await),
                Err(error) => of(Err::<(), _>(error)),
            }
        },
        "orders::read": |session, paths| of(orders::read(session, paths).await),
        "orders::acknowledge": |session, paths| {
            of(orders::acknowledge(session, paths, election_admin::Forgotten::ALL).await)
        },
        "orders::overrule_site": |session, paths| {
            let site = SiteId::new("east").unwrap();
            of(orders::overrule_site(session, paths, &site, "a test").await)
        },
        "JobRequests": |session, paths| {
            match timeout(Duration::from_millis(300), JobRequests::follow(session, paths.clone()).next()).await {
                Ok(next) => of(next),
                Err(_) => Ok(End::Waits),
            }
        },
        "JobRequests::begin": |session, paths| {
            let leading = Leading { member: &one(), slot: 0, term: 1 };
            of(JobRequests::follow(session, paths.clone()).begin(&filed(), leading).await)
        },
        "JobRequests::is_abandoned": |session, paths| {
            of(JobRequests::follow(session, paths.clone()).is_abandoned(&filed().request, 1).await)
        },
        "JobRequests::answer": |session, paths| {
            of(JobRequests::follow(session, paths.clone()).answer(&which(), &RequestState::Pending).await)
        },
    };
    let of_incarnations = calls! {
        "change_breadcrumbs": |session, paths| {
            of_active!(session, |active| election_admin::change_breadcrumbs(&active, paths, None, |_, _| {}))
        },
        "roster::update": |session, paths| {
            let ballot = ballot();
            of_active!(session, |active| roster::update(&active, paths, &ballot, 1))
        },
        "roster::sign_off": |session, paths| {
            let who = (&MemberId::new("one").unwrap(), &SiteId::new("east").unwrap());
            of_active!(session, |active| roster::sign_off(&active, paths, who, 1))
        },
        "Observer::member": |session, paths| {
            of_active!(session, |active| Observer::new(active).member(paths, &ballot()))
        },
        "problems": |session, paths| {
            of_active!(session, |active| Observer::new(active).problems(paths, &Snapshot::default()))
        },
        "elections": |session, paths| {
            let root = paths.base().rsplit_once('/').unwrap().0;
            of_active!(session, |active| Observer::new(active).elections(root))
        },
        "history": |session, paths| of_active!(session, |active| Observer::new(active).history(paths)),
        "Observer::request": |session, paths| {
            of_active!(session, |active| Observer::new(active).request(paths, &which()))
        },
        "standing": |session, paths| of_active!(session, |active| Observer::new(active).standing(paths)),
        "layout": |session, paths| of_active!(session, |active| Observer::new(active).layout(paths)),
    };
    election.into_iter().chain(operators).chain(of_incarnations)
}

async fn check(session: &Session, paths: &Paths, expected: impl Fn(&str) -> End) {
    for (name, call) in calls() {
        let end = timeout(SOON, call(session.clone(), paths.clone())).await;
        assert_eq!(end.map_err(|_| format!("{name} hangs")), Ok(Ok(expected(name))), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_an_election_that_is_refused_says_so() {
    let server = TestServer::start().await.unwrap();
    let owner = Session::builder(server.connect_string()).auth("digest", "owner:secret").acl(Acl::CreatorAll);
    let owner = owner.connect().await.unwrap();
    owner.create("/mine", "", CreateMode::Persistent).await.unwrap();
    let paths = Paths::at("/mine/orders").unwrap();
    for path in [paths.leader(), paths.queue(), paths.requests(), paths.election()] {
        owner.create_parents(&format!("{path}/x")).await.unwrap();
    }
    owner.create_parents(&paths.history_entry(1)).await.unwrap();
    for path in [
        paths.elected(),
        paths.control(),
        paths.request("r0000000001"),
        paths.leader_znode(0),
        paths.breadcrumbs(),
        paths.ballot(&ballot()),
        paths.roster(),
    ] {
        owner.create(&path, "", CreateMode::Persistent).await.unwrap();
    }
    let session = Session::builder(server.connect_string()).connect().await.unwrap();
    check(&session, &paths, |name| match name {
        "Latch::close" | "Election::leave" | "Election::responds" | "Election::hand_over" => End::Over,
        "JobRequests" => End::Waits,
        _ => End::Refused,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_on_a_closed_session_ends() {
    let server = TestServer::start().await.unwrap();
    let session = Session::builder(server.connect_string()).connect().await.unwrap();
    session.close(SOON).await;
    check(&session, &Paths::at("/orders").unwrap(), |_| End::Over).await;
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn what_waits_ends_with_its_runtime() {
    let (of_servers, of_session, of_election) = (runtime(), runtime(), runtime());
    let server = of_servers.block_on(TestServer::start()).unwrap();
    let paths = Paths::at("/orders").unwrap();
    let session = of_session.block_on(Session::builder(server.connect_string()).connect()).unwrap();
    let (latch, leadership, mut status) = of_election.block_on(async {
        let latch = Latch::join(&session, config(&paths, "queue"));
        timeout(SOON, latch.leading()).await.unwrap().unwrap();
        let mut candidate = Candidate::new(&session, config(&Paths::at("/others").unwrap(), "queue"));
        let leadership = timeout(SOON, candidate.campaign()).await.unwrap().unwrap();
        (latch.clone(), leadership, latch.status())
    });
    drop(of_election);
    of_servers.block_on(async {
        assert_eq!(timeout(SOON, latch.election().ended()).await, Ok(Ended::RuntimeEnded));
        assert_eq!(timeout(SOON, latch.election().leave()).await, Ok(Ended::RuntimeEnded));
        timeout(SOON, latch.election().responds()).await.unwrap();
        assert!(timeout(SOON, latch.election().hand_over()).await.unwrap().is_err());
        assert!(!latch.is_leader(), "no work may begin");
        assert_eq!(timeout(SOON, latch.leading()).await, Ok(Err(CampaignError::Ended(Ended::RuntimeEnded))));
        timeout(SOON, async { while status.changed().await.is_some() {} }).await.unwrap();
        timeout(SOON, leadership.lost()).await.unwrap();
        timeout(SOON, leadership.resign()).await.unwrap();
    });
    drop(of_session);
    of_servers.block_on(check(&session, &paths, |_| End::Over));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_during_a_leadership_is_an_error() {
    let server = TestServer::start().await.unwrap();
    let session = Session::builder(server.connect_string()).connect().await.unwrap();
    let mut candidate = Candidate::new(&session, config(&Paths::at("/orders").unwrap(), "queue"));
    let leadership = timeout(SOON, candidate.campaign()).await.unwrap().unwrap();
    assert_eq!(timeout(SOON, candidate.campaign()).await.unwrap().unwrap_err(), CampaignError::Held);
    assert!(leadership.is_valid(), "it is not disturbed");
    candidate.election().unwrap().resign("a test");
    timeout(SOON, leadership.lost()).await.unwrap();
    // It is lost, and its work has not ended.
    let work = candidate.run_while_leading(async |_| Ok::<_, Failure>(()));
    let held = timeout(SOON, work).await.unwrap();
    assert!(matches!(held, Err(RunError::Campaign(CampaignError::Held))), "{held:?}");
    drop(leadership);
    timeout(SOON, candidate.campaign()).await.unwrap().unwrap();
}
