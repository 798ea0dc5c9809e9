//! The real faults: three servers on three networks, and the one that the clients are connected to is cut off,
//! silently, from the others while it goes on talking to its clients, or from the clients while it goes on talking to
//! the others.
//!
//! Needs root, `ip` and `iptables`. Where they are missing the test says so and passes; with `CI=true` it fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Lateness, eventually, soon, wait_for};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use zk_session::{
    BootTime, CreateMode, DriverKind, Incarnation, OpError, Session, SessionBuilder, SessionId, SessionState,
    lease_margin,
};
use zk_testkit::{Ensemble, EnsembleBuilder, Mode, Network};

/// Runs, each with a cut of its own, and in it four sessions of either driver: three keep a lease, by heartbeats, and
/// just made or re-attached; one goes by what a server answers alone. `CUTS` sets another number.
const CUTS: usize = 3;
/// Of the servers. The sessions' timeout is ten of them, and a server that is cut off goes on for fifty.
const TICK: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(2);
const SYNC_LIMIT: u32 = 50;
const SERVERS: usize = 3;

static ALONE: Mutex<()> = Mutex::const_new(());

/// When the ensemble's leader ended this session, by its transaction log: a header of 16 bytes, then for each transaction a
/// checksum, a length, who, which, when and what, its data, and a byte. An observer hears of it later, by as much as the machine is busy.
fn ended(ensemble: &Ensemble, leader: usize, session: SessionId) -> BootTime {
    const CLOSE_SESSION: i32 = -11;
    let logs = std::fs::read_dir(ensemble.server(leader).dir().join("data/version-2")).unwrap();
    let logs =
        logs.map(|log| log.unwrap()).filter(|log| log.file_name().as_encoded_bytes().starts_with(b"log."));
    for log in logs {
        let log = std::fs::read(log.path()).unwrap();
        let mut rest = &log[16..];
        let int = |bytes: &[u8]| bytes.iter().fold(0_u64, |int, byte| int << 8 | u64::from(*byte));
        // The file is longer than its content.
        while rest.len() > 44 && int(&rest[8..12]) > 0 {
            let (who, when, what) = (int(&rest[12..20]), int(&rest[32..40]), int(&rest[40..44]));
            if who.cast_signed() == session.0 && what == u64::from(CLOSE_SESSION.cast_unsigned()) {
                let ago = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_millis(when)).unwrap();
                return BootTime::from_duration(BootTime::now().as_duration() - ago);
            }
            rest = &rest[12 + usize::try_from(int(&rest[8..12])).unwrap() + 1..];
        }
    }
    panic!("the transaction log of server {leader} does not have the end of {session}")
}

/// When the ensemble's leader has removed the ephemeral of a session.
async fn expiry(observer: &Session, path: &str) -> JoinHandle<BootTime> {
    let mut watch = observer.watch_data(path);
    observer.barrier().await.unwrap();
    assert!(soon("the ephemeral", watch.next()).await.unwrap().value.is_some(), "{path}");
    tokio::spawn(async move {
        while watch.next().await.unwrap().value.is_some() {}
        BootTime::now()
    })
}

fn id(session: &Session) -> SessionId {
    session.incarnation().expect("it is active").session_id()
}

/// The end of the last lease that a session has, told once the session is over.
fn last_lease(session: &Session) -> JoinHandle<BootTime> {
    let (session, keeper) = (session.clone(), session.keep_lease());
    tokio::spawn(async move {
        let (mut leases, mut states) = (keeper.subscribe(), session.subscribe());
        let mut last = BootTime::from_duration(Duration::ZERO);
        loop {
            if let Some(lease) = *leases.borrow_and_update() {
                last = last.max(lease.valid_until);
            }
            if matches!(&*states.borrow_and_update(), SessionState::Inactive { .. }) {
                return last;
            }
            tokio::select! {
                _ = leases.changed() => {}
                _ = states.changed() => {}
            }
        }
    })
}

/// What a server that is cut off from the others still answers, so that it proves nothing about the session.
#[derive(Clone, Copy, Debug)]
enum Alone {
    /// Any server.
    Reads,
    /// One that checks access lists early.
    RefusedDeletions,
}

impl Alone {
    async fn is_answered(self, living: &Incarnation, path: &str) -> bool {
        match self {
            Self::Reads => matches!(living.get(path).await, Ok(Some(_))),
            Self::RefusedDeletions => matches!(living.delete(path, None).await, Err(OpError::NoAuth { .. })),
        }
    }
}

