//! The commands where one server keeps a candidate's znode that the quorum has deleted.

use std::time::Duration;

use crate::support::{Outcome, dr_worker, set};
use zk_session::{CreateMode, Recovery, Session};
use zk_testkit::TestServer;

#[test]
fn doctor_and_remove_ghosts_name_the_server_and_the_znode() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tick = Duration::from_millis(500);
    let servers = TestServer::builder().servers(3).tick_time(tick).start_on_thread().unwrap();
    let kept = runtime.block_on(async {
        let session = Session::builder(servers.addresses()[1].to_string()).connect().await.unwrap();
        let ballot = "/haunted/orders/election/s00ghost.1-";
        session.create_parents(ballot).await.unwrap();
        let kept = session.create_sequential(ballot, "east-9", CreateMode::Ephemeral, Recovery::Name).await;
        let kept = kept.unwrap().path;
        servers.faults().keep_znode(1, &kept, true);
        session.close(Duration::from_secs(5)).await;
        kept
    });
    let server = servers.addresses()[1].to_string();
    let command = |words: &[&str]| {
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={}", servers.connect_string()),
                "zookeeper.root=/haunted",
                "zookeeper.tick_time=500ms",
                "zookeeper.session_timeout=6s",
                "node.id=operator",
            ],
        );
        Outcome::of(command.args(words))
    };
    let outcome = command(&["remove-ghosts", "--yes"]);
    outcome.assert(0, &[]);
    for part in [kept.as_str(), &server, "delete its data directory"] {
        assert!(outcome.stdout.contains(part), "{part}: {}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains("no ghosts"), "{}", outcome.stdout);
    let doctor = command(&["doctor"]).stdout;
    for part in ["server-disagrees", kept.as_str(), &server] {
        assert!(doctor.contains(part), "{part}: {doctor}");
    }
    servers.faults().copy_data(1);
    assert!(command(&["remove-ghosts", "--yes"]).stdout.contains("no ghosts"));
    assert!(!command(&["doctor"]).stdout.contains("server-disagrees"));
}
