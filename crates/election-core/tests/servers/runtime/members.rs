//! Members in this process, and what they did.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use election_admin::{Observer, Problem, ReadError, Snapshot};
use election_core::{
    Election, ElectionConfig, Handler, Leadership, Paths,
    config::{Policy, Profile, Recipe, TakeoverLimit},
    handler::{Appointment, Failure, StopOrder},
    internals::record::{AdminRequest, FiledRequest, Health, Outgoing, RequestKind, Target},
    status::ElectionStatus,
    strategy::{Ranked, Ranking, Refused, Round, Strategy},
};
use tokio::sync::watch;
use zk_session::{BootTime, DriverKind, Session, Ticket};
use zk_testkit::{Ensemble, Proxy, ServerKind, Servers, TestServer};

/// Waits for a condition. If it is not met in time, the panic names it.
pub(crate) async fn wait_for(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let begin = BootTime::now();
    while !condition() {
        let waited = BootTime::now().duration_since(begin);
        assert!(waited < within, "waited {within:?} in vain: {what}");
        // The longer it takes, the longer: a look costs processor time that what is awaited needs.
        let pause = (waited / 16).clamp(Duration::from_millis(10), Duration::from_millis(100));
        tokio::time::sleep(pause).await;
    }
}

/// What the application of a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lead,
    FailTakeover,
    HangTakeover,
    HangStopUntilUrgent,
}

/// One stretch of time in which a member acted.
#[derive(Clone, Debug)]
struct Stint {
    member: String,
    slot: usize,
    began: BootTime,
    ended: Option<BootTime>,
}

type Stints = Arc<Mutex<Vec<Stint>>>;

/// When a timer of this test's runtime was late, and by how much: whatever runs there is as late.
#[derive(Clone, Default)]
struct Delays(Arc<Mutex<Vec<(BootTime, Duration)>>>);

impl Delays {
    const STEP: Duration = Duration::from_millis(10);

    /// Records them while the runtime lives.
    fn record() -> Self {
        let delays = Self::default();
        let recorded = delays.clone();
        tokio::spawn(async move {
            loop {
                let due = BootTime::now() + Self::STEP;
                tokio::time::sleep(Self::STEP).await;
                let now = BootTime::now();
                recorded.0.lock().unwrap().push((now, now.duration_since(due)));
            }
        });
        delays
    }

    /// Their sum since then.
    async fn since(&self, since: BootTime) -> Duration {
        // One that lasts is recorded at its end.
        tokio::time::sleep(2 * Self::STEP).await;
        let recorded = self.0.lock().unwrap();
        recorded.iter().filter(|(at, _)| *at >= since).map(|(_, late)| *late).sum()
    }
}

/// Servers, an election on them, and who takes part.
pub(crate) struct World {
    servers: Arc<Servers>,
    driver: DriverKind,
    recipe: Recipe,
    root: String,
    paths: Paths,
    /// Suspicion decides.
    fast: bool,
    session_timeout: Duration,
    operator: Session,
    slots: usize,
    stints: Stints,
    delays: Delays,
}

/// Which servers these tests run on: the embedded server, or Apache ZooKeeper by `TEST_SERVERS=apache`, as `cargo xtask
/// test --full` runs them once more.
fn server_kind() -> ServerKind {
    match std::env::var("TEST_SERVERS").as_deref() {
        Ok("apache") => ServerKind::Apache,
        Ok(other) => panic!("TEST_SERVERS={other}: only apache is known"),
        Err(_) => ServerKind::Embedded,
    }
}

/// The servers that all tests of this process share, ended with the last of them. Embedded servers have a thread of
/// their own, because they outlive the test that starts them.
async fn servers() -> Arc<Servers> {
    static SHARED: OnceLock<tokio::sync::Mutex<std::sync::Weak<Servers>>> = OnceLock::new();
    let mut shared = SHARED.get_or_init(Default::default).lock().await;
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = match server_kind() {
        ServerKind::Apache => Servers::start(ServerKind::Apache, 3, TICK).await,
        ServerKind::Embedded => {
            let builder = TestServer::builder().servers(3).tick_time(TICK);
            builder.start_on_thread().map(Servers::Embedded)
        }
    };
    let started = Arc::new(started.expect("the servers start"));
    *shared = Arc::downgrade(&started);
    started
}

pub(crate) const TICK: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(4);
/// As long as this ensemble grants: twenty ticks.
const LONG: Duration = Duration::from_secs(10);

impl World {
    pub(crate) async fn start(driver: DriverKind) -> Self {
        Self::start_as(driver, elector(), 1, false).await
    }

