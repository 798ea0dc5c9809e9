//! The examples of election-core, run on an embedded server.

#[allow(dead_code, reason = "its main is for the example")]
#[path = "../../examples/latch.rs"]
mod latch;
#[allow(dead_code, reason = "its main is for the example")]
#[path = "../../examples/leader_only_server.rs"]
mod leader_only_server;
#[allow(dead_code, reason = "its main is for the example")]
#[path = "../../examples/many_elections.rs"]
mod many_elections;
#[allow(dead_code, reason = "its main is for the example")]
#[path = "../../examples/observer.rs"]
mod observer;
#[allow(dead_code, reason = "its main is for the example")]
#[path = "../../examples/singleton_task.rs"]
mod singleton_task;

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use zk_testkit::TestServer;

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn each_member_does_the_task_in_its_turn() {
    let server = TestServer::start().await.unwrap();
    let servers = server.connect_string();
    let both = async {
        tokio::try_join!(singleton_task::run(&servers, "host-1"), singleton_task::run(&servers, "host-2"))
    };
    assert_eq!(timeout(SOON, both).await.unwrap().unwrap(), (10, 10));
}

#[tokio::test]
async fn an_observer_sees_the_leader_of_a_latch() {
    let server = TestServer::start().await.unwrap();
    let servers = server.connect_string();
    let (told, mut changes) = mpsc::unbounded_channel();
    let first = async {
        loop {
            let change: election_core::status::LeaderChange = changes.recv().await.unwrap();
            if let Some(leader) = change.leader {
                return leader.member.to_string();
            }
        }
    };
    tokio::select! {
        _ = latch::run(&servers, "host-1") => panic!("a latch runs on"),
        _ = observer::run(&servers, "/examples/latch", |change| told.send(change).unwrap()) => {
            panic!("an observer follows on")
        }
        leader = timeout(SOON, first) => assert_eq!(leader.unwrap(), "host-1"),
    }
}

async fn get(address: std::net::SocketAddr) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn only_the_leader_serves() {
    let server = TestServer::start().await.unwrap();
    let servers = server.connect_string();
    let (one, two) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let addresses = [one.local_addr().unwrap(), two.local_addr().unwrap()];
    let checks = async {
        loop {
            let answers = [get(addresses[0]).await, get(addresses[1]).await];
            let served = answers.iter().filter(|answer| answer.starts_with("HTTP/1.0 200")).count();
            assert!(served <= 1, "{answers:?}");
            let named =
                answers.iter().any(|a| a.starts_with("HTTP/1.0 503") && a.contains("the leader is host-"));
            if served == 1 && named {
                return;
            }
            // Between two looks.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = leader_only_server::run(&servers, "host-1", one) => panic!("it serves on"),
        _ = leader_only_server::run(&servers, "host-2", two) => panic!("it serves on"),
        checked = timeout(SOON, checks) => checked.unwrap(),
    }
}

#[tokio::test]
async fn one_session_leads_many_elections() {
    let server = TestServer::start().await.unwrap();
    let servers = server.connect_string();
    let shards = timeout(SOON, many_elections::run(&servers, "host-1")).await.unwrap().unwrap();
    assert!(shards.iter().all(election_core::Latch::is_leader));
}
