//! How leadership ends: by a wish, by a drop, by a deadline. However it does, the work
//! has ended before leadership is released.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use election_core::{
    Election, ElectionConfig, Handler, Leadership, Paths,
    config::{Profile, Recipe},
    errors::Ended,
    handler::{Appointment, Failure, StopOrder, StopReason},
    internals::record::{Current, RequestKind, RequestState, Target},
    strategy::{Ranking, Round, Strategy},
};
use zk_session::{BootTime, DriverKind, Session};

use super::{
    SOON,
    members::{EastFirst, Fate, World, wait_for},
};

/// Of zk-session's tests.
#[path = "../../../../zk-session/tests/common/server.rs"]
#[allow(dead_code, unreachable_pub, reason = "those need more of it")]
mod scripted;

/// How a leadership ended.
#[derive(Clone, Debug)]
struct End {
    reason: StopReason,
    /// Whether `lead` had been dropped when `stop` was called.
    lead_was_dropped: bool,
    /// Whether the leader znode still existed when the work had ended.
    held_to_the_end: bool,
    at: BootTime,
}

/// A job whose end takes a while, and which then reads its own leader znode.
struct Job {
    witness: Session,
    paths: Paths,
    leads: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<End>>>,
}

/// Reports that `lead` runs, until it is dropped.
struct Leading<'a>(&'a AtomicBool);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Handler for Job {
    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        self.leads.store(true, Ordering::SeqCst);
        let _leading = Leading(&self.leads);
        std::future::pending().await
    }

    async fn stop(&self, order: &StopOrder) {
        let lead_was_dropped = !self.leads.load(Ordering::SeqCst);
        // Something that takes its time to end.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let place = self.witness.active().await.unwrap().get(&self.paths.leader_znode(0)).await.unwrap();
        self.ends.lock().unwrap().push(End {
            reason: order.reason(),
            lead_was_dropped,
            held_to_the_end: place.is_some(),
            at: BootTime::now(),
        });
    }
}

struct Stage<'a> {
    world: &'a World,
    ends: Arc<Mutex<Vec<End>>>,
}

impl<'a> Stage<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, ends: Arc::default() }
    }

    async fn join(&self, member: &str, site: &str) -> Election {
        let session = self.world.session(None).await;
        let me = Profile::new(member.parse().unwrap()).in_site(site.parse().unwrap());
        let recipe = Recipe::Elector(self.world.strategy());
        let config = ElectionConfig::new(self.world.paths().clone(), me, recipe).policy(self.world.policy());
        let job = Job {
            witness: self.world.operator().clone(),
            paths: self.world.paths().clone(),
            leads: Arc::default(),
            ends: Arc::clone(&self.ends),
        };
        Election::join(session, config, job)
    }

    /// Two members, of which the first one leads.
    async fn two(&self) -> (Election, Election) {
        let east = self.join("east-1", "east").await;
        wait_for("east-1 leads", SOON, || east.status().now().leads_now()).await;
        let west = self.join("west-1", "west").await;
        wait_for("west-1 stands by", SOON, || west.status().now().ballot.is_some()).await;
        (east, west)
    }

    /// The only end so far, which was in order.
    fn the_end(&self) -> End {
        let ends = self.ends.lock().unwrap().clone();
        let [end] = ends.as_slice() else { panic!("one leadership has ended: {ends:?}") };
        assert!(end.lead_was_dropped, "stopped while `lead` still ran: {end:?}");
        assert!(end.held_to_the_end, "released before the work had ended: {end:?}");
        end.clone()
    }
}

async fn by_a_wish(world: &World) {
    let stage = Stage::new(world);
    let (east, west) = stage.two().await;
    east.resign("the disk is to be changed");
    wait_for("west-1 leads", SOON, || west.status().now().leads_now()).await;
    assert_eq!(stage.the_end().reason, StopReason::Resigned("the disk is to be changed".to_owned()));
    let elected = west.status().now().elected.unwrap();
    assert!(elected.sentence().contains("the disk is to be changed"), "{}", elected.sentence());
    // It is a candidate: if no other member may lead, it is named again.
    west.resign("mine too");
    wait_for("somebody leads again", SOON, || {
        let leads = |election: &Election| election.status().now().leads_now();
        (leads(&east) || leads(&west)) && stage.ends.lock().unwrap().len() == 2
    })
    .await;
}

