//! The policy of one job over that of all jobs.

use serde_json::{Map, Value};

use crate::{stage::Stage as _, stages::Limit};

/// The keys that a whole strategy replaces.
pub(super) const ORDER: [&str; 5] = ["on_leader_failure", "spread", "pipeline", "pipelines", "rules"];

/// Puts the keys of a policy for one job over those for all jobs, as
/// [`Registry::read_over`](crate::Registry::read_over) has it.
pub(crate) fn put_over(under: &mut Map<String, Value>, news: Map<String, Value>) {
    if news.contains_key("strategy") {
        let limits = limits(under);
        under.retain(|key, _| !ORDER.contains(&key.as_str()));
        if !limits.is_empty() {
            under.insert("pipeline".to_owned(), Value::Array(limits));
        }
    } else if ["pipeline", "rules"].into_iter().any(|key| news.contains_key(key)) {
        under.remove("strategy");
    }
    if let (Some(Value::Array(forbidden)), false) = (news.get("forbidden_sites"), news.contains_key("sites"))
        && let Some(Value::Array(sites)) = under.get_mut("sites")
    {
        sites.retain(|site| !forbidden.contains(site));
    }
    under.extend(news);
}

/// The stages `limit` of its pipeline.
fn limits(entries: &Map<String, Value>) -> Vec<Value> {
    let pipeline = match (entries.get("pipeline"), entries.get("pipelines")) {
        (Some(Value::String(name)), Some(Value::Object(named))) => named.get(name),
        (pipeline, _) => pipeline,
    };
    let Some(Value::Array(stages)) = pipeline else { return Vec::new() };
    let is_limit = |stage: &&Value| stage.get("stage").is_some_and(|name| name == Limit::NAME);
    stages.iter().filter(is_limit).cloned().collect()
}
