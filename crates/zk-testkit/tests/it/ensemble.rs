//! The launcher, against real servers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::RawClient;
use zk_session::{CreateMode, Session};
use zk_testkit::{Ensemble, Error, Installation, Mode, PortReservation};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn three_servers_serve_with_one_leader_and_end_with_the_value() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let pids: Vec<u32> = ensemble.servers().iter().filter_map(|server| server.pid()).collect();
    let dir = ensemble.dir().to_path_buf();
    assert_eq!(pids.len(), 3);
    assert_eq!(ensemble.connect_string().split(',').count(), 3);

    let mut leaders = 0;
    for index in 0..3 {
        match ensemble.mode(index).await {
            Some(Mode::Leader) => leaders += 1,
            Some(Mode::Follower) => {}
            other => panic!("server {index} is {other:?}"),
        }
    }
    assert_eq!(leaders, 1);
    let conf = ensemble.admin(0, "conf").await.unwrap();
    assert!(conf.contains("tickTime=500"), "{conf}");
    assert!(conf.contains("minSessionTimeout=1000"), "{conf}");

    drop(ensemble);
    assert!(!dir.exists(), "{} is left", dir.display());
    assert_eq!(alive(&pids), Vec::<u32>::new());
}

#[tokio::test]
async fn a_killed_leader_is_replaced_and_comes_back_on_the_same_address() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let first = ensemble.leader().await.unwrap();
    let address = ensemble.server(first).address();

    ensemble.kill(first).await.unwrap();
    assert_eq!(ensemble.server(first).pid(), None);
    assert!(matches!(
        ensemble.kill(first).await,
        Err(Error::NotRunning { server }) if server == first
    ));
    let second = leader_other_than(&ensemble, first).await;

    ensemble.start_server(first).await.unwrap();
    ensemble.wait_server_serving(first, SOON).await.unwrap();
    assert_eq!(ensemble.server(first).address(), address);
    assert_eq!(ensemble.mode(first).await, Some(Mode::Follower));
    assert_eq!(ensemble.leader().await, Some(second));
    assert!(matches!(ensemble.start_server(first).await, Err(Error::AlreadyRunning { .. })));
}

#[tokio::test]
async fn a_crash_is_an_error_whatever_was_asked_before() {
    use nix::sys::signal::{Signal, kill};
    let ensemble = Ensemble::start(1).await.unwrap();
    let pid = ensemble.server(0).pid().unwrap();
    kill(nix::unistd::Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    wait_until("it is gone", || ensemble.server(0).pid().is_none());
    assert_eq!(ensemble.leader().await, None);
    assert!(matches!(ensemble.stop(0).await, Err(Error::NotRunning { server: 0 })));
    let said = ensemble.wait_serving(SOON).await.unwrap_err();
    assert!(matches!(said, Error::Exited { server: 0, .. }), "{said}");

    ensemble.start_server(0).await.unwrap();
    ensemble.kill(0).await.unwrap();
    ensemble.wait_serving(SOON).await.expect("an end that was ordered is no error");
}

#[tokio::test]
async fn a_stopped_majority_takes_the_service_away() {
    let ensemble = Ensemble::start(3).await.unwrap();
    ensemble.stop(0).await.unwrap();
    ensemble.stop(1).await.unwrap();
    let deadline = Instant::now() + SOON;
    while ensemble.mode(2).await.is_some() {
        assert!(Instant::now() < deadline, "one of three goes on serving");
    }
    // It listens again, but can't serve alone.
    assert_eq!(ensemble.leader().await, None);
    ensemble.start_server(0).await.unwrap();
    ensemble.wait_serving(SOON).await.unwrap();
    assert!(ensemble.leader().await.is_some());
}

#[tokio::test]
async fn a_rolling_restart_keeps_every_session() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let before: Vec<_> = ensemble.servers().iter().map(|server| server.pid()).collect();
    let session = Session::builder(ensemble.connect_string())
        .session_timeout(Duration::from_secs(10))
        .connect()
        .await
        .unwrap();
    let incarnation = session.active().await.unwrap();
    incarnation.create("/kept", "by its session", CreateMode::Ephemeral).await.unwrap();

    ensemble.rolling_restart(SOON).await.unwrap();

    let after: Vec<_> = ensemble.servers().iter().map(|server| server.pid()).collect();
    assert!(before.iter().zip(&after).all(|(old, new)| new.is_some() && old != new), "{before:?} {after:?}");
    assert!(!incarnation.is_over(), "its session is still the same");
    assert!(session.get("/kept").await.unwrap().is_some());
    assert_eq!(session.active().await.unwrap().session_id(), incarnation.session_id());
}

