//! What is made of the list: the table in `docs/metrics.md` and `config/grafana/dr-worker.json`.
//!
//! `UPDATE_METRICS=1 cargo test -p dr-worker --lib metrics` writes both.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::list::{METRICS, Metric, MetricKind, Scope, metric_of};

fn file(path: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, text)
}

/// Fails if the file differs from what is made of the list, or writes it.
fn is_up_to_date(path: &str, made: impl FnOnce(&str) -> String) {
    let (path, text) = file(path);
    let made = made(&text);
    if std::env::var_os("UPDATE_METRICS").is_some() {
        fs::write(&path, made).unwrap();
    } else {
        assert!(text == made, "{} is out of date: run `cargo xtask dashboard`", path.display());
    }
}

impl MetricKind {
    fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

impl Scope {
    fn sentence(self) -> &'static str {
        match self {
            Scope::Member => "",
            Scope::EveryJob => "every job",
            Scope::Here => "jobs that are here",
            Scope::HereOrElector => "jobs that are here, or whose elector the member is",
        }
    }
}

impl Metric {
    /// Its name says so.
    fn is_in_seconds(&self) -> bool {
        self.name.split('_').any(|part| part == "seconds")
    }
}

fn table() -> String {
    let mut table = "| metric | kind | served for | value |\n|---|---|---|---|\n".to_owned();
    for Metric { name, kind, labels, scope, help, .. } in METRICS.iter() {
        let labels = if labels.is_empty() { String::new() } else { format!(" {{{}}}", labels.join(", ")) };
        let (kind, scope) = (kind.word(), scope.sentence());
        table += &format!("| `{name}`{labels} | {kind} | {scope} | {help} |\n");
    }
    table
}

#[test]
fn the_documentation_lists_all_metrics() {
    const BEGIN: &str = "<!-- The table is generated: cargo xtask dashboard -->\n";
    is_up_to_date("docs/metrics.md", |text| {
        let (before, rest) = text.split_once(BEGIN).expect("the line before the table");
        let after = rest.find("\n\n").map_or("", |end| &rest[end..]);
        format!("{before}{BEGIN}{}{after}", table().trim_end())
    });
}

const ROWS: [&str; 5] = ["Leadership", "Changes of leadership", "Jobs", "Network", "ZooKeeper"];

/// Grafana divides the width into 24.
const COLUMNS: usize = 3;
const WIDTH: usize = 24 / COLUMNS;
const HEIGHT: usize = 8;

fn dashboard() -> Value {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let mut panels = Vec::new();
    let mut top = 0;
    for title in ROWS {
        panels.push(json!({
            "type": "row", "title": title, "collapsed": false, "panels": [], "id": panels.len() + 1,
            "gridPos": { "x": 0, "y": top, "w": 24, "h": 1 },
        }));
        top += 1;
        let of_row = METRICS.iter().filter_map(|metric| Some((metric, metric.panel.as_ref()?)));
        let of_row: Vec<_> = of_row.filter(|(_, panel)| panel.row == title).collect();
        for (at, (metric, panel)) in of_row.iter().enumerate() {
            let unit = if metric.is_in_seconds() { "s" } else { "short" };
            panels.push(json!({
                "type": "timeseries", "title": panel.title, "description": metric.help, "id": panels.len() + 1,
                "datasource": source,
                "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
                "gridPos": {
                    "x": at % COLUMNS * WIDTH, "y": top + at / COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT,
                },
                "targets": [{
                    "datasource": source, "expr": panel.expr, "legendFormat": panel.legend, "refId": "A",
                }],
            }));
        }
        top += of_row.len().div_ceil(COLUMNS) * HEIGHT;
    }
    let variable = |name: &str, of: &str| {
        json!({
            "type": "query", "name": name, "label": name, "datasource": source, "refresh": 2, "sort": 1,
            "query": { "query": format!("label_values({of}, {name})"), "refId": name },
            "multi": true, "includeAll": true, "allValue": ".*",
            "current": { "selected": true, "text": ["All"], "value": ["$__all"] },
        })
    };
    json!({
        "uid": "dr-worker", "title": "dr-worker", "tags": ["dr-worker"], "schemaVersion": 38, "version": 1,
        "editable": true, "refresh": "30s", "time": { "from": "now-6h", "to": "now" },
        "templating": { "list": [
            { "type": "datasource", "name": "datasource", "label": "data source", "query": "prometheus" },
            variable("job", "dr_leader"),
            variable("member", "dr_session_state"),
        ] },
        "annotations": { "list": [{
            "name": "Changes of leadership", "datasource": source, "enable": true, "iconColor": "blue",
            "expr": "max by (job) (changes(dr_term{job=~\"$job\"}[1m])) > 0", "titleFormat": "{{job}}", "step": "1m",
        }] },
        "panels": panels,
    })
}

#[test]
fn the_dashboard_shows_what_the_list_says() {
    is_up_to_date("config/grafana/dr-worker.json", |_| format!("{:#}\n", dashboard()));
}

/// The names of metrics in expressions.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("dr_") || word.starts_with("zk_session_")).collect()
}

#[test]
fn rules_and_panels_name_metrics_that_exist() {
    let (_, alerts) = file("config/prometheus/alerts.yml");
    let panels = METRICS.iter().filter_map(|metric| Some(metric.panel.as_ref()?.expr.as_str()));
    for name in panels.flat_map(named).chain(named(&alerts)) {
        assert!(metric_of(name).is_some(), "there is no metric {name}");
    }
}

/// All sources below this directory.
fn sources(of: &Path, text: &mut String) {
    for entry in fs::read_dir(of).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else {
            *text += &fs::read_to_string(&path).unwrap();
        }
    }
}

#[test]
fn the_list_has_what_the_program_records_and_nothing_else() {
    let mut text = String::new();
    sources(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
    let mut recorded = BTreeSet::new();
    for kind in [MetricKind::Counter, MetricKind::Gauge, MetricKind::Histogram] {
        for (at, call) in text.match_indices(&format!("{}!(\"", kind.word())) {
            recorded.insert((text[at + call.len()..].split('"').next().unwrap(), kind.word()));
        }
    }
    // Those of zk-session are recorded there.
    let own = METRICS.iter().filter(|metric| metric.name.starts_with("dr_"));
    assert_eq!(recorded, own.map(|metric| (metric.name.as_str(), metric.kind.word())).collect());
}

#[test]
fn each_metric_is_listed_once_and_named_by_its_kind() {
    let names: BTreeSet<_> = METRICS.iter().map(|metric| &metric.name).collect();
    assert_eq!(names.len(), METRICS.len());
    for metric in METRICS.iter() {
        let name = &metric.name;
        assert_eq!(metric.kind == MetricKind::Counter, name.ends_with("_total"), "{name}");
        let has_job = metric.labels.iter().any(|label| label == "job");
        assert_eq!(has_job, metric.scope != Scope::Member, "{name}");
        assert!(metric.panel.as_ref().is_none_or(|panel| ROWS.contains(&panel.row.as_str())), "{name}");
    }
}