/// When the latest such answer came: what who goes by it takes for a sign of life. Ends with the session.
fn answers(session: &Session, path: String, alone: Alone) -> watch::Receiver<BootTime> {
    let (answered, answers) = watch::channel(BootTime::now());
    let session = session.clone();
    tokio::spawn(async move {
        let living = session.active().await.unwrap();
        while alone.is_answered(&living, &path).await {
            answered.send_replace(BootTime::now());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    answers
}

fn builder(driver: DriverKind, address: SocketAddr) -> SessionBuilder {
    crate::common::builder(driver, address).tick_time(TICK).session_timeout(TIMEOUT)
}

/// A session by that server alone.
async fn connect(driver: DriverKind, address: SocketAddr) -> Session {
    connect_by(&builder(driver, address)).await
}

async fn connect_by(builder: &SessionBuilder) -> Session {
    // One that has just been cut off serves nobody until it hears of the others again.
    soon("a session", async {
        loop {
            if let Ok(session) = builder.clone().connect().await {
                return session;
            }
        }
    })
    .await
}

/// One run: sessions by a follower, which is cut off until they have expired, and what they believed meanwhile.
/// Whether it showed what answers of that kind are worth; leases are judged in any case.
async fn one_cut(
    ensemble: &Ensemble,
    [follower, leader]: [usize; 2],
    observer: &Session,
    alone: Alone,
    run: usize,
) -> bool {
    let address = ensemble.server(follower).address();
    let (mut leases, mut deceived, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
    let mut handed_over = Vec::new();
    for driver in DriverKind::ALL {
        let session = connect(driver, address).await;
        let path = format!("/resumed-{run}-{driver}");
        session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
        let expiry = self::expiry(observer, &path).await;
        handed_over.push((driver, soon("the ticket", session.hand_over()).await.unwrap(), expiry));

        let session = connect(driver, address).await;
        assert_eq!(session.active().await.unwrap().granted_timeout(), TIMEOUT);
        let path = format!("/lease-{run}-{driver}");
        session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
        let expiry = self::expiry(observer, &path).await;
        let keeper = session.keep_lease();
        wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
        leases.push((format!("{driver}, kept by heartbeats"), id(&session), last_lease(&session), expiry));
        sessions.push(session);

        let session = connect(driver, address).await;
        let path = format!("/alone-{run}-{driver}");
        session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
        let expiry = self::expiry(observer, &path).await;
        deceived.push((driver, answers(&session, path, alone), expiry));
        sessions.push(session);
    }
    // What proves these is their creation or their re-attachment: heartbeats need a tick.
    for (driver, ticket, expiry) in handed_over {
        let session = builder(driver, address).resume(ticket).connect().await.unwrap();
        leases.push((format!("{driver}, re-attached"), id(&session), last_lease(&session), expiry));
        sessions.push(session);
    }
    for driver in DriverKind::ALL {
        let session = connect(driver, address).await;
        let path = format!("/made-{run}-{driver}");
        session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
        leases.push((
            format!("{driver}, just made"),
            id(&session),
            last_lease(&session),
            self::expiry(observer, &path).await,
        ));
        sessions.push(session);
    }
    let started = BootTime::now();
    ensemble.faults().isolate(follower).unwrap();
    for (which, session, lease, expiry) in leases {
        let end = soon("the end", lease).await.unwrap();
        soon("the expiry", expiry).await.unwrap();
        let expired = ended(ensemble, leader, session);
        let (before, after) = (expired.duration_since(end), end.duration_since(expired));
        assert!(
            end + lease_margin(TIMEOUT) <= expired,
            "run {run}, {which}: the lease ended {before:?} before the session did, and {after:?} after it"
        );
        // It had one: else there was nothing to judge.
        assert!(end > started, "run {run}, {which}: no lease");
        println!("run {run}, server {follower}, {which}: the lease ended {before:?} before the session");
    }
    let mut shown = true;
    for (driver, mut answers, expiry) in deceived {
        // Expired, and still answered: such answers don't tell. Did they, this test would not see the fault.
        let expired = soon("the expiry", expiry).await.unwrap();
        let took = expired.duration_since(started);
        if took > TIMEOUT + 4 * TICK {
            // The others stumbled themselves. By then the session has left its server, which shows nothing.
            println!("run {run}: the ensemble took {took:?} to expire the session of {driver}");
            shown = false;
            continue;
        }
        let Ok(told) = soon("an answer after the end", answers.wait_for(|answered| *answered > expired))
            .await
            .map(|told| *told)
        else {
            // The driver gave the session up first.
            println!("run {run}, {driver}: {alone:?}: no answer after the end");
            shown = false;
            continue;
        };
        println!(
            "run {run}, server {follower}, {driver}: {alone:?}: an answer came {:?} after the end of its session",
            told.duration_since(expired)
        );
    }
    ensemble.faults().rejoin(follower).unwrap();
    println!("run {run}: cut off for {:?}", BootTime::now().duration_since(started));
    for session in sessions {
        session.close(Duration::from_millis(500)).await;
    }
    eventually("the server is back", || async { ensemble.mode(follower).await == Some(Mode::Follower) })
        .await;
    // A session is a write: it is made only once the server hears of the others again.
    connect(DriverKind::default(), address).await.close(Duration::from_secs(5)).await;
    shown
}

/// Three servers that serve, those that follow first and the leader last. `None` on a machine that can't do it.
async fn ensemble(settings: EnsembleBuilder) -> Option<(Ensemble, [usize; SERVERS])> {
    if !Network::available_or_skip() {
        return None;
    }
    crate::common::log();
    let builder = settings.servers(SERVERS).in_namespaces(true);
    let builder = builder.tick_time(TICK).with(|settings| settings.init_limit = 100).sync_limit(SYNC_LIMIT);
    let ensemble = builder.session_timeouts(2 * TICK, Duration::from_secs(60)).start().await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let mut servers = [0, 1, 2];
    servers.sort_by_key(|i| *i == leader);
    Some((ensemble, servers))
}

fn cuts() -> usize {
    std::env::var("CUTS").map_or(CUTS, |cuts| cuts.parse().expect("CUTS is a number"))
}

/// Cuts the followers off in turn until that many runs have shown what answers of that kind are worth. On a busy machine
/// a driver gives up a session before such an answer has come.
async fn cut_off(ensemble: &Ensemble, [one, two, leader]: [usize; SERVERS], alone: Alone) {
    let observer =
        crate::common::builder(DriverKind::default(), ensemble.server(leader).address()).tick_time(TICK);
    let observer = observer.connect().await.unwrap();
    let cuts = cuts();
    let (mut shown, mut run) = (0, 0);
    while shown < cuts {
        assert!(
            run < 2 * cuts + 5,
            "of {run} runs {shown} showed answers after the end of a session that expired in time"
        );
        shown += usize::from(one_cut(ensemble, [[one, two][run % 2], leader], &observer, alone, run).await);
        run += 1;
    }
}

#[tokio::test]
async fn a_lease_is_over_by_its_margin_before_the_ensemble_expires_the_session() {
    let _alone = ALONE.lock().await;
    let Some((ensemble, servers)) = ensemble(Ensemble::builder()).await else { return };
    cut_off(&ensemble, servers, Alone::Reads).await;
}

/// On servers that check access lists early, one that is cut off refuses deletions where the access list of the
/// parent forbids them, and asks no other server. Each run that counts shows such refusals on a session that has
/// expired, so a refusal is no acknowledgement of a heartbeat; and that leases end in time all the same, for
/// heartbeats are answered by a quorum there, too.
#[tokio::test]
async fn a_lease_is_over_by_its_margin_where_a_server_refuses_deletions_by_itself() {
    let _alone = ALONE.lock().await;
    let Some((ensemble, servers)) =
        ensemble(Ensemble::builder().with(|settings| settings.eager_acl_check = true)).await
    else {
        return;
    };
    crate::common::forbid_deletions_below_the_root(&ensemble.connect_string());
    cut_off(&ensemble, servers, Alone::RefusedDeletions).await;
}

/// Why a session moves from one follower to the other.
#[derive(Clone, Copy, Debug)]
enum Moves {
    /// The first is no longer in its list.
    Told,
    /// The first is silent, as its packets are dropped.
    Suspects,
}

impl Moves {
    fn builder(self, driver: DriverKind, from: SocketAddr, to: SocketAddr) -> SessionBuilder {
        match self {
            Self::Told => builder(driver, from),
            Self::Suspects => {
                let both = Session::builder(format!("{from},{to}")).driver(driver).tick_time(TICK);
                both.session_timeout(TIMEOUT)
                    .prefer(from.to_string())
                    .suspect_after(Duration::from_millis(200))
            }
        }
    }

    fn begin<'a>(
        self,
        ensemble: &Ensemble,
        from: usize,
        to: usize,
        sessions: impl Iterator<Item = &'a Session>,
    ) {
        match self {
            Self::Told => {
                let to = ensemble.server(to).address().to_string();
                sessions.for_each(|session| session.set_servers(&to).unwrap());
            }
            Self::Suspects => {
                let own = ensemble.network().unwrap().own_address();
                ensemble.server(from).host().unwrap().cut_from(&[own]).unwrap();
            }
        }
    }

    /// A move begins and ends within this time.
    fn takes(self) -> u64 {
        match self {
            Self::Told => 200,
            Self::Suspects => 400,
        }
    }
}

#[tokio::test]
async fn a_lease_is_over_by_its_margin_where_the_session_moves_to_a_server_that_is_cut_off() {
    lease_of_moves(Moves::Told).await;
}

#[tokio::test]
async fn a_lease_is_over_by_its_margin_where_the_session_flees_to_a_server_that_is_cut_off() {
    lease_of_moves(Moves::Suspects).await;
}

/// A session is on its way from one follower to the other when that one is cut off: before, while or after it takes the
/// session. On servers that check access lists early, and refuse deletions below the root.
async fn lease_of_moves(moves: Moves) {
    let _alone = ALONE.lock().await;
    let Some((ensemble, [one, two, leader])) =
        ensemble(Ensemble::builder().with(|settings| settings.eager_acl_check = true)).await
    else {
        return;
    };
    crate::common::forbid_deletions_below_the_root(&ensemble.connect_string());
    let observer = connect(DriverKind::default(), ensemble.server(leader).address()).await;
    let seed = crate::common::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let cuts = cuts();
    let (mut judged, mut run) = (0, 0);
    while run < cuts || judged < cuts * DriverKind::ALL.len() {
        assert!(run < 4 * cuts, "of {run} runs only {judged} sessions moved and expired");
        let (from, to) = [(one, two), (two, one)][run % 2];
        let mut leases = Vec::new();
        for (n, driver) in DriverKind::ALL.into_iter().cycle().take(4 * DriverKind::ALL.len()).enumerate() {
            let builder =
                moves.builder(driver, ensemble.server(from).address(), ensemble.server(to).address());
            let session = connect_by(&builder).await;
            let path = format!("/moves-{run}-{n}");
            session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
            let expiry = self::expiry(&observer, &path).await;
            leases.push((driver, id(&session), last_lease(&session), expiry, session));
        }
        moves.begin(&ensemble, from, to, leases.iter().map(|(.., session)| session));
        tokio::time::sleep(Duration::from_millis(random.u64(0..moves.takes()))).await;
        let started = BootTime::now();
        ensemble.faults().isolate(to).unwrap();
        // Those that have not moved stay, for the server that they are to move to serves nobody.
        tokio::time::sleep(TIMEOUT + 6 * TICK).await;
        for (driver, session_id, lease, expiry, session) in leases {
            if !lease.is_finished() && !expiry.is_finished() {
                lease.abort();
                expiry.abort();
            } else {
                let end = soon("the end", lease).await.unwrap();
                soon("the expiry", expiry).await.unwrap();
                let expired = ended(&ensemble, leader, session_id);
                let before = expired.duration_since(end);
                assert!(
                    end + lease_margin(TIMEOUT) <= expired,
                    "run {run}, {driver}: the lease ended {before:?} before the session did, and {:?} after it",
                    end.duration_since(expired)
                );
                assert!(end > started, "run {run}, {driver}: no lease");
                println!("run {run}, {driver}, {moves:?}: the lease ended {before:?} before the session");
                judged += 1;
            }
            session.close(Duration::from_millis(500)).await;
        }
        for server in [from, to] {
            ensemble.faults().rejoin(server).unwrap();
            let session = connect(DriverKind::default(), ensemble.server(server).address()).await;
            session.close(Duration::from_secs(5)).await;
        }
        run += 1;
    }
}

/// The server that has the session, once no other one has a connection of it from before.
async fn at(ensemble: &Ensemble, session: &Session) -> usize {
    let id = session.active().await.unwrap().session_id();
    let mut there = Vec::new();
    while there.len() != 1 {
        there.clear();
        for i in 0..SERVERS {
            let told = soon("a server's connections", ensemble.admin(i, "cons")).await.unwrap();
            there.extend(told.contains(&format!("sid={id},")).then_some(i));
        }
    }
    there[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_avoided_is_left_and_one_that_is_lost_is_left_in_time() {
    const SUSPECT_AFTER: Duration = Duration::from_millis(300);
    let _alone = ALONE.lock().await;
    let lateness = Lateness::watch();
    let Some((ensemble, _)) = ensemble(Ensemble::builder()).await else { return };
    for driver in DriverKind::ALL {
        let builder = Session::builder(ensemble.connect_string()).driver(driver).tick_time(TICK);
        let session =
            builder.session_timeout(5 * TIMEOUT).suspect_after(SUSPECT_AFTER).connect().await.unwrap();
        let before = session.active().await.unwrap();
        for _ in 0..3 {
            let here = soon("its server", at(&ensemble, &session)).await;
            let host = ensemble.server(here).host().unwrap();
            session.avoid([host.ip().into()]);
            eventually("it is elsewhere", async || at(&ensemble, &session).await != here).await;
            let there = at(&ensemble, &session).await;
            session.avoid([]);
            session.barrier().await.unwrap();
            let mut states = session.subscribe();
            states.mark_unchanged();
            let host = ensemble.server(there).host().unwrap();
            host.cut_from(&[ensemble.network().unwrap().own_address()]).unwrap();
            let lost = BootTime::now();
            // The pause may be over by then.
            soon("a pause", states.changed()).await.unwrap();
            let left = BootTime::now().duration_since(lost);
            wait_for(&mut states, "active", SessionState::is_active).await;
            let back = BootTime::now().duration_since(lost);
            println!("{driver}: left after {left:?}, active again after {back:?}");
            // For a busy machine; an idle session would need 1.5 s at least without `suspect_after`.
            let late = lateness.most();
            assert!(back < SUSPECT_AFTER * 4 + late, "{driver}: {back:?}, late by {late:?}");
            assert_eq!(session.active().await.unwrap(), before, "the same session");
            host.heal().unwrap();
        }
        session.close(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_whose_packets_are_dropped_is_left_in_time() {
    let _alone = ALONE.lock().await;
    let Some((ensemble, servers)) = ensemble(Ensemble::builder()).await else { return };
    // The longest first, so that the short ones are the freshest when the links die.
    let cases = [60, 30, 10, 4, 2, 1]
        .into_iter()
        .flat_map(|seconds| DriverKind::ALL.map(|driver| (driver, Duration::from_secs(seconds))));
    let mut sessions = Vec::new();
    for (driver, timeout) in cases {
        for _ in 0..3 {
            let builder = Session::builder(ensemble.connect_string()).driver(driver).tick_time(TICK);
            let builder = builder.session_timeout(timeout).connect_timeout(Duration::from_secs(15));
            let session = builder.connect().await.unwrap();
            let living = session.active().await.unwrap();
            assert_eq!(living.granted_timeout(), timeout);
            sessions.push((driver, timeout, session, living));
        }
    }
    // The server that has most of them is the one that their packets don't get to any more.
    let mut there = Vec::new();
    for i in servers {
        let told = ensemble.admin(i, "cons").await.unwrap();
        let here =
            sessions.iter().filter(|(.., living)| told.contains(&format!("sid={},", living.session_id())));
        there.push((i, here.cloned().collect::<Vec<_>>()));
    }
    let (cut, there) = there.into_iter().max_by_key(|(_, there)| there.len()).unwrap();
    println!("server {cut} has {} of {} sessions", there.len(), sessions.len());
    assert!(there.len() * SERVERS >= sessions.len());
    let mut all_states: Vec<_> = there.iter().map(|(_, _, session, _)| session.subscribe()).collect();
    all_states.iter_mut().for_each(watch::Receiver::mark_unchanged);
    ensemble.server(cut).host().unwrap().cut_from(&[ensemble.network().unwrap().own_address()]).unwrap();
    let died = BootTime::now();
    let lateness = Arc::new(Lateness::watch());
    let moves = there.into_iter().zip(all_states).map(|((driver, timeout, session, before), mut states)| {
        let lateness = Arc::clone(&lateness);
        tokio::spawn(async move {
            wait_for(&mut states, "paused", |state| !state.is_active()).await;
            let told = BootTime::now().duration_since(died);
            let next = wait_for(&mut states, "no longer paused", |state| {
                !matches!(state, SessionState::Paused { .. })
            })
            .await;
            let back = BootTime::now().duration_since(died);
            println!("{driver}, {timeout:?}: paused after {told:?}, {next} after {back:?}");
            let late = lateness.most();
            // A session so short may have sent no heartbeat in time.
            if late > timeout / 10 {
                return;
            }
            let longest = timeout.mul_f64(0.4) + Duration::from_millis(300) + late;
            assert!(told <= longest, "{driver}, {timeout:?}: {told:?}, late by {late:?}");
            assert!(next.is_active() && back < timeout, "{driver}, {timeout:?}: {next:?} after {back:?}");
            assert_eq!(session.active().await.unwrap(), before, "the same session");
        })
    });
    for moved in moves.collect::<Vec<_>>() {
        moved.await.unwrap();
    }
    ensemble.faults().rejoin(cut).unwrap();
    for (.., session, _) in sessions {
        session.close(Duration::from_millis(500)).await;
    }
}