async fn by_withdrawing(world: &World) {
    let stage = Stage::new(world);
    let (east, west) = stage.two().await;
    east.withdraw("it is being upgraded");
    wait_for("west-1 leads", SOON, || west.status().now().leads_now()).await;
    stage.the_end();
    let request = world.ask(RequestKind::Failover, Target::Member("east-1".parse().unwrap()), false).await;
    let RequestState::Failed { reason, .. } = &request.state else { panic!("{request:?}") };
    assert!(reason.contains("it is being upgraded"), "{reason}");
    west.leave().await;
    wait_for("nobody is named, and it is said", SOON, || {
        let status = east.status().now();
        status.is_elector
            && status.leaders.iter().all(Option::is_none)
            && status.note.contains("no member may lead")
    })
    .await;
    assert!(!east.status().now().leads_now());
    east.rejoin();
    wait_for("east-1 leads again", SOON, || east.status().now().leads_now()).await;
}

async fn by_a_drop(world: &World) {
    let stage = Stage::new(world);
    let (east, west) = stage.two().await;
    drop(east);
    wait_for("west-1 leads", SOON, || west.status().now().leads_now()).await;
    assert_eq!(stage.the_end().reason, StopReason::Leaving);
}

async fn by_a_deadline(world: &World) {
    let stage = Stage::new(world);
    let (east, west) = stage.two().await;
    let by = BootTime::now() + Duration::from_secs(3);
    east.resign_by(by, "the window closes");
    wait_for("its work may go on until then", SOON, || east.status().now().work_until == Some(by)).await;
    wait_for("west-1 leads", SOON, || west.status().now().leads_now()).await;
    let end = stage.the_end();
    assert_eq!(end.reason, StopReason::Resigned("the window closes".to_owned()));
    let left = by.duration_since(end.at);
    assert!(end.at <= by, "the work ended after its deadline");
    assert!(Some(left) <= world.policy().stop_budget, "it stopped sooner than it had to: {left:?} were left");
    // The deadline was that leadership's alone.
    drop(west);
    wait_for("east-1 leads again", SOON, || east.status().now().leads_now()).await;
}