#[tokio::test]
async fn a_paused_server_answers_nothing_until_resumed() {
    let ensemble = Ensemble::builder().servers(1).start().await.unwrap();
    assert_eq!(ensemble.mode(0).await, Some(Mode::Standalone));
    ensemble.faults().pause(0).unwrap();
    let silent = ensemble.admin(0, "srvr").await.unwrap_err().to_string();
    assert!(silent.contains("no answer to 'srvr'"), "{silent}");
    ensemble.faults().resume(0).unwrap();
    ensemble.wait_serving(SOON).await.unwrap();
    // A paused server can be stopped, and dropped, too.
    ensemble.faults().pause(0).unwrap();
    ensemble.stop(0).await.unwrap();
}

#[tokio::test]
async fn settings_reach_the_servers() {
    let ensemble = Ensemble::builder()
        .servers(1)
        .tick_time(Duration::from_millis(200))
        .session_timeouts(Duration::from_millis(300), Duration::from_secs(7))
        .setting("maxClientCnxns", "17")
        .start()
        .await
        .unwrap();
    let conf = ensemble.admin(0, "conf").await.unwrap();
    for line in ["tickTime=200", "minSessionTimeout=300", "maxSessionTimeout=7000", "maxClientCnxns=17"] {
        assert!(conf.contains(line), "no {line} in:\n{conf}");
    }
}

