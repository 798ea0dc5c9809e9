//! The named settings of servers, each by what servers do that are started without it and with it.

use std::fmt::Debug;
use std::process::Command;
use std::time::Duration;

use crate::support::RawClient;
use crate::wire::{Client, NO_PASSWORD, OK, OPEN, create, set, word};
use tokio::time::timeout;
use zk_proto::{ErrorCode, Request};
use zk_testkit::{Ensemble, EnsembleBuilder, Error, Mode, Release, Servers, TestServer, TestServerBuilder};

const SOON: Duration = Duration::from_secs(30);
/// For what must not come.
const A_WHILE: Duration = Duration::from_millis(500);

// ZooKeeper's numbers.
const READ: i32 = 1;
const UNIMPLEMENTED: i32 = -6;
const NO_AUTH: i32 = -102;
const EPHEMERAL: i32 = 1;

/// The named server and the ensemble's leader, of three servers; the leader is another one.
async fn three(builder: EnsembleBuilder) -> (Ensemble, usize, usize) {
    let ensemble = builder.servers(3).start().await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    (ensemble, (leader + 1) % 3, leader)
}

#[tokio::test]
async fn a_server_that_checks_access_lists_early_refuses_by_itself() {
    for eager in [false, true] {
        // Of servers that are cut off a client of the one is answered, one of the other is not.
        let builder = Ensemble::builder().sync_limit(100).with(|settings| {
            settings.breakable_links = true;
            settings.eager_acl_check = eager;
        });
        let (ensemble, follower, _) = three(builder).await;
        let mut client = RawClient::connect(ensemble.server(follower).address()).await.unwrap();
        assert_eq!(client.create_allowing("/locked", READ).await.unwrap().error, 0);
        ensemble.faults().isolate(follower).unwrap();
        let xid = client.send_create("/locked/child").await.unwrap();
        if eager {
            let refused = timeout(SOON, client.reply_to(xid)).await.expect("an answer").unwrap();
            assert_eq!(refused.error, NO_AUTH);
        } else {
            assert!(timeout(A_WHILE, client.reply_to(xid)).await.is_err());
        }
    }
}