    pub(crate) async fn with_recipe(driver: DriverKind, recipe: Recipe) -> Self {
        Self::start_as(driver, recipe, 1, false).await
    }

    /// So many members lead at once.
    pub(crate) async fn with_slots(driver: DriverKind, slots: usize) -> Self {
        Self::start_as(driver, elector(), slots, false).await
    }

    /// A world whose resource checks tokens, and whose sessions live much longer than their members.
    pub(crate) async fn start_fast(driver: DriverKind) -> Self {
        Self::start_as(driver, elector(), 1, true).await
    }

    async fn start_as(driver: DriverKind, recipe: Recipe, slots: usize, fast: bool) -> Self {
        Self::of(servers().await, driver, recipe, slots, fast).await
    }

    /// A world over an ensemble of its own.
    pub(crate) async fn over(ensemble: Ensemble, driver: DriverKind) -> Self {
        Self::of(Arc::new(Servers::Apache(Box::new(ensemble))), driver, elector(), 1, false).await
    }

    /// A world over embedded servers of its own.
    pub(crate) async fn over_embedded(recipe: Recipe) -> Self {
        let server = TestServer::builder().servers(3).tick_time(TICK).start_on_thread();
        let servers = Arc::new(Servers::Embedded(server.expect("the servers start")));
        Self::of(servers, DriverKind::Native, recipe, 1, false).await
    }

    /// Of a world [over](Self::over_embedded) some.
    pub(crate) fn embedded(&self) -> &TestServer {
        match &*self.servers {
            Servers::Embedded(server) => server,
            Servers::Apache(_) => panic!("these servers are Apache ZooKeeper"),
        }
    }

    async fn of(servers: Arc<Servers>, driver: DriverKind, recipe: Recipe, slots: usize, fast: bool) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = format!("/t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let paths = Paths::new(&root, "orders").unwrap();
        let operator = connect(&servers.connect_string(), driver, TIMEOUT).await;
        let session_timeout = if fast { LONG } else { TIMEOUT };
        let (stints, delays) = (Stints::default(), Delays::record());
        Self { servers, driver, recipe, root, paths, fast, session_timeout, operator, slots, stints, delays }
    }

    /// With sessions that outlast what a busy machine does to them.
    pub(crate) fn with_long_sessions(self) -> Self {
        Self { session_timeout: LONG, ..self }
    }

    /// Of a world [over](Self::over) one.
    pub(crate) fn ensemble(&self) -> &Ensemble {
        match &*self.servers {
            Servers::Apache(ensemble) => ensemble,
            Servers::Embedded(_) => panic!("these servers are not Apache ZooKeeper"),
        }
    }

    pub(crate) fn driver(&self) -> DriverKind {
        self.driver
    }

