//! Which of several ZooKeeper servers a worker uses: those of its own site first, and none on the host of a leader.

use std::net::{Ipv4Addr, SocketAddr};

use crate::support::{
    Running,
    stage::{Stage, leads},
    until,
};
use serde_json::Value;
use tokio::runtime::Runtime;
use zk_testkit::Proxy;

/// Ways to the server of all tests, each at an address of its own: to a worker they are servers on different hosts.
struct Servers {
    proxies: Vec<Proxy>,
    runtime: Runtime,
}

impl Servers {
    fn start(count: u8) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let server: SocketAddr = Stage::connect_string().parse().expect("one server");
        let at = |number| Proxy::start_at(Ipv4Addr::new(127, 0, 0, 2 + number), server);
        let proxies = (0..count).map(|number| runtime.block_on(at(number)).expect("a proxy")).collect();
        Self { proxies, runtime }
    }

    /// The settings of a worker that uses all of them, and one first.
    fn settings(&self, preferred: usize) -> [String; 2] {
        let all: Vec<_> = self.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        [format!("zookeeper.connect={}", all.join(",")), format!("zookeeper.prefer={}", all[preferred])]
    }

    /// The connections to each.
    fn connections(&self) -> Vec<usize> {
        self.proxies.iter().map(Proxy::connections).collect()
    }

    /// Ends the connections to one, and refuses others until it is back.
    fn lose(&self, number: usize) {
        self.runtime.block_on(async {
            self.proxies[number].refuse(true).await.expect("refused");
            self.proxies[number].cut().await;
        });
    }

    fn bring_back(&self, number: usize) {
        self.runtime.block_on(self.proxies[number].refuse(false)).expect("it listens");
    }
}

fn term(worker: &Running) -> Value {
    let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
    status["jobs"]["orders"]["term"].clone()
}

#[test]
fn the_preferred_server_is_used_first_and_again_when_it_is_back() {
    let (stage, servers) = (Stage::new("/preferred-server"), Servers::start(3));
    let [connect, prefer] = servers.settings(1);
    let worker = stage.worker("east-1", "east", &[&connect, &prefer]);
    until("it leads", || leads(&worker));
    until("it uses the preferred server", || servers.connections() == [0, 1, 0]);

    servers.lose(1);
    until("it uses another one", || {
        let now = servers.connections();
        now[1] == 0 && now.iter().sum::<usize>() == 1
    });
    until("it leads there", || leads(&worker));

    servers.bring_back(1);
    until("it is back", || servers.connections() == [0, 1, 0]);
    until("it leads here", || leads(&worker));
    assert_eq!(term(&worker), 1, "it has led all the time");
}

#[test]
fn the_server_on_the_host_of_the_leader_is_left_for_as_long_as_it_leads() {
    /// Patient, so that a busy machine moves no session.
    const FAST_FAILOVER: [&str; 3] =
        ["job.orders.fenced=true", "policy.fast_failover=true", "policy.suspect_after=3s"];
    let (stage, servers) = (Stage::new("/leaders-host"), Servers::start(2));
    let [connect, prefer] = servers.settings(0);
    let worker = stage.worker("east-1", "east", &[&FAST_FAILOVER[..], &[&connect, &prefer]].concat());
    until("it leads", || leads(&worker));
    until("it uses the preferred server", || servers.connections() == [1, 0]);

    // On the host of that server, and connected by another way.
    let other = stage.worker("east-2", "east", &[&FAST_FAILOVER[..], &["node.address=127.0.0.2"]].concat());
    until("the other one is on standby", || other.code("/standby") == 200);
    assert_eq!(servers.connections(), [1, 0], "only leaders' hosts are avoided");
    stage.operator(&["switchover", "--to", "east-2", "--wait"]).assert(0, &[]);
    until("it has left the host of the leader", || servers.connections() == [0, 1]);

    until("it is on standby", || worker.code("/standby") == 200);
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    until("it uses the preferred server again", || servers.connections() == [1, 0]);
}
