//! Leadership by measured round trips.

use std::time::Duration;

use e2e::{Cluster, Driver, Leader, SOON, Setup, own_ensemble, wait_for};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use zk_testkit::Network;

const NEAR: Duration = Duration::from_millis(20);
const FAR: Duration = Duration::from_millis(300);
/// The margin by which another member must be better. The noise of a busy machine is smaller.
const MARGIN: &str = "100ms";
/// The round trip of all, when none is much better than another.
const EVEN: Duration = Duration::from_millis(100);
const NOISE: Duration = Duration::from_millis(60);
/// Smoothed round trips follow a change within some dozen rounds.
const MOVED_WITHIN: Duration = Duration::from_secs(90);
/// The number of noisy values that each member must have published.
const NOISY_WRITES: u64 = 12;

const WORKERS: [(&str, &str); 4] = [("a-1", "a"), ("b-1", "b"), ("b-2", "b"), ("c-1", "c")];

fn by_latency(margin: &str) -> toml::Value {
    let stage: toml::Table =
        toml::from_str(&format!("stage = 'latency'\nby = 'majority'\nmargin = '{margin}'")).unwrap();
    toml::Value::Array(vec![toml::Value::Table(stage), "site-order".into(), "incumbent".into()])
}

fn setup() -> Setup {
    Setup::new(Driver::Native)
        .workers(&WORKERS)
        .on_delayed_hosts()
        .not_started()
        .set("policy.sites", vec!["a", "b", "c"])
        .set("policy.pipeline", by_latency(MARGIN))
        .set("policy.auto_moves", "all")
        .set("policy.failback_after", "1s")
        .set("policy.min_tenure", "1s")
        .set("probes.interval", "50ms")
        .set("probes.timeout", "2s")
        // All noise must be published, otherwise the absence of moves proves nothing.
        .set(
            "probes.publish",
            toml::from_str::<toml::Table>("percent = 0\nchange = '0s'\nevery = '250ms'").unwrap(),
        )
}

/// All links are slow, except those of one member.
fn near_to_all(cluster: &Cluster, one: &'static str) {
    for (at, (id, _)) in WORKERS.iter().enumerate() {
        for (other, _) in &WORKERS[at + 1..] {
            let is_near = [*id, *other].contains(&one);
            cluster.delays().between(id, other, if is_near { NEAR } else { FAR });
        }
    }
}

async fn led_by(cluster: &mut Cluster, id: &str) -> Leader {
    cluster.leader_is(&format!("{id}, which is nearest"), MOVED_WITHIN, |leader| leader.member == id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_leads_and_noise_moves_nobody() {
    if !Network::available_or_skip() {
        return;
    }
    let ensemble = own_ensemble(|builder| builder.in_namespaces(true)).await;
    let mut cluster = Cluster::on(ensemble, setup()).await;
    near_to_all(&cluster, "b-1");
    cluster.workers().iter_mut().for_each(e2e::Worker::start);
    let first = led_by(&mut cluster, "b-1").await;

    // The published value is the measured one: between the link's delay and twice that.
    let near = wait_for("round trips of b-1 to all", SOON, async || {
        let record = cluster.znodes().await.json("orders/nodes/b-1").await;
        let peers = record["round_trips"]["peers"].as_object().cloned().unwrap_or_default();
        let trips: Vec<u64> = peers.values().filter_map(serde_json::Value::as_u64).collect();
        if trips.len() == 3 { Ok(trips) } else { Err(format!("{record:#}")) }
    })
    .await;
    let link = u64::try_from(NEAR.as_micros()).unwrap();
    assert!(near.iter().all(|micros| *micros >= link), "{near:?}");
    let (_, text) = cluster.worker("b-1").get("/metrics").await.unwrap();
    let shown = text.lines().filter(|line| line.starts_with("dr_peer_rtt_seconds{")).count();
    assert_eq!(shown, 3, "{text}");

    // Another member becomes better by more than the margin.
    near_to_all(&cluster, "c-1");
    let second = led_by(&mut cluster, "c-1").await;
    assert!(second.token > first.token);
    let elected = cluster.znodes().await.decision("orders").await;
    assert_eq!(elected["cause"], "better-candidate", "{elected:#}");
    let sentence = elected["sentence"].as_str().unwrap();
    assert!(sentence.contains("to a majority"), "{sentence}");

    // All become equal within the margin, and the elector reads every change.
    cluster.delays().noise(NOISE);
    for (at, (id, _)) in WORKERS.iter().enumerate() {
        WORKERS[at + 1..].iter().for_each(|(other, _)| cluster.delays().between(id, other, EVEN));
    }
    let told = "dr_round_trips_published_total";
    for (id, _) in WORKERS {
        let before = cluster.worker(id).counted(told, "").await;
        wait_for(&format!("news of {id}"), MOVED_WITHIN, async || {
            let now = cluster.worker(id).counted(told, "").await;
            if now >= before + NOISY_WRITES { Ok(()) } else { Err(format!("{before}, then {now}")) }
        })
        .await;
    }
    let third = cluster.leader().await.expect("a leader");
    assert_eq!((third.token, third.term), (second.token, second.term), "noise has moved leadership");
    cluster.end().await;
}

/// Answers every connection like a web server, until it is dropped.
struct Target {
    address: String,
    task: tokio::task::JoinHandle<()>,
}

impl Target {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                // A client that only connects sends nothing and closes.
                if stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
                }
            }
        });
        Self { address, task }
    }
}

#[tokio::test]
async fn zookeeper_and_targets_are_measured_where_a_policy_goes_by_them() {
    let (db, shop) = (Target::start().await, Target::start().await);
    let policy: toml::Table = toml::from_str(
        "pipeline = [{ stage = 'latency', by = 'targets', targets = { db = 2, shop = 1 } }]\n\
         rules = [{ when = 'failure', pipeline = [{ stage = 'latency', by = 'zookeeper' }] }]",
    )
    .unwrap();
    let setup = Setup::new(Driver::Native)
        .workers(&[("east-1", "east")])
        .set("policy.pipeline", policy["pipeline"].clone())
        .set("policy.rules", policy["rules"].clone())
        .set("probes.interval", "50ms")
        .set("probes.publish.every", "100ms")
        .set("probes.targets.db.address", db.address.clone())
        .set("probes.targets.shop.url", format!("http://{}/", shop.address))
        .set("probes.targets.unused.address", "127.0.0.1:1");
    let mut cluster = Cluster::of(setup).await;
    cluster.first_leader().await;
    let known = |record: &serde_json::Value| {
        let trips = &record["round_trips"];
        let targets = trips["targets"].as_object().map(|targets| targets.keys().cloned().collect::<Vec<_>>());
        (trips["zookeeper"].is_u64(), trips["peers"].is_object(), targets.unwrap_or_default())
    };
    let published = async |cluster: &Cluster, targets: &[&str]| {
        wait_for(&format!("round trips to ZooKeeper and {targets:?}"), SOON, async || {
            let record = cluster.znodes().await.json("orders/nodes/east-1").await;
            let (zookeeper, peers, found) = known(&record);
            if zookeeper && !peers && found == *targets { Ok(()) } else { Err(format!("{record:#}")) }
        })
        .await;
    };
    published(&cluster, &["db", "shop"]).await;
    db.task.abort();
    published(&cluster, &["shop"]).await;
    cluster.end().await;
}
