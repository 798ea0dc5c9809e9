//! The one list of metrics: `list.toml`, read once.

use std::sync::LazyLock;

use figment::{
    Figment,
    providers::{Format as _, Toml},
};
use serde::Deserialize;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::worker) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Which series are served. A worker with a thousand jobs would else serve a hundred thousand series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::worker) enum Scope {
    /// Those of the member itself.
    Member,
    /// Those of every job.
    EveryJob,
    /// Those of jobs that are here: the member leads them, takes over or stops them, or has done so a moment ago.
    Here,
    /// The same, and those of jobs whose elector the member is.
    HereOrElector,
}

/// A metric, and where the dashboard shows it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests write the documentation and the dashboard"))]
pub(in crate::worker) struct Metric {
    pub(in crate::worker) name: String,
    pub(in crate::worker) kind: MetricKind,
    pub(in crate::worker) scope: Scope,
    /// Beside `member` and `site`, which all have.
    #[serde(default)]
    pub(in crate::worker) labels: Vec<String>,
    pub(in crate::worker) help: String,
    pub(in crate::worker) panel: Option<Panel>,
}

/// A panel of the dashboard.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests write the dashboard"))]
pub(in crate::worker) struct Panel {
    /// The title of its row.
    pub(in crate::worker) row: String,
    pub(in crate::worker) title: String,
    /// The name of each line.
    pub(in crate::worker) legend: String,
    /// PromQL.
    pub(in crate::worker) expr: String,
}

/// All that `/metrics` serves, in the order of the documentation.
pub(in crate::worker) static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let list = Figment::from(Toml::string(include_str!("list.toml")));
    list.extract_inner("metric").expect("the list is a part of this program, and tests read it")
});

/// The metric of a series with this name.
pub(super) fn metric_of(series: &str) -> Option<&'static Metric> {
    let is_part = |rest: &str| matches!(rest, "" | "_bucket" | "_sum" | "_count");
    METRICS.iter().find(|metric| match metric.kind {
        MetricKind::Histogram => series.strip_prefix(metric.name.as_str()).is_some_and(is_part),
        MetricKind::Counter | MetricKind::Gauge => series == metric.name,
    })
}
