//! Metrics, by the `metrics` facade: without a recorder they cost next to nothing. And the span of the session's logs.

use std::sync::Arc;
use std::time::Duration;

use metrics::{SharedString, Unit, counter, describe_counter, describe_histogram, histogram};
use tracing::{Span, error_span};

const REQUESTS: &str = "zk_session_requests_total";
const REQUEST_SECONDS: &str = "zk_session_request_seconds";
pub(crate) const RECONNECTS: &str = "zk_session_reconnects_total";
pub(crate) const EXPIRATIONS: &str = "zk_session_expirations_total";
pub(crate) const DISAGREEMENTS: &str = "zk_session_disagreements_total";

/// Upper bounds in seconds for a histogram of `zk_session_request_seconds`: a round trip on a good network takes a few
/// milliseconds, a lost one up to the operation timeout.
///
/// Without bounds a recorder may make a summary of it, which can't be aggregated over processes:
///
/// ```
/// # fn recorder() -> Result<(), Box<dyn std::error::Error>> {
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
///
/// let recorder = PrometheusBuilder::new()
///     .set_buckets_for_metric(
///         Matcher::Full("zk_session_request_seconds".to_owned()),
///         &zk_session::REQUEST_SECONDS_BUCKETS,
///     )?
///     .build_recorder();
/// # drop(recorder);
/// # Ok(())
/// # }
/// ```
pub const REQUEST_SECONDS_BUCKETS: [f64; 12] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Describes this crate's metrics to the recorder that is installed. Call it once, after installing the recorder and before
/// making sessions.
///
/// Each has the label `session`, the name of the session ([`SessionBuilder::name`](crate::SessionBuilder::name)).
///
/// The round trips of the session itself are among `zk_session_request_seconds` as the operations `heartbeat` (a quorum
/// round trip, four in a session timeout while a lease is kept) and `probe` (a read, as often while none is): the round
/// trip time to ZooKeeper is always known.
pub fn describe_metrics() {
    describe_counter!(REQUESTS, Unit::Count, "Operations on ZooKeeper by kind and outcome, retries included");
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Time that an operation on ZooKeeper took, retries included; the ops heartbeat and probe are single round trips"
    );
    describe_counter!(RECONNECTS, Unit::Count, "Times that a session was paused and became active again");
    describe_counter!(
        DISAGREEMENTS,
        Unit::Count,
        "Times that the server of the session was found to disagree with the quorum"
    );
    describe_counter!(EXPIRATIONS, Unit::Count, "Sessions that ended without being closed");
}

/// What a session reports by: its name as a label, made once, and its span.
#[derive(Clone, Debug)]
pub(crate) struct Instruments {
    session: SharedString,
}

impl Instruments {
    pub(crate) fn new(name: String) -> Self {
        // Shared: an operation clones it without copying the text.
        Self { session: Arc::<str>::from(name).into() }
    }

    /// The span of all that is logged of the session. It has no parent: the session outlives its caller's span. At the
    /// level of errors, so that a filter that shows an event also shows whose it is.
    pub(crate) fn span(&self) -> Span {
        error_span!(parent: None, "zookeeper_session", session = %self.session)
    }

    /// Begins the counters at zero: of a counter that did not exist before, the first increment is not seen.
    pub(crate) fn register(&self) {
        for counted in [RECONNECTS, EXPIRATIONS, DISAGREEMENTS] {
            counter!(counted, "session" => self.session.clone()).absolute(0);
        }
    }

    pub(crate) fn request(&self, op: &'static str, outcome: &'static str, took: Duration) {
        let session = || self.session.clone();
        counter!(REQUESTS, "op" => op, "outcome" => outcome, "session" => session()).increment(1);
        histogram!(REQUEST_SECONDS, "op" => op, "session" => session()).record(took.as_secs_f64());
    }

    pub(crate) fn count(&self, what: &'static str) {
        counter!(what, "session" => self.session.clone()).increment(1);
    }
}
