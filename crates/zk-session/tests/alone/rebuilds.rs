//! A client whose session is lost, or that is stuck on a dead link, is dropped and another one takes its place: a hundred
//! times with each driver, and nothing of it is left in this process or on the server.
//!
//! Tasks, sockets and threads are counted for the whole process: one test at a time, in a binary of their own.

use std::time::Duration;

use crate::common::{PATIENCE, soon, wait_for};
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::watch;
use zk_session::{
    CloseOutcome, DataWatch, DriverKind, Epoch, HeldEphemeral, HeldStatus, LeaseKeeper, Session, SessionState,
};
use zk_testkit::{Ensemble, Proxy};

for_each_driver!(
    a_hundred_lost_sessions_leave_nothing_behind,
    a_hundred_lost_connections_leave_nothing_behind,
);

const TICK: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(1);
/// Side by side, each of them lost in every round.
const SESSIONS: usize = 10;
const ROUNDS: usize = 10;

/// What this process and the server hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    tasks: usize,
    threads: usize,
    sockets: usize,
    /// On the server.
    sessions: usize,
    connections: usize,
}

impl Held {
    async fn now(ensemble: &Ensemble) -> Self {
        let sockets = || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap();
            // A file may be closed between the listing and the reading.
            let kinds = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
            kinds.filter(|kind| kind.to_string_lossy().starts_with("socket:")).count()
        };
        let (sockets, threads) = (sockets(), std::fs::read_dir("/proc/self/task").unwrap().count());
        let tasks = Handle::current().metrics().num_alive_tasks();
        let told = ensemble.admin(0, "mntr").await.unwrap();
        let figure = |name: &str| {
            let line = told.lines().find(|line| line.split_whitespace().next() == Some(name));
            let figure = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            figure.unwrap_or_else(|| panic!("no {name} in {told}"))
        };
        // The connection that asks is not counted: whether the server still counts it is chance.
        let connections = ensemble.admin(0, "cons").await.unwrap().matches("sid=0x").count();
        Self { tasks, threads, sockets, sessions: figure("zk_global_sessions"), connections }
    }

    fn within(self, bound: Self) -> bool {
        self.tasks <= bound.tasks
            && self.threads <= bound.threads
            && self.sockets <= bound.sockets
            && self.sessions <= bound.sessions
            && self.connections <= bound.connections
    }

    /// The least of some looks: what is on its way out does not count.
    async fn at_rest(ensemble: &Ensemble) -> Self {
        let mut least = Self::now(ensemble).await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let now = Self::now(ensemble).await;
            least = Self {
                tasks: least.tasks.min(now.tasks),
                threads: least.threads.min(now.threads),
                sockets: least.sockets.min(now.sockets),
                sessions: least.sessions.min(now.sessions),
                connections: least.connections.min(now.connections),
            };
        }
        least
    }

    /// Waits until no more is held than that: the server takes a tick or two to expire what was lost.
    async fn settles(ensemble: &Ensemble, what: &str, bound: Self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let now = Self::now(ensemble).await;
            if now.within(bound) {
                println!("{what}: {now:?}");
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{what}: {now:?} held, {bound:?} before");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A session with everything that a session can have to carry over.
struct Laden {
    session: Session,
    held: HeldEphemeral,
    watch: DataWatch,
    keeper: LeaseKeeper,
}

impl Laden {
    async fn connect(driver: DriverKind, proxy: &Proxy, n: usize) -> Self {
        let builder = crate::common::builder(driver, proxy.addr()).tick_time(TICK).session_timeout(TIMEOUT);
        let session = builder.connect().await.unwrap();
        let held = session.hold_ephemeral(format!("/held-{n}"), "data").unwrap();
        let (watch, keeper) = (session.watch_data("/watched"), session.keep_lease());
        Self { session, held, watch, keeper }
    }

    /// All is there in the session of the moment.
    async fn is_whole(&self) {
        wait_for(&mut self.session.subscribe(), "active", SessionState::is_active).await;
        let of_now = |at: Epoch| self.session.state().epoch() == Some(at);
        wait_for(
            &mut self.held.subscribe(),
            "held",
            |status| matches!(status, HeldStatus::Held { epoch, .. } if of_now(*epoch)),
        )
        .await;
        wait_for(&mut self.keeper.subscribe(), "a lease", Option::is_some).await;
    }

    async fn epoch(&self) -> u64 {
        soon("a session", self.session.active()).await.unwrap().epoch().0
    }
}

struct Bed {
    ensemble: Ensemble,
    proxy: Proxy,
    sessions: Vec<Laden>,
    empty: Held,
}

impl Bed {
    async fn start(driver: DriverKind) -> Self {
        let ensemble = Ensemble::builder().servers(1).tick_time(TICK).setting("maxClientCnxns", "0");
        let ensemble = ensemble.start().await.unwrap();
        let proxy = Proxy::start(ensemble.addresses()[0]).await.unwrap();
        // Once through, for what a process makes once: a client's timers have a thread, whatever the number of sessions.
        Laden::connect(driver, &proxy, SESSIONS).await.session.close(PATIENCE).await;
        proxy.wait_connections(0, PATIENCE).await.unwrap();
        let nobody = Held { sessions: 0, connections: 0, ..Held::now(&ensemble).await };
        Held::settles(&ensemble, "nobody there", nobody).await;
        let empty = Held::at_rest(&ensemble).await;
        assert_eq!((empty.sessions, empty.connections), (0, 0));
        let sessions = join_all((0..SESSIONS).map(|n| Laden::connect(driver, &proxy, n))).await;
        let mut bed = Self { ensemble, proxy, sessions, empty };
        bed.all_whole().await;
        for laden in &mut bed.sessions {
            assert!(soon("a value", laden.watch.next()).await.unwrap().value.is_none());
        }
        bed
    }

    async fn all_whole(&self) {
        join_all(self.sessions.iter().map(Laden::is_whole)).await;
        self.proxy.wait_connections(SESSIONS, PATIENCE).await.unwrap();
    }

    /// What is held while all are there. A busy machine may lose one at any look.
    async fn all_at_rest(&self) -> Held {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.all_whole().await;
            let held = Held::at_rest(&self.ensemble).await;
            if (held.sessions, held.connections) == (SESSIONS, SESSIONS) {
                return held;
            }
            assert!(tokio::time::Instant::now() < deadline, "not all are there: {held:?}");
        }
    }

    async fn all_inactive(&self) {
        let inactive = |state: &SessionState| matches!(state, SessionState::Inactive { .. });
        join_all(self.sessions.iter().map(async |laden| {
            wait_for(&mut laden.session.subscribe(), "inactive", inactive).await;
        }))
        .await;
    }

    async fn end(self) {
        for laden in self.sessions {
            assert_eq!(laden.session.close(PATIENCE).await, CloseOutcome::Acknowledged);
        }
        self.proxy.wait_connections(0, PATIENCE).await.unwrap();
        Held::settles(&self.ensemble, "all closed", self.empty).await;
    }
}

async fn a_hundred_lost_sessions_leave_nothing_behind(driver: DriverKind) {
    let _alone = crate::ALONE.lock().await;
    let mut bed = Bed::start(driver).await;
    let before = bed.all_at_rest().await;
    let epochs = async |bed: &Bed| join_all(bed.sessions.iter().map(Laden::epoch)).await.iter().sum::<u64>();
    let first = epochs(&bed).await;
    for round in 0..ROUNDS {
        match round % 2 {
            // Stuck on a link that says nothing.
            0 => {
                bed.proxy.black_hole(true);
                bed.all_inactive().await;
                bed.proxy.black_hole(false);
            }
            // Turned away for as long as the session lasts.
            _ => {
                bed.proxy.refuse(true).await.unwrap();
                bed.proxy.cut().await;
                bed.all_inactive().await;
                bed.proxy.refuse(false).await.unwrap();
            }
        }
        bed.all_whole().await;
        for laden in &mut bed.sessions {
            // Told once in each session.
            assert!(soon("a value", laden.watch.next()).await.unwrap().value.is_none());
        }
        Held::settles(&bed.ensemble, &format!("{driver}, round {round}"), before).await;
    }
    let rebuilt = epochs(&bed).await - first;
    println!("{driver}: rebuilt {rebuilt} times");
    assert!(rebuilt >= (SESSIONS * ROUNDS) as u64, "{rebuilt}");
    bed.end().await;
}

async fn a_hundred_lost_connections_leave_nothing_behind(driver: DriverKind) {
    let _alone = crate::ALONE.lock().await;
    let bed = Bed::start(driver).await;
    let before = bed.all_at_rest().await;
    for round in 0..ROUNDS {
        let mut states: Vec<_> = bed.sessions.iter().map(|laden| laden.session.subscribe()).collect();
        states.iter_mut().for_each(watch::Receiver::mark_unchanged);
        // More, if one has just reconnected by itself because the machine stood still.
        assert!(bed.proxy.cut().await >= SESSIONS);
        for states in &mut states {
            soon("another state", states.changed()).await.unwrap();
        }
        bed.all_whole().await;
        Held::settles(&bed.ensemble, &format!("{driver}, round {round}"), before).await;
    }
    bed.end().await;
}
