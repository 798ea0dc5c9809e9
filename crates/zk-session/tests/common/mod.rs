//! What the tests over real servers share: one ensemble for a test binary, a session through a proxy, waiting for
//! conditions.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod server;
pub mod three;

use std::future::Future;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use zk_session::{BootTime, DriverKind, Session, SessionBuilder, SessionState, sleep_until};
use zk_testkit::{Ensemble, Installation, Proxy, ServerKind, Servers, TestServer};

/// The servers' tick.
pub const TICK: Duration = Duration::from_millis(500);
/// The session timeout of the tests, long enough for a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(4);
/// No condition is waited for longer than this.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server, a proxy in front of it and a builder for sessions through the proxy. Every test has its own.
pub struct Bed {
    pub ensemble: Servers,
    pub proxy: Proxy,
    pub driver: DriverKind,
}

impl Bed {
    pub async fn start(driver: DriverKind) -> Self {
        let ensemble = Servers::start(server_kind(), 1, TICK).await.unwrap();
        let proxy = Proxy::start(ensemble.addresses()[0]).await.unwrap();
        Self { ensemble, proxy, driver }
    }

    /// A builder for a session through the proxy.
    pub fn builder(&self) -> SessionBuilder {
        builder(self.driver, self.proxy.addr())
    }

    /// A session through the proxy.
    pub async fn session(&self) -> Session {
        self.builder().connect().await.unwrap()
    }

    /// A session past the proxy, by the default driver: an observer that no fault touches.
    pub async fn observer(&self) -> Session {
        builder(DriverKind::default(), self.ensemble.addresses()[0]).connect().await.unwrap()
    }

    /// Cuts the session off, lets something happen, and lets it come back.
    pub async fn while_cut(&self, session: &Session, happening: impl AsyncFnOnce()) {
        self.proxy.refuse(true).await.unwrap();
        self.proxy.cut().await;
        wait_state(session, "paused", |state| !state.is_active()).await;
        happening().await;
        self.proxy.refuse(false).await.unwrap();
        wait_state(session, "active", SessionState::is_active).await;
    }
}

tokio::task_local! {
    /// Which servers a test's bed has; Apache ZooKeeper unless it is said.
    pub static SERVERS: ServerKind;
}

pub fn server_kind() -> ServerKind {
    SERVERS.try_with(|kind| *kind).unwrap_or_default()
}

/// So many servers that grant session timeouts within these bounds and take any number of connections. They don't end
/// with the runtime of the test that starts them.
pub async fn servers(number: usize, tick: Duration, (least, most): (Duration, Duration)) -> Servers {
    /// Ticks; a busy machine makes servers wait for each other.
    const SYNC_LIMIT: u32 = 50;
    match server_kind() {
        ServerKind::Apache => {
            let builder = Ensemble::builder().servers(number).tick_time(tick).sync_limit(SYNC_LIMIT);
            let builder = builder.session_timeouts(least, most).setting("maxClientCnxns", "0");
            Servers::Apache(Box::new(builder.start().await.unwrap()))
        }
        ServerKind::Embedded => {
            let builder = TestServer::builder().servers(number).tick_time(tick).sync_limit(SYNC_LIMIT);
            Servers::Embedded(builder.session_timeouts(least, most).start_on_thread().unwrap())
        }
    }
}

pub fn builder(driver: DriverKind, address: SocketAddr) -> SessionBuilder {
    builder_for(driver, address.to_string())
}

/// A builder for a session with any of these servers.
pub fn builder_for(driver: DriverKind, connect: String) -> SessionBuilder {
    Session::builder(connect)
        .driver(driver)
        .session_timeout(TIMEOUT)
        .connect_timeout(Duration::from_secs(15))
        .operation_timeout(Duration::from_secs(15))
        .tick_time(TICK)
}