#[tokio::test]
async fn bad_settings_start_nothing() {
    for (builder, expected) in [
        (Ensemble::builder().servers(0), "servers is 0: it must be from 1 to 9"),
        (Ensemble::builder().with(|settings| settings.detached = true), "needs dir"),
        (Ensemble::builder().with(|settings| settings.base_port = Some(65_530)), "need 9 ports"),
        (
            Ensemble::builder().session_timeouts(SOON, Duration::from_secs(1)),
            "the longest of session_timeouts is 1s",
        ),
    ] {
        let said = builder.start().await.unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn the_last_ports_and_the_longest_time_can_be_chosen() {
    let builder = Ensemble::builder().servers(1).with(|settings| settings.base_port = Some(65_533));
    let ensemble = builder.start().await.unwrap();
    assert_eq!(ensemble.addresses()[0].port(), 65_533);
    ensemble.wait_serving(Duration::MAX).await.unwrap();
    ensemble.wait_server_serving(0, Duration::MAX).await.unwrap();
}

#[tokio::test]
async fn a_fixed_port_in_use_is_named() {
    let reserved = PortReservation::take(3).unwrap();
    let base = reserved.ports()[0];
    let _taken = std::net::TcpListener::bind(("127.0.0.1", base)).unwrap();
    let builder = Ensemble::builder().servers(1).with(|settings| settings.base_port = Some(base));
    let said = builder.start().await.unwrap_err().to_string();
    assert!(said.contains(&format!("port {base} on 127.0.0.1 is in use")), "{said}");
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let builder = Ensemble::builder().servers(1).setting("tickTime", "soon");
    let said = builder.start().await.unwrap_err().to_string();
    assert!(said.contains("server 0 ended unexpectedly"), "{said}");
    assert!(said.contains("soon"), "the log's end is missing: {said}");
}

#[tokio::test]
async fn a_detached_ensemble_is_found_again_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = end_with_this_process(dir.path());
    let ports = PortReservation::take(3).unwrap();
    let builder = || {
        Ensemble::builder().servers(1).with(|settings| {
            settings.base_port = Some(ports.ports()[0]);
            settings.dir = Some(dir.path().into());
            settings.detached = true;
            settings.ttl_nodes = true;
        })
    };
    let started = builder().start().await.unwrap();
    let (connect, pid) = (started.connect_string(), started.server(0).pid().unwrap());
    let again = builder().start().await.unwrap_err();
    assert!(matches!(again, Error::AlreadyRunning { server: 0, .. }), "{again}");
    drop(started);
    assert_eq!(alive(&[pid]), [pid], "it ended with the value");

    let found = Ensemble::attach(dir.path()).unwrap();
    assert_eq!(found.connect_string(), connect);
    assert_eq!(found.server(0).pid(), Some(pid));
    found.wait_serving(SOON).await.unwrap();
    // It starts again with what is set on its command line, too.
    found.stop(0).await.unwrap();
    found.start_server(0).await.unwrap();
    found.wait_serving(SOON).await.unwrap();
    let mut client = RawClient::connect(found.addresses()[0]).await.unwrap();
    assert_eq!(client.create_ttl("/for-a-while", 60_000).await.unwrap().error, 0);
    let pid = found.server(0).pid().unwrap();
    found.end();
    assert_eq!(alive(&[pid]), Vec::<u32>::new());

    let found = Ensemble::attach(dir.path()).unwrap();
    assert_eq!(found.server(0).pid(), None, "a stale pid file was believed");
    // The pipe ends, and with it the watch.
    drop(watch.stdin.take());
    watch.wait().unwrap();
}

#[test]
fn attaching_to_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let said = Ensemble::attach(dir.path()).unwrap_err().to_string();
    assert!(said.contains("no ensemble in"), "{said}");
}

#[tokio::test]
async fn dropping_the_start_ends_what_was_started() {
    let dir = tempfile::tempdir().unwrap();
    let mut start = Box::pin(
        Ensemble::builder().servers(1).with(|settings| settings.dir = Some(dir.path().into())).start(),
    );
    let pid = tokio::select! {
        _ = &mut start => panic!("it served before its pid was seen"),
        pid = pid_in(dir.path().join("server-0/pid")) => pid,
    };
    // Its command line is empty for the moment in which it becomes java.
    wait_until("the server runs", || alive(&[pid]) == [pid]);
    drop(start);
    assert_eq!(alive(&[pid]), Vec::<u32>::new());
}