async fn not_while_it_holds(world: &World) {
    let stage = Stage::new(world);
    let (east, west) = stage.two().await;
    let outer = east.block_switchover("the books are being closed");
    let inner = east.block_switchover("the backup runs");
    let refused = async |why: &str| {
        let written = || async {
            let members = world.snapshot().await.members;
            members.iter().any(|m| m.holds.as_deref() == Some(why))
        };
        let deadline = BootTime::now() + SOON;
        while !written().await {
            assert!(BootTime::now() < deadline, "its record says: {why}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let request = world.ask(RequestKind::Switchover, Target::Any, false).await;
        let RequestState::Failed { reason, .. } = &request.state else { panic!("{request:?}") };
        assert!(reason.contains(why), "{reason}");
    };
    refused("the backup runs").await;
    drop(inner);
    refused("the books are being closed").await;
    assert!(east.status().now().leads_now());
    // An operator who means it has his way.
    let request = world.ask(RequestKind::Failover, Target::Any, false).await;
    assert!(matches!(request.state, RequestState::Done { .. }), "{request:?}");
    wait_for("west-1 leads", SOON, || west.status().now().leads_now()).await;
    stage.the_end();
    drop(outer);
}

/// One test for each driver.
macro_rules! ends {
    ($($name:ident: $check:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn native() {
                $check(&World::start(DriverKind::Native).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn zookeeper_async() {
                $check(&World::start(DriverKind::ZookeeperAsync).await).await;
            }
        }
    )*};
}

ends! {
    who_resigns_stands_again: by_a_wish;
    who_withdraws_is_not_named: by_withdrawing;
    a_drop_ends_the_work_and_then_leadership: by_a_drop;
    a_deadline_ends_the_work_in_time: by_a_deadline;
    who_holds_does_not_hand_over_as_planned: not_while_it_holds;
}

/// Panics in one call.
struct Clumsy(&'static str);

impl Clumsy {
    fn call(&self, name: &'static str) {
        assert!(self.0 != name, "the test says so");
    }
}

impl Handler for Clumsy {
    async fn prepare(&self, _: &Appointment) -> Result<(), Failure> {
        self.call("prepare");
        Ok(())
    }

    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        self.call("takeover");
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        self.call("lead");
        Err(Failure::new("it is the turn of stop"))
    }

    async fn stop(&self, _: &StopOrder) {
        self.call("stop");
    }

    fn follows_leaders(&self) -> bool {
        true
    }

    async fn leader_changed(&self, _: usize, _: Option<&Current>) {
        self.call("leader_changed");
    }
}

/// The state of the work is unknown, so the election ends and reports it, for each of the calls. Its leader znode stays, and
/// no other member leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_any_call_ends_the_election() {
    let world = World::start(DriverKind::Native).await;
    for name in ["prepare", "takeover", "lead", "stop", "leader_changed"] {
        let me = Profile::new("clumsy".parse().unwrap()).in_site("east".parse().unwrap());
        let recipe = Recipe::Elector(world.strategy());
        let paths = Paths::new(world.root(), name).unwrap();
        let config = ElectionConfig::new(paths, me, recipe).policy(world.policy());
        let election = Election::join(world.session(None).await, config, Clumsy(name));
        let ended = tokio::time::timeout(SOON, election.ended()).await.expect("it ends");
        assert_eq!(ended, Ended::HandlerPanicked { call: name });
        if matches!(name, "takeover" | "lead" | "stop") {
            let paths = Paths::new(world.root(), name).unwrap();
            let rival =
                world.join_over(world.session(None).await, "rival", "east", Fate::Lead, paths.clone());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let operator = world.operator().active().await.unwrap();
            let leader_znode = operator.get(&paths.leader_znode(0)).await.unwrap();
            assert!(leader_znode.is_some(), "leadership was released after a panic in {name}");
            assert!(!rival.leads(), "another member leads after a panic in {name}");
        }
    }
}

/// If sessions end with their connections no lease is granted, so no member can lead. A member that joins leaves at
/// once with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_ends_where_no_lease_is_given() {
    for driver in DriverKind::ALL {
        let (address, _close) = scripted::keeper(Duration::from_secs(4)).await;
        let session = Session::builder(address.to_string()).driver(driver).connect().await.unwrap();
        let no_lease = session.active().await.unwrap().leases().unwrap_err();
        let config = ElectionConfig::elector("/app/orders", "east-1", EastFirst).unwrap();
        let election = Election::join(session, config, Clumsy("prepare"));
        let ended = tokio::time::timeout(SOON, election.ended()).await.expect("it ends");
        assert_eq!(ended, Ended::NoLease(no_lease));
        assert!(ended.to_string().contains("ClickHouse Keeper"), "{ended}");
    }
}

/// A strategy that does not return before its gate is open.
#[derive(Debug)]
struct Hanging {
    hangs: Arc<AtomicBool>,
    /// Open once the sender is dropped.
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Strategy for Hanging {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        self.hangs.store(true, Ordering::SeqCst);
        let _ = self.gate.lock().unwrap().recv();
        EastFirst.rank(round)
    }
}

/// A watchdog can't be fed for an election that hangs, and needs not wait for one that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_hangs_does_not_respond() {
    let world = World::start(DriverKind::Native).await;
    let (open, gate) = mpsc::channel();
    let hangs = Arc::new(AtomicBool::new(false));
    let strategy = Hanging { hangs: Arc::clone(&hangs), gate: Mutex::new(gate) };
    let me = Profile::new("slow".parse().unwrap()).in_site("east".parse().unwrap());
    let paths = Paths::new(world.root(), "hanging").unwrap();
    let config = ElectionConfig::new(paths, me, Recipe::Elector(Arc::new(strategy))).policy(world.policy());
    let election = Election::join(world.session(None).await, config, Clumsy("nothing"));
    tokio::time::timeout(SOON, election.responds()).await.expect("it responds");
    // On this thread, because the blocked one may have the runtime's clock.
    let pause = || std::thread::sleep(Duration::from_millis(10));
    let deadline = BootTime::now() + SOON;
    while !hangs.load(Ordering::SeqCst) {
        assert!(BootTime::now() < deadline, "the strategy was not asked");
        pause();
    }
    let asking = election.clone();
    let answer = tokio::spawn(async move { asking.responds().await });
    (0..50).for_each(|_| pause());
    assert!(!answer.is_finished(), "it responds although its strategy hangs");
    drop(open);
    tokio::time::timeout(SOON, answer).await.expect("it responds again").unwrap();
    election.leave().await;
    tokio::time::timeout(SOON, election.responds()).await.expect("it has ended");
}
