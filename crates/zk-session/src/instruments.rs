//! Metrics, by the `metrics` facade: without a recorder they cost next to nothing.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

const REQUESTS: &str = "zk_session_requests_total";
const REQUEST_SECONDS: &str = "zk_session_request_seconds";
const RECONNECTS: &str = "zk_session_reconnects_total";
const EXPIRATIONS: &str = "zk_session_expirations_total";

/// Describes this crate's metrics to the recorder that is installed. Call it once, after installing the recorder.
pub fn describe_metrics() {
    describe_counter!(
        REQUESTS,
        Unit::Count,
        "Operations on ZooKeeper, by kind and outcome, retries not counted apart"
    );
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Time that an operation on ZooKeeper took, retries included"
    );
    describe_counter!(RECONNECTS, Unit::Count, "Times that a session was paused and became active again");
    describe_counter!(EXPIRATIONS, Unit::Count, "Sessions that ended otherwise than by being closed");
}

pub(crate) fn request(op: &'static str, outcome: &'static str, took: Duration) {
    counter!(REQUESTS, "op" => op, "outcome" => outcome).increment(1);
    histogram!(REQUEST_SECONDS, "op" => op).record(took.as_secs_f64());
}

pub(crate) fn reconnect() {
    counter!(RECONNECTS).increment(1);
}

pub(crate) fn expiration() {
    counter!(EXPIRATIONS).increment(1);
}