/// Ends a process that has started an ensemble by SIGKILL: nothing of its own
/// runs any more, and yet nothing may be left.
#[test]
fn nothing_is_left_when_the_process_is_killed() {
    const CHILD: &str = "ZK_TESTKIT_TEST_CHILD_DIR";
    if let Some(report) = std::env::var_os(CHILD) {
        child_that_waits(Path::new(&report));
    }
    let report = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ensemble::nothing_is_left_when_the_process_is_killed"])
        .env(CHILD, report.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let told = report.path().join("told");
    wait_until("the child's ensemble serves", || told.exists());
    let told = std::fs::read_to_string(told).unwrap();
    let mut lines = told.lines();
    let dir = PathBuf::from(lines.next().unwrap());
    let pids: Vec<u32> = lines.map(|line| line.parse().unwrap()).collect();
    assert_eq!(alive(&pids), pids);

    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the servers are gone", || alive(&pids).is_empty());
    wait_until("the files are gone", || !dir.exists());
}

fn child_that_waits(report: &Path) -> ! {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ensemble = runtime.block_on(Ensemble::start(2)).unwrap();
    let mut told = format!("{}\n", ensemble.dir().display());
    for server in ensemble.servers() {
        told.push_str(&format!("{}\n", server.pid().unwrap()));
    }
    // Whole or not at all: the parent reads as soon as it sees the name.
    std::fs::write(report.join("telling"), told).unwrap();
    std::fs::rename(report.join("telling"), report.join("told")).unwrap();
    loop {
        std::thread::park();
    }
}

/// Ends a detached server, and removes its files, should this test be killed.
fn end_with_this_process(dir: &Path) -> std::process::Child {
    use std::os::unix::process::CommandExt as _;
    let script = r#"read -r _; pid=$(cat "$DIR/server-0/pid")
        grep -qsF "$DIR/" "/proc/$pid/cmdline" && kill -9 "$pid"; rm -rf "$DIR""#;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).env("DIR", dir).process_group(0).stdin(Stdio::piped());
    shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn two_reservations_share_no_port() {
    // More ports than one lock file covers.
    const COUNT: usize = 19;
    let [first, second] = [(); 2].map(|()| PortReservation::take(COUNT).unwrap());
    let all: HashSet<u16> = first.ports().iter().chain(second.ports()).copied().collect();
    assert_eq!(all.len(), 2 * COUNT);
    let said = PortReservation::take(usize::MAX).unwrap_err().to_string();
    assert!(said.contains("there are no"), "{said}");
}

/// A home with these files, and what is made of it.
fn home(files: &[&str]) -> (tempfile::TempDir, Result<Installation, Error>) {
    let home = tempfile::tempdir().unwrap();
    for file in files.iter().map(|file| home.path().join(file)) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"").unwrap();
    }
    let found = Installation::at(home.path());
    (home, found)
}

#[test]
fn refuses_a_home_without_zookeeper() {
    let (_home, found) = home(&["lib/zookeeper-jute-3.9.3.jar", "usr/share/java/zookeeper.jar"]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("ZOOKEEPER_HOME is"), "{said}");
}

#[test]
fn takes_all_jars_of_a_release() {
    let (_home, found) = home(&["lib/zookeeper-jute-3.9.3.jar", "lib/zookeeper-3.9.3.jar"]);
    let found = found.unwrap();
    assert!(found.class_path().to_string_lossy().ends_with("/lib/*"));
    assert_eq!(found.version(), Some("3.9.3"));
}

#[test]
fn takes_unpacked_packages_with_zookeeper_last() {
    let needed = "slf4j-api slf4j-simple metrics-core snappy-java commons-cli commons-io netty-common \
                  netty-buffer netty-transport netty-transport-native-epoll netty-handler zookeeper-jute \
                  zookeeper zookeeper-3.8.0 netty-codec";
    let jars: Vec<String> = needed.split(' ').map(|jar| format!("usr/share/java/{jar}.jar")).collect();
    let (_home, found) = home(&jars.iter().map(String::as_str).collect::<Vec<_>>());
    let found = found.unwrap();
    let class_path = found.class_path().to_string_lossy();
    assert!(
        class_path.ends_with("/zookeeper.jar") && class_path.contains("/netty-codec.jar:"),
        "{class_path}"
    );
    assert!(!class_path.contains("netty-resolver"), "{class_path}");
    assert_eq!(found.version(), Some("3.8.0"));
}

async fn leader_other_than(ensemble: &Ensemble, old: usize) -> usize {
    let deadline = Instant::now() + SOON;
    loop {
        match ensemble.leader().await {
            Some(leader) if leader != old => return leader,
            _ => assert!(Instant::now() < deadline, "no new leader within {SOON:?}"),
        }
    }
}

async fn pid_in(file: PathBuf) -> u32 {
    loop {
        if let Ok(text) = std::fs::read_to_string(&file)
            && let Ok(pid) = text.trim().parse()
        {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Those of the processes that run, which a zombie does not.
fn alive(pids: &[u32]) -> Vec<u32> {
    let runs = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    };
    pids.iter().copied().filter(runs).collect()
}