    pub(crate) fn connect_string(&self) -> String {
        self.servers.connect_string()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.addresses()
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(crate) fn operator(&self) -> &Session {
        &self.operator
    }

    pub(crate) fn strategy(&self) -> Arc<dyn Strategy> {
        Arc::new(EastFirst)
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy::default().with(|policy| {
            policy.slots = self.slots;
            policy.stop_budget = Some(Duration::from_millis(500));
            policy.takeover_timeout = Duration::from_secs(2);
            policy.release_timeout = Duration::from_secs(5);
            policy.acquire_timeout = Duration::from_secs(5);
            policy.startup_wait = Duration::from_secs(15);
            policy.max_takeovers = TakeoverLimit { count: 50, within: Duration::from_secs(60) };
            policy.fenced = self.fast;
            policy.fast_failover = self.fast;
        })
    }

    pub(crate) async fn session(&self, proxy: Option<&Proxy>) -> Session {
        let connect_string = proxy.map_or_else(|| self.servers.connect_string(), |p| p.addr().to_string());
        connect(&connect_string, self.driver, self.session_timeout).await
    }

    /// A second holder of a session.
    pub(crate) async fn resumed(&self, ticket: Ticket) -> Session {
        let builder = Session::builder(self.servers.connect_string()).resume(ticket);
        builder.session_timeout(self.session_timeout).tick_time(TICK).connect().await.expect("it is resumed")
    }

    pub(crate) async fn session_through_proxy(&self) -> (Proxy, Session) {
        let proxy = Proxy::start_many(self.servers.addresses()).await.expect("the proxy starts");
        let session = self.session(Some(&proxy)).await;
        (proxy, session)
    }

    pub(crate) async fn join(&self, member: &str, site: &str) -> Member {
        self.join_with(member, site, Fate::Lead).await
    }

    pub(crate) async fn join_as(&self, profile: Profile) -> Member {
        let session = self.session(None).await;
        self.stand(session, profile, Fate::Lead, self.paths.clone(), self.policy())
    }

    pub(crate) async fn join_with(&self, member: &str, site: &str, fate: Fate) -> Member {
        let session = self.session(None).await;
        self.join_over(session, member, site, fate, self.paths.clone())
    }

    pub(crate) async fn join_through_proxy(&self, member: &str, site: &str) -> Member {
        let (proxy, session) = self.session_through_proxy().await;
        let mut joined = self.join_over(session, member, site, Fate::Lead, self.paths.clone());
        joined.proxy = Some(proxy);
        joined
    }

    pub(crate) fn join_over(
        &self,
        session: Session,
        member: &str,
        site: &str,
        fate: Fate,
        paths: Paths,
    ) -> Member {
        let mut profile = Profile::new(member.parse().unwrap()).in_site(site.parse().unwrap());
        profile.address = Some(format!("{member}.example"));
        self.stand(session, profile, fate, paths, self.policy())
    }

    pub(crate) fn stand(
        &self,
        session: Session,
        profile: Profile,
        fate: Fate,
        paths: Paths,
        policy: Policy,
    ) -> Member {
        let member = profile.member.to_string();
        let config = ElectionConfig::new(paths, profile, self.recipe.clone()).policy(policy);
        let (end, _) = watch::channel(None);
        let (stints, delays) = (Arc::clone(&self.stints), self.delays.clone());
        let app = App { member: member.clone(), fate, stints, delays, end: end.clone() };
        let election = Election::join(session.clone(), config, app);
        Member { id: member, election, session, proxy: None, end }
    }

    pub(crate) async fn snapshot(&self) -> Snapshot {
        self.try_snapshot().await.unwrap()
    }

    /// The problems of the election, as reported by an operator's observer.
    pub(crate) async fn problems(&self) -> Vec<Problem> {
        let observer = Observer::new(self.operator.active().await.unwrap());
        let snapshot = observer.snapshot(&self.paths).await.unwrap();
        observer.problems(&self.paths, &snapshot).await.unwrap()
    }

    pub(crate) async fn try_snapshot(&self) -> Result<Snapshot, ReadError> {
        let session = self.operator.active().await.unwrap();
        Observer::new(session).snapshot(&self.paths).await
    }

    pub(crate) fn request_for(&self, kind: RequestKind, to: Target, force: bool) -> AdminRequest {
        election_admin::new_request(
            kind,
            Outgoing::Only,
            to,
            force,
            Some("a test".to_owned()),
            "the test".to_owned(),
        )
    }

    pub(crate) async fn ask_only(&self, kind: RequestKind, to: Target, force: bool) -> FiledRequest {
        let request = self.request_for(kind, to, force);
        election_admin::ask(&self.operator, &self.paths, request).await.unwrap()
    }

    /// Asks and waits for the outcome.
    pub(crate) async fn ask(&self, kind: RequestKind, to: Target, force: bool) -> AdminRequest {
        let filed = self.ask_only(kind, to, force).await;
        let deadline = BootTime::now() + Duration::from_secs(30);
        let following = election_admin::follow(&self.operator, &self.paths, &filed.which, deadline, |_| {});
        following.await.unwrap().expect("the request is there")
    }

    pub(crate) async fn request(&self, filed: &FiledRequest) -> AdminRequest {
        let session = self.operator.active().await.unwrap();
        Observer::new(session)
            .request(&self.paths, &filed.which)
            .await
            .unwrap()
            .expect("the request is there")
    }

    /// No two members have acted in one slot at the same time. Where none followed another there is nothing to show.
    pub(crate) fn no_overlap(&self) {
        let mut stints = self.stints.lock().unwrap().clone();
        stints.sort_by_key(|s| (s.slot, s.began));
        let pairs: Vec<_> = stints.windows(2).filter(|pair| pair[0].slot == pair[1].slot).collect();
        assert!(!pairs.is_empty(), "no leadership followed another, so this shows nothing: {stints:?}");
        for pair in pairs {
            let ended = pair[0].ended;
            assert!(ended.is_some_and(|ended| ended <= pair[1].began), "two acted at once: {pair:?}");
        }
    }

    /// How often a member has started to act, and how often it has stopped.
    pub(crate) fn begun_and_stopped(&self, member: &str) -> (usize, usize) {
        let stints = self.stints.lock().unwrap();
        let of = stints.iter().filter(|s| s.member == member);
        (of.clone().count(), of.filter(|s| s.ended.is_some()).count())
    }
}

pub(crate) async fn connect(connect_string: &str, driver: DriverKind, timeout: Duration) -> Session {
    let builder = Session::builder(connect_string).session_timeout(timeout).tick_time(TICK).driver(driver);
    builder.connect_timeout(Duration::from_secs(20)).connect().await.expect("the session connects")
}

/// A member and what it is made from.
pub(crate) struct Member {
    id: String,
    election: Election,
    session: Session,
    proxy: Option<Proxy>,
    end: watch::Sender<Option<String>>,
}

impl Member {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn election(&self) -> &Election {
        &self.election
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn status(&self) -> ElectionStatus {
        self.election.status().now()
    }