/// From now on nobody may delete a child of the root, nor change that.
pub fn forbid_deletions_below_the_root(connect: &str) {
    let installation = Installation::find().unwrap();
    let done = Command::new(installation.java())
        .arg("-cp")
        .arg(installation.class_path())
        .args(["org.apache.zookeeper.ZooKeeperMain", "-server", connect])
        .args(["setAcl", "/", "world:anyone:crw"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Waits until the state is such.
pub async fn wait_state(
    session: &Session,
    what: &str,
    condition: impl FnMut(&SessionState) -> bool,
) -> SessionState {
    let mut states = session.subscribe();
    wait_for(&mut states, what, condition).await
}

/// Waits until the watched value is such.
pub async fn wait_for<T: Clone + std::fmt::Debug>(
    values: &mut watch::Receiver<T>,
    what: &str,
    condition: impl FnMut(&T) -> bool,
) -> T {
    let last = values.clone();
    match tokio::time::timeout(PATIENCE, values.wait_for(condition)).await {
        Ok(value) => value.expect("the sender lives").clone(),
        Err(_) => panic!("not within {PATIENCE:?}: {what}; it is {:?}", *last.borrow()),
    }
}

/// The output of `future`, which must come within [`PATIENCE`].
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// How late this test is woken: what a busy machine adds to the times that it measures.
pub struct Lateness(watch::Receiver<Duration>);

impl Lateness {
    /// Looks on until it is dropped.
    pub fn watch() -> Self {
        const PACE: Duration = Duration::from_millis(10);
        let (sender, most) = watch::channel(Duration::ZERO);
        tokio::spawn(async move {
            while !sender.is_closed() {
                let due = BootTime::now() + PACE;
                sleep_until(due).await;
                let late = BootTime::now().duration_since(due);
                sender.send_if_modified(|most| late > std::mem::replace(most, late.max(*most)));
            }
        });
        Self(most)
    }

    /// The most so far.
    pub fn most(&self) -> Duration {
        *self.0.borrow()
    }
}

/// Waits until a condition that can only be asked for is true.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// What a server says to one of its four-letter words.
pub async fn four_letters(address: SocketAddr, word: &str) -> String {
    soon("an answer to a four-letter word", async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    })
    .await
}

/// One of the numbers of the word `mntr`.
pub async fn monitored(address: SocketAddr, name: &str) -> u64 {
    let answer = four_letters(address, "mntr").await;
    let mut lines = answer.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let (_, number) = lines.find(|(key, _)| *key == name).unwrap_or_else(|| panic!("no {name}: {answer}"));
    number.trim().parse().unwrap()
}

/// A seed for what is left to chance, printed, and taken from `ZK_SESSION_SEED` to replay it.
pub fn seed() -> u64 {
    let given = std::env::var("ZK_SESSION_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("ZK_SESSION_SEED={seed}");
    seed
}

/// Collects what was logged, for a test that fails.
pub fn log() {
    static ONCE: Mutex<bool> = Mutex::new(false);
    let mut done = ONCE.lock().unwrap();
    if !*done {
        *done = true;
        if let Ok(level) = std::env::var("ZK_SESSION_TEST_LOG") {
            let level: tracing_subscriber::filter::LevelFilter = level.parse().expect("a level");
            tracing_subscriber::fmt().with_max_level(level).with_test_writer().init();
        }
    }
}

/// All that is logged in this process, at every level.
#[derive(Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// The same for all tests of this process, from the first call on.
    pub fn of_process() -> Self {
        static ALL: OnceLock<Captured> = OnceLock::new();
        let begin = || {
            let captured = Self::default();
            let writer = captured.clone();
            tracing_subscriber::fmt()
                .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            captured
        };
        ALL.get_or_init(begin).clone()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Neither as text nor as the list of numbers that `Debug` makes of bytes.
    pub fn assert_without(&self, secret: &str) {
        let numbers = format!("{:?}", secret.as_bytes());
        let numbers = numbers.trim_matches(['[', ']']);
        for line in self.text().lines() {
            assert!(!line.contains(secret) && !line.contains(numbers), "{line}");
        }
    }
}

impl std::io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Each test for each driver that is compiled in, on Apache ZooKeeper. Those for the other driver are doubles: they run
/// by `cargo xtask test --full`.
#[macro_export]
macro_rules! for_each_driver {
    ($($name:ident),+ $(,)?) => {
        $crate::tests_on!(native, Native, Apache, $($name),+);
        #[cfg(feature = "zookeeper-async")]
        $crate::tests_on!(
            zookeeper_async, ZookeeperAsync, Apache,
            $(#[ignore = "double: the other driver; cargo xtask test --full"] $name),+
        );
    };
}

/// Each test for each driver, on Apache ZooKeeper and on the embedded server. For tests whose only servers are those of
/// [`Bed`] or [`Three`](three::Three). The tests after a semicolon run on Apache ZooKeeper alone. All but those of the
/// native driver on the embedded server, or after the semicolon, are doubles: they run by `cargo xtask test --full`.
#[macro_export]
macro_rules! on_each_server {
    ($($name:ident),+ $(; $($real:ident),+)? $(,)?) => {
        $crate::tests_on!(native_embedded, Native, Embedded, $($name),+);
        $crate::tests_on!(
            native, Native, Apache,
            $(#[ignore = "double: the other server; cargo xtask test --full"] $name,)+ $($($real),+)?
        );
        #[cfg(feature = "zookeeper-async")]
        $crate::tests_on!(
            zookeeper_async, ZookeeperAsync, Apache,
            $(#[ignore = "double: the other driver; cargo xtask test --full"] $name,)+
            $($(#[ignore = "double: the other driver; cargo xtask test --full"] $real),+)?
        );
        #[cfg(feature = "zookeeper-async")]
        $crate::tests_on!(
            zookeeper_async_embedded, ZookeeperAsync, Embedded,
            $(#[ignore = "double: the other driver; cargo xtask test --full"] $name),+
        );
    };
}

/// Each test for one driver and one kind of servers, in a module of that name.
#[macro_export]
macro_rules! tests_on {
    ($module:ident, $driver:ident, $servers:ident, $($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod $module {
            $($(#[$attribute])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::common::log();
                let test = super::$name(zk_session::DriverKind::$driver);
                $crate::common::SERVERS.scope(zk_testkit::ServerKind::$servers, test).await;
            })+
        }
    };
}
