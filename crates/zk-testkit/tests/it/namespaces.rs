//! Servers, each on a host of its own, that are cut off for real. Needs root, `ip` and
//! `iptables`: elsewhere these tests say so and pass; with `CI` set they fail.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::RawClient;
use tokio::time::timeout;
use zk_testkit::{Ensemble, Error, Host, Mode, Network};

const TICK: Duration = Duration::from_millis(200);
/// In ticks: two seconds.
const SYNC_LIMIT: u32 = 10;
const SOON: Duration = Duration::from_secs(30);
/// For what must not come.
const A_WHILE: Duration = Duration::from_millis(500);
/// A test that this binary starts as a process of its own.
const CHILD: &str = "ZK_TESTKIT_TEST_CHILD";

/// Runs a test on three servers, each on a host of its own.
async fn on_three_servers(test: impl AsyncFnOnce(Ensemble)) {
    if Network::available_or_skip() {
        let builder = Ensemble::builder().tick_time(TICK).sync_limit(SYNC_LIMIT).in_namespaces(true);
        let ensemble = builder.start().await.unwrap();
        timeout(4 * SOON, test(ensemble)).await.expect("nothing hangs");
    }
}

#[tokio::test]
async fn an_unplugged_follower_answers_nobody_and_catches_up_once_it_is_back() {
    on_three_servers(unplugged_follower).await;
}

#[tokio::test]
async fn an_isolated_leader_is_replaced_and_follows_once_it_is_back() {
    on_three_servers(isolated_leader).await;
}

async fn unplugged_follower(ensemble: Ensemble) {
    let leader = ensemble.leader().await.unwrap();
    let follower = (0..3).find(|index| *index != leader).unwrap();
    let address = |index: usize| ensemble.server(index).address();
    let mut inside = RawClient::connect(address(leader)).await.unwrap();
    let mut outside = RawClient::connect(address(follower)).await.unwrap();
    assert!(!outside.exists("/meanwhile").await.unwrap());

    ensemble.faults().unplug(follower).unwrap();
    assert!(timeout(A_WHILE, outside.ping()).await.is_err(), "it answers");
    assert!(timeout(A_WHILE, RawClient::connect(address(follower))).await.is_err(), "it takes clients");
    assert_eq!(inside.create("/meanwhile").await.unwrap().error, 0);
    assert_eq!(ensemble.leader().await, Some(leader));

    ensemble.faults().rejoin(follower).unwrap();
    ensemble.wait_serving(SOON).await.unwrap();
    let mut again = RawClient::connect(address(follower)).await.unwrap();
    assert!(again.exists("/meanwhile").await.unwrap());
}

async fn isolated_leader(ensemble: Ensemble) {
    let old = ensemble.leader().await.unwrap();
    let mut client = RawClient::connect(ensemble.server(old).address()).await.unwrap();

    ensemble.faults().isolate(old).unwrap();
    // The notices of an election are cut, too: the others choose one of themselves.
    let new = soon("another leader", async || {
        for index in (0..3).filter(|index| *index != old) {
            if ensemble.mode(index).await == Some(Mode::Leader) {
                return Some(index);
            }
        }
        None
    });
    let new = new.await;
    let mut inside = RawClient::connect(ensemble.server(new).address()).await.unwrap();
    assert_eq!(inside.create("/by-the-new-one").await.unwrap().error, 0);
    // Its clients still reach it; it has no majority to promise anything with.
    let refused = timeout(SOON, client.create("/by-the-old-one")).await;
    assert!(!matches!(&refused, Ok(Ok(reply)) if reply.error == 0), "{refused:?}");
    soon("the old one gives up", async || (ensemble.mode(old).await != Some(Mode::Leader)).then_some(()))
        .await;

    ensemble.faults().rejoin(old).unwrap();
    ensemble.wait_serving(SOON).await.unwrap();
    assert_eq!(ensemble.mode(old).await, Some(Mode::Follower));
    let mut again = RawClient::connect(ensemble.server(old).address()).await.unwrap();
    assert!(again.exists("/by-the-new-one").await.unwrap());
    assert!(!again.exists("/by-the-old-one").await.unwrap());
}

#[tokio::test]
async fn a_client_on_a_host_is_cut_off_from_one_server_and_not_from_the_other() {
    if !Network::available_or_skip() {
        return;
    }
    let ensemble = Ensemble::builder().servers(2).in_namespaces(true).start().await.unwrap();
    let client = ensemble.network().unwrap().host().unwrap();
    let [one, two] = [0, 1].map(|index| ensemble.server(index).address());
    assert_eq!((session(&client, one), session(&client, two)), (true, true));

    let host = ensemble.server(0).host().unwrap();
    client.cut_from(&[host.ip()]).unwrap();
    assert_eq!((session(&client, one), session(&client, two)), (false, true));
    client.unplug().unwrap();
    assert_eq!((session(&client, one), session(&client, two)), (false, false));
    client.heal().unwrap();
    assert_eq!((session(&client, one), session(&client, two)), (true, true));

    // Cut at the server's end, while this process still reaches it.
    host.cut_from(&[client.ip()]).unwrap();
    assert_eq!((session(&client, one), session(&client, two)), (false, true));
    assert!(RawClient::connect(one).await.is_ok());
}

/// Whether a thread on that host gets a session.
fn session(from: &Host, server: SocketAddr) -> bool {
    let connect = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(2 * A_WHILE, RawClient::connect(server)).await })
    };
    matches!(from.spawn(connect).unwrap().join().unwrap(), Ok(Ok(_)))
}