    pub(crate) fn leads(&self) -> bool {
        self.status().leads_now()
    }

    pub(crate) fn is_next(&self) -> bool {
        let status = self.status();
        let (Some(ballot), Some(elected)) = (status.ballot, status.elected) else { return false };
        let named_serves = status.leaders[0].as_ref().is_some_and(|c| elected.slot_of(&c.ballot) == Some(0));
        named_serves && elected.place_in_line(0, &ballot) == Some(0)
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("joined through a proxy")
    }

    pub(crate) fn end_work(&self, why: &str) {
        self.end.send_replace(Some(why.to_owned()));
    }
}

/// An application that notes when it acts.
struct App {
    member: String,
    fate: Fate,
    stints: Stints,
    delays: Delays,
    end: watch::Sender<Option<String>>,
}

impl Handler for App {
    async fn prepare(&self, _: &Appointment) -> Result<(), Failure> {
        Ok(())
    }

    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        // A stop may have been ordered already.
        assert!(BootTime::now() < leadership.work_until().now(), "taken over without a lease");
        let stint = Stint {
            member: self.member.clone(),
            slot: leadership.slot(),
            began: BootTime::now(),
            ended: None,
        };
        self.stints.lock().unwrap().push(stint);
        match self.fate {
            Fate::FailTakeover => Err(Failure::new("the test says so")),
            Fate::HangTakeover => std::future::pending().await,
            Fate::Lead | Fate::HangStopUntilUrgent => Ok(()),
        }
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        let mut ending = self.end.subscribe();
        let why = ending.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        // That was one leadership's end, and not the next one's.
        self.end.send_replace(None);
        // Without a reason it is finished.
        match why.filter(|why| !why.is_empty()) {
            Some(why) => Err(Failure::new(why)),
            None => Ok(()),
        }
    }

    async fn stop(&self, order: &StopOrder) {
        if self.fate == Fate::HangStopUntilUrgent {
            order.urgent().await;
        }
        let now = BootTime::now();
        for stint in self.stints.lock().unwrap().iter_mut().filter(|s| s.member == self.member) {
            stint.ended.get_or_insert(now);
        }
        let (by, reason) = (order.by(), order.reason());
        if now > by {
            let late = now.duration_since(by);
            let delays = self.delays.since(by - TIMEOUT).await;
            assert!(
                late <= delays,
                "{} stops {late:?} after its deadline ({reason}), delays {delays:?}",
                self.member
            );
        }
    }
}

pub(crate) fn elector() -> Recipe {
    Recipe::Elector(Arc::new(EastFirst))
}

/// Site east before site west; after a failure another site than the failed one.
#[derive(Debug)]
pub(crate) struct EastFirst;

impl Strategy for EastFirst {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut ranking = Ranking::default();
        for member in round.candidates {
            let named = member.named();
            let unfit = match &member.health {
                Health::Unhealthy { reason } => Some(reason.clone()),
                Health::Unknown if round.incumbent != Some(&member.ballot) => {
                    Some("not known yet".to_owned())
                }
                Health::Unknown | Health::Unchecked | Health::Healthy => None,
            };
            if let Some(reason) = unfit {
                ranking.refused.push(Refused::new(named, "healthy", reason));
            } else if round.exclusions.iter().any(|e| e.ballot == member.ballot) {
                ranking.refused.push(Refused::new(named, "not-excluded", "it is excluded"));
            } else {
                ranking.order.push(Ranked::new(named, vec![format!("site {}", member.site)]));
            }
        }
        let failed = round.failed.map(|f| &f.site);
        ranking.order.sort_by_key(|r| {
            let elective = round.cause == election_core::internals::record::Cause::BetterCandidate;
            let incumbent = elective && round.incumbent == Some(&r.named.ballot);
            (!incumbent, failed == Some(&r.named.site), r.named.site.clone(), r.named.ballot.clone())
        });
        let east = ranking.order.iter().any(|r| r.named.site.as_str() == "east");
        ranking.worth_waiting = (!east).then(|| "nobody of site east is there yet".to_owned());
        ranking
    }
}