/// At both ends.
#[tokio::test]
async fn settings_out_of_range_are_an_error() {
    type Set = (&'static str, fn(EnsembleBuilder, Duration) -> EnsembleBuilder);
    type SetEmbedded = (&'static str, fn(TestServerBuilder, Duration) -> TestServerBuilder);
    let is_refused = |name: &str, value: &dyn Debug, error: Option<Error>| {
        assert!(matches!(error, Some(Error::Settings(_))), "{name} of {value:?}: {error:?}");
    };
    let durations: [Set; 5] = [
        ("tick_time", EnsembleBuilder::tick_time),
        ("session_timeouts, min", |builder, min| builder.session_timeouts(min, Duration::MAX)),
        ("session_timeouts, max", |builder, max| builder.session_timeouts(A_WHILE, max)),
        ("container_check", |builder, every| builder.with(|settings| settings.container_check = Some(every))),
        ("start_within", |builder, within| builder.with(|settings| settings.start_within = within)),
    ];
    let of_embedded: [SetEmbedded; 5] = [
        ("tick_time", TestServerBuilder::tick_time),
        ("session_timeouts, min", |builder, min| builder.session_timeouts(min, Duration::MAX)),
        ("session_timeouts, max", |builder, max| builder.session_timeouts(A_WHILE, max)),
        ("container_check", |builder, every| builder.with(|settings| settings.container_check = every)),
        ("handshake_timeout", |builder, limit| builder.with(|settings| settings.handshake_timeout = limit)),
    ];
    for end in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        for (name, set) in durations {
            is_refused(name, &end, set(Ensemble::builder(), end).start().await.err());
        }
        for (name, set) in of_embedded {
            is_refused(name, &end, set(TestServer::builder(), end).start().await.err());
        }
    }
    for end in [0, usize::MAX] {
        is_refused("servers", &end, Ensemble::builder().servers(end).start().await.err());
        is_refused("servers", &end, TestServer::builder().servers(end).start().await.err());
        is_refused(
            "max_request",
            &end,
            TestServer::builder().with(|settings| settings.max_request = end).start().await.err(),
        );
    }
    is_refused(
        "observers",
        &usize::MAX,
        Ensemble::builder().with(|settings| settings.observers = usize::MAX).start().await.err(),
    );
    for end in [0, u32::MAX] {
        is_refused(
            "init_limit",
            &end,
            Ensemble::builder().with(|settings| settings.init_limit = end).start().await.err(),
        );
        is_refused("sync_limit", &end, Ensemble::builder().sync_limit(end).start().await.err());
        is_refused("sync_limit", &end, TestServer::builder().sync_limit(end).start().await.err());
    }
}

#[tokio::test]
async fn znodes_may_have_a_time_to_live() {
    for enabled in [false, true] {
        let builder = Ensemble::builder().servers(1).with(|settings| {
            settings.ttl_nodes = enabled;
            settings.container_check = Some(A_WHILE);
        });
        let ensemble = builder.start().await.unwrap();
        let mut client = RawClient::connect(ensemble.addresses()[0]).await.unwrap();
        let error = client.create_ttl("/short", 1).await.unwrap().error;
        assert_eq!(error, if enabled { 0 } else { UNIMPLEMENTED });
        until("the znode is gone", async || !client.exists("/short").await.unwrap()).await;
    }
}

#[tokio::test]
async fn sessions_are_local_until_they_create_an_ephemeral() {
    let (ensemble, follower, leader) =
        three(Ensemble::builder().with(|settings| settings.local_sessions = true)).await;
    let mut client = RawClient::connect(ensemble.server(follower).address()).await.unwrap();
    assert_eq!(client.create("/by-a-local-session").await.unwrap().error, 0);
    // The number of times at which some expire, then that of sessions.
    let sessions = async || {
        let dump = ensemble.admin(leader, "dump").await.unwrap();
        let global = dump.lines().find(|line| line.starts_with("Global Session Sets")).unwrap_or(&dump);
        global.to_owned()
    };
    let before = sessions().await;
    assert!(before.ends_with("/(0):"), "{before}");
    assert_eq!(client.create_ephemeral("/ephemeral").await.unwrap().error, 0);
    let after = sessions().await;
    assert!(after.ends_with("/(1):"), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_a_quorum_answers_reads() {
    let ensemble =
        Ensemble::builder().servers(3).with(|settings| settings.read_only_mode = true).start().await.unwrap();
    answers_reads_without_a_quorum(&Servers::Apache(Box::new(ensemble))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn so_does_an_embedded_one() {
    for release in [Release::V3_8, Release::V3_9] {
        let server = TestServer::builder().servers(3).with(|settings| {
            settings.release = release;
            settings.read_only_mode = true;
        });
        answers_reads_without_a_quorum(&Servers::Embedded(server.start().await.unwrap())).await;
    }
}

async fn answers_reads_without_a_quorum(servers: &Servers) {
    let leader = servers.leader().await.unwrap();
    let [lone, other] = [(leader + 1) % 3, (leader + 2) % 3];
    let address = servers.addresses()[lone];
    let says = |name: &str| word(address, name).unwrap();
    let mut client = Client::new(address).unwrap();
    assert_eq!(says("isro"), "rw");
    assert_eq!(client.create("/before", 0).unwrap(), OK);
    assert_eq!(client.create("/its", EPHEMERAL).unwrap(), OK);
    servers.stop(leader).await.unwrap();
    servers.stop(other).await.unwrap();
    until("it is read-only", async || says("isro") == "ro").await;
    assert!(says("srvr").contains("Mode: read-only"), "{}", says("srvr"));
    assert!(says("stat").contains("Mode: read-only"), "{}", says("stat"));
    assert_eq!(servers.leader().await, None);
    assert!(client.is_closed());

    assert!(Client::new(address).is_err(), "a client that wants more is let in");
    assert!(client.back_at(address, 0).is_err(), "a client that wants more is let in");
    let known_to_all = Client::to_read(address, client.session, &client.password);
    assert!(known_to_all.is_err(), "it can't be renewed");
    let mut reader = Client::to_read(address, 0, NO_PASSWORD).unwrap();
    assert!(reader.read_only && reader.session != 0);
    let path = "/before";
    for read in [
        Request::Exists { path: path.into(), watch: true },
        Request::GetData { path: path.into(), watch: false },
        Request::GetAcl { path: path.into() },
        Request::WhoAmI,
        Request::MultiRead(vec![Request::GetData { path: path.into(), watch: false }]),
        Request::Ping,
    ] {
        assert_eq!(reader.do_it(&read).unwrap(), OK, "{read:?}");
    }
    for write in [
        create("/after", 0),
        create("none", 0),
        Request::Delete { path: path.into(), version: -1 },
        set(path, b"new"),
        Request::SetAcl { path: path.into(), acl: vec![OPEN], version: -1 },
        Request::Multi(Vec::new()),
        Request::Multi(vec![create("/after", 0)]),
        Request::Sync { path: path.into() },
    ] {
        let refused = reader.reply(&write).unwrap();
        assert_eq!(refused.header.error, ErrorCode::NOT_READ_ONLY, "{write:?}");
        assert_eq!(refused.body(), b"");
    }

    // Its session can be taken up again, at this server and while it has no quorum.
    let back = |of: &Client| Client::to_read(address, of.session, &of.password).unwrap();
    assert_eq!(Client::to_read(address, reader.session, NO_PASSWORD).unwrap().session, 0);
    let mut again = back(&reader);
    assert_eq!(again.session, reader.session);
    assert!(reader.is_closed());
    let mut ended = Client::to_read(address, 0, NO_PASSWORD).unwrap();
    assert_eq!(ended.do_it(&Request::CloseSession).unwrap(), OK);
    assert!(ended.is_closed());
    assert_eq!(back(&ended).session, 0);

    servers.start_server(other).await.unwrap();
    assert!(again.is_closed(), "not when there is a quorum again");
    until("it serves", async || says("isro") == "rw").await;
    assert_eq!(back(&again).session, 0);
    let mut writer = Client::to_read(address, 0, NO_PASSWORD).unwrap();
    assert!(!writer.read_only);
    assert_eq!(writer.create("/after", 0).unwrap(), OK);
    let back = client.back_at(address, 0).unwrap();
    assert_eq!(back.session, client.session);
    assert!(writer.exists("/its").unwrap());
}

#[tokio::test]
async fn an_observer_serves_and_has_no_vote() {
    let builder = Ensemble::builder().servers(3).with(|settings| settings.observers = 1);
    let ensemble = builder.start().await.unwrap();
    assert_eq!(ensemble.mode(2).await, Some(Mode::Observer));
    let mut client = RawClient::connect(ensemble.server(2).address()).await.unwrap();
    assert_eq!(client.create("/by-the-observer").await.unwrap().error, 0);
    // Two of three are there, and only one that counts.
    ensemble.kill(0).await.unwrap();
    until("it no longer serves", async || ensemble.mode(2).await.is_none()).await;
    assert_eq!(ensemble.leader().await, None);

    let refused =
        Ensemble::builder().servers(2).with(|settings| settings.observers = 1).start().await.unwrap_err();
    assert!(matches!(&refused, Error::Settings(what) if what.contains("observers")), "{refused}");
}

#[tokio::test]
async fn clients_get_in_by_tls_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [key, cert, both] = ["key.pem", "cert.pem", "both.pem"].map(|name| dir.path().join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=server",
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("the command openssl is needed to make a certificate");
    assert!(made.status.success(), "{made:?}");
    std::fs::write(&both, [std::fs::read(&cert).unwrap(), std::fs::read(&key).unwrap()].concat()).unwrap();

    let ensemble = Ensemble::builder()
        .servers(1)
        .with(|settings| settings.tls_only = Some([both, cert]))
        .start()
        .await
        .unwrap();
    assert_eq!(ensemble.mode(0).await, Some(Mode::Standalone));
    let address = ensemble.addresses()[0];
    let conf = ensemble.admin(0, "conf").await.unwrap();
    assert!(conf.contains(&format!("secureClientPort={}", address.port())), "{conf}");
    let plain = timeout(SOON, RawClient::connect(address)).await.expect("an answer");
    assert!(plain.is_err(), "without TLS");
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"));
}