#[test]
fn two_networks_have_nothing_in_common_and_leave_nothing_behind() {
    if !Network::available_or_skip() {
        return;
    }
    let networks = [Network::new().unwrap(), Network::new().unwrap()];
    let hosts = [networks[0].host().unwrap(), networks[0].host().unwrap(), networks[1].host().unwrap()];
    assert_eq!(hosts.iter().map(Host::ip).collect::<HashSet<_>>().len(), 3);
    // This process is found by hosts of its network at the address of that network.
    let listener = TcpListener::bind((networks[0].own_address(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let reaches = |from: &Host, whom: Ipv4Addr| {
        let connect = move || TcpStream::connect_timeout(&SocketAddr::from((whom, port)), SOON);
        from.spawn(connect).unwrap().join().unwrap()
    };
    assert!(reaches(&hosts[0], networks[0].own_address()).is_ok());
    assert_eq!(listener.accept().unwrap().1.ip(), hosts[0].ip());
    // There is no way from one to the other.
    assert!(reaches(&hosts[2], networks[0].own_address()).is_err());

    let mut sleeper = hosts[1].command("sleep").arg("600").spawn().unwrap();
    let seen = hosts[1].command("ip").args(["-4", "-o", "addr"]).output().unwrap();
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(
        seen.contains(&hosts[1].ip().to_string()) && !seen.contains(&hosts[0].ip().to_string()),
        "{seen}"
    );
    let names: Vec<String> = hosts.iter().map(|host| host.namespace().to_owned()).collect();
    assert!(names.iter().all(|name| !leftovers(name).is_empty()), "not seen at all: {names:?}");
    drop(networks);
    wait_until("its processes are killed", || sleeper.try_wait().unwrap().is_some());
    for name in names {
        assert_eq!(leftovers(&name), Vec::<String>::new());
    }
    assert!(hosts[0].heal().unwrap_err().to_string().contains(hosts[0].namespace()));
    assert!(hosts[0].spawn(|| ()).unwrap_err().to_string().contains("/run/netns/"));
}

#[test]
fn a_killed_test_leaves_no_namespace_and_no_process() {
    if let Some(report) = std::env::var_os(CHILD) {
        serve_until_killed(Path::new(&report));
    }
    if !Network::available_or_skip() {
        return;
    }
    let report = tempfile::tempdir().unwrap();
    let told = report.path().join("told");
    let mut child = this_test("namespaces::a_killed_test_leaves_no_namespace_and_no_process");
    let mut child = child.env(CHILD, report.path()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the child's server serves", || told.exists());
    let told = std::fs::read_to_string(told).unwrap();
    let (namespace, pids) = told.split_once(' ').unwrap();
    let alive = || pids.split(' ').filter(|pid| runs(pid)).count();
    let (ran, network) = (alive(), leftovers(namespace));

    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ran, 2);
    assert!(network.len() >= 3, "{network:?}");
    wait_until("the processes are gone", || alive() == 0);
    wait_until("the network is gone", || leftovers(namespace).is_empty());
}

fn serve_until_killed(report: &Path) -> ! {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let builder = Ensemble::builder().servers(1).in_namespaces(true);
    let ensemble = runtime.block_on(builder.start()).unwrap();
    let host = ensemble.network().unwrap().host().unwrap();
    let mut sleeper = host.command("sleep").arg("600").spawn().unwrap();
    let pids = format!("{} {}", ensemble.server(0).pid().unwrap(), sleeper.id());
    // Whole or not at all: the parent reads as soon as it sees the name.
    std::fs::write(report.join("telling"), format!("{} {pids}", host.namespace())).unwrap();
    std::fs::rename(report.join("telling"), report.join("told")).unwrap();
    // By then the test has long failed.
    let _ = sleeper.wait();
    std::process::exit(1)
}

/// A machine without the programs: what a test says there, and that `CI` lets none of it pass.
#[test]
fn what_is_missing_is_named_and_skipped_but_not_in_ci() {
    if std::env::var_os(CHILD).is_some() {
        println!("available: {}", Network::available_or_skip());
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let run = |ci: Option<&str>| -> Output {
        let mut child = this_test("namespaces::what_is_missing_is_named_and_skipped_but_not_in_ci");
        child.env(CHILD, "").env("PATH", empty.path()).env_remove("CI");
        child.env_remove("TEST_SKIPS").arg("--nocapture");
        child.envs(ci.map(|value| ("CI", value))).output().unwrap()
    };
    let skipped = run(None);
    let said = String::from_utf8_lossy(&skipped.stderr);
    assert!(skipped.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&skipped.stdout).contains("available: false"));
    assert!(said.contains("SKIPPED: no network namespaces: `ip "), "{said}");
    assert!(said.contains("apt-get install iproute2 iptables"), "{said}");
    assert!(!run(Some("true")).status.success(), "it passes although nothing was tested");
}

#[tokio::test]
async fn settings_that_contradict_namespaces_are_refused() {
    let builder = || Ensemble::builder().in_namespaces(true);
    for builder in [
        builder().with(|settings| settings.base_port = Some(12_000)),
        builder().with(|settings| settings.breakable_links = true),
    ] {
        assert!(matches!(builder.start().await, Err(Error::Settings(_))));
    }
}

/// This binary, to run that test alone.
fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name]);
    command
}

/// Namespaces and interfaces of the network that the host of that name is on.
fn leftovers(host: &str) -> Vec<String> {
    let (network, _) = host.rsplit_once('-').unwrap();
    let mut left = Vec::new();
    for args in [["netns", "list"], ["-brief", "link"]] {
        let said = Command::new("ip").args(args).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let names = said.split(|part: char| !part.is_ascii_alphanumeric() && part != '-');
        let own = |name: &&str| name.split('-').next() == Some(network);
        left.extend(names.filter(own).map(str::to_owned));
    }
    left
}

/// A zombie has ended. (An empty command line proves nothing: so has a process in the middle of `execve`.)
fn runs(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn soon<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
