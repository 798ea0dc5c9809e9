//! The metrics, by name, label and count.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{Bed, PATIENCE, eventually, wait_state};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use zk_session::{CreateMode, DriverKind, REQUEST_SECONDS_BUCKETS, SessionState, describe_metrics};

#[derive(Default)]
struct Recording {
    values: Arc<Mutex<BTreeMap<String, u64>>>,
    described: Mutex<Vec<String>>,
}

struct Count(String, Arc<Mutex<BTreeMap<String, u64>>>);

impl CounterFn for Count {
    fn increment(&self, by: u64) {
        *self.1.lock().unwrap().entry(self.0.clone()).or_default() += by;
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Count {
    fn record(&self, seconds: f64) {
        assert!(seconds >= 0.0);
        self.increment(1);
    }
}

impl Recording {
    fn count(&self, key: &Key) -> Count {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Count(format!("{}{{{}}}", key.name(), labels.join(",")), self.values.clone())
    }
}

impl Recorder for Recording {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(name.as_str().to_owned());
    }
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(name.as_str().to_owned());
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(self.count(key)))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.count(key)))
    }
}

#[test]
fn operations_reconnects_and_expirations_are_counted() {
    for driver in drivers() {
        counted_over(driver);
    }
}

fn counted_over(driver: DriverKind) {
    let recording = Recording::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recording, || {
        describe_metrics();
        runtime.block_on(async {
            let bed = Bed::start(driver).await;
            let session = bed.builder().name("metered").connect().await.unwrap();
            session.create("/a", "", CreateMode::Persistent).await.unwrap();
            session.create("/a", "", CreateMode::Persistent).await.unwrap_err();
            session.get("/a").await.unwrap();
            bed.proxy.cut().await;
            wait_state(&session, "paused", |state| !state.is_active()).await;
            wait_state(&session, "active", SessionState::is_active).await;
            bed.proxy.refuse(true).await.unwrap();
            bed.proxy.cut().await;
            wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
            session.close(PATIENCE).await;
            // There is no session that it could be done on.
            session.children("/a").await.unwrap_err();
        });
    });
    let values = recording.values.lock().unwrap();
    for (metric, count) in [
        ("zk_session_requests_total{op=create,outcome=ok,session=metered}", 1),
        ("zk_session_requests_total{op=create,outcome=node_exists,session=metered}", 1),
        ("zk_session_requests_total{op=get,outcome=ok,session=metered}", 1),
        ("zk_session_requests_total{op=children,outcome=session_over,session=metered}", 1),
        ("zk_session_request_seconds{op=create,session=metered}", 2),
        ("zk_session_request_seconds{op=children,session=metered}", 1),
        ("zk_session_reconnects_total{session=metered}", 1),
        ("zk_session_expirations_total{session=metered}", 1),
    ] {
        assert_eq!(values.get(metric), Some(&count), "{driver}: {metric} in {values:#?}");
    }
    let described = recording.described.lock().unwrap();
    for metric in values.keys() {
        let name = metric.split('{').next().unwrap();
        assert!(described.iter().any(|described| described == name), "{name} is not described");
    }
}

fn drivers() -> impl Iterator<Item = DriverKind> {
    DriverKind::ALL.into_iter().filter(|driver| match driver {
        DriverKind::ZookeeperAsync => cfg!(feature = "zookeeper-async"),
        _ => true,
    })
}

/// With the exporter that most use, and the buckets that the documentation advises.
#[test]
fn round_trips_are_a_histogram_the_sessions_own_too() {
    for driver in drivers() {
        histogram_over(driver);
    }
}

fn histogram_over(driver: DriverKind) {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(
            Matcher::Full("zk_session_request_seconds".to_owned()),
            &REQUEST_SECONDS_BUCKETS,
        )
        .unwrap()
        .build_recorder();
    let rendered = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        describe_metrics();
        runtime.block_on(async {
            let bed = Bed::start(driver).await;
            let session = bed.session().await;
            session.get("/").await.unwrap();
            let count = |op: &str| {
                let wanted = format!("zk_session_request_seconds_count{{op=\"{op}\",session=\"default\"}} ");
                let text = rendered.render();
                let line = text.lines().find_map(|line| line.strip_prefix(&wanted).map(str::to_owned));
                line.map_or(0, |count| count.parse::<u64>().unwrap())
            };
            // Nothing is done: it asks now and then by itself.
            eventually("a probe", async || count("probe") > 0).await;
            assert_eq!(count("heartbeat"), 0);
            let keeper = session.keep_lease();
            eventually("heartbeats", async || count("heartbeat") > 2).await;
            drop(keeper);
            session.close(PATIENCE).await;
        });
    });
    let text = rendered.render();
    assert!(text.contains("# TYPE zk_session_request_seconds histogram"), "{text}");
    for op in ["get", "probe", "heartbeat"] {
        for bucket in REQUEST_SECONDS_BUCKETS {
            let line = format!(
                "zk_session_request_seconds_bucket{{op=\"{op}\",session=\"default\",le=\"{bucket}\"}} "
            );
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
